"""Proofs of deadlock from ledgers alone, without any process."""

from __future__ import annotations

import json

from grader.ranks.deadlock import Prover, describe, nth
from grader.ranks.ledger import RankLedger

ALL_REDUCE = {"op": "all_reduce", "reduce": "sum", "shapes": [[4]], "dtype": "float32", "bytes": 16}
SEND = {"op": "send", "shapes": [[4]], "dtype": "float32", "bytes": 16}
RECV = SEND | {"op": "recv"}


class Ranks:
    """Ledgers of `size` ranks, written as a story."""

    def __init__(self, size: int) -> None:
        self.ledgers = [RankLedger(rank) for rank in range(size)]
        self._prover = Prover(self.ledgers)
        self._numbers = [0] * size
        for rank in range(size):
            self._tell(rank, "meeting")
            self._tell(rank, "started")

    def start(
        self, rank: int, call: dict, *, group: str = "0", is_async: bool = False, **more
    ) -> int:
        number = self._numbers[rank]
        self._numbers[rank] += 1
        members = list(range(len(self.ledgers)))
        where = {"file": "work.py", "line": 10 * (number + 1)}
        fields = {
            "n": number,
            "group": group,
            "members": members,
            "async": is_async,
            "uneven": False,
        }
        self._tell(rank, "start", **(fields | where | call | more))
        return number

    def end(self, rank: int, number: int) -> None:
        self._tell(rank, "end", n=number)

    def wait(self, rank: int, number: int, limited: bool = False) -> None:
        self._tell(rank, "wait", n=number, sync=False, limited=limited)

    def returned(self, rank: int) -> None:
        self._tell(rank, "returned")

    def threads(self, rank: int) -> None:
        self._tell(rank, "threads")

    def proof(self):
        return self._prover.prove()

    def lines(self):
        return describe(self.proof(), self.ledgers)

    def _tell(self, rank: int, kind: str, **fields) -> None:
        entry = self.ledgers[rank].take(json.dumps({"e": kind, "t": 1.0, **fields}).encode())
        if entry is not None:
            self._prover.see(entry)


def test_ranks_that_all_wait_in_the_same_collective_are_fine() -> None:
    ranks = Ranks(3)
    for rank in range(3):
        ranks.start(rank, ALL_REDUCE)
    assert ranks.proof() is None


def test_a_rank_that_still_computes_may_come() -> None:
    ranks = Ranks(2)
    ranks.start(0, ALL_REDUCE)
    assert ranks.proof() is None


def test_a_rank_that_has_returned_will_not_come() -> None:
    ranks = Ranks(2)
    for rank in range(2):
        ranks.end(rank, ranks.start(rank, ALL_REDUCE))
    ranks.start(0, ALL_REDUCE)
    ranks.returned(1)
    assert [wait.rank for wait in ranks.proof().waits] == [0]
    assert ranks.lines() == (
        "rank 0 waits in all_reduce(sum) of float32 [4] (work.py:20), its 2nd collective, "
        "for rank 1",
        "rank 1 has returned after 1 collective",
    )


def test_two_groups_in_another_order_are_a_cycle() -> None:
    ranks = Ranks(2)
    ranks.start(0, ALL_REDUCE, group="a")
    ranks.start(1, ALL_REDUCE, group="b")
    assert {wait.rank: wait.waits_for for wait in ranks.proof().waits} == {0: (1,), 1: (0,)}


def test_a_cycle_of_three_holds_up_the_fourth() -> None:
    ranks = Ranks(4)
    for rank in range(3):
        ranks.start(rank, SEND, peer=(rank + 1) % 3, tag=0)
    ranks.start(3, RECV, peer=0, tag=0)
    assert {wait.rank for wait in ranks.proof().waits} == {0, 1, 2, 3}


def test_a_chain_that_ends_in_a_running_rank_may_go_on() -> None:
    ranks = Ranks(3)
    ranks.start(0, SEND, peer=1, tag=0)
    ranks.start(1, RECV, peer=2, tag=0)
    assert ranks.proof() is None


def test_a_send_waits_for_the_receive_of_its_own_turn_and_tag() -> None:
    ranks = Ranks(2)
    ranks.end(0, ranks.start(0, SEND, peer=1, tag=0))
    ranks.end(1, ranks.start(1, RECV, peer=0, tag=0))
    ranks.start(0, SEND, peer=1, tag=7)
    ranks.start(1, RECV, peer=0, tag=0)
    assert {wait.rank for wait in ranks.proof().waits} == {0, 1}


def test_a_receive_from_anyone_is_never_proved_stuck_while_somebody_lives() -> None:
    ranks = Ranks(2)
    ranks.start(0, RECV, peer=None)
    ranks.start(1, SEND, peer=0, tag=0)
    assert ranks.proof() is None


def test_an_asynchronous_call_holds_up_only_who_waits_for_it() -> None:
    ranks = Ranks(2)
    number = ranks.start(0, ALL_REDUCE, is_async=True)
    ranks.returned(1)
    assert ranks.proof() is None
    ranks.wait(0, number)
    assert [wait.rank for wait in ranks.proof().waits] == [0]


def test_a_wait_with_a_limit_of_its_own_proves_nothing() -> None:
    ranks = Ranks(2)
    ranks.wait(0, ranks.start(0, ALL_REDUCE, is_async=True), limited=True)
    ranks.returned(1)
    assert ranks.proof() is None


def test_a_rank_with_threads_may_always_go_on() -> None:
    ranks = Ranks(2)
    ranks.threads(0)
    ranks.start(0, ALL_REDUCE)
    ranks.returned(1)
    assert ranks.proof() is None


def test_the_first_mismatch_by_ordinal_is_told_whatever_came_first() -> None:
    ranks = Ranks(2)
    first = ranks.start(0, ALL_REDUCE, is_async=True)
    second = ranks.start(0, ALL_REDUCE, is_async=True)
    assert (first, second) == (0, 1)
    ranks.start(1, ALL_REDUCE, is_async=True, reduce="max")
    ranks.start(1, ALL_REDUCE, is_async=True, dtype="float64")
    mismatch = ranks.proof().mismatch
    assert mismatch.differs_in == "reduce operation"
    assert [entry.ordinal for entry in mismatch.entries] == [1, 1]


def test_what_must_agree_between_ranks() -> None:
    for field, value, named in (
        ("op", "broadcast", "operation"),
        ("reduce", "max", "reduce operation"),
        ("dtype", "int32", "dtype"),
        ("shapes", [[2, 2]], "shape"),
        ("root", 1, "root"),
    ):
        ranks = Ranks(2)
        ranks.start(0, ALL_REDUCE)
        ranks.start(1, ALL_REDUCE, **{field: value})
        assert ranks.proof().mismatch.differs_in == named


def test_a_reduce_scatter_may_take_one_tensor_or_a_list_of_chunks() -> None:
    ranks = Ranks(2)
    ranks.start(0, ALL_REDUCE, op="reduce_scatter", shapes=[[6]])
    ranks.start(1, ALL_REDUCE, op="reduce_scatter", shapes=[[3], [3]])
    assert ranks.proof() is None


def test_an_all_to_all_may_be_uneven() -> None:
    ranks = Ranks(2)
    ranks.start(0, ALL_REDUCE, op="all_to_all", shapes=[[6]], uneven=True)
    ranks.start(1, ALL_REDUCE, op="all_to_all", shapes=[[5]], uneven=True)
    assert ranks.proof() is None


def test_ordinals_are_spoken_as_people_do() -> None:
    spoken = [nth(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)]
    assert spoken == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th"]
