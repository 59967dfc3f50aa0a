"""Grade one submission of one lesson: one pytest session, made from Python."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from grader.checks import plugin
from grader.checks.assembly import Judged
from grader.course import Course, Lesson
from grader.results import Results

_INI = Path(__file__).with_name("pytest.ini")


class SessionFailed(Exception):
    """No grading came about: the grader's, the lesson's or the machine's fault."""


@dataclass(frozen=True)
class Wishes:
    """What the person asked for; empty and None mean the lesson's own."""

    only: tuple[str, ...] = ()
    world_sizes: tuple[int, ...] = ()
    seed: int | None = None
    seconds: float | None = None
    processes: int = 0
    """pytest-xdist workers; 0: this process alone."""
    ranks_by: str = ""
    """`fork` or `spawn`; empty: what the machine can."""
    references: Path | None = None


@dataclass(frozen=True)
class Graded:
    """What came of it."""

    results: Results
    faults: tuple[str, ...]
    """What went wrong that is not the learner's."""


class _Listener:
    """A pytest plugin that hands every result on and keeps the session."""

    def __init__(self, on_result: Callable[[Judged], None]) -> None:
        self._on_result = on_result
        self.session: plugin.GradingSession | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        self.session = plugin.session_of(config)
        self.session.listeners.append(self._on_result)


def grade(
    course: Course,
    lesson: Lesson,
    path: Path,
    wishes: Wishes,
    on_result: Callable[[Judged], None] = lambda _judged: None,
) -> Graded:
    """Grade the submission at `path`; `on_result` hears of every check as it is judged.

    Raises:
        SessionFailed: nothing could be graded, and it is not the submission's fault.
    """
    began = time.monotonic()
    listener = _Listener(on_result)
    # What else is installed beside pytest must not change a grading, nor slow it down.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(_arguments(course, lesson, path, wishes), plugins=[listener])
    assembly = listener.session.assemblies.get(lesson.id) if listener.session else None
    interrupted = code == pytest.ExitCode.INTERRUPTED
    if assembly is None:
        if interrupted:
            raise KeyboardInterrupt
        raise SessionFailed(_last_words(said.getvalue(), code))
    faults = assembly.faults
    if code == pytest.ExitCode.INTERNAL_ERROR:
        faults = (*faults, _last_words(said.getvalue(), code))
    return Graded(assembly.results(time.monotonic() - began, interrupted), faults)


def _arguments(course: Course, lesson: Lesson, path: Path, wishes: Wishes) -> list[str]:
    arguments = [str(lesson.checks_folder), "-c", str(_INI), f"--rootdir={course.root}"]
    arguments += ["-p", "grader.checks.plugin", "-p", "no:cacheprovider", "--tb=short", "-q"]
    # pytest's capture takes the terminal's descriptor, on which the progress is shown.
    arguments += ["--capture=no"]
    arguments += ["--submission", str(path)]
    if wishes.processes:
        arguments += ["-p", "xdist.plugin", "-n", str(wishes.processes), "--dist", "loadfile"]
    if wishes.seed is not None:
        arguments += ["--grade-seed", str(wishes.seed)]
    if wishes.seconds is not None:
        arguments += ["--run-seconds", str(wishes.seconds)]
    if wishes.ranks_by:
        arguments += ["--ranks-by", wishes.ranks_by]
    if wishes.references:
        arguments += ["--references", str(wishes.references)]
    for name in wishes.only:
        arguments += ["--only", name]
    for size in wishes.world_sizes:
        arguments += ["--world-size", str(size)]
    return arguments


def _last_words(text: str, code: int) -> str:
    """What pytest said last, for who has to mend it."""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-15:]) or f"pytest ended with exit code {int(code)} and said nothing"
