"""How a command ends when it cannot do what was asked."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

ALL_PASSED, FAILED, WRONG_USE, OUR_FAULT, NOTHING_CHECKED, INTERRUPTED = 0, 1, 2, 3, 4, 130


def stop(message: str, code: int) -> NoReturn:
    """Say `message` on stderr and exit with `code`."""
    click.echo(f"grade: {message}", err=True)
    sys.exit(code)
