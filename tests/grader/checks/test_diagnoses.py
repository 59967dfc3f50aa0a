"""Every diagnosis that the code can name has a text, and every text is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grader.checks.diagnosis import all_texts, diagnosis

ROOT = Path(__file__).parents[3]
SOURCES = [
    *(ROOT / "grader" / "checks").glob("*.py"),
    *(ROOT / "tests" / "lessons").glob("*/*.py"),
]


def named() -> set[str]:
    """Every quoted code in the sources that is one of a diagnosis."""
    code = re.compile(r'"([a-z0-9]+(?:-[a-z0-9]+)+)"')
    return {word for path in SOURCES for word in code.findall(path.read_text("utf-8"))}


def test_every_text_is_the_text_of_some_code() -> None:
    assert set(all_texts()) - named() == set()


def test_an_unknown_code_names_the_near_ones() -> None:
    with pytest.raises(LookupError, match="summed-not-averaged"):
        diagnosis("summed-not-averagd")


def test_texts_are_whole_sentences_in_a_friendly_tone() -> None:
    for text in all_texts().values():
        assert text.explanation.endswith((".", "!")) and text.next_step.endswith(".")
        assert not text.title.endswith(".")
        for word in ("wrong code", "you forgot", "your mistake", "simply", "just do"):
            assert word not in f"{text.title} {text.explanation} {text.next_step}".lower()
