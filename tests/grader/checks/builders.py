"""Evidence and ledgers for tests, as a run would bring them."""

from __future__ import annotations

import math
from typing import Any

import torch

from grader.checks.hypotheses import Evidence
from grader.results import Collective

SIZES = (2, 3, 4)
Given = list[torch.Tensor]
"""One tensor a rank."""


def given(size: int, shape: tuple[int, ...] = (3, 2), seed: int = 0) -> Given:
    """Different normal values on every rank."""
    generator = torch.Generator().manual_seed(1000 * seed + size)
    return [torch.randn(shape, generator=generator) for _ in range(size)]


def evidence(
    kind: str, expected: list[Any], actual: list[Any], own: Any = None, **more: Any
) -> Evidence:
    return Evidence(
        kind=kind,
        world_size=len(actual),
        name=more.pop("name", "gradients/weight"),
        expected=tuple(expected),
        actual=tuple(actual),
        locals=tuple(own or [None] * len(actual)),
        **more,
    )


def mean(tensors: Given) -> torch.Tensor:
    return sum(tensors[1:], tensors[0]) / len(tensors)


def cut(flat: torch.Tensor, ranks: int) -> Given:
    """The right shards of a flat tensor."""
    size = math.ceil(flat.numel() / ranks)
    padded = torch.cat([flat, flat.new_zeros(size * ranks - flat.numel())])
    return [padded[r * size : (r + 1) * size] for r in range(ranks)]


def call(op: str, **fields: Any) -> Collective:
    """An entry of a ledger; a call that was waited for but has no end yet."""
    defaults = {"group": "0", "ordinal": 1, "started_s": 0.0, "shapes": ((4,),), "dtype": "float32"}
    return Collective(op=op, **(defaults | fields))
