"""Rules by which a tensor is cut for a rank: the right ones, and those that people really use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from grader.checks.families.common import padded, piece, shard_size, transposed


@dataclass(frozen=True)
class Cut:
    """What one part was cut from, for which rank of how many."""

    full: torch.Tensor
    rank: int
    ranks: int


Rule = Callable[[Cut], torch.Tensor | None]


def shard_of(cut: Cut) -> torch.Tensor:
    """The right shard: ceil(numel / ranks) elements, row-major, zeros at the end."""
    size = shard_size(cut.full.numel(), cut.ranks)
    return piece(padded(cut.full.reshape(-1), size * cut.ranks), cut.rank, size)


def rows_of(cut: Cut) -> torch.Tensor:
    """The right rows: sizes differ by one at most, the first ranks hold one more."""
    return cut.full.tensor_split(cut.ranks)[cut.rank]


# Shards


def shifted_by(shift: int) -> Rule:
    """The shard that is right for the rank `shift` places further on."""

    def rule(cut: Cut) -> torch.Tensor | None:
        if shift >= cut.ranks:
            return None
        return shard_of(replace(cut, rank=(cut.rank + shift) % cut.ranks))

    return rule


def _shard_floor(cut: Cut) -> torch.Tensor:
    return piece(cut.full.reshape(-1), cut.rank, cut.full.numel() // cut.ranks)


def shard_without_padding(cut: Cut) -> torch.Tensor:
    """The numbers of the right shard, without what fills it up."""
    return piece(cut.full.reshape(-1), cut.rank, shard_size(cut.full.numel(), cut.ranks))


def _shard_split_evenly(cut: Cut) -> torch.Tensor:
    return cut.full.reshape(-1).tensor_split(cut.ranks)[cut.rank]


def _shard_split_and_padded(cut: Cut) -> torch.Tensor:
    return padded(_shard_split_evenly(cut), shard_size(cut.full.numel(), cut.ranks))


def _shard_padded_in_front(cut: Cut) -> torch.Tensor:
    size = shard_size(cut.full.numel(), cut.ranks)
    zeros = cut.full.new_zeros(size * cut.ranks - cut.full.numel())
    return piece(torch.cat([zeros, cut.full.reshape(-1)]), cut.rank, size)


def _shard_interleaved(cut: Cut) -> torch.Tensor:
    size = shard_size(cut.full.numel(), cut.ranks)
    return padded(cut.full.reshape(-1), size * cut.ranks)[cut.rank :: cut.ranks]


def _shard_interleaved_unpadded(cut: Cut) -> torch.Tensor:
    return cut.full.reshape(-1)[cut.rank :: cut.ranks]


def _shard_by_columns(cut: Cut) -> torch.Tensor | None:
    return shard_of(replace(cut, full=transposed(cut.full))) if cut.full.dim() > 1 else None


def _shard_by_rows(cut: Cut) -> torch.Tensor | None:
    return rows_of(cut) if cut.full.dim() > 1 else None


def _shard_by_chunks_of_rows(cut: Cut) -> torch.Tensor | None:
    return _chunk(cut) if cut.full.dim() > 1 else None


def _nothing_cut(cut: Cut) -> torch.Tensor | None:
    return cut.full if cut.ranks > 1 else None


def _nothing_cut_flat(cut: Cut) -> torch.Tensor | None:
    return cut.full.reshape(-1) if cut.ranks > 1 else None


def _nothing_cut_padded(cut: Cut) -> torch.Tensor | None:
    size = shard_size(cut.full.numel(), cut.ranks) * cut.ranks
    return padded(cut.full.reshape(-1), size) if cut.ranks > 1 else None


SHARD_RULES: tuple[tuple[str, Rule], ...] = (
    ("padding-missing", shard_without_padding),
    ("padding-missing", _shard_split_evenly),
    ("padding-in-every-part", _shard_split_and_padded),
    ("padded-in-front", _shard_padded_in_front),
    ("floor-not-ceil", _shard_floor),
    ("not-sharded", _nothing_cut),
    ("not-sharded", _nothing_cut_flat),
    ("not-sharded", _nothing_cut_padded),
    ("interleaved", _shard_interleaved),
    ("interleaved", _shard_interleaved_unpadded),
    ("column-major", _shard_by_columns),
    ("cut-by-rows", _shard_by_rows),
    ("cut-by-rows", _shard_by_chunks_of_rows),
)


# Rows


def _chunk(cut: Cut) -> torch.Tensor:
    chunks = cut.full.chunk(cut.ranks)
    return chunks[cut.rank] if cut.rank < len(chunks) else cut.full[:0]


def _rows_of_ceil(cut: Cut) -> torch.Tensor:
    return piece(cut.full, cut.rank, shard_size(len(cut.full), cut.ranks))


def _rows_of_floor(cut: Cut) -> torch.Tensor:
    return piece(cut.full, cut.rank, len(cut.full) // cut.ranks)


def _rest_to_last(cut: Cut) -> torch.Tensor:
    floor = len(cut.full) // cut.ranks
    end = len(cut.full) if cut.rank == cut.ranks - 1 else (cut.rank + 1) * floor
    return cut.full[cut.rank * floor : end]


def _one_more_for_last(cut: Cut) -> torch.Tensor:
    floor, more = divmod(len(cut.full), cut.ranks)
    first = cut.ranks - more
    start = cut.rank * floor + max(cut.rank - first, 0)
    return cut.full[start : start + floor + (cut.rank >= first)]


def _borders_rounded_down(cut: Cut) -> torch.Tensor:
    count = len(cut.full)
    return cut.full[cut.rank * count // cut.ranks : (cut.rank + 1) * count // cut.ranks]


def _starts_without_remainder(cut: Cut) -> torch.Tensor:
    floor, more = divmod(len(cut.full), cut.ranks)
    return cut.full[cut.rank * floor :][: floor + (cut.rank < more)]


def _starts_beyond(cut: Cut) -> torch.Tensor:
    floor, more = divmod(len(cut.full), cut.ranks)
    return cut.full[cut.rank * (floor + 1) :][: floor + (cut.rank < more)]


def _next_rows(cut: Cut) -> torch.Tensor | None:
    return rows_of(replace(cut, rank=(cut.rank + 1) % cut.ranks)) if cut.ranks > 1 else None


def _rows_interleaved(cut: Cut) -> torch.Tensor:
    return cut.full[cut.rank :: cut.ranks]


def _along(dim: int) -> Rule:
    def rule(cut: Cut) -> torch.Tensor | None:
        return cut.full.tensor_split(cut.ranks, dim=dim)[cut.rank] if cut.full.dim() > 1 else None

    return rule


ROW_RULES: tuple[tuple[str, Rule], ...] = (
    ("chunk-rule", _chunk),
    ("chunk-rule", _rows_of_ceil),
    ("remainder-dropped", _rows_of_floor),
    ("remainder-to-last", _rest_to_last),
    ("extra-rows-to-last-ranks", _one_more_for_last),
    ("extra-rows-to-last-ranks", _borders_rounded_down),
    ("rows-overlap-or-gap", _starts_without_remainder),
    ("rows-overlap-or-gap", _starts_beyond),
    ("interleaved", _rows_interleaved),
    ("another-ranks-rows", _next_rows),
    ("not-sharded", _nothing_cut),
    ("wrong-dimension", _along(1)),
    ("wrong-dimension", _along(-1)),
)
