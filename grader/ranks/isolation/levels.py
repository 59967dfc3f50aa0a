"""What is protected on this machine, in one word and in one line.

The word says what holds, not by which mechanism: a container without namespaces may reach
the same as a machine without Landlock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from grader.ranks.isolation import layers
from grader.ranks.isolation.layers import Support

Level = Literal["strong", "partial", "basic"]
LEVELS: tuple[Level, ...] = ("basic", "partial", "strong")
"""Weakest first, so that positions can be compared."""

_TRUNCATE_ABI, _UNIX_PATHS_ABI = 3, 9

FIXES: Mapping[str, str] = {
    "apparmor": "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    "userns_clone": "sudo sysctl -w kernel.unprivileged_userns_clone=1",
    "max_user_namespaces": "sudo sysctl -w user.max_user_namespaces=16384",
    "container_root": "docker run --cap-add SYS_ADMIN --security-opt apparmor=unconfined …",
    "container_user": "docker run --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined …",
}
"""What a person would type, by the hint of the probe; the first that fits is shown."""

_WANTED = (layers.USER, layers.NET, layers.PID, layers.ROOT, layers.LANDLOCK, layers.SECCOMP,
           layers.LIMITS, layers.PROCESSES)  # fmt: skip


@dataclass(frozen=True)
class Protection:
    """The promises that hold for a run."""

    files_hidden: bool
    """Nothing can be read but the interpreter, the submission and the scratch."""
    names_hidden: bool
    """Not even the existence, size and time of a file."""
    files_unwritable: bool
    grader_unreachable: bool
    """No process outside can be signalled, traced, or read."""
    no_network: bool
    """No socket outside the run can be reached, loopback included."""
    all_reaped: bool


def protection(support: Support) -> Protection:
    """What the layers of `support` protect together."""
    has = support.has
    landlock, seccomp, root = has(layers.LANDLOCK), has(layers.SECCOMP), has(layers.ROOT)
    own_user = has(layers.UID)
    # chmod and the like are not Landlock's; cutting files short is since ABI 3.
    modes_safe = own_user or seccomp
    cuts_safe = support.landlock_abi >= _TRUNCATE_ABI or seccomp
    no_signals = has(layers.PID) or own_user or has(layers.SCOPES) or seccomp
    no_tracing = own_user or (landlock and seccomp) or (has(layers.PID) and (root or landlock))
    unreachable = no_signals and no_tracing and has(layers.NO_NEW_PRIVILEGES)
    unix_safe = root or seccomp or support.landlock_abi >= _UNIX_PATHS_ABI
    return Protection(
        files_hidden=root or landlock,
        names_hidden=root,
        files_unwritable=root or (landlock and modes_safe and cuts_safe),
        grader_unreachable=unreachable,
        no_network=has(layers.NET) and unix_safe,
        # Without a pid namespace the leader hunts them down, if it cannot be killed first.
        all_reaped=has(layers.PID) or unreachable,
    )


def level(support: Support) -> Level:
    """How well a run is isolated here."""
    kept = protection(support)
    partial = (
        kept.files_hidden
        and kept.files_unwritable
        and kept.grader_unreachable
        and kept.all_reaped
    )  # fmt: skip
    if not partial:
        return "basic"
    return "strong" if kept.no_network else "partial"


def fix(support: Support) -> str:
    """The one command that would raise the level here; empty where there is none, or no need."""
    if level(support) == "strong":
        return ""
    return next((command for hint, command in FIXES.items() if hint in support.hints), "")


def describe(
    support: Support, *, memory_bytes: int = 0, processes: int = 0, disk_bytes: int = 0
) -> str:
    """One line for the start of a grading: the level, by what, and what is missing and why."""
    found = level(support)
    if found == "basic":
        parts = [_basic(support)]
    else:
        parts = [_files(support), _processes(support), _network(support)]
        if amounts := _amounts(support, memory_bytes, processes, disk_bytes):
            parts.append(amounts)
        if support.has(layers.SECCOMP):
            parts.append("syscalls filtered")
    if found != "strong" and (missing := _missing(support)):
        parts.append(f"MISSING {missing}")
    if command := fix(support):
        parts.append(f"to fix: {command}")
    return f"isolation: {found} — " + " · ".join(parts)


def _basic(support: Support) -> str:
    kept = protection(support)
    can = [
        text
        for text, holds in (
            ("read this user's files", not kept.files_hidden),
            ("change this user's files", not kept.files_unwritable),
            ("reach this user's processes", not kept.grader_unreachable),
            ("use the network", not kept.no_network),
        )
        if holds
    ]
    last = " and ".join(filter(None, [", ".join(can[:-1]), can[-1]])) if can else "misbehave"
    return f"code can {last}. Do not grade untrusted code here."


def _files(support: Support) -> str:
    ways = []
    if support.has(layers.ROOT):
        ways.append("new root")
    if support.has(layers.LANDLOCK):
        ways.append(f"landlock {support.landlock_abi}")
    if not support.has(layers.ROOT):
        return f"files: {', '.join(ways)} (names and sizes visible)"
    return f"files hidden ({', '.join(ways)})"


def _processes(support: Support) -> str:
    if support.has(layers.PID):
        return "processes: pid namespace"
    return "processes: a user of their own" if support.has(layers.UID) else "signals blocked"


def _network(support: Support) -> str:
    if support.has(layers.NET):
        return "network: none outside the case"
    if support.has(layers.PORTS):
        return "network: SHARED, TCP to high ports only"
    return "network: SHARED"


def _amounts(support: Support, memory_bytes: int, processes: int, disk_bytes: int) -> str:
    words = []
    if memory_bytes and support.has(layers.LIMITS):
        words.append(f"{memory_bytes / 2**30:.3g} GiB a rank")
    if processes and support.has(layers.PROCESSES):
        words.append(f"{processes} processes")
    if disk_bytes:
        disk = f"{disk_bytes / 2**20:.0f} MiB disk"
        words.append(disk if support.has(layers.ROOT) else f"{disk}, watched")
    return ", ".join(words)


def _missing(support: Support) -> str:
    """Layers that are wanted and not there, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for name in _WANTED:
        if reason := support.why_not(name):
            by_reason.setdefault(reason, []).append(layers.NAMES[name])
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())
