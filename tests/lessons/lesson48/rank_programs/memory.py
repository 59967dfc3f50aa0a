"""The exercise "memory math": the calculator, and the bytes that ranks really hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .optimizers import Adam, Momentum

ROWS, COLUMNS = 24, 16
"""A weight matrix that 2, 3 and 4 ranks divide without a remainder."""


def answers(here: Any) -> dict[str, Any]:
    """What the calculator says to every question: label → its arguments."""
    return {
        label: here.submission.memory_calculator(*arguments, **named)
        for label, (arguments, named) in here.inputs["questions"].items()
    }


def refusals(here: Any) -> dict[str, Any]:
    """What the calculator raises at every question: [kind, message], or [“”, what it returned]."""
    return {
        label: _refusal(here, arguments, named)
        for label, (arguments, named) in here.inputs["questions"].items()
    }


def _refusal(here: Any, arguments: list[Any], named: dict[str, Any]) -> list[str]:
    try:
        answer = here.submission.memory_calculator(*arguments, **named)
    except ValueError as error:
        return ["ValueError", str(error)]
    except NotImplementedError:
        raise
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["", repr(answer)[:100]]


def held(here: Any) -> dict[str, Any]:
    """Bytes that this rank holds after a real step at every stage, and what was predicted."""
    values: dict[str, Any] = {}
    for label, (sharding, precision, optimizer) in here.inputs["plans"].items():
        dtype = torch.float32 if precision == 4 else torch.bfloat16
        step = _Step(here, sharding, dtype, optimizer)
        values |= {f"{label}/{what}": size for what, size in step.bytes_held().items()}
        values[f"predicted/{label}"] = here.submission.memory_calculator(
            ROWS * COLUMNS / 1e9,
            num_gpus=here.world_size,
            sharding=sharding,
            precision_bytes=precision,
            optimizer=optimizer,
        )
    return values


class _Step:
    """One training step of one weight matrix that leaves behind only what its stage keeps."""

    def __init__(self, here: Any, sharding: str, dtype: torch.dtype, optimizer: str) -> None:
        self._rank, self._world_size = here.rank, here.world_size
        stage = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3}[sharding]
        torch.manual_seed(0)
        full = torch.randn(ROWS, COLUMNS).to(dtype)
        grad = self._mean_of_gradients(full, here.inputs["x"].to(dtype))
        self.weights = self._own(full) if stage >= 3 else full
        self.gradients = self._own(grad) if stage >= 2 else grad
        stepped = self._own(full) if stage >= 1 else full
        stepped_grad = self._own(grad) if stage >= 1 else grad
        self.states = list(_states(optimizer, stepped, stepped_grad))

    def _mean_of_gradients(self, full: Tensor, x: Tensor) -> Tensor:
        weight = full.clone().requires_grad_()
        (x @ weight.t()).square().mean().backward()
        assert weight.grad is not None
        mean = weight.grad / self._world_size
        dist.all_reduce(mean)
        return mean

    def _own(self, full: Tensor) -> Tensor:
        return full.chunk(self._world_size)[self._rank].clone()

    def bytes_held(self) -> dict[str, int]:
        """Bytes of distinct storages, by what they are for."""
        return {
            "weights_gb": _bytes([self.weights]),
            "gradients_gb": _bytes([self.gradients]),
            "optimizer_gb": _bytes(self.states),
        }


def _states(optimizer: str, weights: Tensor, grad: Tensor) -> Iterator[Tensor]:
    """What the optimizer keeps from one step to the next, after a step."""
    if optimizer == "adam_master":
        weights = weights.float()  # a copy to step on that does not round
        yield weights
    if optimizer.startswith("adam"):
        adam = Adam(weights.clone() if optimizer == "adam" else weights)
        adam.step(grad)
        yield from (adam.mean, adam.square)
    elif optimizer == "sgd_momentum":
        parameter = weights.float().requires_grad_()
        parameter.grad = grad.float()
        momentum = Momentum([parameter])
        momentum.step()
        yield from momentum.buffers


def _bytes(tensors: list[Tensor]) -> int:
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
