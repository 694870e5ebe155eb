"""A Parquet file of an archive → its entry in the manifest, without Spark.

The checksum of a message is bodyCrc × (2 × queueOffset + 1), that of several the sum, modulo 2**64. It tells apart sets
of messages in which one is missing, there twice, altered or in another place, whatever their order.
"""

import zlib
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs

from maxq.pipeline.archive.manifest import FileEntry, QueuePart
from maxq.pipeline.archive.ranges import Range

#: Columns that every archive has, because without them nothing can be verified.
NEEDED_COLUMNS: Final = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "bodyCrc")
_READ: Final = ("brokerName", "queueId", "queueOffset", "storeTimestamp", "bodyCrc")
_BLOCK: Final = 4 << 20

Integers = NDArray[np.int64]


def crc_of(filesystem: fs.FileSystem, path: str) -> tuple[int, int]:
    """Return (CRC-32, size in bytes) of a file. Raises OSError."""
    crc, size = 0, 0
    with filesystem.open_input_stream(path) as file:
        while block := file.read(_BLOCK):
            crc = zlib.crc32(block, crc)
            size += len(block)
    return crc, size


def partition_of(path: str) -> tuple[str, str]:
    """Return (topic, date) of a data file, from its folders `topic=…/date=…`."""
    values = dict(folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder)
    return unquote(values["topic"]), unquote(values["date"])


def entry_of(filesystem: fs.FileSystem, root: str, path: str, run: str) -> FileEntry:
    """Return the manifest's entry for the file `path` below `root`.

    Raises:
        OSError, pyarrow.ArrowInvalid: it cannot be read, or is not a Parquet file.
    """
    full = f"{root}/{path}"
    crc, size = crc_of(filesystem, full)
    with filesystem.open_input_file(full) as file:
        table = pq.ParquetFile(file).read(columns=list(_READ))
    bounds: dict[str, Any] = pc.min_max(times_of(table)).as_py()
    topic, date = partition_of(path)
    return FileEntry(
        path, topic, date, table.num_rows, size, crc,
        (bounds["min"] or 0) // 1000, (bounds["max"] or 0) // 1000, run, queue_parts(table),
    )  # fmt: skip


def times_of(table: pa.Table) -> pa.ChunkedArray:
    """Return the column storeTimestamp in microseconds since 1970, whatever unit a file has it in."""
    return table["storeTimestamp"].cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64())


def queue_parts(table: pa.Table) -> tuple[QueuePart, ...]:
    """Return the parts of a table with the columns brokerName, queueId, queueOffset, bodyCrc, sorted by broker and
    queue."""
    brokers = pc.dictionary_encode(table["brokerName"]).combine_chunks()
    if isinstance(brokers, pa.ChunkedArray):
        brokers = pa.concat_arrays(brokers.chunks)
    names = brokers.dictionary.to_pylist()
    numbers = brokers.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    ids = table["queueId"].to_numpy().astype(np.int64)
    offsets = table["queueOffset"].to_numpy().astype(np.int64)
    crcs = table["bodyCrc"].to_numpy().astype(np.int64)
    order = np.lexsort((offsets, ids, numbers))
    numbers, ids, offsets, crcs = numbers[order], ids[order], offsets[order], crcs[order]
    marks = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(ids) != 0)) + 1
    found = []
    for first, last in zip([0, *marks.tolist()], [*marks.tolist(), len(ids)], strict=True):
        if first < last:
            part = slice(first, last)
            found.append(
                QueuePart(
                    names[numbers[first]],
                    int(ids[first]),
                    _islands(offsets[part]),
                    last - first,
                    checksum(offsets[part], crcs[part]),
                )
            )
    return tuple(sorted(found, key=lambda part: (part.broker, part.queue_id)))


def checksum(offsets: Integers, crcs: Integers) -> int:
    """Return the check sum of a part; see the module's text."""
    words = (crcs & 0xFFFFFFFF).astype(np.uint64) * (2 * offsets.astype(np.uint64) + np.uint64(1))
    return int(words.sum(dtype=np.uint64))


def _islands(offsets: Integers) -> tuple[Range, ...]:
    """Return the ranges of consecutive offsets among sorted ones."""
    marks = np.flatnonzero(np.diff(offsets) > 1)
    firsts = offsets[np.concatenate(([0], marks + 1))]
    lasts = offsets[np.concatenate((marks, [len(offsets) - 1]))]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))
