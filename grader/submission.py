"""Intake: what a learner handed in, copied to where no rank writes, and nothing else.

A submission is a stranger's folder. Only files that the lesson names, and Python
modules beside them, are looked at; links, devices and the like are refused, not followed.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from grader.course import Lesson

MAX_FILE_BYTES = 1_000_000
MAX_HELPERS = 20
_NEVER = frozenset({"conftest.py", "sitecustomize.py", "usercustomize.py", "setup.py"})
"""Files that Python or pytest would run unasked."""
_TAKEN = frozenset(
    {"torch", "numpy", "safetensors", "pytest", "grader", "rank_programs", "msgspec", "click"}
)


class SubmissionError(Exception):
    """There is nothing that can be graded; the text says why and what to do next."""


@dataclass(frozen=True)
class Submission:
    """What was handed in, in a folder of the grader's own."""

    name: str
    folder: Path
    """Read-only; holds the files and nothing else."""
    files: dict[str, str]
    """File name → SHA-256."""
    notes: tuple[str, ...]
    """What was left out, in sentences."""
    source: str
    """The path it was taken from, as it was given."""


def take(path: Path, lesson: Lesson, into: Path) -> Submission:
    """Copy the submission at `path` (a file or a folder) into the new folder `into`.

    A single file may have any name; it is taken for the lesson's first file.

    Raises:
        SubmissionError: there is nothing that can be graded.
    """
    mode = _mode(path, path)
    notes: list[str] = []
    if stat.S_ISDIR(mode):
        chosen = _from_folder(path, lesson, notes)
    elif stat.S_ISREG(mode):
        if len(lesson.files) > 1:
            raise SubmissionError(
                f"{lesson.id} has {len(lesson.files)} files, so give their folder, not {path}"
            )
        chosen = {lesson.files[0]: path}
    else:
        raise SubmissionError(f"{path} is {_kind(mode)}; give a Python file or a folder with one")
    contents = {name: _read(source) for name, source in chosen.items()}
    _copy(contents, into)
    return Submission(
        name=_name(path),
        folder=into,
        files={name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
        notes=tuple(notes),
        source=str(path),
    )


def discard(folder: Path) -> None:
    """Remove a folder that `take` has made."""
    if folder.is_dir():
        folder.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)


def _from_folder(folder: Path, lesson: Lesson, notes: list[str]) -> dict[str, Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise SubmissionError(f"{folder} cannot be read: {error.strerror}") from error
    chosen: dict[str, Path] = {}
    for name in lesson.files:
        if name not in names:
            raise SubmissionError(_missing(folder, name, names))
        path = folder / name
        mode = _mode(path, path)
        if not stat.S_ISREG(mode):
            raise SubmissionError(f"{path} is {_kind(mode)}; it has to be a plain file")
        chosen[name] = path
    chosen |= _helpers(folder, [name for name in names if name not in chosen], notes)
    return chosen


def _helpers(folder: Path, names: list[str], notes: list[str]) -> dict[str, Path]:
    """Modules beside the lesson's files, which these may import."""
    found: dict[str, Path] = {}
    for name in names:
        path = folder / name
        if not name.endswith(".py") or name in _NEVER:
            continue
        module = name.removesuffix(".py")
        mode = _mode(path, path)
        if not stat.S_ISREG(mode):
            notes.append(f"{name} was left out: it is {_kind(mode)}")
        elif module in sys.stdlib_module_names or module in _TAKEN:
            raise SubmissionError(
                f"{path} has the name of the module `{module}` that Python or the course already "
                "has, and would hide it; give your file another name"
            )
        elif not module.isidentifier():
            notes.append(f"{name} was left out: Python cannot import a file of that name")
        elif len(found) == MAX_HELPERS:
            notes.append(f"{name} was left out: {MAX_HELPERS} files beside the lesson's are enough")
        else:
            found[name] = path
    return found


def _missing(folder: Path, name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, [n for n in names if n.endswith(".py")], n=1)
    if not names:
        return f"{folder} is empty; put your {name} there, or give its path"
    if near:
        return f"{folder} has no {name}; rename {near[0]} to {name}, or give the file's own path"
    return f"{folder} has no {name}; put it there, or give the file's own path"


def _mode(path: Path, shown: Path) -> int:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        raise SubmissionError(f"{shown} does not exist; check the path") from None
    except OSError as error:
        raise SubmissionError(f"{shown} cannot be read: {error.strerror}") from error
    if stat.S_ISLNK(mode):
        raise SubmissionError(f"{shown} is a link; hand in the file itself")
    return mode


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a device" if not stat.S_ISREG(mode) else "a file"


def _read(path: Path) -> bytes:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SubmissionError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise SubmissionError(
            f"{path} is larger than {MAX_FILE_BYTES:,} bytes; a submission is source code only"
        )
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SubmissionError(
            f"{path} is not UTF-8 text (line {line}, byte {error.start}); save it as UTF-8"
        ) from error
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise SubmissionError(f"{path} has a NUL byte (line {line}); save it as plain text")
    return data


def _copy(contents: dict[str, bytes], into: Path) -> None:
    into.mkdir(parents=True)
    for name, data in contents.items():
        target = into / name
        target.write_bytes(data)
        target.chmod(0o444)
    into.chmod(0o555)


def _name(path: Path) -> str:
    absolute = path.absolute()
    return absolute.parent.name if absolute.is_file() else absolute.name
