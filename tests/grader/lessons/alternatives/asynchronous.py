"""Asynchronous collectives, all waited for; new names where torch has them."""

import math

import torch
import torch.distributed as dist


def broadcast_module(module, src=0):
    tensors = [t.data for t in [*module.parameters(), *module.buffers()]]
    copies = [t.clone(memory_format=torch.contiguous_format) for t in tensors]
    for work in [dist.broadcast(copy, src, async_op=True) for copy in copies]:
        work.wait()
    for tensor, copy in zip(tensors, copies):
        tensor.copy_(copy)


def all_reduce_grads_(module, world_size):
    waiting = []
    for parameter in module.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            share = (parameter.grad / world_size).contiguous()
            waiting.append((parameter, share, dist.all_reduce(share, async_op=True)))
    for parameter, share, work in waiting:
        work.wait()
        parameter.grad.copy_(share)
    return torch.stack([p.grad.double().norm() for p, _, _ in waiting]).norm().item()


def gather_parameter(shard, shape, world_size):
    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    full = shard.new_empty(world_size * len(shard))
    gather(full, shard, async_op=True).wait()
    return full[: math.prod(shape)].view(shape)


def reduce_scatter_grad(grad, world_size):
    scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    size = -(-grad.numel() // world_size)
    flat = grad.new_zeros(size * world_size)
    flat[: grad.numel()] = grad.flatten() / world_size
    shard = torch.empty_like(flat[:size])
    scatter(shard, flat, async_op=True).wait()
    return shard
