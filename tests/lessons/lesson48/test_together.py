"""A check that needs every exercise: all the learner's pieces in one training. Not scored."""

from __future__ import annotations

from typing import Any

from grader.checks import Case, Draw, check

EXERCISE = "reduce-scatter"


def everything(draw: Draw) -> dict[str, Any]:
    steps, rows = 3, 4 * draw.world_size
    return {
        "seed": int(draw.integers(0, 2**31, (1,))),
        "x": draw.shared.normal((steps, rows, 3)),
        "y": draw.shared.normal((steps, rows, 2)),
    }


@check(
    exercise=EXERCISE,
    function=(
        "init_process_group",
        "shutdown_process_group",
        "broadcast_module",
        "shard_for_rank",
        "shard_parameter",
        "gather_parameter",
        "reduce_scatter_grad",
    ),
    program="sharded.by_all_pieces",
    inputs=everything,
    world_sizes=(2,),
    group="learner",
    weight=0,
    after=(
        "every_rank_joins",
        "parameters_equal_the_source",
        "parts_put_together_are_the_whole",
        "training_on_your_shards_equals_torch_fsdp",
        "stepping_on_shards_equals_torch_fsdp",
    ),
)
def test_all_your_pieces_train_a_model_together(case: Case) -> None:
    """Join, broadcast, cut the data, shard, gather, reduce, step, leave: all yours, all right."""
    case.equals_reference("parameters/*")
    case.same_on_every_rank("parameters/*")
