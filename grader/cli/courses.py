"""Which course a command is about."""

from __future__ import annotations

from pathlib import Path

import grader
from grader.cli.errors import WRONG_USE, stop
from grader.course import Course, CourseError, Lesson, NoSuchLesson, find_course, load_course


def open_course() -> Course:
    """The course around the current folder, else the one this kit was installed from."""
    try:
        return load_course(find_course(Path.cwd()))
    except CourseError as error:
        own = Path(grader.__file__).parent.parent / "course.toml"
        if "course.toml" in str(error) and own.is_file() and not _has_course(Path.cwd()):
            return _load(own)
        stop(str(error), WRONG_USE)


def _load(path: Path) -> Course:
    try:
        return load_course(path)
    except CourseError as error:
        stop(str(error), WRONG_USE)


def _has_course(folder: Path) -> bool:
    return any((parent / "course.toml").is_file() for parent in (folder, *folder.parents))


def near(path: Path) -> Path:
    """`path` as one would type it here: relative where it lies below the current folder."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def open_lesson(course: Course, name: str) -> Lesson:
    """The course's lesson called `name`; exits with the near names where there is none."""
    try:
        return course.lesson(name)
    except NoSuchLesson as error:
        stop(str(error), WRONG_USE)
