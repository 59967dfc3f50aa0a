"""One submission being graded: its runs, made ahead and side by side, and the reference's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.checks import contract, endings
from grader.checks.declaration import Declaration
from grader.checks.draw import Draw
from grader.checks.reference import Reference, ReferenceFailed, ReferenceStore
from grader.course import Lesson
from grader.ranks.engine import Engine, EngineError
from grader.ranks.inside import values
from grader.ranks.outcome import Ending, Outcome, Request
from grader.results import Cause
from grader.submission import Submission

_AHEAD = 4
"""Runs begun before they are asked for. More would be wasted where a check is skipped."""


@dataclass(frozen=True)
class Options:
    """How to grade."""

    seed: int
    seconds: float
    """Wall time per run."""
    world_sizes: tuple[int, ...] = ()
    """Only these; empty: those that each check names."""
    width: int = 0
    """Runs at a time; 0: one a core."""


@dataclass(frozen=True)
class Answers:
    """Both sides of one run."""

    inputs: tuple[dict[str, Any], ...]
    outcome: Outcome
    request: Request
    reference: Reference


@dataclass(frozen=True)
class _Step:
    """One run of the plan."""

    declaration: Declaration
    world_size: int


class Grading:
    """Makes the runs that checks ask for. Use it as a context manager."""

    def __init__(
        self,
        lesson: Lesson,
        submission: Submission,
        engine: Engine,
        references: ReferenceStore,
        options: Options,
    ) -> None:
        self.lesson = lesson
        self.submission = submission
        self.options = options
        self._engine = engine
        self._references = references
        self._programs = rank_programs(lesson.checks_folder)
        self._pool = ThreadPoolExecutor(options.width or os.cpu_count() or 1, "run")
        self._plan: list[_Step] = []
        self._place: dict[_Step, int] = {}
        self._begun: dict[_Step, tuple[Future[Outcome], Future[Reference]]] = {}
        self._dropped: set[str] = set()
        self.retries = 0
        self._described: Future[tuple[Outcome, Reference]] = self._pool.submit(self._describe)

    def __enter__(self) -> Grading:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what was begun ahead and is not needed any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    # The plan

    def plan(self, declarations: Iterable[Declaration]) -> None:
        """Say which checks will be asked for, in order, so that their runs can be made ahead."""
        self._plan = [_Step(d, size) for d in declarations for size in self.sizes(d)]
        self._place = {step: index for index, step in enumerate(self._plan)}

    def sizes(self, declaration: Declaration) -> tuple[int, ...]:
        """The world sizes at which the check is asked for, rising."""
        only = self.options.world_sizes or self.lesson.world_sizes
        allowed = set(only) & set(self.lesson.world_sizes)
        return tuple(size for size in declaration.world_sizes if size in allowed)

    def drop(self, declaration: Declaration) -> None:
        """Say that no (more) runs of this check are needed."""
        self._dropped.add(declaration.id)
        for step, (run, reference) in list(self._begun.items()):
            if step.declaration.id == declaration.id:
                run.cancel()
                reference.cancel()
                del self._begun[step]

    # Before the checks

    def broken(self) -> endings.Ruling | None:
        """Why the submission cannot be graded at all (it cannot be imported), or None."""
        outcome, _ = self._described.result()
        if outcome.ending is Ending.ANSWERED:
            return None
        return endings.rule(outcome, self._describing(self.submission.folder))

    def breach(self, declaration: Declaration) -> Cause | None:
        """Why the check's functions cannot be called as promised, or None."""
        outcome, reference = self._described.result()
        offered = (outcome.ranks[0].values or {}).get("offered")
        if not isinstance(offered, dict):
            return None  # it forged its own description; the checks will tell
        promised = reference.values[0]["offered"]
        for function in declaration.functions:
            cause = contract.breach(function, offered, promised, self.lesson.files[0])
            if cause is not None:
                return cause
        return None

    def _describe(self) -> tuple[Outcome, Reference]:
        outcome = self._run(self._describing(self.submission.folder))
        reference = self._references.get(
            self._describing(self.lesson.solution_folder), self._engine.run
        )
        return outcome, reference

    def _describing(self, folder: Path) -> Request:
        return self._request(folder, "", 1, (values.encode({}),), "none", ())

    # Runs

    def answers(self, declaration: Declaration, world_size: int) -> Answers:
        """Both sides of one run of the check; waits for them.

        Raises:
            EngineError: a run could not be made at all.
            ReferenceFailed: the solution did not answer.
        """
        step = _Step(declaration, world_size)
        self._begin_ahead(step)
        run, reference = self._begun.pop(step)
        outcome = run.result()
        if outcome.ending is Ending.FAULT:
            raise EngineError(outcome.fault)
        return Answers(
            inputs=tuple(values.decode(blob) for blob in self._inputs(step)),
            outcome=outcome,
            request=self._request_of(step, self.submission.folder, declaration.program),
            reference=reference.result(),
        )

    def _begin_ahead(self, step: _Step) -> None:
        self._begin(step)
        place = self._place.get(step)
        if place is None:
            return
        following = [s for s in self._plan[place + 1 :] if s.declaration.id not in self._dropped]
        for later in following[:_AHEAD]:
            self._begin(later)

    def _begin(self, step: _Step) -> None:
        if step in self._begun:
            return
        declaration = step.declaration
        own = self._request_of(step, self.submission.folder, declaration.program)
        reference = self._request_of(
            step, self.lesson.solution_folder, declaration.reference_program
        )
        self._begun[step] = (
            self._pool.submit(self._run, own),
            self._pool.submit(self._references.get, reference, self._engine.run),
        )

    def _run(self, request: Request) -> Outcome:
        outcome = self._engine.run(request)
        self.retries += outcome.retries
        return outcome

    def _request_of(self, step: _Step, folder: Path, program: str) -> Request:
        declaration = step.declaration
        return self._request(
            folder,
            program,
            step.world_size,
            self._inputs(step),
            declaration.group,
            declaration.delays_s,
        )

    def _request(
        self,
        folder: Path,
        program: str,
        world_size: int,
        inputs: tuple[bytes, ...],
        group: str,
        delays_s: Sequence[float],
    ) -> Request:
        return Request(
            submission=folder,
            module=Path(self.lesson.files[0]).stem,
            program=program,
            programs=self._programs,
            world_size=world_size,
            inputs=inputs,
            group=group,
            seconds=self.options.seconds,
            memory_bytes=self.lesson.limits.memory_mb * 1_000_000,
            delays_s=tuple(delays_s[:world_size]),
        )

    def _inputs(self, step: _Step) -> tuple[bytes, ...]:
        return tuple(
            values.encode(
                step.declaration.inputs(
                    Draw(self.options.seed, step.declaration.id, step.world_size, rank)
                )
            )
            for rank in range(step.world_size)
        )


def rank_programs(checks_folder: Path) -> dict[str, str]:
    """The lesson's rank programs: file name → source.

    Raises:
        ReferenceFailed: the lesson has none.
    """
    folder = checks_folder / "rank_programs"
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}
    if not sources:
        raise ReferenceFailed(f"{folder} has no rank programs")
    return sources
