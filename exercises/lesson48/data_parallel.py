"""Distributed data parallel and fully sharded data parallel, from scratch.

Every rank is a process of its own and runs this same file. Nothing is shared: what one
rank knows, another learns only through a collective, and a collective is over when every
rank of the group has called it.

Grade your work with `grade lesson48`, one exercise with `grade lesson48 --only broadcast`.
The handout, README.md in this folder, explains the ideas.
"""

from __future__ import annotations

import math
import os
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn

# Exercise 1: process group


def init_process_group(
    rank: int, world_size: int, backend: str = "gloo", master_port: int = 29500
) -> None:
    """Join the default process group as `rank` of `world_size`.

    The ranks meet at 127.0.0.1:`master_port`, over the loopback interface.

    Raises:
        ValueError: `rank` is not in `range(world_size)`; raised before anything is sent.
    """
    # TODO 1: Check `rank`, then join the group at 127.0.0.1 and `master_port`.
    raise NotImplementedError("TODO 1: init_process_group is not written yet")


def shutdown_process_group() -> None:
    """Leave the process group. Harmless when there is none, and when called twice."""
    # TODO 2: Leave the group, if there is one.
    raise NotImplementedError("TODO 2: shutdown_process_group is not written yet")


# Exercise 2: broadcast


def broadcast_module(module: nn.Module, src: int = 0) -> None:
    """Make every rank's module equal to rank `src`'s, bit for bit and in place.

    Parameters (frozen ones too) and buffers (of any dtype) are overwritten where they lie:
    they stay the same objects with the same storage.
    """
    # TODO 3: Send everything that the module holds from rank `src` to all others.
    raise NotImplementedError("TODO 3: broadcast_module is not written yet")


# Exercise 3: all-reduce


def all_reduce_grads_(module: nn.Module, world_size: int) -> float:
    """Replace the gradient of every trainable parameter by its mean over ranks, in place.

    The mean is the same on every rank, bit for bit. A trainable parameter without a gradient
    counts as zeros, and takes part all the same. Frozen parameters are left alone: their
    `grad` stays None.

    Returns:
        The L2 norm of the averaged gradients of all parameters together.
    """
    # TODO 4: Average the gradient of each trainable parameter over the ranks.
    raise NotImplementedError("TODO 4: all_reduce_grads_ is not written yet")


class MinimalDDP(nn.Module):
    """A module whose ranks start alike and average their gradients.

    The wrapped module is `self.module`. With `world_size` 1, or without a process group, it
    is the plain module.
    """

    def __init__(self, module: nn.Module, world_size: int) -> None:
        """Wrap `module` and make every rank's equal to rank 0's."""
        super().__init__()
        # TODO 5: Keep the module and the world size, and let all ranks start alike.
        raise NotImplementedError("TODO 5: MinimalDDP.__init__ is not written yet")

    def forward(self, *args, **kwargs):
        """What the wrapped module makes of the same arguments."""
        # TODO 6: Call the wrapped module.
        raise NotImplementedError("TODO 6: MinimalDDP.forward is not written yet")

    def sync_grads(self) -> float:
        """Average the gradients after `backward()`; returns their L2 norm."""
        # TODO 7: Average the gradients where there are other ranks, and return the norm.
        raise NotImplementedError("TODO 7: MinimalDDP.sync_grads is not written yet")


# Exercise 4: shard and gather


def shard_for_rank(x: Tensor, rank: int, world_size: int) -> Tensor:
    """The rows (dimension 0) of `x` that belong to `rank`, as one contiguous block.

    Sizes differ by at most one: the first `len(x) % world_size` ranks hold one row more.
    Concatenated in rank order the blocks are `x`. A rank may get 0 rows.
    """
    # TODO 8: Work out where this rank's rows begin and end, and cut them out.
    raise NotImplementedError("TODO 8: shard_for_rank is not written yet")


def shard_parameter(param: Tensor, rank: int, world_size: int) -> Tensor:
    """This rank's shard of `param`: 1-d, `ceil(param.numel() / world_size)` elements.

    The parameter is flattened row by row; zeros fill up the last shards. The shard owns its
    memory: it must not keep the full tensor alive.
    """
    # TODO 9: Flatten, fill up with zeros, and keep a copy of this rank's part.
    raise NotImplementedError("TODO 9: shard_parameter is not written yet")


def gather_parameter(shard: Tensor, shape: tuple[int, ...], world_size: int) -> Tensor:
    """The full tensor of `shape` again, on every rank, from all ranks' shards.

    Bit for bit what was sharded, without the padding.
    """
    # TODO 10: Collect all ranks' shards, put them together, and drop the padding.
    raise NotImplementedError("TODO 10: gather_parameter is not written yet")


def fsdp_round_trip_sketch(module: nn.Module, world_size: int, rank: int) -> bool:
    """Shard and gather every parameter of `module` with the two functions above.

    Returns:
        True on every rank when every rank got every parameter back unchanged; False on
        every rank when any rank did not.
    """
    # TODO 11: Shard and gather each parameter, compare, and let all ranks agree.
    raise NotImplementedError("TODO 11: fsdp_round_trip_sketch is not written yet")


# Exercise 5: reduce-scatter


def reduce_scatter_grad(grad: Tensor, world_size: int) -> Tensor:
    """This rank's shard, as `shard_parameter` cuts it, of the mean of `grad` over ranks.

    1-d, `ceil(grad.numel() / world_size)` elements of the gradient's dtype; padding is zero.
    No rank receives more of the mean than its shard.
    """
    # TODO 12: Cut the gradient into one chunk a rank, and let one collective add them up.
    raise NotImplementedError("TODO 12: reduce_scatter_grad is not written yet")


# Exercise 6: memory math


def memory_calculator(
    params_billions: float,
    num_gpus: int = 1,
    sharding: str = "none",
    precision_bytes: int = 2,
    optimizer: str = "adam",
) -> dict:
    """Model states per GPU in GB (1e9 bytes). Activations and buffers are not counted.

    Args:
        params_billions: parameters, in units of 1e9.
        sharding: "none", "zero1" (optimizer), "zero2" (and gradients), "zero3" or "fsdp"
            (and weights).
        precision_bytes: bytes of one weight and of one gradient.
        optimizer: "adam" (two fp32 moments), "adam_master" (moments and an fp32 copy of the
            weights), "sgd" (nothing), "sgd_momentum" (one fp32 number).

    Returns:
        `weights_gb`, `gradients_gb`, `optimizer_gb`, `per_gpu_total_gb`,
        `total_across_gpus_gb`, `fits_on_80gb`, `num_gpus` and `sharding`.

    Raises:
        ValueError: an unknown sharding or optimizer, fewer than 1 GPU, or a negative size;
            the text names the value.
    """
    # TODO 13: Count bytes per parameter, divide what the stage shards, and add up.
    raise NotImplementedError("TODO 13: memory_calculator is not written yet")
