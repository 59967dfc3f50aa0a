"""Means over ranks: what else than the mean a rank may come out with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import torch

from grader.checks.evidence import Evidence, Hypothesis
from grader.checks.families.common import (
    as_seen,
    complete_locals,
    everywhere,
    kept_own,
    overflowed,
    transposed,
)

_MOST_RANKS = 4
"""Ranks up to which every subset, and every combination of memory layouts, is tried."""


def hypotheses(evidence: Evidence) -> Iterator[Hypothesis]:
    """Reads `locals`; other parameters' gradients from `inputs`, by the name's first part."""
    yield from _left_out(evidence)
    own = complete_locals(evidence)
    if own is None:
        return
    if overflowed(evidence, own):
        yield as_seen("overflow-in-half-precision", evidence)
    yield kept_own(evidence, "result-not-written-back")
    yield from wrong_scale(own)
    yield from wrong_operation(own)
    yield from _wrong_ranks(evidence, own)
    yield from _missing_ones(evidence, own)
    yield from _wrong_place(evidence, own)


def wrong_scale(own: list[torch.Tensor]) -> Iterator[Hypothesis]:
    """The right numbers were added, or none, and divided by something else."""
    size, total = len(own), torch.stack(own).sum(0)
    yield Hypothesis("summed-not-averaged", [total] * size)
    if size != 2:
        yield Hypothesis("hard-coded-world-size", [total / 2] * size)
    yield Hypothesis("divided-twice", [total / size**2] * size)
    yield Hypothesis("reduced-twice", [total * size] * size)
    yield Hypothesis("divided-not-summed", [value / size for value in own])
    for result in (total / size, total):
        yield Hypothesis("added-not-replaced", [value + result for value in own])


def wrong_operation(own: list[torch.Tensor]) -> Iterator[Hypothesis]:
    """All ranks' numbers came together, but in another way."""
    size, stack = len(own), torch.stack(own)
    for combined in (stack.amax(0), stack.amin(0), stack.prod(0)):
        yield Hypothesis("wrong-reduce-op", [combined] * size)
        yield Hypothesis("wrong-reduce-op", [combined / size] * size)
    mean = stack.mean(0)
    for rounded in (mean.trunc(), mean.floor(), mean.round()):
        yield Hypothesis("rounded-to-whole-numbers", [rounded] * size)


def _wrong_ranks(evidence: Evidence, own: list[torch.Tensor]) -> Iterator[Hypothesis]:
    """Not all ranks give, or not all receive."""
    size, total = len(own), torch.stack(own).sum(0)
    for value in own:
        yield everywhere("one-ranks-value", value, evidence)
    for count in range(2, size if size <= _MOST_RANKS else 0):
        for some in combinations(range(size), count):
            if all(evidence.locals[rank] is None for rank in range(size) if rank not in some):
                continue  # those left out have nothing, which is another story
            part = torch.stack([own[rank] for rank in some]).sum(0)
            yield everywhere("some-ranks-left-out", part / count, evidence)
            yield everywhere("some-ranks-left-out", part / size, evidence)
    for divisor in (size - 1, size):
        others = [(total - value) / divisor for value in own]
        yield Hypothesis("own-value-left-out", others, everywhere=True)
    for result, divisor, root in product((total / size, total), (1, size), range(size)):
        left = [value / divisor for value in own]
        left[root] = result
        yield Hypothesis("reduced-to-one-rank", left, everywhere=True)


def _missing_ones(evidence: Evidence, own: list[torch.Tensor]) -> Iterator[Hypothesis]:
    """Some ranks have no value of their own."""
    size, present = len(own), sum(t is not None for t in evidence.locals)
    if present == size:
        return
    yield Hypothesis("missing-not-counted-as-zeros", [torch.stack(own).sum(0) / present] * size)


def _left_out(evidence: Evidence) -> Iterator[Hypothesis]:
    """A rank that has no value of its own still has none."""
    if all(_has_none(evidence, rank) for rank in evidence.wrong_ranks()):
        yield Hypothesis("missing-left-out", [None] * evidence.world_size, is_fact=True)


def _has_none(evidence: Evidence, rank: int) -> bool:
    """Whether it is known that a rank has no value; that no local is known is not enough."""
    if rank >= len(evidence.locals) or evidence.locals[rank] is not None:
        return False
    if any(value is not None for value in evidence.locals):
        return True
    family, slash, _ = evidence.name.partition("/")
    own = evidence.inputs[rank] if rank < len(evidence.inputs) else {}
    return any(name.startswith(family + slash) for name in own) and evidence.name not in own


def _wrong_place(evidence: Evidence, own: list[torch.Tensor]) -> Iterator[Hypothesis]:
    """Right numbers, but another tensor's or at other indices."""
    size = len(own)
    for other in _other_means(evidence):
        yield Hypothesis("another-parameters-value", [other] * size)
    mean = torch.stack(own).mean(0)
    if mean.dim() > 1:
        yield Hypothesis("rows-and-columns-swapped", [transposed(mean)] * size)
        if size <= _MOST_RANKS:
            yield from _memory_order(own)


def _other_means(evidence: Evidence) -> Iterator[torch.Tensor]:
    """Means of the other values of the same family: `gradients/a` beside `gradients/b`."""
    family = evidence.name.partition("/")[0] + "/"
    if len(evidence.inputs) != evidence.world_size or "/" not in evidence.name:
        return
    for name in evidence.inputs[0]:
        if not name.startswith(family) or name == evidence.name:
            continue
        values = [inputs.get(name) for inputs in evidence.inputs]
        tensors = [value.double() for value in values if isinstance(value, torch.Tensor)]
        if len(tensors) == len(values) and len({t.shape for t in tensors}) == 1:
            yield torch.stack(tensors).mean(0)


def _memory_order(own: list[torch.Tensor]) -> Iterator[Hypothesis]:
    """Ranks lay the tensor out in memory in two ways, and memory was added as it lies."""
    for turned in product((False, True), repeat=len(own)):
        if len(set(turned)) == 1:
            continue
        pairs = list(zip(own, turned, strict=True))
        lying = [(transposed(t) if is_turned else t).reshape(-1) for t, is_turned in pairs]
        mean = torch.stack(lying).mean(0)
        read = [_read_back(mean, t.shape, is_turned) for t, is_turned in pairs]
        yield Hypothesis("memory-order-mixed-up", read, everywhere=True)


def _read_back(memory: torch.Tensor, shape: torch.Size, is_turned: bool) -> torch.Tensor:
    if not is_turned:
        return memory.reshape(shape)
    return transposed(memory.reshape(tuple(reversed(shape))))
