"""A store for ranks of one run: files in a fresh folder, one writer each.

torch's own `FileStore` looks again every 10 ms, which makes up a third of a run; here a
rank sees what another has written within a fraction of a millisecond. Every rank appends
to its own file and reads the others', so there is nothing to lock and no port to take.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from datetime import timedelta

from torch._C._distributed_c10d import Store

_RECORD = struct.Struct("<BII")
"""Kind, length of the key, length of the value; key and value follow."""
_SET, _ADD = 0, 1
_POLL_S = 0.0002


class MeetingStore(Store):
    """What `torch.distributed` needs to make a group, shared by the ranks of one run."""

    def __init__(self, folder: str, rank: int, world_size: int) -> None:
        super().__init__()
        self._paths = [os.path.join(folder, f"meeting-{r}") for r in range(world_size)]
        self._own = os.open(self._paths[rank], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._readers: dict[str, int] = {}
        self._unread = dict.fromkeys(self._paths, b"")
        self._values: dict[str, bytes] = {}
        self._sums: dict[str, int] = {}

    def set(self, key: str, value: bytes | str) -> None:
        """Make `value` known under `key`."""
        self._append(_SET, key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        """The value under `key`; waits until there is one."""
        self.wait([key])
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        """Add to the counter `key`; gives its sum over all ranks, as far as it is known."""
        self._append(_ADD, key, str(amount).encode())
        self._look()
        return self._sums[key]

    def check(self, keys: list[str]) -> bool:
        """Whether all `keys` are known."""
        self._look()
        return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all `keys` are known. The leader holds the deadline, `timeout` does not."""
        while not self.check(keys):
            time.sleep(_POLL_S)

    def num_keys(self) -> int:
        """How many keys are known."""
        self._look()
        return len(self._values)

    def delete_key(self, _key: str) -> bool:
        """Nothing is ever taken back; the folder goes with the run."""
        return False

    def _append(self, kind: int, key: str, value: bytes) -> None:
        name = key.encode()
        os.write(self._own, _RECORD.pack(kind, len(name), len(value)) + name + value)

    def _look(self) -> None:
        for path in self._paths:
            for kind, key, value in self._new_records(path):
                if kind == _SET:
                    self._values[key] = value
                else:
                    self._sums[key] = self._sums.get(key, 0) + int(value)
                    self._values[key] = str(self._sums[key]).encode()

    def _new_records(self, path: str) -> Iterator[tuple[int, str, bytes]]:
        if path not in self._readers:
            try:
                self._readers[path] = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                return  # that rank has not come so far
        data = self._unread[path] + os.read(self._readers[path], 1 << 16)
        while len(data) >= _RECORD.size:
            kind, name_size, size = _RECORD.unpack_from(data)
            end = _RECORD.size + name_size + size
            if len(data) < end:
                break
            name = data[_RECORD.size : _RECORD.size + name_size]
            yield kind, name.decode(), data[_RECORD.size + name_size : end]
            data = data[end:]
        self._unread[path] = data
