"""The exercise "all-reduce": `all_reduce_grads_` on gradients that are given."""

from __future__ import annotations

from typing import Any

from torch import nn

from . import models


def average(here: Any) -> dict[str, Any]:
    """Average this rank's gradients; bring back gradients, weights and the norm."""
    module = models.build(here.inputs)
    models.give_gradients(module, here.inputs)
    norm = here.submission.all_reduce_grads_(module, here.world_size)
    return models.gradients(module) | models.tensors(module) | {"norm": norm}


def average_columns(here: Any) -> dict[str, Any]:
    """Average gradients that are every second number of a larger tensor."""
    module = models.build(here.inputs)
    local, neighbours = {}, {}
    for name, parameter in module.named_parameters():
        wide = here.inputs[f"wide/{name}"].clone()
        parameter.grad = wide[..., 0]
        local[f"local/gradients/{name}"] = wide[..., 0].clone()
        neighbours[name] = wide
    here.submission.all_reduce_grads_(module, here.world_size)
    rest = {f"neighbours/{name}": wide[..., 1].clone() for name, wide in neighbours.items()}
    return local | models.gradients(module) | rest


def average_twice(here: Any) -> dict[str, Any]:
    """Average `first/…`, clear the gradients, average others: nothing of the first may remain."""
    module = models.build(here.inputs)
    for name, parameter in module.named_parameters():
        parameter.grad = here.inputs[f"first/{name}"].clone()
    here.submission.all_reduce_grads_(module, here.world_size)
    module.zero_grad()
    models.give_gradients(module, here.inputs)
    norm = here.submission.all_reduce_grads_(module, here.world_size)
    return models.gradients(module) | {"norm": norm}


def step(here: Any) -> dict[str, Any]:
    """A step on the parameters that were there before the gradients were averaged."""
    module = models.build(here.inputs)
    known = dict(module.named_parameters())
    models.give_gradients(module, here.inputs)
    here.submission.all_reduce_grads_(module, here.world_size)
    return {
        f"parameters/{name}": None if p.grad is None else p.detach() - 0.5 * p.grad
        for name, p in known.items()
    } | models.tensors(module, "unstepped ")


def tied(here: Any) -> dict[str, Any]:
    """Average where one parameter has two names."""
    module: nn.Module = models.build(here.inputs)
    models.give_gradients(module, here.inputs)
    norm = here.submission.all_reduce_grads_(module, here.world_size)
    names = here.inputs["tied"].items()
    ties = {f"still one/{b}": module.get_parameter(b) is module.get_parameter(a) for b, a in names}
    return models.gradients(module) | ties | {"norm": norm}
