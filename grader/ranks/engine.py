"""Runs rank programs on fresh ranks, fast: one warm zygote, forked once a run.

    with Engine() as engine:
        outcome = engine.run(request)

`run` may be called from several threads at a time.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from grader.ranks.inside import wire
from grader.ranks.outcome import Ending, Outcome, Request
from grader.ranks.run import Run

RETRIES = 2
"""How often a rendezvous of the harness's own that failed is made again."""
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "SYSTEMROOT")
_ZYGOTE_START_S = 120.0


class EngineError(Exception):
    """The grader or the machine is at fault: no rank could be run."""


def can_fork() -> bool:
    """Whether a process that has imported torch may be forked: not on macOS."""
    return sys.platform.startswith("linux")


class Engine:
    """Starts runs. `fork=False` uses a fresh interpreter for every rank of every run."""

    def __init__(self, fork: bool | None = None) -> None:
        self._fork = can_fork() if fork is None else fork
        self._lock = threading.Lock()
        self._zygote: _Zygote | None = None
        self._folder = Path(tempfile.mkdtemp(prefix=f"ranklings-{os.getpid()}-"))
        self._runs = 0
        self._is_closed = threading.Event()
        _remove_leftovers(self._folder.parent)

    @property
    def start_method(self) -> str:
        """`fork` or `spawn`."""
        return "fork" if self._fork else "spawn"

    @property
    def zygote_pid(self) -> int | None:
        """The zygote's process id, while there is one."""
        return self._zygote.pid if self._zygote else None

    def warm_up(self) -> None:
        """Begin to start the zygote; `run` waits until it is there."""
        if self._fork:
            with self._lock:
                self._warm()

    def run(self, request: Request) -> Outcome:
        """Run `request` on fresh ranks and come back when every one of them is gone.

        Raises:
            EngineError: the run could not be made at all.
            RunCancelled: the engine was closed meanwhile.
        """
        retries = 0
        while True:
            outcome = self._run_once(request)
            if outcome.ending is not Ending.FAULT or retries == RETRIES:
                outcome.retries = retries
                return outcome
            retries += 1

    def close(self) -> None:
        """End every run and the zygote, and remove every file."""
        self._is_closed.set()
        with self._lock:
            if self._zygote:
                self._zygote.close()
                self._zygote = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run_once(self, request: Request) -> Outcome:
        with _pipes(request) as (read_ends, write_ends):
            control, leaders_end = socket.socketpair()
            job = {"job": self._job(request)}
            with leaders_end:
                if self._fork:
                    self._hand_to_zygote(job, (leaders_end.fileno(), *write_ends))
                else:
                    _spawn_leader(leaders_end, self._folder)
                    wire.send_message(control, job, tuple(write_ends))
            run = Run(request, control, read_ends.take(), self._is_closed.is_set)
        return run.follow()

    def _job(self, request: Request) -> dict[str, Any]:
        with self._lock:
            self._runs += 1
            number = self._runs
        return {
            "world_size": request.world_size,
            "submission": str(request.submission),
            "module": request.module,
            "programs": dict(request.programs),
            "program": request.program,
            "group": request.group,
            "memory_bytes": request.memory_bytes,
            "deadline_s": request.seconds,
            "run_folder": str(self._folder / f"run-{number}"),
            "delays_s": list(request.delays_s),
        }

    def _hand_to_zygote(self, job: dict[str, Any], fds: tuple[int, ...]) -> None:
        with self._lock:
            for attempt in (1, 2):
                try:
                    wire.send_message(self._warm().channel, job, fds)
                    return
                except (OSError, wire.Disconnected) as error:
                    # It may have been killed, for want of memory say: once more with a new one.
                    if self._zygote:
                        self._zygote.close()
                        self._zygote = None
                    if attempt == 2 or self._is_closed.is_set():
                        raise EngineError(
                            f"the process that starts ranks ended: {error}"
                        ) from error

    def _warm(self) -> _Zygote:
        if self._zygote is None:
            self._zygote = _Zygote(self._folder)
        return self._zygote


class _Zygote:
    """The grader's end of the zygote process."""

    def __init__(self, folder: Path) -> None:
        self._channel, theirs = socket.socketpair()
        self._log = (folder / "zygote.log").open("w+b")
        with theirs:
            self._process = subprocess.Popen(
                _python("grader.ranks.inside.zygote", str(theirs.fileno()), str(folder)),
                pass_fds=(theirs.fileno(),),
                env=clean_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._is_ready = False

    @property
    def channel(self) -> socket.socket:
        """Where jobs go; waits until the zygote is warm.

        Raises:
            EngineError: it did not start.
        """
        if not self._is_ready:
            self._channel.settimeout(_ZYGOTE_START_S)
            try:
                hello, _ = wire.receive_message(self._channel)
            except (wire.Disconnected, OSError) as error:
                raise EngineError(self._why_not(error)) from error
            if hello["threads"] != 1:
                raise EngineError(
                    f"the process that starts ranks has {hello['threads']} threads, where forking "
                    "is only safe with one; unset OMP_NUM_THREADS and the like, or report this"
                )
            self._channel.settimeout(None)
            self._is_ready = True
        return self._channel

    def _why_not(self, error: Exception) -> str:
        self._log.seek(0)
        lines = self._log.read()[-4000:].decode(errors="replace").strip().splitlines()
        said = lines[-1] if lines else str(error)
        return f"the process that starts ranks could not start: {said}"

    def close(self) -> None:
        self._channel.close()
        try:
            self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class _Ends:
    """The read ends of a run's pipes, closed unless somebody takes them."""

    def __init__(self) -> None:
        self.fds: list[tuple[int, int, int]] = []

    def take(self) -> list[tuple[int, int, int]]:
        fds, self.fds = self.fds, []
        return fds


@contextmanager
def _pipes(request: Request) -> Iterator[tuple[_Ends, list[int]]]:
    """Per rank three pipes out and a file in; the ranks' ends are closed here afterwards."""
    read_ends, write_ends, files = _Ends(), [], []
    try:
        for rank in range(request.world_size):
            pairs = [os.pipe() for _ in range(3)]
            read_ends.fds.append((pairs[0][0], pairs[1][0], pairs[2][0]))
            file = _memory_file(request.inputs[rank])
            files.append(file)
            write_ends += [pair[1] for pair in pairs] + [file.fileno()]
        yield read_ends, write_ends
    finally:
        for file in files:
            write_ends.remove(file.fileno())
            file.close()
        for fd in write_ends:
            os.close(fd)
        for fds in read_ends.take():
            for fd in fds:
                os.close(fd)


def _memory_file(data: bytes) -> IO[bytes]:
    file: IO[bytes]
    if hasattr(os, "memfd_create"):
        file = os.fdopen(os.memfd_create("inputs"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(data)
    file.seek(0)
    return file


def _spawn_leader(leaders_end: socket.socket, folder: Path) -> None:
    process = subprocess.Popen(
        _python("grader.ranks.inside.leader", str(leaders_end.fileno()), str(folder)),
        pass_fds=(leaders_end.fileno(),),
        env=clean_environment(),
        cwd="/",
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    threading.Thread(target=process.wait, daemon=True).start()


def _python(module: str, fd: str, folder: str) -> list[str]:
    # -s: no user site-packages; -P: the current folder is not on the path. The folder is only
    # there to be seen in a list of processes: whose these are.
    return [sys.executable, "-s", "-P", "-m", module, fd, folder]


def clean_environment() -> dict[str, str]:
    """The environment of a process that will run a submission: nothing of the grader's own.

    The thread variables must be there before Python starts: forking a torch process that
    ever had a second thread hangs in the child.
    """
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return kept | {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",  # else every thread reserves 64 MB of address space
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        # torch asks the resolver for the name of ::ffff:127.0.0.1 at every rendezvous; where
        # the answer gets lost, that is a stall of 1 s with this and of 5 s without.
        "RES_OPTIONS": "timeout:1 attempts:1",
        "MPLBACKEND": "Agg",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _remove_leftovers(folder: Path) -> None:
    """Folders of gradings that were killed before they could remove them."""
    for path in folder.glob("ranklings-*-*"):
        pid = path.name.split("-")[1]
        if pid.isdigit() and not _is_alive(int(pid)):
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
