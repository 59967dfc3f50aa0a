"""Grade submissions of the tiny course in this process, without a pytest session each."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grader.checks.declaration import Declaration, declaration_of
from grader.checks.grading import Grading, Options
from grader.checks.judge import Judge, points_of
from grader.checks.reference import ReferenceStore
from grader.course import Lesson, load_course
from grader.ranks.engine import Engine
from grader.results import CheckResult
from grader.submission import take

COURSE = Path(__file__).parents[1] / "fixtures" / "course"


@dataclass
class Bench:
    """Grades one submission after the other on the same engine."""

    lesson: Lesson
    engine: Engine
    references: ReferenceStore
    folder: Path
    tests: list[tuple[Declaration, Any]]
    _taken: int = 0

    def grade(self, path: Path, *, seed: int = 7, seconds: float = 20.0) -> dict[str, CheckResult]:
        """Check id → result."""
        self._taken += 1
        submission = take(path, self.lesson, self.folder / str(self._taken))
        options = Options(seed=seed, seconds=seconds)
        with Grading(self.lesson, submission, self.engine, self.references, options) as grading:
            grading.plan([declaration for declaration, _ in self.tests])
            points = points_of(
                [declaration for declaration, _ in self.tests],
                {exercise.name: exercise.points for exercise in self.lesson.exercises},
            )
            tests = {d.id: (d, lambda case, test=test: test(case=case)) for d, test in self.tests}
            judge = Judge(grading, tests)
            return {check: judge.judge(check, points[check]) for check in tests}


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    lesson = load_course(COURSE / "course.toml").lesson("adding")
    folder = tmp_path_factory.mktemp("bench")
    with Engine() as engine:
        references = ReferenceStore(folder / "references")
        yield Bench(lesson, engine, references, folder, list(_tests(lesson)))


def _tests(lesson: Lesson) -> Iterator[tuple[Declaration, Callable[..., None]]]:
    for path in sorted(lesson.checks_folder.glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"tiny_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for value in vars(module).values():
            declaration = declaration_of(value)
            if declaration is not None:
                yield declaration, value
