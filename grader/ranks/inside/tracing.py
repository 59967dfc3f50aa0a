"""The ledger of a rank: every collective it issues, written out before it can block.

`ProcessGroup`'s methods are wrapped, so that whatever a learner calls (`all_reduce`,
`all_gather_single`, a hook in backward, torch's own FSDP) leaves an entry with its
operation, root or peer, shapes, line, start and end. `docs/decisions` says why not
`TorchDispatchMode`, and what wrapping misses.

Asynchronous calls work on private copies that are written back when the learner waits.
That is the latest moment an honest backend may deliver, so a race is lost every time
and not one time in twenty: what is read before `wait()` is stale, what is written
before it is overwritten, and what is never waited on never arrives.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work, _resolve_process_group

from grader.ranks.inside import collectives
from grader.ranks.inside.collectives import Operation
from grader.ranks.inside.report import Report

_MAX_SHAPES = 16
_TORCH_DISTRIBUTED = os.path.dirname(dist.__file__) + os.sep


@dataclass
class _Call:
    """One issued operation whose end has not been seen yet."""

    number: int
    work: Any
    is_async: bool
    copies: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """(the learner's tensor, the private copy that Gloo works on)"""


class Tracer:
    """Wraps the process group's methods for the life of this rank."""

    def __init__(self, report: Report, submission_folder: str, delay_s: float = 0.0) -> None:
        self._report = report
        self._folder = submission_folder + os.sep
        self._delay_s = delay_s
        self._calls = 0
        self._open: dict[int, _Call] = {}

    def install(self) -> None:
        """From here on, every call is in the ledger."""
        for method, operation in collectives.METHODS.items():
            original = getattr(ProcessGroup, method, None)
            if original is not None:
                setattr(ProcessGroup, method, self._traced(original, operation))
        self._wrap_work()
        self._wrap_functional()
        self._wrap_threads()

    def _traced(self, original: Callable[..., Any], operation: Operation) -> Callable[..., Any]:
        def method(group: ProcessGroup, *args: Any, **kwargs: Any) -> Any:
            options = collectives.options_in(args, kwargs)
            # Without options it is asynchronous, unless the call itself blocks. (Point-to-point
            # calls never have any; there the wait that follows tells `send` from `isend`.)
            is_async = options.asyncOp if options is not None else not operation.blocks
            number = self._start(operation, group, args, kwargs, is_async)
            call = _Call(number, None, is_async)
            if is_async:
                args = _on_copies(args, operation, call.copies)
            try:
                call.work = original(group, *args, **kwargs)
            except BaseException:
                self._report.event("end", n=number, failed=True)
                raise
            if call.work is None:
                self._report.event("end", n=number)
            else:
                self._open[id(call.work)] = call
            return call.work

        return method

    def _start(
        self,
        operation: Operation,
        group: ProcessGroup,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        is_async: bool,
    ) -> int:
        if self._delay_s:
            time.sleep(self._delay_s)
        number = self._calls
        self._calls += 1
        options = collectives.options_in(args, kwargs)
        members = _members(group)
        moved = args[operation.moves] if operation.moves is not None and args else ()
        tensors = list(collectives.tensors_in(moved))
        file, line = self._learner_line()
        fields: dict[str, Any] = {
            "n": number,
            "op": operation.name,
            "group": str(group.group_name),
            "members": members,
            "async": is_async,
            "shapes": [list(t.shape) for t in tensors[:_MAX_SHAPES]],
            "dtype": str(tensors[0].dtype).removeprefix("torch.") if tensors else "",
            "bytes": sum(t.numel() * t.element_size() for t in tensors),
            "uneven": operation.uneven,
            "file": file,
            "line": line,
        }
        if operation.reduces:
            fields["reduce"] = collectives.reduce_op_in(args, options)
        if operation.rooted:
            fields["root"] = _global(collectives.root_in(args, options), members)
        if operation.peer is not None:
            fields["peer"] = _global(args[operation.peer], members)
            fields["tag"] = args[operation.peer + 1] if len(args) > operation.peer + 1 else 0
        self._report.event("start", **fields)
        return number

    def _learner_line(self) -> tuple[str, int | None]:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(self._folder):
                return name[len(self._folder) :], frame.f_lineno
            frame = frame.f_back
        return "", None

    # Ends

    def _wrap_work(self) -> None:
        wait, is_completed, get_future = Work.wait, Work.is_completed, Work.get_future

        def traced_wait(work: Work, *args: Any, **kwargs: Any) -> Any:
            call = self._open.get(id(work))
            if call is None:
                return wait(work, *args, **kwargs)
            if call.is_async:
                # A call that torch itself waits for (`dist.recv`) is a blocking one.
                by_torch = sys._getframe(1).f_code.co_filename.startswith(_TORCH_DISTRIBUTED)
                limited = bool(args or kwargs)
                self._report.event("wait", n=call.number, sync=by_torch, limited=limited)
            try:
                result = wait(work, *args, **kwargs)
            except BaseException:
                self._finish(call, failed=True)
                raise
            self._finish(call)
            return result

        def traced_is_completed(work: Work) -> bool:
            done = is_completed(work)
            call = self._open.get(id(work))
            if done and call is not None:
                self._finish(call)
            return bool(done)

        def traced_get_future(work: Work) -> Any:
            # Whoever chains on the future sees it complete; delivering early is allowed too.
            future = get_future(work)
            call = self._open.get(id(work))
            if call is not None:
                self._report.event("wait", n=call.number, sync=False, limited=False)
                wait(work)
                self._finish(call)
            return future

        _replace(Work, wait=traced_wait, is_completed=traced_is_completed)
        _replace(Work, get_future=traced_get_future)

    def _finish(self, call: _Call, failed: bool = False) -> None:
        self._open.pop(id(call.work), None)
        if not failed:
            _write_back(call.copies)
        self._report.event("end", n=call.number, failed=failed)

    # Other ways in

    def _wrap_functional(self) -> None:
        namespace = torch.ops._c10d_functional
        for name, operation in collectives.FUNCTIONAL.items():
            original = getattr(namespace, name, None)
            if original is not None:
                function = self._traced_functional(original, operation)
                setattr(namespace, name, _TracedPacket(original, function))

    def _traced_functional(
        self, original: Callable[..., Any], operation: Operation
    ) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            group = _resolve_process_group(args[-1])
            number = self._start(operation, group, args[:-1], kwargs, False)
            result = original(*args, **kwargs)
            # Its tensors wait for themselves when they are used, so it cannot be left behind.
            self._report.event("end", n=number)
            return result

        return function

    def _wrap_threads(self) -> None:
        """A rank with threads of its own is never proved stuck: one of them may go on."""
        start = threading.Thread.start

        def traced_start(thread: threading.Thread) -> None:
            self._report.event("threads")
            start(thread)

        _replace(threading.Thread, start=traced_start)


def _replace(owner: type, **methods: Callable[..., Any]) -> None:
    for name, method in methods.items():
        setattr(owner, name, method)


class _TracedPacket:
    """An operator of `torch.ops` whose call is traced; all else is the original's."""

    def __init__(self, original: Any, call: Callable[..., Any]) -> None:
        self._original, self._call = original, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _members(group: ProcessGroup) -> list[int]:
    try:
        return list(dist.get_process_group_ranks(group))
    except (KeyError, ValueError, RuntimeError):
        return list(range(group.size()))


def _global(rank: int | None, members: list[int]) -> int | None:
    """The global rank of a group's `rank`; as it is where the group has no such rank."""
    return members[rank] if rank is not None and rank in range(len(members)) else rank


def _on_copies(
    args: tuple[Any, ...], operation: Operation, copies: list[tuple[torch.Tensor, torch.Tensor]]
) -> tuple[Any, ...]:
    """`args` with every dense tensor replaced by a copy; those written to go into `copies`."""

    def copied(value: Any, written: bool) -> Any:
        if isinstance(value, torch.Tensor):
            # Gloo treats strided tensors in its own way; a copy would hide what it does.
            if not value.is_contiguous():
                return value
            copy = value.detach().clone()
            if written:
                copies.append((value, copy))
            return copy
        if isinstance(value, (list, tuple)):
            return [copied(item, written) for item in value]
        return value

    return tuple(copied(value, index == operation.writes) for index, value in enumerate(args))


def _write_back(copies: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for tensor, copy in copies:
        tensor.data.copy_(copy)  # as Gloo does: autograd's version counter stays as it is
