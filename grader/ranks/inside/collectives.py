"""How each method of a process group looks in the ledger: its name, tensors and options.

One table, so that the tracer has no case per operation. Names are the field's
(`all_reduce`, not `allreduce`), and the single-tensor and list forms of an operation
share one: to the ranks that meet in it they are the same collective.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._distributed_c10d import ReduceOp


@dataclass(frozen=True)
class Operation:
    """One method of `torch.distributed.ProcessGroup`."""

    name: str
    """Its name in the ledger."""
    moves: int | None = None
    """Index of the argument whose shapes every rank must agree on."""
    writes: int | None = None
    """Index of the argument that receives the result."""
    reduces: bool = False
    rooted: bool = False
    peer: int | None = None
    """Index of the argument that names the other rank of a point-to-point call."""
    uneven: bool = False
    """Ranks may rightly pass different shapes."""
    blocks: bool = False
    """It returns only when it is over, and gives no handle."""


METHODS: dict[str, Operation] = {
    "allreduce": Operation("all_reduce", moves=0, writes=0, reduces=True),
    "allreduce_coalesced": Operation("all_reduce", moves=0, writes=0, reduces=True),
    "broadcast": Operation("broadcast", moves=0, writes=0, rooted=True),
    "reduce": Operation("reduce", moves=0, writes=0, reduces=True, rooted=True),
    "allgather": Operation("all_gather", moves=1, writes=0),
    "_allgather_base": Operation("all_gather", moves=1, writes=0),
    "all_gather_single": Operation("all_gather", moves=1, writes=0),
    "allgather_coalesced": Operation("all_gather", moves=1, writes=0),
    "allgather_into_tensor_coalesced": Operation("all_gather", moves=1, writes=0),
    "all_gather_single_coalesced": Operation("all_gather", moves=1, writes=0),
    "gather": Operation("gather", moves=1, writes=0, rooted=True),
    "scatter": Operation("scatter", moves=0, writes=0, rooted=True),
    "reduce_scatter": Operation("reduce_scatter", moves=1, writes=0, reduces=True),
    "_reduce_scatter_base": Operation("reduce_scatter", moves=1, writes=0, reduces=True),
    "reduce_scatter_single": Operation("reduce_scatter", moves=1, writes=0, reduces=True),
    "reduce_scatter_tensor_coalesced": Operation("reduce_scatter", moves=1, writes=0, reduces=True),
    "reduce_scatter_single_coalesced": Operation("reduce_scatter", moves=1, writes=0, reduces=True),
    "alltoall": Operation("all_to_all", moves=1, writes=0, uneven=True),
    "alltoall_base": Operation("all_to_all", moves=1, writes=0, uneven=True),
    "all_to_all_single": Operation("all_to_all", moves=1, writes=0, uneven=True),
    "send": Operation("send", moves=0, peer=1),
    "recv": Operation("recv", moves=0, writes=0, peer=1),
    "recv_anysource": Operation("recv", moves=0, writes=0),
    "barrier": Operation("barrier"),
    "monitored_barrier": Operation("barrier", blocks=True),
}

FUNCTIONAL: dict[str, Operation] = {
    "all_reduce": Operation("all_reduce", moves=0, reduces=True),
    "all_reduce_": Operation("all_reduce", moves=0, reduces=True),
    "all_reduce_coalesced": Operation("all_reduce", moves=0, reduces=True),
    "all_gather_into_tensor": Operation("all_gather", moves=0),
    "all_gather_into_tensor_coalesced": Operation("all_gather", moves=0),
    "reduce_scatter_tensor": Operation("reduce_scatter", moves=0, reduces=True),
    "reduce_scatter_tensor_coalesced": Operation("reduce_scatter", moves=0, reduces=True),
    "all_to_all_single": Operation("all_to_all", moves=0, uneven=True),
    "broadcast": Operation("broadcast", moves=0, rooted=True),
    "broadcast_": Operation("broadcast", moves=0, rooted=True),
}
"""Functional collectives (`torch.ops._c10d_functional`), which never pass through `METHODS`."""


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in a tensor, a list of tensors or a list of lists of tensors."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def options_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any | None:
    """The options object of a call (`AllreduceOptions`, …), where it has one."""
    for value in (*args, *kwargs.values()):
        if hasattr(value, "asyncOp"):
            return value
    return None


def reduce_op_in(args: tuple[Any, ...], options: Any | None) -> str:
    """The reduction of a call by name: `sum`, `avg`, `max`, …; `sum` where none is given."""
    chosen = getattr(options, "reduceOp", None)
    if chosen is None:
        chosen = next((a for a in args if isinstance(a, (ReduceOp, ReduceOp.RedOpType, str))), None)
    if chosen is None:
        return "sum"
    if isinstance(chosen, str):
        return chosen.lower()
    return (
        str(getattr(chosen, "op", chosen)).rpartition(".")[2].partition(":")[0].strip(">").lower()
    )


def root_in(args: tuple[Any, ...], options: Any | None) -> int | None:
    """The root of a call, as a rank of its group."""
    root = getattr(options, "rootRank", None)
    if root is None:
        root = next((a for a in args if isinstance(a, int) and not isinstance(a, bool)), None)
    return root
