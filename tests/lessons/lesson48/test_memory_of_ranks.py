"""A check of the exercise "memory math": the bytes that real ranks hold after a real step."""

from __future__ import annotations

from typing import Any

from grader.checks import Case, Draw, check

EXERCISE, FUNCTION = "memory math", "memory_calculator"
PARTS = ("weights_gb", "gradients_gb", "optimizer_gb")
PLANS = (
    *((sharding, 4, "adam") for sharding in ("none", "zero1", "zero2", "zero3")),
    ("none", 4, "sgd"),
    ("zero1", 2, "adam_master"),
    ("zero2", 2, "sgd_momentum"),
    ("zero3", 2, "adam"),
    ("zero3", 2, "adam_master"),
)
"""Sharding, bytes of a weight, optimizer."""


def plans(draw: Draw) -> dict[str, Any]:
    return {
        "plans": {f"{s}, {size} bytes, {o}": [s, size, o] for s, size, o in PLANS},
        "x": draw.normal((5, 16)),
    }


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="memory.held",
    inputs=plans,
    world_sizes=(2, 4),
    weight=2,
)
def test_ranks_hold_what_was_predicted(case: Case) -> None:
    """After a real training step on shards, every rank holds the bytes that you predicted."""
    for rank in range(case.world_size):
        for label in case.inputs[0]["plans"]:
            predicted = case.got[rank].get(f"predicted/{label}")
            if not isinstance(predicted, dict):
                case.fail(f"{FUNCTION} returned no dict for {label}", rank=rank)
            for part in PARTS:
                # Measured beside the reference: what the learner's own ranks say could be forged.
                held = case.want[rank][f"{label}/{part}"]
                bytes_said = _bytes(predicted.get(part))
                case.require(
                    bytes_said == held,
                    f"rank {rank} of {case.world_size} holds {held} bytes of "
                    f"{part.removesuffix('_gb')} with {label}; you predict {bytes_said}",
                    rank=rank,
                    tensor=part,
                    expected=f"{held} bytes",
                    actual=f"{bytes_said} bytes",
                )


def _bytes(said_gb: Any) -> int | None:
    is_number = isinstance(said_gb, (int, float)) and abs(said_gb) < 1e9
    return round(said_gb * 1e9) if is_number else None
