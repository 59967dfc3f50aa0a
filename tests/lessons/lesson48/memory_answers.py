"""What `memory_calculator` should answer, and how an answer is held against it."""

from __future__ import annotations

import math
from typing import Any

from grader.checks import Case
from grader.checks.hypotheses import Evidence, explain

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
    return {"params_billions": arguments[0], **DEFAULTS, **positional, **named}


def _agree(found: Any, due: Any) -> bool:
    if isinstance(due, (bool, str)):
        return type(found) is type(due) and found == due
    return abs(number(found) - due) <= 1e-9 * max(abs(due), 1e-12)


def _parts(chosen: dict[str, Any]) -> dict[str, float]:
    size = chosen["precision_bytes"]
    sizes = {
        "weights_gb": size,
        "gradients_gb": size,
        "optimizer_gb": OPTIMIZERS[chosen["optimizer"]],
    }
    shared = DIVIDED[STAGES[chosen["sharding"]]]
    return {
        part: chosen["params_billions"] * each / (chosen["num_gpus"] if part in shared else 1)
        for part, each in sizes.items()
    }


def _explain(case: Case) -> str:
    """The misunderstanding that explains the answers to all questions together, if one does."""
    questions = _questions(case)
    calls = [_chosen(call) for call in questions.values()]
    answers = [answer_to(case, label) for label in questions]
    evidence = Evidence(
        kind="memory",
        world_size=1,
        name=FUNCTION,
        expected=(None,),
        actual=(answers,),
        extra={"calls": calls},
    )
    return explain(evidence) or ""
