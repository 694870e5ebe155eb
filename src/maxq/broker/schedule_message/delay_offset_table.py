"""DelayOffsetTable: how far each delay level was delivered, as delayOffset.json has it.

Offsets count queue entries of SCHEDULE_TOPIC_XXXX and name the next one to look at.

Source:
    broker/schedule/ScheduleMessageService.java (offsetTable, updateOffset, encode, decode); store-format.md §10.3.
"""

from collections.abc import Callable

from maxq.broker.persistent_manager import next_version
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.offsets import DelayOffsetSerializeWrapper
from maxq.runtime.interfaces import Clock


class DelayOffsetTable:
    """Of one broker. A level that is missing has delivered nothing.

    Attributes:
        physical_offset: what the file said: deliveries below this place of the log are in the table; None if it did
            not say.
    """

    def __init__(self, clock: Clock, version_step: Callable[[], int]) -> None:
        """`version_step`: delayOffsetUpdateVersionStep, changes that make one step of the data version."""
        self._clock = clock
        self._version_step = version_step
        self._offsets: dict[int, int] = {}
        self._version = DataVersion()
        self._changes = 0
        self.physical_offset: int | None = None

    def offset(self, level: int) -> int:
        return self._offsets.get(level, 0)

    def offsets(self) -> dict[int, int]:
        """Level → offset, of levels that have one."""
        return dict(self._offsets)

    def update(self, level: int, offset: int) -> None:
        """Everything of this level below `offset` is delivered."""
        if self._offsets.get(level) == offset:
            return
        self._offsets[level] = offset
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
        if read.data_version is not None:
            self._version = read.data_version

    def encode(self, physical_offset: int) -> bytes:
        """The file's text; every delivery below `physical_offset` is in the table."""
        return DelayOffsetSerializeWrapper(dict(self._offsets), self._version, physical_offset).encode()
