"""The report in a terminal, held against golden files, and what must hold for all of them."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from grader.report.progress import Progress
from grader.report.terminal import console_for, render
from grader.results import Results
from tests.grader.report.builders import SITUATIONS

GOLDEN = Path(__file__).parent / "golden"


def rendered(results: Results, width: int = 80, verbose: int = 0) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=False, highlight=False, markup=False)
    render(results, console, verbose=verbose)
    return stream.getvalue()


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize("verbose", [0, 2])
def test_golden_reports(name: str, verbose: int, renew: bool) -> None:
    if name == "hostile" and verbose:
        pytest.skip("a long line of output, whole, needs no golden file")
    path = GOLDEN / f"{name}{'-vv' if verbose else ''}.txt"
    text = rendered(SITUATIONS[name](), verbose=verbose)
    if renew:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "run `make goldens` and look at the difference"


def test_there_is_a_situation_for_every_golden_file() -> None:
    names = {path.stem.removesuffix("-vv") for path in GOLDEN.glob("*.txt")}
    assert names == set(SITUATIONS)


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_and_end_without_blanks(name: str, width: int) -> None:
    for line in rendered(SITUATIONS[name](), width).splitlines():
        is_command = line.startswith("  grade ")
        assert len(line) <= width or is_command, line
        assert line == line.rstrip()


def test_nothing_that_a_learner_wrote_acts() -> None:
    for verbose in (0, 2):
        text = rendered(SITUATIONS["hostile"](), verbose=verbose)
        assert "\x1b" not in text and "\u202e" not in text and "\r" not in text
        assert "[bold]red[/bold]" in text and "<b>" in text


def test_a_long_line_of_output_is_folded_and_says_how_to_see_it() -> None:
    text = rendered(SITUATIONS["hostile"]())
    assert len(text) < 6_000 and "characters …" in text
    assert len(rendered(SITUATIONS["hostile"](), verbose=1)) > 200_000


def test_colour_is_never_the_only_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = io.StringIO()
    render(SITUATIONS["wrong_value"](), console_for(stream))
    coloured = stream.getvalue()
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == rendered(SITUATIONS["wrong_value"]())


def test_an_encoding_without_check_marks_gets_ascii() -> None:
    for encoding in ("cp1252", "ascii", "cp932"):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace")
        render(SITUATIONS["wrong_value"](), Console(file=stream, width=80, no_color=True))
        stream.flush()
        text = raw.getvalue().decode(encoding)
        assert "x failed: " in text and "\\u" not in text


def test_rendering_is_quick() -> None:
    results = SITUATIONS["wrong_value"]()
    rendered(results)
    began = time.perf_counter()
    rendered(results)
    assert time.perf_counter() - began < 0.2


def test_progress_is_silent_where_nobody_watches() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, force_terminal=False)):
        pass
    assert stream.getvalue() == ""


def test_progress_wipes_its_line() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, force_terminal=True, width=80)):
        time.sleep(0.2)
    assert "starting ranks" in stream.getvalue()
    assert stream.getvalue().rstrip().endswith(("\x1b[2K", "\x1b[?25h"))


def test_reports_need_no_torch() -> None:
    code = (
        "import grader.report.terminal, grader.report.progress, sys; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert done.stdout.strip() == "False", done.stderr
