"""Checks of the exercise "shard / gather": the round trip, and what every rank says of it."""

from __future__ import annotations

from typing import Any

import torch

from grader.checks import Case, Draw, check

EXERCISE, FUNCTION = "shard / gather", "fsdp_round_trip_sketch"
FLOAT = torch.float32


def same_module(draw: Draw) -> dict[str, Any]:
    shapes = {
        "weight": ((4, 3), FLOAT),
        "odd": ((5,), FLOAT),
        "bf16": ((3, 2), torch.bfloat16),
        "scale": ((), FLOAT),
    }
    return {
        "frozen": ["odd"],
        "strided": ["weight"],
        **draw.shared.tensors(shapes, "parameters/"),
    }


def different_modules(draw: Draw) -> dict[str, Any]:
    shapes = {"weight": ((4, 3), FLOAT), "bias": ((4,), FLOAT)}
    return draw.tensors(shapes, "parameters/")


def one_number_is_off(draw: Draw) -> dict[str, Any]:
    """On the last rank alone, the first number of `weight` is not the one that rank 0 shards."""
    shapes = {"weight": ((4, 3), FLOAT), "bias": ((4,), FLOAT)}
    inputs = draw.shared.tensors(shapes, "parameters/")
    if draw.rank == draw.world_size - 1:
        inputs["parameters/weight"][0, 0] += 1
    return inputs


def one_late_number_is_off(draw: Draw) -> dict[str, Any]:
    shapes = {"weight": ((4, 3), FLOAT), "bias": ((4,), FLOAT)}
    inputs = draw.shared.tensors(shapes, "parameters/")
    if draw.rank == 0:
        inputs["parameters/bias"][-1] += 1  # which lies in the last rank's shard
    return inputs


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.round_trip",
    inputs=same_module,
    world_sizes=(1, 3),
)
def test_the_round_trip_holds_on_every_rank(case: Case) -> None:
    """Shard and gather every parameter: all come back unchanged, so every rank says `True`."""
    case.equals("returned", True)
    case.equals_reference("parameters/*", exact=True)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.round_trip",
    inputs=different_modules,
    world_sizes=(2,),
)
def test_the_round_trip_notices_ranks_that_differ(case: Case) -> None:
    """Shards of different weights do not give anybody's weights again, and every rank says so."""
    case.equals("returned", False)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.round_trip",
    inputs=one_number_is_off,
    world_sizes=(3,),
)
def test_one_ranks_failure_is_everybodys(case: Case) -> None:
    """When a single rank gets a parameter back changed, all ranks say `False`."""
    case.equals("returned", False)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.round_trip",
    inputs=one_late_number_is_off,
    world_sizes=(2,),
)
def test_the_round_trip_tries_every_parameter(case: Case) -> None:
    """A change in the last parameter is noticed as well as one in the first."""
    case.equals("returned", False)
