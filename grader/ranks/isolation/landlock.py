"""Landlock: what this process may open, from now on and for ever. Linux 5.13 and later.

Needs no privilege. Below a new root it is the second lock; where namespaces are refused
(Docker) it is the first. It does not cover chmod, utime and stat, so `seccomp` does what
it can about those.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from grader.ranks.isolation import paths, syscalls

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_DIR = 1 << 4, 1 << 5, 1 << 6, 1 << 7
_MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK = 1 << 8, 1 << 9, 1 << 10, 1 << 11
_MAKE_SYM, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 12, 1 << 13, 1 << 14, 1 << 15
_RESOLVE_UNIX = 1 << 16

_SINCE = {  # ABI → what it can refuse; older ones leave it open
    1: (1 << 13) - 1,
    2: _REFER,
    3: _TRUNCATE,
    5: _IOCTL_DEV,
    9: _RESOLVE_UNIX,
}
ABI_TRUNCATE, ABI_PORTS, ABI_SCOPES, ABI_UNIX_PATHS = 3, 4, 6, 9

_READ = _READ_FILE | _READ_DIR
_WRITE = (
    _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SOCK | _MAKE_FIFO
    | _MAKE_SYM | _REFER | _TRUNCATE | _RESOLVE_UNIX
)  # fmt: skip
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1, 2
_RULE_PATH, _RULE_PORT = 1, 2
_VERSION_QUERY = 1
_ABI_AUDIT, _NO_AUDIT_LOG = 7, 1


def abi() -> int:
    """The best ABI of this kernel.

    Raises:
        OSError: there is none, or it is switched off.
    """
    return syscalls.syscall("landlock_create_ruleset", None, 0, _VERSION_QUERY, doing="landlock")


def restrict_files(
    best_abi: int,
    readable: Iterable[str],
    writable: Iterable[str],
    listed: Iterable[str] = (),
    *,
    scopes: bool = True,
) -> None:
    """Refuse every file but `readable` ones to read and `writable` ones to read and write.

    Of `listed` folders only the names may be read. Nothing may be executed, and what does
    not exist is left out. With `scopes` (ABI 6), no process outside can be signalled
    and no abstract UNIX socket of theirs be reached.

    Needs no_new_privs. Raises OSError.
    """
    handled = sum(rights for since, rights in _SINCE.items() if since <= best_abi)
    scoped = _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if scopes and best_abi >= ABI_SCOPES else 0
    with _ruleset(best_abi, handled, 0, scoped) as ruleset:
        for rights, wanted in ((_READ, readable), (_READ | _WRITE, writable), (_READ_DIR, listed)):
            for path in wanted:
                _allow_path(ruleset, path, rights & handled)
        _enforce(best_abi, ruleset)


def restrict_tcp(best_abi: int, bind: Iterable[int], connect: Iterable[int]) -> None:
    """Refuse TCP but for binding to the ports `bind` (0: one the kernel chooses) and
    connecting to the ports `connect`.

    A port takes 2 µs, the whole ephemeral range 60 ms: so it is called once, by the process
    that all ranks are forked from. Needs ABI 4 and no_new_privs. Raises OSError.
    """
    with _ruleset(best_abi, 0, _BIND_TCP | _CONNECT_TCP, 0) as ruleset:
        for rights, ports in ((_BIND_TCP, bind), (_CONNECT_TCP, connect)):
            for port in ports:
                rule = struct.pack("QQ", rights, port)
                syscalls.syscall("landlock_add_rule", ruleset, _RULE_PORT, rule, 0)
        _enforce(best_abi, ruleset)


def ephemeral_ports() -> range:
    """The ports that this system gives to sockets that ask for none."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        low, high = (int(word) for word in file.read().split())
    return range(low, high + 1)


@contextmanager
def _ruleset(best_abi: int, files: int, ports: int, scoped: int) -> Iterator[int]:
    size = 24 if best_abi >= ABI_SCOPES else 16 if best_abi >= ABI_PORTS else 8
    attributes = struct.pack("QQQ", files, ports, scoped)[:size]
    buffer = ctypes.create_string_buffer(attributes, size)
    fd = syscalls.syscall("landlock_create_ruleset", buffer, size, 0)
    try:
        yield fd
    finally:
        os.close(fd)


def _allow_path(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not there, or not for this user: nothing to allow
    try:
        if not os.path.isdir(path):
            rights &= _OF_A_FILE
        rule = struct.pack("=Qi", rights, fd)
        syscalls.syscall(
            "landlock_add_rule", ruleset, _RULE_PATH, rule, 0, doing=f"landlock {path}"
        )
    finally:
        os.close(fd)


def _enforce(best_abi: int, ruleset: int) -> None:
    # A learner's loop over forbidden files must not fill the machine's audit log.
    flags = _NO_AUDIT_LOG if best_abi >= _ABI_AUDIT else 0
    syscalls.syscall("landlock_restrict_self", ruleset, flags)


READ_ALWAYS = (*paths.ETC, *paths.ETC_LISTS, *paths.DEVICES, *paths.PROC)
"""Small things of the system that honest code reads, new root or not."""
