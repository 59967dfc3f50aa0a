"""Rows and shards cut by a wrong rule are recognised, together better than one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from grader.checks.hypotheses import explain, row_rules
from tests.grader.checks.builders import SIZES, cut, evidence, given

Rule = Callable[[torch.Tensor, int, int], Any]
"""full, rank, ranks → what the learner's function gives"""


def padded(flat: torch.Tensor, length: int, front: int = 0) -> torch.Tensor:
    return torch.nn.functional.pad(flat, (front, length - front - len(flat)))


def per(full: torch.Tensor, ranks: int) -> int:
    return math.ceil(full.numel() / ranks)


SHARDS: dict[str, tuple[str, Rule]] = {
    "no padding": ("padding-missing", lambda f, r, n: flat(f)[r * per(f, n) : (r + 1) * per(f, n)]),
    "chunk": ("padding-missing", lambda f, r, n: flat(f).chunk(n)[r]),
    "tensor_split": ("padding-missing", lambda f, r, n: flat(f).tensor_split(n)[r]),
    "tensor_split, padded": (
        "padding-in-every-part",
        lambda f, r, n: padded(flat(f).tensor_split(n)[r], per(f, n)),
    ),
    "whole": ("not-sharded", lambda f, r, n: f),
    "whole, flat": ("not-sharded", lambda f, r, n: flat(f)),
    "floor": (
        "floor-not-ceil",
        lambda f, r, n: flat(f)[r * (f.numel() // n) : (r + 1) * (f.numel() // n)],
    ),
    "the one before": ("another-ranks-shard", lambda f, r, n: cut(flat(f), n)[r - 1]),
    "the one after": ("another-ranks-shard", lambda f, r, n: cut(flat(f), n)[(r + 1) % n]),
    "every n-th": ("interleaved", lambda f, r, n: padded(flat(f), n * per(f, n))[r::n]),
    "padded in front": (
        "padded-in-front",
        lambda f, r, n: padded(flat(f), n * per(f, n), n * per(f, n) - f.numel()).split(per(f, n))[
            r
        ],
    ),
    "by columns": ("column-major", lambda f, r, n: cut(flat(f.t()), n)[r]),
    "by rows": ("cut-by-rows", lambda f, r, n: f.tensor_split(n)[r]),
}


def flat(full: torch.Tensor) -> torch.Tensor:
    return full.reshape(-1)


@pytest.mark.parametrize("ranks", SIZES)
@pytest.mark.parametrize("name", SHARDS)
def test_all_shards_together(name: str, ranks: int) -> None:
    code, rule = SHARDS[name]
    full = given(1, (5, 5))[0]  # which neither 2, 3 nor 4 divide
    parts = [rule(full, rank, ranks) for rank in range(ranks)]
    found = evidence("shard", [None], [parts[0]], extra={"full": full, "parts": parts})
    is_right = name == "tensor_split, padded" and ranks == 2
    assert explain(found) == (None if is_right else code)


@pytest.mark.parametrize("name", SHARDS)
def test_the_last_of_three_shards_alone(name: str) -> None:
    code, rule = SHARDS[name]
    full = given(1, (5, 5))[0]
    want = cut(flat(full), 3)[2]
    extra = {"full": full, "rank": 2, "ranks": 3}
    found = explain(evidence("shard", [want], [rule(full, 2, 3)], extra=extra))
    # tensor_split gives the last rank what `cut` gives it without padding, or 24 = 3 * 8.
    assert found == code or (found is None and name in ("floor", "tensor_split"))


@pytest.mark.parametrize("ranks", SIZES)
def test_shards_that_real_ranks_brought(ranks: int) -> None:
    full = given(1, (5, 5))[0]
    inputs = tuple({"weight": full} for _ in range(ranks))
    want = cut(flat(full), ranks)
    actual = want[1:] + want[:1]
    found = evidence("shard", want, actual, name="shards/weight", inputs=inputs)
    assert explain(found) == "another-ranks-shard"


@pytest.mark.parametrize("ranks", SIZES)
def test_padding_that_is_not_zero(ranks: int) -> None:
    full = given(1, (5, 5))[0]
    parts = [part.clone() for part in cut(flat(full), ranks)]
    parts[-1][-1] = 1.0
    found = evidence("shard", [None], [parts[0]], extra={"full": full, "parts": parts})
    assert explain(found) == "padding-not-zeros"
    parts[0][0] += 1
    assert explain(found) is None, "then a number is wrong too"


@pytest.mark.parametrize("kind", ["shard", "rows"])
def test_without_knowing_what_was_cut_nothing_is_said(kind: str) -> None:
    a, b = given(2, (4,))
    assert explain(evidence(kind, [a], [b])) is None


ROWS: dict[str, tuple[str, Rule]] = {
    "chunk": ("chunk-rule", lambda x, r, n: x.chunk(n)[r] if r < len(x.chunk(n)) else x[:0]),
    "ceil": ("chunk-rule", lambda x, r, n: x[r * -(-len(x) // n) : (r + 1) * -(-len(x) // n)]),
    "floor": ("remainder-dropped", lambda x, r, n: x[r * (len(x) // n) : (r + 1) * (len(x) // n)]),
    "rest to the last": (
        "remainder-to-last",
        lambda x, r, n: x[r * (len(x) // n) : (r + 1) * (len(x) // n) if r < n - 1 else len(x)],
    ),
    "more for the last": (
        "extra-rows-to-last-ranks",
        lambda x, r, n: torch.cat([*x.flip(0).tensor_split(n)[::-1][r : r + 1]]).flip(0),
    ),
    "rounded borders": (
        "extra-rows-to-last-ranks",
        lambda x, r, n: x[r * len(x) // n : (r + 1) * len(x) // n],
    ),
    "starts too early": (
        "rows-overlap-or-gap",
        lambda x, r, n: x[r * (len(x) // n) :][: len(x) // n + (r < len(x) % n)],
    ),
    "starts too late": (
        "rows-overlap-or-gap",
        lambda x, r, n: x[r * (len(x) // n + 1) :][: len(x) // n + (r < len(x) % n)],
    ),
    "every n-th": ("interleaved", lambda x, r, n: x[r::n]),
    "whole": ("not-sharded", lambda x, r, n: x),
    "columns": ("wrong-dimension", lambda x, r, n: x.tensor_split(n, dim=1)[r]),
    "the next": ("another-ranks-rows", lambda x, r, n: x.tensor_split(n)[(r + 1) % n]),
}
TELLING = {"chunk": ((10, 4), (5, 4)), "ceil": ((10, 4), (5, 4)), "starts too late": ((10, 4),)}
"""Counts and ranks at which a rule differs from the right one, where the usual ones do not."""


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("as_lists", [False, True])
def test_all_rows_together(name: str, as_lists: bool) -> None:
    code, rule = ROWS[name]
    for count, ranks in TELLING.get(name, ((11, 4), (23, 4), (14, 4))):
        full = given(1, (count, 4))[0]
        parts = [rule(full, rank, ranks) for rank in range(ranks)]
        shown = [part.tolist() for part in parts] if as_lists else parts
        found = evidence("rows", [None], [shown[0]], extra={"full": full, "parts": shown})
        assert explain(found) == code, (count, ranks)


def test_one_part_that_fits_several_rules_is_not_explained() -> None:
    """Two rows on rank 0 of 4, where three are due: rounded down, or the rest to the last."""
    full = given(1, (11, 4))[0]
    extra = {"full": full, "rank": 0, "ranks": 4}
    assert explain(evidence("rows", [full[:3]], [full[:2]], extra=extra)) is None


def test_parts_that_are_no_rows_are_not_explained() -> None:
    full = given(1, (5, 2))[0]
    for part in ("nothing", [1, "x"], [[1.0], [2.0, 3.0]], None, [[10**400, 1]]):
        extra = {"full": full, "parts": [part, part]}
        assert explain(evidence("rows", [None], [part], extra=extra)) is None


def test_whole_numbers_that_tell_rows_apart_are_enough() -> None:
    full = torch.arange(22.0).reshape(11, 2)
    parts = [full[r * 2 : r * 2 + 2] for r in range(4)]
    found = evidence("rows", [None], [parts[0]], extra={"full": full, "parts": parts})
    assert explain(found) == "remainder-dropped"


def test_the_rules_can_be_asked_one_by_one() -> None:
    full = torch.arange(10.0)
    rules = [(code, rows) for code, rows in row_rules(full, 3, 4) if rows is not None]
    assert any(code == "chunk-rule" and rows.tolist() == [9] for code, rows in rules)
    assert any(code == "interleaved" and rows.tolist() == [3, 7] for code, rows in rules)
    assert not any(code == "wrong-dimension" for code, _ in rules)
