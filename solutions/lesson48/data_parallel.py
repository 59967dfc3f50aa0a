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
    # solution: 1. Check `rank`, then join the group at 127.0.0.1 and `master_port`.
    if rank not in range(world_size):
        raise ValueError(f"rank must be in range({world_size}), got {rank}")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    # Rank 0 serves the store that all ranks meet at. It is made here, from the arguments,
    # because torch's own `tcp://` and `env://` listen to variables that a launcher has set.
    store = dist.TCPStore("127.0.0.1", master_port, world_size, is_master=rank == 0)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size)
    # end


def shutdown_process_group() -> None:
    """Leave the process group. Harmless when there is none, and when called twice."""
    # solution: 2. Leave the group, if there is one.
    if dist.is_initialized():
        dist.destroy_process_group()
    # end


# Exercise 2: broadcast


# solution
def _bytes_of(x: Tensor) -> Tensor:
    """`x` row by row as 1-d uint8; of a contiguous tensor this is a view."""
    return x.detach().contiguous().reshape(-1).view(torch.uint8)


# end


def broadcast_module(module: nn.Module, src: int = 0) -> None:
    """Make every rank's module equal to rank `src`'s, bit for bit and in place.

    Parameters (frozen ones too) and buffers (of any dtype) are overwritten where they lie:
    they stay the same objects with the same storage.
    """
    # solution: 3. Send everything that the module holds from rank `src` to all others.
    for tensor in [*module.parameters(), *module.buffers()]:
        # Gloo takes memory as it lies; only a contiguous tensor lies in the order of its rows.
        rows = tensor.detach().contiguous()
        # As bytes, because Gloo cannot send every dtype that a buffer may have.
        dist.broadcast(_bytes_of(rows), src)
        tensor.detach().copy_(rows)
    # end


# Exercise 3: all-reduce


def all_reduce_grads_(module: nn.Module, world_size: int) -> float:
    """Replace the gradient of every trainable parameter by its mean over ranks, in place.

    The mean is the same on every rank, bit for bit. A trainable parameter without a gradient
    counts as zeros, and takes part all the same. Frozen parameters are left alone: their
    `grad` stays None.

    Returns:
        The L2 norm of the averaged gradients of all parameters together.
    """
    # solution: 4. Average the gradient of each trainable parameter over the ranks.
    squares = 0.0
    for parameter in module.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        grad = parameter.grad.detach()
        # In float32 at least, and divided before it is added up: in half precision
        # the sum may not fit where the mean does, and three thirds can round up beyond it.
        wide = torch.promote_types(grad.dtype, torch.float32)
        total = grad.contiguous().to(wide) / world_size
        dist.all_reduce(total)
        mean = total.to(grad.dtype)
        grad.copy_(mean)
        squares += mean.double().square().sum().item()
    return math.sqrt(squares)
    # end


class MinimalDDP(nn.Module):
    """A module whose ranks start alike and average their gradients.

    The wrapped module is `self.module`. With `world_size` 1, or without a process group, it
    is the plain module.
    """

    def __init__(self, module: nn.Module, world_size: int) -> None:
        """Wrap `module` and make every rank's equal to rank 0's."""
        super().__init__()
        # solution: 5. Keep the module and the world size, and let all ranks start alike.
        self.module = module
        self.world_size = world_size
        if self._has_peers():
            broadcast_module(module)
        # end

    # solution
    def _has_peers(self) -> bool:
        return self.world_size > 1 and dist.is_initialized()

    # end

    def forward(self, *args, **kwargs):
        """What the wrapped module makes of the same arguments."""
        # solution: 6. Call the wrapped module.
        return self.module(*args, **kwargs)
        # end

    def sync_grads(self) -> float:
        """Average the gradients after `backward()`; returns their L2 norm."""
        # solution: 7. Average the gradients where there are other ranks, and return the norm.
        if self._has_peers():
            return all_reduce_grads_(self.module, self.world_size)
        trainable = [p for p in self.module.parameters() if p.requires_grad]
        grads = [p.grad.double() for p in trainable if p.grad is not None]
        return math.sqrt(sum(grad.square().sum().item() for grad in grads))
        # end


# Exercise 4: shard and gather


def shard_for_rank(x: Tensor, rank: int, world_size: int) -> Tensor:
    """The rows (dimension 0) of `x` that belong to `rank`, as one contiguous block.

    Sizes differ by at most one: the first `len(x) % world_size` ranks hold one row more.
    Concatenated in rank order the blocks are `x`. A rank may get 0 rows.
    """
    # solution: 8. Work out where this rank's rows begin and end, and cut them out.
    size, rest = divmod(len(x), world_size)
    begin = rank * size + min(rank, rest)
    return x[begin : begin + size + (rank < rest)]
    # end


def shard_parameter(param: Tensor, rank: int, world_size: int) -> Tensor:
    """This rank's shard of `param`: 1-d, `ceil(param.numel() / world_size)` elements.

    The parameter is flattened row by row; zeros fill up the last shards. The shard owns its
    memory: it must not keep the full tensor alive.
    """
    # solution: 9. Flatten, fill up with zeros, and keep a copy of this rank's part.
    size = math.ceil(param.numel() / world_size)
    mine = param.detach().reshape(-1)[rank * size : (rank + 1) * size]
    shard = mine.new_zeros(size)
    shard[: mine.numel()] = mine
    return shard
    # end


def gather_parameter(shard: Tensor, shape: tuple[int, ...], world_size: int) -> Tensor:
    """The full tensor of `shape` again, on every rank, from all ranks' shards.

    Bit for bit what was sharded, without the padding.
    """
    # solution: 10. Collect all ranks' shards, put them together, and drop the padding.
    shards = [torch.empty_like(shard) for _ in range(world_size)]
    dist.all_gather(shards, shard)
    return torch.cat(shards)[: math.prod(shape)].reshape(shape)
    # end


def fsdp_round_trip_sketch(module: nn.Module, world_size: int, rank: int) -> bool:
    """Shard and gather every parameter of `module` with the two functions above.

    Returns:
        True on every rank when every rank got every parameter back unchanged; False on
        every rank when any rank did not.
    """
    # solution: 11. Shard and gather each parameter, compare, and let all ranks agree.
    all_equal = True
    for parameter in module.parameters():
        shard = shard_parameter(parameter, rank, world_size)
        full = gather_parameter(shard, parameter.shape, world_size)
        # Compared as bytes, because NaN is not equal to itself. And no early return: the
        # other ranks wait for this one in the next gather.
        if full.shape != parameter.shape or not _bytes_of(full).equal(_bytes_of(parameter)):
            all_equal = False
    vote = torch.tensor(int(all_equal))
    dist.all_reduce(vote, op=dist.ReduceOp.MIN)
    return bool(vote)
    # end


# Exercise 5: reduce-scatter


def reduce_scatter_grad(grad: Tensor, world_size: int) -> Tensor:
    """This rank's shard, as `shard_parameter` cuts it, of the mean of `grad` over ranks.

    1-d, `ceil(grad.numel() / world_size)` elements of the gradient's dtype; padding is zero.
    No rank receives more of the mean than its shard.
    """
    # solution: 12. Cut the gradient into one chunk a rank, and let one collective add them up.
    size = math.ceil(grad.numel() / world_size)
    wide = torch.promote_types(grad.dtype, torch.float32)
    padded = grad.new_zeros(size * world_size, dtype=wide)
    padded[: grad.numel()] = grad.detach().reshape(-1).to(wide) / world_size
    shard = padded.new_empty(size)
    dist.reduce_scatter(shard, list(padded.view(world_size, size)))
    return shard.to(grad.dtype)
    # end


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
    # solution: 13. Count bytes per parameter, divide what the stage shards, and add up.
    optimizer_bytes = {"adam": 8, "adam_master": 12, "sgd": 0, "sgd_momentum": 4}
    stages = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
    if sharding not in stages:
        raise ValueError(f"unknown sharding {sharding!r}; known: {', '.join(stages)}")
    if optimizer not in optimizer_bytes:
        raise ValueError(f"unknown optimizer {optimizer!r}; known: {', '.join(optimizer_bytes)}")
    if num_gpus < 1:
        raise ValueError(f"num_gpus must be at least 1, got {num_gpus}")
    sizes = {"params_billions": params_billions, "precision_bytes": precision_bytes}
    for name, value in sizes.items():
        if not value >= 0:  # this way round, NaN is refused as well
            raise ValueError(f"{name} must not be negative, got {value}")

    def per_gpu(bytes_per_parameter: float, sharded_from_stage: int) -> float:
        shards = num_gpus if stages[sharding] >= sharded_from_stage else 1
        return params_billions * bytes_per_parameter / shards

    weights = per_gpu(precision_bytes, sharded_from_stage=3)
    gradients = per_gpu(precision_bytes, sharded_from_stage=2)
    states = per_gpu(optimizer_bytes[optimizer], sharded_from_stage=1)
    total = weights + gradients + states
    return {
        "weights_gb": weights,
        "gradients_gb": gradients,
        "optimizer_gb": states,
        "per_gpu_total_gb": total,
        "total_across_gpus_gb": total * num_gpus,
        "fits_on_80gb": total <= 80,
        "num_gpus": num_gpus,
        "sharding": sharding,
    }
    # end
