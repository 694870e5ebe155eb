"""ReplicatedConfigFiles: what services that only the speaker of a group runs keep under config/, carried from master
to slave.

    delayOffset.json   how far each delay level was delivered
    timermetrics       timer messages waiting, by topic
    timercheck         how far the timer is (4096 bytes; see TimerCheckpoint)

A Java broker that takes over the store, as master or slave, goes on from them. A master answers with what its files
say, a slave writes what its master answers. Methods block.

Source:
    broker/slave/SlaveSynchronize.java, broker/schedule/ScheduleMessageService.java (encode), store/timer/*.java.
"""

from collections.abc import Callable
from pathlib import PurePath
from typing import Final, Protocol

from maxq.protocol.body.offsets import DelayOffsetSerializeWrapper
from maxq.protocol.body.timer_checkpoint import SIZE, TimerCheckpoint
from maxq.protocol.json import json_dialect
from maxq.runtime.interfaces import Disk

DELAY_OFFSETS: Final = "delayOffset.json"
TIMER_METRICS: Final = "timermetrics"
TIMER_CHECK: Final = "timercheck"
_TIMER_CHECK_SIZE: Final = 4096


class RunningTimer(Protocol):
    """A timer that runs in this broker. It is called in other threads than the loop's."""

    def checkpoint(self) -> TimerCheckpoint:
        """Return the timer's checkpoint as of now, for slaves that ask for it."""
        ...

    def known_read_time_ms(self) -> int:
        """Return up to which wall time, ms, the timer knows that all is delivered, here or by the broker that delivers;
        the durable checkpoint may not say it yet."""
        ...

    def take_checkpoint(self, checkpoint: TimerCheckpoint) -> bool:
        """Adopt the checkpoint of the group's delivering broker. Returns False if nothing changed."""
        ...

    def metrics(self) -> bytes:
        """Return the number of waiting messages by topic."""
        ...

    def take_metrics(self, text: bytes) -> bool:
        """Adopt the master's metrics. Returns False if nothing changed."""
        ...


class ReplicatedConfigFiles:
    """The files of one store that slaves copy from their master."""

    def __init__(self, disk: Disk, folder: PurePath) -> None:
        self._disk = disk
        self._folder = folder
        self._written: dict[str, bytes] = {}  # contents of the files that this object has written
        self._delay_offsets_now: Callable[[], bytes] | None = None
        self._timer: RunningTimer | None = None

    def set_timer(self, timer: RunningTimer) -> None:
        """Read and write the timer's two files through `timer` from now on, because it has taken them over."""
        self._timer = timer

    def set_delay_offsets(self, now: Callable[[], bytes] | None) -> None:
        """Set the function that returns the delivery offsets while delayed messages are delivered here; None: they are
        delivered elsewhere."""
        self._delay_offsets_now = now

    def delay_offsets(self) -> bytes | None:
        """Return the delivery offsets on one line, as on the wire: from the running delivery, else from the file; None
        if there is neither.

        Raises:
            OSError: the disk refuses.
            RemoteProtocolError: it is not what it should be.
        """
        now = self._delay_offsets_now
        return self.read_delay_offsets() if now is None else now()

    def read_delay_offsets(self, backup: bool = False) -> bytes | None:
        """Read the file, or its backup. Raises as `delay_offsets` does."""
        data = self._read(f"{DELAY_OFFSETS}.bak" if backup else DELAY_OFFSETS)
        return None if data is None else DelayOffsetSerializeWrapper.decode(data).encode()

    def timer_metrics(self) -> bytes | None:
        """Return the number of waiting timer messages by topic: from the running timer, else from the file."""
        if self._timer is not None:
            return self._timer.metrics()
        data = self._read(TIMER_METRICS)
        return None if data is None else json_dialect.dumps(json_dialect.loads(data))

    def timer_checkpoint(self) -> TimerCheckpoint | None:
        """Return the checkpoint of the running timer, else that of the file; None if the file is missing, or shorter
        than a checkpoint."""
        if self._timer is not None:
            return self._timer.checkpoint()
        data = self._read(TIMER_CHECK)
        return None if data is None or len(data) < SIZE else TimerCheckpoint.decode(data)

    def timer_read_time_ms(self) -> int:
        """Return up to which wall time, ms, all timer messages are delivered as far as this broker knows; 0 if it knows
        nothing."""
        if self._timer is not None:
            return self._timer.known_read_time_ms()
        return (self.timer_checkpoint() or TimerCheckpoint()).last_read_time_ms

    def write_delay_offsets(self, text: bytes) -> bool:
        """Write the master's answer unchanged. Returns False if the file has this content already. Raises OSError if
        the disk refuses."""
        return self._write(DELAY_OFFSETS, text)

    def write_timer_metrics(self, text: bytes) -> bool:
        """Write the master's metrics; a running timer writes the file itself."""
        if self._timer is not None:
            return self._timer.take_metrics(text)
        return self._write(TIMER_METRICS, text)

    def write_timer_checkpoint(self, master: TimerCheckpoint) -> bool:
        """Write the part of the master's checkpoint that concerns a slave: how far it has delivered and enqueued, and
        the version. The position of this store's own wheel stays. A running timer writes the file itself."""
        if self._timer is not None:
            return self._timer.take_checkpoint(master)
        own = self.timer_checkpoint() or TimerCheckpoint()
        own.last_read_time_ms = master.last_read_time_ms
        own.master_timer_queue_offset = master.master_timer_queue_offset
        own.data_version = master.data_version
        return self._write(TIMER_CHECK, own.encode().ljust(_TIMER_CHECK_SIZE, b"\0"), backup=False)

    def _read(self, name: str) -> bytes | None:
        try:
            data = self._disk.read(self._folder / name)
        except FileNotFoundError:
            return None
        return data or None

    def _write(self, name: str, data: bytes, *, backup: bool = True) -> bool:
        if self._written.get(name) == data:
            return False
        before = self._read(name)
        if before != data:
            self._disk.make_dirs(self._folder)
            if backup and before is not None:
                self._disk.replace(self._folder / f"{name}.bak", before)
            self._disk.replace(self._folder / name, data)
        self._written[name] = data
        return before != data
