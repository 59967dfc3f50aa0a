"""What a process may do: its user, its capabilities, and never more than now. Linux only."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Iterable

from grader.ranks.isolation import syscalls

CAP_SETGID = 6
CAP_SETUID = 7
CAP_SETPCAP = 8
CAP_SYS_ADMIN = 21

_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_VERSION_3 = 0x2008_0522
_LAST_POSSIBLE = 63


def has_capability(number: int) -> bool:
    """Whether this process has the capability, effective now."""
    sets = ctypes.create_string_buffer(24)
    syscalls.syscall("capget", _header(), sets)
    low, _, _, high, _, _ = struct.unpack("6I", sets.raw)
    return bool((high << 32 | low) >> number & 1)


def may_change_user() -> bool:
    """Whether this process can become another user and group."""
    return has_capability(CAP_SETUID) and has_capability(CAP_SETGID)


def become(uid: int) -> None:
    """Become user and group `uid`, with no other group, for ever."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def drop_bounding_set() -> None:
    """Give up for ever what an exec could bring back. Needs root: before `become`."""
    if not has_capability(CAP_SETPCAP):
        return  # such a process has no_new_privs against the same thing
    for number in range(_LAST_POSSIBLE + 1):
        try:
            syscalls.prctl(_PR_CAPBSET_READ, number)
        except OSError:
            return  # beyond the kernel's last one
        syscalls.prctl(_PR_CAPBSET_DROP, number)


def drop_capabilities() -> None:
    """Give up every ambient, inheritable, permitted and effective capability."""
    syscalls.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    syscalls.syscall("capset", _header(), struct.pack("6I", *[0] * 6))


def forbid_new_privileges() -> None:
    """No exec of this process or its children ever gives more than they have."""
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


def hide_memory() -> None:
    """No other process of the same user may trace this one or open its /proc files."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def die_with_parent() -> None:
    """Be killed when the parent ends. The kernel forgets it at every change of user: repeat."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of whatever one's descendants leave behind."""
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)


def be_killed_first() -> None:
    """When memory runs out, this process and its children go before the grader.

    To be called before `hide_memory`, which makes the file unwritable.
    """
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        pass  # only a preference; the memory limits hold without it


def close_descriptors(keep: Iterable[int]) -> None:
    """Close every descriptor but those in `keep`, however high its number."""
    first = 0
    for fd in sorted(keep):
        if first < fd:  # an empty range closes everything, in some Pythons
            os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, 2**31 - 1)


def _header() -> bytes:
    return struct.pack("Ii", _VERSION_3, 0)
