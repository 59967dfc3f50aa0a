"""What came out instead of a broadcast or a gathered tensor is recognised, and only that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from grader.checks.hypotheses import Evidence, explain
from tests.grader.checks.builders import SIZES, Given, cut, evidence, given, mean

SHAPE = (5, 5)


# Broadcast


def broadcast(own: Given, source: int, actual: list[Any], **more: Any) -> Evidence:
    extra = {"src": source}
    return evidence("broadcast", [own[source]] * len(own), actual, own, extra=extra, **more)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("buffers/running_mean", "buffers-not-broadcast"),
        ("parameters/weight", "parameters-not-broadcast"),
        ("parameters/embedding", "frozen-not-broadcast"),
    ],
)
def test_own_values_kept(name: str, code: str, size: int) -> None:
    own = given(size)
    inputs = tuple({"frozen": ["embedding"]} for _ in own)
    for source in range(size):
        found = broadcast(own, source, own, name=name, inputs=inputs)
        assert explain(found) == code
        silent = broadcast(own, source, own, name=name, inputs=inputs, communicated=False)
        assert explain(silent) == "no-communication"


@pytest.mark.parametrize("size", SIZES)
def test_every_other_source(size: int) -> None:
    own = given(size)
    for source in range(size):
        for rank in range(size):
            code = None if rank == source else "source-ignored" if rank == 0 else "wrong-source"
            assert explain(broadcast(own, source, [own[rank]] * size)) == code


@pytest.mark.parametrize("size", SIZES)
def test_a_mean_is_no_broadcast(size: int) -> None:
    own = given(size)
    for value in (mean(own), sum(own)):
        assert explain(broadcast(own, 0, [value] * size)) == "averaged-not-broadcast"


def test_a_detour_over_fewer_digits() -> None:
    whole = [torch.arange(4) + 2**60 + 1 + 10 * rank for rank in range(2)]
    via_float = [whole[0].double().long()] * 2
    assert explain(broadcast(whole, 0, via_float)) == "through-lower-precision"
    own = [x.double() for x in given(2, (3, 3))]
    fine = [torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(r))
            for r in range(2)]  # fmt: skip
    assert explain(broadcast(fine, 0, [fine[0], fine[0].float().double()])) == (
        "through-lower-precision"
    )
    assert explain(broadcast(own, 0, [own[0], own[0] + 1e-9])) is None


def test_memory_copied_as_it_lies() -> None:
    own = given(3, (4, 3))
    into_columns = own[0].reshape(3, 4).t()
    actual = [own[0], into_columns, own[0]]
    assert explain(broadcast(own, 0, actual)) == "memory-order-mixed-up"
    from_columns = own[1].t().reshape(4, 3)
    actual = [from_columns, own[1], from_columns]
    assert explain(broadcast(own, 1, actual)) == "memory-order-mixed-up"


def test_what_a_rank_never_initialised_proves_nothing() -> None:
    """NaN may be a value that was kept as well as what became of it."""
    own = [given(1)[0], torch.full((3, 2), torch.nan)]
    assert explain(broadcast(own, 0, own)) is None


def test_a_counter_that_was_kept_needs_less_proof_than_another_story() -> None:
    own = [torch.tensor(917), torch.tensor(435)]
    assert explain(broadcast(own, 0, own, name="buffers/counter")) == "buffers-not-broadcast"
    assert explain(broadcast(own, 1, [own[0], own[0]], name="buffers/counter")) is None
    small = [torch.tensor(5), torch.tensor(3)]
    assert explain(broadcast(small, 0, small, name="buffers/counter")) is None


def test_bools_count_one_bit_each() -> None:
    generator = torch.Generator().manual_seed(0)
    for count, code in ((4, None), (80, "buffers-not-broadcast")):
        own = [torch.rand(count, generator=generator) < 0.5 for _ in range(2)]
        assert explain(broadcast(own, 0, own, name="buffers/mask")) == code


# Gather


GATHERS: dict[str, tuple[str, Callable[[Given, torch.Tensor], list[Any]]]] = {
    "one list": (
        "gather-list-aliased",
        lambda s, f: [shaped(torch.cat([s[-1]] * len(s)))] * len(s),
    ),
    "one list, the first rank's": (
        "gather-list-aliased",
        lambda s, f: [shaped(torch.cat([s[0]] * len(s)))] * len(s),
    ),
    "own shard": ("own-shard-repeated", lambda s, f: [shaped(torch.cat([x] * len(s))) for x in s]),
    "reversed": ("wrong-rank-order", lambda s, f: [shaped(torch.cat(s[::-1]))] * len(s)),
    "own first": (
        "wrong-rank-order",
        lambda s, f: [shaped(torch.cat(s[r:] + s[:r])) for r in range(len(s))],
    ),
    "neighbour first": (
        "wrong-rank-order",
        lambda s, f: [shaped(torch.cat((s + s)[r + 1 : r + 1 + len(s)])) for r in range(len(s))],
    ),
    "stacked": ("stacked-not-concatenated", lambda s, f: [torch.stack(s)] * len(s)),
    "nothing": ("nothing-gathered", lambda s, f: s),
    "flat": ("not-reshaped", lambda s, f: [f.reshape(-1)] * len(s)),
    "by columns": ("column-major", lambda s, f: [f.reshape(-1).reshape(5, 5).t()] * len(s)),
    "the rest zeros": (
        "only-own-part",
        lambda s, f: [
            shaped(torch.cat([x if i == r else x * 0 for i, x in enumerate(s)]))
            for r in range(len(s))
        ],
    ),
}


def shaped(flat: torch.Tensor) -> torch.Tensor:
    return flat[:25].reshape(SHAPE)


def gathered(actual: Callable[[Given, torch.Tensor], list[Any]], size: int) -> Evidence:
    full = given(1, SHAPE, seed=size)[0]
    shards = cut(full.reshape(-1), size)
    return evidence("gather", [full] * size, actual(shards, full), extra={"shards": shards})


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", GATHERS)
def test_gathers(name: str, size: int) -> None:
    code, mistake = GATHERS[name]
    assert explain(gathered(mistake, size)) == code


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", GATHERS)
def test_one_bit_off_is_no_gather(name: str, size: int) -> None:
    """Shards are copied, so a story that is nearly right is not the story."""
    _, mistake = GATHERS[name]

    def nearly(shards: Given, full: torch.Tensor) -> list[Any]:
        return [x + (x != 0) * 1e-3 for x in mistake(shards, full)]

    assert explain(gathered(nearly, size)) is None


@pytest.mark.parametrize("size", SIZES)
def test_padding_kept_in_any_shape(size: int) -> None:
    assert explain(gathered(lambda s, f: [torch.cat(s)] * size, size)) == "padding-kept"
    assert explain(gathered(lambda s, f: [torch.cat(s)[None, :, None]] * size, size)) == (
        "padding-kept"
    )


def test_padding_that_is_not_there_cannot_be_kept() -> None:
    shards = given(2, (4,))
    full = torch.cat(shards).reshape(2, 4)
    found = evidence("gather", [full] * 2, [full.reshape(-1)] * 2, extra={"shards": shards})
    assert explain(found) == "not-reshaped"


@pytest.mark.parametrize("size", SIZES)
def test_padding_cut_off_at_the_wrong_end(size: int) -> None:
    found = gathered(lambda s, f: [torch.cat(s)[-25:].reshape(SHAPE)] * size, size)
    assert explain(found) == "cut-at-the-wrong-end"


def test_padding_between_the_parts() -> None:
    full = given(1, (2, 5))[0]
    shards = cut(full.reshape(-1), 4)
    flat = full.reshape(-1)
    pieces = [torch.nn.functional.pad(x, (0, 3 - len(x))) for x in flat.tensor_split(4)]
    mixed = torch.cat(pieces)[:10].reshape(2, 5)
    found = evidence("gather", [full] * 4, [mixed] * 4, extra={"shards": shards})
    assert explain(found) == "padding-in-every-part"


def test_a_rank_whose_parts_are_right_speaks_against_one_shard_for_all() -> None:
    full = given(1, SHAPE)[0]
    shards = cut(full.reshape(-1), 3)
    last = shaped(torch.cat([shards[-1]] * 3))
    found = evidence("gather", [full] * 3, [full, last, last], extra={"shards": shards})
    assert explain(found) is None


def test_a_single_number_and_its_padding_prove_nothing() -> None:
    full = given(1, ())[0]
    shards = cut(full.reshape(-1), 3)
    zeros = [torch.zeros(())] * 3
    assert explain(evidence("gather", [full] * 3, zeros, extra={"shards": shards})) is None
