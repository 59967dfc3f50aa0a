"""What a rank may read: the interpreter, its libraries, and little else.

The lists are as narrow as Python and torch allow, not "all of /usr": courses live in
places like /usr/src/app, and homes hold interpreters.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable

SYSTEM = ("/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64",
          "/usr/libx32", "/usr/local/lib", "/usr/local/lib64", "/usr/share/zoneinfo")  # fmt: skip
"""Where the dynamic loader and the standard library look."""
ETC = ("/etc/ld.so.cache", "/etc/localtime")
"""Files of /etc that are the machine's; a new root has its own for the rest."""
ETC_LISTS = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf",
             "/etc/host.conf", "/etc/gai.conf")  # fmt: skip
"""Read by name look-ups, which are honest; where there is no new root they are the host's."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
PROC = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat")
LISTED = ("/sys/bus/pci/devices", "/sys/class/net")
"""Folders that Gloo wants to list; empty will do, and then nothing of what they link to."""


def interpreter() -> list[str]:
    """Files and folders of this Python and its packages, existing ones only.

    Not what `sys.path` has besides: a course that is installed for editing is on it too.
    """
    found = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += [path for path in sys.path if os.path.basename(path) in _PACKAGES]
    for prefix in {sys.prefix, sys.base_prefix}:
        found += [os.path.join(prefix, name) for name in ("lib", "lib64", "pyvenv.cfg")]
    found += [sys.executable, getattr(sys, "_base_executable", sys.executable)]
    found += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    found += _mapped_libraries()
    return _existing(found)


def readable(more: Iterable[str] = (), hidden: Iterable[str] = ()) -> list[str]:
    """Everything a rank may read on disk, plus `more`, without anything below `hidden`.

    Sorted, without what another entry covers already. Compute it once: it is the same for
    every run but for `more`.
    """
    wanted = _existing([*SYSTEM, *ETC, *interpreter(), *more])
    return covering(exclude(wanted, hidden))


def pci_buses() -> list[str]:
    """The folders of /sys with the devices of `LISTED`: where Gloo sees any, it reads of each."""
    try:
        links = [os.path.join(LISTED[0], name) for name in os.listdir(LISTED[0])]
    except OSError:
        return []
    # /sys/devices/pci0000:00/0000:00:01.0 → /sys/devices/pci0000:00
    return sorted({"/".join(os.path.realpath(link).split("/")[:4]) for link in links})


def covering(paths: Iterable[str]) -> list[str]:
    """`paths` sorted, without those that lie below another one."""
    kept: list[str] = []
    for path in sorted(set(paths), key=lambda p: p.rstrip("/") + "/"):
        if not kept or not is_below(path, kept[-1]):
            kept.append(path)
    return kept


def exclude(paths: Iterable[str], hidden: Iterable[str]) -> list[str]:
    """`paths`, where each one that holds something hidden is replaced by its other entries."""
    secrets = {os.path.realpath(path) for path in hidden}
    result: list[str] = []
    pending = list(paths)
    while pending:
        path = pending.pop()
        real = os.path.realpath(path)
        if any(is_below(real, secret) for secret in secrets):
            continue
        if any(is_below(secret, real) for secret in secrets):
            try:
                pending += [os.path.join(path, name) for name in os.listdir(path)]
            except OSError:
                continue
        else:
            result.append(path)
    return result


def is_below(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it; both absolute, nothing is looked up."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


_PACKAGES = ("site-packages", "dist-packages")


def _mapped_libraries() -> list[str]:
    """Shared libraries that this process has loaded, wherever it found them."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            fields = [line.rstrip("\n").split(None, 5) for line in file]
    except OSError:
        return []
    return sorted({f[5] for f in fields if len(f) == 6 and f[1][2] == "x" and f[5][0] == "/"})


def _existing(paths: Iterable[str | None]) -> list[str]:
    """Absolute, existing ones, each also under its real name: the loader follows links."""
    found: dict[str, None] = {}
    for path in paths:
        if path and os.path.isabs(path) and os.path.exists(path):
            path = os.path.normpath(path)
            found[path] = None
            found[os.path.realpath(path)] = None
    return list(found)
