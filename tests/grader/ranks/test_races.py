"""Asynchronous mistakes fail every time, and honest asynchronous code never does."""

from __future__ import annotations

import pytest

RACES = {
    "never waited on": ("dist.all_reduce(x, async_op=True)", [1.0, 10.0]),
    "read before the wait": (
        "handle = dist.all_reduce(x, async_op=True)\ny = x.clone()\nhandle.wait()\nx = y",
        [1.0, 10.0],
    ),
    "divided before the wait": (
        "handle = dist.all_reduce(x, async_op=True)\nx /= 2\nhandle.wait()",
        [11.0, 11.0],
    ),
    "waited on": ("dist.all_reduce(x, async_op=True).wait()", [11.0, 11.0]),
    "waited on by its future": (
        "dist.all_reduce(x, async_op=True).get_future().wait()",
        [11.0, 11.0],
    ),
    "polled until complete": (
        "handle = dist.all_reduce(x, async_op=True)\n"
        "while not handle.is_completed(): time.sleep(0.001)",
        [11.0, 11.0],
    ),
    "waited on in another order": (
        "y = x.clone()\n"
        "one, two = dist.all_reduce(x, async_op=True), dist.all_reduce(y, async_op=True)\n"
        "two.wait(); one.wait()\nx = x + y",
        [22.0, 22.0],
    ),
    "gathered, then waited on": (
        "parts = [torch.zeros(3), torch.zeros(3)]\n"
        "dist.all_gather(parts, x, async_op=True).wait()\nx = parts[0] + parts[1]",
        [11.0, 11.0],
    ),
    "gathered into one tensor twice": (
        "parts = [torch.zeros(3)] * 2\n"
        "dist.all_gather(parts, x, async_op=True).wait()\nx = parts[0]",
        [10.0, 10.0],
    ),
    "sent and received": (
        "other = torch.zeros(3)\n"
        "handles = [dist.isend(x, 1 - here.rank), dist.irecv(other, 1 - here.rank)]\n"
        "for handle in handles: handle.wait()\nx = x + other",
        [11.0, 11.0],
    ),
    "received without a wait": (
        "other = torch.zeros(3)\n"
        "sent = dist.isend(x, 1 - here.rank)\ndist.irecv(other, 1 - here.rank)\n"
        "time.sleep(0.05)\nx = x + other",
        [1.0, 10.0],
    ),
    "functional": (
        "import torch.distributed._functional_collectives as f\n"
        "x = f.all_reduce(x, 'sum', dist.group.WORLD).clone()",
        [11.0, 11.0],
    ),
}


@pytest.mark.parametrize("name", RACES)
def test_asynchronous_work_arrives_at_the_wait(name: str, run) -> None:
    body, expected = RACES[name]
    for _ in range(3):
        outcome = run(f"x = here.inputs['x'].clone()\n{body}\nreturn {{'x': x}}")
        assert [rank.values["x"][0].item() for rank in outcome.ranks] == expected
