"""One live line while a grading is at work; nothing where nobody watches."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from grader.checks.assembly import Judged

_PASSED = "passed"


class Progress:
    """Shows how far a grading is, on a terminal, and wipes the line when it is over."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._began = time.monotonic()
        self._total = 0
        self._done = 0
        self._failing = 0
        self._last = ""

    def take(self, judged: Judged) -> None:
        """Count one more result."""
        if judged.plan:
            self._total = max(self._total, len(judged.plan))
        self._done += 1
        self._failing += judged.result.verdict.value not in (_PASSED, "skipped")
        self._last = judged.result.id.replace("_", " ")
        if self._live is not None:
            self._live.update(self._line())

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live = Live(
                self._line(), console=self._console, transient=True, refresh_per_second=8,
                redirect_stdout=False, redirect_stderr=False, get_renderable=self._line,
            )  # fmt: skip
            self._live.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def _line(self) -> Text:
        seconds = f"{time.monotonic() - self._began:.0f} s"
        if not self._done:
            return Text(f"starting ranks … {seconds}", style="dim")
        of = f" of {self._total}" if self._total else ""
        failing = f", {self._failing} failing" if self._failing else ""
        line = Text(f"checked {self._done}{of}{failing}, {seconds}  ")
        line.append(self._last, style="dim")
        line.truncate(self._console.width - 1, overflow="ellipsis")
        return line
