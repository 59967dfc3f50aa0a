"""Whole stories: training on shards, as fully sharded data parallel does it.

Each rank keeps a shard of every weight. A step gathers the full weights, runs forward
and backward on this rank's data, reduces every gradient to this rank's shard of its
mean, lets go of the full weights, and steps on the shards alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from . import models
from .optimizers import Momentum

Cut = Callable[[Tensor, int, int], Tensor]
Gather = Callable[[Tensor, torch.Size, int], Tensor]
Reduce = Callable[[Tensor, int], Tensor]
Rows = Callable[[Tensor, int, int], Tensor]


def by_shard_and_gather(here: Any) -> dict[str, Any]:
    """The learner shards and gathers; the gradients are reduced by this file."""
    learner = here.submission
    return _train(here, learner.shard_parameter, learner.gather_parameter, _reduce)


def by_reduce_scatter(here: Any) -> dict[str, Any]:
    """The learner reduces the gradients; this file shards and gathers."""
    return _train(here, _cut, _gather, here.submission.reduce_scatter_grad)


def by_all_pieces(here: Any) -> dict[str, Any]:
    """Rendezvous, broadcast, shard, gather, reduce-scatter and leave, all the learner's."""
    learner = here.submission
    learner.init_process_group(here.rank, here.world_size, master_port=here.master_port)
    trained = _train(
        here,
        learner.shard_parameter,
        learner.gather_parameter,
        learner.reduce_scatter_grad,
        prepare=learner.broadcast_module,
        rows=learner.shard_for_rank,
    )
    learner.shutdown_process_group()
    return trained


def by_torch(here: Any) -> dict[str, Any]:
    """The same with torch's own `fully_shard`."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if not dist.is_initialized():  # where the learner's own rendezvous is part of the story
        here.submission.init_process_group(here.rank, here.world_size, master_port=here.master_port)
    module = models.mlp(here.inputs["seed"])
    mesh = init_device_mesh("cpu", (here.world_size,))  # named, else a GPU would be taken
    fully_shard(module, mesh=mesh)
    optimizer = Momentum(module.parameters())
    for features, targets in _own_batches(here, _rows if here.inputs.get("shared rows") else None):
        optimizer.zero_grad()
        nn.functional.mse_loss(module(features), targets).backward()
        optimizer.step()
    return {f"parameters/{n}": p.full_tensor() for n, p in module.named_parameters()}


def _train(
    here: Any,
    cut: Cut,
    gather: Gather,
    reduce: Reduce,
    prepare: Callable[[nn.Module], None] = lambda module: None,
    rows: Rows | None = None,
) -> dict[str, Any]:
    """The weights after a step on each batch, gathered in full on every rank."""
    rank, world_size = here.rank, here.world_size
    module = models.mlp(here.inputs["seed"])
    prepare(module)
    shapes = {name: p.shape for name, p in module.named_parameters()}
    shards = {
        name: nn.Parameter(cut(p.detach(), rank, world_size))
        for name, p in module.named_parameters()
    }
    optimizer = Momentum(shards.values())
    for features, targets in _own_batches(here, rows):
        full = {
            name: gather(shard.detach(), shapes[name], world_size).detach().requires_grad_()
            for name, shard in shards.items()
        }
        out = torch.func.functional_call(module, full, (features,))
        nn.functional.mse_loss(out, targets).backward()
        for name, shard in shards.items():
            shard.grad = reduce(full[name].grad, world_size)
        optimizer.step()
    return {
        f"parameters/{name}": gather(shard.detach(), shapes[name], world_size)
        for name, shard in shards.items()
    }


def _own_batches(here: Any, rows: Rows | None) -> list[tuple[Tensor, Tensor]]:
    """What this rank sees at every step: its own inputs, or its rows of what all were given."""
    steps = list(zip(here.inputs["x"], here.inputs["y"], strict=True))
    if rows is None:
        return steps
    return [tuple(rows(t, here.rank, here.world_size) for t in step) for step in steps]


def _rows(x: Tensor, rank: int, world_size: int) -> Tensor:
    return x.tensor_split(world_size)[rank]


def _cut(full: Tensor, rank: int, world_size: int) -> Tensor:
    flat = full.reshape(-1)
    size = -(-flat.numel() // world_size)
    padded = torch.zeros(size * world_size, dtype=flat.dtype)
    padded[: flat.numel()] = flat
    return padded[rank * size : (rank + 1) * size].clone()


def _gather(shard: Tensor, shape: torch.Size, world_size: int) -> Tensor:
    parts = [torch.empty_like(shard) for _ in range(world_size)]
    dist.all_gather(parts, shard)
    return torch.cat(parts)[: shape.numel()].reshape(shape)


def _reduce(grad: Tensor, world_size: int) -> Tensor:
    mean = grad / world_size
    dist.all_reduce(mean)
    return _cut(mean, dist.get_rank(), world_size)
