"""The ledgers of a run as the grader reads them: what each rank issued and where it is.

Every word comes from a rank, so every field is checked before it is used and nothing
but feedback and the early end of a run depends on it.
"""

from __future__ import annotations

import enum
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MAX_ENTRIES = 10_000


class State(enum.Enum):
    """Where a rank is."""

    STARTING = "starting"
    """Before the barrier at which all ranks of the run meet."""
    MEETING = "meeting"
    RUNNING = "running"
    BLOCKED = "blocked"
    """In a collective, or in the wait for one."""
    RETURNED = "returned"
    RAISED = "raised"
    EXITED = "exited"
    """By `sys.exit()`, `os._exit()` or a signal."""

    @property
    def gone(self) -> bool:
        """Whether the rank will never issue another collective."""
        return self in (State.RETURNED, State.RAISED, State.EXITED)


@dataclass
class Entry:
    """One collective or point-to-point call that a rank issued. Times are monotonic seconds."""

    rank: int
    number: int
    op: str
    group: str
    members: tuple[int, ...]
    ordinal: int
    """1 for this rank's first collective in this group; of a point-to-point call, its place
    among those in the same direction with the same peer and tag."""
    is_async: bool
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    bytes: int
    uneven: bool
    file: str
    line: int | None
    reduce_op: str
    root: int | None
    peer: int | None
    tag: int
    started: float
    waited: bool = False
    ended: float | None = None
    failed: bool = False

    @property
    def is_p2p(self) -> bool:
        """Whether it is a send or a receive."""
        return self.op in ("send", "recv")

    @property
    def counted_as(self) -> tuple[Any, ...]:
        """The key under which `RankLedger.issued` counts it."""
        if self.is_p2p:
            return (self.group, self.op, self.peer, self.tag)
        return (self.group,)

    @property
    def where(self) -> str:
        """`data_parallel.py:83`, or empty when the learner's code is not on the stack."""
        return f"{self.file}:{self.line}" if self.file else ""

    @property
    def arrives(self) -> bool:
        """False: asynchronous, and nobody ever waited on its handle."""
        return not self.is_async or self.waited or self.ended is not None


@dataclass
class RankLedger:
    """All that is known of one rank while it runs."""

    rank: int
    state: State = State.STARTING
    entries: list[Entry] = field(default_factory=list)
    blocked_on: Entry | None = None
    has_threads: bool = False
    """It started threads: one of them may go on where the main one waits."""
    is_cut: bool = False
    """It issued more than is kept."""
    started: float | None = None
    """When the rank program began."""
    changed: float = 0.0
    """When the state changed last."""
    store_port: int | None = None
    """The port of the TCP store that the submission's own rendezvous asked for."""
    store_host: str = ""
    error: dict[str, Any] | None = None
    phase: str = ""
    """In which phase it raised or exited: `import`, `rendezvous`, `program`, `answer`."""
    exit_code: str = ""
    """The argument of `sys.exit`, as its `repr`."""
    issued: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    """How many calls so far: of a group's collectives under `(group,)`, of point-to-point
    calls under `(group, op, peer, tag)`."""

    def take(self, payload: bytes) -> Entry | None:
        """Add one event, as the rank wrote it; gives the entry if that began one.

        Raises:
            ValueError, TypeError, KeyError, RecursionError: the event is malformed.
        """
        event = json.loads(payload)
        kind, moment = str(event["e"]), float(event["t"])
        match kind:
            case "start":
                return self._start(event, moment)
            case "wait":
                self._wait(event, moment)
            case "end":
                self._end(event, moment)
            case "meeting" | "started":
                if kind == "started":
                    self.started = moment
                self._move(State.MEETING if kind == "meeting" else State.RUNNING, moment)
            case "returned":
                self._move(State.RETURNED, moment)
            case "raised":
                self.error, self.phase = dict(event["error"]), str(event["phase"])
                self._move(State.RAISED, moment)
            case "exit":
                self.exit_code, self.phase = str(event["code"]), str(event["phase"])
                self._move(State.EXITED, moment)
            case "store":
                self.store_host = str(event["host"])[:200]
                self.store_port = event["port"] if isinstance(event["port"], int) else None
            case "threads":
                self.has_threads = True
            case "cut":
                self.is_cut = True
            case _:
                pass  # a later kit may say more
        return None

    def _move(self, state: State, moment: float) -> None:
        self.state, self.changed = state, moment
        if state is not State.BLOCKED:
            self.blocked_on = None

    def _start(self, event: dict[str, Any], moment: float) -> Entry | None:
        if len(self.entries) >= MAX_ENTRIES:
            self.is_cut = True
            return None
        entry = Entry(
            rank=self.rank,
            number=int(event["n"]),
            op=str(event["op"]),
            group=str(event["group"]),
            members=tuple(int(m) for m in event["members"]),
            ordinal=0,
            is_async=bool(event["async"]),
            shapes=tuple(tuple(int(n) for n in shape) for shape in event["shapes"]),
            dtype=str(event["dtype"]),
            bytes=int(event["bytes"]),
            uneven=bool(event["uneven"]),
            file=str(event["file"])[:200],
            line=_integer(event["line"]),
            reduce_op=str(event.get("reduce", "")),
            root=_integer(event.get("root")),
            peer=_integer(event.get("peer")),
            tag=_integer(event.get("tag")) or 0,
            started=moment,
        )
        self.issued[entry.counted_as] += 1
        entry.ordinal = self.issued[entry.counted_as]
        self.entries.append(entry)
        if not entry.is_async:
            self._move(State.BLOCKED, moment)
            self.blocked_on = entry
        return entry

    def _wait(self, event: dict[str, Any], moment: float) -> None:
        entry = self._find(event)
        if entry is None:
            return
        entry.waited = True
        if event.get("sync") and entry.is_p2p:
            entry.is_async = False
        if not event.get("limited"):
            # A wait with a time limit of its own may give up, so it proves nothing.
            self._move(State.BLOCKED, moment)
            self.blocked_on = entry

    def _end(self, event: dict[str, Any], moment: float) -> None:
        entry = self._find(event)
        if entry is None:
            return
        entry.ended, entry.failed = moment, bool(event.get("failed"))
        self._move(State.RUNNING, moment)

    def _find(self, event: dict[str, Any]) -> Entry | None:
        number = int(event["n"])
        # A rank numbers its calls in order, so the entry is where it says, unless it lies.
        if 0 <= number < len(self.entries) and self.entries[number].number == number:
            return self.entries[number]
        return None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
