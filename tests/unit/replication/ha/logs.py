"""Logs of bytes for the pure parts: what a master sends from, what a slave writes to."""

from collections.abc import Sequence

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import ReplicationGapError
from maxq.store.recovery.filled_ranges import FilledRange

FILE = 4096
RECORD = 504


def config(**changes: object) -> MessageStoreConfig:
    settings: dict[str, object] = {"mapped_file_size_commit_log": FILE, **changes}
    return MessageStoreConfig(**settings)  # type: ignore[arg-type]


class NoFilledRanges:
    """Of a log without fillers: `known` is what it tells, `contradicted` what it refuses of what it hears."""

    def __init__(self) -> None:
        self.known: list[FilledRange] = []
        self.contradicted: list[FilledRange] = []
        self.has_last_places = False
        self.examined = 0
        self.adopted: list[FilledRange] = []
        self.as_on_master: frozenset[tuple[int, int]] = frozenset()

    def named(self) -> list[FilledRange]:
        return self.known

    def contradicting(self, named: Sequence[FilledRange]) -> list[FilledRange]:
        return [one for one in named if one in self.contradicted]

    def ranges(self) -> list[tuple[int, int]]:
        return [(start, end) for start, end, _ in self.known]

    async def hold_last_places(self, ranges: Sequence[FilledRange]) -> bool:
        self.examined += 1
        return self.has_last_places

    def adopt(self, named: Sequence[FilledRange]) -> None:
        self.adopted += named


class BytesLog:
    """Bytes from `start` on, in files of FILE bytes; every appended byte counts at once, and the last RECORD of them
    are taken for a record."""

    def __init__(self, data: bytes = b"", start: int = 0) -> None:
        self.data = bytearray(data)
        self.start = start
        self.drops = 0
        self.filled_ranges = NoFilledRanges()

    @property
    def last_record_offset(self) -> int:
        return max(self.start, self.max_physical_offset - RECORD) if self.data else -1

    @property
    def min_physical_offset(self) -> int:
        return self.start

    @property
    def max_physical_offset(self) -> int:
        return self.start + len(self.data)

    def log_bytes(self, offset: int, limit: int) -> memoryview | None:
        if not self.start <= offset < self.max_physical_offset:
            return None
        stop = min(offset + limit, offset - offset % FILE + FILE, self.max_physical_offset)
        return memoryview(bytes(self.data))[offset - self.start : stop - self.start]

    def append_from_master(self, physical_offset: int, data: memoryview) -> int:
        if not self.data:
            self.start = physical_offset
        if physical_offset != self.max_physical_offset:
            raise ReplicationGapError("gap", expected=self.max_physical_offset, received=physical_offset)
        self.data += data
        return self.max_physical_offset

    def drop_pending(self) -> None:
        self.drops += 1
