"""From what a run brought back to the part of the result tree that tells of it."""

from __future__ import annotations

from grader.ranks.ledger import Entry
from grader.ranks.outcome import Outcome, RankOutcome
from grader.results import Collective, RankResult, RunResult

_MAX_LEDGER = 200
"""Collectives kept per rank in the result tree; a lesson's runs issue a few dozen."""


def run_result(outcome: Outcome) -> RunResult:
    """The run as the result tree tells it."""
    return RunResult(
        world_size=outcome.world_size,
        ending=outcome.ending.value,
        duration_s=round(outcome.duration_s, 4),
        ranks=tuple(_rank_result(rank, outcome.started) for rank in outcome.ranks),
        deadlock="\n".join(outcome.proof_lines),
        deadlock_after_s=_rounded(outcome.deadlock_after_s),
    )


def ledger(rank: RankOutcome, started: float) -> tuple[Collective, ...]:
    """The rank's ledger as data, times in seconds since `started`."""
    return tuple(_collective(entry, started) for entry in rank.entries)


def _rank_result(rank: RankOutcome, started: float) -> RankResult:
    return RankResult(
        rank=rank.rank,
        ending="killed" if rank.signal else rank.ledger.state.value,
        exit_code=rank.exit_code,
        signal=rank.signal,
        cpu_s=round(rank.cpu_s, 4),
        peak_memory_bytes=rank.peak_memory_bytes,
        stdout=rank.stdout.decode(errors="replace"),
        stderr=rank.stderr.decode(errors="replace"),
        output_dropped_bytes=rank.dropped_bytes,
        ledger=ledger(rank, started)[:_MAX_LEDGER],
    )


def _collective(entry: Entry, started: float) -> Collective:
    return Collective(
        op=entry.op,
        group=entry.group,
        ordinal=entry.ordinal,
        started_s=round(entry.started - started, 6),
        ended_s=None if entry.ended is None else round(entry.ended - started, 6),
        waited=entry.arrives,
        is_async=entry.is_async,
        root=entry.root,
        peer=entry.peer,
        reduce_op=entry.reduce_op,
        shapes=entry.shapes,
        dtype=entry.dtype,
        bytes=entry.bytes,
        file=entry.file,
        line=entry.line,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
