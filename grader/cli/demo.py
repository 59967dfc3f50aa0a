"""`grade demo LESSON`: train a small model with the learner's code and show what came of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

_AGREE = 1e-5
"""Differences of float32 sums in another order stay well below this."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.argument("lesson")
@click.argument("path", required=False)
@click.option("--world-size", type=click.IntRange(1, 8), default=2, help="Number of ranks.")
@click.option("--in-dim", type=click.IntRange(1, 4096), default=16, help="Features of an input.")
@click.option("--hidden", type=click.IntRange(1, 4096), default=12, help="Width of the layer.")
@click.option("--out-dim", type=click.IntRange(2, 4096), default=3, help="Number of classes.")
@click.option("--batch-size", type=click.IntRange(1, 4096), default=8, help="Inputs per rank.")
@click.option("--num-steps", type=click.IntRange(1, 1000), default=6, help="Training steps.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of weights and data.")
@click.option("--timeout", type=click.FloatRange(0.1, 3600), default=60.0, help="Seconds.")
def command(lesson: str, path: str | None, world_size: int, timeout: float, **sizes: int) -> None:
    """Train a small model with the code of LESSON: your working copy, or PATH.

    Ranks start from different weights and see different data; what agrees in the end,
    your code has made agree.
    """
    from grader.cli.courses import open_course, open_lesson
    from grader.cli.errors import FAILED, OUR_FAULT, WRONG_USE, stop
    from grader.learn.demo import DemoFailed, Wishes, run
    from grader.ranks.engine import EngineError
    from grader.submission import SubmissionError

    found = open_lesson(open_course(), lesson)
    target = Path(path) if path else found.stub_folder
    try:
        result = run(found, target, Wishes(**sizes), world_size, timeout)
    except SubmissionError as error:
        stop(str(error), WRONG_USE)
    except DemoFailed as error:
        stop(f"the demo did not get to its end: {error}\nNext: grade {found.id}", FAILED)
    except (EngineError, RuntimeError) as error:
        stop(f"the demo could not be run, which is not your fault: {error}", OUR_FAULT)
    _show(result)
    sys.exit(0 if all(ok for _, _, ok in _findings(result)) else FAILED)


def _show(result: dict[str, Any]) -> None:
    click.echo(f"{result['world_size']} ranks, backend {result['backend']}\n")
    click.echo("  step   mean loss")
    for step, loss in enumerate(result["losses_per_step"], start=1):
        click.echo(f"  {step:>4}   {loss:.6f}")
    click.echo("\n  rank   last loss   sum of parameters")
    sums = result["param_sum_per_rank"]
    for rank, loss in enumerate(result["losses"]):
        click.echo(f"  {rank:>4}   {loss:.6f}    {sums[rank]:.9f}")
    click.echo(f"\n  norm of the averaged gradients, last step: "
               f"{result['grad_norm_after_all_reduce']:.6f}\n")  # fmt: skip
    for text, value, ok in _findings(result):
        click.echo(f"  {'yes' if ok else 'NO ':<4} {text}{value}")


def _findings(result: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """(what should hold, by how much it does not, whether it holds)"""
    spread = result["param_sum_spread"]
    difference = result["manual_all_reduce_max_diff_vs_single_process"]
    round_trip = result["fsdp_round_trip_all_ranks_ok"]
    return [
        ("all ranks end with the same parameters", f" (spread {spread:.1e})", spread == 0),
        (
            "gradients equal those of one process on all data",
            f" (off by {difference:.1e} at most)",
            difference < _AGREE,
        ),
        ("parameters survive shard and gather on every rank", "", round_trip),
    ]
