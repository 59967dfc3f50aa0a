"""Broadcasts: what else than the source's value a rank may come out with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from grader.checks.evidence import UNKNOWN, Evidence, Hypothesis
from grader.checks.families.common import everywhere, kept_own, transposed


def hypotheses(evidence: Evidence) -> Iterator[Hypothesis]:
    """Reads `locals`, `extra["src"]` (default 0) and the names `frozen` in `inputs`."""
    own = [t for t in evidence.locals if t is not None]
    size = evidence.world_size
    if size < 2 or len(own) != size or len({t.shape for t in own}) > 1:
        return
    source = int(evidence.extra.get("src", 0))
    yield kept_own(evidence, _what_was_kept(evidence))
    for rank, value in enumerate(own):
        if rank != source:
            code = "source-ignored" if rank == 0 else "wrong-source"
            yield everywhere(code, value, evidence)
    for shift in range(1, size):
        yield Hypothesis("wrong-source", own[shift:] + own[:shift], everywhere=True)
    stack = torch.stack([t.double() for t in own])
    for combined in (stack.mean(0), stack.sum(0), stack.amax(0)):
        yield Hypothesis("averaged-not-broadcast", [combined] * size)
    yield from _memory_order(own, source)


def _what_was_kept(evidence: Evidence) -> str:
    family, _, name = evidence.name.partition("/")
    if family == "buffers":
        return "buffers-not-broadcast"
    frozen = evidence.inputs[0].get("frozen", ()) if evidence.inputs else ()
    if isinstance(frozen, (list, tuple)) and name in frozen:
        return "frozen-not-broadcast"
    return "parameters-not-broadcast"


def _memory_order(own: list[torch.Tensor], source: int) -> Iterator[Hypothesis]:
    """Memory was copied as it lies, between ranks that lay the tensor out in two ways."""
    sent, code = own[source], "memory-order-mixed-up"
    if sent.dim() > 1:
        turned = transposed(sent)
        for arrived in (turned.reshape(sent.shape), transposed(sent.reshape(turned.shape))):
            yield Hypothesis(code, [arrived] * len(own))
    if sent.dim() == 1 and sent.numel() > 2:
        # Every second number of a longer tensor: some arrive, the rest stay as they were.
        reached = (sent.numel() + 1) // 2
        mixed: list[Any] = [torch.cat([sent[::2], value[reached:]]) for value in own]
        mixed[source] = UNKNOWN
        yield Hypothesis(code, mixed)
