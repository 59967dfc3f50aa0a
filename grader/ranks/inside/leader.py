"""The leader of one run: starts its ranks, holds the deadline, kills and reaps them all.

It never loads the submission, so a deadline kept here cannot be switched off by one. It
is in a session of its own and adopts whatever its ranks leave behind; when the grader
goes away its end of the control channel closes, and the run ends too.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from typing import Any, NoReturn

from grader.ranks.inside import wire
from grader.ranks.inside.rank import IMPORTING, MEETING, STACK_SIGNAL, Job, Plumbing, stack_file

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STACK_S = 0.1
"""How long ranks get to write down where they are."""
_MAX_STACK = 8_192
_START_S = 60.0
"""What the harness may take to get a rank ready; a fresh interpreter imports torch first."""
_POLL_S = 0.01
"""How often exits are looked for where the kernel has no descriptor for a process."""


class Leader:
    """Leads one run to its end."""

    def __init__(self, job: Job, control: socket.socket, ranks: list[tuple[int, ...]], fork: bool):
        self._job = job
        self._control = control
        self._rank_fds = ranks
        self._fork = fork
        self._pids: dict[int, int] = {}
        """pid → rank, of the ranks that live."""
        self._others: list[int] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ready, self._ready_end = os.pipe()
        self._go_end, self._go = os.pipe()
        self._ready_to_import = 0
        self._ready_to_run = 0
        self._deadline = time.monotonic() + _START_S

    def lead(self) -> None:
        """Start the ranks and stay with them until the run is over."""
        try:
            os.mkdir(self._job.run_folder, 0o700)
            self._start()
            self._follow()
        finally:
            self._kill_all()
            shutil.rmtree(self._job.run_folder, ignore_errors=True)
        self._tell({"over": True})

    def _start(self) -> None:
        if self._job.group == "learner":
            self._job.master_port = self._start_store()
        for rank, (report, out, err, inputs) in enumerate(self._rank_fds):
            plumbing = Plumbing(report, out, err, inputs, self._ready_end, self._go_end)
            start = self._fork_rank if self._fork else self._spawn_rank
            self._pids[start(rank, plumbing)] = rank
        for fds in self._rank_fds:
            for fd in fds:
                os.close(fd)
        os.close(self._ready_end)
        os.close(self._go_end)

    def _fork_rank(self, rank: int, plumbing: Plumbing) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            _die_with_parent()
            from grader.ranks.inside import rank as rank_module

            rank_module.run(self._job, rank, plumbing)
        finally:
            os._exit(70)  # only a fault of the harness gets here

    def _spawn_rank(self, rank: int, plumbing: Plumbing) -> int:
        numbers = list(asdict(plumbing).values())
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps(asdict(self._job)).encode())
            file.seek(0)
            arguments = json.dumps([rank, numbers, file.fileno()])
            return self._spawn("grader.ranks.inside.rank", arguments, (*numbers, file.fileno()))

    def _spawn(self, module: str, argument: str, fds: tuple[int, ...]) -> int:
        command = [sys.executable, "-s", "-P", "-m", module, argument]
        process = subprocess.Popen(command, pass_fds=fds)
        self._processes.append(process)  # when collected, a Popen reaps its child unasked
        return process.pid

    def _start_store(self) -> int:
        read, write = os.pipe()
        if self._fork:
            pid = os.fork()
            if not pid:
                try:
                    _die_with_parent()
                    from grader.ranks.inside import rendezvous

                    rendezvous.serve(write)
                finally:
                    os._exit(70)
        else:
            pid = self._spawn("grader.ranks.inside.rendezvous", str(write), (write,))
        self._others.append(pid)
        os.close(write)
        with os.fdopen(read, "rb") as file:
            return int(file.readline())

    # While it runs

    def _follow(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ, self._on_control)
            selector.register(self._ready, selectors.EVENT_READ, self._on_ready)
            has_pidfd = hasattr(os, "pidfd_open")
            if has_pidfd:
                for pid in self._pids:
                    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, self._reap)
            while True:
                left = self._deadline - time.monotonic()
                if left <= 0:
                    self._tell({"deadline": True, "stacks": self._ask_where()})
                    return
                for key, _ in selector.select(left if has_pidfd else min(left, _POLL_S)):
                    if key.data(selector, key):
                        return
                if not has_pidfd:
                    self._reap_any()

    def _on_control(self, _selector: selectors.BaseSelector, _key: selectors.SelectorKey) -> bool:
        """Any message means "end the run"; so does silence, when the grader is gone."""
        return True

    def _on_ready(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> bool:
        """Ranks say when they begin to import and when they could run.

        The clock of the submission starts when the last one begins, and again when all are let
        go, so that a slow start of the harness is on nobody's account.
        """
        said = os.read(self._ready, 64)
        self._ready_to_import += said.count(IMPORTING)
        self._ready_to_run += said.count(MEETING)
        size = self._job.world_size
        if IMPORTING in said and self._ready_to_import >= size:
            self._deadline = time.monotonic() + self._job.deadline_s
        if self._ready_to_run >= size:
            os.write(self._go, b"g" * size)
            self._deadline = time.monotonic() + self._job.deadline_s
        if not said or self._ready_to_run >= size:
            selector.unregister(key.fileobj)
        return False

    def _reap(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> bool:
        selector.unregister(key.fileobj)
        os.close(key.fd)
        self._reap_any()
        return False

    def _reap_any(self) -> None:
        for pid in list(self._pids):
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done:
                self._tell_exit(self._pids.pop(pid), status, usage)

    def _tell_exit(self, rank: int, status: int, usage: Any) -> None:
        code = os.waitstatus_to_exitcode(status)
        # ru_maxrss is in KiB on Linux and in bytes on macOS.
        unit = 1 if sys.platform == "darwin" else 1024
        self._tell(
            {
                "exited": rank,
                "code": code if code >= 0 else None,
                "signal": signal.Signals(-code).name if code < 0 else "",
                "cpu_s": usage.ru_utime + usage.ru_stime,
                "peak_memory_bytes": usage.ru_maxrss * unit,
            }
        )

    def _ask_where(self) -> dict[str, str]:
        """The Python stack of every rank that lives, by rank: also of one stuck in C."""
        for pid in self._pids:
            _signal(pid, STACK_SIGNAL)
        time.sleep(_STACK_S)
        stacks = {}
        for rank in self._pids.values():
            try:
                with open(stack_file(self._job.run_folder, rank), "rb") as file:
                    stacks[str(rank)] = file.read(_MAX_STACK).decode(errors="replace")
            except OSError:
                continue
        return stacks

    def _tell(self, body: dict[str, Any]) -> None:
        try:
            wire.send_message(self._control, body)
        except OSError:
            pass  # the grader is gone; what is left is to clean up

    # The end

    def _kill_all(self) -> None:
        """Kill every rank and every process that one of them started, and reap them."""
        for pid in (*self._pids, *self._others):
            _kill(pid)
        for pid in list(self._pids):
            _, status, usage = os.wait4(pid, 0)
            self._tell_exit(self._pids.pop(pid), status, usage)
        for pid in self._others:
            os.waitpid(pid, 0)
        # As a subreaper this process is now the parent of whatever they left behind.
        while children := _children():
            for pid in children:
                _kill(pid)
                os.waitpid(pid, 0)


def lead(job: Job, control: socket.socket, ranks: list[tuple[int, ...]], fork: bool) -> NoReturn:
    """Be the leader of `job`'s run, and never return.

    `ranks` has, per rank, the descriptors of its report, stdout, stderr and inputs.
    """
    try:
        os.setsid()
    except PermissionError:
        pass  # it leads one already
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = 0
    try:
        Leader(job, control, ranks, fork).lead()
    except Exception as error:
        code = 70
        try:
            wire.send_message(control, {"fault": f"{type(error).__name__}: {error}"})
        except OSError:
            pass
    finally:
        os._exit(code)


def _children() -> list[int]:
    try:
        with open("/proc/thread-self/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _kill(pid: int) -> None:
    _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def main() -> NoReturn:
    """A leader in a fresh interpreter: where there is no safe fork."""
    control = socket.socket(fileno=int(sys.argv[1]))
    body, fds = wire.receive_message(control)
    lead(Job(**body["job"]), control, per_rank(fds), fork=False)


def per_rank(fds: tuple[int, ...]) -> list[tuple[int, ...]]:
    """`fds` as one (report, stdout, stderr, inputs) a rank."""
    return [tuple(fds[i : i + 4]) for i in range(0, len(fds), 4)]


if __name__ == "__main__":
    main()
