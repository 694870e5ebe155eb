"""One changed bit in one file of a store, and what must come of it."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from maxq.store.tools.queue_files import MAX_EXT_ADDRESS
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng

#: Bytes of a record's head that its structure or a comparison with its place gives away: total size, magic, body CRC,
#: physical offset.
_GUARDED_HEAD = ((0, 4), (4, 8), (8, 12), (28, 36))


@dataclass(slots=True)
class Flip:
    """A changed bit.

    Attributes:
        kind: of file and place.
        file: below the store's root.
        check_names: which byte positions of this file the offline check may name it by; None: it need not see it.
        physical_offset: of the message that is destroyed; -1 none.
        damages_record: the start must find a damaged range there.
        needs_rebuild: found by the check, repaired by a rebuild.
        loosens: the format has no check sum over this; what the record says about itself is now wrong.
    """

    kind: str
    file: str
    position: int
    check_names: Callable[[int], bool] | None = None
    physical_offset: int = -1
    damages_record: bool = False
    needs_rebuild: bool = False
    loosens: bool = False

    def __str__(self) -> str:
        return f"{self.kind}: {self.file} byte {self.position}"


def flip_some_bit(disk: SimDisk, rng: SimRng, on_disk: dict[int, dict[str, object]]) -> Flip | None:
    """Change one bit somewhere that is in use; None if there is no such file."""
    kind = rng.choice((_log_guarded, _log_guarded, _log_header, _queue_offset, _queue, _index, _small, _small))
    return kind(disk, rng, on_disk)


def _flip(disk: SimDisk, rng: SimRng, file: str, position: int) -> None:
    disk.flip_bit(f"store/{file}", position, rng.below(8))


def _log_place(disk: SimDisk, physical_offset: int) -> tuple[str, int]:
    size = disk.stat(PurePath(disk.paths("store/commitlog/*")[0])).size
    start = physical_offset - physical_offset % size
    return f"commitlog/{start:020d}", physical_offset - start


def _log_guarded(disk: SimDisk, rng: SimRng, on_disk: dict[int, dict[str, object]]) -> Flip | None:
    """A body, or a field that is compared with something: the record is damaged."""
    if not on_disk:
        return None
    at = rng.choice(sorted(on_disk))
    message = on_disk[at]
    file, record = _log_place(disk, at)
    body_size = int(str(message["storedBodyLen"]))
    low, high = rng.choice(_GUARDED_HEAD)
    if body_size and rng.chance(0.6):
        low, high = 88, 88 + body_size
    if body_size == 0 and low == 8:
        return None  # without a body nobody looks at its CRC
    position = record + low + rng.below(high - low)
    _flip(disk, rng, file, position)
    last = at == max(on_disk)
    return Flip(
        "log, guarded", file, position, lambda named: named == record, physical_offset=at, damages_record=not last
    )


def _log_header(disk: SimDisk, rng: SimRng, on_disk: dict[int, dict[str, object]]) -> Flip | None:
    """A field of the head that nothing covers: queue id, flag, system flag, times, hosts …"""
    if not on_disk:
        return None
    at = rng.choice(sorted(on_disk))
    file, record = _log_place(disk, at)
    position = record + rng.choice((12, 16, 36, 40, 48, 56, 64, 72, 76)) + rng.below(4)
    _flip(disk, rng, file, position)
    return Flip("log, not covered", file, position, physical_offset=at, loosens=True)


def _queue_offset(disk: SimDisk, rng: SimRng, on_disk: dict[int, dict[str, object]]) -> Flip | None:
    """A record's own queue offset: nothing covers it, but its queue's other records tell."""
    if not on_disk:
        return None
    at = rng.choice(sorted(on_disk))
    file, record = _log_place(disk, at)
    position = record + 20 + rng.below(8)
    _flip(disk, rng, file, position)
    return Flip("log, queue offset", file, position, physical_offset=at, needs_rebuild=True)


def _queue(disk: SimDisk, rng: SimRng, _on_disk: dict[int, dict[str, object]]) -> Flip | None:
    paths = disk.paths("store/consumequeue/*")
    if not paths:
        return None
    path = rng.choice(paths)
    content = disk.read(PurePath(path))
    used = [at for at in range(0, len(content), 20) if any(content[at : at + 20])]
    if not used:
        return None
    unit = rng.choice(used)
    position = unit + rng.below(20)
    if struct.unpack_from(">qi", content, unit)[1] == 0x7FFFFFFF:
        return None  # a pre-blank unit: nobody reads it
    file = path.removeprefix("store/")
    _flip(disk, rng, file, position)
    tags_code = struct.unpack_from(">q", disk.read(PurePath(path)), unit + 12)[0]
    if position >= unit + 12 and tags_code <= MAX_EXT_ADDRESS:
        # It may be the address of an extension that is gone, and then whoever selects looks at the message itself.
        return Flip("consumequeue, extension", file, position, needs_rebuild=True)
    return Flip("consumequeue", file, position, lambda named: named == unit, needs_rebuild=True)


def _index(disk: SimDisk, rng: SimRng, _on_disk: dict[int, dict[str, object]]) -> Flip | None:
    paths = disk.paths("store/index/*")
    if not paths:
        return None
    path = rng.choice(paths)
    content = disk.read(PurePath(path))
    count = struct.unpack_from(">i", content, 36)[0] if content else 0
    if count < 2:
        return None
    entries = 40 + 4 * 50
    position = rng.choice((rng.below(40), 40 + rng.below(200), entries + 20 + rng.below(20 * (count - 1))))
    file = path.removeprefix("store/")
    _flip(disk, rng, file, position)
    # while a broker may be writing a slot may point to an entry that the header does not count yet
    sees = None if 40 <= position < entries and disk.exists(PurePath("store/abort")) else lambda named: True
    return Flip("index", file, position, sees, needs_rebuild=True)


def _small(disk: SimDisk, rng: SimRng, _on_disk: dict[int, dict[str, object]]) -> Flip | None:
    """checkpoint, inventory, abort, lock: the start gets along without them."""
    names = [n for n in ("checkpoint", "inventory.json", "abort", "lock") if disk.exists(PurePath(f"store/{n}"))]
    names = [name for name in names if disk.stat(PurePath(f"store/{name}")).size]
    if not names:
        return None
    name = rng.choice(names)
    size = 48 if name == "checkpoint" else disk.stat(PurePath(f"store/{name}")).size
    position = rng.below(size)
    _flip(disk, rng, name, position)
    return Flip(name, name, position)
