"""Users that nobody is, one per rank: what root can give even where nothing else works.

Two gradings side by side must not share them, or the one would kill and count the other's
processes. The claim is an abstract socket name: the kernel gives it to one process only and
takes it back when that process ends, however it ends.
"""

from __future__ import annotations

import os
import socket

FIRST = 60_000
"""Above what distributions give to people and services."""
PER_RUN = 8


class UidClaim:
    """`PER_RUN` users that are this process's alone until it closes the claim, or ends."""

    def __init__(self, first: int, name: socket.socket) -> None:
        self.uids = tuple(range(first, first + PER_RUN))
        self._name = name

    def close(self) -> None:
        """Let others have them."""
        self._name.close()

    def fileno(self) -> int:
        """The descriptor that holds the claim; ranks close it."""
        return self._name.fileno()


def claim() -> UidClaim:
    """Claim users that are in no list of users, mapped here, and not claimed by another run.

    To be called by the leader before it enters a network namespace: such names are told
    apart per network namespace.

    Raises:
        OSError: there are none left.
    """
    taken = _listed()
    slots = max((_last_mapped() + 1 - FIRST) // PER_RUN, 1)
    for attempt in range(min(slots, 4096)):
        # Begin at one's own pid: neighbours rarely ask for the same.
        first = FIRST + (os.getpid() + attempt) % slots * PER_RUN
        if taken.intersection(range(first, first + PER_RUN)):
            continue
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0ranklings-uids-{first}")
        except OSError:
            name.close()
            continue
        return UidClaim(first, name)
    raise OSError(11, "every unused user is taken by another run")


def _last_mapped() -> int:
    """The highest uid of the range at `FIRST` that exists in this user namespace, below 65,534."""
    last = 0
    with open("/proc/self/uid_map", encoding="ascii") as file:
        for line in file:
            inside, _, count = (int(word) for word in line.split())
            if inside <= FIRST < inside + count:
                last = inside + count - 1
    return min(last, 65_533)


def _listed() -> set[int]:
    # The file and not the name service: that may ask a network.
    ids: set[int] = set()
    for path in ("/etc/passwd", "/etc/group"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                fields = [line.split(":") for line in file]
        except OSError:
            continue
        ids.update(int(f[2]) for f in fields if len(f) > 2 and f[2].isdigit())
    return ids
