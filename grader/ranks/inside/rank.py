"""One rank of one run: load the submission, meet the others, run the program, answer.

Untrusted from the moment the submission is loaded. The order matters: everything the
harness needs is set up before, and after its answer a rank only waits to be killed, so
that no rank ever sees a peer disappear that had not been asked to.
"""

from __future__ import annotations

import faulthandler
import fcntl
import importlib.util
import json
import os
import resource
import signal
import sys
import tempfile
import types
import warnings
from dataclasses import dataclass, field
from typing import Any, NoReturn

from grader.ranks.inside.report import Report, describe_exception

REPORT_FD = 3
IMPORTING, MEETING = b"i", b"m"
"""What a rank writes to its leader when it begins to import, and when it could run."""
STACK_SIGNAL = signal.SIGUSR1
"""On this signal a rank writes its stack to `stack_file`, whatever it is doing."""


def stack_file(run_folder: str, rank: int) -> str:
    """Where `rank` writes its stack when it is asked to."""
    return os.path.join(run_folder, f"stack-{rank}")


@dataclass
class Job:
    """What the grader asks of every rank of a run. No expected value is ever in here."""

    world_size: int
    submission: str
    """The read-only folder with the learner's files."""
    module: str
    """Its module to import: `data_parallel`."""
    programs: dict[str, str]
    """The rank programs' package: file name → source."""
    program: str
    """`module.function` in that package, or empty: only import the submission."""
    group: str
    """`ready` (the harness makes it), `learner` (the submission does) or `none`."""
    memory_bytes: int
    deadline_s: float
    run_folder: str
    """A fresh folder of this run's own: scratch folders and the meeting file."""
    delays_s: list[float] = field(default_factory=list)
    """Seconds to sleep before each collective, per rank; empty: none."""
    master_port: int = 0


@dataclass
class Plumbing:
    """The descriptors of one rank, as numbers in this process."""

    report: int
    stdout: int
    stderr: int
    inputs: int
    ready: int
    go: int


@dataclass(frozen=True)
class Here:
    """A rank's side of a run: all that a rank program gets."""

    submission: types.ModuleType
    rank: int
    world_size: int
    inputs: dict[str, Any]
    master_port: int


class _Ended(Exception):
    """The run of this rank is over, and its report says how."""


def run(job: Job, rank: int, plumbing: Plumbing) -> NoReturn:
    """Be `rank`, and never return."""
    plumbing = _take_descriptors(plumbing)
    scratch = _enter_scratch(job, rank)
    report = Report(plumbing.report)
    try:
        _write_stack_when_asked(stack_file(job.run_folder, rank))
        _limit_memory(job.memory_bytes)
        _work(job, rank, plumbing, report, scratch)
    except _Ended:
        pass
    _flush()
    _stay_until_killed()


def _work(job: Job, rank: int, plumbing: Plumbing, report: Report, scratch: str) -> None:
    # Imported here: in a fresh interpreter it takes a second, and a failure must be reported.
    from grader.ranks.inside import rendezvous, values
    from grader.ranks.inside.tracing import Tracer

    with os.fdopen(plumbing.inputs, "rb") as file:
        inputs = values.decode(file.read(), max_tensors=10_000, max_index=1 << 26)
    programs = _load_programs(job.programs)

    report.event("importing")
    os.write(plumbing.ready, IMPORTING)
    with _reported(report, job.submission, "import"):
        submission = _load_submission(job)
    report.event("meeting")
    os.write(plumbing.ready, MEETING)
    if not os.read(plumbing.go, 1):
        raise _Ended  # the leader is gone
    if job.group == "ready":
        with _reported(report, job.submission, "rendezvous"):
            _store = rendezvous.join(job.run_folder, rank, job.world_size)
    elif job.group == "learner":
        rendezvous.use_hosted_store(job.master_port, report)

    delay = job.delays_s[rank] if job.delays_s else 0.0
    Tracer(report, job.submission, delay).install()
    report.event("started")
    with _reported(report, job.submission, "program"):
        here = Here(submission, rank, job.world_size, inputs, job.master_port)
        answer = _program(programs, job.program)(here)
    report.last("returned")
    # Taken now: what arrives later was not there when the learner's function returned.
    with _reported(report, job.submission, "answer"):
        blob = values.encode(answer)
    _flush()
    report.answer(blob)


class _reported:  # noqa: N801  (reads as a word in `with _reported(...)`)
    """Turns whatever is raised inside into an event, and ends the rank's work."""

    def __init__(self, report: Report, folder: str, phase: str) -> None:
        self._report, self._folder, self._phase = report, folder, phase

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            return
        if isinstance(error, SystemExit):
            self._report.last("exit", phase=self._phase, code=repr(error.code)[:200])
        else:
            described = describe_exception(error, self._folder)
            self._report.last("raised", phase=self._phase, error=described)
        raise _Ended from error


def _take_descriptors(plumbing: Plumbing) -> Plumbing:
    """Standard streams and the report pipe in their places; nothing else stays open."""
    # Move all out of the way first, so that no dup2 closes one that is still needed.
    wanted = (
        os.open(os.devnull, os.O_RDONLY),
        plumbing.stdout,
        plumbing.stderr,
        plumbing.report,
        plumbing.inputs,
        plumbing.ready,
        plumbing.go,
    )
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, 2 * len(wanted)) for fd in wanted]
    for target, fd in enumerate(moved):
        os.dup2(fd, target)
    os.closerange(len(wanted), 4096)
    return Plumbing(stdout=1, stderr=2, report=REPORT_FD, inputs=4, ready=5, go=6)


def _enter_scratch(job: Job, rank: int) -> str:
    scratch = os.path.join(job.run_folder, f"scratch-{rank}")
    os.mkdir(scratch, 0o700)
    os.chdir(scratch)
    os.umask(0o077)
    os.environ.update(TMPDIR=scratch, HOME=scratch)
    tempfile.tempdir = None  # the zygote's answer is remembered in there
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stdout.reconfigure(line_buffering=True)
    sys.stderr.reconfigure(line_buffering=True)
    # Names that torch renamed are nobody's fault, and both are accepted.
    warnings.simplefilter("ignore", FutureWarning)
    warnings.simplefilter("ignore", DeprecationWarning)
    return scratch


def _write_stack_when_asked(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    faulthandler.register(STACK_SIGNAL, file=fd, all_threads=False)


def _limit_memory(extra_bytes: int) -> None:
    """Cap the address space at what this process has now and `extra_bytes` more."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not extra_bytes or not sys.platform.startswith("linux"):
        return  # elsewhere the kernel does not keep this limit
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + extra_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _load_submission(job: Job) -> types.ModuleType:
    """The learner's module, by path: the folder comes last on the path, so it shadows nothing."""
    path = os.path.join(job.submission, f"{job.module}.py")
    sys.path.append(job.submission)
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location(job.module, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[job.module] = module
    spec.loader.exec_module(module)
    return module


def _load_programs(sources: dict[str, str]) -> dict[str, types.ModuleType]:
    """The rank programs' package, from its sources: nothing of it is on a rank's disk."""
    package = types.ModuleType("rank_programs")
    package.__path__ = []
    sys.modules["rank_programs"] = package
    finder = _ProgramFinder(sources)
    sys.meta_path.insert(0, finder)
    exec(compile(sources.get("__init__.py", ""), "<rank_programs>", "exec"), package.__dict__)
    return _LazyPrograms()


class _LazyPrograms(dict[str, types.ModuleType]):
    """Only the program's own module, and what it imports, is executed."""

    def __missing__(self, name: str) -> types.ModuleType:
        return importlib.import_module(f"rank_programs.{name}")


class _ProgramFinder:
    """Finds `rank_programs.<module>` in a table of sources."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = sources

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        package, _, module = name.partition(".")
        if package != "rank_programs" or f"{module}.py" not in self._sources:
            return None
        return importlib.util.spec_from_loader(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        name = module.__name__.partition(".")[2] + ".py"
        exec(compile(self._sources[name], f"<rank_programs/{name}>", "exec"), module.__dict__)


def _program(programs: dict[str, types.ModuleType], name: str) -> Any:
    if not name:
        return _describe_submission
    module, _, function = name.partition(".")
    return getattr(programs[module], function)


def _describe_submission(here: Here) -> dict[str, Any]:
    """What the module offers: name → the parameters of its functions and classes."""
    import inspect

    offered: dict[str, Any] = {}
    for name, value in vars(here.submission).items():
        if name.startswith("_") or not callable(value):
            continue
        try:
            parameters = list(inspect.signature(value).parameters.values())
        except (TypeError, ValueError):
            offered[name] = None
            continue
        offered[name] = [[p.name, p.kind.name, p.default is not p.empty] for p in parameters]
    return {"offered": offered}


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: S110  (a learner may have closed or replaced it)
            pass


def _stay_until_killed() -> NoReturn:
    while True:
        signal.pause()


def main() -> NoReturn:
    """A rank in a fresh interpreter: the leader passes the job and the descriptors."""
    rank, numbers, job_fd = json.loads(sys.argv[1])
    with os.fdopen(job_fd, "rb") as file:
        job = Job(**json.loads(file.read()))
    run(job, rank, Plumbing(*numbers))


if __name__ == "__main__":
    main()
