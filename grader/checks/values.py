"""What an answer holds, in words and digits that a person can compare."""

from __future__ import annotations

import json
import math
from typing import Any

import torch

from grader.ranks.inside.values import Other
from grader.report.escape import safe_line

__all__ = [
    "MISSING", "Other", "Value", "dtype_name", "format_element", "format_number", "format_pair",
    "nameof", "render",
]  # fmt: skip


class Missing:
    """The type of `MISSING`."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = Missing()
"""What stands for a value that a rank did not bring back at all."""

Plain = None | bool | int | float | str | list[Any] | dict[str, Any]
Value = torch.Tensor | Plain | Other | Missing

_MAX_TEXT = 200
_CUT_BY_THE_RANK = 200
"""Length at which a rank cuts the `repr` of what it cannot send."""
_MAX_ELEMENTS = 8
_MOST_DIGITS = 17
"""Significant decimal digits that tell any two double-precision numbers apart."""
_KINDS = {
    bool: "True or False", int: "a whole number", float: "a number", str: "a text",
    list: "a list", dict: "a dictionary",
}  # fmt: skip


def nameof(value: Value) -> str:
    """What kind of thing it is: `a float32 tensor of shape [3, 4]`, `None`, `a list`."""
    if isinstance(value, torch.Tensor):
        dtype = dtype_name(value)
        kind = f"{'an' if dtype.startswith('int') else 'a'} {dtype} tensor"
        if value.dim() == 0:
            return f"{kind} of a single number"
        return f"{kind} of shape {list(value.shape)}"
    if isinstance(value, Other):
        if value.why:
            return f"a tensor that cannot be compared: {safe_line(value.why, _MAX_TEXT)}"
        return f"a value of type {safe_line(value.type, 60)}"
    if value is None or isinstance(value, Missing):
        return "None" if value is None else "nothing"
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def dtype_name(tensor: torch.Tensor) -> str:
    """`float32` of `torch.float32`."""
    return str(tensor.dtype).removeprefix("torch.")


def render(value: Value) -> str:
    """The value itself on one line; what is too long says how long it is."""
    if isinstance(value, torch.Tensor):
        return _render_tensor(value)
    if isinstance(value, Other):
        # The rank cut it there itself, without a word.
        return safe_line(value.repr) + ("…" if len(value.repr) >= _CUT_BY_THE_RANK else "")
    if value is None or isinstance(value, (bool, Missing)):
        return repr(value)
    if isinstance(value, float):
        return format_number(value)
    try:
        return safe_line(json.dumps(value, ensure_ascii=False), _MAX_TEXT)
    except (TypeError, ValueError, RecursionError):
        return nameof(value)


def _render_tensor(tensor: torch.Tensor) -> str:
    if tensor.dim() == 0:
        return format_element(tensor)
    flat = tensor.reshape(-1)
    shown = ", ".join(format_element(x) for x in flat[:_MAX_ELEMENTS])
    more = f", … ({flat.numel():,} elements)" if flat.numel() > _MAX_ELEMENTS else ""
    shape = f" of shape {list(tensor.shape)}" if tensor.dim() > 1 else ""
    return f"[{shown}{more}]{shape}"


def format_element(element: torch.Tensor) -> str:
    """A 0-d tensor in the fewest digits that no other number of its dtype has.

    `0.1` of the float32 next to 0.1, not `0.10000000149011612`.
    """
    item = element.item()
    if not isinstance(item, float):
        return str(item)
    if element.dtype is torch.float64 or not math.isfinite(item):
        return format_number(item)
    for digits in range(1, _MOST_DIGITS):
        short = float(f"{item:.{digits}g}")
        if torch.tensor(short, dtype=element.dtype).item() == item:
            return format_number(short)
    return format_number(item)


def format_number(number: float) -> str:
    """A float in the fewest digits that no other float has: `0.25`, `105`, `nan`, `-inf`."""
    return repr(float(number)).removesuffix(".0")


def format_pair(expected: float, actual: float) -> tuple[str, str]:
    """Two numbers that differ, in as many digits as show it, and at least six."""
    for digits in range(6, _MOST_DIGITS):
        pair = f"{expected:.{digits}g}", f"{actual:.{digits}g}"
        if pair[0] != pair[1]:
            return pair
    return format_number(expected), format_number(actual)
