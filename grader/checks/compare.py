"""Is it what it should be? Presence, kind, shape, dtype, finiteness, then values.

The order is that of usefulness: of a tensor with the wrong shape it helps nobody to hear
how many elements differ. Every test is in positive form, so that NaN passes none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from grader.checks.values import dtype_name, element, nameof, number, render
from grader.ranks.inside.values import Other

_TOLERANCES = {
    # torch.testing's defaults: (relative, absolute)
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}
_RELATIVE_FLOAT = 1e-5
"""For plain Python floats: a learner may well have computed them in single precision."""


@dataclass(frozen=True)
class Difference:
    """The first difference between what was expected and what came."""

    kind: str
    """`type`, `shape`, `dtype`, `not finite`, `values` or `keys`."""
    sentence: str
    """What differs, to follow "rank 1, gradient 0.weight:"."""
    expected: str
    actual: str
    index: tuple[int, ...] | None = None
    differing: int | None = None
    total: int | None = None


def compare(expected: Any, actual: Any, *, exact: bool, summands: int = 1) -> Difference | None:
    """The first difference, or None if `actual` is what it should be.

    Args:
        exact: tensors must agree bit for bit (but for the sign of zero), floats exactly.
        summands: how many values were added up, in whatever order; widens the tolerance.
    """
    if isinstance(expected, torch.Tensor):
        if not isinstance(actual, torch.Tensor):
            return _of_another_kind(expected, actual)
        return _compare_tensors(expected, actual, exact, summands)
    if isinstance(actual, (torch.Tensor, Other)):
        return _of_another_kind(expected, actual)
    return _compare_plain(expected, actual, exact, "")


def same_bytes(a: Any, b: Any) -> bool:
    """Whether two answers are the same in every bit, the sign of zero included."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and _bytes(a) == _bytes(b)
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return False
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return type(a) is type(b) and bool(a == b)


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def _of_another_kind(expected: Any, actual: Any) -> Difference:
    return Difference(
        kind="type",
        sentence=f"{nameof(actual)}, where {nameof(expected)} is due",
        expected=nameof(expected),
        actual=f"{nameof(actual)}" if actual is None else f"{nameof(actual)}: {render(actual)}",
    )


# Tensors


def _compare_tensors(
    expected: torch.Tensor, actual: torch.Tensor, exact: bool, summands: int
) -> Difference | None:
    if expected.shape != actual.shape:
        return Difference(
            kind="shape",
            sentence="the shape is not right",
            expected=f"shape {list(expected.shape)}",
            actual=f"shape {list(actual.shape)}: {render(actual)}",
        )
    if expected.dtype != actual.dtype:
        return Difference(
            kind="dtype",
            sentence="the dtype is not right",
            expected=dtype_name(expected),
            actual=dtype_name(actual),
        )
    if not expected.dtype.is_floating_point:
        return _different_elements(expected, actual, expected == actual)
    finite = _agree_where_not_finite(expected, actual)
    if not finite.all():
        return _not_finite(expected, actual, finite)
    if exact:
        right = (expected == actual) | (expected.isnan() & actual.isnan())
    else:
        right = _close(expected, actual, summands)
    return _different_elements(expected, actual, right)


def _agree_where_not_finite(expected: torch.Tensor, actual: torch.Tensor) -> torch.Tensor:
    """Per element: both finite, or both the very same NaN or infinity."""
    both_finite = expected.isfinite() & actual.isfinite()
    return (
        both_finite
        | (expected.isnan() & actual.isnan())
        | (expected.isinf() & (expected == actual))
    )


def _close(expected: torch.Tensor, actual: torch.Tensor, summands: int) -> torch.Tensor:
    """Per element, within the dtype's tolerance.

    The absolute part is scaled to the reference's own size: a fixed one would let zeros
    pass for small values.
    """
    relative, _ = _TOLERANCES[expected.dtype]
    widened = relative * max(1.0, math.log2(max(summands, 1)) + 1)
    wide, given = expected.double(), actual.double()
    finite = wide[wide.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    allowed = widened * wide.abs() + widened * scale
    return ((given - wide).abs() <= allowed) | (wide == given) | (wide.isnan() & given.isnan())


def _not_finite(
    expected: torch.Tensor, actual: torch.Tensor, agree: torch.Tensor
) -> Difference | None:
    difference = _different_elements(expected, actual, agree)
    assert difference is not None
    what = "NaN" if bool(actual[~agree].isnan().any()) else "infinite"
    return Difference(
        kind="not finite",
        sentence=f"{_count(difference.differing, difference.total)} {what}",
        expected=difference.expected,
        actual=difference.actual,
        index=difference.index,
        differing=difference.differing,
        total=difference.total,
    )


def _count(some: int | None, total: int | None) -> str:
    if total == 1:
        return "the value is"
    return f"{some:,} of {total:,} elements {'is' if some == 1 else 'are'}"


def _different_elements(
    expected: torch.Tensor, actual: torch.Tensor, right: torch.Tensor
) -> Difference | None:
    wrong = ~right
    differing = int(wrong.sum())
    if not differing:
        return None
    index = tuple(int(i) for i in wrong.nonzero()[0]) if expected.dim() else ()
    total = expected.numel()
    if total == 1:
        sentence = "the value is not right"
    elif differing == total:
        sentence = f"all {total:,} elements differ"
    else:
        sentence = f"{differing:,} of {total:,} elements differ{'s' if differing == 1 else ''}"
    return Difference(
        kind="values",
        sentence=sentence,
        expected=element(expected[index]),
        actual=element(actual[index]),
        index=index,
        differing=differing,
        total=total,
    )


# Plain values


def _compare_plain(expected: Any, actual: Any, exact: bool, path: str) -> Difference | None:
    if isinstance(expected, dict) and isinstance(actual, dict):
        return _compare_dicts(expected, actual, exact, path)
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return _plain_difference(path, expected, actual, "the length is not right")
        for i, (want, got) in enumerate(zip(expected, actual, strict=True)):
            difference = _compare_plain(want, got, exact, f"{path}[{i}]")
            if difference is not None:
                return difference
        return None
    if _is_number(expected) and _is_number(actual):
        return _compare_numbers(expected, actual, exact, path)
    if type(expected) is not type(actual):
        sentence = f"{nameof(actual)}, where {nameof(expected)} is due"
        return _plain_difference(path, expected, actual, sentence, "type")
    if expected != actual:
        return _plain_difference(path, expected, actual, "the value is not right")
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _compare_numbers(expected: Any, actual: Any, exact: bool, path: str) -> Difference | None:
    if isinstance(expected, int) and isinstance(actual, float) and not actual.is_integer():
        return _plain_difference(path, expected, actual, "the value is not right")
    tolerance = 0.0 if exact else _RELATIVE_FLOAT
    if math.isnan(expected) and math.isnan(actual):
        return None
    if expected == actual or abs(actual - expected) <= tolerance * abs(expected):
        return None
    return _plain_difference(path, expected, actual, "the value is not right")


def _compare_dicts(
    expected: dict[str, Any], actual: dict[str, Any], exact: bool, path: str
) -> Difference | None:
    missing = [key for key in expected if key not in actual]
    if missing:
        sentence = f"there is no key {_keys(missing)}"
        return _plain_difference(path, sorted(expected), sorted(actual), sentence, "keys")
    for key, want in expected.items():
        difference = _compare_plain(want, actual[key], exact, f"{path}[{key!r}]")
        if difference is not None:
            return difference
    return None


def _keys(keys: list[str]) -> str:
    return ", ".join(repr(key) for key in keys)


def _plain_difference(
    path: str, expected: Any, actual: Any, sentence: str, kind: str = "values"
) -> Difference:
    return Difference(
        kind=kind,
        sentence=f"{path}: {sentence}" if path else sentence,
        expected=number(expected) if isinstance(expected, float) else render(expected),
        actual=number(actual) if isinstance(actual, float) else render(actual),
    )
