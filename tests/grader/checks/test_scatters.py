"""What came out instead of a shard of the mean is recognised, and only that."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from grader.checks.hypotheses import explain
from tests.grader.checks.builders import SIZES, Given, cut, evidence, given, mean

Mistake = Callable[[Given], list[torch.Tensor]]
"""Flat gradients by rank → what came out, by rank."""


def pieces(whole: torch.Tensor, ranks: int) -> list[torch.Tensor]:
    return cut(whole, ranks)


MISTAKES: dict[str, tuple[str, Mistake]] = {
    "sum": ("summed-not-averaged", lambda g: pieces(sum(g), len(g))),
    "own chunk": ("not-reduced", lambda g: [pieces(x, len(g))[r] for r, x in enumerate(g)]),
    "own chunk / N": (
        "divided-not-summed",
        lambda g: [pieces(x, len(g))[r] / len(g) for r, x in enumerate(g)],
    ),
    "next chunk": ("another-ranks-shard", lambda g: rotated(pieces(mean(g), len(g)), 1)),
    "chunk before": ("another-ranks-shard", lambda g: rotated(pieces(mean(g), len(g)), -1)),
    "first chunk": ("another-ranks-shard", lambda g: pieces(mean(g), len(g))[:1] * len(g)),
    "all of it": ("not-scattered", lambda g: [mean(g)] * len(g)),
    "all of it, padded": ("not-scattered", lambda g: [torch.cat(pieces(mean(g), len(g)))] * len(g)),
    "divided twice": ("divided-twice", lambda g: [x / len(g) for x in pieces(mean(g), len(g))]),
    "max": ("wrong-reduce-op", lambda g: pieces(torch.stack(g).amax(0), len(g))),
    "no padding": (
        "padding-missing",
        lambda g: list(mean(g).split(math.ceil(len(g[0]) / len(g)))),
    ),
    "floor": ("floor-not-ceil", lambda g: list(mean(g).split(len(g[0]) // len(g)))[: len(g)]),
    "split evenly and padded": (
        "padding-in-every-part",
        lambda g: [
            torch.nn.functional.pad(x, (0, math.ceil(len(g[0]) / len(g)) - len(x)))
            for x in mean(g).tensor_split(len(g))
        ],
    ),
    "zeros": ("nothing-but-zeros", lambda g: [x * 0 for x in pieces(mean(g), len(g))]),
}


def rotated(parts: list[torch.Tensor], by: int) -> list[torch.Tensor]:
    return parts[by:] + parts[:by]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_called_by_its_name(name: str, size: int) -> None:
    code, mistake = MISTAKES[name]
    own = given(size, (25,))  # which neither 2, 3 nor 4 divide
    found = evidence("reduce_scatter", cut(mean(own), size), mistake(own), extra={"gradients": own})
    is_right = name == "split evenly and padded" and size == 2
    assert explain(found) == (None if is_right else code)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_near_miss_is_not_taken_for_the_mistake(name: str, size: int) -> None:
    _, mistake = MISTAKES[name]
    own = given(size, (25,))
    near = [x * 1.01 + 0.01 for x in mistake(own)]
    found = evidence("reduce_scatter", cut(mean(own), size), near, extra={"gradients": own})
    assert explain(found) is None


@pytest.mark.parametrize("size", [3, 4])
def test_half_the_sum(size: int) -> None:
    own = given(size, (12,))
    half = cut(sum(own) / 2, size)
    found = evidence("reduce_scatter", cut(mean(own), size), half, extra={"gradients": own})
    assert explain(found) == "hard-coded-world-size"


@pytest.mark.parametrize("size", SIZES)
def test_padding_that_is_not_zero(size: int) -> None:
    own = given(size, (25,))
    actual = [part.clone() for part in cut(mean(own), size)]
    actual[-1][-1] = 7.0
    found = evidence("reduce_scatter", cut(mean(own), size), actual, extra={"gradients": own})
    assert explain(found) == "padding-not-zeros"


@pytest.mark.parametrize("size", SIZES)
def test_memory_reduced_as_it_lies(size: int) -> None:
    """Odd ranks hold the matrix column by column."""
    own = given(size, (4, 3))
    memory = mean([x.t().reshape(-1) if r % 2 else x.reshape(-1) for r, x in enumerate(own)])
    want = cut(mean(own).reshape(-1), size)
    found = evidence("reduce_scatter", want, cut(memory, size), extra={"gradients": own})
    assert explain(found) == "memory-order-mixed-up"


def test_half_of_what_one_rank_has_is_half_of_any_sum() -> None:
    own = given(1, (5,))
    found = evidence("reduce_scatter", own, [own[0] / 2], extra={"gradients": own})
    assert explain(found) == "hard-coded-world-size"
    found = evidence("reduce_scatter", own, [own[0] * 2], extra={"gradients": own})
    assert explain(found) is None


def test_whole_gradients_by_columns() -> None:
    own = given(3, (4, 5))
    want = cut(mean(own).reshape(-1), 3)
    actual = cut(mean(own).t().reshape(-1), 3)
    found = evidence("reduce_scatter", want, actual, extra={"gradients": own})
    assert explain(found) == "column-major"


def test_without_any_call_there_is_no_communication() -> None:
    own = given(3, (12,))
    kept = [cut(x, 3)[r] for r, x in enumerate(own)]
    more = {"extra": {"gradients": own}, "communicated": False}
    found = evidence("reduce_scatter", cut(mean(own), 3), kept, **more)
    # Its own chunk, and nothing was sent: both are true, and neither is preferred.
    assert explain(found) is None
    whole = evidence("reduce_scatter", cut(mean(own), 3), own, **more)
    assert explain(whole) == "no-communication"


def test_a_sum_that_became_infinite() -> None:
    own = [torch.tensor([60000.0, 1.0, -50000.0, 2.0]).half()] * 2
    actual = [torch.tensor([math.inf, 1.0]).half(), torch.tensor([-math.inf, 2.0]).half()]
    found = evidence("reduce_scatter", cut(own[0], 2), actual, extra={"gradients": own})
    assert explain(found) == "overflow-in-half-precision"
