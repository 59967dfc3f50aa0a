"""What counts as equal, and what the first difference is called."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from grader.checks.compare import compare, same_bytes
from grader.checks.values import MISSING, Other

ONES = torch.ones(4)
SMALL = torch.full((4096,), 1 / 4096)
META = Other("Tensor", "…", "it is on the meta device")

WRONG: dict[str, tuple[Any, Any, str]] = {
    "not there": (ONES, MISSING, "missing"),
    "no number there": (1.0, MISSING, "missing"),
    "None": (ONES, None, "type"),
    "a list": (ONES, [1.0, 1.0, 1.0, 1.0], "type"),
    "a tensor that cannot be sent": (ONES, META, "type"),
    "a tensor that cannot be sent, for a number": (1.0, META, "type"),
    "one element that would broadcast": (ONES, torch.ones(1), "shape"),
    "nothing, which would broadcast": (ONES, torch.empty(0), "shape"),
    "0-d for 1-d": (torch.ones(1), torch.ones(()), "shape"),
    "transposed": (torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2), "shape"),
    "float64 for float32": (ONES, ONES.double(), "dtype"),
    "int for float": (ONES, ONES.long(), "dtype"),
    "bool for uint8": (torch.ones(2, dtype=torch.uint8), torch.ones(2, dtype=torch.bool), "dtype"),
    "NaN": (ONES, torch.tensor([1.0, math.nan, 1.0, 1.0]), "not finite"),
    "NaN everywhere": (ONES, ONES * math.nan, "not finite"),
    "NaN in a single number": (torch.ones(()), torch.tensor(math.nan), "not finite"),
    "infinity": (ONES, torch.tensor([1.0, math.inf, 1.0, 1.0]), "not finite"),
    "infinity for a large number": (
        torch.tensor([65504.0]).half(),
        torch.tensor([math.inf]).half(),
        "not finite",
    ),
    "a number where NaN is due": (ONES * math.nan, ONES, "not finite"),
    "NaN where infinity is due": (ONES * math.inf, ONES * math.nan, "not finite"),
    "infinity of the other sign": (ONES * math.inf, -ONES * math.inf, "not finite"),
    "zeros for small values": (SMALL, torch.zeros(4096), "values"),
    "zeros for tiny values": (SMALL * 1e-20, torch.zeros(4096), "values"),
    "tiny values for zeros": (torch.zeros(4), torch.full((4,), 1e-30), "values"),
    "one element": (ONES, torch.tensor([1.0, 1.0, 1.0, 2.0]), "values"),
    "fp32, a thousandth off": (ONES, ONES * 1.001, "values"),
    "fp64, a millionth off": (ONES.double(), ONES.double() * (1 + 1e-6), "values"),
    "fp16, a hundredth off": (ONES.half(), ONES.half() * 1.01, "values"),
    "bf16, a few bits off": (ONES.bfloat16(), (ONES * 1.08).bfloat16(), "values"),
    "integers": (torch.arange(3), torch.tensor([0, 1, 3]), "values"),
    "large integers": (torch.tensor([2**60]), torch.tensor([2**60 + 1]), "values"),
    "bools": (torch.tensor([True, False]), torch.tensor([True, True]), "values"),
    "a tensor where None is due": (None, ONES, "type"),
    "a number where None is due": (None, 0, "type"),
}

RIGHT: dict[str, tuple[Any, Any]] = {
    "the same": (ONES, ONES.clone()),
    "nothing in it": (torch.empty(0, 3), torch.empty(0, 3)),
    "another layout": (torch.ones(2, 3), torch.ones(3, 2).t()),
    "rounding of float32": (ONES, ONES * (1 + 1e-7)),
    "rounding of float64": (ONES.double(), ONES.double() * (1 + 1e-9)),
    "rounding of bf16": (ONES.bfloat16() * 3, (ONES * 3.01).bfloat16()),
    "a small element beside a large one": (torch.tensor([1e4, 1e-6]), torch.tensor([1e4, 2e-6])),
    "the same NaN": (ONES * math.nan, ONES * math.nan),
    "the same infinity": (-ONES * math.inf, -ONES * math.inf),
    "a negative zero": (torch.zeros(2), -torch.zeros(2)),
    "None": (None, None),
}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_called_by_its_kind(name: str, exact: bool) -> None:
    expected, actual, kind = WRONG[name]
    difference = compare(expected, actual, exact=exact, summands=4)
    assert difference is not None
    assert difference.kind == kind
    assert difference.expected != difference.actual


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str) -> None:
    expected, actual = RIGHT[name]
    assert compare(expected, actual, exact=False, summands=4) is None
    if not name.startswith(("rounding", "a small")):
        assert compare(expected, actual, exact=True) is None


def test_exact_means_every_bit_but_the_sign_of_zero() -> None:
    nearly = ONES * (1 + 1.2e-7)
    assert compare(ONES, nearly, exact=True) is not None
    assert compare(ONES, nearly, exact=False) is None


def test_between_ranks_bytes_count() -> None:
    assert same_bytes(ONES, ONES.clone())
    assert same_bytes(ONES * math.nan, ONES * math.nan)
    assert same_bytes(torch.empty(0), torch.empty(0))
    assert same_bytes(torch.tensor(True), torch.tensor(True))
    assert same_bytes(torch.ones(2, 3), torch.ones(3, 2).t())
    assert not same_bytes(torch.zeros(2), -torch.zeros(2))
    assert not same_bytes(ONES, ONES.reshape(2, 2))
    assert not same_bytes(ONES, ONES.view(torch.int32))
    assert not same_bytes(ONES, None)
    assert same_bytes(META, Other("Tensor", "…", "it is on the meta device"))
    assert not same_bytes(META, Other("Tensor", "…", "it is sparse"))
    assert not same_bytes(META, None)


def test_the_first_difference_is_named_with_its_place_and_count() -> None:
    expected = torch.arange(12.0).reshape(3, 4)
    actual = expected.clone()
    actual[1, 2:] += 0.5
    difference = compare(expected, actual, exact=False)
    assert difference is not None
    assert (difference.index, difference.differing, difference.total) == ((1, 2), 2, 12)
    assert (difference.expected, difference.actual) == ("6", "6.5")
    assert difference.sentence == "2 of 12 elements differ"


@pytest.mark.parametrize(
    ("actual", "sentence"),
    [
        (torch.tensor([1.0, 2.0, 1.0, 1.0]), "1 of 4 elements differs"),
        (ONES * 2, "all 4 elements differ"),
        (torch.tensor([1.0, math.nan, 1.0, 1.0]), "1 of 4 elements is NaN"),
        (torch.tensor([math.inf, math.nan, 1.0, 1.0]), "2 of 4 elements are NaN"),
        (torch.tensor([math.inf, math.inf, 1.0, 1.0]), "2 of 4 elements are infinite"),
        (ONES / 0, "all 4 elements are infinite"),
        (torch.ones(2, 2), "shape [2, 2], where shape [4] is due"),
        (ONES.double(), "its dtype is float64, where float32 is due"),
        (None, "None, where a float32 tensor of shape [4] is due"),
        ([1, 1], "a list, where a float32 tensor of shape [4] is due"),
    ],
)
def test_sentences(actual: Any, sentence: str) -> None:
    difference = compare(ONES, actual, exact=False)
    assert difference is not None
    assert difference.sentence == sentence


def test_a_single_number_is_no_element_of_many() -> None:
    difference = compare(torch.tensor(1.0), torch.tensor(2.0), exact=False)
    assert difference is not None
    assert (difference.sentence, difference.index) == ("the value is not right", ())
    difference = compare(torch.tensor(1.0), torch.tensor(math.nan), exact=False)
    assert difference is not None
    assert difference.sentence == "the value is NaN"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [1.1, 1234.5, 3e-5, 0.1, 2.0**-20, 60000.0])
def test_two_values_one_bit_apart_are_shown_apart(dtype: torch.dtype, value: float) -> None:
    one = torch.tensor([value], dtype=dtype)
    other = torch.nextafter(one, one * 2)
    difference = compare(one, other, exact=True)
    assert difference is not None
    assert difference.expected != difference.actual


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_right_means_in_any_order_pass(dtype: torch.dtype, size: int) -> None:
    """The sum from the other end, divided before or after, in a tensor as small as can be."""
    generator = torch.Generator().manual_seed(48)
    for count in (1, 3, 100):
        for _ in range(100):
            parts = torch.randn(size, count, generator=generator, dtype=torch.float64).to(dtype)
            forwards, backwards = parts[0] / size, parts[-1]
            for part in parts[1:]:
                forwards = forwards + part / size
            for part in parts.flip(0)[1:]:
                backwards = backwards + part
            magnitude = float(parts.abs().max())
            difference = compare(
                forwards, backwards / size, exact=False, summands=size, magnitude=magnitude
            )
            assert difference is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_wrong_means_never_pass(dtype: torch.dtype, size: int) -> None:
    generator = torch.Generator().manual_seed(48)
    for _ in range(100):
        parts = torch.randn(size, 6, generator=generator, dtype=torch.float64).to(dtype)
        mean, magnitude = parts.double().mean(0).to(dtype), float(parts.abs().max())
        for wrong in (mean * size, mean * 1.25, parts[0], parts.amax(0), mean * 0, mean.roll(1)):
            difference = compare(mean, wrong, exact=False, summands=size, magnitude=magnitude)
            assert difference is not None


def test_cancellation_is_allowed_only_where_its_size_is_known() -> None:
    due, found = torch.tensor([1e-7]), torch.tensor([1.3e-7])
    assert compare(due, found, exact=False, summands=2, magnitude=1.0) is None
    assert compare(due, found, exact=False, summands=2) is not None
    assert compare(due, due + 1e-4, exact=False, summands=2, magnitude=1.0) is not None
    assert compare(due, found, exact=False, summands=2, magnitude=math.inf) is None
