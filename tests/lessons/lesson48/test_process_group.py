"""Checks of the exercise "process group": the learner's own rendezvous, at a port of the kit's."""

from __future__ import annotations

import ipaddress
from typing import Any

import torch

from grader.checks import Case, Draw, check

EXERCISE = "process group"
JOIN, LEAVE = "init_process_group", "shutdown_process_group"


def one_value(draw: Draw) -> dict[str, Any]:
    return {"value": draw.normal((3,))}


def ranks_that_are_none(_draw: Draw) -> dict[str, Any]:
    return {"asked": [[0, 0], [-1, 1], [1, 1], [2, 2], [-1, 3], [-3, 3], [3, 3], [17, 4]]}


@check(
    exercise=EXERCISE,
    function=JOIN,
    program="launch.join",
    world_sizes=(1, 2, 3, 4),
    group="learner",
    weight=2,
)
def test_every_rank_joins(case: Case) -> None:
    """Every process becomes the rank it was told to be, in one Gloo group of all of them."""
    case.equals("joined", True)
    case.equals("rank", lambda rank: rank)
    case.equals("world_size", case.world_size)
    case.equals("backend", "gloo")


@check(
    exercise=EXERCISE,
    function=JOIN,
    program="launch.communicate",
    inputs=one_value,
    world_sizes=(3,),
    group="learner",
    weight=2,
)
def test_the_group_carries_messages(case: Case) -> None:
    """After joining, the ranks can add up, collect and hand out numbers."""
    values = [inputs["value"] for inputs in case.inputs]
    case.equals("gathered", torch.stack(values))
    case.equals("told", values[-1])
    case.equals("total", torch.stack(values).sum(0), exact=False)


@check(
    exercise=EXERCISE,
    function=JOIN,
    program="launch.join",
    world_sizes=(2,),
    group="learner",
)
def test_ranks_meet_at_the_port_they_are_given(case: Case) -> None:
    """The ranks meet at the `master_port` they are given, not at a fixed one."""
    _met_at_the_port(case)


def _met_at_the_port(case: Case) -> None:
    due = case.got[0].get("asked_port")
    case.require(
        case.master_port == due,
        "rank 0 did not open its meeting point at the master_port it was given",
        rank=0,
        expected=str(due),
        actual="no port" if case.master_port is None else str(case.master_port),
    )


@check(
    exercise=EXERCISE,
    function=JOIN,
    program="launch.join_by_default",
    world_sizes=(1,),
    group="learner",
)
def test_port_and_backend_have_defaults(case: Case) -> None:
    """Without further arguments the backend is gloo and the port is 29500."""
    case.equals("joined", True)
    case.equals("backend", "gloo")
    case.equals("port", 29500)


@check(
    exercise=EXERCISE,
    function=JOIN,
    program="launch.join_after_another_launch",
    world_sizes=(2,),
    group="learner",
)
def test_arguments_count_not_the_environment(case: Case) -> None:
    """What the function is given counts, not what an earlier launch left in the environment."""
    case.equals("joined", True)
    case.equals("rank", lambda rank: rank)
    case.equals("world_size", case.world_size)
    _met_at_the_port(case)


@check(
    exercise=EXERCISE,
    function=JOIN,
    program="launch.peers",
    world_sizes=(2,),
    group="learner",
)
def test_ranks_talk_over_loopback_only(case: Case) -> None:
    """Ranks of one machine talk over its loopback interface, so nothing leaves the machine."""
    for rank in range(case.world_size):
        addresses = case.got[rank].get("addresses")
        for address in addresses if isinstance(addresses, list) else ():
            case.require(
                _is_loopback(address),
                f"rank {rank} has a connection to {address}, which is not a loopback address",
                rank=rank,
                expected="127.0.0.1",
                actual=str(address),
            )


def _is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


@check(
    exercise=EXERCISE,
    function=JOIN,
    program="launch.refuse",
    inputs=ranks_that_are_none,
    world_sizes=(1,),
    group="none",
)
def test_impossible_ranks_are_refused(case: Case) -> None:
    """A rank that the world size leaves no room for is refused with a ValueError."""
    for rank, world_size in case.inputs[0]["asked"]:
        label = f"rank {rank} of {world_size}"
        raised = case.got[0].get(f"raised/{label}")
        case.require(
            raised == "ValueError",
            f"{JOIN}({rank}, {world_size}) raised {raised or 'nothing'} where a ValueError is due",
            rank=0,
            expected="ValueError",
            actual=str(raised or "nothing"),
        )
        case.equals(f"joined/{label}", False)


@check(
    exercise=EXERCISE,
    function=JOIN,
    program="launch.refuse",
    inputs=ranks_that_are_none,
    world_sizes=(1,),
    group="none",
    after="impossible_ranks_are_refused",
)
def test_impossible_ranks_are_refused_before_anyone_is_called(case: Case) -> None:
    """An impossible rank is refused before the network is used, so that nobody waits for it."""
    for rank, world_size in case.inputs[0]["asked"]:
        case.require(
            case.got[0].get(f"network/rank {rank} of {world_size}") is False,
            f"{JOIN}({rank}, {world_size}) used the network before it raised",
            rank=0,
        )


@check(
    exercise=EXERCISE,
    function=LEAVE,
    program="launch.leave",
    world_sizes=(2,),
)
def test_the_group_can_be_left(case: Case) -> None:
    """Leaving ends the group, and leaving once more does no harm."""
    case.equals("after", False)
    case.equals("after twice", False)


@check(
    exercise=EXERCISE,
    function=LEAVE,
    program="launch.leave_nothing",
    world_sizes=(1,),
    group="none",
)
def test_leaving_without_a_group_does_no_harm(case: Case) -> None:
    """Leaving when there is no group does nothing, however often."""
    case.equals("joined", False)
