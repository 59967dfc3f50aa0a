"""The probe: what it finds holds, what it leaves is nothing, and it survives odd machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from grader.ranks.isolation import layers
from grader.ranks.isolation.layers import Support
from grader.ranks.isolation.probe import probe
from tests.grader.ranks.isolation.conftest import ENVIRONMENT

PROBE = """
import json, os, sys
from grader.ranks.isolation import layers
from grader.ranks.isolation.probe import probe
{before}
print(json.dumps(probe().to_json()))
"""
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the layers are Linux's")


def probe_after(before: str) -> Support:
    """What a fresh process finds that has done `before`."""
    done = subprocess.run(
        [sys.executable, "-s", "-P", "-c", PROBE.format(before=before)],
        env=ENVIRONMENT,
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    return Support.from_json(json.loads(done.stdout))


@pytest.fixture(scope="module")
def support() -> Support:
    return probe()


@linux
def test_every_layer_is_judged(support: Support) -> None:
    assert [layer.name for layer in support.layers] == list(layers.NAMES)
    for layer in support.layers:
        assert layer.works or layer.why, layer


def test_json_holds_everything(support: Support) -> None:
    assert Support.from_json(json.loads(json.dumps(support.to_json()))) == support


@linux
def test_leaves_the_process_as_it_was() -> None:
    tempfile.tempdir = None

    def state() -> list[object]:
        children = Path("/proc/thread-self/children").read_text("ascii")
        fds = os.listdir("/proc/self/fd")
        return [os.getresuid(), fds, os.readlink("/proc/self/ns/net"), children]

    before = state()
    probe()
    assert state() == before
    assert tempfile.tempdir is None
    assert not [name for name in os.listdir("/tmp") if name.startswith("ranklings-probe-")]


@linux
def test_a_refused_namespace_costs_nothing_else(support: Support) -> None:
    found = probe_after("from grader.ranks.isolation import seccomp, privileges\n"
                        "privileges.forbid_new_privileges()\n"
                        "seccomp.install(seccomp.refusing(['unshare']))")  # fmt: skip
    namespaces = (layers.NET, layers.IPC, layers.UTS, layers.PID, layers.ROOT)
    assert not any(found.has(name) for name in namespaces)
    assert "Operation not permitted" in found.why_not(layers.NET)
    for name in (layers.LANDLOCK, layers.SECCOMP, layers.LIMITS, layers.CAPABILITIES):
        assert found.has(name) == support.has(name), name


@linux
@pytest.mark.parametrize("refused", ["mount", "pivot_root"])
def test_a_step_that_fails_half_way_is_that_layer_s(support: Support, refused: str) -> None:
    if not support.has(layers.ROOT):
        pytest.skip(f"no new root here anyway: {support.why_not(layers.ROOT)}")
    found = probe_after("from grader.ranks.isolation import seccomp, privileges\n"
                        "privileges.forbid_new_privileges()\n"
                        f"seccomp.install(seccomp.refusing(['{refused}']))")  # fmt: skip
    assert not found.has(layers.ROOT)
    assert refused in found.why_not(layers.ROOT)
    assert found.has(layers.NET)
    assert found.has(layers.PID)
    assert found.has(layers.SECCOMP) == support.has(layers.SECCOMP)


@linux
@pytest.mark.parametrize("ending", ["os.kill(os.getpid(), 11)", "os._exit(0)", "1 / 0"])
def test_a_layer_that_ends_its_process_does_not_work(support: Support, ending: str) -> None:
    """As on a machine whose filter kills instead of refusing."""
    found = probe_after(
        "from grader.ranks.isolation import landlock\n"
        f"landlock.restrict_files = lambda *a, **k: ({ending})"
    )
    assert not found.has(layers.LANDLOCK)
    assert found.why_not(layers.LANDLOCK)
    assert found.has(layers.SECCOMP) == support.has(layers.SECCOMP)


@linux
def test_a_layer_without_effect_does_not_work() -> None:
    found = probe_after(
        "from grader.ranks.isolation import landlock, privileges\n"
        "landlock.restrict_files = privileges.drop_capabilities = lambda *a, **k: None"
    )
    assert found.why_not(layers.LANDLOCK) == "it is in force, and has no effect"
    # Becoming another user gives them up as well; a user namespace of one's own brings some.
    had_some = found.has(layers.USER) or (os.geteuid() == 0 and not found.has(layers.UID))
    assert found.has(layers.CAPABILITIES) == (not had_some)


@linux
def test_takes_a_fraction_of_a_second() -> None:
    began = time.perf_counter()
    probe()
    assert time.perf_counter() - began < 2.0  # 20 to 40 ms in a small and quiet process


def test_other_systems_have_no_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    found = probe()
    assert not any(found.has(name) for name in layers.NAMES)
    assert "darwin" in found.why_not(layers.NET)
