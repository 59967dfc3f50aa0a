"""Plain answers: numbers, texts, lists and dictionaries, with the path of what differs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from grader.checks.compare import compare, same_bytes

NESTED: dict[str, Any] = {"a": {"b": [1.0, 2.0]}, "c": "x", "d": None, "e": True}

WRONG: dict[str, tuple[Any, Any, str, str]] = {
    "True for 1": (1, True, "type", ""),
    "1 for True": (True, 1, "type", ""),
    "1.0 for True": (True, 1.0, "type", ""),
    "False for None": (None, False, "type", ""),
    "a text for a number": (1.0, "1.0", "type", ""),
    "a number for a text": ("1", 1, "type", ""),
    "a list for a dict": ({"a": 1}, ["a"], "type", ""),
    "a dict for a list": (["a"], {"a": 1}, "type", ""),
    "NaN for a number": (1.0, math.nan, "values", ""),
    "a number for NaN": (math.nan, 1.0, "values", ""),
    "infinity for a number": (1.0, math.inf, "values", ""),
    "a number for infinity": (math.inf, 1e300, "values", ""),
    "the other infinity": (math.inf, -math.inf, "values", ""),
    "too large for any float": (1.0, 10**400, "values", ""),
    "too small for any float": (1.0, -(10**400), "values", ""),
    "small for zero": (0.0, 1e-12, "values", ""),
    "zero for small": (1e-12, 0.0, "values", ""),
    "large whole numbers": (2**60, 2**60 + 1, "values", ""),
    "another text": ("zero1", "zero2", "values", ""),
    "a missing key": ({"a": 1, "b": 2}, {"a": 1}, "keys", ""),
    "no keys": ({"a": 1}, {}, "keys", ""),
    "a wrong entry": ({"a": [1, 2]}, {"a": [1, 3]}, "values", "['a'][1]"),
    "a shorter list": ([1, 2], [1], "values", ""),
    "deep inside": (NESTED, {**NESTED, "a": {"b": [1.0, 2.5]}}, "values", "['a']['b'][1]"),
    "another type inside": (NESTED, {**NESTED, "e": 1}, "type", "['e']"),
    "a missing key inside": (NESTED, {**NESTED, "a": {}}, "keys", "['a']"),
}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_called_by_its_kind_and_path(name: str, exact: bool) -> None:
    expected, actual, kind, path = WRONG[name]
    difference = compare(expected, actual, exact=exact)
    assert difference is not None
    assert (difference.kind, difference.path) == (kind, path)
    assert difference.sentence.startswith(path)
    assert difference.expected != difference.actual


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (2.0, 2), (0.0, -0.0), (math.nan, math.nan), (math.inf, math.inf), (10**400, 10**400),
        ("x", "x"), ([], []), ({}, {}), (NESTED, dict(reversed(NESTED.items()))),
        ({"a": 1}, {"a": 1, "b": 2}),
    ],
)  # fmt: skip
def test_what_is_right_passes_exactly_too(expected: Any, actual: Any) -> None:
    for exact in (False, True):
        assert compare(expected, actual, exact=exact) is None


@pytest.mark.parametrize(
    ("expected", "actual", "kind"),
    [(105.0, 105.0001, "values"), (0.1 + 0.2, 0.3, "values"), (8, 8.0, "type")],
)
def test_what_passes_unless_exact(expected: Any, actual: Any, kind: str) -> None:
    assert compare(expected, actual, exact=False) is None
    difference = compare(expected, actual, exact=True)
    assert difference is not None
    assert difference.kind == kind


def test_a_fraction_is_no_whole_number() -> None:
    assert [d and d.kind for d in (compare(2, 2.5, exact=e) for e in (False, True))] == [
        "values",
        "type",
    ]


def test_numbers_beyond_every_float_are_told_apart() -> None:
    for exact in (False, True):
        assert compare(10**400, 10**400 + 1, exact=exact) is not None


def test_a_difference_in_a_dictionary_says_where() -> None:
    difference = compare({"per_gpu_total_gb": 105.0}, {"per_gpu_total_gb": 840.0}, exact=False)
    assert difference is not None
    assert difference.sentence == "['per_gpu_total_gb']: the value is not right"
    assert (difference.expected, difference.actual) == ("105", "840")


def test_numbers_are_shown_with_digits_that_tell_them_apart() -> None:
    difference = compare(140 / 3, 140 / 3 * (1 + 1e-12), exact=True)
    assert difference is not None
    assert difference.expected != difference.actual
    difference = compare(140 / 3, 130.38516044616699, exact=False)
    assert difference is not None
    assert (difference.expected, difference.actual) == ("46.6667", "130.385")


def test_a_key_cannot_act_in_a_terminal() -> None:
    difference = compare({"a": 1}, {"\x1b[31m": 1}, exact=False)
    assert difference is not None
    assert "\x1b" not in difference.actual


def test_between_ranks_plain_values_are_compared_as_they_are_written() -> None:
    assert same_bytes({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert same_bytes(math.nan, math.nan)
    assert same_bytes(None, None)
    assert same_bytes([1, [2.5]], [1, [2.5]])
    for a, b in ((1, 1.0), (1, True), (0.0, -0.0), ("1", 1), (None, False), ([1], [1, 1])):
        assert not same_bytes(a, b)


def test_nesting_without_end_is_only_not_the_same() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert not same_bytes(deep, [deep])
    difference = compare(1, deep, exact=True)
    assert difference is not None
    assert difference.kind == "type"
    while deep:  # taken apart by hand: freeing it in one go would recurse too
        deep = deep[0]
