"""Cuts without communication: rows of data for a rank, and shards of a parameter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from grader.checks.evidence import UNKNOWN, Evidence, Hypothesis
from grader.checks.families.common import as_seen, only_padding_differs
from grader.checks.families.cut_rules import (
    ROW_RULES,
    SHARD_RULES,
    Cut,
    Rule,
    rows_of,
    shard_of,
    shard_without_padding,
    shifted_by,
)


def spread(evidence: Evidence) -> Evidence:
    """Evidence of several parts of one tensor as if every part were a rank's answer.

    Where `extra["parts"]` holds the parts for all ranks, in order (tensors, or nested
    lists), they are judged together: one part alone often fits several stories.
    """
    parts, full = evidence.extra.get("parts"), evidence.extra.get("full")
    if evidence.kind not in ("shard", "rows") or not parts or not isinstance(full, torch.Tensor):
        return evidence
    cuts = [Cut(full, rank, len(parts)) for rank in range(len(parts))]
    right = shard_of if evidence.kind == "shard" else rows_of
    return replace(
        evidence,
        world_size=len(parts),
        expected=tuple(right(cut) for cut in cuts),
        actual=tuple(_as_tensor(part, full) for part in parts),
        locals=(),
        extra={"full": full},
    )


def shard_hypotheses(evidence: Evidence) -> Iterator[Hypothesis]:
    """Reads `extra`: `full`, and `rank` and `ranks` where they are not the answer's own."""
    cuts = _cuts(evidence)
    counts = [len(shard_without_padding(cut)) if cut else 0 for cut in cuts]
    if all(cuts) and only_padding_differs(evidence, counts):
        yield as_seen("padding-not-zeros", evidence)
    for code, rule in SHARD_RULES:
        yield _hypothesis(code, rule, cuts)
    for shift in range(1, max((cut.ranks for cut in cuts if cut), default=1)):
        yield _hypothesis("another-ranks-shard", shifted_by(shift), cuts)


def row_hypotheses(evidence: Evidence) -> Iterator[Hypothesis]:
    """Reads what `shard_hypotheses` reads."""
    cuts = _cuts(evidence)
    for code, rule in ROW_RULES:
        yield _hypothesis(code, rule, cuts)


def row_rules(
    full: torch.Tensor, rank: int, ranks: int
) -> Iterator[tuple[str, torch.Tensor | None]]:
    """(code, what it gives `rank`): the wrong ways to cut rows that people really use."""
    for code, rule in ROW_RULES:
        yield code, rule(Cut(full, rank, ranks))


def _hypothesis(code: str, rule: Rule, cuts: list[Cut | None]) -> Hypothesis:
    predicted = [None if cut is None else rule(cut) for cut in cuts]
    return Hypothesis(code, [UNKNOWN if value is None else value for value in predicted])


def _cuts(evidence: Evidence) -> list[Cut | None]:
    """By rank, what its answer was cut from; None where that is not known."""
    extra = evidence.extra
    cuts: list[Cut | None] = []
    for rank in range(evidence.world_size):
        own = evidence.inputs[rank] if rank < len(evidence.inputs) else {}
        full = extra.get("full", own.get(evidence.name.partition("/")[2]))
        if not isinstance(full, torch.Tensor) or (evidence.kind == "rows" and not full.dim()):
            cuts.append(None)
            continue
        ranks = extra.get("ranks", evidence.world_size)
        cuts.append(Cut(full, extra.get("rank", rank), ranks))
    return cuts


def _as_tensor(part: Any, full: torch.Tensor) -> Any:
    if not isinstance(part, list):
        return part
    try:
        return torch.tensor(part, dtype=full.dtype) if part else full[:0]
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return part
