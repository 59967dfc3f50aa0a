"""Whole stories: the same small training by the learner's wrapper and by others.

Every rank sees data of its own, and starts from weights of its own where a wrapper is
to hand them out, so that ranks only agree if gradients were averaged too. SGD with momentum: Adam
divides a gradient by its own size and would hide a sum that was never divided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from . import models
from .optimizers import Momentum


def by_learner(here: Any) -> dict[str, Any]:
    """Train with the learner's `MinimalDDP`."""
    module = models.mlp(here.inputs["seed"])
    wrapped = here.submission.MinimalDDP(module, here.world_size)
    return _train(module, wrapped, here.inputs["x"], here.inputs["y"], wrapped.sync_grads)


def by_one_process(here: Any) -> dict[str, Any]:
    """Train as one process would that has the first rank's weights and every rank's data."""
    module = models.mlp(_from_all(torch.tensor(here.inputs["seed"]))[0].item())
    # Rows of one step from all ranks, side by side: [ranks, steps, rows, …] → [steps, all rows, …]
    x, y = (torch.cat(list(_from_all(here.inputs[name])), dim=1) for name in ("x", "y"))
    return _train(module, module, x, y, lambda: None)


def by_torch(here: Any) -> dict[str, Any]:
    """Train with `torch.nn.parallel.DistributedDataParallel`."""
    module = models.mlp(here.inputs["seed"])
    wrapped = nn.parallel.DistributedDataParallel(module)
    return _train(module, wrapped, here.inputs["x"], here.inputs["y"], lambda: None)


def by_own_sync(here: Any) -> dict[str, Any]:
    """Train with the learner's `all_reduce_grads_`, unwrapped, from the same weights everywhere."""
    module = models.mlp(here.inputs["seed"])
    return _train(
        module,
        module,
        here.inputs["x"],
        here.inputs["y"],
        lambda: here.submission.all_reduce_grads_(module, here.world_size),
    )


def _train(
    module: nn.Module,
    forward: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    synchronize: Callable[[], Any],
) -> dict[str, Any]:
    """Weights and last gradients after a step on each of `x`: [steps, rows, features]."""
    optimizer = Momentum(module.parameters())
    for features, targets in zip(x, y, strict=True):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(forward(features), targets)
        loss.backward()
        synchronize()
        optimizer.step()
    return models.tensors(module) | models.gradients(module)


def _from_all(value: Tensor) -> Tensor:
    """[…] on every rank → [ranks, …] on every rank."""
    parts = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, value.contiguous())
    return torch.stack(parts)
