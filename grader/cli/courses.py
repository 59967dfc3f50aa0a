"""Which course a command is about."""

from __future__ import annotations

from pathlib import Path

from grader.cli.errors import WRONG_USE, stop
from grader.course import Course, CourseError, Lesson, NoSuchLesson, load_course, nearest_course


def open_course() -> Course:
    """The course around the current folder, else the one this kit came with."""
    try:
        return load_course(nearest_course(Path.cwd()))
    except CourseError as error:
        stop(str(error), WRONG_USE)


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
