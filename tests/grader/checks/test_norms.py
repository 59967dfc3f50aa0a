"""What came back instead of the norm of the averaged gradients is recognised, and only that."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from grader.checks.hypotheses import Evidence, explain
from tests.grader.checks.builders import SIZES, Given, evidence, given, mean

Mistake = Callable[[Given, Given], list[float]]


def norm(*tensors: torch.Tensor) -> float:
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors))


def right(a: Given, b: Given) -> float:
    return norm(mean(a), mean(b))


MISTAKES: dict[str, tuple[str, Mistake]] = {
    "of the sum": ("norm-before-dividing", lambda a, b: [right(a, b) * len(a)] * len(a)),
    "/ N": ("norm-divided-again", lambda a, b: [right(a, b) / len(a)] * len(a)),
    "own": ("norm-of-local-gradients", lambda a, b: [norm(*own) for own in zip(a, b, strict=True)]),
    "mean of own": (
        "norms-of-ranks-combined",
        lambda a, b: [sum(norm(*own) for own in zip(a, b, strict=True)) / len(a)] * len(a),
    ),
    "root of sum of own squares": ("norms-of-ranks-combined", lambda a, b: [norm(*a, *b)] * len(a)),
    "added": ("norms-added-up", lambda a, b: [norm(mean(a)) + norm(mean(b))] * len(a)),
    "the last": ("norm-of-one-parameter", lambda a, b: [norm(mean(b))] * len(a)),
    "the first": ("norm-of-one-parameter", lambda a, b: [norm(mean(a))] * len(a)),
    "squared": ("norm-squared", lambda a, b: [right(a, b) ** 2] * len(a)),
    "L1": (
        "another-kind-of-norm",
        lambda a, b: [float(mean(a).abs().sum() + mean(b).abs().sum())] * len(a),
    ),
    "largest": (
        "another-kind-of-norm",
        lambda a, b: [max(float(mean(a).abs().max()), float(mean(b).abs().max()))] * len(a),
    ),
    "root mean square": (
        "another-kind-of-norm",
        lambda a, b: [right(a, b) / math.sqrt(10)] * len(a),
    ),
}


def norms(actual: list[float], a: Given, b: Given) -> Evidence:
    inputs = tuple({"gradients/a": x, "gradients/b": y} for x, y in zip(a, b, strict=True))
    return evidence("norm", [right(a, b)] * len(a), actual, name="norm", inputs=inputs)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_called_by_its_name(name: str, size: int) -> None:
    code, mistake = MISTAKES[name]
    a, b = given(size), given(size, (4,), seed=1)
    assert explain(norms(mistake(a, b), a, b)) == code


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_near_miss_is_not_taken_for_the_mistake(name: str, size: int) -> None:
    _, mistake = MISTAKES[name]
    a, b = given(size), given(size, (4,), seed=1)
    assert explain(norms([x * 1.001 for x in mistake(a, b)], a, b)) is None


def test_the_norm_of_the_weights() -> None:
    a, weights = given(2), given(2, seed=1)
    inputs = tuple({"gradients/a": x, "parameters/a": w} for x, w in zip(a, weights, strict=True))
    actual = [norm(w) for w in weights]
    found = evidence("norm", [norm(mean(a))] * 2, actual, name="norm", inputs=inputs)
    assert explain(found) == "norm-of-parameters"


def test_gradients_may_be_told_by_the_check() -> None:
    a = given(3)
    told = {"gradients": [{"a": x} for x in a]}
    found = evidence("norm", [norm(mean(a))] * 3, [norm(x) for x in a], name="norm", extra=told)
    assert explain(found) == "norm-of-local-gradients"


def test_a_missing_gradient_counts_as_zeros() -> None:
    a, b = given(2), given(2, (4,), seed=1)
    inputs = ({"gradients/a": a[0]}, {"gradients/a": a[1], "gradients/b": b[1]})
    due = norm(mean(a), b[1] / 2)
    found = evidence("norm", [due] * 2, [2 * due] * 2, name="norm", inputs=inputs)
    assert explain(found) == "norm-before-dividing"


@pytest.mark.parametrize("said", [None, True, torch.tensor(1.0), "1.0", 10**400])
def test_what_is_no_number_is_not_explained(said: object) -> None:
    a, b = given(2), given(2, (4,), seed=1)
    assert explain(norms([said, said], a, b)) is None


def test_inputs_that_are_no_gradients_are_not_taken_for_some() -> None:
    x = given(2)
    inputs = tuple({"x": v} for v in x)
    found = evidence("norm", [1.0] * 2, [norm(v) for v in x], name="norm", inputs=inputs)
    assert explain(found) is None
