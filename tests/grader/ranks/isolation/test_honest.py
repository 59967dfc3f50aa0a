"""Honest work under every layer there is: it must come out as if there were none."""

from __future__ import annotations

import pytest

from grader.ranks.isolation import layers
from tests.grader.ranks.isolation.conftest import Sandbox

REDUCE = """
x = torch.full((1000,), float(rank + 1))
dist.all_reduce(x)
w = torch.ones(64, 64, requires_grad=True)
(w @ torch.ones(64, 8) * x[0]).sum().backward()
found["sum"], found["grad"] = x[0].item(), w.grad[0, 0].item()
"""
HONEST = {
    "threads of torch": (
        "torch.set_num_threads(4); x = torch.ones(900, 900); found['x'] = (x @ x[0]).sum().item()",
        900.0 * 900,
    ),
    "threads of Python": (
        """
import threading
total = []
threads = [threading.Thread(target=lambda i=i: total.append(i)) for i in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
found["x"] = sum(total)
""",
        28,
    ),
    "temporary files": (
        """
import os, shutil, tempfile
with tempfile.TemporaryDirectory() as folder:
    torch.save(torch.arange(5), os.path.join(folder, "a"))
    os.rename(os.path.join(folder, "a"), os.path.join(folder, "b"))
    os.makedirs(os.path.join(folder, "c", "d"))
    shutil.copyfile(os.path.join(folder, "b"), os.path.join(folder, "c", "d", "e"))
    found["x"] = torch.load(os.path.join(folder, "c", "d", "e")).sum().item()
""",
        10,
    ),
    "a large tensor": ("found['x'] = torch.ones(100_000_000).sum().item()", 1e8),
    "a late import": ("import sqlite3, wave, torch.fft; found['x'] = 1", 1),
    "a pipe and a child": (
        """
import os
read, write = os.pipe()
pid = os.fork()
if not pid:
    os.write(write, b"hello")
    os._exit(3)
found["x"] = [os.read(read, 5).decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]
""",
        ["hello", 3],
    ),
    "an event loop": (
        "import asyncio; found['x'] = asyncio.run(asyncio.sleep(0, 7))",
        7,
    ),
    "names of its own host and user": (
        """
import getpass, pwd, os, socket
found["x"] = [bool(socket.gethostname()), bool(socket.getaddrinfo("localhost", 80))]
""",
        [True, True],
    ),
}
WORKERS = """
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.arange(20)), batch_size=5, num_workers=2)
found["x"] = sum(batch.sum().item() for (batch,) in loader)
"""


def test_two_ranks_reduce_and_differentiate(sandbox: Sandbox) -> None:
    assert sandbox.threads == 1
    result = sandbox.run(REDUCE, ranks=2, group=True)
    assert result["found"] == [{"sum": 3.0, "grad": 24.0}] * 2, result


@pytest.mark.parametrize("name", HONEST)
def test_honest_work(sandbox: Sandbox, name: str) -> None:
    body, expected = HONEST[name]
    result = sandbox.run(body)
    assert result["found"] == [{"x": expected}], result


def test_data_loader_with_workers(sandbox: Sandbox) -> None:
    result = sandbox.run(WORKERS, workers=True)
    assert result["found"] == [{"x": 190}], result


def test_data_loader_needs_no_grant_where_everything_is_the_runs_own(sandbox: Sandbox) -> None:
    if not (sandbox.support.has(layers.ROOT) and sandbox.support.has(layers.NET)):
        pytest.skip(f"here it does: {sandbox.support.why_not(layers.ROOT)}")
    assert sandbox.run(WORKERS)["found"] == [{"x": 190}]


def test_running_a_program_fails_cleanly(sandbox: Sandbox) -> None:
    body = """
import subprocess
try: subprocess.run(["/usr/bin/true"])
except OSError as error: found["x"] = type(error).__name__
"""
    result = sandbox.run(body)
    assert result["found"][0]["x"] in ("PermissionError", "FileNotFoundError"), result
