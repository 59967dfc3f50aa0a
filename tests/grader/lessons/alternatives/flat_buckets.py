"""One bucket a dtype, averaged by the backend; an all-reduce made of its two halves."""

import torch
import torch.distributed as dist
from torch import nn


def broadcast_module(module, src=0):
    by_dtype = {}
    for tensor in [*module.parameters(), *module.buffers()]:
        by_dtype.setdefault(tensor.dtype, []).append(tensor.data)
    for tensors in by_dtype.values():
        flat = torch.cat([t.flatten() for t in tensors])
        dist.broadcast(flat, src=src)
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors])):
            tensor.copy_(part.view(tensor.shape))


def all_reduce_grads_(module, world_size):
    parameters = [p for p in module.parameters() if p.requires_grad]
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([g.double().flatten() for g in grads]) / world_size
    count = flat.numel()
    flat = nn.functional.pad(flat, (0, -count % world_size))
    piece = torch.empty_like(flat[: flat.numel() // world_size])
    dist.reduce_scatter(piece, list(flat.chunk(world_size)))
    pieces = [torch.empty_like(piece) for _ in range(world_size)]
    dist.all_gather(pieces, piece)
    mean = torch.cat(pieces)[:count]
    for parameter, part in zip(parameters, mean.split([p.numel() for p in parameters])):
        parameter.grad = part.view(parameter.shape).to(parameter.dtype)
    return mean.norm().item()


def shard_for_rank(x, rank, world_size):
    return torch.tensor_split(x, world_size)[rank]
