"""Checks of the exercise "all-reduce": `all_reduce_grads_` on gradients that are given."""

from __future__ import annotations

import math
from typing import Any

import torch

from grader.checks import Case, Draw, check

EXERCISE, FUNCTION = "all-reduce", "all_reduce_grads_"
MATRIX, VECTOR = (3, 2), (5,)
FLOAT = torch.float32
PLAIN = {"weight": (MATRIX, FLOAT), "bias": (VECTOR, FLOAT), "last": (MATRIX, FLOAT)}


def plain(draw: Draw) -> dict[str, Any]:
    return {**draw.tensors(PLAIN, "parameters/"), **draw.tensors(PLAIN, "gradients/")}


def twice(draw: Draw) -> dict[str, Any]:
    return {**plain(draw), **draw.tensors(PLAIN, "first/")}


def long(draw: Draw) -> dict[str, Any]:
    shapes = {"weight": ((700,), FLOAT), "bias": ((33,), FLOAT)}
    return {**draw.tensors(shapes, "parameters/"), **draw.tensors(shapes, "gradients/")}


def one_is_missing_on_rank_0(draw: Draw) -> dict[str, Any]:
    # All of one shape: a rank that leaves one out mixes the others before anything fails.
    shapes = dict.fromkeys(("first", "second", "third"), (MATRIX, FLOAT))
    inputs = {**draw.tensors(shapes, "parameters/"), **draw.tensors(shapes, "gradients/")}
    if draw.rank == 0:
        del inputs["gradients/second"]
    return inputs


def one_is_missing_everywhere(draw: Draw) -> dict[str, Any]:
    inputs = plain(draw)
    del inputs["gradients/bias"]
    return inputs


def frozen(draw: Draw) -> dict[str, Any]:
    large, small = {"embedding": ((40, 30), FLOAT)}, {"weight": (MATRIX, FLOAT)}
    return {
        "frozen": ["embedding"],
        **draw.tensors(large | small, "parameters/"),
        **draw.tensors(small, "gradients/"),
    }


def _means(case: Case) -> dict[str, torch.Tensor]:
    """The mean over ranks of every gradient that is an input, in double precision."""
    names = [name for name in case.inputs[0] if name.startswith("gradients/")]
    return {name: torch.stack([i[name].double() for i in case.inputs]).mean(0) for name in names}


def _hold_norm(case: Case) -> None:
    squares = sum(float(mean.square().sum()) for mean in _means(case).values())
    case.equals("norm", math.sqrt(squares), exact=False, kind="norm")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.average",
    inputs=plain,
    world_sizes=(2, 3, 4),
    weight=3,
)
def test_gradients_are_the_mean(case: Case) -> None:
    """Every gradient ends up as the mean of what the ranks had, on every rank."""
    case.equals_reference("gradients/*", kind="mean")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.average",
    inputs=long,
    world_sizes=(4,),
)
def test_gradients_are_the_same_bits_everywhere(case: Case) -> None:
    """All ranks end up with the same gradients down to the last bit, so they cannot drift apart."""
    case.same_on_every_rank("gradients/*")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.average",
    inputs=plain,
    world_sizes=(2, 3),
)
def test_the_norm_is_returned(case: Case) -> None:
    """What comes back is the length of all averaged gradients taken together, as a float."""
    _hold_norm(case)
    case.same_on_every_rank("norm")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.average",
    inputs=one_is_missing_on_rank_0,
    world_sizes=(2, 3),
    weight=2,
)
def test_a_missing_gradient_counts_as_zeros(case: Case) -> None:
    """A rank on which a parameter was not used takes part all the same, with zeros."""
    case.equals_reference("gradients/*", kind="mean")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.average",
    inputs=one_is_missing_everywhere,
    world_sizes=(2,),
)
def test_a_gradient_that_no_rank_has_is_zeros(case: Case) -> None:
    """A trainable parameter that no rank has used ends up with a gradient of zeros."""
    case.equals_reference("gradients/*", kind="mean")
    _hold_norm(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.average",
    inputs=frozen,
    world_sizes=(2,),
)
def test_frozen_parameters_are_left_alone(case: Case) -> None:
    """A frozen parameter gets no gradient, keeps its values and is not sent anywhere."""
    case.equals("gradients/embedding", None)
    case.equals("parameters/embedding", lambda rank: case.inputs[rank]["parameters/embedding"])
    frozen_size = case.inputs[0]["parameters/embedding"].numel()
    for rank, entries in enumerate(case.issued()):
        for entry in entries:
            sent = sum(math.prod(shape) for shape in entry.shapes)
            case.require(
                sent < frozen_size,
                f"rank {rank} sent {sent} numbers in one {entry.op}, so the frozen parameter "
                f"of {frozen_size} was among them",
                rank=rank,
            )
    case.equals_reference("gradients/weight", kind="mean")


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.step",
    inputs=plain,
    world_sizes=(2,),
)
def test_only_gradients_are_averaged(case: Case) -> None:
    """Averaging changes no weight; the step that follows uses the averaged gradients."""
    for name in PLAIN:
        weights = [inputs[f"parameters/{name}"] for inputs in case.inputs]
        case.equals(f"unstepped parameters/{name}", lambda rank, weights=weights: weights[rank])
        mean = torch.stack([inputs[f"gradients/{name}"] for inputs in case.inputs]).mean(0)
        case.equals(
            f"parameters/{name}",
            lambda rank, weights=weights, mean=mean: weights[rank] - 0.5 * mean,
            exact=False,
        )


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.average_twice",
    inputs=twice,
    world_sizes=(2,),
)
def test_every_step_starts_afresh(case: Case) -> None:
    """The second step's gradients are the mean of the second step's alone."""
    case.equals_reference("gradients/*", kind="mean")
    _hold_norm(case)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="all_reduce.average",
    inputs=plain,
    world_sizes=(2,),
    delays_s=(0.0, 0.03),
)
def test_a_late_rank_is_waited_for(case: Case) -> None:
    """When one rank is slow, the gradients are used only once they have all arrived."""
    case.equals_reference("gradients/*", kind="mean")
    _hold_norm(case)
