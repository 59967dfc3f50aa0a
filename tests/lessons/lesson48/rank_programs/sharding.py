"""The exercise "shard / gather": cut rows, cut parameters, put parameters together again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from . import models


def rows(here: Any) -> dict[str, Any]:
    """The rows of every rank, for all counts of rows and ranks in the inputs."""
    answers: dict[str, Any] = {}
    for count in here.inputs["counts"]:
        for world_size in here.inputs["world_sizes"]:
            x = torch.arange(count * 2.0).reshape(count, 2)
            parts = [here.submission.shard_for_rank(x, r, world_size) for r in range(world_size)]
            answers[f"rows/{count} over {world_size}"] = [_plain(part) for part in parts]
    return answers


def rows_of(here: Any) -> dict[str, Any]:
    """The rows of the inputs `x/…`, for every rank of `ranks`."""
    world_size = here.inputs["ranks"]
    return {
        f"rows/{name.removeprefix('x/')}, rank {rank} of {world_size}": (
            here.submission.shard_for_rank(x, rank, world_size)
        )
        for name, x in here.inputs.items()
        if name.startswith("x/")
        for rank in range(world_size)
    }


def own_rows(here: Any) -> dict[str, Any]:
    """This rank's rows of this rank's tensor, in a real group."""
    return {"rows/x": here.submission.shard_for_rank(here.inputs["x"], here.rank, here.world_size)}


def shards(here: Any) -> dict[str, Any]:
    """Every rank's shard of every parameter, for all world sizes in the inputs."""
    answers: dict[str, Any] = {}
    module = models.build(here.inputs)
    for name, parameter in module.named_parameters():
        for world_size in here.inputs["world_sizes"]:
            for rank in range(world_size):
                shard = here.submission.shard_parameter(parameter, rank, world_size)
                answers[f"shards/{name}, rank {rank} of {world_size}"] = shard
    return answers | models.tensors(module)


def shards_in_memory(here: Any) -> dict[str, Any]:
    """What every shard keeps alive, and whether it is its own."""
    answers: dict[str, Any] = {}
    module = models.build(here.inputs)
    for name, parameter in module.named_parameters():
        for world_size in here.inputs["world_sizes"]:
            for rank in range(world_size):
                shard = here.submission.shard_parameter(parameter, rank, world_size)
                label = f"{name}, rank {rank} of {world_size}"
                answers[f"memory/{label}"] = _memory(shard, parameter)
    return answers


def _memory(shard: Any, parameter: nn.Parameter) -> Any:
    if not isinstance(shard, Tensor):
        return shard
    storage = shard.untyped_storage()
    return {
        "bytes": shard.numel() * shard.element_size(),
        "kept": storage.nbytes(),
        "shared": storage.data_ptr() == parameter.untyped_storage().data_ptr(),
        "in a graph": shard.grad_fn is not None,
    }


def gather(here: Any) -> dict[str, Any]:
    """Full tensors from this rank's `shards/<name>` and their `shapes/<name>`."""
    answers: dict[str, Any] = {}
    for key, shard in here.inputs.items():
        family, _, name = key.partition("/")
        if family == "shards":
            shape = torch.Size(here.inputs[f"shapes/{name}"])
            answers[f"full/{name}"] = here.submission.gather_parameter(
                shard.clone(), shape, here.world_size
            )
    return answers


def gather_again(here: Any) -> dict[str, Any]:
    """Gather, change the shard as a step would, gather again; the first must not follow."""
    shard, shape = here.inputs["shards/weight"].clone(), torch.Size(here.inputs["shapes/weight"])
    first = here.submission.gather_parameter(shard, shape, here.world_size)
    kept = first.clone() if isinstance(first, Tensor) else first
    shard.mul_(-2)
    second = here.submission.gather_parameter(shard, shape, here.world_size)
    return {"full/first": kept, "full/second": second}


def round_trip(here: Any) -> dict[str, Any]:
    """The learner's own test of its two functions, on this rank's module."""
    module = models.build(here.inputs)
    answer = here.submission.fsdp_round_trip_sketch(module, here.world_size, here.rank)
    return {"returned": answer} | models.tensors(module)


def _plain(value: Any) -> Any:
    """A tensor as nested lists, which are easier to read side by side; of others, the type."""
    return value.tolist() if isinstance(value, Tensor) else type(value).__name__
