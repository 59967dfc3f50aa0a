"""Sends and receives where others use collectives, and gathers by all-to-all."""

import math

import torch
import torch.distributed as dist
from torch import nn


def broadcast_module(module, src=0):
    rank, size = dist.get_rank(), dist.get_world_size()
    for tensor in [*module.parameters(), *module.buffers()]:
        message = tensor.detach().contiguous().clone()
        if rank == src:
            for other in range(size):
                if other != src:
                    dist.send(message, other)
        else:
            dist.recv(message, src)
            tensor.data.copy_(message)


def gather_parameter(shard, shape, world_size):
    received = [torch.empty_like(shard) for _ in range(world_size)]
    dist.all_to_all(received, [shard.clone() for _ in range(world_size)])
    return torch.cat(received)[: math.prod(shape)].reshape(shape)


def reduce_scatter_grad(grad, world_size):
    size = math.ceil(grad.numel() / world_size)
    flat = nn.functional.pad(grad.flatten() / world_size, (0, size * world_size - grad.numel()))
    received = [torch.empty_like(flat[:size]) for _ in range(world_size)]
    dist.all_to_all(received, [chunk.contiguous() for chunk in flat.split(size)])
    return torch.stack(received).sum(0)
