"""The command as people use it: what it says and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from grader import results
from tests.grader.conftest import COMMAND, COURSE, SUBMISSIONS


def test_full_marks(grade) -> None:
    ran = grade("adding", SUBMISSIONS / "right")
    assert ran.code == 0, ran
    assert "score: 10 / 10" in ran.out and "Everything is right" in ran.out
    assert ran.err == ""


def test_a_failure_and_the_next_command(grade) -> None:
    ran = grade("adding", SUBMISSIONS / "deadlocks")
    assert ran.code == 1
    assert "deadlocked: Every rank gets the sum of what all ranks have." in ran.out
    assert "dist.all_reduce(x)\n" in ran.out
    assert '--only "total"' in ran.out


def test_the_untouched_stub_says_what_to_do_first(grade) -> None:
    ran = grade("adding")
    assert ran.code == 1
    assert "score: 0 / 10" in ran.out
    for exercise in ("join", "total", "scale"):
        assert f"to do first: Start with `{exercise}`." in ran.out


def test_only_one_exercise_and_one_world_size(grade, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    ran = grade("adding", SUBMISSIONS / "wrong_on_three", "--only", "TOT", "--world-size", "2",
                "--json", file)  # fmt: skip
    assert ran.code == 0, ran
    tree = results.from_json(file.read_bytes())
    assert [exercise.name for exercise in tree.exercises] == ["total"]
    assert {run.world_size for check in tree.checks for run in check.runs} == {2}


def test_results_as_json_follow_the_published_schema(grade, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    for name in ("right", "deadlocks", "syntax_error", "hostile_text"):
        grade("adding", SUBMISSIONS / name, "--json", file)
        tree = json.loads(file.read_text(encoding="utf-8"))
        jsonschema.validate(tree, results.json_schema())
        assert results.to_json(results.from_json(file.read_bytes())) == file.read_bytes()


def test_many_processes_bring_the_same_results(grade, tmp_path: Path) -> None:
    trees = []
    for words in ((), ("-n", "2")):
        file = tmp_path / "results.json"
        grade("adding", SUBMISSIONS / "wrong_on_three", "--json", file, *words)
        trees.append(results.from_json(file.read_bytes()))
    one, two = ([(c.id, c.verdict, c.cause, c.points) for c in tree.checks] for tree in trees)
    assert one == two


def test_fresh_interpreters_bring_the_same_results(grade, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    ran = grade("adding", SUBMISSIONS / "right", "--ranks-by", "spawn", "--json", file)
    assert ran.code == 0, ran
    assert results.from_json(file.read_bytes()).environment.start_method == "spawn"


def test_another_seed_is_told_in_the_results(grade, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert grade("adding", SUBMISSIONS / "right", "--seed", "123", "--json", file).code == 0
    assert results.from_json(file.read_bytes()).seed == 123


def test_what_a_learner_wrote_reaches_the_terminal_as_text(grade) -> None:
    ran = grade("adding", SUBMISSIONS / "hostile_text", FORCE_COLOR="1")
    assert "\x1b[31m" not in ran.out.replace("\x1b[31m✗", "").replace("\x1b[1;31m", "")
    assert "[bold]red[/bold]" in ran.out and "\u202e" not in ran.out


WRONG_USE = {
    "no such lesson": (["addin"], "there is no lesson 'addin'; did you mean adding?"),
    "no such path": (["adding", "nowhere"], "nowhere does not exist"),
    "an empty folder": (["adding", "EMPTY"], "is empty; put your adding.py there"),
    "no such exercise": (["adding", "--only", "nothing"], "there is no exercise 'nothing'"),
    "no such option": (["adding", "--fast"], "No such option"),
    "a folder that is not there": (["adding", "--json", "no/such/file"], "does not exist"),
    "no number": (["adding", "--seed", "x"], "not a valid integer"),
}


@pytest.mark.parametrize("name", WRONG_USE)
def test_wrong_use_is_one_sentence_and_exit_code_2(name: str, grade, tmp_path: Path) -> None:
    words, says = WRONG_USE[name]
    ran = grade(*(str(tmp_path) if word == "EMPTY" else word for word in words))
    assert ran.code == 2
    assert says in ran.err and "Traceback" not in ran.err


def test_outside_of_a_course_it_grades_the_kits_own(grade, tmp_path: Path) -> None:
    ran = grade("list", cwd=tmp_path)
    assert ran.code == 0 and "lesson48" in ran.out


def test_a_broken_course_file_is_told_with_its_key(grade, tmp_path: Path) -> None:
    text = (COURSE / "course.toml").read_text(encoding="utf-8").replace("points = 6", "points = 7")
    (tmp_path / "course.toml").write_text(text, encoding="utf-8")
    ran = grade("list", cwd=tmp_path)
    assert ran.code == 2
    assert "lessons[0].points: the exercises' points add up to 11, expected 10" in ran.err


def test_a_lesson_whose_solution_fails_is_not_the_learners_fault(grade, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(COURSE, tmp_path / "course")
    solution = tmp_path / "course/solutions/adding/adding.py"
    text = solution.read_text(encoding="utf-8")
    solution.write_text(text.replace("return x * factor", "return 1 / 0"), encoding="utf-8")
    ran = grade("adding", SUBMISSIONS / "right", cwd=tmp_path / "course")
    assert ran.code == 3
    assert "not checked" in ran.out and "the solution's programs.scale" in ran.out


def test_nothing_to_check_is_exit_code_4(grade) -> None:
    assert grade("adding", SUBMISSIONS / "right", "--only", "join", "--world-size", "7").code == 4


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ctrl_c_leaves_a_report_and_nothing_else() -> None:
    process = subprocess.Popen(
        [*COMMAND, "adding", str(SUBMISSIONS / "never_ends"), "--timeout", "60"],
        cwd=COURSE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        env=os.environ | {"COLUMNS": "80"}, start_new_session=True,
    )  # fmt: skip
    mark = f"ranklings-{process.pid}-".encode()
    deadline = time.monotonic() + 60
    while len(_processes_with(mark)) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)  # until a zygote, a leader and two ranks are there
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130, (out, err)
    assert "interrupted" in out + err and "Traceback" not in err
    deadline = time.monotonic() + 5
    while _processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _processes_with(mark)


def _processes_with(mark: bytes) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


HELP = "import sys; from grader.cli.main import main\ntry: main()\nfinally: print(*sys.modules)"


@pytest.mark.parametrize("words", [["--help"], ["adding", "--help"], ["demo", "--help"]])
def test_help_needs_no_torch_nor_anything_else_slow(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP, *words], capture_output=True, encoding="utf-8", cwd=COURSE
    )
    assert done.stdout.startswith("Usage: grade")
    loaded = set(done.stdout.split())
    assert not loaded & {"torch", "numpy", "pytest", "rich", "msgspec", "grader.course"}


def test_listing_needs_no_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP, "list"], capture_output=True, encoding="utf-8", cwd=COURSE
    )
    assert "adding" in done.stdout and "torch" not in done.stdout.split()
