"""A run as a whole: how it ends, what init tells of it, and that nothing of it is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grader.ranks.isolation import layers, uids
from grader.ranks.isolation.layers import Layer, Support
from tests.grader.ranks.isolation.conftest import ENVIRONMENT, Sandbox
from tests.grader.ranks.isolation.outside import DAEMON, LEFT, Outside

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="these tests were not started by root")


def python(code: str) -> str:
    """What a fresh process of this user prints."""
    return subprocess.run(
        [sys.executable, "-s", "-P", "-c", code],
        env=ENVIRONMENT,
        capture_output=True,
        check=True,
        encoding="utf-8",
    ).stdout.strip()


def test_init_tells_how_every_rank_ended(sandbox: Sandbox) -> None:
    body = """
import os, signal
if rank == 0: os._exit(7)
if rank == 1: os.kill(os.getpid(), signal.SIGSEGV)
found["x"] = sum(i * i for i in range(300_000))
"""
    told = {said["exited"]: said for said in sandbox.run(body, ranks=3)["told"] if "exited" in said}
    assert (told[0]["code"], told[0]["signal"], told[0]["killed"]) == (7, "", False)
    assert (told[1]["code"], told[1]["signal"], told[1]["killed"]) == (None, "SIGSEGV", False)
    assert (told[2]["code"], told[2]["signal"], told[2]["killed"]) == (None, "SIGKILL", True)
    assert told[2]["cpu_s"] > 0.005
    assert 50e6 < told[2]["peak_memory_bytes"] < 2e9


def test_bytes_on_the_loopback_are_counted_outside_the_ranks(sandbox: Sandbox) -> None:
    body = "x = torch.ones({}); dist.all_reduce(x)"
    counted = [
        sandbox.run(body.format(size), ranks=2, group=True)["told"][-1]["loopback_bytes"]
        for size in (10, 100_000)
    ]
    if not sandbox.support.has(layers.NET):
        assert counted == [None, None]
        return
    sent = 2 * 4 * 100_000  # a float32 is sent once by each of two ranks
    assert sent < counted[1] - counted[0] < 1.2 * sent


def test_nothing_is_left_of_many_runs(sandbox: Sandbox) -> None:
    bodies = [
        "found['x'] = 1",
        "import os; os._exit(1)",
        "import os\nif not os.fork(): os.setsid(); os.fork(); import time; time.sleep(60)",
        "open('x', 'wb').write(bytes(1000)); open('/dev/shm/ranks-left', 'wb')",
    ]

    def traces() -> tuple[list[str], list[str], list[str], str, list[str]]:
        children = Path(f"/proc/{sandbox.pid}/task/{sandbox.pid}/children").read_text("ascii")
        mounts = Path("/proc/mounts").read_text("utf-8").splitlines()
        fds = os.listdir(f"/proc/{sandbox.pid}/fd")
        files = os.listdir(sandbox.path("."))
        left = [name for name in os.listdir("/dev/shm") if name == LEFT]
        return sorted(fds), mounts, files, children, left

    before = traces()
    for body in bodies * 5:
        sandbox.run(body)
    assert traces() == before


def test_a_layer_that_no_longer_works_stops_the_run() -> None:
    """Silently going on without it would make the level a lie."""
    support = Support((Layer(layers.NET, True),))
    said = python(f"""
from grader.ranks.isolation import layers, namespaces, privileges, seccomp
from grader.ranks.isolation.layers import Layer, LayerFailed, Support
privileges.forbid_new_privileges()
seccomp.install(seccomp.refusing(["unshare"]))
try: namespaces.enter({support!r})
except LayerFailed as error: print(error.layer, error)
""")
    assert said.startswith("net isolation layer 'network namespace' failed: ")
    assert "Operation not permitted" in said


@as_root
def test_two_runs_never_share_users() -> None:
    first, second = uids.claim(), uids.claim()
    try:
        assert not set(first.uids) & set(second.uids)
        assert len(first.uids) == uids.PER_RUN
        assert min(first.uids) >= 60_000
    finally:
        first.close()
        second.close()


@as_root
def test_all_processes_of_a_user_can_be_killed_at_once() -> None:
    claim = uids.claim()
    outside = Outside(os.geteuid())
    try:
        said = python(f"""
import ctypes, os, time
from grader.ranks.isolation import init, privileges
uid = {claim.uids[0]}
read, write = os.pipe()
for _ in range(5):
    if not os.fork():
        privileges.become(uid)
        os.setsid()
        ctypes.CDLL(None).prctl(15, b"{DAEMON}")
        os.write(write, b"x")
        time.sleep(60)
        os._exit(0)
while len(os.read(read, 1)) and (n := globals().get("n", 0) + 1) < 5: pass
init.kill_user(uid)
ended = [os.waitstatus_to_exitcode(os.waitpid(-1, 0)[1]) for _ in range(5)]
print(ended)
""")
        assert said == str([-9] * 5)
        assert outside.daemons() == 0
    finally:
        outside.close()
        claim.close()


def test_descriptors_are_closed_however_high() -> None:
    said = python("""
import os, resource
from grader.ranks.isolation import privileges
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
high = min(hard, 100_000) - 1
os.dup2(1, high)
os.dup2(1, 9)
privileges.close_descriptors((0, 1, 2, 9))
def is_open(fd):
    try: os.fstat(fd)
    except OSError: return False
    return True
print([is_open(fd) for fd in (0, 1, 2, 3, 9, high)])
""")
    assert said == str([True, True, True, False, True, False])


def test_remounting_one_by_one_as_older_kernels_need(sandbox: Sandbox) -> None:
    """Before Linux 5.12 there is no call for a whole tree of mounts."""
    if sandbox.place != "root" or not sandbox.support.has(layers.ROOT):
        pytest.skip("once is enough, where there is a new root")
    said = python(f"""
import errno, os, tempfile
from grader.ranks.isolation import namespaces, paths, root, syscalls
real = syscalls.syscall
def old(name, *arguments, **more):
    if name == "mount_setattr": raise OSError(errno.ENOSYS, name)
    return real(name, *arguments, **more)
syscalls.syscall = old
namespaces.enter_one("pid")
pid = os.fork()
if not pid:
    plan = root.RootPlan({sandbox.path("root")!r}, paths.readable(), "/tmp/scratch")
    root.build_one(plan, with_proc=True)
    rows = [line.split() for line in open("/proc/self/mountinfo")]
    print(sorted(row[4] for row in rows if "ro" not in row[5].split(",")), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
""")
    assert said == str(["/dev/shm", "/tmp/scratch"])
