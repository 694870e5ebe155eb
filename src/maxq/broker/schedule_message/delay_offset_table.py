"""DelayOffsetTable: how far each delay level was delivered, as delayOffset.json has it.

Offsets count queue entries of SCHEDULE_TOPIC_XXXX and name the next one to look at.

Source:
    broker/schedule/ScheduleMessageService.java (offsetTable, updateOffset, encode, decode).
"""

from collections.abc import Callable

from maxq.broker.tables.persistent_manager import next_version
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.offsets import DelayOffsetSerializeWrapper
from maxq.runtime.interfaces import Clock


class DelayOffsetTable:
    """How far each delay level of one broker was delivered: level → queue offset of the next message. Nothing was
    delivered of a level that is missing.

    Attributes:
        physical_offset: place in the log up to which the file knew all deliveries; None if the file did not say.
        postponed: (level, queue offset) of messages below their level's offset that were due and could not be
            delivered.
    """

    def __init__(self, clock: Clock, version_step: Callable[[], int]) -> None:
        """`version_step`: delayOffsetUpdateVersionStep, changes that make one step of the data version."""
        self._clock = clock
        self._version_step = version_step
        self._offsets: dict[int, int] = {}
        self._version = DataVersion()
        self._changes = 0
        self.physical_offset: int | None = None
        self.postponed: set[tuple[int, int]] = set()

    def offset(self, level: int) -> int:
        return self._offsets.get(level, 0)

    def offsets(self) -> dict[int, int]:
        """Return the offset of each level that has one, by level."""
        return dict(self._offsets)

    def state(self) -> tuple[dict[int, int], set[tuple[int, int]]]:
        """Return copies of the offsets by level and of the set of postponed messages (level, offset)."""
        return dict(self._offsets), set(self.postponed)

    def update(self, level: int, offset: int) -> None:
        """Note that all messages of this level below `offset` were delivered or postponed."""
        if self._offsets.get(level) != offset:
            self._offsets[level] = offset
            self._changed()

    def postpone(self, level: int, offset: int) -> None:
        """Note a message that could not be delivered, so that later ones of its level are delivered before it."""
        self.postponed.add((level, offset))
        self._changed()

    def forget_postponed(self, level: int, offset: int) -> None:
        """Remove a postponed message, which was delivered or given up."""
        self.postponed.discard((level, offset))
        self._changed()

    def _changed(self) -> None:
        self._changes += 1
        if self._changes % max(1, self._version_step()) == 0:
            self._version = next_version(self._version, self._clock.wall_ms())

    def decode(self, text: bytes | None) -> None:
        """Take a file's table in place of this one; None: there is no file.

        Raises:
            RemoteProtocolError: it is not what it should be; the table is as it was.
        """
        read = DelayOffsetSerializeWrapper.decode(text)
        self._offsets = {level: max(0, offset) for level, offset in read.offset_table.items()}
        self.physical_offset = read.physical_offset
        self.postponed = {(level, offset) for level, offsets in (read.postponed or {}).items() for offset in offsets}
        if read.data_version is not None:
            self._version = read.data_version

    def encode(self, physical_offset: int) -> bytes:
        """Return the text of the file. Every delivery below `physical_offset` of the CommitLog is in the table."""
        postponed: dict[int, list[int]] = {}
        for level, offset in sorted(self.postponed):
            postponed.setdefault(level, []).append(offset)
        table = DelayOffsetSerializeWrapper(dict(self._offsets), self._version, physical_offset, postponed or None)
        return table.encode()
