"""Intake: what is taken, what is left out, and every refusal in a sentence."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.course import load_course
from grader.submission import MAX_FILE_BYTES, SubmissionError, discard, take

LESSON = load_course(Path(__file__).parent / "fixtures" / "course" / "course.toml").lesson("adding")
GOOD = "def total(x):\n    return x\n"


def write(folder: Path, name: str, data: str | bytes = GOOD) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing there": (lambda f: None, "does not exist; check the path"),
    "an empty folder": (lambda f: f.mkdir(), "is empty; put your adding.py there"),
    "another name": (
        lambda f: write(f, "addding.py"),
        "has no adding.py; rename addding.py to adding.py",
    ),
    "something else": (lambda f: write(f, "notes.txt"), "has no adding.py; put it there"),
    "a link": (
        lambda f: (write(f, "real.txt"), (f / "adding.py").symlink_to(f / "real.txt")),
        "adding.py is a link; hand in the file itself",
    ),
    "a link to a folder": (
        lambda f: (write(f.with_name("real"), "adding.py"), f.symlink_to(f.with_name("real"))),
        "is a link; hand in the file itself",
    ),
    "a folder of that name": (
        lambda f: (f.mkdir(), (f / "adding.py").mkdir()),
        "adding.py is a folder; it has to be a plain file",
    ),
    "a pipe": (
        lambda f: (f.mkdir(), os.mkfifo(f / "adding.py")),
        "adding.py is a pipe; it has to be a plain file",
    ),
    "not UTF-8": (
        lambda f: write(f, "adding.py", b"x = 1\ny = '\xff'\n"),
        "is not UTF-8 text (line 2, byte 11); save it as UTF-8",
    ),
    "a NUL byte": (lambda f: write(f, "adding.py", "x = 1\n\0"), "has a NUL byte (line 2)"),
    "too large": (
        lambda f: write(f, "adding.py", b"#" * (MAX_FILE_BYTES + 1)),
        "is larger than 1,000,000 bytes; a submission is source code only",
    ),
    "a file that hides torch": (
        lambda f: (write(f, "adding.py"), write(f, "torch.py")),
        "has the name of the module `torch`",
    ),
    "a file that hides json": (
        lambda f: (write(f, "adding.py"), write(f, "json.py")),
        "has the name of the module `json`",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_and_what_to_do(name: str, tmp_path: Path) -> None:
    make, says = REFUSED[name]
    make(tmp_path / "work")
    with pytest.raises(SubmissionError) as error:
        take(tmp_path / "work", LESSON, tmp_path / "taken")
    assert says in str(error.value), error.value
    assert not (tmp_path / "taken").exists()


def test_a_file_is_taken_whatever_its_name(tmp_path: Path) -> None:
    write(tmp_path, "attempt 3.py")
    submission = take(tmp_path / "attempt 3.py", LESSON, tmp_path / "taken")
    assert [path.name for path in submission.folder.iterdir()] == ["adding.py"]
    assert submission.files == {"adding.py": hashlib.sha256(GOOD.encode()).hexdigest()}


def test_helpers_come_along_and_traps_do_not(tmp_path: Path) -> None:
    work = tmp_path / "work"
    names = ("adding.py", "helper.py", "conftest.py", "sitecustomize.py", "evil.pth", "notes.txt")
    for name in names:
        write(work, name)
    submission = take(work, LESSON, tmp_path / "taken")
    assert sorted(submission.files) == ["adding.py", "helper.py"]
    assert sorted(path.name for path in submission.folder.iterdir()) == ["adding.py", "helper.py"]


def test_what_cannot_be_taken_beside_the_files_is_noted(tmp_path: Path) -> None:
    work = tmp_path / "work"
    write(work, "adding.py")
    write(work, "my helper.py")
    (work / "folder.py").mkdir()
    for number in range(25):
        write(work, f"helper{number:02}.py")
    submission = take(work, LESSON, tmp_path / "taken")
    assert len(submission.files) == 21
    assert "my helper.py was left out: Python cannot import a file of that name" in submission.notes
    assert "folder.py was left out: it is a folder" in submission.notes
    assert sum("20 files beside the lesson's are enough" in note for note in submission.notes) == 5


def test_the_copy_is_read_only_and_can_be_removed(tmp_path: Path) -> None:
    write(tmp_path / "work", "adding.py")
    submission = take(tmp_path / "work", LESSON, tmp_path / "taken")
    assert submission.folder.stat().st_mode & 0o777 == 0o555
    assert (submission.folder / "adding.py").stat().st_mode & 0o777 == 0o444
    discard(submission.folder)
    assert not submission.folder.exists()


def test_the_original_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "work", "adding.py")
    before = (tmp_path / "work" / "adding.py").stat()
    take(tmp_path / "work", LESSON, tmp_path / "taken")
    after = (tmp_path / "work" / "adding.py").stat()
    assert (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns)
