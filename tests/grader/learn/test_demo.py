"""The training demo, from Python and as a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.learn.demo import DemoFailed, run_distributed_demo

ROOT = Path(__file__).parents[3]
SOLUTION = ROOT / "solutions" / "lesson48"
KEYS = {
    "world_size", "backend", "param_sum_per_rank", "param_sum_spread", "losses",
    "grad_norm_after_all_reduce", "manual_all_reduce_max_diff_vs_single_process",
    "fsdp_round_trip_all_ranks_ok", "losses_per_step",
}  # fmt: skip


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_that_work_together_agree(world_size: int) -> None:
    result = run_distributed_demo(
        world_size=world_size, in_dim=16, hidden=12, out_dim=3, batch_size=4, num_steps=3, seed=11,
        submission=SOLUTION,
    )  # fmt: skip
    assert set(result) == KEYS
    assert result["world_size"] == world_size and len(result["losses"]) == world_size
    assert result["param_sum_spread"] == 0
    assert result["manual_all_reduce_max_diff_vs_single_process"] < 1e-6
    assert result["fsdp_round_trip_all_ranks_ok"] is True
    assert len(result["losses_per_step"]) == 3


def test_the_model_learns() -> None:
    losses = run_distributed_demo(num_steps=30, submission=SOLUTION)["losses_per_step"]
    assert sum(losses[-5:]) < sum(losses[:5])


def test_ranks_that_never_average_drift_apart(tmp_path: Path) -> None:
    source = (SOLUTION / "data_parallel.py").read_text(encoding="utf-8")
    path = tmp_path / "data_parallel.py"
    path.write_text(source.replace("        dist.all_reduce(total)\n", ""), encoding="utf-8")
    result = run_distributed_demo(submission=path)
    assert result["param_sum_spread"] > 1e-4
    assert result["manual_all_reduce_max_diff_vs_single_process"] > 1e-4


def test_the_untouched_stub_is_told_where_it_ends() -> None:
    with pytest.raises(DemoFailed, match="`init_process_group` is still to do"):
        run_distributed_demo(submission=ROOT / "exercises" / "lesson48")


def test_the_command(grade) -> None:
    ran = grade("demo", "lesson48", SOLUTION, "--num-steps", "2", cwd=ROOT)
    assert ran.code == 0, ran
    assert "yes  all ranks end with the same parameters" in ran.out
    assert all(len(line) <= 80 for line in ran.out.splitlines())


def test_the_command_on_the_stub_names_the_next_one(grade) -> None:
    ran = grade("demo", "lesson48", cwd=ROOT)
    assert ran.code == 1
    assert "Next: grade lesson48" in ran.err and "Traceback" not in ran.err
