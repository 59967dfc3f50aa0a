"""Norms: what else than the L2 norm of the averaged gradients a learner may return."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch

from grader.checks.evidence import Evidence, Hypothesis

Gradients = list[dict[str, torch.Tensor]]
"""By rank: name → gradient before averaging, in double precision."""


def hypotheses(evidence: Evidence) -> Iterator[Hypothesis]:
    """Reads the ranks' own gradients: `extra["gradients"]` (a dict a rank), else those of
    `inputs` whose names begin with `gradients/`; parameters likewise."""
    by_rank = _by_rank(evidence, "gradients/")
    names = _names(by_rank)
    if not names:
        return
    size = evidence.world_size
    means = [_mean(name, by_rank) for name in names]
    own = [_length(gradients.values()) for gradients in by_rank]
    right = _length(means)
    yield Hypothesis("norm-before-dividing", [right * size] * size)
    yield Hypothesis("norm-divided-again", [right / size] * size)
    yield Hypothesis("norm-of-local-gradients", own)
    squares = sum(n * n for n in own)
    for combined in (sum(own) / size, sum(own), math.sqrt(squares), math.sqrt(squares / size)):
        yield Hypothesis("norms-of-ranks-combined", [combined] * size)
    for code, value in _of_other_kinds(means, right):
        yield Hypothesis(code, [float(value)] * size)
    parameters = _by_rank(evidence, "parameters/")
    if _names(parameters):
        yield Hypothesis("norm-of-parameters", [_length(p.values()) for p in parameters])


def _of_other_kinds(means: Sequence[torch.Tensor], right: float) -> Iterator[tuple[str, float]]:
    lengths = [_length([mean]) for mean in means]
    yield "norms-added-up", sum(lengths)
    yield "norms-added-up", math.sqrt(sum(lengths))
    yield "norm-of-one-parameter", lengths[-1]
    yield "norm-of-one-parameter", lengths[0]
    yield "norm-squared", right**2
    yield "another-kind-of-norm", sum(float(m.abs().sum()) for m in means)
    yield "another-kind-of-norm", max(_largest(m) for m in means)
    count = sum(m.numel() for m in means)
    if count:
        yield "another-kind-of-norm", right / math.sqrt(count)
        yield "another-kind-of-norm", right / count


def _by_rank(evidence: Evidence, family: str) -> Gradients:
    given = evidence.extra.get(family.rstrip("/"))
    if given is None:
        given = [
            {name: value for name, value in inputs.items() if name.startswith(family)}
            for inputs in evidence.inputs
        ]
    if len(given) != evidence.world_size:
        return []
    return [
        {name: v.double() for name, v in values.items() if isinstance(v, torch.Tensor)}
        for values in given
    ]


def _names(by_rank: Gradients) -> list[str]:
    """In the order in which they first come; names are the same on all ranks, or missing."""
    return list(dict.fromkeys(name for own in by_rank for name in own))


def _mean(name: str, by_rank: Gradients) -> torch.Tensor:
    blank = torch.zeros_like(next(own[name] for own in by_rank if name in own))
    return torch.stack([own.get(name, blank) for own in by_rank]).mean(0)


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def _length(tensors: Iterable[torch.Tensor]) -> float:
    return math.sqrt(sum(float(t.square().sum()) for t in tensors))
