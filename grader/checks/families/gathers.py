"""Gathers: what else than the shards of all ranks, in order, a rank may come out with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import torch

from grader.checks.evidence import UNKNOWN, Evidence, Hypothesis
from grader.checks.families.common import (
    everywhere,
    padded,
    shard_size,
    tensors_by_rank,
    transposed,
)

_MOST_RANKS = 4
"""Ranks up to which every order is tried."""


def hypotheses(evidence: Evidence) -> Iterator[Hypothesis]:
    """Reads `extra["shards"]`: every rank's shard, padded; else `locals`."""
    shards, want = tensors_by_rank(evidence, "shards"), evidence.expected[0]
    if shards is None or len(shards) < 2 or not isinstance(want, torch.Tensor):
        return
    yield from _wrong_form(evidence, shards, want)
    yield from _wrong_shards(evidence, shards, want)
    yield from _wrong_order(evidence, shards, want)


def _wrong_form(
    evidence: Evidence, shards: list[torch.Tensor], want: torch.Tensor
) -> Iterator[Hypothesis]:
    size, whole = len(shards), torch.cat(shards)
    if whole.numel() != want.numel():
        kept = [_in_shape_of(whole, actual) for actual in evidence.actual]
        cut_in_front = whole[whole.numel() - want.numel() :].reshape(want.shape)
        yield Hypothesis("cut-at-the-wrong-end", [cut_in_front] * size)
        if all(isinstance(k, torch.Tensor) and k.shape != (size, len(shards[0])) for k in kept):
            yield Hypothesis("padding-kept", kept)
    if want.dim() != 1:
        yield Hypothesis("not-reshaped", [want.reshape(-1)] * size)
    yield Hypothesis("stacked-not-concatenated", [torch.stack(shards)] * size)
    yield Hypothesis("nothing-gathered", shards)
    if want.dim() > 1:
        turned = transposed(want.reshape(tuple(reversed(want.shape))))
        yield Hypothesis("column-major", [turned] * size)
    # Shards cut by the rule for rows, every one padded: zeros come between the numbers.
    per = shard_size(want.numel(), size)
    mixed = torch.cat([padded(part, per) for part in want.reshape(-1).tensor_split(size)])
    yield Hypothesis("padding-in-every-part", [_cut(mixed, want)] * size)


def _wrong_shards(
    evidence: Evidence, shards: list[torch.Tensor], want: torch.Tensor
) -> Iterator[Hypothesis]:
    size = len(shards)
    repeated = [_join([shard] * size, want) for shard in shards]
    for one in repeated:
        yield everywhere("gather-list-aliased", one, evidence)
    yield Hypothesis("own-shard-repeated", repeated, everywhere=True)
    blank = torch.zeros_like(shards[0])
    alone = [
        _join([shard if place == rank else blank for place in range(size)], want)
        for rank, shard in enumerate(shards)
    ]
    # Zeros are no evidence of anything, but zeros all around one right part are.
    is_fact = all(bool(shard.any()) for shard in shards)
    yield Hypothesis("only-own-part", alone, is_fact=is_fact)


def _wrong_order(
    evidence: Evidence, shards: list[torch.Tensor], want: torch.Tensor
) -> Iterator[Hypothesis]:
    size = len(shards)
    in_order = tuple(range(size))
    for order in permutations(in_order) if size <= _MOST_RANKS else [in_order[::-1]]:
        mixed = _join([shards[rank] for rank in order], want)
        yield everywhere("wrong-rank-order", mixed, evidence)
    for shift in in_order:
        # Each rank begins with its own shard, or with a neighbour's.
        for step in (1, -1):
            orders = [[(r + step * (shift + i)) % size for i in in_order] for r in in_order]
            yield _by_rank(orders, shards, want)
    yield _by_rank([[r, *(i for i in in_order if i != r)] for r in in_order], shards, want)


def _by_rank(orders: list[list[int]], shards: list[torch.Tensor], want: torch.Tensor) -> Hypothesis:
    joined = [_join([shards[rank] for rank in order], want) for order in orders]
    return Hypothesis("wrong-rank-order", joined, everywhere=True)


def _join(parts: Sequence[torch.Tensor], want: torch.Tensor) -> torch.Tensor:
    return _cut(torch.cat(list(parts)), want)


def _cut(flat: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    return flat.reshape(-1)[: want.numel()].reshape(want.shape)


def _in_shape_of(flat: torch.Tensor, actual: object) -> object:
    """`flat` in the shape that came, where it has that many elements."""
    if not isinstance(actual, torch.Tensor) or actual.numel() != flat.numel():
        return UNKNOWN
    return flat.reshape(actual.shape)
