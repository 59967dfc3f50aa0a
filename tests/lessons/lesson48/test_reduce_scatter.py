"""Checks of the exercise "reduce-scatter": every rank gets its shard of the mean gradient."""

from __future__ import annotations

import math
from typing import Any

import torch

from grader.checks import Case, Draw, check
from grader.checks.ledger_rules import explain_route

EXERCISE, FUNCTION = "reduce-scatter", "reduce_scatter_grad"
FLOAT = torch.float32


def even(draw: Draw) -> dict[str, Any]:
    return draw.tensors({"weight": ((4, 3), FLOAT), "cube": ((2, 3, 4), FLOAT)}, "gradients/")


def uneven(draw: Draw) -> dict[str, Any]:
    return draw.tensors({"weight": ((5, 5), FLOAT), "bias": ((7,), FLOAT)}, "gradients/")


def small(draw: Draw) -> dict[str, Any]:
    return draw.tensors({"scale": ((), FLOAT), "two": ((2,), FLOAT)}, "gradients/")


def strided(draw: Draw) -> dict[str, Any]:
    shapes = {"weight": ((4, 3), FLOAT), "column": ((5,), FLOAT)}
    own = list(shapes) if draw.rank % 2 else []
    return {"strided": own, **draw.tensors(shapes, "gradients/")}


def nearly_too_large(draw: Draw) -> dict[str, Any]:
    # The largest float16 is 65,504: any mean of these fits, the sum of two does not.
    signs = torch.tensor([1, -1, 1, 1, -1, -1], dtype=torch.float16)
    return {"gradients/weight": draw.uniform((6,), 50_000, 64_000, torch.float16) * signs}


def every_dtype(draw: Draw) -> dict[str, Any]:
    # One sign only: terms that cancel would leave nothing but rounding to compare. And whole
    # multiples of the world size in double, so that a mean in single precision is exact too.
    return {
        "gradients/fp16": draw.uniform((3, 3), 1, 4, torch.float16),
        "gradients/bf16": draw.uniform((5,), 1, 4, torch.bfloat16),
        "gradients/fp64": draw.integers(1, 1000, (2, 3), torch.float64) * draw.world_size,
    }


def training(draw: Draw) -> dict[str, Any]:
    steps, rows = 3, 4
    return {
        "seed": int(draw.shared.integers(0, 2**31, (1,))),
        "x": draw.normal((steps, rows, 3)),
        "y": draw.normal((steps, rows, 2)),
    }


def _shards_are_right(case: Case) -> None:
    for name in _names(case):
        own = [inputs[f"gradients/{name}"] for inputs in case.inputs]
        mean = torch.stack([grad.double() for grad in own]).mean(0).to(own[0].dtype)
        shards = _cut(mean, case.world_size)
        case.equals(
            f"shards/{name}",
            lambda rank, shards=shards: shards[rank],
            exact=False,
            kind="reduce_scatter",
            extra={"gradients": own},
        )


def _names(case: Case) -> list[str]:
    keys = [key for key in case.inputs[0] if key.startswith("gradients/")]
    return [key.removeprefix("gradients/") for key in keys]


def _cut(full: torch.Tensor, world_size: int) -> list[torch.Tensor]:
    size = math.ceil(full.numel() / world_size)
    padded = torch.zeros(size * world_size, dtype=full.dtype)
    padded[: full.numel()] = full.reshape(-1)
    return list(padded.split(size))


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="reduce_scatter.reduce_scatter",
    inputs=even,
    world_sizes=(2, 3, 4),
    weight=3,
)
def test_every_rank_gets_its_shard_of_the_mean(case: Case) -> None:
    """Every rank ends up with its own shard of the mean gradient, and no other."""
    _shards_are_right(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="reduce_scatter.reduce_scatter",
    inputs=uneven,
    world_sizes=(1, 2, 3),
    weight=2,
)
def test_sizes_that_do_not_divide(case: Case) -> None:
    """A gradient that cannot be divided evenly is filled up with zeros, as parameters are."""
    _shards_are_right(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="reduce_scatter.reduce_scatter",
    inputs=small,
    world_sizes=(3,),
)
def test_fewer_numbers_than_ranks(case: Case) -> None:
    """A gradient with fewer numbers than ranks leaves some ranks with nothing but zeros."""
    _shards_are_right(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="reduce_scatter.reduce_scatter",
    inputs=strided,
    world_sizes=(2,),
)
def test_gradient_shards_follow_the_rows(case: Case) -> None:
    """A gradient is cut row after row, however it lies in memory on each rank."""
    _shards_are_right(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="reduce_scatter.reduce_scatter",
    inputs=nearly_too_large,
    world_sizes=(2,),
)
def test_a_shard_of_a_mean_that_fits_does_not_overflow(case: Case) -> None:
    """Half-precision gradients whose mean fits give that mean, though their sum would not fit."""
    _shards_are_right(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="reduce_scatter.reduce_scatter",
    inputs=every_dtype,
    world_sizes=(3,),
)
def test_gradient_shards_keep_the_dtype(case: Case) -> None:
    """The shard has the gradient's dtype, in half and in double precision."""
    _shards_are_right(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="reduce_scatter.reduce_scatter",
    inputs=even,
    world_sizes=(3,),
    after="every_rank_gets_its_shard_of_the_mean",
)
def test_no_rank_receives_the_whole_gradient(case: Case) -> None:
    """No rank is sent more of the mean gradient than its shard."""
    size = sum(case.inputs[0][f"gradients/{name}"].numel() for name in _names(case))
    for rank, entries in enumerate(case.issued()):
        received, by = 0, ""
        is_reduced = False
        for entry in entries:
            count = sum(math.prod(shape) for shape in entry.shapes)
            is_reduced |= entry.op in ("reduce", "reduce_scatter")
            if entry.op in ("all_reduce", "broadcast"):
                received, by = received + count, entry.op
            elif entry.op == "all_gather" and is_reduced:
                received, by = received + count * case.world_size, entry.op
        case.require(
            received < size,
            f"rank {rank} received {received} numbers of gradients that have {size} by {by}",
            rank=rank,
            diagnosis=explain_route(case.ledgers, case.want_ledgers) or "",
            expected=f"about {size // case.world_size} numbers",
            actual=f"{received} numbers",
        )


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharded.by_reduce_scatter",
    reference_program="sharded.by_torch",
    inputs=training,
    world_sizes=(2,),
    weight=2,
    after=("every_rank_gets_its_shard_of_the_mean", "sizes_that_do_not_divide"),
)
def test_stepping_on_shards_equals_torch_fsdp(case: Case) -> None:
    """Stepping on your shards of the gradients gives the weights that `fully_shard` gives."""
    case.equals_reference("parameters/*")
