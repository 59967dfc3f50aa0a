"""Lesson 48 graded whole: right work in several styles, and mistakes that people really make.

A mistake is the smallest change to the solution; an alternative replaces some functions of
it. Each must lose points in exactly the exercises it says, with its own diagnosis.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from grader.checks.session import Wishes, grade
from grader.course import load_course
from grader.results import Results, Verdict

ROOT = Path(__file__).parents[3]
COURSE = load_course(ROOT / "course.toml")
LESSON = COURSE.lesson("lesson48")
SOLUTION = (LESSON.solution_folder / "data_parallel.py").read_text(encoding="utf-8")
ALTERNATIVES = sorted((Path(__file__).parent / "alternatives").glob("*.py"))


@dataclass(frozen=True)
class Mistake:
    """What to replace in the solution by what, and what that must cost."""

    old: str
    new: str
    fails: tuple[str, ...]
    verdict: Verdict = Verdict.FAILED


MISTAKES = {
    "summed-not-averaged": Mistake(
        "total = grad.contiguous().to(wide) / world_size",
        "total = grad.contiguous().to(wide, copy=True)",
        ("all-reduce",),
    ),
    "hard-coded-world-size": Mistake(
        "total = grad.contiguous().to(wide) / world_size",
        "total = grad.contiguous().to(wide) / 2",
        ("all-reduce",),
    ),
    "buffers-not-broadcast": Mistake(
        "for tensor in [*module.parameters(), *module.buffers()]:",
        "for tensor in module.parameters():",
        ("broadcast", "all-reduce"),
    ),
    "collective-skipped-on-one-rank": Mistake(
        "            parameter.grad = torch.zeros_like(parameter)\n",
        "            continue\n",
        ("all-reduce",),
        Verdict.DEADLOCKED,
    ),
    "async-never-waited": Mistake(
        "        dist.all_reduce(total)\n",
        "        dist.all_reduce(total, async_op=True)\n",
        ("all-reduce",),
    ),
    "broadcast-on-source-only": Mistake(
        "        dist.broadcast(_bytes_of(rows), src)\n",
        "        if dist.get_rank() == src:\n            dist.broadcast(_bytes_of(rows), src)\n",
        ("broadcast", "all-reduce"),
        Verdict.DEADLOCKED,
    ),
    "source-ignored": Mistake(
        "        dist.broadcast(_bytes_of(rows), src)\n",
        "        dist.broadcast(_bytes_of(rows), 0)\n",
        ("broadcast",),
    ),
    "gather-list-aliased": Mistake(
        "shards = [torch.empty_like(shard) for _ in range(world_size)]",
        "shards = [torch.empty_like(shard)] * world_size",
        ("shard / gather",),
    ),
    "padding-kept": Mistake(
        "return torch.cat(shards)[: math.prod(shape)].reshape(shape)",
        "full = torch.cat(shards)\n"
        "    return full.reshape(shape) if full.numel() == math.prod(shape) else full",
        ("shard / gather",),
    ),
    "shard-keeps-full-storage": Mistake(
        "    shard = mine.new_zeros(size)\n    shard[: mine.numel()] = mine\n    return shard\n",
        "    return nn.functional.pad(mine, (0, size - mine.numel()))"
        " if len(mine) < size else mine\n",
        ("shard / gather",),
    ),
    "remainder-to-last": Mistake(
        "    return x[begin : begin + size + (rank < rest)]",
        "    return x[rank * size :] if rank == world_size - 1"
        " else x[rank * size : (rank + 1) * size]",
        ("shard / gather",),
    ),
    "no-communication": Mistake(
        "    dist.reduce_scatter(shard, list(padded.view(world_size, size)))\n",
        "    shard = padded.view(world_size, size)[dist.get_rank()] * world_size\n"
        "    dist.barrier()\n",
        ("reduce-scatter",),
    ),
    "zero-stages-swapped": Mistake(
        '"zero1": 1, "zero2": 2', '"zero1": 2, "zero2": 1', ("memory math",)
    ),
}


def graded(path: Path, **wishes) -> Results:
    done = grade(COURSE, LESSON, path, Wishes(**wishes))
    assert not done.faults
    return done.results


def losing(results: Results) -> tuple[str, ...]:
    return tuple(e.name for e in results.exercises if e.points < e.max_points - 1e-9)


@pytest.fixture
def submission(tmp_path: Path) -> Path:
    return tmp_path / "data_parallel.py"


@pytest.mark.parametrize("seed", [48, 1])
def test_the_solution_gets_full_marks(seed: int) -> None:
    results = graded(LESSON.solution_folder, seed=seed)
    assert losing(results) == () and results.score == results.max_score == 100
    assert {check.verdict for check in results.checks} == {Verdict.PASSED}
    assert results.rendezvous_retries == 0


def test_the_untouched_stub_gets_nothing_and_every_exercise_says_what_to_do() -> None:
    results = graded(LESSON.stub_folder)
    assert results.score == 0
    assert not any(check.verdict is Verdict.PASSED for check in results.checks)
    assert all(exercise.todo for exercise in results.exercises)


@pytest.mark.parametrize("path", ALTERNATIVES, ids=lambda path: path.stem)
def test_right_work_in_another_style_gets_full_marks(path: Path, submission: Path) -> None:
    submission.write_text(SOLUTION + "\n\n" + path.read_text("utf-8"), encoding="utf-8")
    results = graded(submission)
    failing = [(c.id, c.cause) for c in results.checks if c.verdict is not Verdict.PASSED]
    assert failing == []


@pytest.mark.parametrize("code", MISTAKES)
def test_a_mistake_costs_its_exercise_and_gets_its_diagnosis(code: str, submission: Path) -> None:
    mistake = MISTAKES[code]
    assert SOLUTION.count(mistake.old) == 1
    submission.write_text(SOLUTION.replace(mistake.old, mistake.new), encoding="utf-8")
    results = graded(submission)
    assert losing(results) == mistake.fails
    told = {(c.verdict, c.diagnosis.code) for c in results.checks if c.diagnosis is not None}
    assert (mistake.verdict, code) in told
