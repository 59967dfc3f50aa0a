"""Every diagnosis that the code can name has a text, and every text is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.checks import diagnosis as module
from grader.checks.diagnosis import (
    FACTS,
    UnknownDiagnosis,
    UnreadableDiagnoses,
    all_texts,
    diagnosis,
)

CHECKS = Path(module.__file__).parent
LESSONS = CHECKS.parents[1] / "tests" / "lessons"
NAMING = [CHECKS / "ledger_rules.py", *(CHECKS / "families").glob("*.py")]
"""Modules that find diagnoses; in them, every hyphenated text is a code."""
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def constants(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def words(paths: list[Path]) -> set[str]:
    return {text for path in paths for text in constants(path) if CODE.fullmatch(text)}


def test_every_code_that_can_be_found_has_a_text() -> None:
    codes = {word for word in words(NAMING) if "-" in word} | FACTS
    assert codes - set(all_texts()) == set()


def test_every_text_is_the_text_of_some_code() -> None:
    assert set(all_texts()) - words(NAMING) - FACTS == set()


def test_every_code_that_a_check_names_has_a_text() -> None:
    """`case.require(..., diagnosis="…")` and `case.fail(..., code="…")`, in lessons and here."""
    found = set()
    for path in [*LESSONS.glob("*/*.py"), *CHECKS.glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_code = isinstance(node, ast.keyword) and node.arg in ("diagnosis", "code")
            if is_code and isinstance(node.value, ast.Constant) and node.value.value:
                found.add(node.value.value)
    assert found, "the lessons name at least shard-keeps-full-storage"
    assert found <= set(all_texts())


@pytest.mark.parametrize(
    "code",
    [
        "summed-not-averaged",
        "hard-coded-world-size",
        "buffers-not-broadcast",
        "collective-skipped-on-one-rank",
        "gather-list-aliased",
        "padding-kept",
        "broadcast-on-source-only",
        "async-never-waited",
        "shard-keeps-full-storage",
        "zero-stages-swapped",
        "not-implemented",
    ],
)
def test_the_names_of_the_commonest_mistakes_stay(code: str) -> None:
    assert diagnosis(code).code == code


def test_an_unknown_code_names_the_near_ones() -> None:
    with pytest.raises(UnknownDiagnosis, match="did you mean summed-not-averaged"):
        diagnosis("summed-not-averagd")
    with pytest.raises(UnknownDiagnosis, match="'xyz'$"):
        diagnosis("xyz")


def test_a_lesson_adds_codes_and_words_known_ones(tmp_path: Path) -> None:
    own = tmp_path / "diagnoses.toml"
    own.write_text(
        "[teapot]\ntitle = 'A teapot'\nexplanation = '''It is\n  short.'''\nnext_step = 'Pour.'\n"
        "[padding-kept]\ntitle = 'Zeros'\nexplanation = 'Own words.'\nnext_step = 'Look.'\n",
        encoding="utf-8",
    )
    assert diagnosis("teapot", own).explanation == "It is short."
    assert diagnosis("padding-kept", own).title == "Zeros"
    assert diagnosis("padding-kept").title != "Zeros"
    assert diagnosis("gib-not-gb", own) == diagnosis("gib-not-gb")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[a]\ntitle = 'x'\nexplanation = 'y'\n", "next_step"),
        ("[a]\ntitle = 1\nexplanation = 'y'\nnext_step = 'z'\n", "title"),
        ("[a]\ntitle = 'x'\nexplanation = 'y'\nnext_step = 'z'\nhint = 'h'\n", "hint"),
        ("[a\n", "line 1"),
    ],
)
def test_a_mistake_in_a_file_of_diagnoses_is_named(tmp_path: Path, text: str, says: str) -> None:
    own = tmp_path / "diagnoses.toml"
    own.write_text(text, encoding="utf-8")
    with pytest.raises(UnreadableDiagnoses, match=says):
        diagnosis("a", own)


def test_texts_are_whole_sentences_in_a_friendly_tone() -> None:
    for text in all_texts().values():
        whole = f"{text.title} {text.explanation} {text.next_step}"
        assert text.explanation.endswith((".", "!")), text.code
        assert text.next_step.endswith((".", "?")), text.code
        assert not text.title.endswith("."), text.code
        assert "  " not in whole and "\n" not in whole, text.code
        assert len(text.title) <= 50, text.code
        for word in ("wrong code", "you forgot", "your mistake", "simply", "just do", "obvious"):
            assert word not in whole.lower(), text.code


def test_no_two_misunderstandings_have_one_name() -> None:
    titles = [text.title for text in all_texts().values()]
    assert len(set(titles)) == len(titles)
