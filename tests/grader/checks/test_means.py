"""What came out instead of a mean over ranks is recognised, and only that."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from grader.checks.hypotheses import explain
from tests.grader.checks.builders import SIZES, Given, evidence, given, mean

MISTAKES: dict[str, tuple[str, Callable[[Given], list[Any]]]] = {
    "sum": ("summed-not-averaged", lambda g: [sum(g)] * len(g)),
    "mean / N": ("divided-twice", lambda g: [mean(g) / len(g)] * len(g)),
    "sum of sums": ("reduced-twice", lambda g: [sum(g) * len(g)] * len(g)),
    "own": ("result-not-written-back", lambda g: g),
    "own / N": ("divided-not-summed", lambda g: [x / len(g) for x in g]),
    "own + mean": ("added-not-replaced", lambda g: [x + mean(g) for x in g]),
    "own + sum": ("added-not-replaced", lambda g: [x + sum(g) for x in g]),
    "max": ("wrong-reduce-op", lambda g: [torch.stack(g).amax(0)] * len(g)),
    "min / N": ("wrong-reduce-op", lambda g: [torch.stack(g).amin(0) / len(g)] * len(g)),
    "product": ("wrong-reduce-op", lambda g: [torch.stack(g).prod(0)] * len(g)),
    "last rank's": ("one-ranks-value", lambda g: [g[-1]] * len(g)),
    "first rank's": ("one-ranks-value", lambda g: [g[0]] * len(g)),
    "zeros": ("nothing-but-zeros", lambda g: [torch.zeros_like(x) for x in g]),
    "the others' mean": (
        "own-value-left-out",
        lambda g: [(sum(g) - x) / (len(g) - 1) for x in g],
    ),
    "the others' sum / N": ("own-value-left-out", lambda g: [(sum(g) - x) / len(g) for x in g]),
    "mean on rank 0, own elsewhere": ("reduced-to-one-rank", lambda g: [mean(g), *g[1:]]),
    "mean on the last rank": ("reduced-to-one-rank", lambda g: [*g[:-1], mean(g)]),
    "sum on rank 0, own elsewhere": ("reduced-to-one-rank", lambda g: [sum(g), *g[1:]]),
    "reduce, then / N everywhere": (
        "reduced-to-one-rank",
        lambda g: [mean(g), *(x / len(g) for x in g[1:])],
    ),
    "in bf16": (
        "through-lower-precision",
        lambda g: [mean([x.bfloat16() for x in g]).float()] * len(g),
    ),
    "through whole numbers": (
        "rounded-to-whole-numbers",
        lambda g: [mean(g).long().float()] * len(g),
    ),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_called_by_its_name(name: str, size: int) -> None:
    code, mistake = MISTAKES[name]
    own = [40 * x for x in given(size, (4, 3))]
    assert explain(evidence("mean", [mean(own)] * size, mistake(own), own)) == code


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("seed", range(5))
def test_a_near_miss_is_not_taken_for_the_mistake(name: str, size: int, seed: int) -> None:
    code, mistake = MISTAKES[name]
    own = [40 * x for x in given(size, (4, 3), seed)]
    near = [x * 1.01 + 0.01 for x in mistake(own)]
    assert explain(evidence("mean", [mean(own)] * size, near, own)) is None


@pytest.mark.parametrize("size", [3, 4])
def test_half_the_sum(size: int) -> None:
    own = given(size)
    half = [sum(own) / 2] * size
    assert explain(evidence("mean", [mean(own)] * size, half, own)) == "hard-coded-world-size"


def test_half_the_sum_of_two_is_right() -> None:
    own = given(2)
    assert explain(evidence("mean", [mean(own)] * 2, [sum(own) / 2] * 2, own)) is None


@pytest.mark.parametrize("shape", [(), (1,), (3, 2)])
def test_single_numbers_are_enough_in_single_precision(shape: tuple[int, ...]) -> None:
    own = given(3, shape)
    found = evidence("mean", [mean(own)] * 3, [sum(own)] * 3, own)
    assert explain(found) == "summed-not-averaged"


def test_one_number_of_few_digits_proves_nothing() -> None:
    own = [x.bfloat16() for x in given(3, (1,))]
    assert explain(evidence("mean", [mean(own)] * 3, [sum(own)] * 3, own)) is None
    own = [x.bfloat16() for x in given(3, (4, 4))]
    found = evidence("mean", [mean(own)] * 3, [sum(own)] * 3, own)
    assert explain(found) == "summed-not-averaged"


@pytest.mark.parametrize("size", SIZES)
def test_constants_prove_nothing(size: int) -> None:
    own = [torch.full((4,), float(rank + 1)) for rank in range(size)]
    for mistake in (sum(own), own[-1], mean(own) / size):
        assert explain(evidence("mean", [mean(own)] * size, [mistake] * size, own)) is None


def test_zeros_that_were_there_before_are_no_fact() -> None:
    own = [torch.zeros(4), torch.zeros(4), given(3, (4,))[0]]
    kept = [own[0], own[1], mean(own)]
    assert explain(evidence("mean", [mean(own)] * 3, kept, own)) is None


def test_what_a_single_rank_has_is_ambiguous() -> None:
    """The sum, that rank's value and the mean of those that have one are the same numbers."""
    only = given(2)[0]
    own = [only, None]
    found = evidence("mean", [only / 2] * 2, [only] * 2, own)
    assert explain(found) is None


def test_missing_values_count_as_zeros() -> None:
    own = [*given(4)[:3], None]
    total = sum(own[:3])
    due = [total / 4] * 4
    assert explain(evidence("mean", due, [total / 3] * 4, own)) == "missing-not-counted-as-zeros"
    assert explain(evidence("mean", due, [total] * 4, own)) == "summed-not-averaged"
    left_out = [*due[:3], None]
    assert explain(evidence("mean", due, left_out, own)) == "missing-left-out"
    lost = [None, *due[:3]]
    assert explain(evidence("mean", due, lost, own)) is None


def test_a_value_that_no_rank_has_is_left_out() -> None:
    due, nothing = [torch.zeros(3)] * 2, [None, None]
    others = tuple({"gradients/other": x} for x in given(2, (3,)))
    found = evidence("mean", due, nothing, inputs=others)
    assert explain(found) == "missing-left-out"
    # Where nothing is known of the ranks' own values, None may come from anywhere.
    assert explain(evidence("mean", due, nothing)) is None
    unknown = tuple({"x": x} for x in given(2, (3,)))
    assert explain(evidence("mean", due, nothing, inputs=unknown)) is None


def test_half_of_the_sum_of_two_out_of_three_is_ambiguous() -> None:
    """Divided by 2 whatever the number of ranks, or by the number of those that have one."""
    first, second, _ = given(3)
    total = first + second
    found = evidence("mean", [total / 3] * 3, [total / 2] * 3, [first, second, None])
    assert explain(found) is None


def test_a_mean_that_became_infinite_on_the_way() -> None:
    own = [torch.tensor([60000.0, 1000.0, -50000.0]).half()] * 2
    found = [torch.tensor([math.inf, 1000.0, -math.inf]).half()] * 2
    assert explain(evidence("mean", own, found, own)) == "overflow-in-half-precision"


def test_infinity_where_nothing_is_too_large_is_another_matter() -> None:
    own = [torch.tensor([60000.0, 1000.0, -50000.0]).half()] * 2
    found = [torch.tensor([math.inf, math.inf, -math.inf]).half()] * 2
    assert explain(evidence("mean", own, found, own)) is None


def test_own_values_without_any_call_are_no_communication() -> None:
    own = given(2)
    found = evidence("mean", [mean(own)] * 2, own, own, communicated=False)
    assert explain(found) == "no-communication"


@pytest.mark.parametrize("size", [3, 4])
def test_ranks_left_out(size: int) -> None:
    own = given(size)
    for some in (own[:-1], own[1:]):
        for part in (mean(some), sum(some) / size):
            found = evidence("mean", [mean(own)] * size, [part] * size, own)
            assert explain(found) == "some-ranks-left-out"


@pytest.mark.parametrize("size", SIZES)
def test_another_parameters_mean(size: int) -> None:
    a, b = given(size), given(size, seed=1)
    inputs = tuple({"gradients/weight": a[r], "gradients/other": b[r]} for r in range(size))
    found = evidence("mean", [mean(a)] * size, [mean(b)] * size, a, inputs=inputs)
    assert explain(found) == "another-parameters-value"


@pytest.mark.parametrize("size", SIZES)
def test_memory_added_as_it_lies(size: int) -> None:
    """Odd ranks hold the matrix column by column; all add what is at the same address."""
    own = given(size, (4, 3))
    memory = mean([x.t().reshape(-1) if r % 2 else x.reshape(-1) for r, x in enumerate(own)])
    actual = [memory.reshape(3, 4).t() if r % 2 else memory.reshape(4, 3) for r in range(size)]
    found = evidence("mean", [mean(own)] * size, actual, own)
    assert explain(found) == "memory-order-mixed-up"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", [(5,), (3, 2)])
def test_memory_with_gaps_is_reached_by_half(size: int, shape: tuple[int, ...]) -> None:
    """A gradient that is every second number of a longer tensor, reduced from its first on."""
    wide = given(size, (*shape, 2))
    own = [x[..., 0] for x in wide]
    memory = [x.reshape(-1).clone() for x in wide]
    reached = own[0].numel()
    total = sum(m[:reached] for m in memory)
    actual = [
        torch.cat([total, m[reached:]]).reshape(x.shape)[..., 0]
        for m, x in zip(memory, wide, strict=True)
    ]
    assert explain(evidence("mean", [mean(own)] * size, actual, own)) == "memory-order-mixed-up"
    halved = [x / size for x in actual]
    assert explain(evidence("mean", [mean(own)] * size, halved, own)) == "memory-order-mixed-up"


@pytest.mark.parametrize("size", SIZES)
def test_a_flat_buffer_that_is_read_from_the_wrong_place(size: int) -> None:
    shapes = {"gradients/a": (3, 2), "gradients/weight": (5,), "gradients/c": (3, 2)}
    values = {name: given(size, shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    inputs = tuple({name: values[name][r] for name in shapes} for r in range(size))
    flat = torch.cat([mean(v).reshape(-1) for v in values.values()])
    own = values["gradients/weight"]
    for start in (0, 1, 5, 7, 12):
        actual = [flat[start : start + 5]] * size
        found = evidence("mean", [mean(own)] * size, actual, own, inputs=inputs)
        assert explain(found) == "flat-buffer-misread"
    right = evidence("mean", [mean(own)] * size, [flat[6:11]] * size, own, inputs=inputs)
    assert explain(right) is None
    other = values["gradients/c"]
    taken = [flat[:6].reshape(3, 2)] * size
    swapped = evidence(
        "mean", [mean(other)] * size, taken, other, inputs=inputs, name="gradients/c"
    )
    assert explain(swapped) == "another-parameters-value"


def test_a_transposed_mean() -> None:
    for shape in ((3, 3), (4, 3)):
        own = given(3, shape)
        found = evidence("mean", [mean(own)] * 3, [mean(own).t()] * 3, own)
        assert explain(found) == "rows-and-columns-swapped"


def test_only_the_wrong_ranks_need_an_explanation() -> None:
    own = given(3)
    due = mean(own)
    found = evidence("mean", [due] * 3, [due, due, own[2]], own)
    assert explain(found) == "result-not-written-back"
    found = evidence("mean", [due] * 3, [due, sum(own), sum(own)], own)
    assert explain(found) == "summed-not-averaged"


def test_ranks_that_are_wrong_in_different_ways_have_no_common_story() -> None:
    own = given(3)
    mixed = [sum(own), mean(own), own[2]]
    assert explain(evidence("mean", [mean(own)] * 3, mixed, own)) is None


def test_locals_of_different_shapes_explain_nothing() -> None:
    own = [torch.randn(2), torch.randn(3)]
    assert explain(evidence("mean", [torch.randn(2)] * 2, own, own)) is None


def test_one_rank_has_nothing_to_reduce() -> None:
    own = given(1)
    for factor in (2, 0.25, -1):
        assert explain(evidence("mean", own, [own[0] * factor], own)) is None


def test_half_of_what_one_rank_has_is_half_of_any_sum() -> None:
    own = given(1)
    assert explain(evidence("mean", own, [own[0] / 2], own)) == "hard-coded-world-size"
