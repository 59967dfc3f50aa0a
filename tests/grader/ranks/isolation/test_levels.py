"""What is said of a machine, by what its layers protect together."""

from __future__ import annotations

import pytest

from grader.ranks.isolation import layers, levels
from grader.ranks.isolation.layers import Layer, Support

NAMESPACES = {layers.NET, layers.IPC, layers.UTS, layers.PID, layers.ROOT, layers.PROC}
RANK = {
    layers.LIMITS, layers.PROCESSES, layers.CAPABILITIES, layers.NO_NEW_PRIVILEGES,
    layers.LANDLOCK, layers.SCOPES, layers.SECCOMP,
}  # fmt: skip
LANDLOCK = {layers.LANDLOCK, layers.SCOPES}
WHY = "unshare: Operation not permitted"


def machine(working: set[str], abi: int = 7, hints: tuple[str, ...] = ()) -> Support:
    found = tuple(Layer(name, name in working, "" if name in working else WHY)
                  for name in layers.NAMES)  # fmt: skip
    return Support(found, abi if layers.LANDLOCK in working else 0, hints)


@pytest.mark.parametrize(
    ("working", "abi", "expected"),
    [
        (NAMESPACES | RANK, 7, "strong"),
        (NAMESPACES | RANK - LANDLOCK, 0, "strong"),  # gVisor
        (NAMESPACES | RANK - {layers.SECCOMP}, 7, "strong"),
        (RANK, 7, "partial"),  # a container
        (RANK - {layers.SCOPES}, 4, "partial"),  # the same on an older kernel
        (RANK | {layers.UID}, 7, "partial"),  # and as root
        (NAMESPACES - {layers.NET} | RANK, 7, "partial"),
        (NAMESPACES - {layers.PID} | RANK, 7, "strong"),  # signals are filtered
        (RANK - LANDLOCK, 0, "basic"),
        (RANK - LANDLOCK | {layers.UID}, 0, "basic"),
        (LANDLOCK | {layers.NO_NEW_PRIVILEGES}, 7, "basic"),  # chmod is open
        (NAMESPACES | RANK - {layers.NO_NEW_PRIVILEGES}, 7, "basic"),
        (set(), 0, "basic"),
    ],
)
def test_level(working: set[str], abi: int, expected: str) -> None:
    support = machine(working, abi)
    assert levels.level(support) == expected, levels.protection(support)


def test_levels_are_ordered() -> None:
    assert levels.LEVELS == ("basic", "partial", "strong")


def test_the_line_of_a_strong_machine() -> None:
    line = levels.describe(
        machine(NAMESPACES | RANK), memory_bytes=2 << 30, processes=64, disk_bytes=256 << 20
    )
    assert line == (
        "isolation: strong — files hidden (new root, landlock 7) · processes: pid namespace · "
        "network: none outside the case · 2 GiB a rank, 64 processes, 256 MiB disk · "
        "syscalls filtered"
    )


def test_the_line_of_a_container_says_what_is_missing_why_and_the_command() -> None:
    line = levels.describe(machine(RANK, hints=("container_root",)), disk_bytes=256 << 20)
    assert "partial — files: landlock 7 (names and sizes visible) · signals blocked" in line
    assert "network: SHARED" in line
    assert "256 MiB disk, watched" in line
    assert f"pid namespace, new root ({WHY})" in line
    assert line.endswith(f"to fix: {levels.FIXES['container_root']}")


def test_the_line_of_a_bare_machine_says_what_code_can_do() -> None:
    line = levels.describe(layers.nothing("darwin has none of the layers; Linux does"))
    assert "basic — code can read this user's files, change this user's files, reach" in line
    assert "Do not grade untrusted code here." in line
    assert line.count("darwin has none of the layers; Linux does") == 1


def test_a_strong_machine_needs_no_fix() -> None:
    assert levels.fix(machine(NAMESPACES | RANK, hints=("container_root",))) == ""
    assert (
        levels.fix(machine(RANK, hints=("apparmor", "container_root"))) == levels.FIXES["apparmor"]
    )


def test_without_takes_layers_away_and_says_so() -> None:
    support = machine(NAMESPACES | RANK).without([layers.LANDLOCK, layers.PID])
    assert support.landlock_abi == 0
    assert not support.has(layers.PID)
    assert support.why_not(layers.PID) == "switched off"
    assert support.has(layers.NET)
