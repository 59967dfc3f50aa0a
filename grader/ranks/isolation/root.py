"""A root of the run's own: the interpreter and the submission to read, a scratch to write.

Built by the run's init, in a mount namespace of its own, so that it goes when the run goes
and the leader keeps the machine's view. Nothing else of the disk has a name in it. Linux only.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import operator
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from grader.ranks.isolation import layers, paths, syscalls
from grader.ranks.isolation.layers import Support, applying
from grader.ranks.isolation.syscalls import MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY

_CLOSED = MS_NOSUID | MS_NODEV | MS_NOEXEC
_OPTIONS = {"ro": MS_RDONLY, "nosuid": MS_NOSUID, "nodev": MS_NODEV, "noexec": MS_NOEXEC,
            "noatime": 1 << 10, "nodiratime": 1 << 11, "relatime": 1 << 21}  # fmt: skip
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_EMPTY_FOLDERS = ("proc", "dev/shm", *(path[1:] for path in paths.LISTED))
_COPIED_PROC = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat")


@dataclass(frozen=True)
class RootPlan:
    """What the new root holds. All paths are absolute and the same inside as outside."""

    mount_point: str
    """An existing empty folder; nothing is written to it on disk."""
    read_only: Sequence[str]
    """`paths.readable(...)` with the submission: files and folders."""
    scratch: str
    """The folder that ranks may write to; it exists only inside."""
    scratch_bytes: int = 256 << 20
    scratch_files: int = 20_000
    shared_memory_bytes: int = 64 << 20
    """The size of /dev/shm."""
    uids: Sequence[int] = ()
    """The users of the ranks, who get a line in /etc/passwd."""


def build(support: Support, plan: RootPlan) -> None:
    """Make the new root and move this process into it; its folder is `/` afterwards.

    Without the layer `root` it does nothing. To be called by the run's init, which has one
    thread and is pid 1 of the new pid namespace.

    Raises:
        LayerFailed: it cannot be made, though it could when it was tried.
    """
    if support.has(layers.ROOT):
        with applying(layers.ROOT):
            build_one(plan, with_proc=support.has(layers.PROC))


def build_one(plan: RootPlan, *, with_proc: bool) -> None:
    """As `build`, without asking; raises OSError, and LayerFailed for /proc.

    Without `with_proc`, /proc holds a few copied files and nothing else.
    """
    syscalls.unshare(syscalls.CLONE_NEWNS, "mount")
    # Else every mount below would appear outside too.
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    new = plan.mount_point
    syscalls.mount("tmpfs", new, "tmpfs", MS_NOSUID | MS_NODEV, "size=8m,nr_inodes=16384,mode=755")
    _lay_out(new, plan)
    if not with_proc:
        _copy_proc(new)
    # All at once, and before what may be written or is a device.
    _add_flags(new, MS_RDONLY | MS_NOSUID | MS_NODEV)
    _mount_devices(new)
    _mount_scratch(new, plan)
    if with_proc:
        # Before the old root goes: unprivileged, the kernel wants to see a whole /proc already.
        with applying(layers.PROC):
            syscalls.mount("proc", new + "/proc", "proc", _CLOSED | MS_RDONLY)
    _pivot(new)


def _lay_out(new: str, plan: RootPlan) -> None:
    """Every folder and file that something is mounted on later, and what can be read only."""
    os.umask(0o022)
    for folder in (*_EMPTY_FOLDERS, plan.scratch[1:]):
        os.makedirs(os.path.join(new, folder), exist_ok=True)
    _write_etc(new, plan)
    for path in plan.read_only:
        _bind(path, new)
    for path in paths.DEVICES:
        open(new + path, "x", encoding="ascii").close()


def _mount_devices(new: str) -> None:
    for path in paths.DEVICES:
        syscalls.mount(path, new + path, flags=syscalls.MS_BIND)
        # Its bytes can be written all the same, but not its owner and mode.
        _add_flags(new + path, MS_RDONLY | MS_NOSUID)


def _mount_scratch(new: str, plan: RootPlan) -> None:
    syscalls.mount(
        "tmpfs", new + plan.scratch, "tmpfs", _CLOSED,
        f"size={plan.scratch_bytes},nr_inodes={plan.scratch_files},mode=1777",
    )  # fmt: skip
    syscalls.mount(
        "tmpfs", new + "/dev/shm", "tmpfs", _CLOSED,
        f"size={plan.shared_memory_bytes},nr_inodes=1024,mode=1777",
    )  # fmt: skip


def _bind(path: str, new: str) -> None:
    target = new + path
    real = os.path.realpath(path)
    if os.path.lexists(target):
        return  # a folder on the way to another one, or a link that is there already
    if real != path and os.path.isdir(path):
        # `/lib` → `usr/lib`. Relative, so that it never leads out of the new root.
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(os.path.relpath(real, os.path.dirname(path)), target)
        return
    if os.path.isdir(path):
        os.makedirs(target)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "x", encoding="ascii").close()
    # Recursively: the kernel forbids to lay bare what a mount below covers.
    syscalls.mount(path, target, flags=syscalls.MS_BIND | syscalls.MS_REC)


def _write_etc(new: str, plan: RootPlan) -> None:
    """Names are looked up in these files only: no lookup ever waits for a network."""
    people = [
        f"rank{i}:x:{uid}:{uid}::{plan.scratch}:/bin/false" for i, uid in enumerate(plan.uids)
    ]
    if os.getuid() not in plan.uids:
        people.insert(0, f"init:x:{os.getuid()}:{os.getgid()}::/:/bin/false")
    files = {
        "passwd": people,
        "group": [f"{line.split(':')[0]}:x:{line.split(':')[3]}:" for line in people],
        "hosts": ["127.0.0.1 localhost", "::1 localhost", "::ffff:127.0.0.1 localhost"],
        "nsswitch.conf": ["passwd: files", "group: files", "hosts: files"],
    }
    os.makedirs(new + "/etc", exist_ok=True)
    for name, lines in files.items():
        with open(f"{new}/etc/{name}", "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))


def _copy_proc(new: str) -> None:
    for path in _COPIED_PROC:
        try:
            with open(path, "rb") as source, open(new + path, "wb") as copy:
                copy.write(source.read(1 << 18))
        except OSError:
            continue  # a convenience for code that counts processors


def _add_flags(path: str, flags: int) -> None:
    """Add `flags` to the mount at `path` and to all below it; none is ever taken off."""
    # These three flags have the same value in both calls.
    data = ctypes.create_string_buffer(struct.pack("4Q", flags, 0, 0, 0))
    try:
        syscalls.syscall(
            "mount_setattr", _AT_FDCWD, os.fsencode(path), _AT_RECURSIVE, data, 32,
            doing=f"mount_setattr({path})",
        )  # fmt: skip
    except OSError as error:
        if error.errno != errno.ENOSYS:  # it came with Linux 5.12
            raise
        _remount_each(path, flags)


def _remount_each(path: str, flags: int) -> None:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        rows = [line.split() for line in file]
    for row in rows:
        target = row[4].encode().decode("unicode_escape")
        if paths.is_below(target, path):
            # What the mount had stays: unprivileged, the kernel forbids to take it off.
            kept = [_OPTIONS.get(option, 0) for option in row[5].split(",")]
            remount = syscalls.MS_BIND | syscalls.MS_REMOUNT | flags
            syscalls.mount("none", target, flags=functools.reduce(operator.or_, kept, remount))


def _pivot(new: str) -> None:
    os.chdir(new)
    syscalls.syscall("pivot_root", b".", b".")
    # The old root now lies on top of the new one, under the same name.
    syscalls.unmount(".", syscalls.MNT_DETACH)
    os.chdir("/")
