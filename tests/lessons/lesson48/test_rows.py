"""Checks of the exercise "shard / gather": rows of data, one part a rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from grader.checks import Case, Draw, check
from grader.checks.hypotheses import row_rules

EXERCISE, FUNCTION = "shard / gather", "shard_for_rank"


def all_small_counts(_draw: Draw) -> dict[str, Any]:
    return {"counts": list(range(1, 13)), "world_sizes": list(range(1, 13))}


def several_tensors(draw: Draw) -> dict[str, Any]:
    shapes = {
        "labels": ((10,), torch.int64),
        "images": ((7, 2, 3), torch.float32),
        "mask": ((9, 2), torch.bool),
        "halves": ((2, 5), torch.bfloat16),
    }
    return {"ranks": 4, **draw.tensors(shapes, prefix="x/")}


def own_tensor(draw: Draw) -> dict[str, Any]:
    return {"x": draw.normal((7, 2))}


def _parts(case: Case) -> Iterator[tuple[int, int, list[Any]]]:
    """(rows, ranks, the rows that each rank got) of every question."""
    inputs = case.inputs[0]
    for count in inputs["counts"]:
        for size in inputs["world_sizes"]:
            parts = case.got[0].get(f"rows/{count} over {size}")
            for rank, part in enumerate(parts if isinstance(parts, list) else ["nothing"]):
                case.require(
                    isinstance(part, list),
                    f"{FUNCTION} gave rank {rank} of {size} a {part} where a tensor is due",
                    expected="a tensor",
                    actual=str(part),
                )
            yield count, size, parts


def _explain(case: Case) -> str:
    """The rule that gives all the parts that came, if it is a known one."""
    codes: set[str] | None = None
    for count, size, parts in _parts(case):
        whole = torch.arange(count * 2.0).reshape(count, 2)
        fitting = []
        for rank, part in enumerate(parts):
            fitting.append({code for code, rows in row_rules(whole, rank, size) if _is(part, rows)})
        both = set.intersection(*fitting)
        codes = both if codes is None else codes & both
    return next(iter(codes or ())) if codes is not None and len(codes) == 1 else ""


def _is(part: list[Any], rows: torch.Tensor | None) -> bool:
    return rows is not None and part == rows.tolist()


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.rows",
    inputs=all_small_counts,
    world_sizes=(1,),
    group="none",
)
def test_parts_differ_by_one_row_at_most(case: Case) -> None:
    """All ranks get equally many rows, and the first few get one more where that cannot be."""
    for count, size, parts in _parts(case):
        due = [count // size + (rank < count % size) for rank in range(size)]
        sizes = [len(part) for part in parts]
        case.require(
            sizes == due,
            f"{count} rows over {size} ranks came out as {_list(sizes)}",
            diagnosis="" if sizes == due else _explain(case),
            tensor="shard_for_rank",
            expected=_list(due),
            actual=_list(sizes),
        )


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.rows",
    inputs=all_small_counts,
    world_sizes=(1,),
    group="none",
)
def test_parts_put_together_are_the_whole(case: Case) -> None:
    """The parts of rank 0, 1, 2, … one after the other are the rows in their old order."""
    for count, size, parts in _parts(case):
        whole = [[2.0 * row, 2.0 * row + 1] for row in range(count)]
        joined = [row for part in parts for row in part]
        case.require(
            joined == whole,
            f"{count} rows over {size} ranks do not give the {count} rows again",
            diagnosis="" if joined == whole else _explain(case),
            tensor="shard_for_rank",
            expected=_list(row[0] for row in whole),
            actual=_list(row[0] if isinstance(row, list) and row else row for row in joined),
        )


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.rows_of",
    inputs=several_tensors,
    world_sizes=(1,),
    group="none",
)
def test_only_the_first_dimension_is_cut(case: Case) -> None:
    """Labels, images and masks are cut by rows alone; their dtype and the rows themselves stay."""
    for key, x in case.inputs[0].items():
        if not key.startswith("x/"):
            continue
        for rank, part in enumerate(x.tensor_split(4)):
            name = f"rows/{key.removeprefix('x/')}, rank {rank} of 4"
            case.equals(name, part)


@check(
    exercise=EXERCISE,
    function=FUNCTION,
    program="sharding.own_rows",
    inputs=own_tensor,
    world_sizes=(2,),
)
def test_cutting_rows_needs_no_other_rank(case: Case) -> None:
    """Every rank cuts its part out of its own tensor without asking any other."""
    for rank, entries in enumerate(case.issued()):
        case.require(
            not entries,
            f"rank {rank} called {entries[0].op if entries else ''} to cut its own rows",
            rank=rank,
        )
    parts = [i["x"].tensor_split(case.world_size)[r] for r, i in enumerate(case.inputs)]
    case.equals("rows/x", lambda rank: parts[rank])


def _list(values: Any) -> str:
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
