"""Checks of the exercise "shard / gather": parameters cut into shards."""

from __future__ import annotations

import math
from typing import Any

import torch

from grader.checks import Case, Draw, check

EXERCISE, FUNCTION = "shard / gather", "shard_parameter"
FLOAT = torch.float32


def parameters(draw: Draw) -> dict[str, Any]:
    shapes = {"weight": ((3, 4), FLOAT), "odd": ((7,), FLOAT), "bias": ((2,), FLOAT)}
    return {"world_sizes": [1, 2, 3, 4, 5], **draw.tensors(shapes, "parameters/")}


def transposed(draw: Draw) -> dict[str, Any]:
    shapes = {"weight": ((4, 3), FLOAT), "cube": ((2, 3, 2), FLOAT), "column": ((5,), FLOAT)}
    return {
        "world_sizes": [1, 2, 3],
        "strided": list(shapes),
        **draw.tensors(shapes, "parameters/"),
    }


def every_dtype(draw: Draw) -> dict[str, Any]:
    shapes = {
        "fp16": ((3, 3), torch.float16),
        "bf16": ((5,), torch.bfloat16),
        "fp64": ((2, 2), torch.float64),
        "scale": ((), FLOAT),
    }
    return {"world_sizes": [1, 3], **draw.tensors(shapes, "parameters/")}


def large(draw: Draw) -> dict[str, Any]:
    shapes = {"even": ((24, 5), FLOAT), "odd": ((11, 11), torch.bfloat16)}
    return {"world_sizes": [1, 2, 4], **draw.tensors(shapes, "parameters/")}


def _shards_are_right(case: Case) -> None:
    for key, parameter in case.inputs[0].items():
        if not key.startswith("parameters/"):
            continue
        for world_size in case.inputs[0]["world_sizes"]:
            for rank, shard in enumerate(_cut(parameter, world_size)):
                name = f"shards/{key.removeprefix('parameters/')}, rank {rank} of {world_size}"
                extra = {"full": parameter, "rank": rank, "ranks": world_size}
                case.equals(name, shard, kind="shard", extra=extra)


def _cut(full: torch.Tensor, world_size: int) -> list[torch.Tensor]:
    """What every rank must keep of `full`."""
    size = math.ceil(full.numel() / world_size)
    padded = torch.zeros(size * world_size, dtype=full.dtype)
    padded[: full.numel()] = full.reshape(-1)
    return [part.clone() for part in padded.split(size)]


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.shards",
    inputs=parameters,
    world_sizes=(1,),
    group="none",
    weight=2,
)
def test_shards_are_equal_parts_filled_up_with_zeros(case: Case) -> None:
    """All shards of a parameter are equally long, and zeros fill up what is missing at the end."""
    _shards_are_right(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.shards",
    inputs=transposed,
    world_sizes=(1,),
    group="none",
)
def test_shards_follow_the_rows(case: Case) -> None:
    """A parameter is cut row after row, however it lies in memory."""
    _shards_are_right(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.shards",
    inputs=every_dtype,
    world_sizes=(1,),
    group="none",
)
def test_shards_keep_the_dtype(case: Case) -> None:
    """Shards have their parameter's dtype, and a single number can be cut too."""
    _shards_are_right(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.shards_in_memory",
    inputs=large,
    world_sizes=(1,),
    group="none",
    weight=2,
)
def test_a_shard_keeps_only_itself_alive(case: Case) -> None:
    """A shard takes up the memory of a shard: it does not keep the whole parameter alive."""
    for name in case.want[0]:
        facts = case.got[0].get(name)
        label = name.removeprefix("memory/")
        if not isinstance(facts, dict) or facts.keys() != case.want[0][name].keys():
            code = "returned-nothing" if facts is None else ""
            case.fail(f"there is no tensor as the shard of {label}", tensor=name, code=code)
        case.require(
            facts["kept"] <= facts["bytes"] and not facts["shared"],
            f"the shard of {label} has {facts['bytes']} bytes but keeps {facts['kept']} alive",
            tensor=name,
            diagnosis="shard-keeps-full-storage",
            expected=f"{facts['bytes']} bytes",
            actual=f"{facts['kept']} bytes"
            + (", those of the parameter itself" if facts["shared"] else ""),
        )
        case.require(
            not facts["in a graph"],
            f"the shard of {label} is tied to the parameter by autograd, which keeps it alive",
            tensor=name,
        )


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.shards",
    inputs=parameters,
    world_sizes=(1,),
    group="none",
)
def test_cutting_leaves_the_parameter_alone(case: Case) -> None:
    """The parameter itself is the same after it was cut."""
    for name in ("weight", "odd", "bias"):
        case.equals(f"parameters/{name}", case.inputs[0][f"parameters/{name}"])
        case.require(
            isinstance(case.got[0].get(f"shards/{name}, rank 0 of 1"), torch.Tensor),
            f"there is no tensor as the shard of {name}",
        )
