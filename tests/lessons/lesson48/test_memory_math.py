"""Checks of the exercise "memory math": model states per GPU, part by part."""

from __future__ import annotations

from typing import Any

from memory_answers import (
    FUNCTION,
    OPTIMIZERS,
    PARTS,
    STAGES,
    Call,
    answer_to,
    ask,
    hold,
    hold_key,
    number,
    right,
    shown,
)

from grader.checks import Case, Draw, check

EXERCISE = "memory math"


def memory_check(inputs: Any, weight: float = 1) -> Any:
    """A check of the calculator alone: one process, no group."""
    return check(
        exercise=EXERCISE,
        function=FUNCTION,
        program="memory.answers",
        inputs=inputs,
        world_sizes=(1,),
        group="none",
        weight=weight,
    )


def all_stages(_draw: Draw) -> dict[str, Any]:
    # Each check holds one stage; the others tell which misunderstanding it is.
    return ask(
        *(
            ((billions,), {"num_gpus": count, "sharding": sharding, "optimizer": optimizer})
            for sharding in STAGES
            for billions, count in ((7, 2), (70, 8), (1.5, 64))
            for optimizer in OPTIMIZERS
        )
    )


def precisions(_draw: Draw) -> dict[str, Any]:
    return ask(
        *(
            ((13,), {"num_gpus": 4, "sharding": sharding, "precision_bytes": size})
            for sharding in STAGES
            for size in (1, 2, 4)
        )
    )


def by_default(_draw: Draw) -> dict[str, Any]:
    return ask(
        ((7,), {}),
        ((0.125,), {}),
        ((7, 4), {}),
        ((7, 4, "zero1"), {}),
        ((7, 4, "zero2", 4, "sgd"), {}),
        ((7, 4, "zero3", 4, "sgd_momentum"), {}),
    )


def totals(draw: Draw) -> dict[str, Any]:
    drawn = draw.integers(6, 400, (6,)).tolist()
    counts = (1, 2, 3, 8, 24, 100)
    shardings = ("none", "none", "zero1", "zero2", "fsdp", "zero3")
    return ask(
        *(
            ((billions,), {"num_gpus": count, "sharding": sharding, "optimizer": "adam_master"})
            for billions, count, sharding in zip(drawn, counts, shardings, strict=True)
        )
    )


def seventy_billion(_draw: Draw) -> dict[str, Any]:
    return ask(
        ((70,), {"num_gpus": 8, "sharding": "fsdp"}),
        ((70,), {"num_gpus": 8, "sharding": "fsdp", "optimizer": "adam_master"}),
    )


def near_80(_draw: Draw) -> dict[str, Any]:
    # 16 bytes a parameter. 83 GB are less than 80 GiB, and do not fit in 80 GB.
    named = {"optimizer": "adam_master"}
    sharded = named | {"num_gpus": 8, "sharding": "fsdp"}
    return ask(
        *(((billions,), named) for billions in (1, 4.99, 5.01, 5.1875, 7)),
        *(((billions,), sharded) for billions in (39.9, 40.1, 70)),
    )


@memory_check(all_stages, weight=2)
def test_every_gpu_holds_everything_unsharded(case: Case) -> None:
    """Without sharding, every GPU holds all weights, all gradients and all optimizer states."""
    hold(case, *PARTS, sharding=("none",))


@memory_check(all_stages, weight=2)
def test_zero1_shards_the_optimizer(case: Case) -> None:
    """ZeRO-1 divides the optimizer states among the GPUs, and nothing else."""
    hold(case, *PARTS, sharding=("zero1",))


@memory_check(all_stages, weight=2)
def test_zero2_shards_gradients_too(case: Case) -> None:
    """ZeRO-2 divides optimizer states and gradients, and leaves the weights whole."""
    hold(case, *PARTS, sharding=("zero2",))


@memory_check(all_stages, weight=2)
def test_zero3_and_fsdp_shard_everything(case: Case) -> None:
    """ZeRO-3 and FSDP divide weights, gradients and optimizer states."""
    hold(case, *PARTS, sharding=("zero3", "fsdp"))


@memory_check(precisions)
def test_precision_changes_weights_and_gradients(case: Case) -> None:
    """`precision_bytes` counts for weights and gradients, not for the optimizer's states."""
    hold(case, *PARTS)


@memory_check(by_default)
def test_defaults_and_order_of_arguments(case: Case) -> None:
    """One GPU, no sharding, 2 bytes and Adam are meant unless you say otherwise."""
    hold(case, *PARTS, "num_gpus", "sharding")


@memory_check(totals)
def test_totals_add_up(case: Case) -> None:
    """The total per GPU is the sum of its parts, and all GPUs together hold so many times that."""
    hold(case, "per_gpu_total_gb", "total_across_gpus_gb")


@memory_check(totals)
def test_the_answer_says_what_was_asked(case: Case) -> None:
    """The answer has every key that is promised, and repeats number of GPUs and sharding."""
    for label in case.inputs[0]["questions"]:
        answer = answer_to(case, label)
        missing = [key for key in right(((1,), {})) if key not in answer]
        case.require(not missing, f"{label} has no {', '.join(missing)}")
    hold(case, "num_gpus", "sharding")


@memory_check(seventy_billion)
def test_seventy_billion_on_eight_gpus(case: Case) -> None:
    """70 billion parameters on 8 GPUs with FSDP: 105 GB each, 140 with an fp32 master copy."""
    for label, due in zip(case.inputs[0]["questions"], (105.0, 140.0), strict=True):
        hold_key(case, label, "per_gpu_total_gb", answer_to(case, label), due)


@memory_check(near_80)
def test_what_fits_on_80_gb(case: Case) -> None:
    """`fits_on_80gb` says whether one GPU's total is within 80 GB of 1e9 bytes."""
    hold(case, "fits_on_80gb")


BILLIONS, COUNTS = (7.5, 128, 1000), (1, 4, 16, 64, 256, 1024)
PRINTED = {
    "zero1": (
        "120 52.5 35.6 31.4 30.4 30.1",
        "2048 896 608 536 518 513",
        "16000 7000 4750 4187 4046 4011",
    ),
    "zero2": (
        "120 41.3 21.6 16.6 15.4 15.1",
        "2048 704 368 284 263 257",
        "16000 5500 2875 2218 2054 2013",
    ),
    "zero3": (
        "120 30 7.5 1.88 0.47 0.12",
        "2048 512 128 32 8 2",
        "16000 4000 1000 250 62.5 15.6",
    ),
}
"""Table 1 of the ZeRO paper (arXiv:1910.02054v3): GB per device, some rounded, some cut off."""


def paper(_draw: Draw) -> dict[str, Any]:
    return ask(*(_cell(b, n, s) for s in PRINTED for b in BILLIONS for n in COUNTS))


def _cell(billions: float, count: int, sharding: str) -> Call:
    return (billions,), {"num_gpus": count, "sharding": sharding, "optimizer": "adam_master"}


@memory_check(paper)
def test_the_numbers_of_the_zero_paper(case: Case) -> None:
    """With `adam_master` you get the numbers that the ZeRO paper prints."""
    for sharding, rows in PRINTED.items():
        for billions, row in zip(BILLIONS, rows, strict=True):
            for count, printed in zip(COUNTS, row.split(), strict=True):
                (label,) = ask(_cell(billions, count, sharding))["questions"]
                total = number(answer_to(case, label).get("per_gpu_total_gb"))
                last_digit = 10 ** -len(printed.partition(".")[2])
                case.require(
                    abs(total - float(printed)) < last_digit,
                    f"{label}: the paper prints {printed} GB per GPU, you have {shown(total)}",
                    tensor="per_gpu_total_gb",
                    expected=printed,
                    actual=shown(total),
                )
