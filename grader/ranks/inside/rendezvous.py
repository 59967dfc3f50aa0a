"""How ranks find each other without ever colliding with another grading.

The harness's own group meets in files in a fresh folder. When the learner's code does
the rendezvous, its TCP store is served by a process of the harness, on a port that the
kernel chose, and every rank of the run becomes a client of it: two gradings side by
side cannot want the same port. `docs/decisions` has the measurements.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from datetime import timedelta
from typing import Any, NoReturn

from torch._C._distributed_c10d import TCPStore
from torch.distributed import barrier, init_process_group

from grader.ranks.inside.meeting import MeetingStore
from grader.ranks.inside.report import Report

GROUP_TIMEOUT = timedelta(minutes=30)
"""Far above any deadline: the process outside, which knows who waits for whom, acts first."""
ADDRESS = "127.0.0.1"


def join(folder: str, rank: int, world_size: int) -> MeetingStore:
    """Make this process `rank` of the default Gloo group that meets in `folder`.

    Gives the store, which has to live as long as the group.
    """
    store = MeetingStore(folder, rank, world_size)
    init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=GROUP_TIMEOUT)
    # Gloo connects lazily; without this a fast rank may use a pair that is not there yet.
    barrier()
    return store


def serve(port_fd: int) -> NoReturn:
    """Serve a TCP store until killed; writes its port, as text, to `port_fd`."""
    # An IPv4 socket of our own: torch's would take IPv6, and look its peers' names up.
    listener = socket.create_server((ADDRESS, 0))
    port = listener.getsockname()[1]
    store = TCPStore(
        ADDRESS, port, None, True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
    os.write(port_fd, b"%d\n" % store.port)
    os.close(port_fd)
    while True:
        signal.pause()


def use_hosted_store(port: int, report: Report) -> None:
    """Let whoever serves a store on `port` in this rank join the harness's instead."""

    class HostedStore(TCPStore):
        def __init__(
            self,
            host_name: str,
            port_: int | None = None,
            world_size: int | None = None,
            is_master: bool = False,
            *args: Any,
            **kwargs: Any,
        ) -> None:
            asked = kwargs.pop("port", port_)
            report.event("store", host=str(host_name), port=asked, master=bool(is_master))
            is_master = is_master and asked != port
            super().__init__(host_name, asked, world_size, is_master, *args, **kwargs)

    for name in ("torch.distributed", "torch.distributed.rendezvous"):
        vars(sys.modules[name])["TCPStore"] = HostedStore


if __name__ == "__main__":
    serve(int(sys.argv[1]))
