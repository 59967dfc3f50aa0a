"""The leader's part: namespaces that its children are born into. Linux only.

Call `enter` in a process with one thread that is about to fork the run's init. After it the
*next* child is pid 1 of the run, and the caller itself may not start a thread any more
(the kernel refuses one whose pid namespace would differ).
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from grader.ranks.isolation import layers, privileges, syscalls
from grader.ranks.isolation.layers import Support, applying

_FLAGS = {
    layers.NET: syscalls.CLONE_NEWNET,
    layers.IPC: syscalls.CLONE_NEWIPC,
    layers.UTS: syscalls.CLONE_NEWUTS,
    layers.PID: syscalls.CLONE_NEWPID,
}
ORDER = tuple(_FLAGS)

_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 0x1
_IFREQ = struct.Struct("16sH22x")


def enter(support: Support) -> None:
    """Enter every namespace that works here, except that of mounts, which is `root.build`'s.

    Raises:
        LayerFailed: one that worked when it was tried does not work now.
    """
    for name in (layers.USER, *ORDER):
        if support.has(name):
            with applying(name):
                enter_one(name)


def enter_one(name: str) -> None:
    """Enter one namespace, and make it usable: ids mapped, loopback up, a host name.

    Raises:
        OSError: it cannot be entered.
    """
    if name == layers.USER:
        _enter_user_namespace()
        return
    syscalls.unshare(_FLAGS[name], name)
    if name == layers.NET:
        raise_loopback()
    elif name == layers.UTS:
        syscalls.set_host_name("localhost")  # a name that /etc/hosts knows


def needs_user_namespace() -> bool:
    """Whether the other namespaces can only be had inside a user namespace of one's own."""
    return not privileges.has_capability(privileges.CAP_SYS_ADMIN)


def _enter_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    # A process that changed its uid owns its own /proc files again only when dumpable.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    syscalls.unshare(syscalls.CLONE_NEWUSER, "user")
    # The same ids inside as outside: nothing that looks at owners has to know.
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def raise_loopback() -> None:
    """Switch on `lo`, which a new network namespace has, but down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        request = _IFREQ.pack(b"lo", 0)
        (_, flags) = _IFREQ.unpack(fcntl.ioctl(channel, _SIOCGIFFLAGS, request))
        fcntl.ioctl(channel, _SIOCSIFFLAGS, _IFREQ.pack(b"lo", flags | _IFF_UP))


def loopback_bytes() -> int | None:
    """Bytes that went over `lo` in this network namespace so far; None where it is unknown.

    Headers count too, so it is an upper bound of what the ranks sent each other, and one that
    nobody inside a rank can forge.
    """
    try:
        with open("/proc/self/net/dev", encoding="ascii") as file:
            lines = [line.partition(":") for line in file]
    except OSError:
        return None
    for name, _, counters in lines:
        if name.strip() == "lo":
            return int(counters.split()[0])
    return None


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        raise OSError(error.errno, f"{path}: {error.strerror}") from error
