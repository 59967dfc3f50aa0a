"""Text from a learner's process, made safe to show in a terminal or on a page."""

from __future__ import annotations

import unicodedata

_ACTING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of what acts instead of being shown: control characters (escape
sequences start with one), invisible and direction-turning ones, halves of a surrogate
pair, line and paragraph separators."""


def safe_text(text: str) -> str:
    r"""`text` with every character that could act instead of being shown written as `\x1b`.

    Newlines and tabs stay, `\r\n` becomes a newline.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\n\t" else _shown(c) for c in text.replace("\r\n", "\n"))


def safe_line(text: str, limit: int | None = None) -> str:
    r"""`safe_text` on one line: newlines and tabs are written as `\n` and `\t`.

    Args:
        limit: characters kept; what is cut off is counted, so that nothing looks whole
            that is not.
    """
    line = safe_text(text).replace("\n", r"\n").replace("\t", r"\t")
    if limit is None or len(line) <= limit:
        return line
    return f"{line[:limit]}… ({len(line):,} characters in all)"


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _ACTING:
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
