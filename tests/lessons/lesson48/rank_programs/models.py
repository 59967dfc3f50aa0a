"""Modules that rank programs build, different on every rank, and what is in them.

Real models are filled from a seed; a `Bag` is filled with the very tensors of the
inputs, so that a check can choose dtype, layout, ties and frozen parameters freely.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Bag(nn.Module):
    """Parameters and buffers by name, in the order of the inputs.

    Inputs: `parameters/<name>` and `buffers/<name>` (tensors), `frozen` (names),
    `strided` (names of parameters whose memory is laid out another way on this rank) and
    `tied` (second name → name of the parameter that it is too).
    """

    def __init__(self, inputs: dict[str, Any]) -> None:
        super().__init__()
        for name, value in _named(inputs, "parameters/"):
            data = strided(value) if name in inputs.get("strided", ()) else value.clone()
            trainable = name not in inputs.get("frozen", ())
            self.register_parameter(name, nn.Parameter(data, requires_grad=trainable))
        for name, value in _named(inputs, "buffers/"):
            self.register_buffer(name, value.clone())
        for second, first in inputs.get("tied", {}).items():
            self.register_parameter(second, self.get_parameter(first))


def mlp(seed: int) -> nn.Module:
    """Two small layers; 26 parameters."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def batchnorm(seed: int) -> nn.Module:
    """A model that has seen data: its running statistics and counter are not the initial ones."""
    torch.manual_seed(seed)
    layer = nn.BatchNorm1d(4)
    for _ in range(1 + seed % 97):
        layer(torch.randn(3, 4) + 1)
    return nn.Sequential(nn.Linear(3, 4), layer, nn.Linear(4, 2))


class Branches(nn.Module):
    """A model in which every rank may take another branch, and leave the others unused."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        # All of one shape, so that gradients in the wrong place raise no error.
        self.branches = nn.ModuleList(nn.Linear(2, 2) for _ in range(4))

    def forward(self, x: Tensor, branch: int = 0) -> Tensor:
        taken: nn.Module = self.branches[branch]
        return taken(x)


_SEEDED = {"mlp": mlp, "batchnorm": batchnorm, "branches": Branches}


def build(inputs: dict[str, Any]) -> nn.Module:
    """This rank's module: `model` and `seed` in the inputs, or a `Bag` of them."""
    kind = inputs.get("model")
    return _SEEDED[kind](inputs["seed"]) if kind else Bag(inputs)


def give_gradients(module: nn.Module, inputs: dict[str, Any]) -> None:
    """Gradients from `gradients/<name>`; none where there is no input.

    Those named in `strided_gradients` are laid out in memory another way.
    """
    for name, parameter in module.named_parameters():
        value = inputs.get(f"gradients/{name}")
        if value is not None:
            is_strided = name in inputs.get("strided_gradients", ())
            parameter.grad = strided(value) if is_strided else value.clone()


def strided(value: Tensor) -> Tensor:
    """The same values in memory that is not contiguous; what lies between them is NaN."""
    if value.dim() > 1:
        order = tuple(reversed(range(value.dim())))
        return value.permute(order).contiguous().permute(order)
    spread = torch.full((*value.shape, 2), torch.nan, dtype=value.dtype)
    spread[..., 0] = value
    return spread[..., 0]


# What a program brings back


def tensors(module: nn.Module, prefix: str = "") -> dict[str, Any]:
    """`parameters/<name>` and `buffers/<name>`, copied."""
    values = {f"{prefix}parameters/{n}": p.detach().clone() for n, p in module.named_parameters()}
    values |= {f"{prefix}buffers/{n}": b.detach().clone() for n, b in module.named_buffers()}
    return values


def gradients(module: nn.Module, prefix: str = "") -> dict[str, Any]:
    """`gradients/<name>`, copied; None where a parameter has none."""
    return {
        f"{prefix}gradients/{name}": None if p.grad is None else p.grad.detach().clone()
        for name, p in module.named_parameters()
    }


def _named(inputs: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    return [(k.removeprefix(prefix), v) for k, v in inputs.items() if k.startswith(prefix)]
