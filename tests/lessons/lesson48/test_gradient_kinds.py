"""Checks of the exercise "all-reduce": gradients of every dtype, layout and shape."""

from __future__ import annotations

import math
from typing import Any

import torch

from grader.checks import Case, Draw, check

EXERCISE, FUNCTION = "all-reduce", "all_reduce_grads_"
MATRIX, VECTOR, SCALAR = (3, 2), (5,), ()
FLOAT = torch.float32
PLAIN = {"weight": (MATRIX, FLOAT), "bias": (VECTOR, FLOAT), "last": (MATRIX, FLOAT)}


def plain(draw: Draw) -> dict[str, Any]:
    return {**draw.tensors(PLAIN, "parameters/"), **draw.tensors(PLAIN, "gradients/")}


def nearly_too_large(draw: Draw) -> dict[str, Any]:
    # The largest float16 is 65,504: any mean of these fits, the sum of two does not.
    signs = torch.tensor([1, -1, 1, 1, -1], dtype=torch.float16)
    return {
        "parameters/weight": draw.normal(VECTOR, torch.float16),
        "gradients/weight": draw.uniform(VECTOR, 50_000, 64_000, torch.float16) * signs,
    }


def every_dtype(draw: Draw) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16), ("fp32", FLOAT)):
        inputs[f"parameters/{name}"] = draw.normal(MATRIX, dtype)
        # One sign only: terms that cancel would leave nothing but rounding to compare.
        inputs[f"gradients/{name}"] = draw.uniform(MATRIX, 1, 4, dtype)
    inputs["parameters/fp64"] = draw.normal(VECTOR, torch.float64)
    # Whole multiples of the world size, so that a mean in single precision is exact as well.
    whole = draw.integers(1, 1000, VECTOR, torch.float64) * draw.world_size
    return inputs | {"gradients/fp64": whole}


def strided(draw: Draw) -> dict[str, Any]:
    own = ["weight", "bias"] if draw.rank % 2 else ["last"]
    return {**plain(draw), "strided_gradients": own}


def columns(draw: Draw) -> dict[str, Any]:
    shapes = {"weight": (MATRIX, FLOAT), "bias": (VECTOR, FLOAT)}
    wide = {name: ((*shape, 2), dtype) for name, (shape, dtype) in shapes.items()}
    return {**draw.tensors(shapes, "parameters/"), **draw.tensors(wide, "wide/")}


def single_numbers(draw: Draw) -> dict[str, Any]:
    shapes = {"scale": (SCALAR, FLOAT), "one": ((1,), FLOAT), "shift": (SCALAR, FLOAT)}
    return {**draw.tensors(shapes, "parameters/"), **draw.tensors(shapes, "gradients/")}


def tied(draw: Draw) -> dict[str, Any]:
    return {"tied": {"head": "weight"}, **plain(draw)}


def _means(case: Case) -> dict[str, torch.Tensor]:
    """The mean over ranks of every gradient that is an input, in double precision."""
    names = [name for name in case.inputs[0] if name.startswith("gradients/")]
    return {name: torch.stack([i[name].double() for i in case.inputs]).mean(0) for name in names}


def _hold_norm(case: Case) -> None:
    squares = sum(float(mean.square().sum()) for mean in _means(case).values())
    case.equals("norm", math.sqrt(squares), exact=False, kind="norm")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.average",
    inputs=nearly_too_large,
    world_sizes=(2,),
)
def test_a_mean_that_fits_does_not_overflow(case: Case) -> None:
    """Half-precision gradients whose mean fits give that mean, though their sum would not fit."""
    case.equals_reference("gradients/*", kind="mean")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.average",
    inputs=every_dtype,
    world_sizes=(3,),
)
def test_gradients_of_every_dtype(case: Case) -> None:
    """Half, single and double precision in one module are averaged, each in its own dtype."""
    case.equals_reference("gradients/*", kind="mean")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.average",
    inputs=strided,
    world_sizes=(3,),
)
def test_gradients_in_any_layout(case: Case) -> None:
    """Gradients that lie in memory another way on another rank are averaged number by number."""
    case.equals_reference("gradients/*", kind="mean")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.average_columns",
    inputs=columns,
    world_sizes=(2,),
)
def test_a_gradient_that_is_a_column(case: Case) -> None:
    """A gradient that is a column of a larger tensor is averaged; its neighbours are left alone."""
    for name in ("weight", "bias"):
        wide = [inputs[f"wide/{name}"] for inputs in case.inputs]
        mean = torch.stack([w[..., 0] for w in wide]).mean(0)
        case.equals(f"gradients/{name}", mean, exact=False, kind="mean")
        case.equals(f"neighbours/{name}", lambda rank, wide=wide: wide[rank][..., 1])


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.average",
    inputs=single_numbers,
    world_sizes=(2,),
)
def test_parameters_of_a_single_number(case: Case) -> None:
    """Parameters that are a single number are averaged and counted like the others."""
    case.equals_reference("gradients/*", kind="mean")
    _hold_norm(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.tied",
    inputs=tied,
    world_sizes=(2,),
)
def test_a_shared_parameter_counts_once(case: Case) -> None:
    """A parameter that two layers share is averaged once and counts once in the norm."""
    case.equals_reference("gradients/*", kind="mean")
    case.equals("still one/head", True)
    _hold_norm(case)
