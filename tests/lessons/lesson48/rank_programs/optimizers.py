"""The two optimizers of the lesson, by hand.

Making any of torch's own imports its compiler, which takes a second in every rank.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Momentum:
    """`torch.optim.SGD` with momentum, on parameters that are tensors with a `grad`."""

    def __init__(self, parameters: Iterable[Tensor], rate: float = 0.2, momentum: float = 0.9):
        self.parameters = list(parameters)
        self.buffers = [torch.zeros_like(p) for p in self.parameters]
        self._rate, self._momentum = rate, momentum

    def zero_grad(self) -> None:
        """Forget the gradients, as training loops do before each step."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for parameter, buffer in zip(self.parameters, self.buffers, strict=True):
            if parameter.grad is not None:
                buffer.mul_(self._momentum).add_(parameter.grad)
                parameter.add_(buffer, alpha=-self._rate)


class Adam:
    """`torch.optim.Adam` on one tensor, its two moments in float32 whatever the weights are."""

    def __init__(
        self, weights: Tensor, rate: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999)
    ):
        self.weights = weights
        self.mean = torch.zeros_like(weights, dtype=torch.float32)
        self.square = torch.zeros_like(weights, dtype=torch.float32)
        self._rate, self._betas, self._steps = rate, betas, 0

    @torch.no_grad()
    def step(self, grad: Tensor) -> None:
        """One step along `grad`, of the weights' shape."""
        self._steps += 1
        first, second = self._betas
        wide = grad.float()
        self.mean.lerp_(wide, 1 - first)
        self.square.mul_(second).addcmul_(wide, wide, value=1 - second)
        size = self._rate / (1 - first**self._steps)
        scale = (self.square / (1 - second**self._steps)).sqrt_().add_(1e-8)
        self.weights.sub_((size * self.mean / scale).to(self.weights.dtype))
