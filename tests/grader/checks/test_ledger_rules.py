"""Diagnoses from the ranks' calls alone."""

from __future__ import annotations

from itertools import permutations

import pytest

from grader.checks.ledger_rules import (
    Ledgers,
    elements,
    explain_amount,
    explain_deadlock,
    explain_route,
    explain_values,
    issues_nothing,
)
from tests.grader.checks.builders import call

REDUCE = call("all_reduce", reduce_op="sum")
LARGE = call("all_reduce", reduce_op="sum", shapes=((9,),))
GATHER = call("all_gather")
SCATTER = call("reduce_scatter", reduce_op="sum")
BARRIER = call("barrier", shapes=(), dtype="")
ZERO, ONE = call("broadcast", root=0), call("broadcast", root=1)

DEADLOCKS: dict[str, tuple[str, Ledgers]] = {
    "one call less": ("collective-skipped-on-one-rank", ((REDUCE, REDUCE), (REDUCE,))),
    "none at all": ("collective-skipped-on-one-rank", ((REDUCE,), ())),
    "one rank of three": ("collective-skipped-on-one-rank", ((REDUCE,), (), (REDUCE,))),
    "barrier on rank 0": ("collective-skipped-on-one-rank", ((BARRIER,), ())),
    "source alone": ("broadcast-on-source-only", ((), (ONE,))),
    "source alone of three": ("broadcast-on-source-only", ((), (ONE,), ())),
    "source alone, others gone on": ("broadcast-on-source-only", ((ZERO,), (REDUCE,))),
    "source alone, others gone on, three": (
        "broadcast-on-source-only",
        ((ZERO,), (REDUCE,), (REDUCE,)),
    ),
    "all but the source": ("collective-skipped-on-one-rank", ((), (ZERO,))),
    "joined once": ("collective-skipped-on-one-rank", ((ZERO, ZERO), (ZERO,))),
    "own rank": ("every-rank-is-source", ((ZERO,), (ONE,))),
    "roots exchanged": ("different-roots", ((ONE,), (ZERO,))),
    "roots of three": ("different-roots", ((ZERO,), (ZERO,), (ONE,))),
    "operations": ("different-collectives", ((REDUCE,), (BARRIER,))),
    "reductions": ("different-reduce-ops", ((REDUCE,), (call("all_reduce", reduce_op="max"),))),
    "shapes": ("different-tensors", ((REDUCE,), (LARGE,))),
    "dtypes": (
        "different-tensors",
        ((REDUCE,), (call("all_reduce", reduce_op="sum", dtype="float64"),)),
    ),
    "later shapes": ("different-tensors", ((REDUCE, REDUCE), (REDUCE, LARGE))),
    "order": ("different-order", ((REDUCE, LARGE), (LARGE, REDUCE))),
    "sends": ("everyone-sends-first", ((call("send", peer=1),), (call("send", peer=0),))),
    "receives": ("everyone-receives-first", ((call("recv", peer=1),), (call("recv", peer=0),))),
}


@pytest.mark.parametrize("name", DEADLOCKS)
def test_each_deadlock_is_called_by_its_name(name: str) -> None:
    code, ledgers = DEADLOCKS[name]
    assert explain_deadlock(ledgers) == code


@pytest.mark.parametrize("name", DEADLOCKS)
def test_calls_that_all_ranks_made_before_change_nothing(name: str) -> None:
    code, ledgers = DEADLOCKS[name]
    before = call("all_gather", ended_s=0.1)
    assert explain_deadlock(tuple((before, *entries) for entries in ledgers)) == code


NO_STORY: dict[str, Ledgers] = {
    "the same calls": ((REDUCE, GATHER), (REDUCE, GATHER)),
    "nothing": ((), ()),
    "one rank": ((REDUCE,),),
    "a send that was received": ((call("send", peer=1, ended_s=1.0),), ()),
    "one sends, one receives": ((call("send", peer=1),), (call("recv", peer=0),)),
    "one of two waits": ((call("recv", peer=1),), ()),
    "chunks of a reduce-scatter": (
        (SCATTER,),
        (call("reduce_scatter", reduce_op="sum", shapes=((2,), (2,))),),
    ),
    "uneven exchange": ((call("all_to_all"),), (call("all_to_all", shapes=((2,), (1,))),)),
    "shapes of what only the root has": (
        (call("scatter", root=0),),
        (call("scatter", root=0, shapes=()),),
    ),
    "a group of some ranks": (
        (REDUCE, call("all_reduce", reduce_op="sum", group="1")),
        (REDUCE,),
    ),
}


@pytest.mark.parametrize("name", NO_STORY)
def test_nothing_is_made_up(name: str) -> None:
    assert explain_deadlock(NO_STORY[name]) is None


def test_groups_are_compared_one_by_one() -> None:
    """Ranks 1 and 2 have a group of their own; where its calls lie among others is no matter."""
    inner = call("broadcast", group="1", root=1)
    ledgers = ((REDUCE,), (inner, REDUCE), (REDUCE, inner))
    assert explain_deadlock(ledgers) is None
    skipped = ((REDUCE,), (inner, inner, REDUCE), (REDUCE, inner))
    assert explain_deadlock(skipped) == "collective-skipped-on-one-rank"


def test_a_rank_ahead_may_have_skipped_a_call_or_go_another_way_round() -> None:
    assert explain_deadlock(((LARGE,), (REDUCE,))) == "different-tensors"
    assert explain_deadlock(((LARGE, REDUCE), (REDUCE, LARGE))) == "different-order"


def test_calls_never_waited_for() -> None:
    dropped = call("all_reduce", reduce_op="sum", is_async=True, waited=False)
    kept = call("all_reduce", reduce_op="sum", is_async=True, ended_s=1.0)
    wanted = ((REDUCE,), (REDUCE,))
    for ledgers in permutations(((dropped,), (kept,))):
        assert explain_values(ledgers, wanted) == "async-never-waited"
    assert explain_values(((kept,), (kept,)), wanted) is None
    assert explain_values(((dropped,),), ((REDUCE,),)) == "async-never-waited"


def test_no_communication_where_the_reference_has_some() -> None:
    wanted = ((REDUCE,), (REDUCE,))
    assert explain_values(((), ()), wanted) == "no-communication"
    assert explain_values(((BARRIER,), (BARRIER,)), wanted) == "no-communication"
    assert explain_values(((), ()), ((), ())) is None
    assert explain_values(((), ()), ((BARRIER,), (BARRIER,))) is None
    assert explain_values(((),), ((REDUCE,),)) is None, "one rank needs nobody"
    ring = (call("send", peer=1),), (call("recv", peer=0),)
    assert explain_values(ring, wanted) is None


def test_ranks_that_did_not_meet_and_went_on() -> None:
    wanted = ((REDUCE,), (REDUCE,))
    mixed = ((REDUCE,), (call("all_reduce", reduce_op="max"),))
    assert explain_values(mixed, wanted) == "different-reduce-ops"
    assert explain_values(((ZERO,), (ONE,)), wanted) == "every-rank-is-source"


def test_a_reduce_reaches_one_rank_unless_it_is_handed_on() -> None:
    one = call("reduce", reduce_op="sum", root=0)
    wanted = ((REDUCE,), (REDUCE,))
    assert explain_values(((one,), (one,)), wanted) == "reduced-to-one-rank"
    assert explain_values(((one, ZERO), (one, ZERO)), wanted) is None
    assert explain_values(((one,), (one,)), ((one,), (one,))) is None


def test_a_detour_over_everything() -> None:
    wanted = ((SCATTER,), (SCATTER,))
    assert explain_route(((REDUCE,), (REDUCE,)), wanted) == "all-reduce-then-slice"
    assert explain_route(((SCATTER, REDUCE), (SCATTER, REDUCE)), wanted) is None
    assert explain_route(((GATHER,), (GATHER,)), wanted) is None
    assert explain_route(((REDUCE,), (REDUCE,)), ((REDUCE,), (REDUCE,))) is None
    # It may explain forbidden traffic, but no wrong value.
    assert explain_values(((REDUCE,), (REDUCE,)), wanted) is None


def test_less_than_there_is_to_send() -> None:
    wanted = ((REDUCE, LARGE), (REDUCE, LARGE))
    assert explain_amount(((REDUCE,), (LARGE,)), wanted) == "tensors-left-out"
    flat = call("all_reduce", reduce_op="sum", shapes=((13,),))
    assert explain_amount(((flat,), (flat,)), wanted) is None
    assert explain_amount(((REDUCE,), (flat,)), wanted) is None, "one rank sent all"
    assert explain_amount(((GATHER,), (GATHER,)), wanted) is None, "another way may need less"
    assert explain_amount(((REDUCE,),), ((REDUCE, LARGE),)) is None


def test_counting() -> None:
    assert elements((call("all_gather", shapes=((2, 3), ())), BARRIER)) == 7
    assert issues_nothing(((), ()))
    assert not issues_nothing(((), (BARRIER,)))
