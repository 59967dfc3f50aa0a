"""What misunderstanding would bring exactly these wrong values? Predictions, tried in turn.

A hypothesis predicts what every rank would hold if it were true. It wins only if it
predicts what every wrong rank does hold; there is no nearly. Where the evidence cannot
tell (a constant tensor, two ranks where half the sum is the mean), it stays silent:
a wrong diagnosis is worse than none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import torch

from grader.checks.compare import compare

Prediction = torch.Tensor | float | None
Predict = Callable[["Evidence", int], Prediction]


@dataclass(frozen=True)
class Evidence:
    """All that is known of one wrong answer; tuples are by rank."""

    kind: str
    """The family of hypotheses: `mean`, `broadcast`, `gather`, `shard`, `rows`,
    `reduce_scatter` or `norm`."""
    world_size: int
    name: str
    expected: tuple[Any, ...]
    actual: tuple[Any, ...]
    locals: tuple[torch.Tensor | None, ...] = ()
    """Each rank's value before any communication."""
    inputs: tuple[dict[str, Any], ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    """What the check knows besides: `src`, `full`, `rank`, `ranks`, `shards`, `gradients`."""
    communicated: bool = True
    """Whether the submission issued any collective at all."""


@dataclass(frozen=True)
class Hypothesis:
    """A misunderstanding, and what it would bring."""

    code: str
    predict: Predict


def explain(evidence: Evidence) -> str | None:
    """The diagnosis code of the first hypothesis that explains every wrong rank, if any does."""
    wrong = [r for r in range(evidence.world_size) if _differs(evidence, r)]
    if not wrong:
        return None
    for hypothesis in _FAMILIES.get(evidence.kind, _none)(evidence):
        if all(_predicts(hypothesis, evidence, rank) for rank in wrong):
            return hypothesis.code
    return None


def _differs(evidence: Evidence, rank: int) -> bool:
    difference = compare(
        evidence.expected[rank], evidence.actual[rank], exact=False, summands=evidence.world_size
    )
    return difference is not None


def _predicts(hypothesis: Hypothesis, evidence: Evidence, rank: int) -> bool:
    actual = evidence.actual[rank]
    predicted = hypothesis.predict(evidence, rank)
    if predicted is None:
        return False
    if isinstance(predicted, float):
        return isinstance(actual, float) and math.isclose(predicted, actual, rel_tol=1e-4)
    if not isinstance(actual, torch.Tensor) or _says_nothing(predicted):
        return False
    if predicted.dtype != actual.dtype and actual.dtype.is_floating_point:
        predicted = predicted.to(actual.dtype)
    return compare(predicted, actual, exact=False, summands=evidence.world_size) is None


def _says_nothing(predicted: torch.Tensor) -> bool:
    """A tensor of zeros or of one repeated value could come from anywhere."""
    if predicted.numel() <= 1:
        return not bool(predicted.any())
    return bool((predicted == predicted.reshape(-1)[0]).all())


def _none(_evidence: Evidence) -> Iterable[Hypothesis]:
    return ()


# Mean over ranks


def _mean(evidence: Evidence) -> Iterator[Hypothesis]:
    if not _complete(evidence.locals):
        return
    size = evidence.world_size
    own = torch.stack([t.double() for t in evidence.locals if t is not None])
    total = own.sum(0)
    if _overflowed(evidence):
        yield Hypothesis("overflow-in-half-precision", lambda e, r: e.actual[r])
    yield _constant("summed-not-averaged", total)
    if size != 2:
        yield _constant("hard-coded-world-size", total / 2)
    yield _constant("divided-twice", total / size**2)
    code = "result-not-written-back" if evidence.communicated else "no-communication"
    yield Hypothesis(code, lambda e, r: e.locals[r])
    yield Hypothesis("divided-not-summed", lambda e, r: own[r] / size)
    yield _constant("wrong-reduce-op", own.amax(0))
    yield _constant("wrong-reduce-op", own.amin(0))
    yield _constant("wrong-reduce-op", own.prod(0))
    yield _constant("wrong-reduce-op", own.prod(0) / size)
    for rank in range(size):
        yield _constant("one-ranks-value", own[rank])
    yield _constant("summed-not-averaged", total * size)


def _overflowed(evidence: Evidence) -> bool:
    halves = [
        (want, got)
        for want, got in zip(evidence.expected, evidence.actual, strict=True)
        if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor)
    ]
    return bool(halves) and all(
        want.dtype is torch.float16
        and got.shape == want.shape
        and bool(got.isinf().any())
        and bool(want.isfinite().all())
        for want, got in halves
    )


# Broadcast


def _broadcast(evidence: Evidence) -> Iterator[Hypothesis]:
    if not _complete(evidence.locals):
        return
    own = [t for t in evidence.locals if t is not None]
    source = evidence.extra.get("src", 0)
    kept = "parameters-not-broadcast"
    if evidence.name.startswith("buffers/"):
        kept = "buffers-not-broadcast"
    yield Hypothesis(kept, lambda e, r: e.locals[r])
    if source != 0:
        yield _constant("source-ignored", own[0])
    wide = torch.stack([t.double() for t in own])
    yield _constant("averaged-not-broadcast", wide.mean(0))
    yield _constant("averaged-not-broadcast", wide.sum(0))
    for rank in range(evidence.world_size):
        if rank != source:
            yield _constant("wrong-source", own[rank])
    if own[source].dim() == 2:
        yield _constant("memory-order-mixed-up", own[source].t().reshape(own[source].shape))


# Shard and gather


def _gather(evidence: Evidence) -> Iterator[Hypothesis]:
    shards = evidence.extra.get("shards")
    if not shards:
        return
    size, want = evidence.world_size, evidence.expected[0]
    padded = torch.cat(shards)
    if padded.numel() != want.numel():
        yield Hypothesis("padding-kept", lambda e, r: _as(padded, e.actual[r]))
    yield Hypothesis("stacked-not-concatenated", lambda e, r: torch.stack(list(shards)))
    yield Hypothesis("nothing-gathered", lambda e, r: shards[r])
    for rank in range(size):
        repeated = torch.cat([shards[rank]] * size)
        yield _like_expected("gather-list-aliased", _always(repeated))
    yield _like_expected("own-shard-repeated", lambda r: torch.cat([shards[r]] * size))
    for order in permutations(range(size)) if size <= 4 else ():
        mixed = torch.cat([shards[rank] for rank in order])
        yield _like_expected("wrong-rank-order", _always(mixed))
    for shift in range(1, size):
        # Each rank begins with its own shard, or with its neighbour's.
        yield _like_expected("wrong-rank-order", _rotated_from(shards, shift))
    yield _like_expected("wrong-rank-order", _rotated_from(shards, 0))
    if want.dim() == 2:
        flat = padded[: want.numel()]
        turned = flat.reshape(want.shape[1], want.shape[0]).t()
        yield _constant("column-major", turned)


def _like_expected(code: str, flat: Callable[..., torch.Tensor]) -> Hypothesis:
    """`flat(rank)`, cut and shaped as the expected value is."""

    def predict(evidence: Evidence, rank: int) -> torch.Tensor:
        want = evidence.expected[rank]
        return flat(rank)[: want.numel()].reshape(want.shape)

    return Hypothesis(code, predict)


def _always(value: torch.Tensor) -> Callable[[int], torch.Tensor]:
    return lambda _rank: value


def _rotated_from(shards: Sequence[torch.Tensor], shift: int) -> Callable[[int], torch.Tensor]:
    size = len(shards)
    return lambda rank: torch.cat([shards[(rank + shift + i) % size] for i in range(size)])


def _as(flat: torch.Tensor, actual: Any) -> torch.Tensor | None:
    """`flat` in the shape that came, where it has that many elements."""
    if not isinstance(actual, torch.Tensor) or actual.numel() != flat.numel():
        return None
    return flat.reshape(actual.shape)


def _shard(evidence: Evidence) -> Iterator[Hypothesis]:
    full, rank, ranks = _cut_of(evidence)
    if full is None:
        return
    flat = full.reshape(-1)
    size = math.ceil(flat.numel() / ranks)
    padded = _padded(flat, size * ranks)
    yield _constant("padding-missing", flat[rank * size : (rank + 1) * size])
    if ranks > 1:
        yield _constant("not-sharded", full)
        yield _constant("not-sharded", flat)
        yield _constant("not-sharded", padded)
    yield _constant(
        "floor-not-ceil", flat[rank * (flat.numel() // ranks) :][: flat.numel() // ranks]
    )
    for other in range(ranks):
        if other != rank:
            yield _constant("another-ranks-shard", padded[other * size : (other + 1) * size])
    yield _constant("interleaved", padded[rank::ranks])
    left = torch.cat([flat.new_zeros(size * ranks - flat.numel()), flat])
    yield _constant("padded-in-front", left[rank * size : (rank + 1) * size])
    if full.dim() > 1:
        turned = _padded(full.permute(*reversed(range(full.dim()))).reshape(-1), size * ranks)
        yield _constant("column-major", turned[rank * size : (rank + 1) * size])


def _rows(evidence: Evidence) -> Iterator[Hypothesis]:
    full, rank, ranks = _cut_of(evidence)
    if full is None:
        return
    yield from (
        _constant(code, rows) for code, rows in row_rules(full, rank, ranks) if rows is not None
    )


def row_rules(
    full: torch.Tensor, rank: int, ranks: int
) -> Iterator[tuple[str, torch.Tensor | None]]:
    """(code, what it gives `rank`): the wrong ways to cut rows that people really use."""
    count = len(full)
    floor, ceil = count // ranks, math.ceil(count / ranks)
    chunks = full.chunk(ranks)
    yield "chunk-rule", chunks[rank] if rank < len(chunks) else full[:0]
    yield "remainder-dropped", full[rank * floor : (rank + 1) * floor]
    end = count if rank == ranks - 1 else (rank + 1) * floor
    yield "remainder-to-last", full[rank * floor : end]
    yield "chunk-rule", full[rank * ceil : (rank + 1) * ceil]
    late = ranks - count % ranks
    start = rank * floor + max(rank - late, 0)
    yield "extra-rows-to-last-ranks", full[start : start + floor + (rank >= late)]
    yield "interleaved", full[rank::ranks]
    yield "not-sharded", full
    if full.dim() > 1:
        yield "wrong-dimension", full.tensor_split(ranks, dim=1)[rank]
        yield "wrong-dimension", full.tensor_split(ranks, dim=-1)[rank]


def _cut_of(evidence: Evidence) -> tuple[torch.Tensor | None, int, int]:
    extra = evidence.extra
    return extra.get("full"), extra.get("rank", 0), extra.get("ranks", 1)


# Reduce-scatter


def _reduce_scatter(evidence: Evidence) -> Iterator[Hypothesis]:
    own = evidence.extra.get("gradients")
    if not own:
        return
    size = evidence.world_size
    per = math.ceil(own[0].numel() / size)
    wide = torch.stack([_padded(g.double().reshape(-1), per * size) for g in own])
    total = wide.sum(0)

    def cut(whole: torch.Tensor, rank: int) -> torch.Tensor:
        return whole[rank * per : (rank + 1) * per]

    if _overflowed(evidence):
        yield Hypothesis("overflow-in-half-precision", lambda e, r: e.actual[r])
    yield Hypothesis("summed-not-averaged", lambda e, r: cut(total, r))
    if size != 2:
        yield Hypothesis("hard-coded-world-size", lambda e, r: cut(total / 2, r))
    yield Hypothesis("divided-twice", lambda e, r: cut(total / size**2, r))
    yield Hypothesis("not-reduced", lambda e, r: cut(wide[r], r))
    yield Hypothesis("divided-not-summed", lambda e, r: cut(wide[r] / size, r))
    for shift in range(1, size):
        rotated = [cut(total / size, (rank + shift) % size) for rank in range(size)]
        yield _by_rank("another-ranks-shard", rotated)
    yield _constant("not-scattered", total / size)
    yield _constant("not-scattered", (total / size)[: own[0].numel()])
    yield _constant("not-scattered", (total / size)[: own[0].numel()].reshape(own[0].shape))
    yield Hypothesis("padding-missing", lambda e, r: cut((total / size)[: own[0].numel()], r))
    yield Hypothesis("wrong-reduce-op", lambda e, r: cut(wide.amax(0), r))
    yield Hypothesis("interleaved", lambda e, r: (total / size)[r::size])


# Norm


def _norm(evidence: Evidence) -> Iterator[Hypothesis]:
    by_rank = [
        {k: v.double() for k, v in inputs.items() if _is_gradient(k, v)}
        for inputs in evidence.inputs
    ]
    names = sorted(set().union(*by_rank)) if by_rank else []
    if not names:
        return
    size = evidence.world_size
    means = [
        torch.stack([own[n] if n in own else _zeros_like(n, by_rank) for own in by_rank]).mean(0)
        for n in names
    ]
    right = math.sqrt(sum(float(m.square().sum()) for m in means))
    yield Hypothesis("norm-before-dividing", lambda e, r: right * size)
    yield Hypothesis("norm-of-local-gradients", lambda e, r: _length(by_rank[r].values()))
    if len(means) > 1:
        yield Hypothesis("norms-added-up", lambda e, r: sum(_length([m]) for m in means))
        yield Hypothesis("norm-of-last-only", lambda e, r: _length(means[-1:]))
    yield Hypothesis("norm-squared", lambda e, r: right**2)
    yield Hypothesis(
        "norm-of-absolute-values", lambda e, r: sum(float(m.abs().sum()) for m in means)
    )


def _is_gradient(key: str, value: Any) -> bool:
    return key.startswith("gradients/") and isinstance(value, torch.Tensor)


def _zeros_like(name: str, by_rank: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    return torch.zeros_like(next(own[name] for own in by_rank if name in own))


def _length(tensors: Iterable[torch.Tensor]) -> float:
    return math.sqrt(sum(float(t.square().sum()) for t in tensors))


# Shared


def _by_rank(code: str, values: Sequence[torch.Tensor]) -> Hypothesis:
    return Hypothesis(code, lambda _evidence, rank: values[rank])


def _constant(code: str, value: torch.Tensor) -> Hypothesis:
    return Hypothesis(code, lambda _evidence, _rank: value)


def _padded(flat: torch.Tensor, length: int) -> torch.Tensor:
    return torch.nn.functional.pad(flat, (0, length - flat.numel()))


def _complete(values: tuple[torch.Tensor | None, ...]) -> bool:
    tensors = [value for value in values if value is not None]
    return len(tensors) == len(values) > 0 and len({t.shape for t in tensors}) == 1


_FAMILIES: dict[str, Callable[[Evidence], Iterable[Hypothesis]]] = {
    "mean": _mean,
    "broadcast": _broadcast,
    "gather": _gather,
    "shard": _shard,
    "rows": _rows,
    "reduce_scatter": _reduce_scatter,
    "norm": _norm,
}
