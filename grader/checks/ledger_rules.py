"""What the ranks called, as evidence: diagnoses that no value can give.

Every function is pure and takes ledgers by rank: those of the submission, and those of
the reference for the same inputs (`wanted`). Ranks meet in the collectives of a group by
the order of their calls alone, so a group's calls are compared place by place.
"""

from __future__ import annotations

import math
from collections import Counter

from grader.results import Collective

Ledgers = tuple[tuple[Collective, ...], ...]
"""By rank, its calls in order."""

_WORLD = "0"
"""What torch calls the default group, of which every rank is a member."""
_P2P = ("send", "recv")
_SIMPLE = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier")
"""Operations of which ranks must pass tensors of one shape; other ones may differ rightly."""


def explain_values(ledgers: Ledgers, wanted: Ledgers) -> str | None:
    """Why values are wrong, when the calls alone show it; stronger than any hypothesis."""
    if any(not entry.waited for entries in ledgers for entry in entries):
        return "async-never-waited"
    if len(ledgers) < 2:
        return None
    if _move_nothing(ledgers) and not _move_nothing(wanted):
        return "no-communication"
    code = _first_mismatch(ledgers)
    if code:
        return code
    ops, wanted_ops = _ops(ledgers), _ops(wanted)
    if ops == {"reduce"} and "all_reduce" in wanted_ops:
        return "reduced-to-one-rank"
    return None


def explain_route(ledgers: Ledgers, wanted: Ledgers) -> str | None:
    """Why a forbidden detour was taken, for checks of the traffic itself.

    It says nothing of wrong values: a detour may well give the right ones.
    """
    ops, wanted_ops = _ops(ledgers), _ops(wanted)
    is_due = "reduce_scatter" in wanted_ops and not ops & {"reduce_scatter", "all_to_all"}
    if is_due and "all_reduce" in ops and not ops & set(_P2P):
        return "all-reduce-then-slice"
    return None


def explain_amount(ledgers: Ledgers, wanted: Ledgers) -> str | None:
    """Whether less went through the collectives than there was to send.

    A weak witness, for when neither calls nor values say more.
    """
    if len(ledgers) < 2 or _ops(ledgers) != _ops(wanted) or len(ledgers) != len(wanted):
        return None
    if all(elements(own) < elements(due) for own, due in zip(ledgers, wanted, strict=True)):
        return "tensors-left-out"
    return None


def explain_deadlock(ledgers: Ledgers) -> str | None:
    """Why the ranks cannot finish, when their calls show it."""
    return _first_mismatch(ledgers) or _explain_p2p(ledgers)


def issues_nothing(ledgers: Ledgers) -> bool:
    """Whether no rank issued any collective or point-to-point call."""
    return not any(ledgers)


def elements(entries: tuple[Collective, ...]) -> int:
    """How many elements a rank put into its calls."""
    return sum(math.prod(shape) for entry in entries for shape in entry.shapes)


# Collectives of one group


def _first_mismatch(ledgers: Ledgers) -> str | None:
    """What differs at the first place where the ranks' calls in a group are not the same."""
    groups = dict.fromkeys(e.group for entries in ledgers for e in entries if e.op not in _P2P)
    for group in groups:
        calls = tuple(_calls_in(group, entries) for entries in ledgers)
        if group != _WORLD:
            # Only its members call in a group, and ledgers do not say who they are.
            calls = tuple(entries for entries in calls if entries)
        place = _first_difference(calls)
        if place is not None:
            return _explain_place(calls, place)
    return None


def _calls_in(group: str, entries: tuple[Collective, ...]) -> tuple[Collective, ...]:
    return tuple(e for e in entries if e.group == group and e.op not in _P2P)


def _first_difference(calls: Ledgers) -> int | None:
    for place in range(max(map(len, calls), default=0)):
        here = [entries[place] if place < len(entries) else None for entries in calls]
        if len({_signature(entry) for entry in here}) > 1:
            return place
    return None


def _signature(entry: Collective | None) -> object:
    """What must be the same on all ranks that meet in a call."""
    if entry is None:
        return None
    return (entry.op, entry.root, entry.reduce_op, entry.dtype, _meeting_shapes(entry))


def _meeting_shapes(entry: Collective) -> object:
    if entry.op == "reduce_scatter":  # one tensor, or a list of its chunks
        return elements((entry,))
    return entry.shapes if entry.op in _SIMPLE else None


def _explain_place(calls: Ledgers, place: int) -> str:
    here = [entries[place] for entries in calls if place < len(entries)]
    if _only_source_broadcasts(calls):
        return "broadcast-on-source-only"
    if len(here) < len(calls):
        return "collective-skipped-on-one-rank"
    if _is_another_order(calls):
        return "different-order"
    if len({entry.op for entry in here}) > 1:
        return "different-collectives"
    roots = [entry.root for entry in here]
    if len(set(roots)) > 1:
        return "every-rank-is-source" if roots == list(range(len(roots))) else "different-roots"
    if len({entry.reduce_op for entry in here}) > 1:
        return "different-reduce-ops"
    # A rank that left a call out, or that goes another way round? Its next calls would tell,
    # but it will never make them.
    return "different-tensors"


def _only_source_broadcasts(calls: Ledgers) -> bool:
    """Whether there are broadcasts, and each was called by its root and by no other rank."""
    callers = {
        (r, e.root) for r, entries in enumerate(calls) for e in entries if e.op == "broadcast"
    }
    # With every rank its own root, they call broadcast all right, but name themselves.
    return len(callers) == 1 and all(rank == root for rank, root in callers)


def _is_another_order(calls: Ledgers) -> bool:
    """Whether all ranks make the same calls, each in an order of its own."""
    counts = [Counter(map(_signature, entries)) for entries in calls]
    return all(count == counts[0] for count in counts)


# Point to point


def _explain_p2p(ledgers: Ledgers) -> str | None:
    """What the ranks that wait in a send or a receive have in common, if all ranks do wait."""
    waiting = [[e for e in entries if e.ended_s is None and e.op in _P2P] for entries in ledgers]
    if len(ledgers) < 2 or not all(waiting):
        return None
    ops = {entry.op for entries in waiting for entry in entries}
    if ops == {"send"}:
        return "everyone-sends-first"
    return "everyone-receives-first" if ops == {"recv"} else None


def _ops(ledgers: Ledgers) -> set[str]:
    """The operations that move data."""
    return {entry.op for entries in ledgers for entry in entries} - {"barrier"}


def _move_nothing(ledgers: Ledgers) -> bool:
    return not _ops(ledgers)
