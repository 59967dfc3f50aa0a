"""Checks of the exercise "shard / gather": a training on shards, against torch's own."""

from __future__ import annotations

from typing import Any

from grader.checks import Case, Draw, check

EXERCISE = "shard / gather"


def training(draw: Draw) -> dict[str, Any]:
    steps, rows = 3, 4
    return {
        "seed": int(draw.shared.integers(0, 2**31, (1,))),
        "x": draw.normal((steps, rows, 3)),
        "y": draw.normal((steps, rows, 2)),
    }


@check(
    exercise=EXERCISE,
    function=("shard_parameter", "gather_parameter"),
    program="sharded.by_shard_and_gather",
    reference_program="sharded.by_torch",
    inputs=training,
    world_sizes=(3,),
    weight=2,
    after=("shards_are_equal_parts_filled_up_with_zeros", "padding_is_gone_after_gathering"),
)
def test_training_on_your_shards_equals_torch_fsdp(case: Case) -> None:
    """Training on your shards gives the weights that torch's `fully_shard` gives."""
    case.equals_reference("parameters/*")
    case.same_on_every_rank("parameters/*")
