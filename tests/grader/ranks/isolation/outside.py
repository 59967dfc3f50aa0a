"""What lies outside a sandbox and must stay as it is: files, a process, servers."""

from __future__ import annotations

import ctypes
import os
import select
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SECRET = "the solution"
VICTIM = """
import os, signal, sys
signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b"signalled\\n"))
os.write(1, b"ready\\n")
while True: signal.pause()
"""
DAEMON = f"ranks-{os.getpid()}"
"""The name of the processes that attacks try to leave behind; of this test process alone."""
LEFT = "ranks-left"
"""The name of what they leave in shared memory."""


class Outside:
    """Made for one attack; every question below is answered by looking, never by the rank."""

    def __init__(self, user: int) -> None:
        self._user = user
        self._temporary = tempfile.TemporaryDirectory(prefix="ranklings-outside-")
        self.folder = Path(self._temporary.name)
        self.folder.chmod(0o777)
        self.secret = self._file("solution.py", SECRET)
        self.results = self._file("results.json", "10 points")
        self.victim = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", VICTIM],
            stdout=subprocess.PIPE,
            env={"SECRET": SECRET},
        )
        if user != os.geteuid():
            self._replace_victim(user)
        assert self.victim.stdout
        self.victim.stdout.readline()
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.low_tcp = _low_port()
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(self.folder / "daemon.sock"))
        os.chmod(self.folder / "daemon.sock", 0o777)
        self.segments = set(_segments())
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0ranklings-outside-{os.getpid()}")
        for server in (self.unix, self.abstract):
            server.listen()

    def names(self) -> dict[str, Any]:
        """What an attacker could know of all this, as names in the body."""
        return {
            "folder": str(self.folder),
            "secret": str(self.secret),
            "results": str(self.results),
            "victim": self.victim.pid,
            "tcp": self.tcp.getsockname()[1],
            "low_tcp": self.low_tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "unix": str(self.folder / "daemon.sock"),
            "abstract": f"\0ranklings-outside-{os.getpid()}",
            "daemon": DAEMON,
        }

    def close(self) -> None:
        """Take it all away."""
        self.victim.kill()
        self.victim.wait()
        for closed in (self.tcp, self.low_tcp, self.udp, self.unix, self.abstract):
            closed.close()
        if self.victim.stdout:
            self.victim.stdout.close()
        if self.shared_memory_was_left():
            os.unlink(f"/dev/shm/{LEFT}")
        for left in set(_segments()) - self.segments:
            kind, _, number = left.partition(" ")
            _remove_segment(kind, int(number))
        self._temporary.cleanup()

    # What has happened

    def results_were_changed(self) -> bool:
        return not self.results.exists() or self.results.read_text("utf-8") != "10 points"

    def mode_was_changed(self) -> bool:
        return stat.S_IMODE(self.results.stat().st_mode) != 0o644

    def time_was_changed(self) -> bool:
        return self.results.stat().st_mtime < 1000

    def files_were_added(self) -> bool:
        return {path.name for path in self.folder.iterdir()} != {
            "solution.py", "results.json", "daemon.sock",
        }  # fmt: skip

    def victim_is_dead(self) -> bool:
        time.sleep(0.02)
        return self.victim.poll() is not None

    def victim_was_signalled(self) -> bool:
        return _is_readable(self.victim.stdout, 0.02)

    def victim_was_adjusted(self) -> bool:
        with open(f"/proc/{self.victim.pid}/oom_score_adj", encoding="ascii") as file:
            return file.read().strip() == "987"

    def victim_was_limited(self) -> bool:
        with open(f"/proc/{self.victim.pid}/limits", encoding="ascii") as file:
            return any(line.startswith("Max open files") and " 77 " in line for line in file)

    def was_reached(self, server: socket.socket) -> bool:
        return _is_readable(server, 0.02)

    def shared_memory_was_left(self) -> bool:
        return os.path.exists(f"/dev/shm/{LEFT}")

    def segments_were_left(self) -> bool:
        return bool(set(_segments()) - self.segments)

    def daemons(self) -> int:
        count = 0
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/comm", encoding="utf-8", errors="replace") as file:
                        count += file.read().strip() == DAEMON
                except OSError:
                    continue
        return count

    # Making it

    def _file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
        if self._user != os.geteuid():
            os.chown(path, self._user, self._user)
        return path

    def _replace_victim(self, user: int) -> None:
        """A victim of the sandbox's own user, by a Python that it may run."""
        from tests.grader.ranks.isolation.conftest import readable_python

        self.victim.kill()
        self.victim.wait()
        self.victim = subprocess.Popen(
            [readable_python(), "-I", "-S", "-c", VICTIM],
            stdout=subprocess.PIPE,
            env={"SECRET": SECRET},
            user=user,
            group=user,
            extra_groups=[],
        )


def _is_readable(source: Any, patience_s: float) -> bool:
    return bool(select.select([source], [], [], patience_s)[0])


def _low_port() -> socket.socket:
    """A server on a port that the system never gives out by itself."""
    for port in range(20_000 + os.getpid() % 5000, 32_000):
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError:
            continue
    raise AssertionError("no free port below the ephemeral ones")


def _remove_segment(kind: str, number: int) -> None:
    libc = ctypes.CDLL(None)
    if kind == "sem":
        libc.semctl(number, 0, 0)
    else:
        (libc.shmctl if kind == "shm" else libc.msgctl)(number, 0, None)


def _segments() -> list[str]:
    """System V objects of this machine that everybody may use, as those of the attack are."""
    found = []
    for kind in ("shm", "sem", "msg"):
        with open(f"/proc/sysvipc/{kind}", encoding="ascii") as file:
            rows = [line.split() for line in file]
        found += [f"{kind} {row[1]}" for row in rows if row[2].endswith("666")]
    return found
