"""A run as it is asked for, and what it brought back."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.ranks.deadlock import Proof
from grader.ranks.ledger import Entry, RankLedger, State


@dataclass(frozen=True)
class Request:
    """One rank program, one submission, one world size, one set of inputs."""

    submission: Path
    """A folder with the submission's files that no rank writes to."""
    module: str
    """The module to import: `data_parallel`."""
    program: str
    """`module.function` of the rank programs; empty: only import and describe the module."""
    programs: Mapping[str, str]
    """The rank programs' package: file name → source."""
    world_size: int
    inputs: tuple[bytes, ...]
    """Per rank, a blob of `inside.values`."""
    group: str = "ready"
    """`ready`, `learner` or `none`: who makes the default process group."""
    seconds: float = 10.0
    memory_bytes: int = 2_000_000_000
    """Per rank, above what a fresh rank holds."""
    delays_s: tuple[float, ...] = ()
    max_answer_bytes: int = 64_000_000
    max_output_bytes: int = 65_536
    """Per rank, of stdout and stderr each; the rest is read, counted and dropped."""


class Ending(enum.Enum):
    """How a run ended."""

    ANSWERED = "answered"
    """Every rank brought back an answer."""
    DEADLOCKED = "deadlocked"
    """It was proved that it could never finish rightly."""
    TIMED_OUT = "timed out"
    CRASHED = "crashed"
    """A rank raised, or was ended by a signal."""
    NO_ANSWER = "no answer"
    """A rank ended by itself without one."""
    UNREADABLE = "unreadable answer"
    FAULT = "fault of the harness"


@dataclass
class RankOutcome:
    """What one rank of a run brought back."""

    rank: int
    ledger: RankLedger
    values: dict[str, Any] | None = None
    """What its program returned; tensors are plain and own their memory."""
    unreadable: str = ""
    exit_code: int | None = None
    """Only of a rank that ended before the run did."""
    signal: str = ""
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    dropped_bytes: int = 0
    stack: str = ""
    """Its Python stack when the time was up, innermost frame first."""

    @property
    def ended_by_itself(self) -> bool:
        """Whether the process was gone before the run was over."""
        return self.exit_code is not None or bool(self.signal)

    @property
    def entries(self) -> list[Entry]:
        """Its ledger's entries, in the order it issued them."""
        return self.ledger.entries


@dataclass
class Outcome:
    """What a run brought back."""

    world_size: int
    ending: Ending
    ranks: tuple[RankOutcome, ...]
    duration_s: float
    started: float = 0.0
    """Monotonic time at which the rank programs began; ledger times count from there."""
    proof: Proof | None = None
    proof_lines: tuple[str, ...] = ()
    proved_after_s: float | None = None
    """Seconds from the last step any rank took to the proof."""
    deadlock_after_s: float | None = None
    """Seconds from the start of the rank programs to the last step any rank took."""
    fault: str = ""
    retries: int = 0
    """Rendezvous of the harness that failed and were made again."""
    master_port: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def culprit(self) -> RankOutcome | None:
        """The rank whose own end explains the run's, when one does.

        A rank that loses its peer raises an error too ("Connection closed by peer"), so
        ranks that raised because of another come last. Which of several was first is a
        matter of luck, so it does not count: the same submission gets the same report.
        """
        ended = [rank for rank in self.ranks if _ended_badly(rank)]
        if not ended:
            return None
        return min(ended, key=lambda rank: (_lost_its_peer(rank), rank.rank))


def _ended_badly(rank: RankOutcome) -> bool:
    return rank.values is None and (
        rank.ended_by_itself or rank.ledger.state in (State.RAISED, State.EXITED)
    )


_PEER_LOST = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Timed out waiting",
    "Application timeout caused pair closure",
)


def _lost_its_peer(rank: RankOutcome) -> bool:
    message = str((rank.ledger.error or {}).get("message", ""))
    return any(text in message for text in _PEER_LOST)
