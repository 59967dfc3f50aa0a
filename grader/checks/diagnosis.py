"""Diagnoses by their codes; the texts that learners read are in `texts/diagnoses.toml`.

A lesson may have a file of its own, in the same form. It adds codes, and words known
ones in the terms of its functions.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from grader.results import Diagnosis

TEXTS = Path(__file__).parent / "texts" / "diagnoses.toml"

FACTS = frozenset(
    {
        "not-implemented",
        "returned-nothing",
        "shard-keeps-full-storage",
        "unknown-name-accepted",
    }
)
"""Codes that no hypothesis and no ledger gives: checks name them where they see the fact."""


class UnknownDiagnosis(LookupError):
    """No diagnosis has that code: a mistake of a lesson's author, or of ours."""


class UnreadableDiagnoses(ValueError):
    """A file of diagnoses is not what it should be; the text names file and key."""


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    explanation: str
    next_step: str


def diagnosis(code: str, lesson_file: Path | None = None) -> Diagnosis:
    """The diagnosis called `code`.

    Args:
        lesson_file: the lesson's own diagnoses, where it has some.

    Raises:
        UnknownDiagnosis: there is none; the text names near ones.
        UnreadableDiagnoses: a file is not as it should be.
    """
    texts = all_texts(lesson_file)
    if code not in texts:
        near = difflib.get_close_matches(code, texts, n=2)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UnknownDiagnosis(f"there is no diagnosis {code!r}{hint}")
    return texts[code]


def all_texts(lesson_file: Path | None = None) -> Mapping[str, Diagnosis]:
    """Every diagnosis, by code."""
    texts = _read(TEXTS)
    return texts if lesson_file is None else {**texts, **_read(lesson_file)}


@cache
def _read(path: Path) -> dict[str, Diagnosis]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        found = msgspec.convert(table, dict[str, _Text])
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise UnreadableDiagnoses(f"{path}: {error}") from error
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
