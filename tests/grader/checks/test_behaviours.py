"""Submissions that go wrong in every way there is: what each is told, and nothing else is lost.

One tiny folder a behaviour, in `tests/grader/fixtures/submissions/`; `expected.toml` there says
what each must get.
"""

from __future__ import annotations

import socket
import tomllib
from pathlib import Path
from typing import Any

import pytest

from grader.results import Verdict

SUBMISSIONS = Path(__file__).parents[1] / "fixtures" / "submissions"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads(
    (SUBMISSIONS / "expected.toml").read_text(encoding="utf-8")
)
CHECK = "the_total_is_the_sum"
OTHERS = ["every_rank_joins", "scaling"]


def test_every_folder_has_its_expectation() -> None:
    assert {path.name for path in SUBMISSIONS.iterdir() if path.is_dir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_behaviour_gets_its_verdict_and_its_sentence(name: str, bench) -> None:
    expected = EXPECTED[name]
    with _port_taken(29511):
        seconds = 1.0 if expected["verdict"] == "timed out" else 20.0
        results = bench.grade(SUBMISSIONS / name, seconds=seconds)
    result = results[expected.get("check", CHECK)]
    assert result.verdict.value == expected["verdict"], result
    if "says" in expected:
        assert result.cause is not None and expected["says"] in result.cause.summary, result.cause
    if "world_size" in expected:
        assert result.cause.world_size == expected["world_size"]
    if "diagnosis" in expected:
        assert result.diagnosis is not None and result.diagnosis.code == expected["diagnosis"]
    if expected.get("whole"):
        assert {r.verdict for r in results.values()} == {result.verdict}
        assert len({r.cause for r in results.values()}) == 1
    else:
        for other in expected.get("others", OTHERS):
            assert results[other].verdict is Verdict.PASSED, results[other]


def test_what_makes_no_sense_yet_is_skipped_with_the_reason(bench) -> None:
    result = bench.grade(SUBMISSIONS / "returns_none")["the_total_in_double_precision"]
    assert result.verdict is Verdict.SKIPPED and result.points == 0
    assert "Every rank gets the sum of what all ranks have." in result.reason


def test_a_function_that_never_ends_is_waited_for_once(bench) -> None:
    results = bench.grade(SUBMISSIONS / "never_ends", seconds=1.0)
    timed_out = [r for r in results.values() if r.verdict is Verdict.TIMED_OUT]
    assert len(timed_out) == 1
    assert sum(len(r.runs) for r in results.values()) == 3


def test_right_on_smaller_world_sizes_is_said(bench) -> None:
    cause = bench.grade(SUBMISSIONS / "wrong_on_three")[CHECK].cause
    assert (cause.world_size, cause.right_on) == (3, (1, 2))
    assert cause.tensor == "total" and cause.index == (0,) and cause.differing == 4
    assert cause.source == "dist.all_reduce(x)" and cause.file == "adding.py"


def test_an_error_comes_with_the_learners_own_frames_only(bench) -> None:
    error = bench.grade(SUBMISSIONS / "raises_on_one_rank")[CHECK].cause.error
    assert len(error.frames) == 1 and error.frames[0].endswith("in total")
    assert error.source == 'raise RuntimeError("rank 1 has had enough")'


def test_a_syntax_error_comes_with_line_and_caret(bench) -> None:
    cause = bench.grade(SUBMISSIONS / "syntax_error")[CHECK].cause
    assert (cause.file, cause.line) == ("adding.py", 5)
    assert cause.error.source.splitlines()[1].strip() == "^"


def test_the_stub_gets_nothing_and_is_told_what_is_to_do(bench) -> None:
    results = bench.grade(bench.lesson.stub_folder)
    assert sum(r.points for r in results.values()) == 0
    assert results["scaling"].diagnosis.code == "not-implemented"
    assert results["scaling"].cause.summary == "`scale` is still to do"


def test_points_are_those_of_the_course(bench) -> None:
    results = bench.grade(SUBMISSIONS / "right")
    assert {r.id: (r.points, r.max_points) for r in results.values()} == {
        "every_rank_joins": (2, 2),
        "the_total_is_the_sum": (4, 4),
        "the_total_in_double_precision": (2, 2),
        "scaling": (2, 2),
    }


@pytest.mark.parametrize("seed", range(5))
def test_another_seed_gives_other_inputs_and_the_same_verdict(seed: int, bench) -> None:
    results = bench.grade(SUBMISSIONS / "right", seed=seed)
    assert {r.verdict for r in results.values()} == {Verdict.PASSED}


class _port_taken:  # noqa: N801  (reads as a word in `with _port_taken(...)`)
    """Somebody else listens on the port, as far as it is still free."""

    def __init__(self, port: int) -> None:
        self._port = port

    def __enter__(self) -> None:
        self._socket = socket.socket(socket.AF_INET6)
        self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._socket.bind(("::", self._port))
        self._socket.listen()

    def __exit__(self, *_exception: object) -> None:
        self._socket.close()
