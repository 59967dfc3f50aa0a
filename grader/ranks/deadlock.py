"""Proof that a run can never finish, from the ranks' ledgers alone.

Two kinds of proof:

* *mismatch*: the k-th collective of a group is not the same one on two ranks (another
  operation, root, reduce operation, shape or dtype). Whatever the backend then does
  (hang, abort, or silently mix numbers), it is not what was meant.
* *stuck*: a rank waits for ranks that are gone, or for ranks that wait for it.

Why "stuck" is sound although the ledgers arrive one after the other: a rank writes an
entry before it issues the call. Suppose a set of ranks, each blocked or gone at the end
of what is known of it, each blocked one missing a call of another rank of the set. The
first of them to get past its wait would need that call, which lies beyond a wait that
its rank has not got past either. So none ever does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grader.ranks.ledger import Entry, RankLedger, State


@dataclass(frozen=True)
class Wait:
    """A rank that waits, in what, and for whom."""

    rank: int
    entry: Entry | None
    """None: it waits at the barrier where the run's ranks meet."""
    waits_for: tuple[int, ...]


@dataclass(frozen=True)
class Mismatch:
    """The first place where two ranks do not issue the same collective."""

    entries: tuple[Entry, ...]
    """One a rank that has got that far, by rank."""
    differs_in: str
    """`operation`, `root`, `reduce operation`, `dtype` or `shape`."""


@dataclass(frozen=True)
class Proof:
    """Why the run can never finish."""

    waits: tuple[Wait, ...] = ()
    mismatch: Mismatch | None = None


class Prover:
    """Follows the ledgers of one run and proves, as soon as it can be, that it cannot finish."""

    def __init__(self, ledgers: Sequence[RankLedger]) -> None:
        self._ledgers = ledgers
        self._places: dict[tuple[int, str], list[Entry]] = {}
        """(ordinal, group) → the ranks' entries there."""
        self._mismatches: dict[tuple[int, str], str] = {}

    def see(self, entry: Entry) -> None:
        """Take note of a call that has just been issued."""
        if entry.is_p2p:
            return
        place = (entry.ordinal, entry.group)
        entries = self._places.setdefault(place, [])
        entries.append(entry)
        differs_in = _difference(entries[0], entry)
        if differs_in:
            self._mismatches.setdefault(place, differs_in)

    def prove(self) -> Proof | None:
        """A proof that the run can never finish rightly, or None so far."""
        waits = find_stuck(self._ledgers)
        if self._mismatches:
            place = min(self._mismatches)
            entries = sorted(self._places[place], key=lambda entry: entry.rank)
            return Proof(waits, Mismatch(tuple(entries), self._mismatches[place]))
        return Proof(waits) if waits else None


def _difference(a: Entry, b: Entry) -> str:
    if a.op != b.op:
        return "operation"
    if a.root != b.root:
        return "root"
    if a.reduce_op != b.reduce_op:
        return "reduce operation"
    if a.dtype != b.dtype:
        return "dtype"
    if not (a.uneven or b.uneven) and _meeting_shapes(a) != _meeting_shapes(b):
        return "shape"
    return ""


def _meeting_shapes(entry: Entry) -> tuple[tuple[int, ...], ...]:
    """The shapes as the ranks must agree on them.

    A reduce-scatter takes one tensor or a list of chunks; in both forms it is the number
    of elements that has to agree.
    """
    if entry.op == "reduce_scatter":
        return ((sum(_numel(shape) for shape in entry.shapes),),)
    return entry.shapes


def _numel(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


# Stuck


def find_stuck(ledgers: Sequence[RankLedger]) -> tuple[Wait, ...]:
    """The ranks that can never go on, with what each waits for."""
    by_rank = {ledger.rank: ledger for ledger in ledgers}
    waits = {ledger.rank: _waits_for(ledger, by_rank) for ledger in ledgers}
    may_go_on = {r for r, waiting in waits.items() if waiting is None and not by_rank[r].state.gone}
    grew = True
    while grew:
        grew = False
        for rank, waiting in waits.items():
            if waiting is None or rank in may_go_on:
                continue
            if all(other in may_go_on for other in waiting):
                may_go_on.add(rank)
                grew = True
    return tuple(
        Wait(rank, by_rank[rank].blocked_on, waiting)
        for rank, waiting in waits.items()
        if waiting is not None and rank not in may_go_on
    )


def _waits_for(ledger: RankLedger, by_rank: dict[int, RankLedger]) -> tuple[int, ...] | None:
    """The ranks whose next step this one needs; () if none, None if it does not wait."""
    if ledger.state is State.MEETING:
        return tuple(
            r for r, other in by_rank.items() if other.state is State.STARTING or _never_met(other)
        )
    entry = ledger.blocked_on
    if ledger.state is not State.BLOCKED or entry is None or ledger.has_threads or ledger.is_cut:
        return None
    others = [by_rank[m] for m in entry.members if m in by_rank and m != ledger.rank]
    if entry.is_p2p:
        return _waits_for_peer(entry, others)
    return tuple(other.rank for other in others if not _has_issued(other, entry))


def _never_met(ledger: RankLedger) -> bool:
    return ledger.state.gone and ledger.started is None


def _has_issued(other: RankLedger, entry: Entry) -> bool:
    if other.is_cut:
        return True  # what is not known may well have been issued
    return other.issued[entry.counted_as] >= entry.ordinal


def _waits_for_peer(entry: Entry, others: list[RankLedger]) -> tuple[int, ...] | None:
    """For a send its receiver, for a receive its sender, unless that has met it already."""
    if entry.peer is None:
        return None  # a receive from anyone: any rank may still send
    peer = next((other for other in others if other.rank == entry.peer), None)
    if peer is None:
        return None
    answering = "recv" if entry.op == "send" else "send"
    from_anyone = (entry.group, answering, None, entry.tag)
    if peer.is_cut or peer.issued[from_anyone]:
        return None
    answered = peer.issued[(entry.group, answering, entry.rank, entry.tag)]
    return () if answered >= entry.ordinal else (peer.rank,)


# Words


def describe(proof: Proof, ledgers: Sequence[RankLedger]) -> tuple[str, ...]:
    """One line a rank: where it is, and what it has issued."""
    waits = {wait.rank: wait for wait in proof.waits}
    return tuple(_line(ledger, waits.get(ledger.rank)) for ledger in ledgers)


def _line(ledger: RankLedger, wait: Wait | None) -> str:
    who, count = f"rank {ledger.rank}", sum(1 for e in ledger.entries if not e.is_p2p)
    if ledger.state is State.BLOCKED and ledger.blocked_on is not None:
        entry = ledger.blocked_on
        where = f" ({entry.where})" if entry.where else ""
        if entry.is_p2p:
            direction = "to" if entry.op == "send" else "from"
            target = "any rank" if entry.peer is None else f"rank {entry.peer}"
            text = f"{who} waits in {entry.op} {direction} {target}{where}"
        else:
            text = f"{who} waits in {call_text(entry)}{where}, its {nth(entry.ordinal)} collective"
        if wait and wait.waits_for:
            text += f", for {_ranks(wait.waits_for)}"
        return text
    if ledger.state is State.MEETING:
        return f"{who} is ready to start"
    ending = {
        State.RETURNED: "has returned",
        State.RAISED: "has raised an error",
        State.EXITED: "has ended",
    }.get(ledger.state, "is still running")
    return f"{who} {ending} after {count} collective{'' if count == 1 else 's'}"


def call_text(entry: Entry) -> str:
    """`all_reduce(sum) of float32 [4, 4]`: what a rank called, as a learner would say it."""
    options = [entry.reduce_op] if entry.reduce_op else []
    options += [f"src={entry.root}"] if entry.root is not None else []
    text = f"{entry.op}({', '.join(options)})" if options else entry.op
    if entry.dtype:
        shapes = ", ".join(str(list(shape)) for shape in entry.shapes[:3])
        more = ", …" if len(entry.shapes) > 3 else ""
        text += f" of {entry.dtype} {shapes}{more}"
    return text


def nth(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`, `11th`, …"""
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else suffix}"


def _ranks(ranks: tuple[int, ...]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return "ranks " + ", ".join(str(r) for r in ranks[:-1]) + f" and {ranks[-1]}"
