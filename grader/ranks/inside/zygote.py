"""A process with torch imported and nothing else in it, forked once per run.

Importing torch takes a second, forking takes milliseconds. It is started by exec with
a clean environment and one thread (forking more is unsafe), it holds no secret (a fork
copies everything it ever saw), and it learns of a run only what its ranks may know.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from typing import NoReturn

from grader.ranks.inside import leader, wire
from grader.ranks.inside.rank import Job


def warm_up() -> None:
    """Import and run once what every rank needs, so that it is paid for once."""
    import torch

    from grader.ranks.inside import rendezvous, tracing, values  # noqa: F401

    torch.set_num_threads(1)
    layer = torch.nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    values.decode(values.encode({"weight": layer.weight}))
    gc.collect()
    gc.freeze()


def count_threads() -> int:
    """Threads of this process, where the system can tell; 1 where it cannot."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def serve(channel: socket.socket) -> NoReturn:
    """Fork a leader for every job that comes in on `channel`, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the grader's to handle
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # leaders are reaped by the kernel
    warm_up()
    wire.send_message(channel, {"ready": os.getpid(), "threads": count_threads()})
    while True:
        try:
            body, fds = wire.receive_message(channel)
        except (wire.Disconnected, ConnectionError):
            os._exit(0)
        pid = os.fork()
        if not pid:
            channel.close()
            control = socket.socket(fileno=fds[0])
            leader.lead(Job(**body["job"]), control, leader.per_rank(fds[1:]), fork=True)
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
