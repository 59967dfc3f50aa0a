"""The result tree goes to JSON and back, and its schema is the published one."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from grader import results
from grader.results import Cause, CheckResult, Environment, ExerciseResult, Results, Verdict

SCHEMA = Path(__file__).parents[2] / "docs" / "integrator" / "results.schema.json"


def tree() -> Results:
    check = CheckResult(
        id="a", promise="A.", verdict=Verdict.DEADLOCKED, points=0, max_points=1.5,
        cause=Cause(summary="it hangs", world_size=2, index=(), details=("rank 0 waits",)),
    )  # fmt: skip
    return Results(
        lesson="adding",
        title="Adding",
        submission=results.SubmissionInfo("me", {"adding.py": "00"}),
        seed=7,
        score=0,
        max_score=1.5,
        exercises=(ExerciseResult("total", 0, 1.5, (check,)),),
        environment=Environment("0.1", "3.11", "2.13.0", "Linux", "fork"),
        started_at="2026-12-01T00:00:00+00:00",
        duration_s=1.0,
    )


def test_there_and_back() -> None:
    assert results.from_json(results.to_json(tree())) == tree()


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == results.json_schema(), (
        "run `make schema`"
    )


def test_a_result_follows_the_schema_and_nonsense_does_not() -> None:
    written = json.loads(results.to_json(tree()))
    jsonschema.validate(written, results.json_schema())
    written["exercises"][0]["checks"][0]["verdict"] = "fine"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(written, results.json_schema())


def test_fields_of_a_later_kit_are_ignored() -> None:
    written = json.loads(results.to_json(tree())) | {"mood": "good"}
    assert results.from_json(json.dumps(written).encode()) == tree()


def test_what_is_no_result_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        results.from_json(b'{"lesson": 3}')
    with pytest.raises(msgspec.DecodeError):
        results.from_json(b"no json")


def test_the_tree_is_frozen() -> None:
    with pytest.raises(AttributeError):
        tree().score = 100  # type: ignore[misc]
