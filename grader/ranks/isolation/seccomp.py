"""The last lock: a filter on the calls a process may make, and on a few of their arguments.

The program is classic BPF, assembled here: a row of `seccomp_rules` is two instructions,
"is it this call? then answer that". Linux on x86_64 and aarch64.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Iterable

from grader.ranks.isolation import landlock, layers, seccomp_rules, syscalls
from grader.ranks.isolation.layers import Support
from grader.ranks.isolation.seccomp_rules import CLOSER, RULES

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT = 0x15, 0x35, 0x45
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _ERRNO, _KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000
_AUDIT_ARCH = (0xC000_003E, 0xC000_00B7)
_X32 = 0x4000_0000
_SET_MODE_FILTER, _SPEC_ALLOW = 1, 4

_NEW_NAMESPACES = (
    syscalls.CLONE_NEWNS | syscalls.CLONE_NEWCGROUP | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWNET
)  # fmt: skip
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET, _TYPE_MASK = 1, 5, 0xF
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

Instruction = tuple[int, int, int, int]
"""Code, instructions to skip if true, if false, and its constant."""


def install(program: bytes) -> None:
    """Put `program` in force for this process and its children, for ever.

    Needs no_new_privs or CAP_SYS_ADMIN. Raises OSError.
    """
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    # Without the flag, older kernels slow the whole process down against side channels.
    try:
        syscalls.syscall("seccomp", _SET_MODE_FILTER, _SPEC_ALLOW, header)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        syscalls.syscall("seccomp", _SET_MODE_FILTER, 0, header)


def rank_filter(support: Support, own_pid: int, *, network: bool, workers: bool) -> bytes:
    """The program for a rank.

    Args:
        support: which other layers there are: what they do is not done again.
        own_pid: the pid of the process that will install it, as that process sees it.
        network: whether the rank needs a process group, and so sockets.
        workers: whether it needs UNIX sockets, as DataLoader workers do, wherever they lead.
    """
    conditions = seccomp_rules.in_force(support)
    column = _column()
    program = _prologue(column)
    for rule in RULES:
        number = rule[1 + column]
        if rule.when in conditions and isinstance(number, int):
            program += _refuse(number, rule.answer)
    program += _when("clone", column, _refuse_bits(0, _NEW_NAMESPACES))
    program += _when("ioctl", column, _refuse_values(1, (_TIOCSTI, _TIOCLINUX)))
    program += _when("socket", column, _sockets(support, network, workers))
    unix = _unix_is_safe(support) or workers
    program += _when("socketpair", column, [] if unix else _only_connected_pairs())
    if seccomp_rules.SHARED_SIGNALS in conditions:
        program += _when("kill", column, _only_values(0, (own_pid,)))
        program += _when("tgkill", column, _only_values(0, (own_pid,)))
    if seccomp_rules.SHARED_PROCESSES in conditions:
        program += _when("prlimit64", column, _only_values(0, (0, own_pid)))
        program += _when("sched_setaffinity", column, _only_values(0, (0, own_pid)))
    return _packed([*program, (_RETURN, 0, 0, _ALLOW)])


def refusing(calls: Iterable[str]) -> bytes:
    """A program that refuses the named calls of the table, and nothing else.

    With `unshare` and `mount` it plays the filter of a container.
    """
    column = _column()
    wanted = frozenset(calls)
    program = _prologue(column)
    for rule in RULES:
        number = rule[1 + column]
        if rule.call in wanted and isinstance(number, int):
            program += _refuse(number, rule.answer)
    if "unshare" in wanted:
        program += _when("clone", column, _refuse_bits(0, _NEW_NAMESPACES))
    return _packed([*program, (_RETURN, 0, 0, _ALLOW)])


def _column() -> int:
    column = syscalls.machine()
    if column is None:
        raise OSError(errno.ENOSYS, "the call numbers of this machine are not known")
    return column


def _unix_is_safe(support: Support) -> bool:
    """Whether no socket of anybody else's can be reached, by path or by abstract name."""
    by_path = support.has(layers.ROOT) or support.landlock_abi >= landlock.ABI_UNIX_PATHS
    abstract = support.has(layers.NET) or support.has(layers.SCOPES)
    return by_path and abstract


def _sockets(support: Support, network: bool, workers: bool) -> list[Instruction]:
    allowed: list[Instruction] = []
    if support.has(layers.NET):
        allowed += _allow_family(_INET) + _allow_family(_INET6)
    elif network:
        # No datagrams: Gloo needs none, and Landlock's ports are TCP's only.
        allowed += _allow_family(_INET, _STREAM) + _allow_family(_INET6, _STREAM)
    if support.has(layers.NET) or network:
        allowed += _allow_family(_NETLINK, protocol=0)
    if workers or _unix_is_safe(support):
        allowed += _allow_family(_UNIX)
    return [*allowed, _answer(errno.EAFNOSUPPORT)]


def _allow_family(
    family: int, kind: int | None = None, protocol: int | None = None
) -> list[Instruction]:
    tests: list[Instruction] = []
    if protocol is not None:
        tests = [_argument(2), (_JUMP_EQUAL, 0, 1, protocol)]
    elif kind is not None:
        tests = [_argument(1), (_AND, 0, 0, _TYPE_MASK), (_JUMP_EQUAL, 0, 1, kind)]
    block = [*tests, (_RETURN, 0, 0, _ALLOW)]
    return [_argument(0), (_JUMP_EQUAL, 0, len(block), family), *block]


def _only_connected_pairs() -> list[Instruction]:
    # The ends of a datagram pair can be connected anew, to anybody's socket.
    kinds = (_STREAM, _SEQPACKET)
    tests = [(_JUMP_EQUAL, len(kinds) - i, 0, kind) for i, kind in enumerate(kinds)]
    return [_argument(1), (_AND, 0, 0, _TYPE_MASK), *tests, _answer(errno.EAFNOSUPPORT)]


def _prologue(column: int) -> list[Instruction]:
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[column]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if column == 0:
        program += [(_JUMP_AT_LEAST, 0, 1, _X32), _answer(errno.ENOSYS)]
    return program


def _refuse(number: int, answer: int) -> list[Instruction]:
    return [(_JUMP_EQUAL, 0, 1, number), _answer(answer)]


def _when(call: str, column: int, block: list[Instruction]) -> list[Instruction]:
    """`block` for `call` only; what falls out of its end is allowed."""
    block = [*block, (_RETURN, 0, 0, _ALLOW)]
    return [(_JUMP_EQUAL, 0, len(block), CLOSER[call][column]), *block]


def _refuse_bits(argument: int, bits: int) -> list[Instruction]:
    return [_argument(argument), (_JUMP_ANY_BIT, 0, 1, bits), _answer(errno.EPERM)]


def _refuse_values(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    tests: list[Instruction] = []
    for value in values:
        tests += [(_JUMP_EQUAL, 0, 1, value), _answer(errno.EPERM)]
    return [_argument(argument), *tests]


def _only_values(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    tests = [(_JUMP_EQUAL, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [_argument(argument), *tests, _answer(errno.EPERM)]


def _argument(index: int) -> Instruction:
    """The low half of an argument: of all those looked at, the kernel reads no more."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)


def _answer(number: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _packed(program: list[Instruction]) -> bytes:
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)
