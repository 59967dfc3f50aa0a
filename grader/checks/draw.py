"""Inputs of a run, drawn in the grader: different on every rank, the same at every grading."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

Shape = tuple[int, ...]


class Draw:
    """Draws the inputs of one rank of one check. Equal arguments give equal values."""

    def __init__(self, seed: int, check: str, world_size: int, rank: int | None) -> None:
        self.world_size = world_size
        self._key = (seed, check, world_size)
        self._rank = rank
        text = f"{seed}/{check}/{world_size}/{'shared' if rank is None else rank}"
        digest = hashlib.sha256(text.encode()).digest()
        self._generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        self._shared: Draw | None = None

    @property
    def rank(self) -> int:
        """The rank these inputs are for."""
        if self._rank is None:
            raise AttributeError("what all ranks share belongs to no rank")
        return self._rank

    @property
    def shared(self) -> Draw:
        """Draws that come out the same on every rank of the run."""
        if self._shared is None:
            self._shared = Draw(*self._key, rank=None)
        return self._shared

    def normal(self, shape: Shape, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Standard normal values of `shape`, rounded to `dtype`."""
        return torch.randn(shape, generator=self._generator, dtype=torch.float64).to(dtype)

    def uniform(
        self, shape: Shape, low: float = 0.0, high: float = 1.0, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        """Values of `shape` in [`low`, `high`), rounded to `dtype`."""
        values = torch.rand(shape, generator=self._generator, dtype=torch.float64)
        return (values * (high - low) + low).to(dtype)

    def integers(
        self, low: int, high: int, shape: Shape, dtype: torch.dtype = torch.int64
    ) -> torch.Tensor:
        """Whole numbers of `shape` in [`low`, `high`)."""
        return torch.randint(low, high, shape, generator=self._generator).to(dtype)

    def tensors(
        self, shapes: Mapping[str, tuple[Shape, torch.dtype]], prefix: str = ""
    ) -> dict[str, torch.Tensor]:
        """One tensor a name: normal for float dtypes, whole numbers below 1,000 for the others."""
        drawn = {}
        for name, (shape, dtype) in shapes.items():
            if dtype is torch.bool:
                drawn[prefix + name] = self.integers(0, 2, shape, dtype)
            elif dtype.is_floating_point:
                drawn[prefix + name] = self.normal(shape, dtype)
            else:
                high = min(1000, torch.iinfo(dtype).max)
                drawn[prefix + name] = self.integers(1, high, shape, dtype)
        return drawn
