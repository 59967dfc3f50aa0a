"""What the submission offers, held against what the solution offers, before any check runs.

One rank imports the submission and lists its functions. From that a missing function or
one that cannot be called as promised fails its checks with a clear sentence and no run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grader.report.escape import safe_text
from grader.results import Cause

Parameters = list[list[Any]] | None
"""Of one function: [name, kind, has a default] each; None where Python cannot tell."""

_POSITIONAL = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")


def breach(
    function: str, offered: Mapping[str, Parameters], promised: Mapping[str, Parameters], file: str
) -> Cause | None:
    """Why `function` cannot be called as the solution's can, or None if it can."""
    if function not in offered:
        near = next((name for name in offered if name.lower() == function.lower()), "")
        hint = f"; there is `{safe_text(near)}`" if near else ""
        return Cause(summary=f"{file} has no function or class `{function}`{hint}", file=file)
    wanted, found = promised.get(function), offered[function]
    if wanted is None or not isinstance(found, list):
        return None
    problem = _problem(wanted, found)
    if problem is None:
        return None
    return Cause(
        summary=f"`{function}` cannot be called as it should be: {problem}",
        file=file,
        expected=f"{function}({_signature(wanted)})",
        actual=safe_text(f"{function}({_signature(found)})"),
    )


def _problem(wanted: list[list[Any]], found: list[list[Any]]) -> str | None:
    kinds = [kind for _, kind, _ in found]
    takes_any_name, takes_any_number = "VAR_KEYWORD" in kinds, "VAR_POSITIONAL" in kinds
    by_position = [name for name, kind, _ in wanted if kind in _POSITIONAL]
    room = sum(kind in _POSITIONAL for kind in kinds)
    if room < len(by_position) and not takes_any_number:
        names = {name for name, _, _ in found}
        missing = [name for name in by_position if name not in names]
        what = f"it has no parameter `{missing[0]}`" if missing else "it takes fewer arguments"
        if not takes_any_name:
            return what
    needed = [name for name, kind, default in found if kind in _POSITIONAL and not default]
    if len(needed) > len(by_position):
        return f"it needs more arguments: `{safe_text(str(needed[len(by_position)]))}`"
    keyword_only = [name for name, kind, default in found if kind == "KEYWORD_ONLY" and not default]
    if keyword_only:
        return f"it needs the keyword `{safe_text(str(keyword_only[0]))}`"
    names = {name for name, kind, _ in found if kind != "POSITIONAL_ONLY"}
    for name, _kind, has_default in wanted:
        if has_default and name not in names and not takes_any_name:
            return f"it has no parameter `{name}`"
    return None


def _signature(parameters: list[list[Any]]) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
    return ", ".join(
        f"{stars.get(kind, '')}{name}{'=…' if has_default else ''}"
        for name, kind, has_default in parameters
    )
