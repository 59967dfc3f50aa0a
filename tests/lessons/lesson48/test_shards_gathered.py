"""Checks of the exercise "shard / gather": shards put together again."""

from __future__ import annotations

import math
from typing import Any

import torch

from grader.checks import Case, Draw, check

EXERCISE, FUNCTION = "shard / gather", "gather_parameter"
FLOAT = torch.float32
Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]


def _shards_of(
    draw: Draw, shapes: dict[str, tuple[tuple[int, ...], torch.dtype]]
) -> dict[str, Any]:
    """This rank's shard of tensors that all ranks agree on."""
    inputs: dict[str, Any] = {}
    for name, full in draw.shared.tensors(shapes).items():
        inputs[f"shards/{name}"] = _cut(full, draw.world_size)[draw.rank]
        inputs[f"shapes/{name}"] = list(full.shape)
    return inputs


def _cut(full: torch.Tensor, world_size: int) -> list[torch.Tensor]:
    """What every rank must keep of `full`."""
    size = math.ceil(full.numel() / world_size)
    padded = torch.zeros(size * world_size, dtype=full.dtype)
    padded[: full.numel()] = full.reshape(-1)
    return [part.clone() for part in padded.split(size)]


def even_shards(draw: Draw) -> dict[str, Any]:
    return _shards_of(draw, {"weight": ((4, 3), FLOAT), "cube": ((2, 3, 4), FLOAT)})


def uneven_shards(draw: Draw) -> dict[str, Any]:
    return _shards_of(draw, {"weight": ((5, 5), FLOAT), "bias": ((7,), FLOAT)})


def small_shards(draw: Draw) -> dict[str, Any]:
    return _shards_of(draw, {"scale": ((), FLOAT), "one": ((1, 1, 1), FLOAT), "two": ((2,), FLOAT)})


def shards_of_every_dtype(draw: Draw) -> dict[str, Any]:
    return _shards_of(
        draw,
        {
            "fp16": ((3, 3), torch.float16),
            "bf16": ((2, 4), torch.bfloat16),
            "fp64": ((5,), torch.float64),
        },
    )


def _full_is_right(case: Case) -> None:
    for key, shape in case.inputs[0].items():
        family, _, name = key.partition("/")
        if family != "shapes":
            continue
        parts = [inputs[f"shards/{name}"] for inputs in case.inputs]
        full = torch.cat(parts)[: math.prod(shape)].reshape(shape)
        case.equals(f"full/{name}", full, kind="gather", extra={"shards": parts})


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.gather",
    inputs=even_shards,
    world_sizes=(2, 3, 4),
    weight=2,
)
def test_gathering_gives_the_whole_again(case: Case) -> None:
    """Every rank gets the whole tensor, each part in its place and in the old shape."""
    _full_is_right(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.gather",
    inputs=uneven_shards,
    world_sizes=(2, 3),
    weight=2,
)
def test_padding_is_gone_after_gathering(case: Case) -> None:
    """The zeros that filled up the last shards are not in the whole tensor."""
    _full_is_right(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.gather",
    inputs=small_shards,
    world_sizes=(3,),
)
def test_fewer_numbers_than_ranks_can_be_gathered(case: Case) -> None:
    """A tensor with fewer numbers than there are ranks comes back, a single number too."""
    _full_is_right(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.gather",
    inputs=shards_of_every_dtype,
    world_sizes=(2,),
)
def test_gathering_keeps_the_dtype(case: Case) -> None:
    """Half and double precision come back bit for bit."""
    _full_is_right(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.gather_again",
    inputs=even_shards,
    world_sizes=(2,),
)
def test_every_gathering_is_fresh(case: Case) -> None:
    """Gathering again after the shards have changed gives the changed values."""
    parts = [inputs["shards/weight"] for inputs in case.inputs]
    full = torch.cat(parts).reshape(4, 3)
    case.equals("full/first", full, kind="gather", extra={"shards": parts})
    case.equals("full/second", -2 * full)
