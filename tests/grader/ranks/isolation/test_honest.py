"""Honest work under every layer there is: it must come out as if there were none."""

from __future__ import annotations

from tests.grader.ranks.isolation.conftest import Sandbox

ALL_REDUCE = """
x = torch.full((1000,), float(rank + 1))
dist.all_reduce(x)
w = torch.ones(64, 64, requires_grad=True)
(w @ torch.ones(64, 8) * x[0]).sum().backward()
found["sum"], found["grad"] = x[0].item(), w.grad[0, 0].item()
"""


def test_two_ranks_reduce_and_differentiate(sandbox: Sandbox) -> None:
    assert sandbox.threads == 1
    result = sandbox.run(ALL_REDUCE, ranks=2, group=True)
    assert result["found"] == [{"sum": 3.0, "grad": 24.0}] * 2, result
