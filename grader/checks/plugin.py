"""The pytest side of grading: `pytest tests/lessons/lesson48 --submission PATH`.

A check is a test, and one test session is one grading. The plugin finds the declared
checks, has their runs made ahead, judges each through the test's body and hands every
result on the moment it exists, from a pytest-xdist worker to the controller too.
Nothing of the submission is ever imported here.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from grader.checks.assembly import Assembly, Judged, Planned
from grader.course import Course, CourseError, Lesson, NoSuchLesson, find_course, load_course
from grader.results import CheckResult, Results, Verdict, to_json
from grader.submission import Submission, SubmissionError, take

if TYPE_CHECKING:
    from grader.checks.declaration import Declaration
    from grader.checks.grading import Grading
    from grader.checks.judge import Judge
    from grader.ranks.engine import Engine

ATTRIBUTE = "ranklings_check"
"""As in `declaration`, which cannot be imported before there is a check: it needs torch."""
PROPERTY = "ranklings"
"""Under this name a test's report carries its `Judged`, as JSON."""
_SESSION = pytest.StashKey["GradingSession"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of a grading, as `grade` has them."""
    group = parser.getgroup("ranklings", "grading of lessons")
    group.addoption("--submission", metavar="PATH", help="file or folder to grade")
    group.addoption("--grade-seed", type=int, metavar="N", help="seed of the inputs")
    group.addoption("--run-seconds", type=float, metavar="S", help="wall time a run may take")
    group.addoption("--only", action="append", default=[], metavar="EXERCISE")
    group.addoption("--world-size", type=int, action="append", default=[], metavar="N")
    group.addoption("--results", metavar="FILE", help="write the result tree, as JSON")
    group.addoption("--references", metavar="FOLDER", help="where reference outcomes are kept")
    group.addoption("--ranks-by", choices=["fork", "spawn"], help="how ranks are started")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to warm the ranks up while pytest imports and collects."""
    session = GradingSession(config)
    config.stash[_SESSION] = session
    config.pluginmanager.register(session, "ranklings-session")
    if config.getoption("submission") and not session.is_controller:
        session.engine.warm_up()


@pytest.fixture
def case() -> None:
    """The run that a check judges; the plugin fills it in, once per world size."""


@dataclass(eq=False)
class _LessonInProgress:
    """What grading one lesson needs, while this process grades it."""

    course: Course
    lesson: Lesson
    grading: Grading
    judge: Judge
    points: dict[str, float]
    plan: tuple[Planned, ...]
    has_told_plan: bool = False


class GradingSession:
    """One pytest session's gradings: judged in its processes, assembled in the first."""

    def __init__(self, config: pytest.Config) -> None:
        self.listeners: list[Callable[[Judged], None]] = []
        self.assemblies: dict[str, Assembly] = {}
        self._config = config
        self._engine: Engine | None = None
        self._in_progress: dict[str, _LessonInProgress] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._began = time.monotonic()
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")

    @property
    def is_controller(self) -> bool:
        """Whether other processes (pytest-xdist's workers) do the judging."""
        is_worker = hasattr(self._config, "workerinput")
        return not is_worker and bool(self._config.getoption("numprocesses", 0))

    @property
    def engine(self) -> Engine:
        """Starts the ranks of this process's runs."""
        if self._engine is None:
            from grader.ranks.engine import Engine

            ranks_by = self._config.getoption("ranks_by")
            self._engine = Engine(fork=None if ranks_by is None else ranks_by == "fork")
        return self._engine

    # Collecting

    # First, so that points are given before anything is deselected.
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Find the checks, give them their points, leave out what was not asked for."""
        by_lesson: dict[Path, list[pytest.Item]] = {}
        for item in items:
            if declaration_of_item(item) is not None:
                by_lesson.setdefault(item.path.parent, []).append(item)
        for folder, checks in by_lesson.items():
            wanted = self._begin(folder, checks)
            others = [item for item in items if item not in checks]
            items[:] = others + wanted
            left_out = [item for item in checks if item not in wanted]
            if left_out:
                self._config.hook.pytest_deselected(items=left_out)

    def _begin(self, folder: Path, items: list[pytest.Item]) -> list[pytest.Item]:
        """Begin to grade the lesson of `folder`; gives its items in order, those wanted."""
        from grader.checks.grading import Grading
        from grader.checks.judge import Judge, points_of

        course, lesson = _lesson_of(folder)
        items = sorted(items, key=lambda item: _place(item, lesson))
        declared = [(item, _declared(item)) for item in items]
        _check_names([declaration for _, declaration in declared])
        points = points_of(
            [declaration for _, declaration in declared],
            {exercise.name: exercise.points for exercise in lesson.exercises},
        )
        only = [name.casefold() for name in self._config.getoption("only")]
        wanted = [(i, d) for i, d in declared if not only or d.exercise.casefold() in only]
        grading = Grading(
            lesson,
            self._take(lesson, course),
            self.engine,
            self._references(course),
            self._options(course, lesson),
        )
        plan = tuple(_planned(declaration, points[declaration.id]) for _, declaration in wanted)
        tests = {d.id: (d, _body(item)) for item, d in declared}
        self._in_progress[str(folder)] = _LessonInProgress(
            course, lesson, grading, Judge(grading, tests), points, plan
        )
        return [item for item, _ in wanted]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Now that nothing more is deselected, say which runs will be asked for."""
        for folder, progress in self._in_progress.items():
            declared = [
                declaration_of_item(i) for i in session.items if str(i.path.parent) == folder
            ]
            progress.grading.plan([declaration for declaration in declared if declaration])

    def _take(self, lesson: Lesson, course: Course) -> Submission:
        path = Path(self._config.getoption("submission") or lesson.stub_folder)
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix=f"ranklings-{os.getpid()}-")
        into = Path(self._folder.name) / f"{course.root.name}-{lesson.id}"
        try:
            return take(path, lesson, into)
        except SubmissionError as error:
            raise pytest.UsageError(str(error)) from error

    def _references(self, course: Course) -> Any:
        from grader.checks.reference import ReferenceStore

        folder = self._config.getoption("references")
        return ReferenceStore(Path(folder) if folder else course.root / ".grade" / "references")

    def _options(self, course: Course, lesson: Lesson) -> Any:
        from grader.checks.grading import Options

        seed = self._config.getoption("grade_seed")
        return Options(
            seed=course.seed if seed is None else seed,
            seconds=self._config.getoption("run_seconds") or lesson.limits.seconds,
            world_sizes=tuple(self._config.getoption("world_size")),
        )

    # Judging

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Judge a check instead of calling its test function once."""
        declaration = declaration_of_item(pyfuncitem)
        if declaration is None:
            return None
        progress = self._in_progress[str(pyfuncitem.path.parent)]
        judged = self._judge(progress, declaration)
        pyfuncitem.user_properties.append((PROPERTY, msgspec.json.encode(judged).decode()))
        _tell_pytest(judged)
        return True

    def _judge(self, progress: _LessonInProgress, declaration: Declaration) -> Judged:
        import torch

        from grader.checks.reference import ReferenceFailed
        from grader.ranks.engine import EngineError

        known = (EngineError, ReferenceFailed)
        points = progress.points[declaration.id]
        retries = progress.grading.retries
        fault = ""
        try:
            result = progress.judge.judge(declaration.id, points)
        except Exception as error:  # a broken check must not cost the others
            what = "" if isinstance(error, known) else f"{type(error).__name__}: "
            fault = f"{declaration.id} could not be judged: {what}{error}"
            planned = _planned(declaration, points)
            result = msgspec.structs.replace(planned.result, reason=fault)
        plan = () if progress.has_told_plan else progress.plan
        progress.has_told_plan = True
        return Judged(
            course=str(progress.course.root),
            lesson=progress.lesson.id,
            result=result,
            fault=fault,
            retries=progress.grading.retries - retries,
            start_method=self.engine.start_method,
            torch=str(torch.__version__),
            plan=plan,
        )

    # Assembling

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a result in, from this process or from a worker."""
        if report.when != "call" or hasattr(self._config, "workerinput"):
            return
        for name, text in report.user_properties:
            if name == PROPERTY:
                judged = msgspec.json.decode(str(text), type=Judged)
                self._assembly(judged).add(judged)
                for listener in self.listeners:
                    listener(judged)

    def _assembly(self, judged: Judged) -> Assembly:
        if judged.lesson not in self.assemblies:
            course = load_course(Path(judged.course) / "course.toml")
            lesson = course.lesson(judged.lesson)
            seed = self._config.getoption("grade_seed")
            in_progress = next(iter(self._in_progress.values()), None)
            self.assemblies[judged.lesson] = Assembly(
                lesson=lesson,
                submission=(
                    in_progress.grading.submission if in_progress else self._take(lesson, course)
                ),
                seed=course.seed if seed is None else seed,
                started_at=self._started_at,
                only=tuple(self._config.getoption("only")),
                world_sizes=tuple(self._config.getoption("world_size")),
            )
        return self.assemblies[judged.lesson]

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the result tree where `--results` asks for it."""
        path = self._config.getoption("results")
        if not path or hasattr(self._config, "workerinput"):
            return
        for assembly in self.assemblies.values():
            interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
            results = assembly.results(time.monotonic() - self._began, interrupted)
            write_results(Path(path), results)

    def pytest_unconfigure(self) -> None:
        """Leave nothing behind: no process, no file."""
        for progress in self._in_progress.values():
            progress.grading.close()
        if self._engine is not None:
            self._engine.close()
        if self._folder is not None:
            self._folder.cleanup()


def write_results(path: Path, results: Results) -> None:
    """Write `results` to `path` as JSON, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(to_json(results))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def session_of(config: pytest.Config) -> GradingSession:
    """The grading session of a configured pytest."""
    return config.stash[_SESSION]


def declaration_of_item(item: pytest.Item) -> Declaration | None:
    """The declaration of a collected check, or None of any other test."""
    found = getattr(getattr(item, "obj", None), ATTRIBUTE, None)
    return found if found is None or type(found).__name__ == "Declaration" else None


def _declared(item: pytest.Item) -> Declaration:
    declaration = declaration_of_item(item)
    assert declaration is not None
    return declaration


def _body(item: pytest.Item) -> Any:
    return lambda case: item.obj(case=case)  # type: ignore[attr-defined]


def _lesson_of(folder: Path) -> tuple[Course, Lesson]:
    try:
        course = load_course(find_course(folder))
        return course, course.lesson(folder.name)
    except (CourseError, NoSuchLesson) as error:
        raise pytest.UsageError(str(error)) from error


def _place(item: pytest.Item, lesson: Lesson) -> tuple[int, str, int]:
    """Exercises in the course file's order, checks in the order of their declaration."""
    exercise = _declared(item).exercise
    names = [found.name for found in lesson.exercises]
    if exercise not in names:
        raise pytest.UsageError(
            f"{item.nodeid} is for the exercise {exercise!r}, which course.toml does not have; "
            f"it has {', '.join(names)}"
        )
    return names.index(exercise), str(item.path), item.reportinfo()[1] or 0


def _check_names(declarations: list[Declaration]) -> None:
    ids = [declaration.id for declaration in declarations]
    for declaration in declarations:
        if ids.count(declaration.id) > 1:
            raise pytest.UsageError(f"two checks of the lesson are called {declaration.id}")


def _planned(declaration: Declaration, points: float) -> Planned:
    result = CheckResult(
        id=declaration.id,
        promise=declaration.promise,
        verdict=Verdict.NOT_CHECKED,
        points=0.0,
        max_points=points,
    )
    return Planned(declaration.exercise, result)


def _tell_pytest(judged: Judged) -> None:
    result = judged.result
    if judged.fault:
        raise RuntimeError(judged.fault)
    if result.verdict is Verdict.SKIPPED or result.verdict is Verdict.NOT_CHECKED:
        pytest.skip(result.reason)
    if result.verdict is not Verdict.PASSED:
        lines = [f"{result.verdict.value}: {result.promise}"]
        if result.cause is not None:
            size = result.cause.world_size
            lines.append(result.cause.summary + (f" (world size {size})" if size else ""))
        if result.diagnosis is not None:
            lines.append(f"{result.diagnosis.title}. {result.diagnosis.next_step}")
        pytest.fail("\n".join(lines), pytrace=False)
