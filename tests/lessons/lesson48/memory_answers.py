"""What `memory_calculator` should answer, and what it answers under known misunderstandings.

Totals of different mistakes collide (4 + 4 + 8 and 2 + 2 + 12 bytes a parameter are both
16), so everything here speaks of the parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from grader.checks import Case

FUNCTION = "memory_calculator"
PARTS = ("weights_gb", "gradients_gb", "optimizer_gb")
OPTIMIZERS = {"adam": 8, "adam_master": 12, "sgd": 0, "sgd_momentum": 4}
"""Bytes of optimizer states per parameter."""
STAGES = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
DIVIDED: tuple[tuple[str, ...], ...] = (
    (),
    ("optimizer_gb",),
    ("optimizer_gb", "gradients_gb"),
    ("optimizer_gb", "gradients_gb", "weights_gb"),
)
"""By stage, what is divided among the GPUs."""
DEFAULTS = {"num_gpus": 1, "sharding": "none", "precision_bytes": 2, "optimizer": "adam"}
Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and named arguments."""


def ask(*calls: Call) -> dict[str, Any]:
    """Inputs with questions to the calculator, each labelled with the call as it is written."""
    questions = {}
    for arguments, named in calls:
        written = [repr(a) for a in arguments] + [f"{k}={v!r}" for k, v in named.items()]
        questions[f"{FUNCTION}({', '.join(written)})"] = [list(arguments), named]
    return {"questions": questions}


def right(call: Call) -> dict[str, Any]:
    """The answer that is due, in GB of 1e9 bytes."""
    chosen = _chosen(call)
    parts = _parts(chosen)
    total = sum(parts.values())
    return parts | {
        "per_gpu_total_gb": total,
        "total_across_gpus_gb": total * chosen["num_gpus"],
        "fits_on_80gb": total <= 80,
        "num_gpus": chosen["num_gpus"],
        "sharding": chosen["sharding"],
    }


def hold(case: Case, *keys: str, sharding: tuple[str, ...] = ()) -> None:
    """The answers are right in `keys`: to all questions, or to those about `sharding`."""
    for label, call in _questions(case).items():
        if sharding and _chosen(call)["sharding"] not in sharding:
            continue
        answer = answer_to(case, label)
        for key in keys:
            hold_key(case, label, key, answer, right(call)[key])


def hold_key(case: Case, label: str, key: str, answer: dict[str, Any], due: Any) -> None:
    """One key of one answer is what is due."""
    if key not in answer:
        case.fail(f"{label} has no {key}", expected=key, actual=", ".join(answer))
    if not _agree(answer[key], due):
        case.fail(
            f"{label}: {key} is {shown(answer[key])} where {shown(due)} is due",
            tensor=key,
            code=_explain(case),
            expected=shown(due),
            actual=shown(answer[key]),
        )


def answer_to(case: Case, label: str) -> dict[str, Any]:
    """The learner's answer, which is a dict or ends the check."""
    answer = case.got[0].get(label)
    if not isinstance(answer, dict):
        kind = "None" if answer is None else f"a {type(answer).__name__}"
        case.fail(
            f"{label} returned {kind} where a dict is due",
            code="returned-nothing" if answer is None else "",
            expected="a dict",
            actual=kind,
        )
    return answer


def number(value: Any) -> float:
    """A number in a learner's answer; NaN where there is something else."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e300 else math.nan


def shown(value: Any) -> str:
    """A value of an answer, short."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:80]


def _questions(case: Case) -> dict[str, Call]:
    return {label: (tuple(a), n) for label, (a, n) in case.inputs[0]["questions"].items()}


def _chosen(call: Call) -> dict[str, Any]:
    arguments, named = call
    positional = dict(zip(DEFAULTS, arguments[1:], strict=False))
    return {"billions": arguments[0], **DEFAULTS, **positional, **named}


def _agree(found: Any, due: Any) -> bool:
    if isinstance(due, (bool, str)):
        return type(found) is type(due) and found == due
    return abs(number(found) - due) <= 1e-9 * max(abs(due), 1e-12)


def _parts(
    chosen: dict[str, Any],
    divided: tuple[tuple[str, ...], ...] = DIVIDED,
    states: Mapping[str, float] = OPTIMIZERS,
    unit: float = 1.0,
    bits: float = 1.0,
) -> dict[str, float]:
    size = chosen["precision_bytes"] * bits
    sizes = {
        "weights_gb": size,
        "gradients_gb": size,
        "optimizer_gb": states[chosen["optimizer"]],
    }
    shared = divided[STAGES[chosen["sharding"]]]
    return {
        part: chosen["billions"] * each / (chosen["num_gpus"] if part in shared else 1) * unit
        for part, each in sizes.items()
    }


# Misunderstandings


def _explain(case: Case) -> str:
    """The misunderstanding that explains all parts of all answers, if just one does."""
    questions = _questions(case)
    answers = {label: answer_to(case, label) for label in questions}

    def fits(change: Any) -> bool:
        return all(
            _agree(answers[label].get(part), due)
            for label, call in questions.items()
            for part, due in _parts(_chosen(call), **change(_chosen(call))).items()
        )

    if fits(lambda _chosen: {}):
        return ""  # the parts are right, so it is something else
    codes = {code for code, change in _mistakes() if fits(change)}
    return codes.pop() if len(codes) == 1 else ""


def _mistakes() -> Iterator[tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]]:
    """(code, what it changes in `_parts` for a question)."""
    for code, change in _fixed_mistakes():
        yield code, lambda _chosen, change=change: change

    def low(chosen: dict[str, Any], copy: float) -> dict[str, Any]:
        size = chosen["precision_bytes"]
        return {"states": OPTIMIZERS | {"adam": 2 * size, "adam_master": 2 * size + copy}}

    yield "moments-in-low-precision", lambda chosen: low(chosen, 4)
    yield "moments-in-low-precision", lambda chosen: low(chosen, chosen["precision_bytes"])


def _fixed_mistakes() -> Iterator[tuple[str, dict[str, Any]]]:
    none, one, two, three = DIVIDED
    yield "zero-stages-swapped", {"divided": (none, two, one, three)}
    yield "stage-off-by-one", {"divided": (none, two, three, three)}
    yield "stage-off-by-one", {"divided": (one, two, three, three)}
    yield "divided-at-every-stage", {"divided": (none, three, three, three)}
    yield "divided-at-every-stage", {"divided": (three, three, three, three)}
    yield "gpus-ignored", {"divided": (none, none, none, none)}
    yield "gib-not-gb", {"unit": 1e9 / 2**30}
    for factor in (8.0, 0.125):
        yield "bits-not-bytes", {"bits": factor}
        yield "bits-not-bytes", {"unit": factor}
    for adam, master in ((4, 8), (4, 12)):
        yield "one-moment", {"states": OPTIMIZERS | {"adam": adam, "adam_master": master}}
    for adam, master in ((8, 8), (12, 12), (12, 8), (8, 16), (12, 16)):
        states = OPTIMIZERS | {"adam": adam, "adam_master": master}
        yield "master-copy-miscounted", {"states": states}
    for momentum in (4, 8):
        states = OPTIMIZERS | {"sgd": 4, "sgd_momentum": momentum}
        yield "sgd-counts-momentum", {"states": states}
