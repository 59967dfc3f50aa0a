"""Values of an answer, in words and digits that a person can compare."""

from __future__ import annotations

import json
import math
from typing import Any

import torch

from grader.ranks.inside.values import Other
from grader.report.escape import safe_text

_MAX_TEXT = 200
_MAX_ELEMENTS = 8
_DIGITS = {torch.float16: 5, torch.bfloat16: 4, torch.float32: 9, torch.float64: 17}
"""Significant digits that tell any two values of the dtype apart."""


def nameof(value: Any) -> str:
    """What kind of thing it is: `a float32 tensor of shape [3, 4]`, `None`, `a list`."""
    if isinstance(value, torch.Tensor):
        return f"a {dtype_name(value)} tensor of shape {list(value.shape)}"
    if isinstance(value, Other):
        if value.why:
            return f"a tensor that cannot be compared ({safe_text(value.why)})"
        return f"a value of type {safe_text(value.type)[:60]}"
    if value is None:
        return "None"
    kinds = {bool: "True or False", int: "a whole number", float: "a number", str: "a text",
             list: "a list", dict: "a dictionary"}  # fmt: skip
    return kinds.get(type(value), f"a {type(value).__name__}")


def dtype_name(tensor: torch.Tensor) -> str:
    """`float32` of `torch.float32`."""
    return str(tensor.dtype).removeprefix("torch.")


def render(value: Any) -> str:
    """The value itself, short; a long tensor by its first elements and its shape."""
    if isinstance(value, torch.Tensor):
        return _render_tensor(value)
    if isinstance(value, Other):
        return safe_text(value.repr)[:_MAX_TEXT]
    if isinstance(value, float):
        return number(value)
    text = safe_text(json.dumps(value, ensure_ascii=False, default=str))
    if len(text) > _MAX_TEXT:
        return f"{text[:_MAX_TEXT]}… ({len(text):,} characters in all)"
    return {"null": "None", "true": "True", "false": "False"}.get(text, text)


def _render_tensor(tensor: torch.Tensor) -> str:
    if tensor.dim() == 0:
        return element(tensor)
    flat = tensor.reshape(-1)
    shown = ", ".join(element(flat[i]) for i in range(min(flat.numel(), _MAX_ELEMENTS)))
    more = f", … ({flat.numel():,} elements)" if flat.numel() > _MAX_ELEMENTS else ""
    shape = f" of shape {list(tensor.shape)}" if tensor.dim() > 1 else ""
    return f"[{shown}{more}]{shape}"


def element(tensor: torch.Tensor) -> str:
    """One element of a tensor, with as many digits as its dtype can tell apart."""
    item = tensor.item()
    if isinstance(item, float):
        return number(item, _DIGITS.get(tensor.dtype, 9))
    return str(item)


def number(value: float, digits: int = 12) -> str:
    """A float without the noise: `0.25`, `nan`, `-inf`."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:.{digits}g}"
