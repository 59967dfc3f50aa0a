"""Plain answers (what JSON holds) compared: the path of the first difference, and why."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from grader.checks.values import format_number, format_pair, nameof, render
from grader.report.escape import safe_line

_RELATIVE = 1e-5
"""For floats: a norm, say, may rightly be computed in single precision."""


@dataclass(frozen=True)
class PlainDifference:
    """The first place where two plain values differ."""

    kind: str
    """`type`, `keys` or `values`."""
    sentence: str
    expected: str
    actual: str
    path: str = ""
    """`['gpus'][0]`; empty at the top."""


def first_difference(
    expected: Any, actual: Any, *, exact: bool, path: str = ""
) -> PlainDifference | None:
    """The first difference, or None.

    Numbers agree within a relative 1e-5 unless `exact`. A whole number may stand where a
    float is due, and a whole float (`8.0`) for a whole number unless `exact`; True and False
    are no numbers. Keys that nobody asked for are fine.
    """
    if isinstance(expected, dict) and isinstance(actual, dict):
        return _in_dicts(expected, actual, exact, path)
    if isinstance(expected, list) and isinstance(actual, list):
        return _in_lists(expected, actual, exact, path)
    if not _may_stand_for(expected, actual, exact):
        sentence = f"{nameof(actual)}, where {nameof(expected)} is due"
        return _difference("type", path, sentence, render(expected), _with_kind(actual))
    if _agree(expected, actual, exact):
        return None
    return _values_differ(path, expected, actual)


def same_text(a: Any, b: Any) -> bool:
    """Whether two plain values are the same as JSON: 1, 1.0 and True differ, -0.0 and 0.0 too."""
    try:
        return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
    except RecursionError:
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _may_stand_for(expected: Any, actual: Any, exact: bool) -> bool:
    if not _is_number(expected) or not _is_number(actual):
        return type(expected) is type(actual)
    return isinstance(expected, float) or isinstance(actual, int) or not exact


def _agree(expected: Any, actual: Any, exact: bool) -> bool:
    if not _is_number(expected):
        return bool(expected == actual)
    due, found = _as_float(expected), _as_float(actual)
    if math.isnan(due) or math.isnan(found):
        return math.isnan(due) and math.isnan(found)
    # Whole numbers are compared as such: beyond 2**53 a float cannot tell them apart.
    if expected == actual:
        return True
    if exact or isinstance(expected, int) or math.isinf(due) or math.isinf(found):
        return False
    return abs(found - due) <= _RELATIVE * abs(due)


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer beyond every float
        return math.inf if number > 0 else -math.inf


def _in_lists(
    expected: list[Any], actual: list[Any], exact: bool, path: str
) -> PlainDifference | None:
    if len(expected) != len(actual):
        sentence = f"{len(actual)} elements, where {len(expected)} are due"
        return _difference("values", path, sentence, render(expected), render(actual))
    for i, (due, found) in enumerate(zip(expected, actual, strict=True)):
        difference = first_difference(due, found, exact=exact, path=f"{path}[{i}]")
        if difference is not None:
            return difference
    return None


def _in_dicts(
    expected: dict[str, Any], actual: dict[str, Any], exact: bool, path: str
) -> PlainDifference | None:
    for key, due in expected.items():
        if key not in actual:
            sentence = f"there is no key {_key(key)}"
            return _difference("keys", path, sentence, _keys(expected), _keys(actual))
        inner = f"{path}[{_key(key)}]"
        difference = first_difference(due, actual[key], exact=exact, path=inner)
        if difference is not None:
            return difference
    return None


def _key(key: str) -> str:
    return safe_line(repr(key), 60)


def _keys(table: dict[str, Any]) -> str:
    return safe_line(", ".join(table), 300) or "no keys"


def _values_differ(path: str, expected: Any, actual: Any) -> PlainDifference:
    due, found = render(expected), render(actual)
    if isinstance(expected, float) or isinstance(actual, float):
        wide = _as_float(expected), _as_float(actual)
        if max(len(due), len(found)) > 10 and all(map(math.isfinite, wide)):
            due, found = format_pair(*wide)
    return _difference("values", path, "the value is not right", due, found)


def _with_kind(actual: Any) -> str:
    shown = format_number(actual) if isinstance(actual, float) else render(actual)
    return shown if actual is None else f"{nameof(actual)}: {shown}"


def _difference(kind: str, path: str, sentence: str, expected: str, actual: str) -> PlainDifference:
    return PlainDifference(
        kind, f"{path}: {sentence}" if path else sentence, expected, actual, path
    )
