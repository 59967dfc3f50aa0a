"""The table of refused calls against the kernel's own headers, and the program against both."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from grader.ranks.isolation import layers, seccomp, seccomp_rules
from grader.ranks.isolation.layers import Layer, Support

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
NOTHING = layers.nothing("none")
EVERYTHING = Support(tuple(Layer(name, True) for name in layers.NAMES), 7)


def numbers(path: Path) -> dict[str, int]:
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)$", path.read_text("utf-8"), re.M)
    return {name: int(number) for name, number in found}


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_the_kernels(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"{HEADERS[machine]} is not installed")
    known = numbers(HEADERS[machine])
    column = list(HEADERS).index(machine)
    rows = {rule.call: rule[1 + column] for rule in seccomp_rules.RULES}
    rows |= {call: pair[column] for call, pair in seccomp_rules.CLOSER.items()}
    newest = max(known.values())
    for call, number in rows.items():
        if call in known:
            assert number == known[call], call
        else:
            # No such call on this machine, or one that is newer than the header.
            assert number is None or number > newest, call


def test_no_call_is_listed_twice() -> None:
    calls = [rule.call for rule in seccomp_rules.RULES] + list(seccomp_rules.CLOSER)
    assert len(calls) == len(set(calls))


def test_what_other_layers_do_is_not_done_again() -> None:
    assert seccomp_rules.in_force(EVERYTHING) == {seccomp_rules.ALWAYS}
    assert seccomp_rules.in_force(NOTHING) == {
        seccomp_rules.ALWAYS, seccomp_rules.SHARED_FILES, seccomp_rules.SHARED_IPC,
        seccomp_rules.SHARED_FILES_OLD_LANDLOCK, seccomp_rules.SHARED_SIGNALS,
        seccomp_rules.SHARED_PROCESSES,
    }  # fmt: skip


class Filter:
    """Runs a program as the kernel would, on a call that need not be made."""

    def __init__(self, support: Support, *, network: bool = True, workers: bool = False) -> None:
        code = seccomp.rank_filter(support, 4242, network=network, workers=workers)
        self.program = [struct.unpack_from("HBBI", code, i) for i in range(0, len(code), 8)]
        self.column = seccomp._column()

    def answer(self, call: str | int, *arguments: int, arch: int | None = None) -> int | str:
        """`allow`, `kill`, or an error number."""
        number = call if isinstance(call, int) else self.number(call)
        arch = seccomp._AUDIT_ARCH[self.column] if arch is None else arch
        padded = [*arguments, *[0] * (6 - len(arguments))]
        data = struct.pack("IIQ6Q", number, arch, 0, *(a & (1 << 64) - 1 for a in padded))
        at, value = 0, 0
        while True:
            code, if_true, if_false, k = self.program[at]
            at += 1
            match code:
                case 0x20:
                    (value,) = struct.unpack_from("I", data, k)
                case 0x54:
                    value &= k
                case 0x15:
                    at += if_true if value == k else if_false
                case 0x35:
                    at += if_true if value >= k else if_false
                case 0x45:
                    at += if_true if value & k else if_false
                case 0x06:
                    action = k & 0xFFFF_0000
                    names = {0x7FFF_0000: "allow", 0x8000_0000: "kill"}
                    return names.get(action, k & 0xFFFF)
                case _:
                    raise AssertionError(f"an instruction that is not known: {code:#x}")

    def number(self, call: str) -> int:
        if call in seccomp_rules.CLOSER:
            return seccomp_rules.CLOSER[call][self.column]
        rule = next(rule for rule in seccomp_rules.RULES if rule.call == call)
        number = rule[1 + self.column]
        assert isinstance(number, int)
        return number


@pytest.mark.parametrize("support", [NOTHING, EVERYTHING])
def test_every_row_in_force_is_refused_and_no_other(support: Support) -> None:
    filter_ = Filter(support)
    for rule in seccomp_rules.RULES:
        if rule[1 + filter_.column] is not None:
            is_in_force = rule.when in seccomp_rules.in_force(support)
            expected = rule.answer if is_in_force else "allow"
            assert filter_.answer(rule.call) == expected, rule.call
    assert filter_.answer(0) == "allow"
    assert filter_.answer(63) == "allow"


def test_other_architectures() -> None:
    filter_ = Filter(EVERYTHING)
    assert filter_.answer(0, arch=0x4000_0003) == "kill"  # int 0x80 on x86_64
    if filter_.column == 0:
        assert filter_.answer(0x4000_0000 + 59) == 38  # x32


def test_clone_without_new_namespaces_only() -> None:
    filter_ = Filter(EVERYTHING)
    assert filter_.answer("clone", 0x3D0F00) == "allow"  # pthread_create
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert filter_.answer("clone", 0x11 | flag) == 1
    assert filter_.answer("clone3") == 38  # so that glibc falls back to clone


UNIX, INET, INET6, NETLINK, PACKET, VSOCK, STREAM, DATAGRAM = 1, 2, 10, 16, 17, 40, 1, 2
CLOEXEC = 0o2000000


def test_sockets_of_a_rank_with_a_network_of_its_own() -> None:
    filter_ = Filter(EVERYTHING)
    for family in (UNIX, INET, INET6):
        for kind in (STREAM, DATAGRAM):
            assert filter_.answer("socket", family, kind | CLOEXEC) == "allow"
    assert filter_.answer("socket", NETLINK, 3, 0) == "allow"
    assert filter_.answer("socket", NETLINK, 3, 12) == 97
    for family in (PACKET, VSOCK, 38):
        assert filter_.answer("socket", family, STREAM) == 97


def test_sockets_where_the_network_is_shared() -> None:
    group, alone = Filter(NOTHING), Filter(NOTHING, network=False)
    assert group.answer("socket", INET, STREAM | CLOEXEC) == "allow"
    assert group.answer("socket", INET6, STREAM) == "allow"
    assert group.answer("socket", INET, DATAGRAM) == 97
    for family in (UNIX, INET, INET6, NETLINK):
        assert alone.answer("socket", family, STREAM) == 97
    assert group.answer("socket", UNIX, STREAM) == 97
    assert Filter(NOTHING, workers=True).answer("socket", UNIX, STREAM) == "allow"


def test_pairs_that_could_be_connected_elsewhere() -> None:
    filter_ = Filter(NOTHING)
    assert filter_.answer("socketpair", UNIX, STREAM | CLOEXEC) == "allow"
    assert filter_.answer("socketpair", UNIX, DATAGRAM | CLOEXEC) == 97
    assert Filter(EVERYTHING).answer("socketpair", UNIX, DATAGRAM) == "allow"


def test_signals_to_oneself_only() -> None:
    filter_ = Filter(NOTHING)
    for call in ("kill", "tgkill"):
        assert filter_.answer(call, 4242, 6) == "allow"
        for other in (1, 4243, -1, 0, -4242):
            assert filter_.answer(call, other, 6) == 1
            assert Filter(EVERYTHING).answer(call, other, 6) == "allow"
    assert filter_.answer("prlimit64", 0) == "allow"
    assert filter_.answer("prlimit64", 1) == 1


def test_typing_into_a_terminal_is_refused() -> None:
    assert Filter(EVERYTHING).answer("ioctl", 0, 0x5412) == 1
    assert Filter(EVERYTHING).answer("ioctl", 0, 0x5401) == "allow"
