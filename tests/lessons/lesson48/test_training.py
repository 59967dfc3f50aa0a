"""Checks of the exercise "all-reduce": whole trainings, against other ways to do the same."""

from __future__ import annotations

from typing import Any

from grader.checks import Case, Draw, check

EXERCISE = "all-reduce"


def training(draw: Draw) -> dict[str, Any]:
    steps, rows = 4, 3
    return {
        "seed": int(draw.integers(0, 2**31, (1,))),
        "x": draw.normal((steps, rows, 3)),
        "y": draw.normal((steps, rows, 2)),
    }


def training_from_the_same_weights(draw: Draw) -> dict[str, Any]:
    return training(draw) | {"seed": int(draw.shared.integers(0, 2**31, (1,)))}


@check(
    exercise=EXERCISE,
    function="MinimalDDP",
    program="training.by_learner",
    reference_program="training.by_one_process",
    inputs=training,
    world_sizes=(2, 3),
    weight=2,
    after="sync_grads_averages",
)
def test_training_equals_a_single_process(case: Case) -> None:
    """Training on all ranks gives the weights that one process gets from all their data."""
    case.equals_reference("parameters/*", "gradients/*", kind="mean")
    case.same_on_every_rank("parameters/*")


@check(
    exercise=EXERCISE,
    function="MinimalDDP",
    program="training.by_learner",
    reference_program="training.by_torch",
    inputs=training,
    world_sizes=(2,),
    after="sync_grads_averages",
)
def test_training_equals_torch_ddp(case: Case) -> None:
    """Training with your wrapper gives the weights that torch's DistributedDataParallel gives."""
    case.equals_reference("parameters/*", "gradients/*")


@check(
    exercise=EXERCISE,
    function="all_reduce_grads_",
    program="training.by_own_sync",
    inputs=training_from_the_same_weights,
    world_sizes=(3,),
    after="gradients_are_the_mean",
)
def test_training_without_the_wrapper(case: Case) -> None:
    """A training loop that averages gradients by hand keeps all ranks on the same weights."""
    case.equals_reference("parameters/*", "gradients/*")
    case.same_on_every_rank("parameters/*")
