"""The exercise "all-reduce": the class `MinimalDDP`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from . import models


class Pair(nn.Module):
    """A module whose forward takes and returns more than one thing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(
        self, x: Tensor, shift: Tensor, *, scale: float = 1.0, name: str = ""
    ) -> dict[str, Any]:
        return {"out": self.layer(x) * scale + shift, "name": name}


def is_module(here: Any) -> dict[str, Any]:
    """What the wrapper is, on one rank and without a group."""
    inner = models.mlp(here.inputs["seed"])
    wrapped = here.submission.MinimalDDP(inner, 1)
    inside = {id(p) for p in inner.parameters()}
    wrapped.eval()
    follows_eval = not inner.training
    wrapped.train()
    return {
        "is an nn.Module": isinstance(wrapped, nn.Module),
        "module is the wrapped one": wrapped.module is inner,
        "has its parameters": {id(p) for p in wrapped.parameters()} == inside,
        "is callable": callable(wrapped),
        "eval() and train() reach it": follows_eval and inner.training,
    }


def forward(here: Any) -> dict[str, Any]:
    """Positional and keyword arguments, and whatever forward returns."""
    torch.manual_seed(here.inputs["seed"])
    inner = Pair()
    wrapped = here.submission.MinimalDDP(inner, 1)
    x, shift = here.inputs["x"], here.inputs["shift"]
    full = wrapped(x, shift=shift, scale=3.0, name="given")
    short = wrapped(x, shift)
    direct = inner(x, shift=shift, scale=3.0, name="given")
    return {
        "out": full["out"] if isinstance(full, dict) else full,
        "name": full["name"] if isinstance(full, dict) else None,
        "short": short["out"] if isinstance(short, dict) else short,
        "direct": direct["out"],
    }


def construct(here: Any) -> dict[str, Any]:
    """Wrap this rank's module; bring back what is in it."""
    module = models.build(here.inputs)
    local = models.tensors(module, "local/")
    wrapped = here.submission.MinimalDDP(module, here.world_size)
    return local | models.tensors(wrapped.module)


def backward(here: Any) -> dict[str, Any]:
    """Forward and backward on `x/0`, `x/1`, …, all into the same gradients, then one sync."""
    module = models.build(here.inputs)
    wrapped = here.submission.MinimalDDP(module, here.world_size)
    for name, x in here.inputs.items():
        if name.startswith("x/"):
            wrapped(x).square().mean().backward()
    local = models.gradients(module, "local/")
    norm = wrapped.sync_grads()
    return local | models.gradients(module) | {"norm": norm}


def branches(here: Any) -> dict[str, Any]:
    """Every rank takes its own branch of the model, so no rank has all gradients."""
    module = models.build(here.inputs)
    wrapped = here.submission.MinimalDDP(module, here.world_size)
    wrapped(here.inputs["x"], branch=here.inputs["branch"]).square().mean().backward()
    local = {
        f"local/gradients/{name}": torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in module.named_parameters()
    }
    wrapped.sync_grads()
    return local | models.gradients(module)


def alone(here: Any) -> dict[str, Any]:
    """One process without a group: asked to be one of one, and one of two."""
    answers: dict[str, Any] = {}
    for world_size in (1, 2):
        module = models.build(here.inputs)
        before = models.tensors(module)
        wrapped = here.submission.MinimalDDP(module, world_size)
        out = wrapped(here.inputs["x"])
        out.square().mean().backward()
        label = f"world_size {world_size}"
        answers[f"untouched/{label}"] = all(
            torch.equal(value, before[name]) for name, value in models.tensors(module).items()
        )
        answers[f"out/{label}"] = out
        answers[f"norm/{label}"] = wrapped.sync_grads()
        answers |= {f"{name}/{label}": value for name, value in models.gradients(module).items()}
    return answers


def alone_in_a_group(here: Any) -> dict[str, Any]:
    """World size 1 with a group of one rank."""
    return construct(here) | backward(here)
