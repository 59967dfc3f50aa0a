"""What becomes of numbers when a collective takes memory as it lies.

A tensor that is not contiguous lies in memory in another order than its rows, or with
gaps. Gloo's all-reduce and broadcast do not ask: they work on as many numbers as the
tensor has, from its first address on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch

from grader.checks.evidence import Hypothesis
from grader.checks.families.common import transposed

CODE = "memory-order-mixed-up"
_MOST_RANKS = 4
"""Ranks up to which every combination of layouts is tried."""

Turned = tuple[bool, ...]
"""By rank, whether it holds the tensor column by column."""


def memory_means(own: list[torch.Tensor]) -> Iterator[tuple[Turned, torch.Tensor]]:
    """The mean over ranks of memory as it lies, where some hold it by rows and some by columns."""
    if own[0].dim() < 2 or len(own) > _MOST_RANKS:
        return
    by_rows = [t.reshape(-1) for t in own]
    by_columns = [transposed(t).reshape(-1) for t in own]
    for turned in product((False, True), repeat=len(own)):
        if len(set(turned)) == 2:
            chosen = [(by_columns if t else by_rows)[rank] for rank, t in enumerate(turned)]
            yield turned, torch.stack(chosen).mean(0)


def reduced_as_it_lies(own: list[torch.Tensor]) -> Iterator[Hypothesis]:
    """Ranks lay the tensor out in two ways, and the collective added memory to memory."""
    shape = own[0].shape
    for turned, memory in memory_means(own):
        by_rows = memory.reshape(shape)
        by_columns = transposed(memory.reshape(tuple(reversed(shape))))
        read = [by_columns if is_turned else by_rows for is_turned in turned]
        yield Hypothesis(CODE, read, everywhere=True)


def reduced_with_gaps(own: list[torch.Tensor]) -> Iterator[Hypothesis]:
    """Every second number of a longer tensor: the collective reaches half of them.

    Divided before or after, or not at all; the rest is divided with it, or not.
    """
    size, numel = len(own), own[0].numel()
    if numel < 3:
        return
    total = torch.stack(own).sum(0).reshape(-1)
    reached = (numel + 1) // 2
    for result, divisor in product((total, total / size), (1, size)):
        mixed = [
            torch.cat([result[:reached], t.reshape(-1)[reached:] / divisor]).reshape(t.shape)
            for t in own
        ]
        yield Hypothesis(CODE, mixed, everywhere=True)
