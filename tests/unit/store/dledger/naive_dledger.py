"""DLedger's file format a second time, slow and simple, without any module of the store."""

import struct
import zlib
from dataclasses import dataclass, field

HEADER = struct.Struct(">iiqqqiIIi")
UNIT = struct.Struct(">iqiqq")


@dataclass(frozen=True)
class NaiveEntry:
    index: int
    term: int
    position: int
    body: bytes
    has_crc: bool = True

    @property
    def size(self) -> int:
        return 48 + len(self.body)

    @property
    def end(self) -> int:
        return self.position + self.size

    def encode(self) -> bytes:
        crc = zlib.crc32(self.body) if self.has_crc else 0
        size = len(self.body)
        head = HEADER.pack(1, 48 + size, self.index, self.term, self.position, 0, 0, crc, size)
        own = zlib.crc32(head[4:36] + head[40:]) if self.has_crc else 0
        return head[:36] + struct.pack(">I", own) + head[40:] + self.body

    def unit(self) -> bytes:
        return UNIT.pack(1, self.position, self.size, self.index, self.term)


@dataclass
class NaiveLog:
    """What a log must hold: entries, and where the next one goes."""

    file_size: int
    entries: list[NaiveEntry] = field(default_factory=list)
    next_index: int = 0
    end: int = 0

    def place(self, size: int) -> int:
        left = self.file_size - self.end % self.file_size
        return self.end if size + 8 <= left else self.end + left

    def append(self, term: int, body: bytes) -> NaiveEntry:
        entry = NaiveEntry(self.next_index, term, self.place(48 + len(body)), body)
        self.entries.append(entry)
        self.next_index, self.end = entry.index + 1, entry.end
        return entry

    def truncate(self, index: int) -> None:
        if index >= self.next_index - 1:
            return
        while self.entries and self.entries[-1].index > index:
            self.entries.pop()
        self.next_index = index + 1
        self.end = self.entries[-1].end if self.entries else 0

    def data_files(self) -> dict[str, bytes]:
        files: dict[int, bytearray] = {}
        before: NaiveEntry | None = None
        for entry in self.entries:
            start = entry.position - entry.position % self.file_size
            file = files.setdefault(start, bytearray(self.file_size))
            if before is not None and before.end < start:
                at = before.end % self.file_size
                files[before.end - at][at : at + 8] = struct.pack(">ii", -1, self.file_size - at)
            file[entry.position - start : entry.end - start] = entry.encode()
            before = entry
        return {f"{start:020d}": bytes(file) for start, file in files.items()}

    def index_bytes(self) -> bytes:
        """From unit 0 on, if the log begins with entry 0."""
        return b"".join(entry.unit() for entry in self.entries)


def java_recovery(files: dict[str, bytes], file_size: int) -> list[NaiveEntry]:
    """The scan of DLedgerMmapFileStore.recover, from the first file on."""
    found: list[NaiveEntry] = []
    for name in sorted(files):
        data, position = files[name], 0
        while True:
            if file_size - position < 48:
                if files[name][position : position + 4] == b"\xff\xff\xff\xff":
                    break
                return found
            magic, size, index, term, place, _, crc, _, body_size = HEADER.unpack_from(data, position)
            if magic == -1:
                break
            before = found[-1] if found else None
            right = magic == 1 and size == body_size + 48 and place == int(name) + position
            if not right or (before is not None and (index != before.index + 1 or term < before.term)):
                return found
            found.append(NaiveEntry(index, term, place, data[position + 48 : position + size], crc != 0))
            position += size
    return found
