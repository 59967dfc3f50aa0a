"""What the families share: padding, shards, and wrong values that any of them may meet."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from grader.checks.compare import close, compare, relative_tolerance, scale
from grader.checks.evidence import UNKNOWN, Evidence, Hypothesis

_LOWER = {
    torch.float64: (torch.float32, torch.bfloat16, torch.float16),
    torch.float32: (torch.bfloat16, torch.float16),
    torch.int64: (torch.float64, torch.float32),
    torch.int32: (torch.float32,),
}
"""Detours that lose digits of a dtype."""
_FEWEST_ROUNDED = 4
"""Elements that have to be rounded alike before it is called a detour."""


def wrong_but_plain(evidence: Evidence) -> Iterator[Hypothesis]:
    """Wrong in a way that needs no story: nothing but zeros, or rounded on the way."""
    if all(_is_all_zeros(evidence, rank) for rank in evidence.wrong_ranks()):
        yield as_seen("nothing-but-zeros", evidence)
    if _was_rounded(evidence):
        yield as_seen("through-lower-precision", evidence)


def _is_all_zeros(evidence: Evidence, rank: int) -> bool:
    due, found = evidence.expected[rank], evidence.actual[rank]
    if not isinstance(found, torch.Tensor) or not isinstance(due, torch.Tensor):
        return False
    if found.shape != due.shape or found.numel() < 2 or found.dtype is torch.bool:
        return False
    # A rank that began with zeros, or with nothing, and still has them tells another story.
    own = evidence.locals[rank] if any(t is not None for t in evidence.locals) else due
    return own is not None and bool(own.any()) and bool(due.any()) and not bool(found.any())


def _was_rounded(evidence: Evidence) -> bool:
    """Whether all that is wrong is digits that another dtype does not have."""
    lost = [_digits_lost(evidence, rank) for rank in evidence.wrong_ranks()]
    return all(lost) and sum(lost) >= _FEWEST_ROUNDED


def _digits_lost(evidence: Evidence, rank: int) -> int:
    """How many elements are right but for digits that a detour over another dtype loses."""
    due, found = evidence.expected[rank], evidence.actual[rank]
    if not isinstance(due, torch.Tensor) or not isinstance(found, torch.Tensor):
        return 0
    if due.dtype != found.dtype or due.shape != found.shape:
        return 0
    if found.dtype.is_floating_point and torch.equal(found, found.trunc()):
        return 0  # whole numbers fit into any dtype
    for low in _LOWER.get(due.dtype, ()):
        if not torch.equal(found.to(low).to(found.dtype), found):
            continue
        slack = relative_tolerance(low, evidence.world_size)
        if bool(close(due, found, slack, slack * scale(due)).all()):
            return int((due.to(low).to(due.dtype) != due).sum())
    return 0


def complete_locals(evidence: Evidence) -> list[torch.Tensor] | None:
    """Every rank's local value in double precision; zeros where a rank has none.

    None where no rank has one, or where they are not of one shape.
    """
    known = [t for t in evidence.locals if t is not None]
    if not known or len({t.shape for t in known}) > 1:
        return None
    return [torch.zeros_like(known[0], dtype=torch.float64) if t is None else t.double()
            for t in evidence.locals]  # fmt: skip


def as_seen(code: str, evidence: Evidence) -> Hypothesis:
    """A fact about what every wrong rank holds, established before."""
    return Hypothesis(code, evidence.actual, is_fact=True)


def everywhere(code: str, value: Any, evidence: Evidence) -> Hypothesis:
    """Every rank holds the same value, the ranks that are right as well."""
    return Hypothesis(code, [value] * evidence.world_size, everywhere=True)


def kept_own(evidence: Evidence, code: str) -> Hypothesis:
    """Every wrong rank holds what it held before; `code` where the ranks did communicate."""
    own = [UNKNOWN if value is None else value for value in evidence.locals]
    return Hypothesis(code if evidence.communicated else "no-communication", own, is_plain=True)


def overflowed(evidence: Evidence, own: list[torch.Tensor], size: int | None = None) -> bool:
    """Whether wrong half-precision answers are infinite just where a sum is too large.

    Args:
        own: the summands, by rank, in double precision.
        size: elements of a shard, where every rank gets only its own.
    """
    total = sum(own, torch.zeros_like(own[0]))
    # On the way to a sum that fits, a part of it may be too large.
    most = sum((t.abs() for t in own), torch.zeros_like(own[0]))
    for rank in evidence.wrong_ranks():
        found = evidence.actual[rank]
        due, may = (t if size is None else piece(t, rank, size) for t in (total, most))
        if not isinstance(found, torch.Tensor) or found.dtype is not torch.float16:
            return False
        if found.shape != due.shape or bool((due / len(own)).half().isinf().any()):
            return False
        infinite = found.isinf()
        must, may = due.half().isinf(), may.half().isinf()
        if not bool(infinite.any()) or bool((must & ~infinite | infinite & ~may).any()):
            return False
    return True


def padded(flat: torch.Tensor, length: int) -> torch.Tensor:
    """`flat` with zeros after it, `length` elements in all."""
    return torch.nn.functional.pad(flat, (0, length - flat.numel()))


def shard_size(numel: int, ranks: int) -> int:
    """Elements of one shard: all are equally long and hold everything together."""
    return math.ceil(numel / ranks)


def piece(flat: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    """The `rank`-th piece of `size` elements; shorter, or empty, beyond the end."""
    return flat[rank * size : (rank + 1) * size]


def only_padding_differs(evidence: Evidence, counts: list[int]) -> bool:
    """Whether wrong shards are right but for what fills them up.

    Args:
        counts: by rank, how many elements of its shard are no padding.
    """
    for rank in evidence.wrong_ranks():
        due, found = evidence.expected[rank], evidence.actual[rank]
        if not isinstance(due, torch.Tensor) or not isinstance(found, torch.Tensor):
            return False
        if due.dtype != found.dtype or due.shape != found.shape or due.dim() != 1:
            return False
        own = due[: counts[rank]], found[: counts[rank]]
        if compare(*own, exact=evidence.is_exact, summands=evidence.world_size) is not None:
            return False
    return True


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` with its dimensions in the opposite order."""
    return tensor.permute(*reversed(range(tensor.dim())))


def tensors_by_rank(evidence: Evidence, key: str) -> list[torch.Tensor] | None:
    """`extra[key]`, else `locals`: one tensor a rank, all of one shape."""
    given = evidence.extra.get(key) or evidence.locals
    tensors = [t for t in given if isinstance(t, torch.Tensor)]
    is_complete = len(tensors) == len(given) == evidence.world_size
    return tensors if is_complete and len({t.shape for t in tensors}) == 1 else None
