"""The exercise "broadcast": one rank's weights and buffers for all."""

from __future__ import annotations

from typing import Any

from torch import nn

from . import models


def broadcast_module(here: Any) -> dict[str, Any]:
    """Broadcast this rank's module, from `src` in the inputs or the default source."""
    module = models.build(here.inputs)
    local = models.tensors(module, "local/")
    _broadcast(here, module)
    return local | models.tensors(module)


def same_objects(here: Any) -> dict[str, Any]:
    """Whether parameters are still the objects, and lie in the memory, that they were."""
    module = models.build(here.inputs)
    before = dict(module.named_parameters())
    addresses = {name: p.data_ptr() for name, p in before.items()}
    _broadcast(here, module)
    facts: dict[str, Any] = {}
    after = dict(module.named_parameters())
    for name, parameter in before.items():
        facts[f"same object/{name}"] = after.get(name) is parameter
        facts[f"same memory/{name}"] = parameter.data_ptr() == addresses[name]
        facts[f"trainable/{name}"] = parameter.requires_grad
        facts[f"leaf/{name}"] = parameter.is_leaf
    return facts | models.tensors(module)


def tied(here: Any) -> dict[str, Any]:
    """A parameter with two names, after the broadcast."""
    module = models.build(here.inputs)
    _broadcast(here, module)
    ties = {
        f"still one/{second}": module.get_parameter(second) is module.get_parameter(first)
        for second, first in here.inputs["tied"].items()
    }
    return ties | models.tensors(module)


def _broadcast(here: Any, module: nn.Module) -> None:
    if "src" in here.inputs:
        here.submission.broadcast_module(module, src=here.inputs["src"])
    else:
        here.submission.broadcast_module(module)
