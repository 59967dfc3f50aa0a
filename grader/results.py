"""The result of a grading: one frozen tree that every report is a pure function of.

Nothing in here knows how a run was made or how a report looks. The tree is plain
data (`msgspec` structs), so it goes to JSON and back without loss, and its JSON Schema
is published in `docs/integrator/results.schema.json`.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

SCHEMA_VERSION = 1
"""Raised whenever a field changes its meaning or goes away; new fields do not raise it."""


class Verdict(enum.Enum):
    """What a check says of a submission. Only `PASSED` earns points."""

    PASSED = "passed"
    FAILED = "failed"
    DEADLOCKED = "deadlocked"
    TIMED_OUT = "timed out"
    CRASHED = "crashed"
    NO_ANSWER = "no answer"
    UNREADABLE = "unreadable answer"
    SKIPPED = "skipped"
    NOT_CHECKED = "not checked"


class _Node(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=False):
    """A node of the tree: immutable, compared by value, silent about defaults in JSON."""


class LearnerError(_Node, frozen=True):
    """An exception that the submission raised, in the learner's own frames only."""

    type: str
    message: str
    frames: tuple[str, ...] = ()
    """One line a frame, innermost last: `data_parallel.py:83 in all_reduce_grads_`."""
    source: str = ""
    """The offending source line, with a caret line below it where Python gives one."""


class Cause(_Node, frozen=True):
    """Why a check did not pass, as data. Fields that do not apply stay empty."""

    summary: str
    """One sentence, without a final next step: what was seen."""
    world_size: int | None = None
    """The smallest world size that fails."""
    right_on: tuple[int, ...] = ()
    """World sizes of the same check that were right."""
    rank: int | None = None
    tensor: str = ""
    index: tuple[int, ...] | None = None
    """Index of the first differing element; `()` for a 0-d tensor."""
    expected: str = ""
    actual: str = ""
    differing: int | None = None
    """How many elements differ, out of `total`."""
    total: int | None = None
    file: str = ""
    line: int | None = None
    source: str = ""
    """The learner's own source line at `file`:`line`."""
    error: LearnerError | None = None
    details: tuple[str, ...] = ()
    """More lines for who wants to know: one a rank, one a collective, and so on."""


class Diagnosis(_Node, frozen=True):
    """The misunderstanding that explains a cause."""

    code: str
    title: str
    explanation: str
    next_step: str


class Collective(_Node, frozen=True):
    """One entry of a rank's ledger: a collective or a point-to-point call."""

    op: str
    """The field's name: `all_reduce`, `broadcast`, `send`, …"""
    group: str
    ordinal: int
    """1 for the rank's first call in this group, and so on."""
    started_s: float
    """Seconds since the ranks were released."""
    ended_s: float | None = None
    """None: it never ended."""
    waited: bool = True
    """False: an asynchronous call whose handle nobody waited on."""
    is_async: bool = False
    root: int | None = None
    peer: int | None = None
    reduce_op: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    bytes: int = 0
    file: str = ""
    line: int | None = None


class RankResult(_Node, frozen=True):
    """What one rank of one run did."""

    rank: int
    ending: str
    """`returned`, `raised`, `exited`, `killed`, `blocked` or `running`, at the end of the run."""
    exit_code: int | None = None
    signal: str = ""
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    stdout: str = ""
    stderr: str = ""
    output_dropped_bytes: int = 0
    ledger: tuple[Collective, ...] = ()


class RunResult(_Node, frozen=True):
    """One rank program, one submission, one world size, fresh ranks."""

    world_size: int
    ending: str
    """`answered`, `deadlocked`, `timed out`, `crashed`, `no answer` or `unreadable answer`."""
    duration_s: float
    ranks: tuple[RankResult, ...] = ()
    deadlock: str = ""
    """The proof, one line a rank, when there was one."""
    deadlock_after_s: float | None = None


class CheckResult(_Node, frozen=True):
    """One check: its promise, what became of it and why."""

    id: str
    """Unique in the lesson: the test function's name without `test_`."""
    promise: str
    """The test's docstring, on one line."""
    verdict: Verdict
    points: float
    max_points: float
    cause: Cause | None = None
    diagnosis: Diagnosis | None = None
    reason: str = ""
    """Why it was skipped or not checked."""
    runs: tuple[RunResult, ...] = ()
    duration_s: float = 0.0


class ExerciseResult(_Node, frozen=True):
    """One exercise of the lesson, with its checks in declaration order."""

    name: str
    points: float
    max_points: float
    checks: tuple[CheckResult, ...]
    todo: str = ""
    """What to do first, from course.toml: shown while nothing of the exercise works."""


class SubmissionInfo(_Node, frozen=True):
    """What was graded."""

    name: str
    files: dict[str, str]
    """File name → SHA-256 of its bytes."""
    source: str = ""
    """The path as the person typed it."""


class Environment(_Node, frozen=True):
    """What it was graded with."""

    kit: str
    python: str
    torch: str
    platform: str
    start_method: str
    """`fork` (a warm zygote) or `spawn` (fresh interpreters)."""
    isolation: str = ""


class Results(_Node, frozen=True):
    """The root of the tree: one lesson, one submission, one seed."""

    lesson: str
    title: str
    submission: SubmissionInfo
    seed: int
    score: float
    max_score: float
    exercises: tuple[ExerciseResult, ...]
    environment: Environment
    started_at: str
    """ISO 8601, UTC."""
    duration_s: float
    interrupted: bool = False
    only: tuple[str, ...] = ()
    """The exercises it was limited to, when it was."""
    world_sizes: tuple[int, ...] = ()
    """The world sizes it was limited to, when it was."""
    notes: tuple[str, ...] = ()
    """Sentences about the grading as a whole: what intake left out, what was retried."""
    rendezvous_retries: int = 0
    schema_version: int = SCHEMA_VERSION

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        """Every check of every exercise, in declaration order."""
        return tuple(check for exercise in self.exercises for check in exercise.checks)


def to_json(results: Results) -> bytes:
    """`results` as indented UTF-8 JSON, with a final newline."""
    return msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n"


def from_json(data: bytes) -> Results:
    """The tree that `to_json` wrote.

    Raises:
        msgspec.ValidationError: `data` is JSON but not a result.
        msgspec.DecodeError: `data` is not JSON.
    """
    return msgspec.json.decode(data, type=Results)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of what `to_json` writes."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Ranklings results",
    }
    # There and back, so that what comes is what a JSON file would hold.
    schema: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(Results)))
    return head | schema


if __name__ == "__main__":
    # `make schema` writes what this prints to docs/integrator/results.schema.json.
    print(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode())
