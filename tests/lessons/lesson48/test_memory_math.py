"""Checks of the exercise "memory math": model states per GPU, and what ranks really hold.

The totals of different mistakes collide (4 + 4 + 8 and 2 + 2 + 12 bytes are both 16), so
checks ask for the parts, at several stages and several numbers of GPUs.
"""

from __future__ import annotations

import math
from typing import Any

from grader.checks import Case, Draw, check

EXERCISE, FUNCTION = "memory math", "memory_calculator"
OPTIMIZERS = {"adam": 8, "adam_master": 12, "sgd": 0, "sgd_momentum": 4}
"""Bytes of optimizer states per parameter."""
SHARDED = {
    "none": (),
    "zero1": ("optimizer_gb",),
    "zero2": ("optimizer_gb", "gradients_gb"),
    "zero3": ("optimizer_gb", "gradients_gb", "weights_gb"),
    "fsdp": ("optimizer_gb", "gradients_gb", "weights_gb"),
}
"""What every way of sharding divides among the GPUs."""
PARTS = ("weights_gb", "gradients_gb", "optimizer_gb")
DEFAULTS = {"num_gpus": 1, "sharding": "none", "precision_bytes": 2, "optimizer": "adam"}
Questions = dict[str, tuple[tuple[Any, ...], dict[str, Any]]]


def right(params_billions: float, **named: Any) -> dict[str, Any]:
    """The answer that is due, in GB of 1e9 bytes."""
    chosen = DEFAULTS | named
    count, sharding = chosen["num_gpus"], chosen["sharding"]
    per_parameter = {
        "weights_gb": chosen["precision_bytes"],
        "gradients_gb": chosen["precision_bytes"],
        "optimizer_gb": OPTIMIZERS[chosen["optimizer"]],
    }
    parts = {
        part: params_billions * size / (count if part in SHARDED[sharding] else 1)
        for part, size in per_parameter.items()
    }
    total = sum(parts.values())
    return parts | {
        "per_gpu_total_gb": total,
        "total_across_gpus_gb": total * count,
        "fits_on_80gb": total <= 80,
        "num_gpus": count,
        "sharding": sharding,
    }


def _ask(*calls: tuple[tuple[Any, ...], dict[str, Any]]) -> dict[str, Any]:
    """Questions to the calculator, each labelled with the call as it is written."""
    questions = {}
    for arguments, named in calls:
        written = [repr(a) for a in arguments] + [f"{k}={v!r}" for k, v in named.items()]
        questions[f"{FUNCTION}({', '.join(written)})"] = [list(arguments), named]
    return {"questions": questions}


def _stages(*shardings: str) -> dict[str, Any]:
    return _ask(
        *(
            ((billions,), {"num_gpus": count, "sharding": sharding, "optimizer": optimizer})
            for sharding in shardings
            for billions, count in ((7, 2), (70, 8), (1.5, 64))
            for optimizer in OPTIMIZERS
        )
    )


def unsharded(_draw: Draw) -> dict[str, Any]:
    return _stages("none")


def zero1(_draw: Draw) -> dict[str, Any]:
    return _stages("zero1")


def zero2(_draw: Draw) -> dict[str, Any]:
    return _stages("zero2")


def zero3(_draw: Draw) -> dict[str, Any]:
    return _stages("zero3", "fsdp")


def precisions(_draw: Draw) -> dict[str, Any]:
    return _ask(
        *(
            ((13,), {"num_gpus": 4, "sharding": sharding, "precision_bytes": size})
            for sharding in SHARDED
            for size in (1, 2, 4)
        )
    )


def by_default(_draw: Draw) -> dict[str, Any]:
    return _ask(((7,), {}), ((0.125,), {}), ((7, 4), {}), ((7, 4, "zero2", 4, "sgd"), {}))


def totals(draw: Draw) -> dict[str, Any]:
    drawn = draw.integers(3, 400, (6,)).tolist()
    return _ask(
        *(
            ((billions,), {"num_gpus": count, "sharding": sharding, "optimizer": "adam_master"})
            for billions, count, sharding in zip(
                drawn, (1, 2, 3, 8, 24, 100), ("none", "none", "zero1", "zero2", "fsdp", "zero3"),
                strict=True,
            )
        )
    )  # fmt: skip


def known(_draw: Draw) -> dict[str, Any]:
    return _ask(
        ((70,), {"num_gpus": 8, "sharding": "fsdp"}),
        ((70,), {"num_gpus": 8, "sharding": "fsdp", "optimizer": "adam_master"}),
    )


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
    return _ask(*(_paper_call(b, n, s) for s in PRINTED for b in BILLIONS for n in COUNTS))


def _paper_call(billions: float, count: int, sharding: str) -> tuple[tuple[float], dict[str, Any]]:
    return (billions,), {"num_gpus": count, "sharding": sharding, "optimizer": "adam_master"}


def near_80(_draw: Draw) -> dict[str, Any]:
    # 16 bytes a parameter. 83 GB are less than 80 GiB, and do not fit in 80 GB.
    named = {"optimizer": "adam_master"}
    sharded = named | {"num_gpus": 8, "sharding": "fsdp"}
    return _ask(
        *(((billions,), named) for billions in (1, 4.99, 5.01, 5.1875, 7)),
        *(((billions,), sharded) for billions in (39.9, 40.1, 70)),
    )


def _hold(case: Case, *keys: str) -> None:
    """The answers to all questions are right in `keys`."""
    for label, (arguments, named) in case.inputs[0]["questions"].items():
        positional = dict(zip(DEFAULTS, arguments[1:], strict=False))
        due = right(arguments[0], **positional, **named)
        answer = _answer(case, label)
        for key in keys:
            _hold_key(case, label, key, answer, due)


def _answer(case: Case, label: str) -> dict[str, Any]:
    answer = case.got[0].get(label)
    if not isinstance(answer, dict):
        shown = "None" if answer is None else type(answer).__name__
        case.fail(f"{label} returned {shown} where a dict is due", expected="a dict", actual=shown)
    return answer


def _hold_key(
    case: Case, label: str, key: str, answer: dict[str, Any], due: dict[str, Any]
) -> None:
    case.require(key in answer, f"{label} has no {key}", expected=key, actual=", ".join(answer))
    case.require(
        _agree(answer[key], due[key]),
        f"{label}: {key} is {_shown(answer[key])} where {_shown(due[key])} is due",
        tensor=key,
        expected=_shown(due[key]),
        actual=_shown(answer[key]),
    )


def _agree(found: Any, due: Any) -> bool:
    if isinstance(due, (bool, str)):
        return type(found) is type(due) and found == due
    return abs(_number(found) - due) <= 1e-9 * max(abs(due), 1e-12)


def _number(value: Any) -> float:
    """A number that a learner's answer holds; not a number where it holds something else."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e300 else math.nan


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:80]


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


@memory_check(unsharded, weight=2)
def test_every_gpu_holds_everything_unsharded(case: Case) -> None:
    """Without sharding, every GPU holds all weights, all gradients and all optimizer states."""
    _hold(case, *PARTS)


@memory_check(zero1, weight=2)
def test_zero1_shards_the_optimizer(case: Case) -> None:
    """ZeRO-1 divides the optimizer states among the GPUs, and nothing else."""
    _hold(case, *PARTS)


@memory_check(zero2, weight=2)
def test_zero2_shards_gradients_too(case: Case) -> None:
    """ZeRO-2 divides optimizer states and gradients, and leaves the weights whole."""
    _hold(case, *PARTS)


@memory_check(zero3, weight=2)
def test_zero3_and_fsdp_shard_everything(case: Case) -> None:
    """ZeRO-3 and FSDP divide weights, gradients and optimizer states."""
    _hold(case, *PARTS)


@memory_check(precisions)
def test_precision_changes_weights_and_gradients(case: Case) -> None:
    """`precision_bytes` counts for weights and gradients, not for the optimizer's states."""
    _hold(case, *PARTS)


@memory_check(by_default)
def test_defaults_and_order_of_arguments(case: Case) -> None:
    """One GPU, no sharding, 2 bytes and Adam are meant unless you say otherwise."""
    _hold(case, *PARTS, "num_gpus", "sharding")


@memory_check(totals)
def test_totals_add_up(case: Case) -> None:
    """The total per GPU is the sum of its parts, and all GPUs together hold so many times that."""
    _hold(case, "per_gpu_total_gb", "total_across_gpus_gb")


@memory_check(totals)
def test_the_answer_says_what_was_asked(case: Case) -> None:
    """The answer has every key that is promised, and repeats number of GPUs and sharding."""
    for label in case.inputs[0]["questions"]:
        missing = [key for key in right(1) if key not in _answer(case, label)]
        case.require(not missing, f"{label} has no {', '.join(missing)}")
    _hold(case, "num_gpus", "sharding")


@memory_check(known)
def test_seventy_billion_on_eight_gpus(case: Case) -> None:
    """70 billion parameters on 8 GPUs with FSDP: 105 GB each, 140 with an fp32 master copy."""
    for label, due in zip(case.inputs[0]["questions"], (105.0, 140.0), strict=True):
        _hold_key(case, label, "per_gpu_total_gb", _answer(case, label), {"per_gpu_total_gb": due})


@memory_check(paper)
def test_the_numbers_of_the_zero_paper(case: Case) -> None:
    """With `adam_master` you get the numbers that the ZeRO paper prints."""
    for sharding, rows in PRINTED.items():
        for billions, row in zip(BILLIONS, rows, strict=True):
            for count, printed in zip(COUNTS, row.split(), strict=True):
                call = _paper_call(billions, count, sharding)
                (label,) = _ask(call)["questions"]
                total = _number(_answer(case, label).get("per_gpu_total_gb"))
                last_digit = 10 ** -len(printed.partition(".")[2])
                case.require(
                    abs(total - float(printed)) < last_digit,
                    f"{label}: the paper prints {printed} GB per GPU, you have {_shown(total)}",
                    tensor="per_gpu_total_gb",
                    expected=printed,
                    actual=_shown(total),
                )


@memory_check(near_80)
def test_what_fits_on_80_gb(case: Case) -> None:
    """`fits_on_80gb` says whether one GPU's total is within 80 GB of 1e9 bytes."""
    _hold(case, "fits_on_80gb")
