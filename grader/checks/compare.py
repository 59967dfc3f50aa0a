"""Is it what it should be? Presence, kind, shape, dtype, finiteness, then values.

The order is that of usefulness: of a tensor with the wrong shape it helps nobody to hear
how many elements differ. Every test is in positive form, so that NaN passes none.

Against a reference, -0.0 equals 0.0 even where "exact" is asked for: which of the two a
right algorithm gives depends on the order of its operations. Between ranks, which issue
the same operations, bytes count (`same_bytes`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from grader.checks import plain
from grader.checks.values import (
    MISSING,
    Other,
    Value,
    dtype_name,
    format_element,
    format_pair,
    nameof,
    render,
)

_TOLERANCES = {
    # torch.testing's defaults: (relative, absolute for numbers around 1)
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}


@dataclass(frozen=True)
class Difference:
    """The first difference between what was expected and what came."""

    kind: str
    """`missing`, `type`, `shape`, `dtype`, `not finite`, `values` or `keys`."""
    sentence: str
    """What differs, to follow "rank 1, gradient 0.weight: "."""
    expected: str
    actual: str
    index: tuple[int, ...] | None = None
    """Index of the first element that differs; `()` for a 0-d tensor."""
    differing: int | None = None
    """How many elements differ, out of `total`."""
    total: int | None = None
    path: str = ""
    """Where in a nested plain value: `['per_gpu_total_gb']`."""


def compare(
    expected: Value, actual: Value, *, exact: bool, summands: int = 1, magnitude: float = 0.0
) -> Difference | None:
    """The first difference, or None if `actual` is what it should be.

    Args:
        exact: tensors must agree bit for bit (but for the sign of zero), floats exactly.
        summands: how many values were added up, in whatever order; widens the tolerance.
        magnitude: size of the largest summand, where known: what cancels in a sum leaves
            rounding of the summands' size, not of the result's.
    """
    if actual is MISSING:
        return Difference("missing", f"nothing, where {nameof(expected)} is due",
                          nameof(expected), "nothing")  # fmt: skip
    if isinstance(expected, torch.Tensor):
        if not isinstance(actual, torch.Tensor):
            return _of_another_kind(expected, actual)
        return _compare_tensors(expected, actual, exact, summands, magnitude)
    if isinstance(actual, (torch.Tensor, Other)):
        return _of_another_kind(expected, actual)
    found = plain.first_difference(expected, actual, exact=exact)
    if found is None:
        return None
    return Difference(found.kind, found.sentence, found.expected, found.actual, path=found.path)


def same_bytes(a: Value, b: Value) -> bool:
    """Whether two answers are the same in every bit, the sign of zero included."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and _bytes(a) == _bytes(b)
    if isinstance(a, (torch.Tensor, Other)) or isinstance(b, (torch.Tensor, Other)):
        return type(a) is type(b) and a == b
    return plain.same_text(a, b)


def close(
    expected: torch.Tensor, actual: torch.Tensor, relative: float, absolute: float
) -> torch.Tensor:
    """Per element, in double precision: off by `absolute` at most, or by `relative` times the
    expected; or the very same NaN or infinity."""
    wide, given = expected.double(), actual.double()
    near = (given - wide).abs() <= (relative * wide.abs()).clamp(min=absolute)
    both_finite = wide.isfinite() & given.isfinite()
    return (near & both_finite) | (wide == given) | (wide.isnan() & given.isnan())


def relative_tolerance(dtype: torch.dtype, summands: int) -> float:
    """How far a sum of `summands` numbers may be off, relative to their size."""
    relative, _ = _TOLERANCES.get(dtype, (0.0, 0.0))
    return relative * (1 + math.log2(max(summands, 1)))


def scale(tensor: torch.Tensor) -> float:
    """The largest finite magnitude in `tensor`, 0 where there is none."""
    wide = tensor.double()
    finite = wide[wide.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes())


def _of_another_kind(expected: Value, actual: Value) -> Difference:
    name = nameof(actual)
    shown = (
        name if actual is None or isinstance(actual, torch.Tensor) else f"{name}: {render(actual)}"
    )
    return Difference(
        kind="type",
        sentence=f"{name}, where {nameof(expected)} is due",
        expected=nameof(expected),
        actual=shown,
    )


def _compare_tensors(
    expected: torch.Tensor, actual: torch.Tensor, exact: bool, summands: int, magnitude: float
) -> Difference | None:
    if expected.shape != actual.shape:
        due, found = _shape(expected), _shape(actual)
        return Difference(
            "shape", f"{found}, where {due} is due", due, f"{found}: {render(actual)}"
        )
    if expected.dtype != actual.dtype:
        due, found = dtype_name(expected), dtype_name(actual)
        return Difference("dtype", f"its dtype is {found}, where {due} is due", due, found)
    if not expected.dtype.is_floating_point:
        return _different_elements(expected, actual, expected == actual)
    difference = _not_finite(expected, actual)
    if difference is not None:
        return difference
    if exact:
        right = (expected == actual) | (expected.isnan() & actual.isnan())
    else:
        right = _within_tolerance(expected, actual, summands, magnitude)
    return _different_elements(expected, actual, right)


def _shape(tensor: torch.Tensor) -> str:
    return f"shape {list(tensor.shape)}"


def _within_tolerance(
    expected: torch.Tensor, actual: torch.Tensor, summands: int, magnitude: float
) -> torch.Tensor:
    """Per element, within the dtype's tolerance.

    The absolute part is scaled to the reference's own size: a fixed one would let zeros
    pass for small values.
    """
    _, absolute = _TOLERANCES.get(expected.dtype, (0.0, 0.0))
    relative = relative_tolerance(expected.dtype, summands)
    near_zero = max(relative, absolute) * scale(expected)
    # A sum that cancels is off by its summands' rounding; the reference's own size says
    # nothing of that.
    rounding = summands * torch.finfo(expected.dtype).eps / 2
    cancelled = rounding * min(magnitude, torch.finfo(expected.dtype).max)
    return close(expected, actual, relative, max(near_zero, cancelled))


def _not_finite(expected: torch.Tensor, actual: torch.Tensor) -> Difference | None:
    """What is not finite must be the very same NaN or infinity on both sides."""
    both_finite = expected.isfinite() & actual.isfinite()
    same = (expected.isnan() & actual.isnan()) | (expected.isinf() & (expected == actual))
    wrong = ~(both_finite | same)
    difference = _different_elements(expected, actual, ~wrong)
    if difference is None:
        return None
    if bool(actual[wrong].isnan().any()):
        what = "NaN"
    elif bool(actual[wrong].isinf().any()):
        what = "infinite"
    else:
        what = "finite, where NaN or infinity is due"
    assert difference.differing is not None
    assert difference.total is not None
    count = _count(difference.differing, difference.total)
    return replace(difference, kind="not finite", sentence=f"{count} {what}")


def _count(some: int, total: int) -> str:
    if total == 1:
        return "the value is"
    if some == total:
        return f"all {total:,} elements are"
    return f"{some:,} of {total:,} elements {'is' if some == 1 else 'are'}"


def _different_elements(
    expected: torch.Tensor, actual: torch.Tensor, right: torch.Tensor
) -> Difference | None:
    wrong = ~right
    differing, total = int(wrong.sum()), expected.numel()
    if not differing:
        return None
    index = tuple(int(i) for i in wrong.nonzero()[0])
    if total == 1:
        sentence = "the value is not right"
    elif differing == total:
        sentence = f"all {total:,} elements differ"
    else:
        sentence = f"{differing:,} of {total:,} elements differ{'s' if differing == 1 else ''}"
    due, found = _texts(expected[index], actual[index])
    return Difference("values", sentence, due, found, index, differing, total)


def _texts(expected: torch.Tensor, actual: torch.Tensor) -> tuple[str, str]:
    if not expected.dtype.is_floating_point:
        return format_element(expected), format_element(actual)
    due, found = format_element(expected), format_element(actual)
    return (
        format_pair(expected.item(), actual.item())
        if max(len(due), len(found)) > 10
        else (due, found)
    )
