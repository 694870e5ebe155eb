"""The timer of a store, whether or not a broker is using it, read from its files, which are not changed.

What a broker that died left behind is put in order in memory, as the next start would do it (on a disk that only
pretends to write).
"""

from pathlib import PurePath

from maxq.errors import RemoteProtocolError, StoreRefusedError
from maxq.protocol.message.message import decode_record
from maxq.runtime.interfaces import Disk
from maxq.store.timer.moved_messages import MovedMessages
from maxq.store.timer.timer_checkpoint_file import FILE_NAME, TimerCheckpointFile
from maxq.store.timer.timer_listing import TimerListing
from maxq.store.timer.timer_log import TimerLog
from maxq.store.timer.timer_message_store import WHEEL_NAME
from maxq.store.timer.timer_record import TimerRecord, timer_record
from maxq.store.timer.timer_recovery import TimerRecovery
from maxq.store.timer.timer_wheel import EMPTY, Slot
from maxq.store.tools.store_files import DataFile

_NO_END = 1 << 62


class OfflineTimer:
    """The timer of a store that no broker runs on; see the module's text.

    Attributes:
        listing: what waits.
        read_time_ms: everything due before was delivered.
        queue_offset: how far the timer's topic is in the wheel.
        pending: messages in the wheel.
        earliest_ms, latest_ms: the first and the last slot that hold something.
    """

    def __init__(self, disk: Disk, root: PurePath, log_files: list[DataFile], precision_ms: int) -> None:
        """Load the timer. Blocks.

        Args:
            disk: an OverlayDisk.
            log_files: the CommitLog's, by start offset.

        Raises:
            StoreRefusedError: there is no timer, or its files have wrong sizes.
        """
        if not disk.exists(root / WHEEL_NAME) or not disk.exists(root / "config" / FILE_NAME):
            raise StoreRefusedError(f"{root} has no timer: there is no {WHEEL_NAME}, or no config/{FILE_NAME}")
        self._disk = disk
        self._log_files = log_files
        self._views: dict[int, memoryview] = {}
        sizes = [entry.size for entry in disk.list(root / "timerlog") if not entry.is_dir]
        self._log = TimerLog(disk, root, max(sizes, default=1 << 20))
        file = TimerCheckpointFile(disk, root / "config" / FILE_NAME)
        found = TimerRecovery(disk, root / WHEEL_NAME, self._log, file, precision_ms, _NO_END).run()
        self._wheel = found.wheel
        self.read_time_ms = found.read_time_ms
        self._is_over = found.is_over
        self.queue_offset = file.checkpoint.last_timer_queue_offset
        self.pending = found.pending
        self.earliest_ms = found.earliest_ms
        self.latest_ms = found.latest_ms
        moved = MovedMessages()
        moved.take(file.checkpoint.moved, self._log.max_offset)
        self.listing = TimerListing(found.wheel, self._log, self._record_at, self._live_slot, moved.counts)

    def _live_slot(self, time_ms: int) -> Slot:
        slot = self._wheel.get(time_ms // self._wheel.precision_ms * self._wheel.precision_ms)
        return EMPTY if self._is_over(slot.time_ms, slot.last_position) else slot

    def _record_at(self, physical_offset: int, size: int) -> TimerRecord | None:
        for file in self._log_files:
            at = physical_offset - file.from_offset
            if 0 <= at <= file.size - size:
                if file.from_offset not in self._views:
                    self._views[file.from_offset] = self._disk.map(file.path, file.size, read_only=True).view
                try:
                    return timer_record(decode_record(self._views[file.from_offset][at : at + size]), physical_offset)
                except RemoteProtocolError:
                    return None
        return None
