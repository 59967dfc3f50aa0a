"""A small zygote, leader, init and rank around the layers: a script, run by `conftest`.

    python -s -P harness.py FOLDER [--uid UID] [--like-a-container]

It takes its place (a user, a filter that refuses namespaces), probes, imports torch, says
what it found, and then makes one run for every line of JSON on stdin: `{"body": source,
"ranks": 2, "group": true, "off": [layers], ...}`. The body runs in every rank, with `rank`
and `dist`, and leaves its findings in the dict `found`.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import sys
import tempfile
import time

from grader.ranks.isolation import (
    confine,
    init,
    layers,
    limits,
    namespaces,
    paths,
    privileges,
    root,
    seccomp,
    uids,
)
from grader.ranks.isolation.layers import Support
from grader.ranks.isolation.probe import probe

REFUSED_IN_CONTAINERS = ("unshare", "setns", "mount", "umount2", "pivot_root", "mount_setattr",
                         "move_mount", "open_tree", "fsopen", "fsmount")  # fmt: skip
MEMORY_BYTES = 1 << 30


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--uid", type=int)
    parser.add_argument("--like-a-container", action="store_true")
    options = parser.parse_args()
    if options.like_a_container:
        if not privileges.has_capability(privileges.CAP_SYS_ADMIN):
            privileges.forbid_new_privileges()  # else such a process may not have a filter
        seccomp.install(seccomp.refusing(REFUSED_IN_CONTAINERS))
    if options.uid is not None:
        privileges.become(options.uid)
    began = time.perf_counter()
    support = probe()
    probe_s = time.perf_counter() - began
    readable = paths.readable()
    confine.restrict_ports(support)
    warm_up()
    threads = len(os.listdir("/proc/self/task"))
    print(json.dumps({"support": support.to_json(), "probe_s": probe_s, "threads": threads}))
    sys.stdout.flush()
    for number, line in enumerate(sys.stdin):
        job = json.loads(line)
        off = layers.NAMES if job.get("off") == "all" else job.get("off", ())
        run = Run(support.without(off), job, options.folder, number, readable)
        began = time.perf_counter()
        result = run.make()
        print(json.dumps(result | {"s": time.perf_counter() - began}))
        sys.stdout.flush()


def warm_up() -> None:
    import gc

    import torch
    import torch.distributed  # noqa: F401

    torch.set_num_threads(1)
    layer = torch.nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    gc.collect()
    gc.freeze()


class Run:
    def __init__(
        self, support: Support, job: dict, folder: str, number: int, readable: list[str]
    ) -> None:
        self.support = support
        self.job = job
        self.scratch = os.path.join(folder, f"scratch-{number}")
        self.mount_point = os.path.join(folder, "root")
        self.readable = readable
        self.ranks = job.get("ranks", 1)
        self.answer_pipes = [os.pipe() for _ in range(self.ranks)]
        self.told, self.tell_end = os.pipe()
        self.control_end, self.control = os.pipe()

    def make(self) -> dict:
        """In the zygote: fork the leader and wait for its account."""
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.close(read)
                os.write(write, json.dumps(self._lead()).encode())
            except layers.LayerFailed as error:
                os.write(write, json.dumps({"fault": str(error)}).encode())
            finally:
                os._exit(0)
        os.close(write)
        ours = [fd for pair in self.answer_pipes for fd in pair]
        for fd in (*ours, self.told, self.tell_end, self.control_end, self.control):
            os.close(fd)
        with os.fdopen(read) as file:
            account = json.loads(file.read() or "{}")
        os.waitpid(pid, 0)
        return account

    def _lead(self) -> dict:
        os.setsid()
        privileges.die_with_parent()
        privileges.adopt_orphans()
        privileges.be_killed_first()
        claim = uids.claim() if self.support.has(layers.UID) else None
        self.uids = claim.uids[: self.ranks] if claim else ()
        if not self.support.has(layers.ROOT):
            os.mkdir(self.scratch)
            os.chmod(self.scratch, 0o1777)
        namespaces.enter(self.support)
        self.own_bytes = limits.own_bytes()
        pid = os.fork()
        if not pid:
            try:
                self._be_init()
            except layers.LayerFailed as error:
                os.write(self.tell_end, json.dumps({"fault": str(error)}).encode() + b"\n")
            finally:
                os._exit(0)
        for fd in (*(end for _, end in self.answer_pipes), self.tell_end, self.control_end):
            os.close(fd)
        answers = self._listen(time.monotonic() + self.job.get("seconds", 20))
        os.close(self.control)
        self._outlive(pid)
        with os.fdopen(self.told) as file:
            said = [json.loads(line) for line in file]
        init.kill_descendants()
        used = limits.used_bytes(self.scratch)
        shutil.rmtree(self.scratch, ignore_errors=True)
        return {"found": answers, "told": said, "scratch_bytes": used}

    @staticmethod
    def _outlive(pid: int) -> None:
        """Wait for init, but not for ever: without layers a rank can stop it."""
        pidfd = os.pidfd_open(pid)
        if not select.select([pidfd], [], [], 5.0)[0]:
            os.kill(pid, 9)
        os.close(pidfd)
        os.waitpid(pid, 0)

    def _listen(self, deadline: float) -> list:
        data = {read: b"" for read, _ in self.answer_pipes}
        is_open = set(data)
        while is_open and (left := deadline - time.monotonic()) > 0:
            for fd in select.select(is_open, [], [], left)[0]:
                part = os.read(fd, 65_536)
                data[fd] += part
                if not part or part.endswith(b"\n"):
                    is_open.discard(fd)
        return [json.loads(text) if text.endswith(b"\n") else None for text in data.values()]

    def _be_init(self) -> None:
        privileges.die_with_parent()
        plan = root.RootPlan(
            self.mount_point,
            self.readable,
            self.scratch,
            scratch_bytes=32 << 20,
            scratch_files=1000,
            shared_memory_bytes=8 << 20,
            uids=self.uids,
        )
        root.build(self.support, plan)
        init.prepare(self.support)
        self.meeting = os.path.join(self.scratch, "meeting")
        os.umask(0)
        os.close(os.open(self.meeting, os.O_CREAT | os.O_WRONLY, 0o666))
        ranks = {self._fork_rank(rank): rank for rank in range(self.ranks)}
        for _, end in self.answer_pipes:
            os.close(end)
        os.close(self.control)
        init.serve(
            self.support,
            ranks,
            self.control_end,
            lambda said: os.write(self.tell_end, json.dumps(said).encode() + b"\n"),
        )

    def _fork_rank(self, rank: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            self._be_rank(rank)
        except BaseException as error:
            text = {"error": f"{type(error).__name__}: {error}"}
            os.write(3, json.dumps(text).encode() + b"\n")
        finally:
            os._exit(0)

    def _be_rank(self, rank: int) -> None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(self.answer_pipes[rank][1], 3)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        privileges.close_descriptors((0, 1, 2, 3))
        own_scratch = os.path.join(self.scratch, str(rank))
        os.mkdir(own_scratch)
        if self.uids:
            os.chown(own_scratch, self.uids[rank], self.uids[rank])
        os.chdir(own_scratch)
        os.environ.update(TMPDIR=own_scratch, HOME=own_scratch)
        tempfile.tempdir = None  # whoever asked before had another answer
        plan = confine.RankPlan(
            self.scratch,
            self.readable,
            limits.Limits(
                memory_bytes=self.job.get("memory_bytes", MEMORY_BYTES),
                cpu_s=60,
                processes=16 + 16 * self.ranks,
                file_bytes=64 << 20,
            ),
            uid=self.uids[rank] if self.uids else None,
            network=self.job.get("group", False),
            workers=self.job.get("workers", False),
            own_bytes=self.own_bytes,
        )
        confine.confine(self.support, plan)
        import torch
        import torch.distributed as dist

        found: dict = {}
        if self.job.get("group"):
            store = dist.FileStore(self.meeting, self.ranks)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=self.ranks)
        names = {"found": found, "rank": rank, "dist": dist, "torch": torch, "scratch": own_scratch}
        exec(self.job["body"], names | self.job.get("names", {}))
        os.write(3, json.dumps(found).encode() + b"\n")
        # A rank that leaves early would be seen by its peers; all wait for the end.
        time.sleep(60)


if __name__ == "__main__":
    main()
