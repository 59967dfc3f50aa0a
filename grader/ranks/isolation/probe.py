"""Which layers work on this machine: each one tried, in a child, and judged by its effect.

Nothing is inferred from the kernel's version or the user: containers, AppArmor and gVisor
all say yes to one step and no to the next. The layers are tried together and in order, as a
run applies them. Where one fails half-way the child is spoilt, and another goes on without it.

Call `probe` before torch is imported: it forks a few times, and a small process forks fast.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field

from grader.ranks.isolation import layers
from grader.ranks.isolation.layers import Layer, Support

_PATIENCE_S = 5.0
_SYSCTLS = {
    # hint: (file, the value that forbids)
    "apparmor": ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    "userns_clone": ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
    "max_user_namespaces": ("/proc/sys/user/max_user_namespaces", "0"),
}
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


@dataclass
class _Found:
    layers: dict[str, Layer] = field(default_factory=dict)
    trying: str = ""
    landlock_abi: int = 0
    is_complete: bool = False


def probe() -> Support:
    """Try every layer; takes 20 to 40 ms in a process without torch. Never raises.

    The calling process is left as it was.
    """
    if not sys.platform.startswith("linux"):
        return layers.nothing(f"{sys.platform} has none of the layers; Linux does")
    found = _Found()
    remembered = tempfile.tempdir
    try:
        folder = tempfile.mkdtemp(prefix="ranklings-probe-")
    except OSError as error:
        return layers.nothing(f"no temporary folder: {error}")
    finally:
        # Else ranks forked later would look for their temporary files there, not in a scratch.
        tempfile.tempdir = remembered
    try:
        os.chmod(folder, 0o755)  # an unused user must reach the scratch in it
        for _ in layers.NAMES:
            known = len(found.layers)
            _try_once(folder, found)
            if found.is_complete or len(found.layers) == known:
                break
    except OSError as error:
        return layers.nothing(f"the probe could not run: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    entries = tuple(
        found.layers.get(name, Layer(name, False, "the probe did not get to it"))
        for name in layers.NAMES
    )
    support = Support(entries, found.landlock_abi)
    return Support(entries, found.landlock_abi, _hints(support))


def _try_once(folder: str, found: _Found) -> None:
    """One child that tries every layer which is not known to fail."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(read)
            os.setpgid(0, 0)
            # Not imported above: the module needs Linux.
            from grader.ranks.isolation import trial

            failed = frozenset(name for name, layer in found.layers.items() if not layer.works)
            trial.run(folder, failed, write)
        finally:
            os._exit(1)
    os.close(write)
    try:
        said, is_late = _read_all(read)
    finally:
        os.close(read)
        _kill_group(pid)
        _, status = os.waitpid(pid, 0)
    _take(said, found)
    if not found.is_complete and found.trying not in found.layers:
        how = "it hung" if is_late else f"its process ended ({os.waitstatus_to_exitcode(status)})"
        found.layers[found.trying] = Layer(found.trying, False, how)


def _read_all(fd: int) -> tuple[str, bool]:
    """What is written until every writer is gone, and whether that took too long."""
    data = b""
    deadline = time.monotonic() + _PATIENCE_S
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([fd], [], [], left)[0]:
            break
        part = os.read(fd, 65_536)
        if not part:
            return data.decode(errors="replace"), False
        data += part
    return data.decode(errors="replace"), True


def _take(said: str, found: _Found) -> None:
    found.trying = ""
    for line in said.splitlines():
        verb, _, rest = line.partition(" ")
        name, _, why = rest.partition(" ")
        if verb == "try":
            found.trying = name
        elif verb == "abi":
            found.landlock_abi = int(name)
        elif verb == "done":
            found.is_complete = True
        else:
            found.layers[name] = Layer(name, verb == "ok", why, verb != "unneeded")


def _hints(support: Support) -> tuple[str, ...]:
    """Keys of `levels.FIXES` that apply: only where a namespace is missing."""
    if all(support.has(name) for name in (layers.NET, layers.PID, layers.ROOT)):
        return ()
    hints = [name for name, (path, value) in _SYSCTLS.items() if _contents(path) == value]
    if any(os.path.exists(path) for path in _CONTAINER_MARKS):
        hints.append("container_user" if os.geteuid() else "container_root")
    return tuple(hints)


def _contents(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
