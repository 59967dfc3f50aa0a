"""Wrong memory answers are recognised over several calls, and not where several stories fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest

from grader.checks.hypotheses import Evidence, explain

STATES = {"adam": 8, "adam_master": 12, "sgd": 0, "sgd_momentum": 4}
STAGES = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
Calculator = Callable[..., dict[str, Any]]


def answer(
    params: float,
    num_gpus: int,
    stage: int,
    each: tuple[float, float, float],
    unit: float = 1.0,
) -> dict[str, Any]:
    """An answer from bytes a parameter: weights, gradients, optimizer states."""
    weights, gradients, states = each
    parts = {
        "weights_gb": params * weights / (num_gpus if stage >= 3 else 1) * unit,
        "gradients_gb": params * gradients / (num_gpus if stage >= 2 else 1) * unit,
        "optimizer_gb": params * states / (num_gpus if stage >= 1 else 1) * unit,
    }
    total = sum(parts.values())
    return parts | {
        "per_gpu_total_gb": total,
        "total_across_gpus_gb": total * num_gpus,
        "fits_on_80gb": total <= 80,
    }


def calculator(
    stages: dict[str, int] | None = None,
    states: dict[str, float] | None = None,
    each: Callable[[float, float, str], tuple[float, float, float]] | None = None,
    unit: float = 1.0,
    change: Callable[[dict[str, Any], int], dict[str, Any]] | None = None,
) -> Calculator:
    """A `memory_calculator` that is right but for what is given."""
    known = STAGES | (stages or {})
    kept = STATES | (states or {})

    def calculate(
        params_billions: float,
        num_gpus: int = 1,
        sharding: str = "none",
        precision_bytes: float = 2,
        optimizer: str = "adam",
    ) -> dict[str, Any]:
        sizes = (precision_bytes, precision_bytes, kept[optimizer])
        if each is not None:
            sizes = each(precision_bytes, kept[optimizer], optimizer)
        found = answer(params_billions, num_gpus, known[sharding], sizes, unit)
        return change(found, num_gpus) if change else found

    return calculate


def ask(function: Calculator, calls: Iterable[dict[str, Any]]) -> str | None:
    calls = list(calls)
    said = [function(**call) for call in calls]
    return explain(Evidence("memory", 1, "answers", (None,), (said,), extra={"calls": calls}))


def calls(
    shardings: Iterable[str] = STAGES, sizes: Iterable[float] = (1, 2, 4), **more: Any
) -> list[dict[str, Any]]:
    return [
        {"params_billions": billions, "num_gpus": gpus, "sharding": sharding,
         "precision_bytes": size, "optimizer": optimizer} | more
        for sharding, (billions, gpus), size, optimizer in product(
            shardings, ((7, 2), (70, 8), (1.5, 3)), sizes, STATES
        )
    ]  # fmt: skip


def low(size: float, states: float, optimizer: str) -> tuple[float, float, float]:
    moments = {"adam": 2 * size, "adam_master": 2 * size + 4, "sgd": 0, "sgd_momentum": size}
    return size, size, moments[optimizer]


MISTAKES: dict[str, tuple[str, Calculator]] = {
    "swapped": ("zero-stages-swapped", calculator({"zero1": 2, "zero2": 1})),
    "one ahead": ("stage-off-by-one", calculator({"zero1": 2, "zero2": 3})),
    "one ahead, unsharded too": (
        "stage-off-by-one",
        calculator({"none": 1, "zero1": 2, "zero2": 3}),
    ),
    "one behind": (
        "stage-off-by-one",
        calculator({"zero1": 0, "zero2": 1, "zero3": 2, "fsdp": 2}),
    ),
    "all divided": ("divided-at-every-stage", calculator({"zero1": 3, "zero2": 3})),
    "all divided, unsharded too": (
        "divided-at-every-stage",
        calculator({"none": 3, "zero1": 3, "zero2": 3}),
    ),
    "nothing divided": ("gpus-ignored", calculator(dict.fromkeys(STAGES, 0))),
    "fsdp unknown": ("fsdp-not-as-zero3", calculator({"fsdp": 0})),
    "fsdp is zero2": ("fsdp-not-as-zero3", calculator({"fsdp": 2})),
    "zero2 is zero3": ("another-stages-answer", calculator({"zero2": 3})),
    "GiB": ("gib-not-gb", calculator(unit=1e9 / 2**30)),
    "bytes": ("wrong-unit", calculator(unit=1e9)),
    "bits": ("bits-not-bytes", calculator(unit=8)),
    "precision in bits": ("bits-not-bytes", calculator(each=lambda p, s, o: (p / 8, p / 8, s))),
    "one moment": ("one-moment", calculator(states={"adam": 4, "adam_master": 8})),
    "one moment, copy right": ("one-moment", calculator(states={"adam": 4})),
    "no copy": ("master-copy-miscounted", calculator(states={"adam_master": 8})),
    "copy always": ("master-copy-miscounted", calculator(states={"adam": 12})),
    "copy twice": ("master-copy-miscounted", calculator(states={"adam_master": 16})),
    "copy among the weights": (
        "master-copy-miscounted",
        calculator(each=lambda p, s, o: (p + 4, p, 8) if o == "adam_master" else (p, p, s)),
    ),
    "copy in low precision": (
        "master-copy-miscounted",
        calculator(each=lambda p, s, o: (p, p, 8 + p) if o == "adam_master" else (p, p, s)),
    ),
    "low moments": ("moments-in-low-precision", calculator(each=low)),
    "states follow the precision": (
        "moments-in-low-precision",
        calculator(each=lambda p, s, o: (p, p, s * p / 2)),
    ),
    "4 + 4 + 8": (
        "mixed-precision-as-fp32",
        calculator(each=lambda p, s, o: (4, 4, 8) if o == "adam_master" else (p, p, s)),
    ),
    "sgd remembers": ("sgd-counts-momentum", calculator(states={"sgd": 4})),
    "momentum forgotten": ("momentum-forgotten", calculator(states={"sgd_momentum": 0})),
    "always adam": ("optimizer-ignored", calculator(states=dict.fromkeys(STATES, 8))),
    "no optimizer": ("optimizer-forgotten", calculator(states=dict.fromkeys(STATES, 0))),
    "always 2 bytes": ("precision-ignored", calculator(each=lambda p, s, o: (2, 2, s))),
    "fp32 gradients": ("gradients-in-fp32", calculator(each=lambda p, s, o: (p, 4, s))),
    "fp32 weights": ("weights-in-fp32", calculator(each=lambda p, s, o: (4, p, s))),
    "no gradients": ("gradients-forgotten", calculator(each=lambda p, s, o: (p, 0, s))),
    "total of all": (
        "total-not-per-gpu",
        calculator(change=lambda a, n: a | {"per_gpu_total_gb": a["per_gpu_total_gb"] * n}),
    ),
    "all are one": (
        "total-of-one-gpu",
        calculator(change=lambda a, n: a | {"total_across_gpus_gb": a["per_gpu_total_gb"]}),
    ),
    "80 GiB": (
        "gib-not-gb",
        calculator(change=lambda a, n: a | {"fits_on_80gb": a["per_gpu_total_gb"] <= 85.9}),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_called_by_its_name(name: str) -> None:
    code, function = MISTAKES[name]
    questions = calls()
    if name == "80 GiB":
        questions = calls(params_billions=5.2, num_gpus=1, precision_bytes=2)
    assert ask(function, questions) == code


def test_right_answers_have_no_story() -> None:
    assert ask(calculator(), calls()) is None


def test_random_answers_have_no_story() -> None:
    for factor in (1.01, 0.9, 1.5, 3.0, 0.4):
        assert ask(calculator(unit=factor), calls()) is None
        assert ask(calculator(each=lambda p, s, o, f=factor: (p, p, f * s)), calls()) is None


def test_two_mistakes_at_once_are_not_one() -> None:
    both = calculator({"zero1": 2, "zero2": 1}, states={"sgd": 4})
    assert ask(both, calls()) is None


def test_a_swap_shows_only_when_both_stages_are_asked_for() -> None:
    swapped = calculator({"zero1": 2, "zero2": 1})
    assert ask(swapped, calls(["zero1"])) == "another-stages-answer"
    assert ask(swapped, calls(["zero2"])) == "another-stages-answer"
    assert ask(swapped, calls(["zero1", "zero2"])) == "zero-stages-swapped"


def test_stories_that_give_the_same_numbers_are_not_told() -> None:
    one_call = {"sharding": "none", "precision_bytes": 2, "num_gpus": 1}
    # 4 bytes of states: one fp32 moment, or two of 2 bytes each.
    halved = calculator(states={"adam": 4})
    assert ask(halved, calls(**one_call, optimizer="adam")) is None
    # 8 bytes where 12 are due: no copy, or Adam's states whatever is asked.
    assert ask(calculator(states={"adam_master": 8}), calls(**one_call)) == "master-copy-miscounted"
    # One eighth: bits and bytes, or 8 GPUs where nothing is sharded.
    eighth = calculator({"none": 3})
    assert ask(eighth, calls(["none"], params_billions=70, num_gpus=8)) is None


def test_on_one_gpu_nothing_can_be_said_of_stages() -> None:
    assert ask(calculator(dict.fromkeys(STAGES, 0)), calls(num_gpus=1)) is None


def test_one_call_alone() -> None:
    for gpus, code in ((4, "gpus-ignored"), (8, None)):  # 8 may be GPUs, or the bits of a byte
        call = {"params_billions": 70, "num_gpus": gpus, "sharding": "fsdp"}
        said = calculator({"fsdp": 0})(**call)
        found = Evidence("memory", 1, "answer", (None,), (said,), extra=call)
        assert explain(found) == code


@pytest.mark.parametrize(
    "said",
    [None, [], "1", 3, {}, {"weights_gb": "1"}, {"weights_gb": True}, {"weights_gb": 10**400}],
)
def test_what_is_no_answer_has_no_story(said: Any) -> None:
    call = {"params_billions": 7.0}
    assert explain(Evidence("memory", 1, "", (None,), (said,), extra=call)) is None
    assert explain(Evidence("memory", 1, "", (None,), ([said],), extra={"calls": [call]})) is None
    assert explain(Evidence("memory", 1, "", (None,), (said,), extra={"calls": [call]})) is None


def test_calls_without_a_right_answer_have_no_story() -> None:
    for unknown in ({"sharding": "zero4"}, {"optimizer": "lion"}, {"num_gpus": 0}):
        call = {"params_billions": 7.0} | unknown
        assert explain(Evidence("memory", 1, "", (None,), ({},), extra=call)) is None
