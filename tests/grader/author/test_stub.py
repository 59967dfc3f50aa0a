"""Stubs are made from solutions, and stay what they were made to be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from grader.author.stub import StubError, make_stub, write_stubs
from grader.course import load_course

ROOT = Path(__file__).parents[3]

SOLUTION = '''def total(x):
    """The sum."""
    # solution: 1. Add it up.
    result = sum(x)
    return result
    # end


# solution
def helper():
    return 1


# end


def kept():
    return 2
'''
STUB = '''def total(x):
    """The sum."""
    # TODO 1: Add it up.
    raise NotImplementedError("TODO 1")


def kept():
    return 2
'''


def test_regions_become_todos_and_helpers_go() -> None:
    assert make_stub(SOLUTION, "total.py") == STUB


@pytest.mark.parametrize("lesson", load_course(ROOT / "course.toml").lessons, ids=lambda x: x.id)
def test_every_stub_is_what_its_solution_makes(lesson) -> None:
    for name in lesson.files:
        solution = (lesson.solution_folder / name).read_text(encoding="utf-8")
        stub = (lesson.stub_folder / name).read_text(encoding="utf-8")
        assert stub == make_stub(solution, name), "run `make stubs`"


@pytest.mark.parametrize("lesson", load_course(ROOT / "course.toml").lessons, ids=lambda x: x.id)
def test_a_stub_has_a_todo_for_every_function_of_an_exercise(lesson) -> None:
    tree = ast.parse((lesson.stub_folder / lesson.files[0]).read_text(encoding="utf-8"))
    found = {node.name: ast.unparse(node) for node in tree.body if hasattr(node, "name")}
    for exercise in lesson.exercises:
        for function in exercise.functions:
            assert "raise NotImplementedError('TODO " in found[function]


@pytest.mark.parametrize(
    ("solution", "says"),
    [
        ("# solution: 1. A\nx = 1\n", "total.py:1: this region is never closed"),
        ("x = 1\n# end\n", "total.py:2: `# end` closes nothing"),
        ("# solution: A\n# solution: B\n# end\n", "total.py:2: a region begins inside"),
    ],
)
def test_markers_that_do_not_fit_say_where(solution: str, says: str) -> None:
    with pytest.raises(StubError) as error:
        make_stub(solution, "total.py")
    assert says in str(error.value)


def test_only_stubs_that_changed_are_written(tmp_path: Path) -> None:
    for folder in ("solutions/adding", "exercises/adding"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "solutions/adding/total.py").write_text(SOLUTION, encoding="utf-8")
    assert write_stubs(tmp_path) == [tmp_path / "exercises/adding/total.py"]
    assert write_stubs(tmp_path) == []
