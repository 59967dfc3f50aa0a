"""Values that cross the wall: tensors as raw bytes (safetensors), the rest as JSON.

A blob is a 4-byte length, a JSON index (name → where the value is) and a safetensors
file. Inputs go in as a blob, answers come out as one. What is neither a tensor nor
JSON is not sent; its type and a short `repr` are, so that the grader can say
"a list where a tensor is due".
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import torch

_LENGTH = struct.Struct("<I")
_MAX_REPR = 200
_SENT_DTYPES = frozenset(
    {
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool,
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    }
)  # fmt: skip


class UnreadableValues(Exception):
    """Bytes that are no blob of values, or one above a cap."""


@dataclass(frozen=True)
class Other:
    """A value that cannot be sent: neither a plain dense tensor on the CPU nor JSON."""

    type: str
    """Name of its type: `ndarray`, `Work`, `function`."""
    repr: str
    """The first characters of its `repr`."""
    why: str = ""
    """Why a tensor was not sent: `it is on the meta device`."""


def encode(values: Mapping[str, Any]) -> bytes:
    """`values` as one blob. Tensors are copied out as they are at this moment."""
    index: dict[str, Any] = {}
    tensors: dict[str, torch.Tensor] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            why = _not_sendable(value)
            if why:
                index[str(name)] = {"other": _describe(value, why)}
            else:
                key = str(len(tensors))
                index[str(name)] = {"tensor": key}
                tensors[key] = _plain(value)
        else:
            index[str(name)] = _json_entry(value)
    head = json.dumps(index, separators=(",", ":")).encode()
    return _LENGTH.pack(len(head)) + head + safetensors.torch.save(tensors)


def decode(blob: bytes, *, max_tensors: int = 1000, max_index: int = 1 << 20) -> dict[str, Any]:
    """The values of a blob, in the order they were given.

    Raises:
        UnreadableValues: `blob` is malformed, or holds more than the caps allow.
    """
    try:
        return _decode(blob, max_tensors, max_index)
    except UnreadableValues:
        raise
    except (ValueError, KeyError, TypeError, RecursionError, MemoryError, OverflowError) as error:
        raise UnreadableValues(f"{type(error).__name__}: {error}") from error
    except safetensors.SafetensorError as error:
        raise UnreadableValues(f"the tensors are malformed: {error}") from error


def _decode(blob: bytes, max_tensors: int, max_index: int) -> dict[str, Any]:
    if len(blob) < _LENGTH.size:
        raise UnreadableValues("it ends before it begins")
    (size,) = _LENGTH.unpack_from(blob)
    body = _LENGTH.size + size
    if size > max_index or body + 8 > len(blob):
        raise UnreadableValues("its index is longer than it may be")
    header = int.from_bytes(blob[body : body + 8], "little")
    if header > max_index:
        raise UnreadableValues("its tensors have a header that is longer than it may be")
    if blob.count(b'"dtype"', body, body + 8 + header) > max_tensors:
        raise UnreadableValues(f"it holds more than {max_tensors} tensors")
    index = json.loads(blob[_LENGTH.size : body])
    if not isinstance(index, dict):
        raise UnreadableValues("its index is no table of names")
    tensors = safetensors.torch.load(blob[body:])
    return {str(name): _value(entry, tensors) for name, entry in index.items()}


def _value(entry: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if "tensor" in entry:
        return tensors[entry["tensor"]]
    if "other" in entry:
        return Other(**{field: str(text) for field, text in entry["other"].items()})
    return entry["json"]


def _json_entry(value: Any) -> dict[str, Any]:
    try:
        # A round trip, so that what is compared is what JSON can hold (a tuple is a list).
        return {"json": json.loads(json.dumps(value))}
    except (TypeError, ValueError, RecursionError):
        return {"other": _describe(value, "")}


def _describe(value: Any, why: str) -> dict[str, str]:
    try:
        text = repr(value)[:_MAX_REPR]
    except Exception as error:  # a learner's __repr__ may do anything
        text = f"<repr raised {type(error).__name__}>"
    return {"type": type(value).__name__, "repr": text, "why": why}


def _not_sendable(tensor: torch.Tensor) -> str:
    if tensor.is_meta:
        return "it is on the meta device, so it has a shape and no numbers"
    if tensor.layout is not torch.strided:
        return "it is sparse"
    if tensor.dtype not in _SENT_DTYPES:
        return f"its dtype is {str(tensor.dtype).removeprefix('torch.')}"
    if tensor.device.type != "cpu":
        return f"it is on {tensor.device}"
    return ""


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy that owns its memory and is no subclass."""
    plain = tensor.detach().as_subclass(torch.Tensor)
    return plain.clone(memory_format=torch.contiguous_format)
