"""What the body of a check judges: one run, both sides of it, as sentences.

Every method either holds or raises `Mismatch`, which carries the cause as data.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch

from grader.checks import ledger_rules
from grader.checks.compare import Difference, compare, same_bytes
from grader.checks.grading import Answers
from grader.checks.hypotheses import Evidence, explain
from grader.checks.record import ledger
from grader.checks.sources import source_line
from grader.checks.values import nameof, render
from grader.results import Cause, Collective


class Mismatch(Exception):
    """A promise that is not kept: the cause as data, and the diagnosis's code where known."""

    def __init__(self, cause: Cause, code: str = "") -> None:
        super().__init__(cause.summary)
        self.cause = cause
        self.code = code


class Case:
    """One run of a check: what every rank got, brought back and should have brought back."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        outcome = answers.outcome
        self.world_size: int = outcome.world_size
        self.inputs: tuple[dict[str, Any], ...] = answers.inputs
        self.got: tuple[dict[str, Any], ...] = tuple(rank.values or {} for rank in outcome.ranks)
        self.want: tuple[dict[str, Any], ...] = answers.reference.values
        self.ledgers: tuple[tuple[Collective, ...], ...] = tuple(
            ledger(rank, outcome.started) for rank in outcome.ranks
        )
        self.want_ledgers: tuple[tuple[Collective, ...], ...] = answers.reference.ledgers

    @property
    def master_port(self) -> int | None:
        """The port at which the submission's own rendezvous asked for a store, on rank 0."""
        return self._answers.outcome.ranks[0].ledger.store_port

    # Values

    def equals_reference(
        self,
        *patterns: str,
        exact: bool = False,
        kind: str = "",
        summands: int | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        """What matches `patterns` equals the reference's, on every rank.

        Args:
            exact: bit for bit; else within a tolerance for the dtype and `summands`.
            kind: the family of hypotheses that may explain a difference.
            summands: how many values were added up; default: one a rank.
        """
        for name in self._names(patterns):
            expected = tuple(values.get(name) for values in self.want)
            self._hold(name, expected, exact, kind, summands or self.world_size, extra or {})

    def equals(
        self,
        name: str,
        expected: Any | Callable[[int], Any],
        *,
        exact: bool = True,
        kind: str = "",
        says: str = "",
        extra: dict[str, Any] | None = None,
    ) -> None:
        """The answer called `name` equals `expected`, or `expected(rank)`, on every rank."""
        by_rank = tuple(
            expected(rank) if callable(expected) else expected for rank in range(self.world_size)
        )
        self._hold(name, by_rank, exact, kind, self.world_size, extra or {}, says)

    def same_on_every_rank(self, *patterns: str) -> None:
        """What matches `patterns` is the same on every rank, byte for byte."""
        for name in self._names(patterns):
            first = self.got[0].get(name)
            for rank in range(1, self.world_size):
                other = self.got[rank].get(name)
                if not same_bytes(first, other):
                    difference = compare(first, other, exact=True, summands=1)
                    self._differ_between_ranks(name, rank, first, other, difference)

    def _hold(
        self,
        name: str,
        expected: tuple[Any, ...],
        exact: bool,
        kind: str,
        summands: int,
        extra: dict[str, Any],
        says: str = "",
    ) -> None:
        actual = tuple(values.get(name, _MISSING) for values in self.got)
        for rank in range(self.world_size):
            if actual[rank] is _MISSING:
                self.fail(f"rank {rank} brought back no {name}", rank=rank, tensor=name)
            difference = compare(
                expected[rank],
                actual[rank],
                exact=exact,
                summands=summands,
                magnitude=self._magnitude(name),
            )
            if difference is None:
                continue
            code = self._explain(name, kind, expected, actual, extra)
            if not code and actual[rank] is None and not name.startswith(_MAY_BE_NONE):
                code = "returned-nothing"
            text = says or difference.sentence
            self._raise(f"rank {rank}, {_spoken(name)}: {text}", rank, name, difference, code)

    def _differ_between_ranks(
        self, name: str, rank: int, first: Any, other: Any, difference: Difference | None
    ) -> NoReturn:
        summary = f"ranks 0 and {rank} do not hold the same {_spoken(name)}"
        if difference is None:
            self.fail(
                f"{summary}: they differ in their bytes",
                rank=rank,
                tensor=name,
                expected=render(first),
                actual=render(other),
            )
        code = ledger_rules.explain_values(self.ledgers, self.want_ledgers) or ""
        self._raise(f"{summary}: {difference.sentence}", rank, name, difference, code)

    def _raise(
        self, summary: str, rank: int, name: str, difference: Difference, code: str
    ) -> NoReturn:
        cause = Cause(
            summary=summary,
            rank=rank,
            tensor=name,
            index=difference.index,
            expected=difference.expected,
            actual=difference.actual,
            differing=difference.differing,
            total=difference.total,
        )
        raise Mismatch(self._at_a_line(cause), code)

    def _explain(
        self,
        name: str,
        kind: str,
        expected: tuple[Any, ...],
        actual: tuple[Any, ...],
        extra: dict[str, Any],
    ) -> str:
        # What the ranks called is stronger evidence than what came out.
        code = ledger_rules.explain_values(self.ledgers, self.want_ledgers)
        if code:
            return code
        if kind == "norm":
            # A norm of wrong gradients is wrong for the gradients' reason.
            code = self._explain_gradients()
        return code or self._explain_value(name, kind, expected, actual, extra)

    def _explain_gradients(self) -> str:
        for name in self.want[0]:
            if name.startswith("gradients/"):
                want = tuple(values.get(name) for values in self.want)
                got = tuple(values.get(name) for values in self.got)
                code = self._explain_value(name, "mean", want, got, {})
                if code:
                    return code
        return ""

    def _explain_value(
        self,
        name: str,
        kind: str,
        expected: tuple[Any, ...],
        actual: tuple[Any, ...],
        extra: dict[str, Any],
    ) -> str:
        evidence = Evidence(
            kind=kind,
            world_size=self.world_size,
            name=name,
            locals=tuple(self._local(rank, name) for rank in range(self.world_size)),
            expected=expected,
            actual=actual,
            inputs=self.inputs,
            extra=extra,
            communicated=not ledger_rules.issues_nothing(self.ledgers),
        )
        return explain(evidence) or ""

    def _magnitude(self, name: str) -> float:
        """The largest number that went into the answer called `name`, 0 where none is known."""
        own = [self._local(rank, name) for rank in range(self.world_size)]
        finite = [t[t.isfinite()].double().abs() for t in own if t is not None]
        return max((float(t.max()) for t in finite if t.numel()), default=0.0)

    def _local(self, rank: int, name: str) -> torch.Tensor | None:
        """The rank's value before any communication, by convention of the names."""
        for values, key in ((self.inputs, name), (self.want, f"local/{name}")):
            found = values[rank].get(key)
            if isinstance(found, torch.Tensor):
                return found
        return None

    def _names(self, patterns: tuple[str, ...]) -> Iterator[str]:
        names = [name for name in self.want[0] if _matches(name, patterns)]
        if not names:
            raise LookupError(f"the reference brought back nothing called {', '.join(patterns)}")
        yield from names

    # Facts

    def require(
        self,
        condition: bool,
        summary: str,
        *,
        rank: int | None = None,
        diagnosis: str = "",
        tensor: str = "",
        expected: str = "",
        actual: str = "",
    ) -> None:
        """A fact that is no value: `summary` says what was seen where it does not hold."""
        if not condition:
            self.fail(
                summary,
                rank=rank,
                code=diagnosis,
                tensor=tensor,
                expected=expected,
                actual=actual,
            )

    def fail(
        self,
        summary: str,
        *,
        rank: int | None = None,
        code: str = "",
        tensor: str = "",
        expected: str = "",
        actual: str = "",
    ) -> NoReturn:
        """Say that the promise is not kept."""
        cause = Cause(summary=summary, rank=rank, tensor=tensor, expected=expected, actual=actual)
        code = code or ledger_rules.explain_values(self.ledgers, self.want_ledgers) or ""
        raise Mismatch(self._at_a_line(cause), code)

    def issued(self, *ops: str) -> tuple[tuple[Collective, ...], ...]:
        """Per rank, the submission's calls whose operation is one of `ops`, or all of them."""
        return tuple(
            tuple(entry for entry in entries if not ops or entry.op in ops)
            for entries in self.ledgers
        )

    def _at_a_line(self, cause: Cause) -> Cause:
        """`cause` with the line of the rank's last collective: where its values came from."""
        entries = self.ledgers[cause.rank or 0]
        last = next((entry for entry in reversed(entries) if entry.file), None)
        if last is None:
            return cause
        source = source_line(self._answers.request.submission, last.file, last.line)
        fields = {name: getattr(cause, name) for name in cause.__struct_fields__}
        return Cause(**{**fields, "file": last.file, "line": last.line, "source": source})


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


_MISSING = _Missing()
_MAY_BE_NONE = ("gradients/", "parameters/", "buffers/")
"""Of these a rank program says None itself where there is none; others a learner returned."""


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _spoken(name: str) -> str:
    """`parameters/0.weight` as `parameter 0.weight`."""
    family, slash, rest = name.partition("/")
    return f"{family.removesuffix('s')} {rest}" if slash else name


__all__ = ["Case", "Mismatch", "nameof"]
