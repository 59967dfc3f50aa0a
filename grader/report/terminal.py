"""The report in a terminal: what failed, why, and the one thing to do next.

Reads well at 80 columns and without colour: a mark and a word say everything that a
colour says. Whatever a learner wrote is shown as text and never interpreted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from rich.console import Console
from rich.text import Text

from grader.report import texts
from grader.report.escape import safe_text
from grader.results import Cause, CheckResult, ExerciseResult, Results, RunResult, Verdict

_MAX_OUTPUT_LINES = 5
_STYLES = {
    Verdict.PASSED: "green",
    Verdict.SKIPPED: "yellow",
    Verdict.NOT_CHECKED: "yellow",
}
"""All other verdicts are red."""


def console_for(stream: IO[str]) -> Console:
    """A console on `stream`; honours NO_COLOR, FORCE_COLOR and the width of the terminal."""
    return Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=False)


def render(results: Results, console: Console, *, verbose: int = 0) -> None:
    """Print the whole report.

    Args:
        verbose: 1 shows every check, its runs and all output; 2 the ledgers of ranks too.
    """
    report = _Report(results, console, verbose)
    report.header()
    shared = _cause_of_all(results)
    if shared is not None:
        report.whole_submission(shared)
    else:
        for exercise in results.exercises:
            report.exercise(exercise)
    report.summary()


class _Report:
    """Prints one tree to one console."""

    def __init__(self, results: Results, console: Console, verbose: int) -> None:
        self._results = results
        self._console = console
        self._verbose = verbose
        self._marks = texts.marks(console.encoding)

    # Parts

    def header(self) -> None:
        results = self._results
        self._line(f"{results.lesson}: {results.title}", style="bold")
        graded = safe_text(results.submission.source or results.submission.name)
        self._line(f"graded: {graded}", style="dim")
        for note in results.notes:
            self._line(f"note: {safe_text(note)}", style="yellow")
        self._blank()

    def whole_submission(self, check: CheckResult) -> None:
        """One cause that all checks share: the file itself."""
        assert check.cause is not None
        self._line(f"{self._mark(check.verdict)} {check.verdict.value}: nothing could be checked",
                   style=f"bold {_style(check.verdict)}")  # fmt: skip
        self._cause(check.cause, check, indent=2)
        self._blank()

    def exercise(self, exercise: ExerciseResult) -> None:
        passed = [check for check in exercise.checks if check.verdict is Verdict.PASSED]
        done = len(passed) == len(exercise.checks)
        points = f"{texts.number(exercise.points)} / {texts.number(exercise.max_points)}"
        title = Text(f"{exercise.name}  ", style="bold")
        title.append(f"{points} points", style="green" if done else "")
        self._console.print(title)
        if self._verbose:
            for check in passed:
                self._passed(check)
        elif passed:
            what = "all" if done else f"{len(passed)} of {len(exercise.checks)}"
            self._item(f"{self._marks.passed} ", f"{what} checks pass", style="green")
        if not passed and exercise.todo:
            self._labelled("to do first", exercise.todo, indent=2, style="bold")
        self._not_passed(exercise)
        self._blank()

    def summary(self) -> None:
        results = self._results
        score = f"{texts.number(results.score)} / {texts.number(results.max_score)}"
        done = sum(exercise.points >= exercise.max_points - 1e-9 for exercise in results.exercises)
        line = Text("score: ", style="bold")
        line.append(score, style="bold green" if texts.is_full(results) else "bold")
        line.append(f"   exercises done: {done} of {len(results.exercises)}   ")
        line.append(texts.counts(results), style="dim")
        self._print(line, indent=0)
        if results.interrupted:
            self._line("interrupted: what was checked until then is above", style="yellow")
        step = texts.next_step(results)
        self._line(step.text)
        if step.command:
            self._command(step.command)
        if texts.is_folded(results) and not self._verbose:
            self._line("Runs, ranks and repeated causes are folded. To see it all:", style="dim")
            self._command(f"{texts.command(results)} -v")

    # Checks

    def _passed(self, check: CheckResult) -> None:
        self._entry(check, "")
        self._runs(check)

    def _not_passed(self, exercise: ExerciseResult) -> None:
        """Failing checks, those of one cause together; then the skipped ones."""
        groups: dict[object, list[CheckResult]] = {}
        for check in exercise.checks:
            if check.verdict is not Verdict.PASSED:
                groups.setdefault(_sameness(check), []).append(check)
        for checks in sorted(groups.values(), key=lambda group: _is_skipped(group[0])):
            if self._verbose:
                for check in checks:
                    self._failing(check)
            elif texts.is_to_do(checks[0]):
                self._to_do(checks)
            elif _is_skipped(checks[0]):
                self._skipped(checks)
            else:
                self._failing(checks[0])
                self._same(checks[1:])

    def _skipped(self, checks: list[CheckResult]) -> None:
        names = ", ".join(check.id for check in checks)
        reason = safe_text(checks[0].reason)
        self._item(f"{self._marks.skipped} ", f"skipped: {names}; {reason}", style="yellow")

    def _to_do(self, checks: list[CheckResult]) -> None:
        """A function that is not written yet: no failure, and told on one line."""
        cause = checks[0].cause
        assert cause is not None
        where = f" ({texts.one_line(cause.file)}:{cause.line})" if cause.file else ""
        need = f"{len(checks)} checks need" if len(checks) > 1 else "1 check needs"
        text = f"{texts.summary_of(cause, with_size=False)}{where}; {need} it"
        self._item(f"{self._marks.skipped} ", safe_text(text))

    def _same(self, checks: list[CheckResult]) -> None:
        """Checks whose reason has been told already."""
        if checks:
            count = f"the same in {len(checks)} more check{'s' if len(checks) > 1 else ''}"
            self._labelled(count, ", ".join(check.id for check in checks), indent=4, style="dim")

    def _failing(self, check: CheckResult) -> None:
        self._entry(check, check.verdict.value)
        if check.reason:
            self._text(safe_text(check.reason), indent=4)
        if check.cause is not None:
            self._cause(check.cause, check, indent=4)
        self._output(check)
        if self._verbose:
            self._runs(check)

    def _entry(self, check: CheckResult, word: str) -> None:
        style = _style(check.verdict)
        label = f"{self._mark(check.verdict)} {word}: " if word else f"{self._mark(check.verdict)} "
        self._item(label, safe_text(check.promise), style=f"bold {style}" if word else style)

    def _cause(self, cause: Cause, check: CheckResult, indent: int) -> None:
        self._text(texts.summary_of(cause), indent=indent)
        if cause.expected or cause.actual:
            where = f" at {texts.index(cause.index)}" if cause.index is not None else ""
            width = len(f"expected{where}")
            self._pair(f"expected{where}", texts.one_line(cause.expected), indent)
            self._pair(f"{f'actual{where}':<{width}}", texts.one_line(cause.actual), indent)
        for line in cause.details:
            if line not in cause.summary:
                self._text(texts.one_line(line), indent=indent + 2, style="dim")
        self._source(cause, indent)
        diagnosis = check.diagnosis
        if diagnosis is not None:
            self._labelled(diagnosis.title, diagnosis.explanation, indent, style="bold cyan")
            self._labelled("try next", diagnosis.next_step, indent, style="bold cyan")

    def _source(self, cause: Cause, indent: int) -> None:
        """The learner's own line, and the caret or the way to it."""
        error = cause.error
        where = f"{texts.one_line(cause.file)}:{cause.line}  " if cause.file else ""
        if error is not None and "\n" in error.source:
            for number, line in enumerate(error.source.split("\n")):
                self._code(where if not number else " " * len(where), line, indent)
        elif where and cause.source:
            self._code(where, texts.one_line(cause.source), indent)
        if error is not None and len(error.frames) > 1:
            for frame in error.frames[:-1]:
                self._text(f"called from {texts.one_line(frame)}", indent=indent + 2, style="dim")

    def _code(self, where: str, line: str, indent: int) -> None:
        text = Text(where, style="dim")
        text.append(safe_text(line), style="bold")
        text.truncate(max(self._console.width - indent, 20), overflow="ellipsis")
        self._console.print(Text(" " * indent) + text)

    # Runs

    def _output(self, check: CheckResult) -> None:
        """What the failing run's ranks printed, folded."""
        if not check.runs:
            return
        for rank in check.runs[-1].ranks:
            for name, text in (("stdout", rank.stdout), ("stderr", rank.stderr)):
                lines = safe_text(text).rstrip("\n").split("\n") if text.strip() else []
                shown = lines if self._verbose else lines[:_MAX_OUTPUT_LINES]
                for line in shown:
                    cut = line if self._verbose else texts.shortened(line, 200)
                    self._text(f"rank {rank.rank} {name}: {cut}", indent=4, style="dim")
                if len(lines) > len(shown):
                    rest = f"… {len(lines) - len(shown):,} more lines of {name}; see them with -v"
                    self._text(f"rank {rank.rank} {rest}", indent=4, style="dim")
            if rank.output_dropped_bytes and self._verbose:
                dropped = f"{rank.output_dropped_bytes:,} bytes of output were not kept"
                self._text(f"rank {rank.rank}: {dropped}", indent=4, style="dim")

    def _runs(self, check: CheckResult) -> None:
        for run in check.runs:
            self._text(texts.run_line(run), indent=4, style="dim")
            if self._verbose > 1:
                self._ledgers(run)

    def _ledgers(self, run: RunResult) -> None:
        for rank in run.ranks:
            for entry in rank.ledger:
                line = f"rank {rank.rank}  {texts.collective(entry)}"
                self._text(line, indent=6, style="dim")

    # Lines

    def _mark(self, verdict: Verdict) -> str:
        if verdict is Verdict.PASSED:
            return self._marks.passed
        if verdict in (Verdict.SKIPPED, Verdict.NOT_CHECKED):
            return self._marks.skipped
        return self._marks.failed

    def _item(self, label: str, text: str, style: str = "") -> None:
        """A marked line whose further lines hang below its text."""
        line = Text(label, style=style)
        line.append(text, style="default")
        self._print(line, indent=2, hang=2)

    def _pair(self, label: str, value: str, indent: int) -> None:
        self._print(Text(f"{label}  {value}"), indent)

    def _labelled(self, label: str, text: str, indent: int, style: str = "") -> None:
        line = Text(f"{label}: ", style=style)
        line.append(safe_text(text), style="dim" if style == "dim" else "default")
        self._print(line, indent)

    def _text(self, text: str, indent: int, style: str = "") -> None:
        self._print(Text(text, style=style), indent)

    def _print(self, text: Text, indent: int, hang: int = 0) -> None:
        """`text` wrapped at the console's width, set in, without blanks at the ends of lines."""
        width = max(self._console.width - indent, 20)
        first, *rest = text.wrap(self._console, width) or [Text()]
        if hang and rest:
            for line in rest:
                line.rstrip()
            rest = list(Text(" ").join(rest).wrap(self._console, width - hang))
        for number, line in enumerate([first, *rest]):
            line.rstrip()
            self._console.print(Text(" " * (indent + (hang if number else 0))) + line)

    def _line(self, text: str, style: str = "") -> None:
        self._print(Text(text, style=style), indent=0)

    def _command(self, command: str) -> None:
        """A command to copy: on a line of its own, and never broken."""
        self._console.print(Text(f"  {command}", style="bold"), soft_wrap=True)

    def _blank(self) -> None:
        self._console.print()


def _is_skipped(check: CheckResult) -> bool:
    return check.verdict is Verdict.SKIPPED


def _style(verdict: Verdict) -> str:
    return _STYLES.get(verdict, "red")


def _sameness(check: CheckResult) -> object:
    """Checks with equal keys have the same thing to say."""
    cause = check.cause
    if cause is None:
        return (check.verdict, check.reason)
    if cause.error is not None:
        return (check.verdict, cause.summary, cause.file, cause.line)
    if check.diagnosis is not None:
        # One misunderstanding is told once, with its first example.
        return (check.verdict, check.diagnosis.code)
    return (check.verdict, cause)


def _cause_of_all(results: Results) -> CheckResult | None:
    """The first check, when every check was stopped by one and the same cause."""
    checks = results.checks
    if len(checks) < 2 or checks[0].cause is None:
        return None
    whole = all(check.cause == checks[0].cause and not check.runs for check in checks)
    return checks[0] if whole else None


def lines_of(results: Results, width: int = 80) -> Iterator[str]:
    """The report as plain lines, as a terminal of `width` columns without colour shows it."""
    import io

    stream = io.StringIO()
    console = Console(file=stream, width=width, no_color=True, highlight=False, markup=False)
    render(results, console)
    yield from stream.getvalue().splitlines()
