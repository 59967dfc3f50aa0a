"""Values in words and digits: nothing is cut without a word, nothing can act."""

from __future__ import annotations

import math

import pytest
import torch

from grader.checks.values import (
    MISSING,
    Other,
    format_element,
    format_number,
    format_pair,
    nameof,
    render,
)
from grader.report.escape import safe_line, safe_text


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (torch.ones(3, 4), "a float32 tensor of shape [3, 4]"),
        (torch.ones(0, dtype=torch.int64), "an int64 tensor of shape [0]"),
        (torch.ones((), dtype=torch.bfloat16), "a bfloat16 tensor of a single number"),
        (None, "None"),
        (MISSING, "nothing"),
        (True, "True or False"),
        (3, "a whole number"),
        (3.5, "a number"),
        ("x", "a text"),
        ([1], "a list"),
        ({"a": 1}, "a dictionary"),
        (Other("ndarray", "array([1.])"), "a value of type ndarray"),
        (Other("Tensor", "", "it is sparse"), "a tensor that cannot be compared: it is sparse"),
    ],
)
def test_names(value: object, name: str) -> None:
    assert nameof(value) == name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.tensor([1.5, -2.0, 0.1]), "[1.5, -2, 0.1]"),
        (torch.tensor([[1, 2], [3, 4]]), "[1, 2, 3, 4] of shape [2, 2]"),
        (torch.tensor(0.1, dtype=torch.bfloat16), "0.1"),
        (torch.tensor([True, False]), "[True, False]"),
        (torch.arange(1000), "[0, 1, 2, 3, 4, 5, 6, 7, … (1,000 elements)]"),
        (torch.empty(0), "[]"),
        (None, "None"),
        (True, "True"),
        ([1, None, "é"], '[1, null, "é"]'),
        (105.0, "105"),
        (Other("Work", "<Work>"), "<Work>"),
        (MISSING, "nothing"),
    ],
)
def test_values_on_one_line(value: object, text: str) -> None:
    assert render(value) == text


def test_a_long_text_says_how_long_it_is() -> None:
    assert render("x" * 5000).endswith("… (5,002 characters in all)")
    assert render(list(range(1000))).endswith("characters in all)")
    assert render(Other("T", "x" * 200)).endswith("x…")
    assert not render(Other("T", "x" * 199)).endswith("…")


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, torch.float32, "0.1"),
        (0.1, torch.float64, "0.1"),
        (1 / 3, torch.float32, "0.33333334"),
        (1 / 3, torch.float16, "0.3333"),
        (1 / 3, torch.bfloat16, "0.334"),
        (65504, torch.float16, "65500"),
        (123456, torch.float32, "123456"),
        (-0.0, torch.float32, "-0"),
        (math.nan, torch.float32, "nan"),
        (-math.inf, torch.float16, "-inf"),
        (2**60 + 1, torch.int64, str(2**60 + 1)),
        (True, torch.bool, "True"),
    ],
)
def test_elements_in_the_digits_of_their_dtype(value: float, dtype: torch.dtype, text: str) -> None:
    assert format_element(torch.tensor(value, dtype=dtype)) == text


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_digits_give_the_number_again(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(48)
    for exponent in (-8, 0, 4):
        for value in (torch.randn(100, generator=generator) * 10.0**exponent).to(dtype):
            again = torch.tensor(float(format_element(value)), dtype=dtype)
            assert torch.equal(again, value)


def test_numbers() -> None:
    assert [format_number(x) for x in (0.25, 105.0, 1e300, math.inf)] == [
        "0.25",
        "105",
        "1e+300",
        "inf",
    ]
    assert format_pair(1.0, 1.5) == ("1", "1.5")
    assert format_pair(1 / 3, 2 / 3) == ("0.333333", "0.666667")
    assert format_pair(1.0, 1 + 1e-12) == ("1", "1.000000000001")
    assert len(set(format_pair(0.1, math.nextafter(0.1, 1)))) == 2


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain text, é, 漢字, 🙂", "plain text, é, 漢字, 🙂"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\x00b\x07\x7f\x9b", r"a\x00b\x07\x7f\x9b"),
        ("one\r\ntwo\rthree", "one\ntwo\\x0dthree"),
        ("tab\tstays", "tab\tstays"),
        ("\u202eturned\u2066", r"\u202eturned\u2066"),
        ("\u061c\u200b\ufeff\u2028\u00ad", r"\u061c\u200b\ufeff\u2028\xad"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("", ""),
    ],
)
def test_no_character_acts(text: str, safe: str) -> None:
    assert safe_text(text) == safe
    safe.encode()


def test_one_line_is_one_line() -> None:
    assert safe_line("a\nb\tc") == r"a\nb\tc"
    assert safe_line("abcdef", 3) == "abc… (6 characters in all)"
    assert safe_line("abc", 3) == "abc"


def test_no_code_point_gets_through_that_acts() -> None:
    every = "".join(map(chr, range(0x110000)))
    safe = safe_text(every.replace("\n", "").replace("\t", ""))
    safe.encode()
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in safe)
    assert not set(safe) & set("\u200b\u200d\u200e\u202a\u202e\u2066\u2069\u2028\u2029\ufeff")


def test_learners_texts_are_made_safe() -> None:
    for value in (Other("\x1b[31m", "\x1b[0m", ""), Other("T", "r", "\u202ewhy"), "\x1b", ["\x07"]):
        for text in (nameof(value), render(value)):
            assert text.isprintable()
