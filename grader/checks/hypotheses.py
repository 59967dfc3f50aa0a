"""What misunderstanding would bring exactly these wrong values? Predictions, tried in turn.

A hypothesis wins only if it predicts what every wrong rank does hold, if that is hardly
an accident, and if no other misunderstanding predicts the same. Where the evidence cannot
tell (a constant tensor, two ranks where half the sum is the mean), nothing is said: a
wrong diagnosis is worse than none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from grader.checks.evidence import UNKNOWN, Evidence, Hypothesis, bits
from grader.checks.families import broadcasts, cuts, gathers, means, memory, norms, scatters
from grader.checks.families.common import wrong_but_plain
from grader.checks.families.cuts import row_rules

__all__ = ["Evidence", "Hypothesis", "explain", "row_rules"]

Family = Callable[[Evidence], Iterable[Hypothesis]]

_FAMILIES: dict[str, Family] = {
    "mean": means.hypotheses,
    "broadcast": broadcasts.hypotheses,
    "gather": gathers.hypotheses,
    "shard": cuts.shard_hypotheses,
    "rows": cuts.row_hypotheses,
    "reduce_scatter": scatters.hypotheses,
    "norm": norms.hypotheses,
}


def explain(evidence: Evidence) -> str | None:
    """The code of the one misunderstanding that explains the evidence, or None.

    Raises:
        LookupError: there is no family of that kind.
    """
    if not evidence.kind:
        return None
    if evidence.kind == "memory":
        return memory.explain(evidence)
    if evidence.kind not in _FAMILIES:
        known = ", ".join(sorted([*_FAMILIES, "memory"]))
        raise LookupError(f"no hypotheses of the kind {evidence.kind!r}; there are: {known}")
    evidence = cuts.spread(evidence)
    wrong = evidence.wrong_ranks()
    if not wrong:
        return None
    family = chain(wrong_but_plain(evidence), _FAMILIES[evidence.kind](evidence))
    return _only_one([h for h in family if _explains(h, evidence, wrong)], evidence)


def _explains(hypothesis: Hypothesis, evidence: Evidence, wrong: list[int]) -> bool:
    if not all(_fits(hypothesis, evidence, rank) for rank in wrong):
        return False
    if hypothesis.everywhere and not _holds_on_all(hypothesis, evidence):
        return False
    return hypothesis.is_fact or bits(evidence, hypothesis, wrong) >= hypothesis.enough


def _only_one(fitting: list[Hypothesis], evidence: Evidence) -> str | None:
    """The code that the hypotheses agree on; facts first, then what explains all ranks.

    A rank that is right speaks against a hypothesis that would have it wrong, as long as
    another one explains that rank too.
    """
    facts = [h for h in fitting if h.is_fact]
    complete = [h for h in fitting if _holds_on_all(h, evidence)]
    codes = {h.code for h in facts or complete or fitting}
    return codes.pop() if len(codes) == 1 else None


def _holds_on_all(hypothesis: Hypothesis, evidence: Evidence) -> bool:
    return all(_fits(hypothesis, evidence, rank) for rank in range(evidence.world_size))


def _fits(hypothesis: Hypothesis, evidence: Evidence, rank: int) -> bool:
    predicted = hypothesis.predictions[rank]
    return predicted is not UNKNOWN and evidence.fits(rank, predicted)
