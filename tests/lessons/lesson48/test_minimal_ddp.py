"""Checks of the exercise "all-reduce": the wrapper `MinimalDDP`."""

from __future__ import annotations

import math
from typing import Any

from grader.checks import Case, Draw, check

EXERCISE, FUNCTION = "all-reduce", "MinimalDDP"


def batchnorm(draw: Draw) -> dict[str, Any]:
    return {"model": "batchnorm", "seed": int(draw.integers(0, 2**31, (1,)))}


def mlp(draw: Draw) -> dict[str, Any]:
    # The same everywhere: what the wrapper does at its start is another check's matter.
    return {"model": "mlp", "seed": int(draw.shared.integers(0, 2**31, (1,)))}


def mlp_and_data(draw: Draw) -> dict[str, Any]:
    return {**mlp(draw), "x/0": draw.normal((3, 3))}


def mlp_and_two_batches(draw: Draw) -> dict[str, Any]:
    return {**mlp_and_data(draw), "x/1": draw.normal((2, 3))}


def pair(draw: Draw) -> dict[str, Any]:
    return {"seed": 48, "x": draw.normal((2, 3)), "shift": draw.normal((2,))}


def alone(draw: Draw) -> dict[str, Any]:
    return {**mlp(draw), "x": draw.normal((3, 3))}


def branches(draw: Draw) -> dict[str, Any]:
    # Branch 3 is taken by none of three ranks, the others by one each.
    return {
        "model": "branches",
        "seed": int(draw.shared.integers(0, 2**31, (1,))),
        "branch": draw.rank,
        "x": draw.normal((3, 2)),
    }


def _hold_norm(case: Case, label: str = "") -> None:
    """The norm is that of the reference's gradients, and a float."""
    names = [n for n in case.want[0] if n.startswith("gradients/") and n.endswith(label)]
    squares = sum(float(case.want[0][name].double().square().sum()) for name in names)
    case.equals(f"norm{label}", math.sqrt(squares), exact=False, kind="norm")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="wrapper.is_module",
    inputs=mlp,
    world_sizes=(1,),
    group="none",
)
def test_the_wrapper_is_a_module(case: Case) -> None:
    """The wrapper is an `nn.Module` around yours, with `.module` and the same parameters."""
    for fact in case.want[0]:
        case.require(
            case.got[0].get(fact) is True, f"this does not hold of the wrapper: {fact}", rank=0
        )


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="wrapper.forward",
    inputs=pair,
    world_sizes=(1,),
    group="none",
)
def test_forward_passes_everything_through(case: Case) -> None:
    """Calling the wrapper takes the arguments of the wrapped module and returns what it returns."""
    case.equals("out", case.want[0]["direct"])
    case.equals("name", "given")
    case.equals_reference("short", exact=True)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="wrapper.construct",
    inputs=batchnorm,
    world_sizes=(3,),
    weight=2,
)
def test_wrapping_makes_ranks_start_alike(case: Case) -> None:
    """Once wrapped, the module has rank 0's parameters and buffers on every rank."""
    patterns = ("parameters/*", "buffers/*")
    case.equals_reference(*patterns, exact=True, kind="broadcast", extra={"src": 0})
    case.same_on_every_rank(*patterns)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="wrapper.backward",
    inputs=mlp_and_data,
    world_sizes=(2, 3),
    weight=2,
)
def test_sync_grads_averages(case: Case) -> None:
    """After backward and `sync_grads()`, every rank has the mean gradients, and their norm."""
    case.equals_reference("gradients/*", kind="mean")
    case.same_on_every_rank("gradients/*")
    _hold_norm(case)
    case.same_on_every_rank("norm")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="wrapper.backward",
    inputs=mlp_and_two_batches,
    world_sizes=(2,),
)
def test_gradients_may_accumulate_first(case: Case) -> None:
    """Two backward passes and one `sync_grads()` give the mean of what the ranks accumulated."""
    case.equals_reference("gradients/*", kind="mean")
    _hold_norm(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="wrapper.branches",
    inputs=branches,
    world_sizes=(3,),
)
def test_ranks_may_take_different_branches(case: Case) -> None:
    """Ranks that use different parts of the model still end up with the same mean gradients."""
    case.equals_reference("gradients/*", kind="mean")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="wrapper.alone",
    inputs=alone,
    world_sizes=(1,),
    group="none",
)
def test_one_process_needs_no_group(case: Case) -> None:
    """Without a group the wrapper is the plain module, and `sync_grads()` still gives the norm."""
    for label in ("/world_size 1", "/world_size 2"):
        case.equals(f"untouched{label}", True)
        case.equals_reference(f"out{label}", f"gradients/*{label}")
        _hold_norm(case, label)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="wrapper.alone_in_a_group",
    inputs=mlp_and_data,
    world_sizes=(1,),
)
def test_a_group_of_one_changes_nothing(case: Case) -> None:
    """In a group of one rank the gradients stay what backward made them."""
    case.equals_reference("parameters/*", "gradients/*", kind="mean")
    _hold_norm(case)
