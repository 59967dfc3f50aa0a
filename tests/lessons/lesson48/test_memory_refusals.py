"""Checks of the exercise "memory math": what the calculator must refuse, and by which name."""

from __future__ import annotations

from typing import Any

from grader.checks import Case, Draw, check

EXERCISE, FUNCTION = "memory math", "memory_calculator"
Question = tuple[float, dict[str, Any], str]
"""Parameters in billions, the other arguments, and the value that cannot be accepted."""

UNKNOWN: tuple[Question, ...] = (
    (7, {"sharding": "zero4"}, "zero4"),
    (7, {"num_gpus": 8, "sharding": "sharded-by-hand"}, "sharded-by-hand"),
    (7, {"optimizer": "lion"}, "lion"),
    (7, {"num_gpus": 8, "sharding": "zero2", "optimizer": "adamax"}, "adamax"),
)
IMPOSSIBLE: tuple[Question, ...] = (
    (7, {"num_gpus": 0}, "0"),
    (7, {"num_gpus": -3, "sharding": "fsdp"}, "-3"),
    (-70, {}, "-70"),
    (-0.25, {"num_gpus": 8, "sharding": "zero1"}, "-0.25"),
    (7, {"precision_bytes": -2}, "-2"),
)


def _label(question: Question) -> str:
    billions, named, _ = question
    return f"{FUNCTION}({', '.join([str(billions), *(f'{k}={v!r}' for k, v in named.items())])})"


def unknown_names(_draw: Draw) -> dict[str, Any]:
    return {"questions": {_label(q): [[q[0]], q[1]] for q in UNKNOWN}}


def impossible_numbers(_draw: Draw) -> dict[str, Any]:
    return {"questions": {_label(q): [[q[0]], q[1]] for q in IMPOSSIBLE}}


def _outcome(case: Case, label: str) -> tuple[str, str]:
    """(kind of error, its message), or ("", what was returned)."""
    found = case.got[0].get(label)
    is_pair = isinstance(found, list) and [type(text) for text in found] == [str, str]
    return (found[0], found[1]) if is_pair else ("", "nothing")


def _refused(case: Case, questions: tuple[Question, ...]) -> None:
    for question in questions:
        label, culprit = _label(question), question[2]
        kind, message = _outcome(case, label)
        did = f"raised {kind}" if kind else f"returned {message}"
        case.require(
            kind == "ValueError",
            f"{label} {did} where a ValueError is due",
            diagnosis="" if kind or message == "None" else "unknown-name-accepted",
            expected="ValueError",
            actual=kind or message,
        )
        case.require(
            culprit in message,
            f"the ValueError of {label} does not name the value {culprit}",
            expected=f"a message with {culprit}",
            actual=message[:100],
        )


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="memory.refusals",
    inputs=unknown_names,
    world_sizes=(1,),
    group="none",
)
def test_unknown_names_are_refused(case: Case) -> None:
    """A sharding or an optimizer that it does not know is refused by name, not guessed."""
    _refused(case, UNKNOWN)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="memory.refusals",
    inputs=impossible_numbers,
    world_sizes=(1,),
    group="none",
)
def test_impossible_numbers_are_refused(case: Case) -> None:
    """Fewer than one GPU and negative sizes are refused with the number in the message."""
    _refused(case, IMPOSSIBLE)
