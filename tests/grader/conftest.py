"""Run the `grade` command as a person does: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

COURSE = Path(__file__).parent / "fixtures" / "course"
SUBMISSIONS = Path(__file__).parent / "fixtures" / "submissions"
COMMAND = [sys.executable, "-c", "from grader.cli.main import main; main()"]


@dataclass
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def grade() -> Callable[..., Ran]:
    """Runs `grade` with these words, in the tiny course unless told otherwise."""

    def run(*words: str | Path, cwd: Path = COURSE, **env: str) -> Ran:
        environment = os.environ | {"COLUMNS": "80", "NO_COLOR": "1"} | env
        done = subprocess.run(
            [*COMMAND, *map(str, words)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=cwd,
            env=environment,
            timeout=120,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run
