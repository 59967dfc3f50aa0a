"""Attacks on a sandbox, judged from outside wherever they can be.

Every attack runs at every place, and the outcome must be what the layers that work there
promise, both ways: what a table says is still open has to be open.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from grader.ranks.isolation import layers
from grader.ranks.isolation.layers import Support
from tests.grader.ranks.isolation.conftest import UNPRIVILEGED, Sandbox
from tests.grader.ranks.isolation.outside import SECRET, Outside


def nowhere(_: Support) -> bool:
    return False


def without(*names: str) -> Callable[[Support], bool]:
    """Open where one of the layers is missing."""
    return lambda support: not all(support.has(name) for name in names)


@dataclass(frozen=True)
class Attack:
    body: str
    succeeded: Callable[[Outside, dict[str, Any]], bool]
    """Judged from outside; the rank's own findings count where nothing else can tell."""
    open_where: Callable[[Support], bool] = nowhere


def found(name: str) -> Callable[[Outside, dict[str, Any]], bool]:
    """Succeeded where the rank itself says so; a rank that died says nothing."""
    return lambda _, result: bool((result["found"][0] or {}).get(name))


def reached(server: str) -> Callable[[Outside, dict[str, Any]], bool]:
    return lambda outside, _: outside.was_reached(getattr(outside, server))


CONNECT = """
import socket
channel = socket.socket({family}, socket.SOCK_STREAM)
channel.settimeout(1)
channel.connect({address})
"""
CALL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
found["x"] = libc.{call} >= 0
"""

ATTACKS = {
    "reads a solution": Attack("found['x'] = open(secret).read()", lambda _, r: SECRET in str(r)),
    "reads it through /proc": Attack(
        "found['x'] = open(f'/proc/{victim}/root' + secret).read()", lambda _, r: SECRET in str(r)
    ),
    "reads another process's environment": Attack(
        "found['x'] = open(f'/proc/{victim}/environ').read()", lambda _, r: SECRET in str(r)
    ),
    "looks whether a solution is there": Attack(
        "import os; found['x'] = os.stat(secret).st_size", found("x"), without(layers.ROOT)
    ),
    "writes the results": Attack(
        "open(results, 'w').write('20 points')", lambda o, _: o.results_were_changed()
    ),
    "cuts the results short": Attack(
        "import os; os.truncate(results, 0)", lambda o, _: o.results_were_changed()
    ),
    "removes the results": Attack(
        "import os; os.unlink(results)", lambda o, _: o.results_were_changed()
    ),
    "renames over the results": Attack(
        "import os; open('x', 'w').close(); os.rename(scratch + '/x', results)",
        lambda o, _: o.results_were_changed(),
    ),
    "changes the results' mode": Attack(
        "import os; os.chmod(results, 0o777)", lambda o, _: o.mode_was_changed()
    ),
    "changes the results' time": Attack(
        "import os; os.utime(results, (1, 1))", lambda o, _: o.time_was_changed()
    ),
    "leaves a file": Attack("open(folder + '/new', 'w')", lambda o, _: o.files_were_added()),
    "links to a solution": Attack(
        "import os; os.link(secret, folder + '/link')", lambda o, _: o.files_were_added()
    ),
    "plants a module": Attack(
        "open(torch.__file__.replace('__init__.py', 'planted_by_a_test.py'), 'w').close()",
        lambda o, r: _planted(),
    ),
    "kills a process": Attack("import os; os.kill(victim, 9)", lambda o, _: o.victim_is_dead()),
    "signals everybody": Attack(
        # A signal that everybody else ignores: should the attack succeed, nothing happens.
        "import os, signal; os.kill(-1, signal.SIGWINCH)",
        lambda o, _: o.victim_was_signalled(),
    ),
    "signals by pidfd": Attack(
        "import os, signal; signal.pidfd_send_signal(os.pidfd_open(victim), 9)",
        lambda o, _: o.victim_is_dead(),
    ),
    "kills its parent": Attack(
        "import os, time; os.kill(os.getppid(), 9); time.sleep(0.1)",
        lambda _, r: not any("loopback_bytes" in said for said in r["told"]),
    ),
    "traces a process": Attack(CALL.format(call="ptrace(16, victim, 0, 0)"), found("x")),
    "traces its parent": Attack(
        "import os\n" + CALL.format(call="ptrace(16, os.getppid(), 0, 0)"), found("x")
    ),
    "writes its parent's memory": Attack(
        "import os; open(f'/proc/{os.getppid()}/mem', 'r+b'); found['x'] = True", found("x")
    ),
    "offers a process to the out-of-memory killer": Attack(
        "open(f'/proc/{victim}/oom_score_adj', 'w').write('987')",
        lambda o, _: o.victim_was_adjusted(),
    ),
    "limits a process": Attack(
        "import resource; resource.prlimit(victim, resource.RLIMIT_NOFILE, (77, 77))",
        lambda o, _: o.victim_was_limited(),
    ),
    "leaves a daemon": Attack(
        """
import ctypes, os, signal, time
if not os.fork():
    os.setsid()
    if not os.fork():
        ctypes.CDLL(None).prctl(15, daemon.encode())
        for number in range(1, 32):
            if number not in (9, 19): signal.signal(number, signal.SIG_IGN)
        time.sleep(30)
    os._exit(0)
time.sleep(0.1)
""",
        lambda o, _: o.daemons() > 0,
    ),
    "forks without end": Attack(
        """
import ctypes, os, time
pids = []
try:
    while len(pids) < most:
        pid = os.fork()
        if not pid:
            ctypes.CDLL(None).prctl(15, daemon.encode())
            time.sleep(30)
            os._exit(0)
        pids.append(pid)
finally:
    found["x"] = len(pids) == most
""",
        lambda o, r: found("x")(o, r) or o.daemons() > 0,
        without(layers.PROCESSES),
    ),
    "starts threads without end": Attack(
        """
import threading, time
started = 0
try:
    while started < 1000:
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
        started += 1
except RuntimeError: pass
found["x"] = started == 1000
""",
        found("x"),
    ),
    "takes 4 GB": Attack(
        "torch.empty(4_000_000_000, dtype=torch.uint8); found['x'] = True", found("x")
    ),
    "takes memory that no limit counts": Attack(
        "import os; os.memfd_create('x'); found['x'] = True", found("x")
    ),
    "fills the disk": Attack(
        """
for i in range(8):
    with open(f"x{i}", "wb") as file: file.write(bytes(16 << 20))
found["x"] = True
""",
        found("x"),
        without(layers.ROOT),
    ),
    "fills the disk with one file": Attack(
        "with open('x', 'wb') as f:\n    for _ in range(8): f.write(bytes(16 << 20))\n"
        "found['x'] = True",
        found("x"),
    ),
    "leaves shared memory": Attack(
        "open('/dev/shm/ranks-left', 'wb').write(b'x')", lambda o, _: o.shared_memory_was_left()
    ),
    "leaves System V segments": Attack(
        CALL.format(call="shmget(0, 4096, 0o1666)")
        + "libc.semget(0, 1, 0o1666); libc.msgget(0, 0o1666)",
        lambda o, _: o.segments_were_left(),
    ),
    "raises its limits": Attack(
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1)); found['x'] = True",
        found("x"),
    ),
    "becomes root": Attack(
        "import os; os.setuid(0); os.chroot('/'); found['x'] = True", found("x")
    ),
    "makes a namespace": Attack(CALL.format(call="unshare(0x10000000)"), found("x")),
    "makes a namespace by clone": Attack(
        """
import ctypes, os
number = 56 if os.uname().machine == "x86_64" else 220
pid = ctypes.CDLL(None).syscall(number, 0x10000011, 0, 0, 0, 0)
if not pid: os._exit(0)
found["x"] = pid > 0
""",
        found("x"),
    ),
    "mounts": Attack(CALL.format(call="mount(b'x', b'/proc', b'tmpfs', 0, 0)"), found("x")),
    "sets the host name": Attack(CALL.format(call="sethostname(b'x', 1)"), found("x")),
    "runs a program": Attack(
        "import os, sys; os.posix_spawn(sys.executable, ['x', '-c', ''], {}); found['x'] = True",
        found("x"),
    ),
    "runs a program that it wrote": Attack(
        """
import os, shutil, sys
shutil.copyfile(sys.executable, "x")
os.chmod("x", 0o755)
os.posix_spawn("./x", ["x", "-c", ""], {})
found["x"] = True
""",
        found("x"),
    ),
    "reaches a server": Attack(
        CONNECT.format(family="socket.AF_INET", address="('127.0.0.1', tcp)"),
        reached("tcp"),
        without(layers.NET),
    ),
    "reaches a server on a low port": Attack(
        CONNECT.format(family="socket.AF_INET", address="('127.0.0.1', low_tcp)"),
        reached("low_tcp"),
        lambda support: not support.has(layers.NET) and not support.has(layers.PORTS),
    ),
    "sends a datagram": Attack(
        "import socket\n"
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', udp))",
        reached("udp"),
    ),
    "reaches a UNIX socket": Attack(
        CONNECT.format(family="socket.AF_UNIX", address="unix"), reached("unix")
    ),
    "reaches an abstract UNIX socket": Attack(
        CONNECT.format(family="socket.AF_UNIX", address="abstract"), reached("abstract")
    ),
    "finds descriptors": Attack(
        """
import os
for fd in range(4, 256):
    try: os.fstat(fd)
    except OSError: continue
    found.setdefault("open", []).append(fd)
""",
        found("open"),
    ),
}  # fmt: skip


def _planted() -> bool:
    import torch

    return os.path.exists(torch.__file__.replace("__init__.py", "planted_by_a_test.py"))


@pytest.fixture
def outside(sandbox: Sandbox) -> Iterator[Outside]:
    is_other = "unprivileged" in sandbox.place and os.geteuid() == 0
    outside = Outside(UNPRIVILEGED if is_other else os.geteuid())
    yield outside
    outside.close()


def attempt(attack: Attack) -> str:
    """A body in which being refused is no error, and a mistake in the attack is one."""
    refusals = "(OSError, RuntimeError, MemoryError, ValueError)"
    return f"try:\n    exec({attack.body!r}, globals() | locals())\nexcept {refusals}: pass\n"


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(sandbox: Sandbox, outside: Outside, name: str) -> None:
    attack = ATTACKS[name]
    # With sockets, as in a run of several ranks: the harder case.
    has_group = name != "finds descriptors"  # a group opens some of its own
    names = outside.names() | {"most": 400}
    result = sandbox.run(attempt(attack), group=has_group, names=names)
    assert "error" not in (result["found"][0] or {}), result
    succeeded = attack.succeeded(outside, result)
    is_open = attack.open_where(sandbox.support)
    if not is_open:
        assert not succeeded, f"{name}: succeeded; {result}"
    elif not succeeded:
        pytest.fail(f"{name}: was stopped, where it is said to be open; {result}")


HARMFUL = {
    "plants a module": "would change this Python",
    "mounts": "would change this machine",
    "sets the host name": "would change this machine",
    "kills its parent": "would end the harness's own init",
    "traces its parent": "would stop the harness's own init",
    "leaves a daemon": "the leader of the harness reaps even without any layer",
    "finds descriptors": "closing them is no layer",
    "raises its limits": "where none are set there is nothing to raise",
    "links to a solution": "whether links may cross file systems is the machine's affair",
}
PRIVILEGED = {"becomes root", "writes its parent's memory"}


@pytest.mark.parametrize("sandbox", ["root", "unprivileged"], indirect=True)
@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in HARMFUL])
def test_attacks_succeed_without_layers(sandbox: Sandbox, outside: Outside, name: str) -> None:
    """Else the tests above could not fail."""
    if name in PRIVILEGED and sandbox.place != "root":
        pytest.skip("nobody but root could")
    names = outside.names() | {"most": 60}
    result = sandbox.run(ATTACKS[name].body, names=names, off="all")
    assert ATTACKS[name].succeeded(outside, result), result
