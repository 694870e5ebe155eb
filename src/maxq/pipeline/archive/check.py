"""Proof of an archive's files: there, whole, and what the manifest says. Without Spark."""

import pyarrow as pa

from maxq.pipeline.archive.coverage import (
    DAMAGED_FILE,
    MISSING_FILE,
    OVERLAP,
    UNREADABLE_FILE,
    WRONG_ENTRY,
    Finding,
)
from maxq.pipeline.archive.file_stats import crc_of, entry_of
from maxq.pipeline.archive.folder import ArchiveFolder
from maxq.pipeline.archive.manifest import FileEntry, Manifest


def check_file(folder: ArchiveFolder, entry: FileEntry, *, quick: bool = False) -> list[Finding]:
    """Return what is wrong with one file, one finding for each queue that it is to have; an empty list if nothing is
    wrong.

    Args:
        quick: look at its size only; else every byte is read, and every row.
    """
    info = folder.filesystem.get_file_info(f"{folder.root}/{entry.path}")
    if not info.is_file:
        return _findings(MISSING_FILE, entry, "it is not there")
    if info.size != entry.bytes:
        return _findings(DAMAGED_FILE, entry, f"it has {info.size} bytes and should have {entry.bytes}")
    if quick:
        return []
    try:
        found = entry_of(folder.filesystem, folder.root, entry.path, entry.run)
    except (OSError, pa.ArrowException, KeyError) as error:  # pyarrow has OSErrors for damage, too
        return _findings(_kind_of_unread(folder, entry), entry, f"it cannot be read: {error}")
    if found.crc != entry.crc:
        return _findings(DAMAGED_FILE, entry, f"its CRC-32 is {found.crc:08x} and should be {entry.crc:08x}")
    if found != entry:
        return _findings(WRONG_ENTRY, entry, "its rows are not those that the manifest says")
    return []


def _kind_of_unread(folder: ArchiveFolder, entry: FileEntry) -> str:
    """Return the kind of a file whose rows cannot be read."""
    try:
        crc_of(folder.filesystem, f"{folder.root}/{entry.path}")
    except OSError:
        return UNREADABLE_FILE
    return DAMAGED_FILE


def overlap_findings(manifest: Manifest) -> list[Finding]:
    """Return the offsets that are in the archive twice."""
    return [
        Finding(OVERLAP, one.queue, one.first, one.last, one.files[0], f"also in {one.files[1]}")
        for one in manifest.doubled()
    ]


def _findings(kind: str, entry: FileEntry, detail: str) -> list[Finding]:
    return [Finding(kind, entry.queue(part), part.first, part.last, entry.path, detail) for part in entry.queues]
