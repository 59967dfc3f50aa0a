"""Messages between the grader and the processes that run a submission.

Two channels, both length-prefixed, neither ever pickled:

* a *message* is one JSON object, with open file descriptors beside it where needed
  (grader ↔ zygote, grader ↔ leader: trusted on both ends);
* a *frame* is one kind byte, a length and a payload (rank → grader: what the learner's
  process says; the reader caps every length before it takes the bytes).
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

_MESSAGE = struct.Struct("<I")
_FRAME = struct.Struct("<cI")
MAX_FDS = 64

EVENT = b"E"
"""A JSON object: one step of the rank's ledger, or a change of phase."""
ANSWER = b"A"
"""What the rank program returned, as `values.encode` wrote it."""


class Disconnected(Exception):
    """The other end closed the channel in the middle of a message, or before one."""


class UnreadableFrame(Exception):
    """A rank sent bytes that are no frame, or one above its cap."""


def send_message(channel: socket.socket, body: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send `body`, and duplicates of `fds`, over the stream socket `channel`."""
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    head = _MESSAGE.pack(len(data))
    if fds:
        socket.send_fds(channel, [head], list(fds))
    else:
        channel.sendall(head)
    channel.sendall(data)


def receive_message(channel: socket.socket) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Wait for one message on `channel`: its body, and the descriptors that came with it.

    Raises:
        Disconnected: the other end is gone.
    """
    head, fds, _, _ = socket.recv_fds(channel, _MESSAGE.size, MAX_FDS)
    while 0 < len(head) < _MESSAGE.size:
        head += _receive(channel, _MESSAGE.size - len(head))
    if not head:
        raise Disconnected("the other end closed the channel")
    body = json.loads(_receive(channel, _MESSAGE.unpack(head)[0]))
    return body, tuple(fds)


def _receive(channel: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise Disconnected(f"the channel closed after {len(parts)} of {size} bytes")
        parts += part
    return bytes(parts)


def write_frame(fd: int, kind: bytes, payload: bytes) -> None:
    """Write one frame to `fd`, whole, however often the pipe fills up."""
    view = memoryview(_FRAME.pack(kind, len(payload)) + payload)
    while view:
        view = view[os.write(fd, view) :]


class FrameReader:
    """Cuts the bytes of one rank into frames, and refuses what is above its caps."""

    def __init__(self, max_event: int, max_answer: int) -> None:
        self._caps = {EVENT: max_event, ANSWER: max_answer}
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every (kind, payload) that `data` completes.

        Raises:
            UnreadableFrame: an unknown kind, or a length above the kind's cap.
        """
        self._pending += data
        while len(self._pending) >= _FRAME.size:
            kind, size = _FRAME.unpack_from(self._pending)
            cap = self._caps.get(kind)
            if cap is None:
                raise UnreadableFrame(f"a frame of unknown kind {kind!r}")
            if size > cap:
                raise UnreadableFrame(f"a frame of {size:,} bytes, where {cap:,} is the most")
            if len(self._pending) < _FRAME.size + size:
                return
            payload = bytes(self._pending[_FRAME.size : _FRAME.size + size])
            del self._pending[: _FRAME.size + size]
            yield kind, payload

    @property
    def cut_off(self) -> bool:
        """Whether a frame was begun and never finished."""
        return bool(self._pending)
