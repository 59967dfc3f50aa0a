"""The words a lesson's author writes checks in: `check`, `Case`, `Draw`.

Loaded when they are first used, because they need torch and most commands do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grader.checks.case import Case
    from grader.checks.declaration import check
    from grader.checks.draw import Draw

__all__ = ["Case", "Draw", "check"]

_HOMES = {"Case": "case", "Draw": "draw", "check": "declaration"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
