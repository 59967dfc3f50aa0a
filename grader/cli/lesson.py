"""`grade LESSON [PATH]`: grade one submission and show the report."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from grader.course import Lesson


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("lesson")
@click.argument("path", required=False)
@click.option("--only", multiple=True, metavar="EXERCISE", help="Only this exercise; repeatable.")
@click.option(
    "--world-size",
    multiple=True,
    type=click.IntRange(1, 8),
    metavar="N",
    help="Only runs on N ranks; repeatable.",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Draw the inputs from this seed.")
@click.option(
    "-n",
    "processes",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Spread the checks over N processes.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 3600),
    metavar="S",
    help="Seconds that one run may take.",
)
@click.option("--json", "json_file", metavar="FILE", help="Write the results as JSON.")
@click.option("--ranks-by", type=click.Choice(["fork", "spawn"]), hidden=True)
@click.option("-v", "--verbose", count=True, help="Show every check, run and ledger.")
def command(
    lesson: str,
    path: str | None,
    only: tuple[str, ...],
    world_size: tuple[int, ...],
    seed: int | None,
    processes: int | None,
    timeout: float | None,
    json_file: str | None,
    ranks_by: str | None,
    verbose: int,
) -> None:
    """Grade LESSON: your working copy, or the file or folder PATH.

    \b
    Exit codes:
      0  all checks passed           3  a fault of the grader or the machine
      1  a check failed              4  nothing was checked
      2  wrong use                 130  interrupted
    """  # fmt: skip
    # Imported here, so that `--help` shows at once.
    from pathlib import Path

    from grader.cli.courses import near, open_course, open_lesson
    from grader.cli.errors import INTERRUPTED, OUR_FAULT, WRONG_USE, stop

    course = open_course()
    found = open_lesson(course, lesson)
    exercises = tuple(_exercise(name, [e.name for e in found.exercises]) for name in only)
    target = Path(path) if path else near(found.stub_folder)
    json_path = _writable(json_file) if json_file else None
    _look_at(target, found)

    from grader.checks.assembly import exit_code
    from grader.checks.plugin import write_results
    from grader.checks.session import SessionFailed, Wishes, grade
    from grader.report.progress import Progress
    from grader.report.terminal import console_for, render

    wishes = Wishes(
        only=exercises,
        world_sizes=world_size,
        seed=seed,
        seconds=timeout,
        processes=processes or 0,
        ranks_by=ranks_by or "",
    )
    try:
        with Progress(console_for(sys.stderr)) as progress:
            graded = grade(course, found, target, wishes, progress.take)
    except KeyboardInterrupt:
        stop("interrupted before anything was checked", INTERRUPTED)
    except SessionFailed as error:
        stop(f"the grading failed, which is not your fault:\n{error}", OUR_FAULT)
    render(graded.results, console_for(sys.stdout), verbose=verbose)
    if json_path is not None:
        try:
            write_results(json_path, graded.results)
        except OSError as error:
            stop(f"{json_path} could not be written: {error.strerror}", WRONG_USE)
    sys.exit(exit_code(graded.results, graded.faults))


def _exercise(name: str, names: list[str]) -> str:
    """The exercise that `name` means: in any case, and by the beginning where that is enough."""
    from grader.cli.errors import WRONG_USE, stop

    wanted = name.casefold()
    exact = [n for n in names if n.casefold() == wanted]
    matching = exact or [n for n in names if n.casefold().startswith(wanted)]
    if len(matching) != 1:
        stop(f"there is no exercise {name!r}; there are: {', '.join(names)}", WRONG_USE)
    return matching[0]


def _writable(name: str) -> Path:
    from pathlib import Path

    from grader.cli.errors import WRONG_USE, stop

    path = Path(name)
    if path.is_dir():
        stop(f"{name} is a folder; give the name of a file", WRONG_USE)
    if not path.absolute().parent.is_dir():
        stop(f"{path.absolute().parent} does not exist, so {name} cannot be written", WRONG_USE)
    return path


def _look_at(path: Path, lesson: Lesson) -> None:
    """Refuse what is no submission before anything is started."""
    import tempfile
    from pathlib import Path

    from grader.cli.errors import WRONG_USE, stop
    from grader.submission import SubmissionError, take

    with tempfile.TemporaryDirectory() as folder:
        try:
            take(path, lesson, Path(folder) / "submission")
        except SubmissionError as error:
            stop(str(error), WRONG_USE)
