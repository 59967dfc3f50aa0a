"""Questions to a memory calculator, and what is right to answer.

Model states as the ZeRO paper counts them (arXiv:1910.02054): weights and gradients of
`precision_bytes` each, optimizer states of 8 (`adam`: two fp32 moments), 12 (`adam_master`:
and an fp32 copy of the weights), 0 (`sgd`) or 4 (`sgd_momentum`) bytes a parameter.
`zero1` divides the optimizer states among the GPUs, `zero2` the gradients too, `zero3` and
`fsdp` everything. GB are 1e9 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STATE_BYTES = {"adam": 8.0, "adam_master": 12.0, "sgd": 0.0, "sgd_momentum": 4.0}
STAGES = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
LAST_STAGE = 3
PARTS = ("weights_gb", "gradients_gb", "optimizer_gb")
_DIVIDED_FROM = (3, 2, 1)
"""The first stage that divides each of `PARTS`."""

Bytes = tuple[float, float, float]
"""Bytes a parameter of each of `PARTS`, before anything is divided."""
Gigabytes = tuple[float, ...]
"""GB per GPU of each of `PARTS`."""


@dataclass(frozen=True)
class Call:
    """The arguments of one question, defaults filled in."""

    params_billions: float
    num_gpus: int = 1
    sharding: str = "none"
    precision_bytes: float = 2
    optimizer: str = "adam"

    @property
    def is_known(self) -> bool:
        """Whether there is a right answer."""
        return self.sharding in STAGES and self.optimizer in STATE_BYTES and self.num_gpus >= 1

    @property
    def stage(self) -> int:
        """The ZeRO stage that the sharding is."""
        return STAGES[self.sharding]

    @property
    def size(self) -> float:
        """Bytes of one weight."""
        return float(self.precision_bytes)

    @property
    def states(self) -> float:
        """Bytes of optimizer states a parameter."""
        return STATE_BYTES[self.optimizer]

    @property
    def each(self) -> Bytes:
        """What is right before anything is divided."""
        return (self.size, self.size, self.states)

    def parts(self, each: Bytes | None = None, stage: int | None = None) -> Gigabytes:
        """GB per GPU of `PARTS`; on request of other bytes a parameter, or at another stage."""
        stage = self.stage if stage is None else stage
        return tuple(
            self.params_billions * size / (self.num_gpus if stage >= first else 1)
            for size, first in zip(each or self.each, _DIVIDED_FROM, strict=True)
        )

    def total(self, stage: int | None = None) -> float:
        """GB per GPU in all."""
        return sum(self.parts(stage=stage))


@dataclass(frozen=True)
class Answer:
    """A question and what a learner answered."""

    call: Call
    said: Mapping[str, Any]

    @property
    def parts(self) -> Gigabytes:
        """What was said of `PARTS`."""
        return tuple(self.number(part) for part in PARTS)

    def number(self, key: str) -> float:
        """What was said of `key`; NaN where that is no number."""
        value = self.said.get(key)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return math.nan
        return float(value) if abs(value) < 1e300 else math.nan


def agree(said: Gigabytes, due: Gigabytes) -> bool:
    """Whether all numbers are the same but for rounding."""
    return all(map(close, said, due))


def close(said: float, due: float) -> bool:
    """Whether two numbers are the same but for rounding."""
    return math.isclose(said, due, rel_tol=1e-6, abs_tol=1e-15)
