"""The probe's child: applies every layer for real and looks whether it does what it should.

Three processes, as in a run: one that enters namespaces, its child that makes the new root,
and the child of that, which gives up everything else. They write what they find as lines:
`try NAME`, then `ok NAME`, `no NAME reason` or `unneeded NAME reason`. Linux only.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import socket
from collections.abc import Callable
from typing import NoReturn

from grader.ranks.isolation import (
    landlock,
    layers,
    limits,
    namespaces,
    paths,
    privileges,
    root,
    seccomp,
    syscalls,
    uids,
)
from grader.ranks.isolation.trial_steps import (
    Spoilt,
    Trial,
    connect,
    fork_and_wait,
    in_child,
    read_byte,
    reason,
    require,
    require_refused,
    write_byte,
)

_TRIAL_BYTES = 64 << 20
_MANY = 1 << 20
_PR_GET_NO_NEW_PRIVS = 39
_ABSTRACT = "\0ranklings-trial-"


def run(folder: str, failed: frozenset[str], write: int) -> NoReturn:
    """Be the first of the three processes, and never return."""
    trial = Trial(folder, failed, write)
    with open(trial.marker, "w", encoding="ascii") as file:
        file.write("a secret\n")
    os.chmod(trial.marker, 0o600)
    for path in (trial.scratch, trial.mount_point):
        os.makedirs(path, exist_ok=True)
    os.chmod(trial.scratch, 0o1777)
    can_change_user = privileges.may_change_user()
    try:
        claim = uids.claim() if trial.wanted(layers.UID) and can_change_user else None
        _enter_namespaces(trial)
        in_child(lambda: _be_init(trial, claim.uids[0] if claim else None))
    except Spoilt:
        pass
    except Exception as error:
        trial.say("fault", reason(error))
    os._exit(0)


def _enter_namespaces(trial: Trial) -> None:
    if not namespaces.needs_user_namespace():
        trial.unneeded(layers.USER, "not needed: this process may make namespaces")
    try:
        segment = syscalls.shared_segment()
    except OSError:
        segment = -1
    checks: dict[str, Callable[[], None]] = {
        layers.NET: _check_network,
        layers.IPC: lambda: require(not syscalls.sees_segment(segment), "ids are still shared"),
        layers.UTS: lambda: require(socket.gethostname() == "localhost", "the name did not change"),
    }
    for name in (layers.USER, *namespaces.ORDER):
        if trial.wanted(name):
            _try_namespace(trial, name, checks.get(name))


def _try_namespace(trial: Trial, name: str, check: Callable[[], None] | None) -> None:
    before = _namespace_id(name)
    trial.say("try", name)
    try:
        namespaces.enter_one(name)
        if check:
            check()
    except OSError as error:
        trial.refuse(name, error)
        if before is None or _namespace_id(name) != before:
            raise Spoilt from error
        return  # refused at the door: the next may be tried in this very process
    if name != layers.PID:  # whose effect only a child sees
        trial.works.add(name)
        trial.say("ok", name)


def _namespace_id(name: str) -> int | None:
    link = "pid_for_children" if name == layers.PID else name
    try:
        return os.stat(f"/proc/self/ns/{link}").st_ino
    except OSError:
        return None


def _check_network() -> None:
    names = [name for _, name in socket.if_nameindex()]
    require("lo" in names, f"no loopback among {names}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=1).close()


# The second process


def _be_init(trial: Trial, uid: int | None) -> None:
    if trial.wanted(layers.PID):
        with trial.layer(layers.PID):
            require(os.getpid() == 1, f"the child is process {os.getpid()}")
    if layers.PID not in trial.works and trial.wanted(layers.PROC):
        trial.refuse(layers.PROC, "it would show the machine's processes without a pid namespace")
    own = limits.own_bytes()
    if trial.wanted(layers.ROOT):
        _try_root(trial, uid)
    elif trial.wanted(layers.PROC):
        trial.refuse(layers.PROC, "there is no new root to put it in")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as abstract,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        abstract.bind(f"{_ABSTRACT}{os.getpid()}-{server.getsockname()[1]}")
        abstract.listen()
        address = abstract.getsockname()
        port = server.getsockname()[1]
        in_child(lambda: _be_rank(trial, uid, own, address, port))


def _try_root(trial: Trial, uid: int | None) -> None:
    plan = root.RootPlan(
        trial.mount_point,
        paths.readable(),
        trial.scratch,
        scratch_bytes=1 << 20,
        shared_memory_bytes=1 << 20,
        uids=() if uid is None else (uid,),
    )
    with trial.layer(layers.ROOT):
        root.build_one(plan, with_proc=trial.wanted(layers.PROC))
        require(not os.path.lexists(trial.marker), "files outside can still be seen")
        require_refused(lambda: write_byte(os.path.join("/usr", "x")), (errno.EROFS, errno.EACCES))
        write_byte(os.path.join(trial.scratch, "x"))
    if trial.wanted(layers.PROC):
        with trial.layer(layers.PROC):
            pids = [name for name in os.listdir("/proc") if name.isdigit()]
            require(pids == ["1"], f"it shows {len(pids)} processes")


# The third process


def _be_rank(trial: Trial, uid: int | None, own: int | None, address: bytes, port: int) -> None:
    privileges.drop_bounding_set()
    _try_user(trial, uid)
    _try_limits(trial, own)
    if trial.wanted(layers.CAPABILITIES):
        with trial.layer(layers.CAPABILITIES):
            privileges.drop_capabilities()
            require_refused(lambda: os.chroot("/"), (errno.EPERM,))
    if trial.wanted(layers.NO_NEW_PRIVILEGES):
        with trial.layer(layers.NO_NEW_PRIVILEGES):
            privileges.forbid_new_privileges()
            require(syscalls.prctl(_PR_GET_NO_NEW_PRIVS) == 1, "it is not in force")
    _try_landlock(trial, address, port)
    if trial.wanted(layers.SECCOMP):
        with trial.layer(layers.SECCOMP):
            program = seccomp.rank_filter(trial.support(), os.getpid(), network=True, workers=False)
            seccomp.install(program)
            require_refused(lambda: syscalls.unshare(0, "nothing"), (errno.EPERM,))
            require_refused(lambda: os.execv("/proc/self/exe", ["x"]), (errno.EACCES,))
            socket.socket(socket.AF_INET).close()
    trial.say("done")


def _try_user(trial: Trial, uid: int | None) -> None:
    if not trial.wanted(layers.UID):
        return
    if layers.USER in trial.works:
        trial.unneeded(layers.UID, "a user namespace of one's own has one user only")
    elif uid is None:
        trial.refuse(layers.UID, "only root may become another user")
    else:
        with trial.layer(layers.UID):
            privileges.become(uid)
            require(os.getresuid() == (uid, uid, uid), "the user did not change")
            require_refused(lambda: read_byte(trial.marker), (errno.EACCES, errno.ENOENT))
            for path in trial.interpreter:
                require(os.access(path, os.R_OK), f"other users cannot read {path}")


def _try_limits(trial: Trial, own: int | None) -> None:
    if trial.wanted(layers.LIMITS):
        with trial.layer(layers.LIMITS):
            plan = limits.Limits(memory_bytes=_TRIAL_BYTES, processes=_MANY)
            limits.apply(plan, own)
            require_refused(lambda: mmap.mmap(-1, 2 * _TRIAL_BYTES), (errno.ENOMEM,))
    if trial.wanted(layers.PROCESSES):
        with trial.layer(layers.PROCESSES):
            _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
            resource.setrlimit(resource.RLIMIT_NPROC, (0, hard))
            why = "it does not hold for root" if os.getuid() == 0 else ""
            require_refused(fork_and_wait, (errno.EAGAIN,), why)
            resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))


def _try_landlock(trial: Trial, address: bytes, port: int) -> None:
    if not trial.wanted(layers.LANDLOCK):
        for name in (layers.SCOPES, layers.PORTS):
            trial.refuse(name, "there is no landlock")
        return
    with trial.layer(layers.LANDLOCK):
        abi = landlock.abi()
        landlock.restrict_files(abi, [], [trial.scratch])
        require_refused(lambda: read_byte(os.__file__), (errno.EACCES,))
        write_byte(os.path.join(trial.scratch, "y"))
        trial.say("abi", abi)
    if abi < landlock.ABI_SCOPES:
        trial.refuse(layers.SCOPES, f"landlock has them since ABI 6, this one is ABI {abi}")
    elif trial.wanted(layers.SCOPES):
        with trial.layer(layers.SCOPES):
            require_refused(lambda: connect(socket.AF_UNIX, address), (errno.EPERM,))
    if layers.NET in trial.works:
        trial.unneeded(layers.PORTS, "the network is the run's own")
    elif abi < landlock.ABI_PORTS:
        trial.refuse(layers.PORTS, f"landlock has them since ABI 4, this one is ABI {abi}")
    elif trial.wanted(layers.PORTS):
        with trial.layer(layers.PORTS):
            landlock.restrict_tcp(abi, bind=(0,), connect=())
            there = ("127.0.0.1", port)
            require_refused(lambda: connect(socket.AF_INET, there), (errno.EACCES,))
