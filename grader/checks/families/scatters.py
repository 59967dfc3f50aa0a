"""Reduce-scatter: what else than its shard of the mean a rank may come out with."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from grader.checks.evidence import Evidence, Hypothesis
from grader.checks.families.common import (
    as_seen,
    everywhere,
    only_padding_differs,
    overflowed,
    padded,
    piece,
    shard_size,
    tensors_by_rank,
    transposed,
)
from grader.checks.families.layouts import CODE as MEMORY_ORDER
from grader.checks.families.layouts import memory_means
from grader.checks.families.means import wrong_operation, wrong_scale


def hypotheses(evidence: Evidence) -> Iterator[Hypothesis]:
    """Reads `extra["gradients"]`: the whole gradient of every rank; else `locals`."""
    given = tensors_by_rank(evidence, "gradients")
    if given is None:
        return
    size, numel = len(given), given[0].numel()
    if size == 1:
        yield Hypothesis("hard-coded-world-size", [given[0].double().reshape(-1) / 2])
        return
    per = shard_size(numel, size)
    flat = [padded(g.double().reshape(-1), per * size) for g in given]
    if overflowed(evidence, flat, per):
        yield as_seen("overflow-in-half-precision", evidence)
    if not evidence.communicated:
        yield Hypothesis("no-communication", [piece(flat[r], r, per) for r in range(size)])
        yield Hypothesis("no-communication", given)
    yield Hypothesis("not-reduced", [piece(flat[r], r, per) for r in range(size)])
    for whole in (*wrong_scale(flat), *wrong_operation(flat)):
        parts = [piece(value, rank, per) for rank, value in enumerate(whole.predictions)]
        yield Hypothesis(whole.code, parts)
    if only_padding_differs(evidence, [len(piece(flat[0][:numel], r, per)) for r in range(size)]):
        yield as_seen("padding-not-zeros", evidence)
    for _, memory in memory_means([g.double() for g in given]):
        yield _pieces(MEMORY_ORDER, padded(memory, per * size), size, per)
    mean = torch.stack(flat).mean(0)
    yield from _wrong_part(evidence, mean, per)
    yield from _too_much_or_too_little(evidence, mean[:numel], given[0].shape)
    if given[0].dim() > 1:
        turned = torch.stack([transposed(g.double()).reshape(-1) for g in given]).mean(0)
        yield _pieces("column-major", padded(turned, per * size), size, per)


def _pieces(code: str, whole: torch.Tensor, size: int, per: int) -> Hypothesis:
    return Hypothesis(code, [piece(whole, rank, per) for rank in range(size)])


def _wrong_part(evidence: Evidence, mean: torch.Tensor, per: int) -> Iterator[Hypothesis]:
    size = evidence.world_size
    parts = [piece(mean, rank, per) for rank in range(size)]
    for shift in range(1, size):
        yield Hypothesis("another-ranks-shard", parts[shift:] + parts[:shift])
    for part in parts:
        yield everywhere("another-ranks-shard", part, evidence)
    yield Hypothesis("interleaved", [mean[rank::size] for rank in range(size)])


def _too_much_or_too_little(
    evidence: Evidence, mean: torch.Tensor, shape: torch.Size
) -> Iterator[Hypothesis]:
    size = evidence.world_size
    per, floor = shard_size(mean.numel(), size), mean.numel() // size
    for whole in (padded(mean, per * size), mean, mean.reshape(shape)):
        yield Hypothesis("not-scattered", [whole] * size)
    yield _pieces("padding-missing", mean, size, per)
    yield _pieces("floor-not-ceil", mean, size, floor)
    front = torch.cat([mean.new_zeros(per * size - mean.numel()), mean])
    yield _pieces("padded-in-front", front, size, per)
    spread = mean.tensor_split(size)
    yield Hypothesis("padding-missing", spread)
    yield Hypothesis("padding-in-every-part", [padded(part, per) for part in spread])
