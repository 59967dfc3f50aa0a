"""One check of one submission, over its world sizes, to one verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from grader.checks import endings
from grader.checks.case import Case, Mismatch
from grader.checks.declaration import Declaration
from grader.checks.diagnosis import diagnosis
from grader.checks.grading import Grading
from grader.checks.record import run_result
from grader.ranks.outcome import Ending
from grader.results import Cause, CheckResult, Diagnosis, RunResult, Verdict

Body = Callable[[Case], None]


Tests = Mapping[str, tuple[Declaration, Body]]


class Judge:
    """Judges the checks of one submission, in any order.

    `tests` has every check of the lesson by id. One that another comes `after` is judged
    when it is needed, also where it was not asked for or is another process's to report.
    """

    def __init__(self, grading: Grading, tests: Tests) -> None:
        self._grading = grading
        self._tests = tests
        self._verdicts: dict[str, Verdict] = {}
        self._timed_out: dict[str, str] = {}
        """function → the promise of the check in which it did not come back"""

    def judge(self, check: str, max_points: float) -> CheckResult:
        """The result of the check with this id; its points are `max_points` or 0.

        Raises:
            EngineError, ReferenceFailed, LookupError: the grader's or the lesson's fault.
        """
        began = time.monotonic()
        declaration, body = self._tests[check]
        result = self._judge(declaration, body, max_points)
        self._verdicts[check] = result.verdict
        if result.verdict is not Verdict.PASSED:
            self._grading.drop(declaration)
        if result.verdict is Verdict.TIMED_OUT:
            for function in declaration.functions:
                self._timed_out.setdefault(function, declaration.promise)
        return msgspec.structs.replace(result, duration_s=round(time.monotonic() - began, 4))

    def _judge(self, declaration: Declaration, body: Body, max_points: float) -> CheckResult:
        blank = CheckResult(
            id=declaration.id,
            promise=declaration.promise,
            verdict=Verdict.NOT_CHECKED,
            points=0.0,
            max_points=max_points,
        )
        sizes = self._grading.sizes(declaration)
        if not sizes:
            return _with(
                blank,
                reason=f"it needs {_ranks(declaration.world_sizes)}, which were not asked for",
            )
        broken = self._grading.broken()
        if broken is not None:
            return _ruled(blank, broken, ())
        reason = self._reason_to_skip(declaration)
        if reason:
            return _with(blank, verdict=Verdict.SKIPPED, reason=reason)
        breach = self._grading.breach(declaration)
        if breach is not None:
            return _ruled(blank, (Verdict.FAILED, breach, None), ())
        return self._run_at_each_size(declaration, body, blank, sizes)

    def _reason_to_skip(self, declaration: Declaration) -> str:
        for parent in declaration.after:
            if parent not in self._verdicts:
                self.judge(parent, 0.0)
            if self._verdicts[parent] not in (Verdict.PASSED, Verdict.NOT_CHECKED):
                promise = self._tests[parent][0].promise
                return f"it makes no sense until this holds: {promise}"
        for function in declaration.functions:
            if function in self._timed_out:
                return (
                    f"`{function}` did not come back in an earlier check: "
                    f"{self._timed_out[function]}"
                )
        return ""

    def _run_at_each_size(
        self, declaration: Declaration, body: Body, blank: CheckResult, sizes: tuple[int, ...]
    ) -> CheckResult:
        runs: list[RunResult] = []
        right: list[int] = []
        for size in sizes:
            answers = self._grading.answers(declaration, size)
            runs.append(run_result(answers.outcome))
            if answers.outcome.ending is not Ending.ANSWERED:
                ruling = endings.rule(answers.outcome, answers.request)
            else:
                found = _ask(body, Case(answers))
                if found is None:
                    right.append(size)
                    continue
                ruling = found
            verdict, cause, why = ruling
            cause = msgspec.structs.replace(cause, world_size=size, right_on=tuple(right))
            return _ruled(blank, (verdict, cause, why), tuple(runs))
        return _with(
            blank, verdict=Verdict.PASSED, points=blank.max_points, runs=tuple(runs), reason=""
        )


def _ask(body: Body, case: Case) -> endings.Ruling | None:
    """What the check's body says of one run: None if the promise is kept."""
    try:
        body(case)
    except Mismatch as mismatch:
        why: Diagnosis | None = diagnosis(mismatch.code) if mismatch.code else None
        return Verdict.FAILED, mismatch.cause, why
    except AssertionError as error:
        text = str(error).strip().splitlines()
        return Verdict.FAILED, Cause(summary=text[0] if text else "the promise is not kept"), None
    return None


def _ranks(sizes: tuple[int, ...]) -> str:
    """`2 or 4 ranks`."""
    return f"{' or '.join(map(str, sizes))} ranks"


def _with(result: CheckResult, **fields: object) -> CheckResult:
    return msgspec.structs.replace(result, **fields)


def _ruled(blank: CheckResult, ruling: endings.Ruling, runs: tuple[RunResult, ...]) -> CheckResult:
    verdict, cause, why = ruling
    return _with(blank, verdict=verdict, cause=cause, diagnosis=why, runs=runs)


def points_of(declarations: list[Declaration], exercises: Mapping[str, float]) -> dict[str, float]:
    """Check id → its points: an exercise's points are split over its checks by weight."""
    weights: dict[str, float] = {}
    for declaration in declarations:
        weights[declaration.exercise] = weights.get(declaration.exercise, 0) + declaration.weight
    return {
        d.id: exercises[d.exercise] * d.weight / weights[d.exercise] if d.weight else 0.0
        for d in declarations
    }
