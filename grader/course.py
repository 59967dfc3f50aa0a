"""The course file: `course.toml`, decoded into typed, frozen structures.

A mistake in it is one sentence: which file, which key, what was expected.
"""

from __future__ import annotations

import difflib
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

FILE_NAME = "course.toml"

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class CourseError(Exception):
    """The course file cannot be used; the text says which file, which key, what was expected."""


class NoSuchLesson(Exception):
    """The course has no lesson of that name; the text names the near ones."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file: unknown keys are mistakes."""


class Limits(_Table, frozen=True):
    """What one run may use."""

    seconds: _Positive = 10.0
    """Wall time."""
    memory_mb: Annotated[int, msgspec.Meta(ge=100)] = 2000
    """Per rank, in MB of 1,000,000 bytes, above what a fresh rank holds."""


class LatePolicy(_Table, frozen=True):
    """What a late submission costs. Read and validated; applied when a class is graded."""

    grace_minutes: Annotated[float, msgspec.Meta(ge=0)] = 0
    percent_per_day: _Percent = 0
    cap_percent: _Percent = 100
    """The most that lateness can cost."""


class Exercise(_Table, frozen=True):
    """One thing to implement."""

    name: _Name
    points: _Positive
    functions: Annotated[tuple[_Name, ...], msgspec.Meta(min_length=1)]
    """The functions and classes of the stub that it is about."""
    todo: _Name
    """What to do first, in one or two sentences."""


class Lesson(_Table, frozen=True):
    """One lesson: its files, exercises and limits, and where its parts are."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]*$")]
    title: _Name
    files: Annotated[tuple[_Name, ...], msgspec.Meta(min_length=1)]
    """What a learner hands in; the first is the module that is imported."""
    points: _Positive
    exercises: Annotated[tuple[Exercise, ...], msgspec.Meta(min_length=1)]
    world_sizes: Annotated[tuple[Annotated[int, msgspec.Meta(ge=1, le=8)], ...],
                           msgspec.Meta(min_length=1)] = (1, 2, 3, 4)  # fmt: skip
    due: datetime | None = None
    limits: Limits = Limits()
    root: Path = Path()
    """The folder of the course; not in the file."""

    @property
    def stub_folder(self) -> Path:
        """The handout and the learner's working copy."""
        return self.root / "exercises" / self.id

    @property
    def solution_folder(self) -> Path:
        """The reference solution."""
        return self.root / "solutions" / self.id

    @property
    def checks_folder(self) -> Path:
        """The checks and rank programs."""
        return self.root / "tests" / "lessons" / self.id


class _CourseTable(_Table, frozen=True):
    title: _Name
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0


class _File(_Table, frozen=True):
    course: _CourseTable
    lessons: Annotated[tuple[dict[str, Any], ...], msgspec.Meta(min_length=1)]
    limits: Limits = Limits()
    late: LatePolicy = LatePolicy()


class Course(_Table, frozen=True):
    """A course: its lessons in order."""

    title: str
    seed: int
    limits: Limits
    late: LatePolicy
    lessons: tuple[Lesson, ...]
    root: Path
    """The folder that `course.toml` lies in."""

    def lesson(self, name: str) -> Lesson:
        """The lesson whose id is `name`.

        Raises:
            NoSuchLesson: there is none; the text names the near ones.
        """
        for lesson in self.lessons:
            if lesson.id == name:
                return lesson
        names = [lesson.id for lesson in self.lessons]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names)}"
        raise NoSuchLesson(f"there is no lesson {name!r}; {hint}")


def find_course(start: Path) -> Path:
    """The nearest `course.toml` in `start` or a folder above it.

    Raises:
        CourseError: there is none.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        path = folder / FILE_NAME
        if path.is_file():
            return path
    raise CourseError(
        f"there is no {FILE_NAME} in {start} or above it; go to the folder of your course first"
    )


def nearest_course(start: Path) -> Path:
    """As `find_course`; where there is none, the course that this kit came with.

    Raises:
        CourseError: there is neither.
    """
    try:
        return find_course(start)
    except CourseError:
        own = Path(__file__).resolve().parent.parent / FILE_NAME
        if not own.is_file():
            raise
        return own


def load_course(path: Path) -> Course:
    """Read and check the course file at `path`.

    Raises:
        CourseError: it cannot be read, or something in it is not as it must be.
    """
    path = path.resolve()
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CourseError(f"{path} is not UTF-8 text (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise CourseError(f"{path} is no valid TOML: {error}") from error
    file = _convert(raw, _File, path, "")
    lessons = tuple(
        _lesson(table, file.limits, path, f"lessons[{index}]")
        for index, table in enumerate(file.lessons)
    )
    _check_unique([lesson.id for lesson in lessons], path, "lessons[{}].id")
    return Course(
        title=file.course.title,
        seed=file.course.seed,
        limits=file.limits,
        late=file.late,
        lessons=lessons,
        root=path.parent,
    )


def _lesson(table: dict[str, Any], limits: Limits, path: Path, key: str) -> Lesson:
    if "root" in table:
        raise CourseError(f"{path}: {key}.root: there is no such key")
    own_limits = table.get("limits")
    if isinstance(own_limits, dict):
        # What a lesson does not say about its limits is the course's.
        table = table | {"limits": msgspec.to_builtins(limits) | own_limits}
    elif own_limits is None:
        table = table | {"limits": msgspec.to_builtins(limits)}
    lesson: Lesson = _convert(table, Lesson, path, key)
    lesson = msgspec.structs.replace(lesson, root=path.parent)
    _check_points(lesson, path, key)
    _check_due(lesson, path, key)
    _check_files(lesson, path, key)
    _check_unique([e.name for e in lesson.exercises], path, key + ".exercises[{}].name")
    _check_folders(lesson, path, key)
    return lesson


def _convert(raw: Any, target: type[Any], path: Path, key: str) -> Any:
    try:
        return msgspec.convert(raw, target)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        where = where.rstrip("`").lstrip(".")
        full = ".".join(part for part in (key, where) if part)
        full = full.replace(".[", "[")
        raise CourseError(f"{path}: {full or 'the file'}: {_plain(text)}") from error


def _plain(text: str) -> str:
    """msgspec's words in a sentence of ours."""
    text = text.replace("Object contains unknown field", "there is no such key as")
    text = text.replace("Object missing required field", "this key is missing:")
    return text[:1].lower() + text[1:]


def _check_points(lesson: Lesson, path: Path, key: str) -> None:
    total = sum(exercise.points for exercise in lesson.exercises)
    if abs(total - lesson.points) > 1e-9:
        raise CourseError(
            f"{path}: {key}.points: the exercises' points add up to {total:g}, "
            f"expected {lesson.points:g}"
        )


def _check_due(lesson: Lesson, path: Path, key: str) -> None:
    if lesson.due is not None and lesson.due.tzinfo is None:
        raise CourseError(
            f"{path}: {key}.due: expected a time with its offset from UTC, such as "
            f"{lesson.due.isoformat()}+01:00"
        )


def _check_files(lesson: Lesson, path: Path, key: str) -> None:
    for index, name in enumerate(lesson.files):
        if Path(name).name != name or not name.endswith(".py"):
            raise CourseError(
                f"{path}: {key}.files[{index}]: expected the name of a Python file, found {name!r}"
            )


def _check_folders(lesson: Lesson, path: Path, key: str) -> None:
    for folder in (lesson.stub_folder, lesson.solution_folder, lesson.checks_folder):
        if not folder.is_dir():
            raise CourseError(
                f"{path}: {key}.id: expected a folder {folder.relative_to(lesson.root)} "
                f"for the lesson {lesson.id!r}, and there is none"
            )


def _check_unique(names: list[str], path: Path, key: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise CourseError(f"{path}: {key.format(index)}: {name!r} is there twice")
