"""A rank's last steps before the submission is loaded: give up all that can be given up.

Call it when everything the harness needs is open and imported: afterwards nothing outside
the readable list can be opened. None of it can be undone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from grader.ranks.isolation import (
    landlock,
    layers,
    limits,
    paths,
    privileges,
    seccomp,
)
from grader.ranks.isolation.layers import Support, applying
from grader.ranks.isolation.limits import Limits

SHARED_USER_SLACK = 256
"""Where the count of processes is the whole user's, others may start some meanwhile."""


@dataclass(frozen=True)
class RankPlan:
    """What one rank may do."""

    scratch: str
    """The folder it may write to; it exists, and belongs to `uid` where there is one."""
    readable: Sequence[str]
    """`paths.readable(...)` with the submission, as in the root's plan."""
    limits: Limits = field(default_factory=lambda: Limits(memory_bytes=0))
    uid: int | None = None
    """The unused user to become; of no effect where the layer `uid` does not work."""
    network: bool = True
    """Whether it needs a process group."""
    workers: bool = False
    """Whether it may have DataLoader workers where that opens UNIX sockets and /dev/shm."""
    own_bytes: int | None = None
    """`limits.own_bytes()` from before the new root, for where that has no /proc."""


def confine(support: Support, plan: RankPlan) -> None:
    """Confine this process to `plan` with every layer that works here.

    Raises:
        LayerFailed: one that worked when it was tried does not work now.
    """
    own = limits.own_bytes() or plan.own_bytes
    if support.has(layers.CAPABILITIES):
        with applying(layers.CAPABILITIES):
            privileges.drop_bounding_set()
    if support.has(layers.UID) and plan.uid is not None:
        with applying(layers.UID):
            privileges.become(plan.uid)
    privileges.die_with_parent()  # forgotten with the old user
    privileges.hide_memory()
    if support.has(layers.LIMITS):
        with applying(layers.LIMITS):
            limits.apply(_counting(support, plan.limits), own)
    if support.has(layers.CAPABILITIES):
        with applying(layers.CAPABILITIES):
            privileges.drop_capabilities()
    if support.has(layers.NO_NEW_PRIVILEGES):
        with applying(layers.NO_NEW_PRIVILEGES):
            privileges.forbid_new_privileges()
    if support.has(layers.LANDLOCK):
        with applying(layers.LANDLOCK):
            restrict_files(support, plan)
    if support.has(layers.SECCOMP):
        with applying(layers.SECCOMP):
            program = seccomp.rank_filter(
                support, os.getpid(), network=plan.network, workers=plan.workers
            )
            seccomp.install(program)


def restrict_files(support: Support, plan: RankPlan) -> None:
    """Landlock with the plan's lists and the few things of the system that all need."""
    readable = [*plan.readable, *landlock.READ_ALWAYS]
    if plan.network and not support.has(layers.ROOT):
        readable += paths.pci_buses()
    writable = [plan.scratch, "/dev/null"]
    if support.has(layers.ROOT) or plan.workers:
        writable.append("/dev/shm")  # in a new root it is the run's own
    landlock.restrict_files(
        support.landlock_abi,
        readable,
        writable,
        paths.LISTED,
        scopes=support.has(layers.SCOPES),
    )


def restrict_ports(support: Support) -> None:
    """Where there is no network of the run's own: no TCP but to ports the kernel gives out.

    For the process that all ranks are forked from, once. It may not gain privileges
    afterwards, nor connect to a service.

    Raises:
        LayerFailed: it does not work, though it did when it was tried.
    """
    if not support.has(layers.PORTS):
        return
    with applying(layers.PORTS):
        privileges.forbid_new_privileges()
        ports = landlock.ephemeral_ports()
        landlock.restrict_tcp(support.landlock_abi, bind=(0,), connect=ports)


def _counting(support: Support, wanted: Limits) -> Limits:
    if support.has(layers.UID) or support.has(layers.USER):
        return wanted  # only the run's own are counted
    others = limits.processes_of(os.getuid())
    return replace(wanted, processes=wanted.processes + others + SHARED_USER_SLACK)
