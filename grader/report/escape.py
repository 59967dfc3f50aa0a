"""Text from a learner's process, made safe to show in a terminal or on a page."""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 controls, but for tab and newline
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # invisible, or turning the direction
    "\ud800-\udfff"  # half of a pair: no UTF-8 can hold it
    "]"
)


def safe_text(text: str) -> str:
    r"""`text` with every character that could act instead of being shown written as `\x1b`."""
    return _UNSAFE.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
