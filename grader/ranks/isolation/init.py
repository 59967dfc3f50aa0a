"""The first process of a run: it outlives every rank, and tells how each one ended.

In a pid namespace it is pid 1: orphans become its children, and when it ends the kernel
kills all that is left. Elsewhere it adopts orphans and hunts them down itself.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from grader.ranks.isolation import layers, namespaces, privileges
from grader.ranks.isolation.layers import Support

END = b"\0"
"""On the control descriptor: end the run. Any other byte is a signal's number, for all ranks."""
_MAX_SWEEPS = 1000

Tell = Callable[[dict[str, Any]], None]


def prepare(support: Support) -> None:
    """What init does before it forks ranks, after `root.build`: die with the leader, adopt."""
    privileges.die_with_parent()
    privileges.hide_memory()
    if not support.has(layers.PID):
        privileges.adopt_orphans()


def serve(support: Support, ranks: Mapping[int, int], control: int, tell: Tell) -> None:
    """Stay with the ranks (pid → rank) until `control` says END or is closed; then kill all.

    Orphans are reaped as they end. Tells, of every rank when it ends, `{"exited": rank,
    "code": int | None, "signal": name or "", "cpu_s": seconds, "peak_memory_bytes": bytes,
    "killed": whether it was by the end of the run}`, and at last `{"loopback_bytes": bytes
    that went over the run's own `lo`, or None}`. The caller ends its process afterwards.
    """
    reaper = _Reaper(dict(ranks), tell)
    wake, wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # so that the descriptor below wakes us
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    reaper.sweep()  # those that ended before the handler was there
    while True:
        ready, _, _ = select.select([control, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            reaper.sweep()
        if control in ready:
            said = os.read(control, 64)
            if not said or END in said:
                break
            for number in said:
                reaper.signal_ranks(number)
    # Counted before the kill, while all sockets still are.
    counted = namespaces.loopback_bytes() if support.has(layers.NET) else None
    reaper.is_over = True
    if support.has(layers.PID):
        _kill_namespace()
    else:
        kill_descendants()
    reaper.wait_for_all()
    tell({"loopback_bytes": counted})


class _Reaper:
    def __init__(self, ranks: dict[int, int], tell: Tell) -> None:
        self._ranks = ranks
        self._tell = tell
        self.is_over = False

    def signal_ranks(self, number: int) -> None:
        for pid in self._ranks:  # not reaped yet, so the number is still theirs
            os.kill(pid, number)

    def sweep(self) -> None:
        while self._reap(os.WNOHANG):
            pass

    def wait_for_all(self) -> None:
        while self._reap(0):
            pass

    def _reap(self, options: int) -> bool:
        try:
            pid, status, usage = os.wait4(-1, options)
        except ChildProcessError:
            return False
        if pid in self._ranks:
            self._tell(describe_exit(self._ranks.pop(pid), status, usage, self.is_over))
        return pid != 0


def describe_exit(rank: int, status: int, usage: Any, killed: bool) -> dict[str, Any]:
    """How a rank ended, as plain JSON, from what wait4 gave."""
    code = os.waitstatus_to_exitcode(status)
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in KiB on Linux
    return {
        "exited": rank,
        "code": code if code >= 0 else None,
        "signal": signal.Signals(-code).name if code < 0 else "",
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_memory_bytes": usage.ru_maxrss * unit,
        "killed": killed and code == -signal.SIGKILL,
    }


def kill_descendants() -> None:
    """Kill every process below this one, which must have adopted orphans; reap them after.

    They are not reaped meanwhile: dead ones still count against the process limit, so a
    program that forks faster than it is killed runs dry.
    """
    for _ in range(_MAX_SWEEPS):
        alive = [pid for pid in _descendants() if _is_alive(pid)]
        if not alive:
            return
        for pid in alive:
            _kill(pid)


def kill_user(uid: int) -> None:
    """Kill every process of an unused user at once, wherever it hides. Needs root."""
    pid = os.fork()
    if not pid:
        try:
            privileges.become(uid)
            os.kill(-1, signal.SIGKILL)  # spares the one that asks, on Linux
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _kill_namespace() -> None:
    if os.getpid() != 1:
        raise RuntimeError("not the first process of a pid namespace")
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass  # nobody is left


def _descendants() -> list[int]:
    found: list[int] = []
    pending = [os.getpid()]
    while pending:
        children = _children(pending.pop())
        found += children
        pending += children
    return found


def _children(parent: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{parent}/task")
    except OSError:
        return []
    children: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{parent}/task/{thread}/children", encoding="ascii") as file:
                children += [int(pid) for pid in file.read().split()]
        except OSError:
            continue
    return children


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in ("Z", "X")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
