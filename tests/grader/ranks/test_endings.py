"""How runs end: one line of a rank program each, and what the grader must make of it."""

from __future__ import annotations

import pytest

from grader.ranks.ledger import State
from grader.ranks.outcome import Ending

ENDINGS = {
    "answers": ("return {'rank': here.rank}", Ending.ANSWERED, None),
    "raises on one rank": (
        "if here.rank == 1: raise ValueError('mine')\ndist.barrier()",
        Ending.CRASHED,
        1,
    ),
    "raises before its peer has begun to wait": (
        "if here.rank == 1: raise ValueError('mine')\ntime.sleep(0.2)\ndist.barrier()",
        Ending.CRASHED,
        1,
    ),
    "segfaults": (
        "import ctypes\nif here.rank == 1: ctypes.string_at(0)\ndist.barrier()",
        Ending.CRASHED,
        1,
    ),
    "calls sys.exit": ("if here.rank == 0: sys.exit(0)\ndist.barrier()", Ending.NO_ANSWER, 0),
    "calls os._exit": ("if here.rank == 0: os._exit(0)\ndist.barrier()", Ending.NO_ANSWER, 0),
    "exits everywhere": ("os._exit(0)", Ending.NO_ANSWER, 0),
    "returns before its peer's barrier": (
        "if here.rank == 0: dist.barrier()",
        Ending.DEADLOCKED,
        None,
    ),
    "sends in a ring without a receive": (
        "dist.send(torch.ones(3), (here.rank + 1) % here.world_size)\ndist.recv(torch.ones(3))",
        Ending.DEADLOCKED,
        None,
    ),
    "receives from a rank that never sends": (
        "if here.rank == 0: dist.recv(torch.ones(3), 1)",
        Ending.DEADLOCKED,
        None,
    ),
    "waits for a send that nobody receives": (
        "if here.rank == 0: dist.isend(torch.ones(3), 1).wait()",
        Ending.DEADLOCKED,
        None,
    ),
    "another operation": (
        "x = torch.ones(4)\ndist.all_reduce(x) if here.rank else dist.broadcast(x, 0)",
        Ending.DEADLOCKED,
        None,
    ),
    "another root": ("dist.broadcast(torch.ones(4), here.rank)", Ending.DEADLOCKED, None),
    "another size": ("dist.all_reduce(torch.ones(4 + here.rank))", Ending.DEADLOCKED, None),
    "another shape of the same size": (
        "dist.all_reduce(torch.ones(4) if here.rank else torch.ones(2, 2))",
        Ending.DEADLOCKED,
        None,
    ),
    "another dtype of the same size": (
        "dist.all_reduce(torch.ones(4, dtype=torch.int32 if here.rank else torch.float32))",
        Ending.DEADLOCKED,
        None,
    ),
    "another reduce operation": (
        "op = dist.ReduceOp.MAX if here.rank else dist.ReduceOp.SUM\n"
        "dist.all_reduce(torch.ones(4), op=op)",
        Ending.DEADLOCKED,
        None,
    ),
    "groups in another order": (
        "a, b = dist.new_group(), dist.new_group()\n"
        "for group in ((a, b) if here.rank else (b, a)): dist.barrier(group=group)",
        Ending.DEADLOCKED,
        None,
    ),
    "never comes back": ("while True: pass", Ending.TIMED_OUT, None),
    "waits for ever outside a collective": ("time.sleep(1000)", Ending.TIMED_OUT, None),
    "answers twice": (
        "from grader.ranks.inside import wire\n"
        "from grader.ranks.inside.values import encode\n"
        "wire.write_frame(3, wire.ANSWER, encode({}))",
        Ending.UNREADABLE,
        None,
    ),
    "writes no frame": ("os.write(3, b'?' * 100)", Ending.UNREADABLE, None),
    "announces a huge frame": ("os.write(3, b'A' + b'\\xff' * 4)", Ending.UNREADABLE, None),
    "answers with broken bytes": (
        "from grader.ranks.inside import wire\n"
        "wire.write_frame(3, wire.ANSWER, b'\\x00' * 50)\n"
        'wire.write_frame(3, wire.EVENT, b\'{"e": "returned", "t": 1}\')\ntime.sleep(100)',
        Ending.UNREADABLE,
        None,
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_run_ends_as_it_should(name: str, run) -> None:
    body, ending, culprit = ENDINGS[name]
    outcome = run(body, seconds=1.0 if ending is Ending.TIMED_OUT else 20.0)
    assert outcome.ending is ending, (outcome.proof_lines, outcome.fault)
    if culprit is not None:
        assert outcome.culprit is not None
        assert outcome.culprit.rank == culprit


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_every_rank_answers(world_size: int, run) -> None:
    outcome = run("return {'sum': here.submission.total(here.inputs['x'])}", world_size)
    assert outcome.ending is Ending.ANSWERED
    sums = {rank.values["sum"].tolist()[0] for rank in outcome.ranks}
    assert sums == {float(sum(10**rank for rank in range(world_size)))}


def test_the_learners_own_rendezvous_meets_at_a_port_of_the_harness(run) -> None:
    body = """
        here.submission.init_process_group(
            here.rank, here.world_size, master_port=here.master_port)
        return {"sum": here.submission.total(here.inputs["x"])}
    """
    outcome = run(body, 3, group="learner")
    assert outcome.ending is Ending.ANSWERED
    assert {rank.ledger.store_port for rank in outcome.ranks} != {None}
    assert all(rank.values["sum"].tolist() == [111.0] * 3 for rank in outcome.ranks)


def test_an_import_that_fails_says_in_which_line(run) -> None:
    outcome = run("pass", submission="x = 1\nimport nothing_of_the_sort\n")
    assert outcome.ending is Ending.CRASHED
    ledger = outcome.culprit.ledger
    assert ledger.phase == "import"
    assert ledger.error["type"] == "ModuleNotFoundError"
    assert ledger.error["frames"][-1]["line"] == 2


def test_a_syntax_error_comes_with_its_line_and_caret(run) -> None:
    outcome = run("pass", submission="def f(:\n    pass\n")
    error = outcome.culprit.ledger.error
    assert error["type"] == "SyntaxError"
    assert error["frames"] == [{"file": "work.py", "line": 1, "function": ""}]
    line, caret = error["source"].splitlines()
    assert line[caret.index("^")] == ":"


def test_a_timeout_knows_where_the_rank_was(run) -> None:
    loop = "def spin():\n    while True:\n        pass\n"
    outcome = run("here.submission.spin()", 1, submission=loop, seconds=0.8)
    assert outcome.ending is Ending.TIMED_OUT
    assert 'work.py", line ' in outcome.ranks[0].stack


def test_too_little_memory_is_an_error_of_the_rank(run) -> None:
    outcome = run("torch.ones(10**9)", 1, group="none", memory_bytes=500_000_000)
    assert outcome.ending is Ending.CRASHED
    assert "allocate" in outcome.culprit.ledger.error["message"]


def test_output_is_kept_up_to_a_cap_and_the_rest_is_counted(run) -> None:
    outcome = run("for _ in range(100_000): print('x' * 49)", 2)
    assert outcome.ending is Ending.ANSWERED
    assert len(outcome.ranks[0].stdout) == 65_536
    assert outcome.ranks[0].dropped_bytes == 5_000_000 - 65_536


def test_what_a_rank_used_is_told(run) -> None:
    outcome = run("torch.ones(40_000_000).sum(); sum(range(3_000_000))", 1, group="none")
    assert outcome.ranks[0].cpu_s > 0.02
    assert outcome.ranks[0].peak_memory_bytes > 160_000_000


def test_a_peers_lost_connection_is_not_the_cause(run) -> None:
    body = """
        if here.rank == 1:
            os._exit(3)
        try:
            dist.barrier()
        finally:
            time.sleep(0.01)
    """
    outcome = run(body, 3)
    assert outcome.ending is Ending.NO_ANSWER
    assert outcome.culprit.rank == 1
    assert outcome.culprit.exit_code == 3


def test_ranks_that_are_done_stay_until_all_are(run) -> None:
    # A rank that left early would take its connections with it.
    body = (
        "if here.rank == 0: time.sleep(0.3)\nreturn {'s': here.submission.total(here.inputs['x'])}"
    )
    outcome = run(body, 3)
    assert outcome.ending is Ending.ANSWERED
    assert all(rank.ledger.state is State.RETURNED for rank in outcome.ranks)


def test_a_harness_rendezvous_that_cannot_be_made_is_nobodys_verdict(run) -> None:
    # The same name for the same thing: the meeting file is there already, and is a folder.
    sabotage = (
        "import os, pathlib\n(pathlib.Path.cwd().parent / 'meeting-0').mkdir(exist_ok=True)\n"
    )
    outcome = run("pass", submission=sabotage)
    assert outcome.ending is Ending.FAULT
    assert outcome.retries == 2
