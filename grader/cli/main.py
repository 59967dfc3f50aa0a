"""`grade`: the entry point. It imports click and nothing else until a verb is chosen."""

from __future__ import annotations

import errno
import sys
from importlib import import_module

import click

VERBS = {
    "demo": "Train a small model with your code and show what every rank did.",
    "list": "List the lessons of this course.",
}
"""Verb → what it does. Each lives in the module of its name, as `command`."""


class _Verbs(click.Group):
    """Verbs by name; anything else is the lesson to grade."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        command: click.Command
        if name in VERBS:
            command = import_module(f"grader.cli.{name}").command
        else:
            command = import_module("grader.cli.lesson").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        command = self.get_command(ctx, name)
        # The lesson's command takes the lesson's name itself.
        return name, command, args[1:] if name in VERBS else args

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([("LESSON", "Grade a lesson: `grade lesson48`."), *VERBS.items()])


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ranklings", prog_name="grade")
def cli() -> None:
    """Grade exercises on distributed training, on real ranks.

    \b
      grade lesson48               grade your working copy
      grade lesson48 path/to.py    grade any file or folder
      grade lesson48 --help        all options

    Exit codes: 0 all passed, 1 something failed, 2 wrong use, 3 a fault of the grader
    or the machine, 4 nothing was checked, 130 interrupted.
    """


def main() -> None:
    """Run the command and exit with its code."""
    # Output that another program reads must not depend on the locale.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        cli(prog_name="grade")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE):
            raise
        where = f" ({error.filename})" if error.filename else ""
        click.echo(f"grade: this machine cannot go on: {error.strerror}{where}", err=True)
        sys.exit(3)
