"""The system calls that Python has no name for, by ctypes; Linux only.

Every function raises OSError with the kernel's own reason, and says what it was doing:
`[Errno 1] unshare(user): Operation not permitted`.
"""

from __future__ import annotations

import ctypes
import os
import platform

CLONE_NEWNS = 0x0002_0000
CLONE_NEWCGROUP = 0x0200_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000
MNT_DETACH = 0x2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_NUMBERS = {
    # name: (x86_64, aarch64)
    "pivot_root": (155, 41),
    "seccomp": (317, 277),
    "capget": (125, 90),
    "capset": (126, 91),
    "mount_setattr": (442, 442),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}
MACHINES = ("x86_64", "aarch64")

_libc = ctypes.CDLL(None, use_errno=True)


def machine() -> int | None:
    """The column of this machine in tables of call numbers: 0 x86_64, 1 aarch64, or None."""
    name = {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine(), platform.machine())
    is_64_bit = ctypes.sizeof(ctypes.c_void_p) == 8
    return MACHINES.index(name) if name in MACHINES and is_64_bit else None


def syscall(name: str, *arguments: object, doing: str = "") -> int:
    """Make the call `name`; integers, bytes, None and ctypes objects are passed as they are."""
    column = machine()
    if column is None:
        raise OSError(38, f"{name}: its number on {platform.machine()} is not known")
    number = ctypes.c_long(_NUMBERS[name][column])
    passed = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    _libc.syscall.restype = ctypes.c_long
    return _checked(_libc.syscall(number, *passed), doing or name)


def unshare(flag: int, name: str) -> None:
    """Leave the namespace of kind `flag` for a new one; `name` is for the error."""
    _checked(_libc.unshare(flag), f"unshare({name})")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2)."""
    _checked(
        _libc.mount(
            source.encode(),
            os.fsencode(target),
            kind.encode() or None,
            ctypes.c_ulong(flags),
            options.encode() or None,
        ),
        f"mount({kind or source} on {target})",
    )


def unmount(target: str, flags: int = 0) -> None:
    """umount2(2)."""
    _checked(_libc.umount2(os.fsencode(target), flags), f"umount({target})")


def prctl(option: int, value: int = 0, *more: int) -> int:
    """prctl(2)."""
    arguments = [ctypes.c_ulong(a) for a in (value, *more, 0, 0, 0)[:4]]
    return _checked(_libc.prctl(option, *arguments), f"prctl({option})")


def set_host_name(name: str) -> None:
    """sethostname(2)."""
    data = name.encode()
    _checked(_libc.sethostname(data, len(data)), "sethostname")


def shared_segment() -> int:
    """A System V shared memory segment, by its number, that goes when this process ends.

    It is attached and then marked for removal, so that nobody has to remove it.
    """
    segment = _checked(_libc.shmget(0, 4096, 0o1600), "shmget")
    _libc.shmat.restype = ctypes.c_void_p
    attached = _libc.shmat(segment, None, 0)
    number = ctypes.get_errno()
    _checked(_libc.shmctl(segment, 0, None), "shmctl")
    if attached == ctypes.c_void_p(-1).value:
        raise OSError(number, "shmat")
    return segment


def sees_segment(segment: int) -> bool:
    """Whether this process can look the System V segment up by its number."""
    buffer = ctypes.create_string_buffer(512)
    return bool(_libc.shmctl(segment, 2, buffer) == 0)


def _checked(result: int, doing: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")
    return result
