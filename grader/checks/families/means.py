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
from grader.checks.families.layouts import reduced_as_it_lies, reduced_with_gaps

_MOST_RANKS = 4
"""Ranks up to which every subset is tried."""
_MOST_NUMBERS = 2_000
"""Numbers of a flat buffer in which a piece is looked for."""


def hypotheses(evidence: Evidence) -> Iterator[Hypothesis]:
    """Reads `locals`; other parameters' gradients from `inputs`, by the name's first part."""
    yield from _left_out(evidence)
    own = complete_locals(evidence)
    if own is None:
        return
    if len(own) == 1:
        yield Hypothesis("hard-coded-world-size", [own[0] / 2])
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
    yield from reduced_as_it_lies(own)
    yield from reduced_with_gaps(own)
    yield from _elsewhere_in_a_flat_buffer(evidence, mean)


def _other_means(evidence: Evidence) -> Iterator[torch.Tensor]:
    """Means of the other values of the same family: `gradients/a` beside `gradients/b`."""
    for name, mean in _means_of_family(evidence):
        if name != evidence.name:
            yield mean


def _means_of_family(evidence: Evidence) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and mean of all values of the family that every rank has, in their order."""
    family = evidence.name.partition("/")[0] + "/"
    if len(evidence.inputs) != evidence.world_size or "/" not in evidence.name:
        return
    for name in evidence.inputs[0]:
        values = [inputs.get(name) for inputs in evidence.inputs]
        tensors = [value.double() for value in values if isinstance(value, torch.Tensor)]
        is_whole = len(tensors) == len(values) and len({t.shape for t in tensors}) == 1
        if name.startswith(family) and is_whole:
            yield name, torch.stack(tensors).mean(0)


def _elsewhere_in_a_flat_buffer(evidence: Evidence, mean: torch.Tensor) -> Iterator[Hypothesis]:
    """All means one after the other in a flat buffer, and the piece taken from another place."""
    means = list(_means_of_family(evidence))
    if len(means) < 2 or sum(m.numel() for _, m in means) > _MOST_NUMBERS:
        return
    buffer = torch.cat([m.reshape(-1) for _, m in means])
    starts, place = {}, 0
    for name, other in means:
        starts[place] = name, other.shape
        place += other.numel()
    for start in range(buffer.numel() - mean.numel() + 1):
        name, shape = starts.get(start, ("", None))
        if name != evidence.name and shape != mean.shape:  # that is another parameter's value
            found = buffer[start : start + mean.numel()].reshape(mean.shape)
            yield Hypothesis("flat-buffer-misread", [found] * evidence.world_size)
