"""The learner's own lines, read by the grader and never run."""

from __future__ import annotations

from pathlib import Path

from grader.report.escape import safe_text

_MAX_LINE = 500


def source_line(folder: Path, file: str, line: int | None) -> str:
    """Line `line` (from 1) of `file` in `folder`, stripped; empty where there is none.

    `file` comes from a rank, so only the name of a file that lies in `folder` counts.
    """
    if not file or line is None:
        return ""
    path = folder / Path(file).name
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return safe_text(lines[line - 1].strip())[:_MAX_LINE] if 1 <= line <= len(lines) else ""
