"""A run that brought no complete answer, in the learner's words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from grader.checks.diagnosis import diagnosis
from grader.checks.ledger_rules import explain_deadlock
from grader.checks.record import ledger
from grader.checks.sources import source_line
from grader.ranks.deadlock import call_text, nth
from grader.ranks.outcome import Ending, Outcome, RankOutcome, Request
from grader.report.escape import safe_text
from grader.results import Cause, Diagnosis, LearnerError, Verdict

_SIGNALS = {
    "SIGSEGV": "it touched memory that is not its own",
    "SIGABRT": "a library gave up; with Gloo most often because two ranks passed tensors of "
    "different sizes to one collective",
    "SIGFPE": "an arithmetic error in compiled code",
    "SIGBUS": "it touched memory that is not there",
    "SIGKILL": "killed from outside, most likely because memory ran out",
    "SIGXCPU": "it used up its processor time",
}
_OUT_OF_MEMORY = ("can't allocate memory", "Cannot allocate memory", "bad_alloc")
_PORT_TAKEN = ("EADDRINUSE", "Address already in use", "address already in use")

Ruling = tuple[Verdict, Cause, Diagnosis | None]


def rule(outcome: Outcome, request: Request) -> Ruling:
    """Verdict, cause and diagnosis of an outcome that did not end in answers."""
    match outcome.ending:
        case Ending.DEADLOCKED:
            return _deadlocked(outcome, request)
        case Ending.CRASHED:
            return _crashed(outcome, request)
        case Ending.NO_ANSWER:
            return _no_answer(outcome)
        case Ending.TIMED_OUT:
            return _timed_out(outcome, request)
        case Ending.UNREADABLE:
            return _unreadable(outcome)
    raise ValueError(f"an outcome that {outcome.ending.value} has nothing to explain")


# Deadlocks


def _deadlocked(outcome: Outcome, request: Request) -> Ruling:
    assert outcome.proof is not None
    mismatch = outcome.proof.mismatch
    if mismatch is not None:
        entries = mismatch.entries
        other = next(e for e in entries[1:] if _differs(entries[0], e, mismatch.differs_in))
        pair = [f"rank {e.rank} calls {call_text(e)}{_at(e.where)}" for e in (entries[0], other)]
        summary = (
            f"the ranks do not make the same {nth(other.ordinal)} collective: {pair[0]}, "
            f"{pair[1]}; "
            f"the {mismatch.differs_in} differs"
        )
        rank, file, line = other.rank, other.file, other.line
    else:
        wait = next((w for w in outcome.proof.waits if w.entry), outcome.proof.waits[0])
        lines = "; ".join(outcome.proof_lines[:4])
        summary = f"deadlock after {outcome.deadlock_after_s or 0.0:.2f} s: {lines}"
        rank = wait.rank
        file, line = (wait.entry.file, wait.entry.line) if wait.entry else ("", None)
    code = explain_deadlock(tuple(ledger(r, outcome.started) for r in outcome.ranks))
    cause = Cause(
        summary=safe_text(summary),
        rank=rank,
        file=safe_text(file),
        line=line,
        source=source_line(request.submission, file, line),
        details=tuple(safe_text(text) for text in outcome.proof_lines),
    )
    return Verdict.DEADLOCKED, cause, diagnosis(code) if code else None


def _differs(a: Any, b: Any, what: str) -> bool:
    field = {
        "operation": "op",
        "root": "root",
        "reduce operation": "reduce_op",
        "dtype": "dtype",
        "shape": "shapes",
    }[what]
    return bool(getattr(a, field) != getattr(b, field))


def _at(where: str) -> str:
    return f" ({where})" if where else ""


# Crashes


def _crashed(outcome: Outcome, request: Request) -> Ruling:
    culprit = outcome.culprit
    assert culprit is not None
    if culprit.signal:
        why = _SIGNALS.get(culprit.signal, "a signal")
        summary = f"rank {culprit.rank} was ended by {culprit.signal}: {why}"
        cause = Cause(summary=summary, rank=culprit.rank, details=outcome.proof_lines)
        return Verdict.CRASHED, cause, None
    error = learner_error(culprit.ledger.error or {})
    file, line = _innermost(culprit.ledger.error or {})
    cause = Cause(
        summary=_error_summary(outcome, culprit, error, request),
        rank=culprit.rank,
        file=file,
        line=line,
        source=source_line(request.submission, file, line),
        error=error,
    )
    code = "not-implemented" if error.type == "NotImplementedError" else ""
    return Verdict.CRASHED, cause, diagnosis(code) if code else None


def learner_error(error: dict[str, Any]) -> LearnerError:
    """An exception as a rank told it, made safe to show."""
    frames = [f for f in error.get("frames", ()) if isinstance(f, dict)]
    return LearnerError(
        type=safe_text(str(error.get("type", "")))[:200],
        message=safe_text(str(error.get("message", "")))[:4000],
        frames=tuple(
            safe_text(f"{f.get('file')}:{f.get('line')}" + _in(f.get("function"))) for f in frames
        ),
        source=safe_text(str(error.get("source", "")))[:1000],
    )


def _in(function: Any) -> str:
    return f" in {function}" if function and function != "<module>" else ""


def _innermost(error: dict[str, Any]) -> tuple[str, int | None]:
    frames = [f for f in error.get("frames", ()) if isinstance(f, dict)]
    if not frames:
        return "", None
    line = frames[-1].get("line")
    return safe_text(str(frames[-1].get("file", "")))[:200], line if isinstance(line, int) else None


def _innermost_function(error: dict[str, Any]) -> str:
    frames = [f for f in error.get("frames", ()) if isinstance(f, dict)]
    name = str(frames[-1].get("function", "")) if frames else ""
    return "" if name == "<module>" else safe_text(name)[:100]


def _error_summary(
    outcome: Outcome, culprit: RankOutcome, error: LearnerError, request: Request
) -> str:
    raised = [r for r in outcome.ranks if (r.ledger.error or {}).get("type") == error.type]
    who = "every rank" if len(raised) == outcome.world_size > 1 else f"rank {culprit.rank}"
    text = f"{error.type}: {error.message}"
    if culprit.ledger.phase == "import":
        return f"{request.module}.py could not be imported: {_first_line(text)}"
    if error.type == "MemoryError" or any(sign in text for sign in _OUT_OF_MEMORY):
        return f"{who} needed more than the {request.memory_bytes / 1e9:g} GB that a rank may use"
    if any(sign in text for sign in _PORT_TAKEN):
        port = culprit.ledger.store_port
        return f"{who} could not listen on port {port}: another program has it"
    if error.type == "NotImplementedError":
        function = _innermost_function(culprit.ledger.error or {})
        return f"`{function}` is still to do" if function else "a part of it is still to do"
    return f"{who} raised {_first_line(text)}"


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else ""


# The rest


def _no_answer(outcome: Outcome) -> Ruling:
    culprit = outcome.culprit
    if culprit is None:
        silent = next(r.rank for r in outcome.ranks if r.values is None)
        cause = Cause(summary=f"rank {silent} sent no answer", rank=silent)
    elif culprit.ledger.exit_code:
        code = safe_text(culprit.ledger.exit_code)
        code = "" if code == "None" else code
        summary = f"rank {culprit.rank} called sys.exit({code}) before it had answered"
        cause = Cause(summary=summary, rank=culprit.rank, details=outcome.proof_lines)
    else:
        summary = (
            f"rank {culprit.rank}'s process ended (exit code {culprit.exit_code}) before it had "
            "answered"
        )
        cause = Cause(summary=summary, rank=culprit.rank, details=outcome.proof_lines)
    return Verdict.NO_ANSWER, cause, None


def _timed_out(outcome: Outcome, request: Request) -> Ruling:
    busy = next((r for r in outcome.ranks if not r.ledger.state.gone), outcome.ranks[0])
    entry = busy.ledger.blocked_on
    if entry is not None:
        file, line, doing = entry.file, entry.line, f"was in {entry.op}"
    else:
        file, line = _line_of_stack(busy.stack, request.submission)
        phase = "importing your file" if busy.ledger.started is None else "computing"
        doing = f"was still {phase}"
    where = f" at {file}:{line}" if file else ""
    cause = Cause(
        summary=f"no answer within {request.seconds:g} s: rank {busy.rank} {doing}{where}",
        rank=busy.rank,
        file=file,
        line=line,
        source=source_line(request.submission, file, line),
        details=tuple(_whereabouts(rank, request.submission) for rank in outcome.ranks),
    )
    return Verdict.TIMED_OUT, cause, None


def _whereabouts(rank: RankOutcome, submission: Path) -> str:
    if rank.ledger.state.gone:
        return f"rank {rank.rank} had {rank.ledger.state.value}"
    if rank.ledger.blocked_on is not None:
        return f"rank {rank.rank} was in {rank.ledger.blocked_on.op}"
    file, line = _line_of_stack(rank.stack, submission)
    return f"rank {rank.rank} was busy" + (f" at {file}:{line}" if file else "")


def _line_of_stack(stack: str, submission: Path) -> tuple[str, int | None]:
    """The learner's innermost line in a stack as `faulthandler` writes it."""
    pattern = rf'File "{re.escape(str(submission))}/([\w./-]+)", line (\d+)'
    found = re.search(pattern, stack)
    return (found[1], int(found[2])) if found else ("", None)


def _unreadable(outcome: Outcome) -> Ruling:
    rank = next(r for r in outcome.ranks if r.unreadable)
    summary = f"rank {rank.rank}'s answer could not be read: {safe_text(rank.unreadable)[:300]}"
    return Verdict.UNREADABLE, Cause(summary=summary, rank=rank.rank), None
