"""Check results, wherever they were made, put together into one result tree."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from typing import Any

import msgspec

import grader
from grader.course import Lesson
from grader.results import (
    CheckResult,
    Environment,
    ExerciseResult,
    Results,
    SubmissionInfo,
    Verdict,
)
from grader.submission import Submission


class Planned(msgspec.Struct, frozen=True):
    """A check that is to be judged, before it is."""

    exercise: str
    result: CheckResult
    """With the verdict `not checked`: what is said of it if it never comes to be judged."""


class Judged(msgspec.Struct, frozen=True):
    """What one process says of one check. Crosses from worker to controller as JSON."""

    course: str
    """The folder of the course, so that another process can find the lesson."""
    lesson: str
    result: CheckResult
    fault: str = ""
    """Why it could not be judged, when that was the grader's or the machine's fault."""
    retries: int = 0
    start_method: str = ""
    torch: str = ""
    plan: tuple[Planned, ...] = ()
    """All that is to be judged: sent with a process's first word."""


@dataclass
class Assembly:
    """Gathers what is judged, in any order, and gives the tree."""

    lesson: Lesson
    submission: Submission
    seed: int
    started_at: str
    only: tuple[str, ...] = ()
    world_sizes: tuple[int, ...] = ()
    plan: tuple[Planned, ...] = ()
    judged: dict[str, Judged] = field(default_factory=dict)

    def add(self, judged: Judged) -> None:
        """Take one result in."""
        if judged.plan and not self.plan:
            self.plan = judged.plan
        self.judged[judged.result.id] = judged

    @property
    def faults(self) -> tuple[str, ...]:
        """What went wrong that is not the learner's, each once."""
        return tuple(dict.fromkeys(j.fault for j in self.judged.values() if j.fault))

    def results(self, duration_s: float, interrupted: bool = False) -> Results:
        """The tree, with `not checked` for what was never judged."""
        exercises = tuple(
            found for e in self.lesson.exercises if (found := self._exercise(e)) is not None
        )
        some = next(iter(self.judged.values()), None)
        return Results(
            lesson=self.lesson.id,
            title=self.lesson.title,
            submission=SubmissionInfo(
                name=self.submission.name,
                files=dict(self.submission.files),
                source=self.submission.source,
            ),
            seed=self.seed,
            score=_points(sum(e.points for e in exercises)),
            max_score=_points(sum(e.max_points for e in exercises)),
            exercises=exercises,
            environment=Environment(
                kit=grader.__version__,
                python=platform.python_version(),
                torch=some.torch if some else "",
                platform=f"{platform.system()} {platform.machine()}",
                start_method=some.start_method if some else "",
            ),
            started_at=self.started_at,
            duration_s=round(duration_s, 3),
            interrupted=interrupted,
            only=self.only,
            world_sizes=self.world_sizes,
            notes=(*self.submission.notes, *self.faults),
            rendezvous_retries=sum(j.retries for j in self.judged.values()),
        )

    def _exercise(self, exercise: Any) -> ExerciseResult | None:
        checks = tuple(self._check(p) for p in self.plan if p.exercise == exercise.name)
        if not checks:
            return None
        return ExerciseResult(
            name=exercise.name,
            points=_points(sum(check.points for check in checks)),
            max_points=_points(sum(check.max_points for check in checks)),
            checks=checks,
            todo=exercise.todo,
        )

    def _check(self, planned: Planned) -> CheckResult:
        judged = self.judged.get(planned.result.id)
        if judged is None:
            reason = "the grading ended before its turn"
            return msgspec.structs.replace(planned.result, reason=reason)
        return judged.result


def exit_code(results: Results, faults: tuple[str, ...]) -> int:
    """What the command ends with, as `grade --help` documents it.

    0 all passed, 1 something failed, 3 the grader's fault, 4 nothing was checked,
    130 interrupted.
    """
    if results.interrupted:
        return 130
    if faults:
        return 3
    verdicts = {check.verdict for check in results.checks}
    if not verdicts - {Verdict.NOT_CHECKED}:
        return 4
    return 0 if verdicts <= {Verdict.PASSED, Verdict.NOT_CHECKED} else 1


def _points(value: float) -> float:
    """Without the dust of adding up fractions: a sum of thirds is a whole number again."""
    return round(value, 6)
