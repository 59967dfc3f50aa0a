"""What a rank says: its phases, its ledger and its answer, as they happen."""

from __future__ import annotations

import json
import linecache
import os
import threading
import time
import traceback
from typing import Any

from grader.ranks.inside import wire

_MAX_EVENTS = 20_000
"""A learner's loop must not flood the grader; beyond this the ledger is cut, and says so."""
_MAX_TEXT = 4_000


class Report:
    """The rank's end of its report pipe. Every call writes at once: it may be the last."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._sent = 0

    def event(self, kind: str, **fields: Any) -> None:
        """One step, stamped with the system-wide monotonic clock (seconds)."""
        self._sent += 1
        if self._sent > _MAX_EVENTS:
            if self._sent > _MAX_EVENTS + 1:
                return
            kind, fields = "cut", {"after": _MAX_EVENTS}
        body = {"e": kind, "t": time.monotonic(), **fields}
        self._write(wire.EVENT, json.dumps(body, separators=(",", ":")).encode())

    def last(self, kind: str, **fields: Any) -> None:
        """Like `event`, for what must arrive however much was said before."""
        self._sent = 0
        self.event(kind, **fields)

    def answer(self, blob: bytes) -> None:
        """What the rank program returned."""
        self._write(wire.ANSWER, blob)

    def _write(self, kind: bytes, payload: bytes) -> None:
        with self._lock:
            wire.write_frame(self._fd, kind, payload)


def describe_exception(error: BaseException, folder: str) -> dict[str, Any]:
    """The exception as data: type, message, and only the frames in `folder` (the submission)."""
    frames, source = [], ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if code.co_filename.startswith(folder + os.sep):
            name = os.path.relpath(code.co_filename, folder)
            frames.append({"file": name, "line": line, "function": code.co_qualname})
            source = linecache.getline(code.co_filename, line).strip()
    described: dict[str, Any] = {
        "type": type(error).__name__,
        "message": _text(error),
        "frames": frames[-20:],
        "source": source[:500],
    }
    if isinstance(error, SyntaxError) and error.filename:
        described |= _describe_syntax_error(error, folder)
    return described


def _describe_syntax_error(error: SyntaxError, folder: str) -> dict[str, Any]:
    line = (error.text or "").rstrip("\n")
    stripped = line.lstrip()
    caret = max((error.offset or 1) - 1 - (len(line) - len(stripped)), 0)
    width = max((error.end_offset or 0) - (error.offset or 0), 1)
    if error.end_lineno not in (None, error.lineno):
        width = 1
    name = error.filename or ""
    if name.startswith(folder + os.sep):
        name = os.path.relpath(name, folder)
    source = f"{stripped}\n{' ' * caret}{'^' * width}" if stripped else ""
    return {
        "message": error.msg,
        "frames": [{"file": name, "line": error.lineno, "function": ""}],
        "source": source[:1000],
    }


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_MAX_TEXT]
    except Exception as second:  # a learner's __str__ may do anything
        return f"<its text raised {type(second).__name__}>"
