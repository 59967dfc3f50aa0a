"""One wrong answer with all that is known of it, and when it is enough to say why.

A hypothesis predicts what a rank would hold if it were true. That the prediction fits is
not enough: a tensor of ones, or three zeros, fit many stories. So every fit is weighed in
bits: how improbable it is that a story fits by accident.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from grader.checks.compare import close, compare, relative_tolerance, scale

ENOUGH_BITS = 16
"""A bank of some 60 predictions fits a random answer with a probability of about 1 in 1000."""
_MOST_VALUES = 256
"""Elements that are weighed; more would not change what follows."""


@dataclass(frozen=True)
class Evidence:
    """All that is known of one wrong answer; tuples are by rank."""

    kind: str
    """The family of hypotheses: `mean`, `broadcast`, `gather`, `shard`, `rows`,
    `reduce_scatter`, `norm` or `memory`."""
    world_size: int
    name: str
    expected: tuple[Any, ...]
    actual: tuple[Any, ...]
    locals: tuple[torch.Tensor | None, ...] = ()
    """Each rank's value before any communication."""
    inputs: tuple[dict[str, Any], ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    """What the check knows besides; each family says what it looks for."""
    communicated: bool = True
    """Whether the submission issued any collective at all."""

    @property
    def is_exact(self) -> bool:
        """Whether right values are copies, so that every bit counts."""
        return self.kind in ("broadcast", "gather", "shard", "rows")

    def wrong_ranks(self) -> list[int]:
        """The ranks whose answer is not what was expected."""
        pairs = zip(self.expected, self.actual, strict=True)
        return [
            rank
            for rank, (due, found) in enumerate(pairs)
            if compare(due, found, exact=self.is_exact, summands=self.world_size) is not None
        ]

    def fits(self, rank: int, predicted: Any) -> bool:
        """Whether `rank` holds just what was predicted."""
        actual = self.actual[rank]
        if not isinstance(predicted, torch.Tensor) or not isinstance(actual, torch.Tensor):
            return _fits_plain(predicted, actual)
        if predicted.shape != actual.shape:
            return False
        if not actual.dtype.is_floating_point:
            return torch.equal(_comparable(predicted, actual), _comparable(actual, predicted))
        rounded = predicted.to(actual.dtype)
        relative = self._tolerance(predicted, actual)
        return bool(close(rounded, actual, relative, relative * scale(rounded)).all())

    def precision(self, predicted: torch.Tensor, actual: torch.Tensor) -> float:
        """Bits of one element that a prediction has to get right to fit."""
        if not actual.dtype.is_floating_point:
            return 16.0
        relative = self._tolerance(predicted, actual)
        return (
            -math.log2(2 * relative) if relative else 1 - math.log2(torch.finfo(actual.dtype).eps)
        )

    def _tolerance(self, predicted: torch.Tensor, actual: torch.Tensor) -> float:
        # What is predicted in the answer's own dtype is a copy; the rest was computed.
        if self.is_exact and predicted.dtype == actual.dtype:
            return 0.0
        return relative_tolerance(actual.dtype, self.world_size)

    def sources(self) -> Iterator[torch.Tensor]:
        """The tensors that predictions are made of."""
        yield from tensors_in(self.locals)
        yield from tensors_in(self.extra)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in a tensor, or in nested lists, tuples and dicts of tensors."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


class _Unknown:
    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = _Unknown()
"""Stands for what a hypothesis cannot say of a rank."""


@dataclass(frozen=True)
class Hypothesis:
    """A misunderstanding, and what it would bring."""

    code: str
    predictions: Sequence[Any]
    """By rank: a tensor, a float, None, or `UNKNOWN`."""
    everywhere: bool = False
    """It speaks of all ranks: what it predicts for the ranks that are right must hold too."""
    is_fact: bool = False
    """It claims no more than what was seen, so one fit is enough."""
    is_plain: bool = False
    """It claims that nothing happened, which needs less proof than any story."""

    @property
    def enough(self) -> float:
        """Bits that a fit must weigh."""
        return ENOUGH_BITS / 2 if self.is_plain else ENOUGH_BITS


def bits(evidence: Evidence, hypothesis: Hypothesis, ranks: Iterable[int]) -> float:
    """How improbable it is, in bits, that `hypothesis` fits these ranks by accident.

    Only elements count that are not what was expected anyway, equal ones count once, and
    a number that is nothing special (0, 1, 3, -0.5) counts little.
    """
    most = max((_digits_of(t) for t in evidence.sources()), default=math.inf)
    seen: set[float] = set()
    total = 0.0
    for rank in ranks:
        predicted, actual = hypothesis.predictions[rank], evidence.actual[rank]
        if not isinstance(predicted, torch.Tensor) or not isinstance(actual, torch.Tensor):
            total += ENOUGH_BITS if isinstance(predicted, float) else 0
            continue
        telling = _telling(evidence, predicted, evidence.expected[rank])
        if actual.dtype is torch.bool:
            total += telling.numel()
            continue
        limit = min(most, evidence.precision(predicted, actual))
        for value in sorted(set(telling[:_MOST_VALUES].double().tolist())):
            if value not in seen:
                seen.add(value)
                total += min(limit, _binary_digits(value))
    return total


def _fits_plain(predicted: Any, actual: Any) -> bool:
    is_float = isinstance(predicted, float) and isinstance(actual, (int, float))
    if is_float and not isinstance(actual, bool):
        try:
            return math.isclose(predicted, actual, rel_tol=1e-5)
        except OverflowError:
            return False
    return predicted is None and actual is None


def _comparable(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`tensor` in a dtype in which it can be compared with `other` without loss."""
    return tensor if tensor.dtype == other.dtype else tensor.double()


def _telling(evidence: Evidence, predicted: torch.Tensor, expected: Any) -> torch.Tensor:
    """The elements of `predicted` that are not just what is right."""
    flat = predicted.reshape(-1)
    if not isinstance(expected, torch.Tensor) or expected.shape != predicted.shape:
        return flat
    slack = 0.0 if evidence.is_exact else 4 * relative_tolerance(expected.dtype, 4)
    return flat[~close(expected.reshape(-1), flat, slack, 0.0)]


def _digits_of(tensor: torch.Tensor) -> int:
    values = tensor.reshape(-1)[:_MOST_VALUES].double().tolist()
    return max(map(_binary_digits, values), default=0)


def _binary_digits(value: float) -> int:
    """Significant binary digits: 1 of 8.0, 2 of 3.0, 24 of a float32 that was drawn."""
    if not math.isfinite(value) or value == 0:
        return 0
    mantissa = int(math.ldexp(math.frexp(value)[0], 53))
    return mantissa.bit_length() - ((mantissa & -mantissa).bit_length() - 1)
