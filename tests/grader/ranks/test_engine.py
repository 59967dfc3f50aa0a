"""Many runs, side by side, cancelled, killed: nothing collides and nothing is left behind."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import grader.ranks.inside as inside
from grader.ranks.engine import Engine
from grader.ranks.outcome import Ending
from grader.ranks.run import RunCancelled

LEARNER_RENDEZVOUS = """
    here.submission.init_process_group(here.rank, here.world_size, master_port=here.master_port)
    return {"sum": here.submission.total(here.inputs["x"])}
"""
SLEEP = f"1000.{os.getpid()}"
"""Seconds, and a mark to find the process by."""
MESSY = [
    "dist.barrier()",
    "if here.rank == 0: dist.barrier()",
    "raise ValueError('mine')",
    "os._exit(0)",
    "os.kill(os.getpid(), 9)",
    "open('left.txt', 'w').write('x' * 1000)",
    "os.fork() or time.sleep(1000)",
    "os.setsid() if os.fork() == 0 else None\ntime.sleep(0.05)",
    f"import subprocess\nsubprocess.Popen(['sleep', '{SLEEP}'], start_new_session=True)",
    "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass",
]


def processes(grader: int | None = None) -> set[int]:
    """Ids of all processes that run the ranks of a grader (this one) or were started by one."""
    ours = f"ranklings-{grader or os.getpid()}-".encode()
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if ours in command or command.startswith(f"sleep\x00{SLEEP}".encode()):
            found.add(int(pid))
    return found


def engine_folders() -> set[str]:
    return {p.name for p in Path(tempfile.gettempdir()).glob(f"ranklings-{os.getpid()}-*")}


def run_folders() -> set[str]:
    return {p.name for p in Path(tempfile.gettempdir()).glob(f"ranklings-{os.getpid()}-*/run-*")}


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@linux
def test_nothing_is_left_after_runs_of_every_kind(ask) -> None:
    before, fds = processes(), len(os.listdir("/proc/self/fd"))
    folders = engine_folders()
    with Engine() as engine:
        for body in MESSY * 2:
            engine.run(ask(body, 2, seconds=0.5))
        assert processes() - before == {engine.zygote_pid}
        assert run_folders() == set()
    assert processes() - before == set()
    assert len(os.listdir("/proc/self/fd")) <= fds
    assert engine_folders() == folders


def test_twenty_gradings_side_by_side_never_collide(ask) -> None:
    request = ask(LEARNER_RENDEZVOUS, 2, group="learner", seconds=60.0)
    with Engine() as engine, ThreadPoolExecutor(20) as pool:
        outcomes = list(pool.map(engine.run, [request] * 40))
    assert {outcome.ending for outcome in outcomes} == {Ending.ANSWERED}
    assert sum(outcome.retries for outcome in outcomes) == 0


@linux
def test_closing_the_engine_ends_the_runs_in_progress(ask) -> None:
    before = processes()
    engine = Engine()
    engine.run(ask("pass"))
    endings: list[object] = []

    def follow() -> None:
        try:
            engine.run(ask("while True: pass", seconds=60.0))
        except RunCancelled as error:
            endings.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    time.sleep(0.3)
    began = time.monotonic()
    engine.close()
    thread.join(timeout=10)
    assert len(endings) == 1 and time.monotonic() - began < 5
    _wait_for_none(before)


@linux
def test_a_grader_that_is_killed_takes_its_ranks_with_it(ask, tmp_path: Path) -> None:
    request = ask("while True: pass", seconds=60.0)
    script = tmp_path / "grader_that_dies.py"
    script.write_text(
        "import sys, threading, time\n"
        "from pathlib import Path\n"
        "from grader.ranks.engine import Engine\n"
        "from grader.ranks.outcome import Request\n"
        f"request = Request(Path({str(request.submission)!r}), 'work', 'programs.program',\n"
        f"    {dict(request.programs)!r}, 2, {request.inputs!r}, seconds=60.0)\n"
        "engine = Engine()\n"
        "engine.run(Request(Path(request.submission), 'work', '', request.programs, 1,\n"
        "    request.inputs[:1], group='none'))\n"
        "threading.Thread(target=engine.run, args=(request,), daemon=True).start()\n"
        "time.sleep(0.5)\nprint('running', flush=True)\ntime.sleep(60)\n",
        encoding="utf-8",
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, encoding="utf-8"
    )
    assert process.stdout is not None and process.stdout.readline() == "running\n"
    assert len(processes(process.pid)) >= 4  # zygote, leader, two ranks
    process.kill()
    process.wait()
    _wait_for_none(set(), process.pid)
    process.stdout.close()


@linux
def test_a_zygote_that_was_killed_is_replaced(ask) -> None:
    with Engine() as engine:
        engine.run(ask("pass"))
        first = engine.zygote_pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        time.sleep(0.1)
        assert engine.run(ask("pass")).ending is Ending.ANSWERED
        assert engine.zygote_pid != first


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        ("return {'sum': here.submission.total(here.inputs['x'])}", Ending.ANSWERED),
        ("if here.rank == 0: dist.barrier()", Ending.DEADLOCKED),
        ("if here.rank == 1: os._exit(0)\ndist.barrier()", Ending.NO_ANSWER),
        ("while True: pass", Ending.TIMED_OUT),
    ],
)
def test_fresh_interpreters_bring_the_same_endings(ask, body: str, ending: Ending) -> None:
    with Engine(fork=False) as engine:
        assert engine.run(ask(body, 2, seconds=15.0)).ending is ending


def test_fresh_interpreters_can_do_their_own_rendezvous(ask) -> None:
    with Engine(fork=False) as engine:
        request = ask(LEARNER_RENDEZVOUS, 2, group="learner", seconds=60.0)
        assert engine.run(request).ending is Ending.ANSWERED


def test_a_rank_sees_nothing_of_the_graders_environment(ask, monkeypatch) -> None:
    monkeypatch.setenv("A_SECRET", "of the grader")
    with Engine() as engine:
        outcome = engine.run(ask("return dict(os.environ)", 1))
    assert "A_SECRET" not in outcome.ranks[0].values
    assert outcome.ranks[0].values["OMP_NUM_THREADS"] == "1"


def test_temporary_files_go_with_the_run(engine, ask) -> None:
    body = "import tempfile\nfd, path = tempfile.mkstemp()\nreturn {'path': path}"
    for rank in engine.run(ask(body, 2)).ranks:
        path = Path(rank.values["path"])
        assert path.parent.name == f"scratch-{rank.rank}" and not path.exists()


def test_a_deadlock_is_proved_within_half_a_second_of_its_birth(engine, ask) -> None:
    for _ in range(5):
        outcome = engine.run(ask("if here.rank == 0: dist.barrier()", 4))
        assert outcome.proved_after_s is not None and outcome.proved_after_s < 0.5


def test_what_runs_inside_imports_nothing_of_the_grader() -> None:
    folder = Path(inside.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                ours = name == "grader" or name.startswith("grader.")
                allowed = name.startswith(("grader.ranks.inside", "grader.ranks.isolation"))
                assert not ours or allowed, f"{path.name} imports {name}"


def _wait_for_none(before: set[int], grader: int | None = None) -> None:
    deadline = time.monotonic() + 5
    while processes(grader) - before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes(grader) - before == set()
