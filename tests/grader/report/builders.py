"""Result trees built by hand, one a situation that a report has to tell well."""

from __future__ import annotations

from typing import Any

import msgspec

from grader.checks.diagnosis import diagnosis
from grader.results import (
    Cause,
    CheckResult,
    Collective,
    Environment,
    ExerciseResult,
    LearnerError,
    RankResult,
    Results,
    RunResult,
    SubmissionInfo,
    Verdict,
)

PROMISES = {
    "joins": "Every process becomes the rank it was told to be.",
    "mean": "Every gradient ends up as the mean of what the ranks had, on every rank.",
    "norm": "What comes back is the length of all averaged gradients taken together, as a float.",
    "unused": "A rank on which a parameter was not used takes part all the same, with zeros.",
    "trains": "Training on all ranks gives the weights that one process gets from all their data.",
}
EXERCISES = {"process group": ("joins",), "all-reduce": ("mean", "norm", "unused", "trains")}
TODO = {
    "process group": "Start with `init_process_group`.",
    "all-reduce": "Start with `all_reduce_grads_` for one parameter.",
}


def check(name: str, verdict: Verdict = Verdict.PASSED, **fields: Any) -> CheckResult:
    points = 5.0 if verdict is Verdict.PASSED else 0.0
    return CheckResult(
        id=name, promise=PROMISES[name], verdict=verdict, points=points, max_points=5, **fields
    )


def tree(*changed: CheckResult, source: str = "exercises/lesson48", **fields: Any) -> Results:
    """All checks passed, but for those given."""
    by_id = {c.id: c for c in changed}
    exercises = []
    for name, ids in EXERCISES.items():
        checks = tuple(by_id.get(i, check(i)) for i in ids)
        exercises.append(
            ExerciseResult(
                name=name,
                points=sum(c.points for c in checks),
                max_points=sum(c.max_points for c in checks),
                checks=checks,
                todo=TODO[name],
            )
        )
    return Results(
        lesson="lesson48",
        title="Distributed data parallel and FSDP from scratch",
        submission=SubmissionInfo("lesson48", {"data_parallel.py": "00" * 32}, source),
        seed=48,
        score=sum(e.points for e in exercises),
        max_score=sum(e.max_points for e in exercises),
        exercises=tuple(exercises),
        environment=Environment("0.1.0", "3.11.7", "2.13.0", "Linux x86_64", "fork"),
        started_at="2026-12-01T00:00:00+00:00",
        duration_s=6.0,
        **fields,
    )


def full_marks() -> Results:
    return tree()


def untouched_stub() -> Results:
    def to_do(name: str, function: str, line: int) -> CheckResult:
        cause = Cause(
            summary=f"`{function}` is still to do", world_size=2, rank=0, file="data_parallel.py",
            line=line, source='raise NotImplementedError("TODO 1")',
            error=LearnerError("NotImplementedError", "TODO 1"),
        )  # fmt: skip
        return check(name, Verdict.CRASHED, cause=cause, diagnosis=diagnosis("not-implemented"))

    return tree(
        to_do("joins", "init_process_group", 34),
        *(to_do(name, "all_reduce_grads_", 69) for name in ("mean", "norm", "unused")),
        check("trains", Verdict.SKIPPED,
              reason=f"it makes no sense until this holds: {PROMISES['mean']}"),
    )  # fmt: skip


def wrong_value() -> Results:
    cause = Cause(
        summary="rank 0, gradient weight: all 6 elements differ", world_size=3, right_on=(1, 2),
        rank=0, tensor="gradients/weight", index=(0, 0), expected="-0.126316294",
        actual="-0.378948882", differing=6, total=6, file="data_parallel.py", line=39,
        source="dist.all_reduce(g)",
    )  # fmt: skip
    why = diagnosis("hard-coded-world-size")
    norm = Cause(summary="rank 0, norm: the value is not right", world_size=3, rank=0,
                 expected="1.5", actual="2.25")  # fmt: skip
    return tree(
        check("mean", Verdict.FAILED, cause=cause, diagnosis=why),
        check("norm", Verdict.FAILED, cause=norm, diagnosis=why),
        check("unused", Verdict.FAILED, cause=cause, diagnosis=why),
    )


def deadlock() -> Results:
    lines = (
        "rank 0 has returned after 2 collectives",
        "rank 1 waits in all_reduce(sum) of float32 [3, 2] (data_parallel.py:39), its 3rd "
        "collective, for rank 0",
    )
    cause = Cause(
        summary=f"deadlock after 0.06 s: {'; '.join(lines)}", world_size=2, rank=1,
        file="data_parallel.py", line=39, source="dist.all_reduce(g)", details=lines,
    )  # fmt: skip
    why = diagnosis("collective-skipped-on-one-rank")
    return tree(check("unused", Verdict.DEADLOCKED, cause=cause, diagnosis=why, runs=(run(),)))


def run() -> RunResult:
    call = Collective(
        op="all_reduce", group="0", ordinal=1, started_s=0.001, ended_s=0.002, reduce_op="sum",
        shapes=((3, 2),), dtype="float32", bytes=24, file="data_parallel.py", line=39,
    )  # fmt: skip
    stuck = msgspec.structs.replace(call, ordinal=2, started_s=0.003, ended_s=None)
    ranks = (
        RankResult(0, "returned", cpu_s=0.02, peak_memory_bytes=170_000_000, ledger=(call,)),
        RankResult(1, "blocked", cpu_s=0.02, peak_memory_bytes=171_000_000, ledger=(call, stuck)),
    )
    return RunResult(2, "deadlocked", 0.05, ranks, deadlock_after_s=0.06)


def crash_on_one_rank() -> Results:
    error = LearnerError(
        "ValueError", "rank 1 has had enough",
        ("data_parallel.py:50 in sync", "data_parallel.py:39 in all_reduce_grads_"),
        'raise ValueError("rank 1 has had enough")',
    )  # fmt: skip
    cause = Cause(
        summary="rank 1 raised ValueError: rank 1 has had enough", world_size=2, rank=1,
        file="data_parallel.py", line=39, source=error.source, error=error,
    )  # fmt: skip
    ranks = (
        RankResult(0, "blocked"),
        RankResult(1, "raised", stdout="".join(f"line {i}\n" for i in range(9)), stderr="oh\n"),
    )
    runs = (RunResult(2, "crashed", 0.05, ranks),)
    return tree(check("mean", Verdict.CRASHED, cause=cause, runs=runs))


def syntax_error() -> Results:
    error = LearnerError("SyntaxError", "'(' was never closed", (), "def total(x:\n         ^")
    cause = Cause(
        summary="data_parallel.py could not be imported: SyntaxError: '(' was never closed",
        file="data_parallel.py", line=5, source="def total(x:", error=error, rank=0,
    )  # fmt: skip
    return tree(*(check(name, Verdict.CRASHED, cause=cause) for name in PROMISES))


def timed_out() -> Results:
    cause = Cause(
        summary="no answer within 10 s: rank 0 was still computing at data_parallel.py:40",
        world_size=2, rank=0, file="data_parallel.py", line=40, source="while True:",
        details=("rank 0 was busy at data_parallel.py:40", "rank 1 had returned"),
    )  # fmt: skip
    reason = f"`all_reduce_grads_` did not come back in an earlier check: {PROMISES['mean']}"
    return tree(
        check("mean", Verdict.TIMED_OUT, cause=cause),
        *(check(name, Verdict.SKIPPED, reason=reason) for name in ("norm", "unused", "trains")),
    )


def no_answer() -> Results:
    summary = "rank 0's process ended (exit code 0) before it had answered"
    return tree(check("joins", Verdict.NO_ANSWER, cause=Cause(summary=summary, rank=0)))


def interrupted() -> Results:
    reason = "the grading ended before its turn"
    return tree(
        *(check(name, Verdict.NOT_CHECKED, reason=reason) for name in ("norm", "unused", "trains")),
        interrupted=True,
    )


def noted() -> Results:
    return tree(notes=("folder.py was left out: it is a folder",), source="hand in/me.py")


def hostile() -> Results:
    nasty = "\x1b[31m[bold]red[/bold]\x1b[0m \u202eflip <b>\r\n::error::" + "x" * 100_000
    error = LearnerError("ValueError", nasty, (), nasty)
    cause = Cause(
        summary=nasty[:60], world_size=2, rank=0, expected=nasty[:50], actual=nasty[:50],
        file=nasty[:20], line=3, source=nasty[:200], error=error, details=(nasty[:40],),
    )  # fmt: skip
    runs = (RunResult(2, "crashed", 0.05, (RankResult(0, "raised", stdout=nasty, stderr=nasty),)),)
    return tree(check("mean", Verdict.CRASHED, cause=cause, runs=runs))


SITUATIONS = {
    function.__name__: function
    for function in (
        full_marks, untouched_stub, wrong_value, deadlock, crash_on_one_rank, syntax_error,
        timed_out, no_answer, interrupted, noted, hostile,
    )
}  # fmt: skip
