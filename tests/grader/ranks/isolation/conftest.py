"""Sandboxes to attack: as root, as an unprivileged user, and where namespaces are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grader.ranks.isolation.layers import Support

REPOSITORY = Path(__file__).parents[4]
HARNESS = Path(__file__).with_name("harness.py")
UNPRIVILEGED = 64_999
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTHONDONTWRITEBYTECODE": "1",
    # For a Python that is not this one, too: it has torch where this one has it.
    "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{Path(pytest.__file__).parents[1]}",
}
PLACES = {
    "root": [],
    "unprivileged": ["--uid"],
    "root in a container": ["--like-a-container"],
    "root in a container whose Python is for all": ["--like-a-container"],
    "unprivileged in a container": ["--uid", "--like-a-container"],
}


class Sandbox:
    """A zygote of `harness.py`, warm, that makes one run after another."""

    def __init__(self, place: str, command: list[str]) -> None:
        self.place = place
        self._folder = tempfile.TemporaryDirectory(prefix="ranklings-test-")
        os.chmod(self._folder.name, 0o777)  # an unprivileged harness writes to it
        os.mkdir(self.path("root"))
        self._process = subprocess.Popen(
            [*command[:1], "-s", "-P", str(HARNESS), self._folder.name, *command[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=ENVIRONMENT,
            cwd="/",
            encoding="utf-8",
        )
        hello = self._read()
        self.support = Support.from_json(hello["support"])
        self.threads: int = hello["threads"]

    def path(self, name: str) -> str:
        return os.path.join(self._folder.name, name)

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, body: str, ranks: int = 1, **job: Any) -> dict[str, Any]:
        """Make one run; what the ranks found, what init told, and how long it took."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"body": body, "ranks": ranks, **job}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=20)
        if self._process.stdout:
            self._process.stdout.close()
        self._folder.cleanup()

    def _read(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, f"the harness ended: {self._process.wait()}"
        return json.loads(line)


def start(place: str) -> Sandbox:
    """A sandbox in one of PLACES; skips the test where this machine cannot have it."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the layers are Linux's")
    options = list(PLACES[place])
    is_root = os.geteuid() == 0
    if place.startswith("root") and not is_root:
        pytest.skip("these tests were not started by root")
    if not is_root or not ("--uid" in options or place.endswith("for all")):
        options = [option for option in options if option != "--uid"]
        return Sandbox(place, [sys.executable, *options])
    if "--uid" in options:
        options.insert(options.index("--uid") + 1, str(UNPRIVILEGED))
    return Sandbox(place, [readable_python(), *options])


def readable_python() -> str:
    """A Python that other users can run and that has torch; often root's own is not one."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for executable in (sys.executable, f"/usr/local/bin/{version}", f"/usr/bin/{version}"):
        question = "import importlib.util as u; assert u.find_spec('torch'); import grader.ranks"
        try:
            asked = subprocess.run(
                [executable, "-s", "-P", "-c", question],
                user=UNPRIVILEGED,
                group=UNPRIVILEGED,
                extra_groups=[],
                env=ENVIRONMENT,
                cwd="/",
                stderr=subprocess.DEVNULL,
                check=False,
            )
        except OSError:
            continue
        if asked.returncode == 0:
            return executable
    pytest.skip("no Python here with torch that an unprivileged user may run")


@pytest.fixture(scope="module", params=PLACES)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    sandbox = start(request.param)
    yield sandbox
    sandbox.close()
