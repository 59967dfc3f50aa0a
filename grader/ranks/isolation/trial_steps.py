"""What the probe's child is made of: telling how a layer went, and judging its effect."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from grader.ranks.isolation import landlock, layers, paths, privileges
from grader.ranks.isolation.layers import Layer, LayerFailed, Support


class Spoilt(Exception):
    """A layer is half in force: nothing that comes after could be judged in this process."""


class Trial:
    """Tries layers and says how it went; `failed` ones are known not to work."""

    def __init__(self, folder: str, failed: frozenset[str], write: int) -> None:
        self._write = write
        self.failed = set(failed)
        self.works: set[str] = set()
        self.marker = os.path.join(folder, "marker")
        self.scratch = os.path.join(folder, "scratch")
        self.mount_point = os.path.join(folder, "root")
        # Asked now: later they may be out of reach, and so may what answers.
        self.interpreter = paths.interpreter()

    def say(self, *words: object) -> None:
        """Write one line."""
        text = " ".join(str(word) for word in words).replace("\n", " ")
        os.write(self._write, text.encode(errors="replace")[:1000] + b"\n")

    def unneeded(self, name: str, why: str) -> None:
        """Leave a layer out, because nothing is missing without it."""
        self.failed.add(name)
        self.say("unneeded", name, why)

    def refuse(self, name: str, why: object) -> None:
        """Say that a layer does not work, and that the process is as it was."""
        self.failed.add(name)
        self.say("no", name, reason(why))

    @contextmanager
    def layer(self, name: str) -> Iterator[None]:
        """Try `name` inside; whatever is raised means that it does not work and spoils the rest."""
        self.say("try", name)
        try:
            yield
        except LayerFailed as error:
            self.say("no", error.layer, reason(error.__cause__))
            raise Spoilt from error
        except Exception as error:
            self.say("no", name, reason(error))
            raise Spoilt from error
        self.works.add(name)
        self.say("ok", name)

    def wanted(self, name: str) -> bool:
        """Whether `name` is still to be tried."""
        return name not in self.failed

    def support(self) -> Support:
        """What is in force so far."""
        abi = landlock.abi() if layers.LANDLOCK in self.works else 0
        return Support(tuple(Layer(name, True) for name in self.works), abi)


def in_child(work: Callable[[], None]) -> None:
    """Do `work` in a child that ends with it, and wait."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        privileges.die_with_parent()
        work()
    except Spoilt:
        pass
    finally:
        os._exit(0)


def require(condition: bool, otherwise: str) -> None:
    """Raise OSError with the text `otherwise` unless `condition` holds."""
    if not condition:
        raise OSError(0, otherwise)


def require_refused(
    step: Callable[[], object], numbers: tuple[int, ...], otherwise: str = ""
) -> None:
    """Take `step`, which must fail with one of the error `numbers`; raise OSError else."""
    try:
        step()
    except OSError as error:
        if error.errno in numbers:
            return
        raise
    raise OSError(0, otherwise or "it is in force, and has no effect")


def reason(error: object) -> str:
    """What a person should read of an error."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def read_byte(path: str) -> None:
    """Read from the file `path`; raises OSError."""
    with open(path, "rb") as file:
        file.read(1)


def write_byte(path: str) -> None:
    """Write to the file `path`; raises OSError."""
    with open(path, "wb") as file:
        file.write(b"x")


def connect(family: int, address: object) -> None:
    """Connect to a server and hang up; raises OSError."""
    with socket.socket(family, socket.SOCK_STREAM) as channel:
        channel.settimeout(1)
        channel.connect(address)  # type: ignore[arg-type]


def fork_and_wait() -> None:
    """Fork a child that ends at once; raises OSError."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
