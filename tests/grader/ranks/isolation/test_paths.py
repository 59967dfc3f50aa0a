"""What a rank may read: enough for Python and torch, and nothing that is to be hidden."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from grader.ranks.isolation import paths


def is_covered(path: str, readable: list[str]) -> bool:
    return any(paths.is_below(os.path.realpath(path), os.path.realpath(p)) for p in readable)


def test_python_and_torch_are_readable_and_the_course_is_not() -> None:
    readable = paths.readable()
    for path in (os.__file__, torch.__file__, sys.executable):
        assert is_covered(path, readable), path
    assert not is_covered(__file__, readable)
    assert not is_covered(os.path.expanduser("~"), readable)
    assert not is_covered("/etc/passwd", readable)


def test_what_is_hidden_is_cut_out_of_what_holds_it(tmp_path: Path) -> None:
    course = tmp_path / "lib" / "course"
    for folder in (course / "solutions", tmp_path / "lib" / "python", tmp_path / "lib" / "other"):
        folder.mkdir(parents=True)
    lib = str(tmp_path / "lib")
    assert sorted(paths.exclude([lib], [str(course)])) == [f"{lib}/other", f"{lib}/python"]
    assert paths.exclude([str(course / "solutions")], [str(course)]) == []
    assert paths.exclude([lib], [str(tmp_path / "elsewhere")]) == [lib]


def test_a_link_does_not_lead_to_what_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "course").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "link").symlink_to(tmp_path / "course")
    (tmp_path / "course-link").symlink_to(tmp_path / "course")
    assert paths.exclude([str(tmp_path / "lib" / "link")], [str(tmp_path / "course")]) == []
    assert paths.exclude([str(tmp_path / "course")], [str(tmp_path / "course-link")]) == []


def test_covered_paths_are_left_out() -> None:
    assert paths.covering(["/usr/lib/x", "/usr/lib", "/usr/lib64", "/usr/lib/y/z", "/a"]) == [
        "/a", "/usr/lib", "/usr/lib64",
    ]  # fmt: skip
