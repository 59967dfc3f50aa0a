"""A warm engine for the tests of `grader.ranks`, and a short way to run a rank program."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from grader.ranks.engine import Engine
from grader.ranks.inside import values
from grader.ranks.outcome import Outcome, Request

SUBMISSION = """
import torch
import torch.distributed as dist


def init_process_group(rank, world_size, backend="gloo", master_port=29500):
    dist.init_process_group(
        backend, init_method=f"tcp://127.0.0.1:{master_port}", rank=rank, world_size=world_size
    )


def total(x):
    dist.all_reduce(x)
    return x
"""
TOTAL_LINE = 13
"""Where `total` calls `all_reduce`."""

Ask = Callable[..., Request]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Makes the request for a rank program given as the body of a function of `here`."""

    def ask(
        body: str, world_size: int = 2, *, submission: str = SUBMISSION, **options: Any
    ) -> Request:
        folder = tmp_path / "submission"
        folder.mkdir(exist_ok=True)
        (folder / "work.py").write_text(submission, encoding="utf-8")
        program = "import os, sys, time, torch, torch.distributed as dist\ndef program(here):\n"
        program += textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n    return {}\n"
        inputs = tuple(
            values.encode({"x": torch.full((3,), 10.0**rank)}) for rank in range(world_size)
        )
        return Request(
            submission=folder,
            module="work",
            program="programs.program",
            programs={"__init__.py": "", "programs.py": program},
            world_size=world_size,
            inputs=inputs,
            **{"seconds": 20.0, **options},
        )

    return ask


@pytest.fixture
def run(engine: Engine, ask: Ask) -> Callable[..., Outcome]:
    """Runs a rank program given as the body of a function of `here`."""
    return lambda body, world_size=2, **options: engine.run(ask(body, world_size, **options))
