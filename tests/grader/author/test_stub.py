"""Stubs are made from solutions, and stay what they were made to be."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from grader.author.stub import StubError, main, make_stub, write_stubs
from grader.course import load_course

ROOT = Path(__file__).parents[3]

SOLUTION = '''def total(x):
    """The sum.


    Two blank lines in a docstring stay.
    """
    # solution: 1. Add it up.
    result = sum(x)

    return result
    # end


# solution
def helper():
    return 1


# end


class Counter:
    def __init__(self):
        # solution: Begin at 0.
        self.count = 0
        # end

    # solution
    def _hidden(self):
        return 2

    # end

    def add(self):
        # solution: 2. Count one more.
        self.count += 1
        # end
        return self


def kept():
    return 2
'''
STUB = '''def total(x):
    """The sum.


    Two blank lines in a docstring stay.
    """
    # TODO 1: Add it up.
    raise NotImplementedError("TODO 1: total is not written yet")


class Counter:
    def __init__(self):
        # TODO: Begin at 0.
        raise NotImplementedError("TODO: Counter.__init__ is not written yet")

    def add(self):
        # TODO 2: Count one more.
        raise NotImplementedError("TODO 2: Counter.add is not written yet")
        return self


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


@pytest.mark.parametrize("lesson", load_course(ROOT / "course.toml").lessons, ids=lambda x: x.id)
def test_todos_are_numbered_from_top_to_bottom(lesson) -> None:
    stub = "".join((lesson.stub_folder / name).read_text(encoding="utf-8") for name in lesson.files)
    numbers = [int(number) for number in re.findall(r"# TODO (\d+): ", stub)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("lesson", load_course(ROOT / "course.toml").lessons, ids=lambda x: x.id)
def test_a_stub_keeps_every_promise_and_no_answer(lesson) -> None:
    """Signatures and docstrings are the solution's; nothing else that is in a body is left."""
    for name in lesson.files:
        solution, stub = (
            ast.parse((folder / name).read_text(encoding="utf-8"))
            for folder in (lesson.solution_folder, lesson.stub_folder)
        )
        promised, kept = _promises(solution), _promises(stub)
        assert kept == {key: promised[key] for key in kept}
        assert all("._" in f".{key}" for key in promised.keys() - kept.keys())


def _promises(node: ast.AST, around: str = "") -> dict[str, tuple[str, str | None]]:
    """Signature and docstring of every function and class, by its full name."""
    found: dict[str, tuple[str, str | None]] = {}
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            name = f"{around}{child.name}"
            signature = ast.unparse(child).partition(":\n")[0]
            found[name] = (signature, ast.get_docstring(child))
            if isinstance(child, ast.ClassDef):
                found |= _promises(child, f"{name}.")
    return found


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


def test_a_broken_solution_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "solutions" / "adding" / "total.py"
    broken.parent.mkdir(parents=True)
    broken.write_text("# end\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as error:
        main()
    assert f"{broken}:1: `# end` closes nothing" in str(error.value.code)
