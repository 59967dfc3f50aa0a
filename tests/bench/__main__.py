"""Measure, print a table and, with `--json FILE`, write the figures.

    python -m tests.bench [--json FILE] [--quick]

Every figure is compared with something measured in the same run, because seconds of a
shared machine mean little. Exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOLUTION = ROOT / "solutions" / "lesson48"
GRADE = [sys.executable, "-c", "from grader.cli.main import main; main()"]
GIB = 2**30

DEADLOCKING = """

import torch.distributed as _dist


def _hang_on_rank_0(*_args, **_kwargs):
    if _dist.get_rank() == 0:
        _dist.barrier()


for _name, _value in list(globals().items()):
    if callable(_value) and getattr(_value, "__module__", "") == __name__:
        if _name not in ("init_process_group", "_hang_on_rank_0"):
            globals()[_name] = _hang_on_rank_0
"""
"""Appended to the solution: every function but the first waits on rank 0 for ever."""


@dataclass
class Figure:
    """One measured thing against its target."""

    name: str
    value: float
    unit: str
    target: float
    at_most: bool = True
    note: str = ""

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.value <= self.target if self.at_most else self.value >= self.target


def main() -> int:
    """Measure everything and report."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    options = parser.parse_args()
    repeat = 3 if options.quick else 7
    # Bytecode must be cached, as it is on a learner's machine.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.update(OMP_NUM_THREADS="1")
    os.chdir(ROOT)
    figures = [
        *startup(repeat * 3),
        *one_check(repeat),
        *whole_gradings(repeat),
        *deadlocks(repeat),
        *memory(),
    ]
    show(figures)
    if options.json:
        machine = {"platform": platform.platform(), "cores": os.cpu_count()}
        rows = [asdict(figure) | {"met": figure.met} for figure in figures]
        text = json.dumps({"machine": machine, "figures": rows}, indent=2)
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    return 0 if all(figure.met for figure in figures) else 1


def show(figures: list[Figure]) -> None:
    """The table."""
    width = max(len(figure.name) for figure in figures)
    print(f"{'':{width}}   measured       target")
    for figure in figures:
        sign = "<=" if figure.at_most else ">="
        met = "ok" if figure.met else "MISSED"
        print(
            f"{figure.name:{width}} {figure.value:>10.2f} {figure.unit:<4}"
            f"{sign} {figure.target:>6g}   {met:<7}{figure.note}"
        )


def timed(action: Callable[[], object], repeat: int) -> float:
    """Median seconds of `action`, after one run that does not count."""
    action()
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def command(*words: str, ok: tuple[int, ...] = (0,)) -> Callable[[], None]:
    """Runs a command quietly; anything but the exit codes `ok` is an error."""

    def run() -> None:
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
        if done.returncode not in ok:
            raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")

    return run


# What is measured


def startup(repeat: int) -> list[Figure]:
    """How long until `--help` is on the screen."""
    nothing = timed(command(sys.executable, "-c", "pass"), repeat)
    figures = []
    for words in (["--help"], ["lesson48", "--help"]):
        ratio = timed(command(*GRADE, *words), repeat) / nothing
        name = f"grade {' '.join(words)} / python -c pass"
        figures.append(Figure(name, ratio, "x", 5, note=f"pass takes {nothing * 1e3:.0f} ms"))
    return figures


def one_check(repeat: int) -> list[Figure]:
    """One 2-rank check, end to end, against the usual way."""
    import torch

    from grader.ranks.engine import Engine
    from grader.ranks.inside import values
    from grader.ranks.outcome import Request

    program = (
        "import torch\n"
        "def check(here):\n"
        "    layer = torch.nn.Linear(4, 4)\n"
        "    for p in layer.parameters():\n"
        "        p.grad = torch.full_like(p, float(here.rank + 1))\n"
        "    here.submission.all_reduce_grads_(layer, here.world_size)\n"
        "    return {n: p.grad for n, p in layer.named_parameters()}\n"
    )
    request = Request(
        submission=SOLUTION,
        module="data_parallel",
        program="p.check",
        programs={"__init__.py": "", "p.py": program},
        world_size=2,
        inputs=(values.encode({}),) * 2,
    )

    with Engine() as engine:

        def ours() -> None:
            for rank in engine.run(request).ranks:
                assert rank.values is not None
                for grad in rank.values.values():
                    torch.testing.assert_close(grad, torch.full_like(grad, 1.5))

        ours_s = timed(ours, repeat * 5)
    path = str(SOLUTION / "data_parallel.py")
    from tests.bench import usual_way

    theirs_s = timed(lambda: usual_way.check(path), repeat)
    note = f"{theirs_s * 1e3:.0f} ms / {ours_s * 1e3:.0f} ms"
    return [Figure("one 2-rank check: spawn / ours", theirs_s / ours_s, "x", 25, False, note)]


def whole_gradings(repeat: int) -> list[Figure]:
    """`grade lesson48` on the solution, as a whole process."""
    torch_s = timed(command(sys.executable, "-c", "import torch"), repeat)
    grading = command(*GRADE, "lesson48", str(SOLUTION))
    warm_s = timed(grading, repeat)

    def cold() -> None:
        shutil.rmtree(ROOT / ".grade" / "references", ignore_errors=True)
        grading()

    cold_s = timed(cold, max(repeat // 3, 1))
    note = f"import torch takes {torch_s:.2f} s"
    return [
        Figure("grade lesson48 (solution) / import torch", warm_s / torch_s, "x", 8, note=note),
        Figure("the very first grading / import torch", cold_s / torch_s, "x", 20,
               note="expected values not made yet"),
    ]  # fmt: skip


def deadlocks(repeat: int) -> list[Figure]:
    """How soon a deadlock is proved, and what a submission full of them costs."""
    from grader.ranks.engine import Engine
    from grader.ranks.inside import values
    from grader.ranks.outcome import Request

    body = "import torch.distributed as dist\ndef p(here):\n    if here.rank == 0: dist.barrier()\n"
    request = Request(
        submission=SOLUTION,
        module="data_parallel",
        program="p.p",
        programs={"__init__.py": "", "p.py": body + "    return {}\n"},
        world_size=4,
        inputs=(values.encode({}),) * 4,
    )
    with Engine() as engine:
        outcomes = [engine.run(request) for _ in range(repeat * 3)]
    slowest = max(_seconds(outcome.proved_after_s) for outcome in outcomes)
    with tempfile.TemporaryDirectory() as folder:
        source = (SOLUTION / "data_parallel.py").read_text(encoding="utf-8")
        path = Path(folder) / "data_parallel.py"
        path.write_text(source + DEADLOCKING, encoding="utf-8")
        solution_s = timed(command(*GRADE, "lesson48", str(SOLUTION)), repeat)
        deadlocking_s = timed(command(*GRADE, "lesson48", str(path), ok=(1,)), repeat)
    return [
        Figure("a deadlock is proved after, at most", slowest, "s", 0.5),
        Figure("grading deadlocks everywhere / the solution", deadlocking_s / solution_s, "x", 2),
    ]


def _seconds(proved_after: float | None) -> float:
    """A deadlock that was not proved at all counts as one that takes for ever."""
    return float("inf") if proved_after is None else proved_after


def memory() -> list[Figure]:
    """Memory of a grading at work: the most that was seen of grader and zygote, and of all."""
    process = subprocess.Popen(
        [*GRADE, "lesson48", str(SOLUTION)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    both = everything = 0
    while process.poll() is None:
        tree = descendants(process.pid)
        by_kind = {pid: proportional(pid) for pid in (process.pid, *tree)}
        zygotes = [
            pid for pid in tree if "zygote" in name_of(pid) and parent_of(pid) == process.pid
        ]
        both = max(both, sum(by_kind[pid] for pid in (process.pid, *zygotes)))
        everything = max(everything, sum(by_kind.values()))
        time.sleep(0.05)
    return [
        Figure("memory of grader and zygote", both / GIB, "GiB", 1),
        Figure("memory with all ranks at work", everything / GIB, "GiB", 3),
    ]


def descendants(pid: int) -> list[int]:
    """All processes below `pid`."""
    children: dict[int, list[int]] = {}
    for other in filter(str.isdigit, os.listdir("/proc")):
        children.setdefault(parent_of(int(other)), []).append(int(other))
    found, stack = [], [pid]
    while stack:
        stack += (below := children.get(stack.pop(), []))
        found += below
    return found


def parent_of(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def proportional(pid: int) -> int:
    """Bytes of memory, shared pages counted once over all who share them (PSS)."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0
    )


if __name__ == "__main__":
    sys.exit(main())
