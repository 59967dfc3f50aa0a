"""When something is said of wrong values at all: what fits by accident is no diagnosis."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grader.checks.evidence import Hypothesis, bits
from grader.checks.hypotheses import explain
from tests.grader.checks.builders import cut, evidence, given, mean

KINDS = ("mean", "broadcast", "gather", "shard", "rows", "reduce_scatter", "norm")


def known(own: list[torch.Tensor]) -> dict[str, Any]:
    """All that any family looks for."""
    extra = {"src": 1, "shards": [x.reshape(-1)[:6] for x in own], "gradients": own}
    return extra | {"full": own[0], "rank": 1, "ranks": len(own)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_random_values_have_no_story(kind: str, dtype: torch.dtype) -> None:
    for seed in range(10):
        for shape in ((), (2,), (4, 4)):
            own = [x.to(dtype) for x in given(3, shape, seed)]
            actual = [x.to(dtype) for x in given(3, shape, seed + 1000)]
            extra = {} if kind == "norm" else known(own)
            found = evidence(kind, own, actual, own, extra=extra)
            assert explain(found) is None, (seed, shape)


@pytest.mark.parametrize("kind", KINDS)
def test_small_whole_numbers_have_no_story(kind: str) -> None:
    """Sums, means and maxima of ones, twos and threes are the same few numbers."""
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        own = [torch.randint(1, 4, (2,), generator=generator).float() for _ in range(3)]
        actual = [torch.randint(1, 10, (2,), generator=generator).float()] * 3
        extra = {} if kind == "norm" else known(own)
        assert explain(evidence(kind, [mean(own)] * 3, actual, own, extra=extra)) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", [None, [1.0, 2.0], "text", 1.5, {"a": 1}, torch.empty(0)])
def test_what_is_no_such_tensor_has_no_story(kind: str, what: Any) -> None:
    own = given(3, (4, 4))
    extra = {} if kind == "norm" else known(own)
    assert explain(evidence(kind, own, [what] * 3, own, extra=extra)) is None


@pytest.mark.parametrize("kind", [*KINDS, "memory"])
def test_right_values_have_no_story(kind: str) -> None:
    own = given(3, (4, 4))
    assert explain(evidence(kind, own, own, own)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_without_any_knowledge_nothing_is_said(kind: str) -> None:
    assert explain(evidence(kind, given(3), given(3, seed=1))) is None


def test_no_family_no_guess() -> None:
    own = given(2)
    assert explain(evidence("", own, own[::-1], own)) is None


def test_an_unknown_family_is_a_mistake_of_the_check() -> None:
    with pytest.raises(LookupError, match="reduce_scatter"):
        explain(evidence("reduce-scatter", [None], [None]))


def test_nothing_changes_what_it_was_given() -> None:
    own = given(3, (5,))
    before = [x.clone() for x in own]
    for kind in KINDS:
        extra = {} if kind == "norm" else known(own)
        explain(evidence(kind, [mean(own)] * 3, [sum(own)] * 3, own, extra=extra))
    assert all(torch.equal(a, b) for a, b in zip(own, before, strict=True))


def weight(predicted: torch.Tensor, expected: torch.Tensor, kind: str = "mean") -> float:
    found = evidence(kind, [expected], [predicted], [predicted])
    return bits(found, Hypothesis("a-story", [predicted]), [0])


def test_equal_zero_and_expected_elements_weigh_nothing() -> None:
    (values,) = given(1, (4,))
    none = torch.zeros(4)
    assert weight(none, values) == 0
    assert weight(values, values) == 0
    assert weight(torch.full((4,), float(values[0])), none) == weight(values[:1], none[:1])
    assert weight(values, none) > 3 * weight(values[:1], none[:1])


def test_round_numbers_weigh_little_and_short_dtypes_less() -> None:
    none = torch.zeros(3)
    assert weight(torch.tensor([1.0, 2.0, 0.5]), none) == 3
    (values,) = given(1, (3,))
    heavier = [
        weight(values.to(d), none.to(d)) for d in (torch.bfloat16, torch.float16, torch.float32)
    ]
    assert heavier == sorted(heavier)
    assert heavier[0] < 16 < heavier[1] < heavier[2]


def test_copies_weigh_more_than_what_was_computed() -> None:
    (values,) = given(1, (3,))
    none = torch.zeros(3)
    assert weight(values, none, "gather") > weight(values, none, "mean")


def test_a_whole_shard_story_on_every_size() -> None:
    """From the smallest case on in which shards differ at all."""
    for size in (2, 3, 4):
        for numel in range(size, 12):
            full = given(1, (numel,), seed=numel)[0]
            shards = cut(full, size)
            repeated = torch.cat([shards[0]] * size)[:numel]
            if torch.equal(repeated, full):
                continue
            found = evidence("gather", [full] * size, [repeated] * size, extra={"shards": shards})
            assert explain(found) == "gather-list-aliased", (size, numel)
