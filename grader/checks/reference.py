"""Expected values: the reference solution's answers, made on real ranks and remembered.

The solution runs through the very path a submission runs through, from the same
inputs. Its answers are kept on disk under a key of everything they depend on, so a
class pays for them once. A damaged or foreign file is a miss, never an answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

import grader
from grader.checks.record import ledger
from grader.ranks.inside import values
from grader.ranks.outcome import Ending, Outcome, Request
from grader.results import Collective

_FORMAT = 1


class ReferenceFailed(Exception):
    """The reference solution did not answer: a fault of the lesson, not of a learner."""


@dataclass(frozen=True)
class Reference:
    """What the reference brought back, per rank."""

    values: tuple[dict[str, Any], ...]
    ledgers: tuple[tuple[Collective, ...], ...]


class _Stored(msgspec.Struct):
    key: str
    values: list[bytes]
    ledgers: list[tuple[Collective, ...]]


class ReferenceStore:
    """Remembers references in `folder`, or only runs them where that is None."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, request: Request, run: Callable[[Request], Outcome]) -> Reference:
        """The reference's answer to `request`, from disk or made with `run`.

        Raises:
            ReferenceFailed: it did not answer.
        """
        key = _key(request)
        found = self._read(key)
        if found is None:
            found = _stored(key, request, run(request))
            self._write(key, found)
        return Reference(
            values=tuple(values.decode(blob) for blob in found.values),
            ledgers=tuple(found.ledgers),
        )

    def _path(self, key: str) -> Path | None:
        return self._folder / key[:2] / f"{key[2:]}.msgpack" if self._folder else None

    def _read(self, key: str) -> _Stored | None:
        path = self._path(key)
        if path is None:
            return None
        try:
            stored = msgspec.msgpack.decode(path.read_bytes(), type=_Stored)
        except (OSError, msgspec.MsgspecError):
            return None
        return stored if stored.key == key else None

    def _write(self, key: str, stored: _Stored) -> None:
        path = self._path(key)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd, temporary = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.msgpack.encode(stored))
            os.replace(temporary, path)
        except OSError:
            self._folder = None  # a full or read-only disk costs speed, not the grading


def _stored(key: str, request: Request, outcome: Outcome) -> _Stored:
    if outcome.ending is not Ending.ANSWERED:
        raise ReferenceFailed(_why(request, outcome))
    return _Stored(
        key,
        [values.encode(rank.values or {}) for rank in outcome.ranks],
        [ledger(rank, outcome.started) for rank in outcome.ranks],
    )


def _why(request: Request, outcome: Outcome) -> str:
    what = request.program or "the import"
    text = f"the solution's {what} at world size {request.world_size}: {outcome.ending.value}"
    culprit = outcome.culprit
    if culprit is not None and culprit.ledger.error:
        error = culprit.ledger.error
        text += f"; rank {culprit.rank} raised {error.get('type')}: {error.get('message')}"
    return "; ".join((text, *outcome.proof_lines, *([outcome.fault] if outcome.fault else [])))


def _key(request: Request) -> str:
    """A hash of everything the answer depends on."""
    digest = hashlib.sha256()
    described = {
        "format": _FORMAT,
        "kit": grader.__version__,
        "ranks": _kit_sources(),
        "torch": str(torch.__version__),
        "solution": _folder_hash(request.submission),
        "module": request.module,
        "program": request.program,
        "programs": dict(sorted(request.programs.items())),
        "world_size": request.world_size,
        "group": request.group,
        "delays_s": request.delays_s,
    }
    digest.update(json.dumps(described, sort_keys=True).encode())
    for blob in request.inputs:
        digest.update(len(blob).to_bytes(8, "little") + blob)
    return digest.hexdigest()


def _folder_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _kit_sources() -> str:
    """What runs inside ranks is part of the key: a changed harness may change answers."""
    return _folder_hash(Path(values.__file__).parent)
