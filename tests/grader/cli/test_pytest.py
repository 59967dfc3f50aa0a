"""The same grading for people who live in pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.grader.conftest import COURSE, SUBMISSIONS


def pytest_on(submission: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p",
               "no:cacheprovider", "-c", "/dev/null", f"--rootdir={COURSE}",
               str(COURSE / "tests/lessons/adding"), "--submission",
               str(SUBMISSIONS / submission)]  # fmt: skip
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, encoding="utf-8", timeout=120
    )


def test_checks_are_tests() -> None:
    done = pytest_on("right")
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout


def test_a_failing_check_says_why(tmp_path: Path) -> None:
    done = pytest_on("wrong_on_three", "--results", str(tmp_path / "results.json"))
    assert done.returncode == 1 and "1 failed, 2 passed, 1 skipped" in done.stdout
    assert "Every rank gets the sum of what all ranks have." in done.stdout
    assert (tmp_path / "results.json").exists()


def test_tests_can_be_chosen_by_name() -> None:
    done = pytest_on("right", "-k", "scaling")
    assert "1 passed, 3 deselected" in done.stdout


def test_a_path_that_is_no_submission_is_a_usage_error() -> None:
    done = pytest_on("nowhere")
    assert done.returncode == 4 and "nowhere does not exist" in done.stdout + done.stderr
