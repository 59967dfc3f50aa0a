"""The course file: what is right is decoded, and every mistake names its key."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grader.course import CourseError, NoSuchLesson, find_course, load_course

COURSE = Path(__file__).parent / "fixtures" / "course"
ROOT = Path(__file__).parents[2]

MISTAKES = {
    "no toml": ("[course]", "[course", "is no valid TOML"),
    "an unknown key": ("seed = 7", "sed = 7", "course: there is no such key as `sed`"),
    "an unknown key in a lesson": (
        'id = "adding"',
        'id = "adding"\ncolour = "red"',
        "lessons[0]: there is no such key as `colour`",
    ),
    "an unknown key in an exercise": (
        'name = "scale"',
        'name = "scale"\nhard = true',
        "lessons[0].exercises[2]: there is no such key as `hard`",
    ),
    "a missing key": ('title = "Adding up"\n', "", "lessons[0]: this key is missing: `title`"),
    "a wrong type": ("seed = 7", 'seed = "x"', "course.seed: expected `int`, got `str`"),
    "a negative seed": ("seed = 7", "seed = -7", "course.seed: expected `int` >= 0"),
    "no time at all": ("seconds = 5.0", "seconds = 0", "limits.seconds: expected `float` > 0"),
    "points that do not add up": (
        "points = 6",
        "points = 5",
        "lessons[0].points: the exercises' points add up to 9, expected 10",
    ),
    "an exercise for nothing": (
        "points = 6",
        "points = 0",
        "lessons[0].exercises[1].points: expected `float` > 0",
    ),
    "an exercise twice": (
        'name = "scale"',
        'name = "total"',
        "lessons[0].exercises[2].name: 'total' is there twice",
    ),
    "no such folder": (
        'id = "adding"',
        'id = "adding2"',
        "lessons[0].id: expected a folder exercises/adding2",
    ),
    "a name for a path": (
        'id = "adding"',
        'id = "../adding"',
        "lessons[0].id: expected `str` matching regex",
    ),
    "a path for a name": (
        '"adding.py"',
        '"../adding.py"',
        "lessons[0].files[0]: expected the name of a Python file",
    ),
    "no Python file": (
        '"adding.py"',
        '"adding.txt"',
        "lessons[0].files[0]: expected the name of a Python file",
    ),
    "a due date without its offset": (
        "points = 10",
        "points = 10\ndue = 2026-12-15T23:59:00",
        "lessons[0].due: expected a time with",
    ),
    "a world size of none": (
        "points = 10",
        "points = 10\nworld_sizes = [0]",
        "lessons[0].world_sizes[0]: expected `int` >= 1",
    ),
    "late by more than all": (
        "[limits]",
        "[late]\npercent_per_day = 200\n[limits]",
        "late.percent_per_day: expected `float` <= 100",
    ),
    "an unknown limit of a lesson": (
        "points = 10",
        "points = 10\nlimits = { minutes = 1 }",
        "lessons[0].limits: there is no such key",
    ),
}


@pytest.fixture
def course(tmp_path: Path) -> Path:
    shutil.copytree(COURSE, tmp_path / "course")
    return tmp_path / "course" / "course.toml"


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_the_file_and_the_key(name: str, course: Path) -> None:
    old, new, says = MISTAKES[name]
    text = course.read_text(encoding="utf-8")
    assert text.count(old) >= 1
    course.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(CourseError) as error:
        load_course(course)
    assert str(error.value).startswith(str(course)) and says in str(error.value), error.value
    assert "\n" not in str(error.value)


def test_the_tiny_course_is_decoded() -> None:
    course = load_course(COURSE / "course.toml")
    lesson = course.lesson("adding")
    assert (course.title, course.seed, course.root) == ("A tiny course", 7, COURSE)
    assert [exercise.points for exercise in lesson.exercises] == [2, 6, 2]
    assert lesson.exercises[1].functions == ("total",)
    assert lesson.stub_folder == COURSE / "exercises" / "adding"
    assert lesson.limits == course.limits and lesson.limits.seconds == 5


def test_a_lesson_says_only_what_differs_about_its_limits(course: Path) -> None:
    text = course.read_text(encoding="utf-8")
    text = text.replace("points = 10", "points = 10\nlimits = { seconds = 9.5 }")
    course.write_text(text, encoding="utf-8")
    limits = load_course(course).lesson("adding").limits
    assert (limits.seconds, limits.memory_mb) == (9.5, 1000)


def test_due_dates_and_late_policy_are_read(course: Path) -> None:
    text = course.read_text(encoding="utf-8")
    text = text.replace("points = 10", "points = 10\ndue = 2026-12-15T23:59:00+01:00")
    course.write_text(f"{text}\n[late]\ngrace_minutes = 15\n", encoding="utf-8")
    loaded = load_course(course)
    assert loaded.lesson("adding").due == datetime(2026, 12, 15, 22, 59, tzinfo=UTC)
    assert loaded.late.grace_minutes == 15


def test_a_file_that_is_not_utf8_is_told(course: Path) -> None:
    course.write_bytes(course.read_bytes() + b"# \xff\n")
    with pytest.raises(CourseError, match="is not UTF-8 text"):
        load_course(course)


def test_the_nearest_course_is_found(course: Path) -> None:
    below = course.parent / "exercises" / "adding"
    assert find_course(below) == course
    with pytest.raises(CourseError, match=r"there is no course.toml"):
        find_course(Path("/"))


def test_a_lesson_that_is_not_there_names_the_near_ones() -> None:
    course = load_course(ROOT / "course.toml")
    with pytest.raises(NoSuchLesson, match="did you mean lesson48"):
        course.lesson("leson48")
    with pytest.raises(NoSuchLesson, match="there are: lesson48"):
        course.lesson("zzz")
