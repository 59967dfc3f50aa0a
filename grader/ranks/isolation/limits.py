"""How much a rank may use: address space, time, processes, files. Linux only."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of one rank. They hold per process, but for `processes`: per user."""

    memory_bytes: int
    """Address space above what the process has when the limits are set; 0: no limit.

    Threads reserve 64 MB of it each unless MALLOC_ARENA_MAX=1 was set before Python started.
    """
    cpu_s: int = 0
    """Processor time; 0: no limit."""
    processes: int = 48
    """Processes and threads, of the run where a user or a pid namespace is its own."""
    file_bytes: int = 256 << 20
    """The size of any one file."""
    open_files: int = 256


def own_bytes() -> int | None:
    """The address space of this process in bytes; None where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return None


def processes_of(uid: int) -> int:
    """Processes and threads that a user has now, as far as /proc shows them."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += os.stat(f"/proc/{name}/task").st_nlink - 2
            except OSError:
                continue  # it ended meanwhile
    return count


def apply(limits: Limits, own: int | None) -> None:
    """Set `limits` for this process and its children, for ever.

    `own` is what `own_bytes` says of this process, or said before /proc was cut off.

    Raises:
        OSError, ValueError: the system refuses one of them.
    """
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
        resource.setrlimit(kind, (0, 0))
    if limits.cpu_s:
        # The hard limit kills; the soft one, which a handler can catch, says why before.
        _lower(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1)
    if limits.memory_bytes and own is not None:
        _lower(resource.RLIMIT_AS, own + limits.memory_bytes)
    _lower(resource.RLIMIT_NPROC, limits.processes)
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    _lower(resource.RLIMIT_NOFILE, limits.open_files)


def used_bytes(folder: str) -> int:
    """What the files below `folder` take on disk; for a scratch without a size of its own."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except OSError:
                continue
    return total


def _lower(kind: int, soft: int, hard: int | None = None) -> None:
    _, most = resource.getrlimit(kind)
    wanted = soft if hard is None else hard
    hard = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(kind, (min(soft, hard), hard))
