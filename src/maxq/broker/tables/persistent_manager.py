"""PersistentManager: a table of the broker that is a JSON file under config/.

Changes happen on the loop; writing the file blocks and leaves it. `request_persist` starts one write in the executor;
all changes that come while it runs share the next one, so a thousand new topics do not cost a thousand files. Whoever
must not answer before the file is safe awaits `persisted`.

`encode` runs in the executor too. It takes copies of the tables first (one C call each, so nothing moves under it);
values in the tables are replaced, never changed.
"""

import asyncio
import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from maxq.errors import RemoteProtocolError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.json import json_dialect
from maxq.runtime.blocking import TABLES
from maxq.runtime.files.config_manager import ConfigManager
from maxq.runtime.interfaces import Disk

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0


class PersistentManager(ConfigManager):
    """A ConfigManager whose content is one JSON value in Java's layout.

    Attributes:
        when_changed: all of them are called at every change, before it is on the disk.
    """

    def __init__(self, disk: Disk, path: PurePath) -> None:
        super().__init__(disk, path)
        self.when_changed: list[Callable[[], None]] = []
        self._requested = 0  # number of the newest change
        self._written = 0  # … of the newest change that is on disk; <= _requested
        self._writer: asyncio.Task[None] | None = None
        self._is_refused = False  # the disk refused the last write
        self._writing = threading.Lock()  # writes run in the executor; two at once would mix file and backup

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the whole table as a tree of its own, with the members in Java's order."""

    @abstractmethod
    def from_json(self, value: dict[str, Any]) -> None:
        """Replace the table by a file's content. Raises RemoteProtocolError if that has not the form of `to_json`."""

    def encode(self) -> bytes:
        """Return the table as Java writes it to the file: with tabs and unquoted integer keys."""
        return json_dialect.dumps_pretty(self.to_json())

    def encode_compact(self) -> bytes:
        """Returns the table as the body of an answer."""
        return json_dialect.dumps(self.to_json())

    def decode(self, data: bytes) -> None:
        value = json_dialect.loads(data)
        if not isinstance(value, dict):
            raise RemoteProtocolError(f"a configuration table is a JSON object, not {type(value).__name__}")
        self.from_json(value)

    def persist(self) -> None:
        """Write the file, after a write that is under way; blocks until it is durable. Raises OSError if the disk
        refuses."""
        with self._writing:
            newest = self._requested
            self._persist_now()
            self._written = max(self._written, newest)

    def persist_changes(self) -> None:
        """Call `persist` if anything changed since the last call. May be called from other threads than the loop's."""
        if self._written < self._requested:
            self.persist()

    def _persist_now(self) -> None:
        """Write the file. Only the writing task calls it."""
        super().persist()

    def request_persist(self) -> None:
        """Have the changed table written soon; without a running loop it is written now."""
        for tell in self.when_changed:
            tell()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.persist()
            return
        self._requested += 1
        self._begin(loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        """Return the task that writes the table, started now unless it runs already."""
        if self._writer is None or self._writer.done():
            self._writer = loop.create_task(self._write(), name=f"persist {self._file.name}")
            self._writer.add_done_callback(self._on_written)
        return self._writer

    async def persisted(self) -> None:
        """Return when all changes so far are durable; later changes do not matter. Raises OSError if the file cannot be
        written now; the write is retried."""
        wanted = self._requested
        while self._written < wanted:
            await asyncio.shield(self._begin(asyncio.get_running_loop()))

    async def _write(self) -> None:
        """Write the table once. A caller that waits for a change waits for two writes at most: one under way, and the
        next."""
        await TABLES.run(self.persist)

    def _on_written(self, writer: asyncio.Task[None]) -> None:
        error = None if writer.cancelled() else writer.exception()
        if isinstance(error, OSError):
            if not self._is_refused:
                why = error.strerror or error
                log.error("cannot write %s: %s; it is tried again every second", self._file, why)
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._try_again)
        elif error is not None:
            log.error("cannot write %s: %s; it is tried again with the next change", self._file, error)
        elif not writer.cancelled():
            self._try_again()
        self._is_refused = error is not None

    def _try_again(self) -> None:
        """Write the changes since the last write began."""
        if self._written < self._requested:
            self._begin(asyncio.get_running_loop())


class PeriodicManager(PersistentManager):
    """A PersistentManager whose table changes constantly: `persist`, called every few seconds, writes it if it has
    changed. On return of `persist` all changes before the call are durable, also those that another call was
    writing."""

    def __init__(self, disk: Disk, path: PurePath) -> None:
        super().__init__(disk, path)
        self._is_dirty = False  # changed since the last write began

    def _persist_now(self) -> None:
        """Write the file if anything changed since the last time. Raises OSError if the disk refuses: the next call
        retries."""
        if not self._is_dirty:
            return
        self._is_dirty = False
        try:
            super()._persist_now()
        except BaseException:
            self._is_dirty = True
            raise


def next_version(version: DataVersion, now_ms: int) -> DataVersion:
    """Return the version after a change at wall time `now_ms`. It is a new object, because `version` may be in use by a
    writing thread."""
    newer = version.copy()
    newer.next_version(now_ms)
    return newer


def object_member(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the member of a file that is a map; empty if absent. Raises RemoteProtocolError if it is not a map."""
    member = value.get(name)
    if member is None:
        return {}
    if not isinstance(member, dict):
        raise RemoteProtocolError(f"{name} is an object, not {type(member).__name__}")
    return member
