"""The exercise "process group": join, use and leave the default group."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d


def join(here: Any) -> dict[str, Any]:
    """Join by the learner's own rendezvous."""
    here.submission.init_process_group(here.rank, here.world_size, master_port=here.master_port)
    return _membership() | {"asked_port": here.master_port}


def communicate(here: Any) -> dict[str, Any]:
    """Join, and let every kind of traffic through."""
    here.submission.init_process_group(
        here.rank, here.world_size, backend="gloo", master_port=here.master_port
    )
    total = here.inputs["value"].clone()
    dist.all_reduce(total)
    gathered = [torch.full_like(total, torch.nan) for _ in range(here.world_size)]
    dist.all_gather(gathered, here.inputs["value"])
    told = here.inputs["value"].clone()
    dist.broadcast(told, src=here.world_size - 1)
    return {"total": total, "gathered": torch.stack(gathered), "told": told}


def join_after_another_launch(here: Any) -> dict[str, Any]:
    """Join while the environment still holds what another launch left there."""
    other = here.world_size - 1 - here.rank
    # Nothing can be bound to port 9 without privileges, and nothing answers there.
    os.environ.update(RANK=str(other), LOCAL_RANK=str(other), WORLD_SIZE="7", MASTER_PORT="9")
    here.submission.init_process_group(here.rank, here.world_size, master_port=here.master_port)
    return _membership() | {"asked_port": here.master_port}


def join_by_default(here: Any) -> dict[str, Any]:
    """Join with no more than rank and world size; the port asked for is answered here."""
    asked: list[int] = []
    store = dist.TCPStore

    class Redirected(store):  # type: ignore[misc, valid-type]
        """29500 belongs to whoever uses this machine, so no check may bind it."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            asked.append(kwargs.pop("port") if "port" in kwargs else args[1])
            host = kwargs.pop("host_name") if "host_name" in kwargs else args[0]
            super().__init__(host, here.master_port, *args[2:], **kwargs)

    _replace_store(Redirected)
    here.submission.init_process_group(here.rank, here.world_size)
    return _membership() | {"port": asked[0] if asked else None}


def peers(here: Any) -> dict[str, Any]:
    """Join, and list the addresses that this process has connections to."""
    if sys.platform.startswith("linux"):
        # What the kit has set would hide what the learner leaves out. Elsewhere, loopback
        # has another name than the `lo` of the handout.
        os.environ.pop("GLOO_SOCKET_IFNAME", None)
    here.submission.init_process_group(here.rank, here.world_size, master_port=here.master_port)
    dist.all_reduce(torch.ones(1))
    return {"addresses": sorted(_connected_addresses())}


def refuse(here: Any) -> dict[str, Any]:
    """Ask for ranks that there are not; nobody may be called."""
    called: list[str] = []

    def nobody(*_args: Any, **_kwargs: Any) -> None:
        called.append("rendezvous")
        raise ConnectionError("the network was used before the rank was checked")

    # Both doors: the rendezvous of `init_process_group`, and a store made by hand.
    distributed_c10d.rendezvous = nobody  # type: ignore[assignment]
    _replace_store(nobody)
    answers: dict[str, Any] = {}
    for rank, world_size in here.inputs["asked"]:
        called.clear()
        label = f"rank {rank} of {world_size}"
        answers[f"raised/{label}"] = _error_of(
            lambda rank=rank, world_size=world_size: here.submission.init_process_group(
                rank, world_size, master_port=here.master_port
            )
        )
        answers[f"network/{label}"] = bool(called)
        answers[f"joined/{label}"] = dist.is_initialized()
    return answers


def leave_nothing(here: Any) -> dict[str, Any]:
    """Leave when there is no group, twice."""
    here.submission.shutdown_process_group()
    here.submission.shutdown_process_group()
    return {"joined": dist.is_initialized()}


def leave(here: Any) -> dict[str, Any]:
    """Use the group that is there, leave it, and leave once more."""
    before = dist.is_initialized()
    dist.barrier()
    here.submission.shutdown_process_group()
    after = dist.is_initialized()
    here.submission.shutdown_process_group()
    return {"before": before, "after": after, "after twice": dist.is_initialized()}


def _replace_store(store: Any) -> None:
    """Use `store` wherever torch or the learner would make a `TCPStore`."""
    # By its full name: in `torch.distributed`, `rendezvous` is a function of the same name.
    module: Any = sys.modules["torch.distributed.rendezvous"]
    dist.TCPStore = module.TCPStore = store


def _membership() -> dict[str, Any]:
    if not dist.is_initialized():
        return {"joined": False, "rank": None, "world_size": None, "backend": None}
    return {
        "joined": True,
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "backend": dist.get_backend(),
    }


def _error_of(call: Any) -> str:
    """The name of what `call` raises that the promise speaks of; empty: nothing."""
    try:
        call()
    except ValueError:
        return "ValueError"  # or a kind of it
    except NotImplementedError:
        raise
    except Exception as error:
        return type(error).__name__
    return ""


def _connected_addresses() -> set[str]:
    """Remote addresses of this process's TCP connections."""
    found = set()
    for fd in range(3, 1024):
        try:
            with socket.socket(fileno=os.dup(fd)) as connection:
                peer = connection.getpeername()
        except OSError:
            continue  # not open, no socket, or not connected
        if isinstance(peer, tuple):
            found.add(str(peer[0]))
    return found
