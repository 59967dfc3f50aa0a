"""The training demo: the learner's code trains a small model on real ranks."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grader.course import Lesson, load_course, nearest_course
from grader.submission import take

_PROGRAM = Path(__file__).with_name("demo_program.py")


class DemoFailed(Exception):
    """The learner's code did not get through the demo; the text says where."""


@dataclass(frozen=True)
class Wishes:
    """The size of the demo. Dimensions are features, the batch is per rank."""

    in_dim: int = 16
    hidden: int = 12
    out_dim: int = 3
    batch_size: int = 8
    num_steps: int = 6
    seed: int = 0


def run_distributed_demo(
    world_size: int = 2,
    in_dim: int = 16,
    hidden: int = 12,
    out_dim: int = 3,
    batch_size: int = 8,
    num_steps: int = 6,
    seed: int = 0,
    *,
    submission: str | Path | None = None,
    lesson: str = "lesson48",
    timeout: float = 60.0,
) -> dict[str, Any]:
    """Train with a learner's code and tell how the ranks agree.

    Args:
        submission: file or folder; None: the working copy of the lesson.
        timeout: seconds of wall time.

    Returns:
        `losses` (each rank's last), `losses_per_step` (mean over ranks),
        `param_sum_per_rank` and their `param_sum_spread` (0 when the ranks agree),
        `grad_norm_after_all_reduce`,
        `manual_all_reduce_max_diff_vs_single_process` (largest difference of a gradient to
        one process on all the data), `fsdp_round_trip_all_ranks_ok`, `world_size`, `backend`.

    Raises:
        DemoFailed: the code raised, hung or brought back no answer.
        SubmissionError, CourseError: there is nothing to run.
    """
    course = load_course(nearest_course(Path.cwd()))
    found = course.lesson(lesson)
    wishes = Wishes(in_dim, hidden, out_dim, batch_size, num_steps, seed)
    return run(found, Path(submission or found.stub_folder), wishes, world_size, timeout)


def run(
    lesson: Lesson, path: Path, wishes: Wishes, world_size: int, timeout: float
) -> dict[str, Any]:
    """The demo of one submission; see `run_distributed_demo`."""
    from grader.checks import endings
    from grader.ranks.engine import Engine
    from grader.ranks.inside import values
    from grader.ranks.outcome import Ending, Request

    with tempfile.TemporaryDirectory() as folder, Engine() as engine:
        submission = take(path, lesson, Path(folder) / "submission")
        request = Request(
            submission=submission.folder,
            module=Path(lesson.files[0]).stem,
            program="demo_program.train",
            programs={"__init__.py": "", _PROGRAM.name: _PROGRAM.read_text(encoding="utf-8")},
            world_size=world_size,
            inputs=(values.encode(asdict(wishes)),) * world_size,
            group="learner",
            seconds=timeout,
        )
        outcome = engine.run(request)
        if outcome.ending is Ending.FAULT:
            raise RuntimeError(outcome.fault)
        if outcome.ending is not Ending.ANSWERED:
            _verdict, cause, diagnosis = endings.rule(outcome, request)
            where = f"\n  {cause.file}:{cause.line}  {cause.source}" if cause.file else ""
            hint = f"\n  {diagnosis.next_step}" if diagnosis else ""
            raise DemoFailed(f"{cause.summary}{where}{hint}")
        return _summary(world_size, [rank.values or {} for rank in outcome.ranks])


def _summary(world_size: int, ranks: list[dict[str, Any]]) -> dict[str, Any]:
    sums = {rank: answer["param_sum"] for rank, answer in enumerate(ranks)}
    steps = zip(*(answer["losses"] for answer in ranks), strict=True)
    return {
        "world_size": world_size,
        "backend": "gloo",
        "param_sum_per_rank": sums,
        "param_sum_spread": max(sums.values()) - min(sums.values()),
        "losses": [answer["losses"][-1] for answer in ranks],
        "losses_per_step": [sum(step) / world_size for step in steps],
        "grad_norm_after_all_reduce": ranks[0]["grad_norm"],
        "manual_all_reduce_max_diff_vs_single_process": max(a["difference"] for a in ranks),
        "fsdp_round_trip_all_ranks_ok": all(answer["round_trip"] is True for answer in ranks),
    }
