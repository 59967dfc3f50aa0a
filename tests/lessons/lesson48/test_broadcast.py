"""Checks of the exercise "broadcast": every rank ends up with the source's module."""

from __future__ import annotations

from typing import Any

import torch

from grader.checks import Case, Draw, check

EXERCISE, FUNCTION = "broadcast", "broadcast_module"
MATRIX, VECTOR, SCALAR = (3, 2), (5,), ()


def own_seed(draw: Draw) -> int:
    return int(draw.integers(0, 2**31, (1,)))


def mlp(draw: Draw) -> dict[str, Any]:
    return {"model": "mlp", "seed": own_seed(draw)}


def mlp_from_the_second(draw: Draw) -> dict[str, Any]:
    return mlp(draw) | {"src": 1}


def mlp_from_the_last(draw: Draw) -> dict[str, Any]:
    return mlp(draw) | {"src": draw.world_size - 1}


def batchnorm(draw: Draw) -> dict[str, Any]:
    return {"model": "batchnorm", "seed": own_seed(draw)}


def many_buffers(draw: Draw) -> dict[str, Any]:
    buffers = {
        "counter": (SCALAR, torch.int64),
        "bytes": (VECTOR, torch.uint8),
        "mask": ((16,), torch.bool),
        "table": (MATRIX, torch.int32),
    }
    weight = {"weight": (MATRIX, torch.float32)}
    # Beyond 2**53, where a detour over floating point loses the last digit.
    large = draw.integers(2**60, 2**61, VECTOR) | 1
    return {
        **draw.tensors(weight, prefix="parameters/"),
        **draw.tensors(buffers, prefix="buffers/"),
        "buffers/large": large,
    }


def frozen(draw: Draw) -> dict[str, Any]:
    shapes = {"embedding": (MATRIX, torch.float32), "weight": (MATRIX, torch.float32)}
    return {"frozen": ["embedding"], **draw.tensors(shapes, prefix="parameters/")}


def layouts(draw: Draw) -> dict[str, Any]:
    shapes = {"weight": ((4, 3), torch.float32), "bias": (VECTOR, torch.float32)}
    own = ["weight", "bias"] if draw.rank % 2 else []
    return {"strided": own, **draw.tensors(shapes, prefix="parameters/")}


def layouts_from_the_strided(draw: Draw) -> dict[str, Any]:
    return layouts(draw) | {"src": 1}


def tied(draw: Draw) -> dict[str, Any]:
    shapes = {"embedding": (MATRIX, torch.float32), "bias": (VECTOR, torch.float32)}
    return {"tied": {"head": "embedding"}, **draw.tensors(shapes, prefix="parameters/")}


def dtypes_and_garbage(draw: Draw) -> dict[str, Any]:
    shapes = {
        "scale": (SCALAR, torch.float32),
        "fp16": (MATRIX, torch.float16),
        "bf16": (VECTOR, torch.bfloat16),
        "fp64": (MATRIX, torch.float64),
    }
    inputs = draw.tensors(shapes, prefix="parameters/")
    if draw.rank:
        # What a rank holds that was never initialised: it must not reach the result.
        inputs = {name: torch.full_like(value, torch.nan) for name, value in inputs.items()}
    return inputs


def _equal_the_source(case: Case, *patterns: str) -> None:
    source = case.inputs[0].get("src", 0)
    case.equals_reference(*patterns, exact=True, kind="broadcast", extra={"src": source})
    case.same_on_every_rank(*patterns)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="broadcast.broadcast_module",
    inputs=mlp,
    world_sizes=(2, 3),
    weight=2,
)
def test_parameters_equal_the_source(case: Case) -> None:
    """Every parameter ends up equal to rank 0's, bit for bit, on every rank."""
    _equal_the_source(case, "parameters/*")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="broadcast.broadcast_module",
    inputs=batchnorm,
    world_sizes=(2, 3),
    weight=2,
)
def test_buffers_equal_the_source(case: Case) -> None:
    """What a BatchNorm layer has counted and averaged ends up equal to rank 0's too."""
    _equal_the_source(case, "buffers/*")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="broadcast.broadcast_module",
    inputs=many_buffers,
    world_sizes=(2,),
)
def test_buffers_of_every_dtype(case: Case) -> None:
    """Buffers of whole numbers, bytes and yes-or-no values arrive unchanged."""
    _equal_the_source(case, "buffers/*")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="broadcast.broadcast_module",
    inputs=frozen,
    world_sizes=(2,),
)
def test_frozen_parameters_too(case: Case) -> None:
    """Parameters that are not trained are handed out like the others."""
    _equal_the_source(case, "parameters/*")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="broadcast.broadcast_module",
    inputs=mlp_from_the_second,
    world_sizes=(3,),
)
def test_the_source_may_be_another_rank(case: Case) -> None:
    """With `src=1` it is rank 1 whose parameters everybody gets."""
    _equal_the_source(case, "parameters/*")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="broadcast.broadcast_module",
    inputs=mlp_from_the_last,
    world_sizes=(4,),
)
def test_the_source_may_be_the_last_rank(case: Case) -> None:
    """With the last of four ranks as the source, the other three get its parameters."""
    _equal_the_source(case, "parameters/*")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="broadcast.broadcast_module",
    inputs=layouts,
    world_sizes=(3,),
)
def test_layout_in_memory_does_not_matter(case: Case) -> None:
    """A parameter that lies in memory another way on some ranks still gets the right values."""
    _equal_the_source(case, "parameters/*")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="broadcast.broadcast_module",
    inputs=layouts_from_the_strided,
    world_sizes=(2,),
)
def test_layout_of_the_source_does_not_matter(case: Case) -> None:
    """The source's parameters may lie in memory in any order."""
    _equal_the_source(case, "parameters/*")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="broadcast.broadcast_module",
    inputs=dtypes_and_garbage,
    world_sizes=(2,),
)
def test_every_dtype_bit_for_bit(case: Case) -> None:
    """Single numbers, half and double precision arrive bit for bit, whatever was there before."""
    _equal_the_source(case, "parameters/*")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="broadcast.tied",
    inputs=tied,
    world_sizes=(2,),
)
def test_tied_parameters_stay_tied(case: Case) -> None:
    """A parameter that two layers share is still one parameter, with the source's values."""
    case.equals("still one/head", True)
    _equal_the_source(case, "parameters/*")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="broadcast.same_objects",
    inputs=frozen,
    world_sizes=(2,),
)
def test_parameters_stay_the_same_objects(case: Case) -> None:
    """Parameters change in place, so an optimizer that already knows them sees the new values."""
    for name in ("embedding", "weight"):
        for rank in range(case.world_size):
            for fact, broken in (
                ("same object", "is another object than before"),
                ("same memory", "lies in other memory than before"),
                ("leaf", "has become the result of a computation"),
            ):
                kept = case.got[rank].get(f"{fact}/{name}") is True
                case.require(kept, f"on rank {rank}, parameter {name} {broken}", rank=rank)
        case.equals(f"trainable/{name}", name != "embedding")
    _equal_the_source(case, "parameters/*")
