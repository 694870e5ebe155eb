"""DLedger's small text files, currterm and checkpoint: Java properties, one key=value a line (IOUtils.java).

Java reads the keys it knows and never the `.bak` beside the file. Ours has a further line `maxqCrc`, so that a changed
bit is seen; a file that Java wrote has none and is believed. `.bak` has the newer content: it is written first, so that
whatever becomes of one file, the other one says at least as much (Java's has the older one, and without maxqCrc it is
not asked while the file itself can be read).

New content is a new file, and takes a block before it gives the old one's back. So `.room` beside them holds a block:
on a full disk the content is written there, and the two files change names. So this block is never free for other
files.
"""

import logging
import zlib
from pathlib import PurePath
from typing import Final, NamedTuple

from maxq.runtime.interfaces import Disk
from maxq.store.files.disk_room import lacks_room

log: Final = logging.getLogger(__name__)

_CRC_KEY = "maxqCrc"
_MOST_BYTES = 1 << 16
_ROOM_BYTES: Final = 4 << 10


class TextFileFound(NamedTuple):
    """Result of a load.

    Attributes:
        values: of the newest copy that can be read; None if no copy can.
        is_missing: there is neither file.
        faults: what was wrong, one line each.
    """

    values: dict[str, str] | None
    is_missing: bool
    faults: list[str]


def encode_text(values: dict[str, str]) -> bytes:
    """Returns the text of `values`, in their order, and a last line with their CRC."""
    lines = "".join(f"{key}={value}\n" for key, value in values.items())
    return f"{lines}{_CRC_KEY}={zlib.crc32(lines.encode())}\n".encode()


def decode_text(data: bytes, java_keys: frozenset[str] = frozenset()) -> tuple[dict[str, str], bool] | None:
    """Decode a text file into its values and whether a CRC protects them. Returns None if the bytes are no such file,
    if the CRC is wrong, or if there is no CRC and the file has keys other than `java_keys`: then the name of the
    CRC's key was damaged."""
    if len(data) > _MOST_BYTES:
        return None
    try:
        lines = data.decode("ascii").split("\n")
    except UnicodeDecodeError:
        return None
    values: dict[str, str] = {}
    crc = None
    for line in (line.strip() for line in lines):
        if not line or line.startswith(("#", "!")):
            continue
        key, separator, value = line.partition("=")
        if not separator:
            return None
        if key.strip() == _CRC_KEY:
            crc = value.strip()
        else:
            values[key.strip()] = value.strip()
    if not values:
        return None
    if crc is None:
        damaged = _CRC_KEY.encode() in data or (java_keys and not java_keys.issuperset(values))
        return None if damaged else (values, False)
    body = "".join(f"{key}={value}\n" for key, value in values.items())
    return (values, True) if crc == str(zlib.crc32(body.encode())) else None


def number(values: dict[str, str], key: str, default: int = -1) -> int | None:
    """Returns a whole number ≥ -1; `default` if the key is missing or empty; None if the value is not a number."""
    text = values.get(key, "")
    if not text:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        return None
    found = int(text)
    return found if found >= -1 else None


class TextFile:
    """One text file, its `.bak` copy, and the room for the next one."""

    def __init__(self, disk: Disk, path: PurePath, java_keys: frozenset[str]) -> None:
        """`java_keys` are the keys that Java writes into the file."""
        self._disk = disk
        self._java_keys = java_keys
        self.path = path
        self._backup = path.with_name(path.name + ".bak")
        self._room = path.with_name(path.name + ".room")

    def load(self) -> TextFileFound:
        """Read the file, or its `.bak` if the file cannot be read or is older."""
        faults: list[str] = []
        own, own_is_there = self._read(self.path, faults)
        other, other_is_there = self._read(self._backup, faults)
        if not own_is_there and not other_is_there:
            return TextFileFound(None, True, faults)
        if own is None and other is not None:
            faults.append(f"{self.path} cannot be used: {self._backup} is taken")
            return TextFileFound(other[0], False, faults)
        if own is not None and other is not None and own[1] and other[1]:
            return TextFileFound(other[0], False, faults)  # of two good copies, the one that was written first
        return TextFileFound(None if own is None else own[0], False, faults)

    def _read(self, path: PurePath, faults: list[str]) -> tuple[tuple[dict[str, str], bool] | None, bool]:
        if not self._disk.exists(path):
            return None, False
        try:
            found = decode_text(self._disk.read(path), self._java_keys)
        except OSError as error:
            faults.append(f"{path} cannot be read: {error}")
            return None, True
        if found is None:
            faults.append(f"{path}: no properties, or its CRC does not match")
        return found, True

    def save(self, values: dict[str, str]) -> None:
        """Make `values` durable, on a full disk in the blocks of the room. Blocks; any thread, one at a time.

        Raises:
            OSError: it is not known what the file holds now: the old values or these.
        """
        data = encode_text(values)
        for path in (self._backup, self.path):
            try:
                self._disk.replace(path, data)
            except OSError as error:
                if not lacks_room(error) or not self._disk.exists(self._room):
                    raise
                self._disk.replace_with(path, data, spare=self._room)
        self.keep_room()

    def keep_room(self) -> None:
        """Allocate the block that a later `save` needs, if the disk has room. Blocks."""
        try:
            if not self._disk.exists(self._room) or not self._disk.stat(self._room).size:
                self._disk.write(self._room, bytes(_ROOM_BYTES))
        except OSError as error:
            log.warning("DLedger: no space could be reserved for the next %s: %s", self.path, error)
