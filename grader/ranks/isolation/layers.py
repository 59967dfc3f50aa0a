"""The layers of isolation by name, and which of them work on a machine.

This is plain data, on purpose: the grader reads it too, where no layer is ever applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

USER = "user"
NET = "net"
IPC = "ipc"
UTS = "uts"
PID = "pid"
ROOT = "root"
PROC = "proc"
UID = "uid"
LIMITS = "limits"
PROCESSES = "processes"
CAPABILITIES = "capabilities"
NO_NEW_PRIVILEGES = "no_new_privileges"
LANDLOCK = "landlock"
SCOPES = "scopes"
PORTS = "ports"
SECCOMP = "seccomp"

NAMES: Mapping[str, str] = {
    USER: "user namespace",
    NET: "network namespace",
    IPC: "ipc namespace",
    UTS: "host name namespace",
    PID: "pid namespace",
    ROOT: "new root",
    PROC: "fresh /proc",
    UID: "unused uid",
    LIMITS: "memory limit",
    PROCESSES: "process limit",
    CAPABILITIES: "dropped capabilities",
    NO_NEW_PRIVILEGES: "no new privileges",
    LANDLOCK: "landlock",
    SCOPES: "landlock scopes",
    PORTS: "landlock ports",
    SECCOMP: "syscall filter",
}
"""Every layer in the order in which it is applied, with its name for people."""


class LayerFailed(Exception):
    """A layer that worked when it was tried does not work now: the run must not go on.

    Going on without it would weaken a grading that has already said how well it is isolated.
    """

    def __init__(self, layer: str, error: object) -> None:
        super().__init__(f"isolation layer {NAMES.get(layer, layer)!r} failed: {error}")
        self.layer = layer


@contextmanager
def applying(layer: str) -> Iterator[None]:
    """Turns a refusal of the system inside into a LayerFailed."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise LayerFailed(layer, error) from error


@dataclass(frozen=True)
class Layer:
    """One layer as it was tried on this machine."""

    name: str
    works: bool
    why: str = ""
    """Why it does not work, or is not needed."""
    is_needed: bool = True
    """False where another layer does its work: root needs no user namespace."""


@dataclass(frozen=True)
class Support:
    """What the probe found. A run applies every layer that works, or does not take place."""

    layers: tuple[Layer, ...] = ()
    landlock_abi: int = 0
    """The best version there is; each one covers more. 0: none."""
    hints: tuple[str, ...] = ()
    """Keys of `levels.FIXES` that this machine asks for."""

    def has(self, name: str) -> bool:
        """Whether the layer `name` works, and so is part of every run."""
        return any(layer.works for layer in self.layers if layer.name == name)

    def why_not(self, name: str) -> str:
        """Why the layer `name` is missing; empty when it is there or not needed."""
        for layer in self.layers:
            if layer.name == name:
                return "" if layer.works or not layer.is_needed else layer.why
        return "not tried"

    def without(self, names: Iterable[str], why: str = "switched off") -> Support:
        """The same machine with some layers left out."""
        left_out = frozenset(names)
        layers = tuple(
            replace(layer, works=False, why=why) if layer.name in left_out else layer
            for layer in self.layers
        )
        return replace(
            self,
            layers=layers,
            landlock_abi=0 if LANDLOCK in left_out else self.landlock_abi,
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "layers": [[e.name, e.works, e.why, e.is_needed] for e in self.layers],
            "landlock_abi": self.landlock_abi,
            "hints": list(self.hints),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Support:
        """What `to_json` wrote."""
        return cls(
            tuple(Layer(*entry) for entry in data["layers"]),
            int(data["landlock_abi"]),
            tuple(data["hints"]),
        )


def nothing(why: str) -> Support:
    """Support where no layer can be had at all."""
    return Support(tuple(Layer(name, False, why) for name in NAMES))
