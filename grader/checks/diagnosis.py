"""Diagnoses by their codes; the texts that learners read are in `texts/diagnoses.toml`."""

from __future__ import annotations

import difflib
import tomllib
from functools import cache
from pathlib import Path

import msgspec

from grader.results import Diagnosis

_FILE = Path(__file__).parent / "texts" / "diagnoses.toml"


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    explanation: str
    next_step: str


def diagnosis(code: str) -> Diagnosis:
    """The diagnosis called `code`.

    Raises:
        LookupError: there is none; a mistake of the lesson's author or of ours.
    """
    texts = all_texts()
    if code not in texts:
        near = difflib.get_close_matches(code, texts, n=2)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise LookupError(f"{_FILE.name} has no diagnosis {code!r}{hint}")
    return texts[code]


@cache
def all_texts() -> dict[str, Diagnosis]:
    """Every diagnosis, by code."""
    table = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    found = msgspec.convert(table, dict[str, _Text])
    return {
        code: Diagnosis(
            code=code,
            title=_one_line(text.title),
            explanation=_one_line(text.explanation),
            next_step=_one_line(text.next_step),
        )
        for code, text in found.items()
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())
