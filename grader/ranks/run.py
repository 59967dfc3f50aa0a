"""One run from the grader's side: start it, listen to its ranks, decide when it is over.

The grader reads every rank's report as it is written. It ends the run when all ranks
have concluded, when it is proved that they never can, or when the leader says that the
time is up; and it trusts nothing that it reads.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from grader.ranks.deadlock import Prover, describe
from grader.ranks.inside import values, wire
from grader.ranks.ledger import RankLedger, State
from grader.ranks.outcome import Ending, Outcome, RankOutcome, Request

SETTLE_S = 0.25
"""After a proof, how long the other ranks may take to get where they are going, so that
the report tells of all of them and not of who was seen first."""
START_S = 5.0
"""The same while a rank has not begun yet: a fresh interpreter takes its time."""
_MAX_EVENT_BYTES = 65_536
_READ = 1 << 18


class RunCancelled(Exception):
    """The grading is being given up; this run was ended and has no outcome."""


@dataclass
class _Listener:
    """One rank's three pipes, as far as they have been read."""

    outcome: RankOutcome
    frames: wire.FrameReader
    max_output: int
    blob: bytes | None = None
    answers: int = 0
    output: dict[str, bytearray] = field(
        default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()}
    )

    def keep_output(self, stream: str, data: bytes) -> None:
        kept = self.output[stream]
        room = self.max_output - len(kept)
        kept += data[:room]
        self.outcome.dropped_bytes += max(len(data) - room, 0)


class Run:
    """Follows one run. Use `follow`."""

    def __init__(
        self,
        request: Request,
        control: socket.socket,
        pipes: list[tuple[int, int, int]],
        cancelled: Callable[[], bool],
    ) -> None:
        self._request = request
        self._control = control
        self._cancelled = cancelled
        self._began = time.monotonic()
        self._listeners = [
            _Listener(
                RankOutcome(rank, RankLedger(rank)),
                wire.FrameReader(_MAX_EVENT_BYTES, request.max_answer_bytes),
                request.max_output_bytes,
            )
            for rank in range(request.world_size)
        ]
        self._ledgers = [listener.outcome.ledger for listener in self._listeners]
        self._prover = Prover(self._ledgers)
        self._proved_at: float | None = None
        self._timed_out = False
        self._fault = ""
        self._is_reaped = False
        self._is_over = False
        self._told_to_end = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, ("control", None))
        for listener, fds in zip(self._listeners, pipes, strict=True):
            for stream, fd in zip(("report", "stdout", "stderr"), fds, strict=True):
                os.set_blocking(fd, False)
                self._selector.register(fd, selectors.EVENT_READ, (stream, listener))

    def follow(self) -> Outcome:
        """Listen until the run is over and everything it started is gone.

        Raises:
            RunCancelled: the grading was given up meanwhile.
        """
        try:
            while not self._is_over:
                self._read(self._patience())
                if self._cancelled():
                    raise RunCancelled
                if not self._told_to_end and self._should_end():
                    self._end()
            self._read_rest()
        finally:
            self._close()
        return self._outcome()

    # Listening

    def _patience(self) -> float:
        if self._proved_at is not None and not self._told_to_end:
            return max(self._settles_at() - time.monotonic(), 0.0)
        return 0.5

    def _read(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            stream, listener = key.data
            if stream == "control":
                self._on_control()
            else:
                self._on_pipe(key.fd, stream, listener)

    def _on_control(self) -> None:
        try:
            message, _ = wire.receive_message(self._control)
        except (wire.Disconnected, ConnectionError):
            # Only now is every process of the run gone, the leader's own included.
            if not self._is_reaped:
                self._fault = self._fault or "the leader of the run ended before the run did"
            self._is_over = True
            return
        if "exited" in message:
            self._on_exit(message)
        elif "deadline" in message:
            self._timed_out = True
            for rank, stack in message["stacks"].items():
                self._listeners[int(rank)].outcome.stack = str(stack)
        elif "fault" in message:
            self._fault = str(message["fault"])
        elif "over" in message:
            self._is_reaped = True

    def _on_exit(self, message: dict[str, Any]) -> None:
        listener = self._listeners[int(message["exited"])]
        outcome = listener.outcome
        outcome.cpu_s = float(message["cpu_s"])
        outcome.peak_memory_bytes = int(message["peak_memory_bytes"])
        if self._told_to_end or self._timed_out:
            return  # it was killed because the run is over
        self._drain(listener)
        outcome.exit_code = message["code"]
        outcome.signal = str(message["signal"])
        if not outcome.ledger.state.gone:
            outcome.ledger.state = State.EXITED
            outcome.ledger.changed = time.monotonic()

    def _on_pipe(self, fd: int, stream: str, listener: _Listener) -> int:
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return 0
        if not data:
            self._selector.unregister(fd)
            os.close(fd)
        elif stream == "report":
            self._on_report(listener, data)
        else:
            listener.keep_output(stream, data)
        return len(data)

    def _on_report(self, listener: _Listener, data: bytes) -> None:
        if listener.outcome.unreadable:
            return  # nothing it says after that counts
        try:
            for kind, payload in listener.frames.feed(data):
                if kind == wire.ANSWER:
                    listener.answers += 1
                    listener.blob = payload
                else:
                    entry = listener.outcome.ledger.take(payload)
                    if entry is not None:
                        self._prover.see(entry)
        except wire.UnreadableFrame as error:
            listener.outcome.unreadable = str(error)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
            listener.outcome.unreadable = f"a step of its ledger is malformed: {error}"

    def _drain(self, listener: _Listener) -> None:
        """Read what a rank that has ended had still written."""
        keys = [key for key in self._selector.get_map().values() if key.data[1] is listener]
        for key in keys:
            while key.fd in self._selector.get_map() and self._on_pipe(
                key.fd, key.data[0], listener
            ):
                pass

    # Deciding

    def _should_end(self) -> bool:
        if self._timed_out or self._fault:
            return False  # the leader is ending it already
        if all(self._has_concluded(listener) for listener in self._listeners):
            return True
        if any(listener.outcome.unreadable for listener in self._listeners):
            return True
        if self._proved_at is None:
            if self._prover.prove() is None:
                return False
            self._proved_at = time.monotonic()
        return self._has_settled() or time.monotonic() >= self._settles_at()

    def _settles_at(self) -> float:
        assert self._proved_at is not None
        has_begun = all(ledger.started is not None or ledger.state.gone for ledger in self._ledgers)
        return self._proved_at + (SETTLE_S if has_begun else START_S)

    def _has_concluded(self, listener: _Listener) -> bool:
        state = listener.outcome.ledger.state
        if state is State.RETURNED and not listener.outcome.ended_by_itself:
            return listener.blob is not None  # its answer is on the way
        return state.gone

    def _has_settled(self) -> bool:
        return all(
            ledger.state.gone or ledger.state in (State.BLOCKED, State.MEETING)
            for ledger in self._ledgers
        )

    def _end(self) -> None:
        self._told_to_end = True
        try:
            wire.send_message(self._control, {"end": True})
        except OSError:
            pass  # it is ending by itself; what it says comes next

    def _read_rest(self) -> None:
        """What the ranks had written when they were killed."""
        for listener in self._listeners:
            self._drain(listener)

    def _close(self) -> None:
        self._control.close()
        for key in list(self._selector.get_map().values()):
            if key.data[0] != "control":
                os.close(key.fd)
        self._selector.close()

    # The outcome

    def _outcome(self) -> Outcome:
        for listener in self._listeners:
            self._take_answer(listener)
        ranks = tuple(listener.outcome for listener in self._listeners)
        started = [ledger.started for ledger in self._ledgers if ledger.started is not None]
        outcome = Outcome(
            world_size=self._request.world_size,
            ending=Ending.ANSWERED,
            ranks=ranks,
            duration_s=time.monotonic() - self._began,
            started=min(started, default=self._began),
            fault=self._fault,
        )
        proof = self._prover.prove()
        if proof is not None:
            outcome.proof = proof
            outcome.proof_lines = describe(proof, self._ledgers)
            last = max(ledger.changed for ledger in self._ledgers)
            outcome.deadlock_after_s = max(last - outcome.started, 0.0)
            if self._proved_at is not None:
                outcome.proved_after_s = max(self._proved_at - last, 0.0)
        outcome.ending = self._ending(outcome)
        return outcome

    def _take_answer(self, listener: _Listener) -> None:
        outcome = listener.outcome
        outcome.stdout = bytes(listener.output["stdout"])
        outcome.stderr = bytes(listener.output["stderr"])
        if outcome.unreadable or listener.blob is None:
            return
        if listener.answers > 1:
            outcome.unreadable = f"it answered {listener.answers} times"
            return
        try:
            outcome.values = values.decode(listener.blob)
        except values.UnreadableValues as error:
            outcome.unreadable = str(error)

    def _ending(self, outcome: Outcome) -> Ending:
        if self._fault or _harness_failed(outcome):
            outcome.fault = outcome.fault or "the harness's own process group could not be made"
            return Ending.FAULT
        if outcome.proof is not None and outcome.proof.mismatch is not None:
            return Ending.DEADLOCKED
        culprit = outcome.culprit
        if culprit is not None:
            raised = culprit.ledger.state is State.RAISED or culprit.signal
            return Ending.CRASHED if raised else Ending.NO_ANSWER
        if outcome.proof is not None:
            return Ending.DEADLOCKED
        if any(rank.unreadable for rank in outcome.ranks):
            return Ending.UNREADABLE
        if self._timed_out:
            return Ending.TIMED_OUT
        if any(rank.values is None for rank in outcome.ranks):
            return Ending.NO_ANSWER
        return Ending.ANSWERED


def _harness_failed(outcome: Outcome) -> bool:
    return any(
        rank.ledger.state is State.RAISED and rank.ledger.phase == "rendezvous"
        for rank in outcome.ranks
    )
