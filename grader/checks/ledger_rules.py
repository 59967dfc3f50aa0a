"""What the ranks called, as evidence: diagnoses that no value can give.

Every function is pure and takes the ledgers by rank.
"""

from __future__ import annotations

from grader.results import Collective

Ledgers = tuple[tuple[Collective, ...], ...]


def explain_values(ledgers: Ledgers, wanted: Ledgers) -> str | None:
    """Why values are wrong, when the calls alone show it.

    Args:
        wanted: the reference's ledgers for the same inputs.
    """
    if any(not entry.waited for entries in ledgers for entry in entries):
        return "async-never-waited"
    if len(ledgers) < 2:
        return None
    ops, wanted_ops = _ops(ledgers), _ops(wanted)
    if "reduce" in ops and "all_reduce" in wanted_ops and "all_reduce" not in ops:
        return "reduced-to-one-rank"
    return None


def issues_nothing(ledgers: Ledgers) -> bool:
    """Whether no rank issued any collective or point-to-point call."""
    return not any(ledgers)


def explain_deadlock(ledgers: Ledgers) -> str | None:
    """Why the ranks cannot finish, when their calls show it."""
    collectives = tuple(tuple(e for e in entries if not _is_p2p(e)) for entries in ledgers)
    at = _first_difference(collectives)
    if at is None:
        return _explain_p2p(ledgers)
    here = [entries[at] for entries in collectives if at < len(entries)]
    if len(here) < len(collectives):
        return _explain_missing(collectives, at)
    if len({e.op for e in here}) > 1:
        return "broadcast-on-source-only" if _only_source(collectives) else "different-collectives"
    roots = [entries[at].root for entries in collectives]
    if len(set(roots)) > 1:
        everyone = roots == list(range(len(roots)))
        return "every-rank-is-source" if everyone else "different-roots"
    if len({e.reduce_op for e in here}) > 1:
        return "different-reduce-ops"
    if len({e.dtype for e in here}) > 1 or len({e.shapes for e in here}) > 1:
        return "different-tensors"
    return None


def _explain_missing(collectives: tuple[tuple[Collective, ...], ...], at: int) -> str | None:
    """Some ranks have made the call at place `at`, others have not and will not."""
    missing = any(at >= len(entries) for entries in collectives)
    if _only_source(collectives):
        return "broadcast-on-source-only"
    return "collective-skipped-on-one-rank" if missing else None


def _only_source(collectives: tuple[tuple[Collective, ...], ...]) -> bool:
    """Whether there are broadcasts, and each was called by its root and by no other rank."""
    callers = {
        (rank, entry.root)
        for rank, entries in enumerate(collectives)
        for entry in entries
        if entry.op == "broadcast"
    }
    # With every rank its own root, they call broadcast all right, but name themselves.
    return len(callers) == 1 and all(rank == root for rank, root in callers)


def _explain_p2p(ledgers: Ledgers) -> str | None:
    open_calls = [e for entries in ledgers for e in entries if e.ended_s is None and _is_p2p(e)]
    if len(open_calls) == len(ledgers) > 1:
        if all(e.op == "send" for e in open_calls):
            return "everyone-sends-first"
        if all(e.op == "recv" for e in open_calls):
            return "everyone-receives-first"
    return None


def _first_difference(collectives: tuple[tuple[Collective, ...], ...]) -> int | None:
    """The first place where the ranks' calls are not the same, or some have none."""
    for place in range(max(map(len, collectives), default=0)):
        here = [entries[place] if place < len(entries) else None for entries in collectives]
        if len({_signature(entry) for entry in here}) > 1:
            return place
    return None


def _signature(entry: Collective | None) -> object:
    if entry is None:
        return None
    shapes = entry.shapes if entry.op not in ("reduce_scatter", "all_to_all") else ()
    return (entry.op, entry.group, entry.root, entry.reduce_op, shapes, entry.dtype)


def _is_p2p(entry: Collective) -> bool:
    return entry.op in ("send", "recv")


def _ops(ledgers: Ledgers) -> set[str]:
    return {entry.op for entries in ledgers for entry in entries}
