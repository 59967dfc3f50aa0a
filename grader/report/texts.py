"""The sentences of the terminal report, apart from how they are laid out."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass

from grader.report.escape import safe_text
from grader.results import Cause, CheckResult, Collective, Results, RunResult, Verdict


@dataclass(frozen=True)
class Marks:
    """One character in front of a check, so that colour is never the only sign."""

    passed: str
    failed: str
    skipped: str


def marks(encoding: str | None) -> Marks:
    """Marks that the stream's encoding can show."""
    fancy = Marks("✓", "✗", "–")
    try:
        (fancy.passed + fancy.failed + fancy.skipped + "…").encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return Marks("+", "x", "-")
    return fancy


def number(value: float) -> str:
    """Points without needless zeros: `12`, `3.25`, `66.67`."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def one_line(text: str) -> str:
    """`text`, safe to show, without breaks."""
    return " ".join(safe_text(text).split())


def index(where: tuple[int, ...] | None) -> str:
    """`[1, 2]`; a 0-d tensor's only element is `()`."""
    return str(list(where)) if where else "()"


def is_to_do(check: CheckResult) -> bool:
    """Whether the check met a part that is not written yet."""
    return check.diagnosis is not None and check.diagnosis.code == "not-implemented"


def summary_of(cause: Cause, with_size: bool = True) -> str:
    """The cause in one sentence, with the world sizes that were right and wrong."""
    text = one_line(cause.summary)
    if not with_size:
        return text
    if cause.right_on and cause.world_size is not None:
        text += f" ({_right_on(cause.right_on)}, wrong on {cause.world_size})"
    elif cause.world_size is not None and cause.world_size > 1:
        text += f" (on {cause.world_size} ranks)"
    return text


def _right_on(sizes: tuple[int, ...]) -> str:
    if len(sizes) == 1:
        return f"right on {sizes[0]} rank{'s' if sizes[0] > 1 else ''}"
    return "right on " + ", ".join(map(str, sizes[:-1])) + f" and {sizes[-1]} ranks"


def counts(results: Results) -> str:
    """`82 passed, 6 failed, 2 skipped`."""
    words = Counter("to do" if is_to_do(c) else c.verdict.value for c in results.checks)
    order = [*(verdict.value for verdict in Verdict), "to do"]
    return ", ".join(f"{words[word]} {word}" for word in order if words[word])


def is_full(results: Results) -> bool:
    """Whether nothing is left to do of what was asked for."""
    verdicts = {check.verdict for check in results.checks}
    if results.world_sizes:
        verdicts -= {Verdict.NOT_CHECKED}
    return verdicts == {Verdict.PASSED}


@dataclass(frozen=True)
class Step:
    """What to do next, and the command for it."""

    text: str
    command: str = ""


def next_step(results: Results) -> Step:
    """The one thing to do next."""
    if not results.checks or all(c.verdict is Verdict.NOT_CHECKED for c in results.checks):
        return Step("Nothing was checked.")
    if is_full(results):
        if results.only or results.world_sizes:
            return Step("All of that is right. Next, everything:", command(results))
        demo = command(results).replace("grade ", "grade demo ", 1)
        return Step("Everything is right, on every rank. Now see it train:", demo)
    first = next(
        (e for e in results.exercises if any(c.verdict is not Verdict.PASSED for c in e.checks)),
        results.exercises[0],
    )
    again = f'{command(results)} --only "{first.name}"'
    if results.score == 0:
        text = f"A good place to start is the first exercise, {first.name}. After each change:"
    else:
        text = f"Next is {first.name}. After each change:"
    return Step(text, again)


def command(results: Results) -> str:
    """The command that grades the same thing again."""
    source = results.submission.source
    is_working_copy = source in ("", f"exercises/{results.lesson}")
    return f"grade {results.lesson}" + ("" if is_working_copy else f" {shlex.quote(source)}")


def is_folded(results: Results) -> bool:
    """Whether the short report leaves anything out that somebody may look for."""
    return not is_full(results)


def shortened(line: str, most: int) -> str:
    """`line` with its middle left out where it is longer than `most` characters."""
    if len(line) <= most:
        return line
    half = most // 2
    return f"{line[:half]} … {len(line) - most:,} characters … {line[-half:]}"


def run_line(run: RunResult) -> str:
    """One line about a run: `3 ranks: answered in 0.05 s; cpu …, peak memory …`."""
    ranks = f"{run.world_size} rank{'s' if run.world_size > 1 else ''}"
    cpu = sum(rank.cpu_s for rank in run.ranks)
    peak = max((rank.peak_memory_bytes for rank in run.ranks), default=0)
    return (
        f"{ranks}: {run.ending} in {run.duration_s:.2f} s; cpu {cpu:.2f} s, "
        f"peak memory {peak / 1e6:.0f} MB a rank"
    )


def collective(entry: Collective) -> str:
    """One entry of a ledger on one line."""
    shapes = ", ".join(str(list(shape)) for shape in entry.shapes)
    options = [entry.reduce_op] if entry.reduce_op else []
    options += [f"src={entry.root}"] if entry.root is not None else []
    options += [f"peer={entry.peer}"] if entry.peer is not None else []
    options += ["async"] if entry.is_async else []
    took = (
        "never ended"
        if entry.ended_s is None
        else f"{(entry.ended_s - entry.started_s) * 1e3:.1f} ms"
    )
    where = f"  {entry.file}:{entry.line}" if entry.file else ""
    call = f"{entry.op}({', '.join(options)})" if options else entry.op
    return safe_text(f"{entry.started_s:8.4f} s  {call} {entry.dtype} {shapes}  {took}{where}")
