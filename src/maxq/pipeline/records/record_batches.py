"""Records of the log → Arrow record batches of message columns.

Both ways of reading end here: the answers of pulls and the files of a store hold the same records. Fixed-width columns
are slices of the scanner's table, the others are gathered by arrow_cy; nothing is done per message in Python but for
bodies that came compressed and for host names, of which there are few.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from maxq.errors import RemoteProtocolError
from maxq.pipeline.records import arrow_cy as ac
from maxq.pipeline.records.schemas import arrow_schema, base_column
from maxq.protocol.message.compression import compression_type, decompress
from maxq.protocol.message.message_id import host_text
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.store.log import record_cy as rc

Rows = NDArray[np.int64]

#: A batch has at most so many rows and about so many bytes of bodies: large enough that the interface to Spark costs
#: little a row, small enough that the tables of a batch take the memory of the last one's: with twice as many rows
#: the allocator gives it back and has it zeroed again, four times as many page faults.
MAX_ROWS: Final = 8_192
MAX_BYTES: Final = 8 * 1024 * 1024
#: Rows of a batch that has numbers and times only.
MAX_NARROW_ROWS: Final = 32_768

#: Columns of a row → columns of the table.
INTEGERS: Final = {
    "queueId": rc.C_QUEUE_ID,
    "queueOffset": rc.C_QUEUE_OFFSET,
    "physicalOffset": rc.C_PHYSICAL_OFFSET,
    "sysFlag": rc.C_SYS_FLAG,
    "flag": rc.C_FLAG,
    "reconsumeTimes": rc.C_RECONSUME_TIMES,
    "preparedTransactionOffset": rc.C_PREPARED_OFFSET,
    "bodyCrc": rc.C_BODY_CRC,
}
#: The same of times; the table has milliseconds.
TIMESTAMPS: Final = {"bornTimestamp": rc.C_BORN_TIMESTAMP, "storeTimestamp": rc.C_STORE_TIMESTAMP}
#: Columns of a row that are positions in the buffer which was scanned.
POSITION_COLUMNS: Final = (
    rc.C_POSITION, rc.C_BODY_POSITION, rc.C_TOPIC_POSITION, rc.C_PROPERTIES_POSITION, rc.C_BORN_HOST_POSITION,
    rc.C_STORE_HOST_POSITION,
)  # fmt: skip
_MOST_MS: Final = ((1 << 63) - 1) // 1000
_PROPERTIES: Final = {"tags": ac.P_TAGS, "keys": ac.P_KEYS, "uniqKey": ac.P_UNIQUE}
_NOTHING: Final = bytearray()
_PAIRS: Final = pa.map_(pa.string(), pa.string())


def scan_rows(
    view: memoryview, start: int, end: int, file_from_offset: int, room: int | Rows, **checks: bool
) -> tuple[Rows, int, int]:
    """Scan records as `record_cy.scan` does, with its table as an array.

    Args:
        room: for so many records, or the table to be filled.

    Returns:
        int64 table (records × SCAN_WIDTH), position behind the last good record, reason to stop.
    """
    rows = np.empty(room * rc.SCAN_WIDTH, np.int64) if isinstance(room, int) else room
    count, position, reason = rc.scan(view, start, end, file_from_offset, rows, **checks)
    return rows[: count * rc.SCAN_WIDTH].reshape(count, rc.SCAN_WIDTH), position, reason


def microseconds(milliseconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert times in ms since 1970 to Spark's timestamps. A client may give any time of birth, and a damaged file has
    any time: times before the first or behind the last possible timestamp become that timestamp."""
    found: NDArray[np.int64] = np.clip(milliseconds, -_MOST_MS, _MOST_MS) * 1000
    return found


def microsecond(milliseconds: int) -> int:
    """Convert a time from ms to µs, limited to what a timestamp of Spark can hold."""
    return max(-_MOST_MS, min(milliseconds, _MOST_MS)) * 1000


def is_narrow(columns: Iterable[str]) -> bool:
    """Tell whether all columns hold numbers and times only."""
    return all(name in INTEGERS or name in TIMESTAMPS for name in map(base_column, columns))


class RecordBatches:
    """Makes Arrow batches of the same columns.

    Attributes:
        max_rows: of a batch.
    """

    def __init__(self, columns: Sequence[str], broker_name: str) -> None:
        """
        Args:
            columns: names of schemas.MESSAGE_COLUMNS and KAFKA_COLUMNS, in the order of the batch.
            broker_name: what the column brokerName says.
        """
        self._columns = tuple(columns)
        self._bases = tuple(map(base_column, columns))
        self._is_narrow = is_narrow(columns)
        self.max_rows = MAX_NARROW_ROWS if self._is_narrow else MAX_ROWS
        self.schema = arrow_schema(columns)
        self._broker_name = broker_name

    def batches(self, view: memoryview, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Batches of at most `max_rows` rows and, unless one message is larger or they are narrow, about MAX_BYTES
        bytes of log."""
        if self._is_narrow:
            for first in range(0, len(rows), self.max_rows):
                yield self.batch(view, rows[first : first + self.max_rows])
            return
        first = 0
        ends = np.cumsum(rows[:, rc.C_SIZE])
        while first < len(rows):
            before = ends[first - 1] if first else 0
            last = int(np.searchsorted(ends, before + MAX_BYTES, "right"))
            last = min(max(last, first + 1), first + self.max_rows, len(rows))
            yield self.batch(view, rows[first:last])
            first = last

    def batch(self, view: memoryview, rows: Rows) -> pa.RecordBatch:
        """One batch of all `rows`, whose positions are positions in `view`."""
        count = len(rows)
        table = np.ascontiguousarray(rows).reshape(-1)
        found: Rows | None = None
        pairs = 0
        if any(name in _PROPERTIES or name == "properties" for name in self._bases):
            found = np.empty(count * ac.PROPERTY_WIDTH, np.int64)
            pairs = ac.find_properties(view, table, count, found)
        arrays: list[pa.Array] = []
        for asked, name, kind in zip(self._columns, self._bases, self.schema.types, strict=True):
            if name in INTEGERS:
                column = rows[:, INTEGERS[name]]
                arrays.append(pa.array(column.astype(np.int32 if kind == pa.int32() else np.int64)))
            elif name in TIMESTAMPS:
                arrays.append(pa.array(microseconds(rows[:, TIMESTAMPS[name]])).view(kind))  # a cast costs an import
            elif name == "body":
                arrays.append(self._bodies(view, rows, table))
            elif name == "topic":
                arrays.append(_strings(view, table, rc.SCAN_WIDTH, rc.C_TOPIC_POSITION, count))
            elif name == "brokerName":
                arrays.append(pa.repeat(self._broker_name, count))
            elif name == "msgId":
                arrays.append(_message_ids(view, rows, table))
            elif name == "bornHost":
                arrays.append(self._host_names(view, rows, rc.C_BORN_HOST_POSITION, MessageSysFlag.BORN_HOST_V6))
            elif name == "storeHost":
                arrays.append(self._host_names(view, rows, rc.C_STORE_HOST_POSITION, MessageSysFlag.STORE_HOST_V6))
            elif asked == "headers":
                arrays.append(_headers(_property_maps(view, table, count, pairs, _PAIRS), kind))
            elif name == "properties":
                arrays.append(_property_maps(view, table, count, pairs, kind))
            elif asked == "key":
                assert found is not None
                arrays.append(_gather(view, _NOTHING, found, ac.PROPERTY_WIDTH, ac.P_KEYS, count, kind))
            elif name == "keys":
                assert found is not None
                arrays.append(_words(view, found, ac.PROPERTY_WIDTH, ac.P_KEYS, count, kind))
            else:
                assert found is not None
                arrays.append(_strings(view, found, ac.PROPERTY_WIDTH, _PROPERTIES[name], count))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _bodies(self, view: memoryview, rows: Rows, table: Rows) -> pa.Array:
        """Build the column of bodies as the producer sent them; one that cannot be decompressed stays as it is in the
        log."""
        compressed = np.flatnonzero(rows[:, rc.C_SYS_FLAG] & MessageSysFlag.COMPRESSED)
        if not len(compressed):
            return _gather(view, _NOTHING, table, rc.SCAN_WIDTH, rc.C_BODY_POSITION, len(rows), pa.binary())
        places = np.ascontiguousarray(rows[:, [rc.C_BODY_POSITION, rc.C_BODY_SIZE]])
        extra = bytearray()
        for row in compressed.tolist():
            position, size = places[row].tolist()
            try:
                body = decompress(view[position : position + size], compression_type(int(rows[row, rc.C_SYS_FLAG])))
            except RemoteProtocolError:
                continue
            places[row] = (ac.EXTRA + len(extra), len(body))
            extra += body
        return _gather(view, extra, places.reshape(-1), 2, 0, len(rows), pa.binary())

    def _host_names(self, view: memoryview, rows: Rows, column: int, v6_flag: int) -> pa.Array:
        """Build a column of `address:port`; there are few different values."""
        count = len(rows)
        if np.any(rows[:, rc.C_SYS_FLAG] & v6_flag):
            sizes = np.where(rows[:, rc.C_SYS_FLAG] & v6_flag, 20, 8).tolist()
            packed = [bytes(view[at : at + size]) for at, size in zip(rows[:, column].tolist(), sizes, strict=True)]
            names = {host: host_text(host) for host in set(packed)}
            return pa.array([names[host] for host in packed], pa.string())
        table = np.column_stack((rows[:, column], np.full(count, 8, np.int64))).reshape(-1)
        words = np.empty(8 * count, np.uint8)
        ac.gather(view, _NOTHING, table, 2, 0, count, np.empty(count + 1, np.int32), words, np.empty(0, np.uint8))
        hosts, numbers = np.unique(words.view(np.uint64), return_inverse=True)
        texts = pa.array([host_text(host.tobytes()) for host in hosts], pa.string())
        return pa.DictionaryArray.from_arrays(numbers.astype(np.int32), texts).dictionary_decode()


def _gather(
    view: memoryview, extra: bytearray, table: Rows, width: int, column: int, count: int, kind: pa.DataType
) -> pa.Array:
    size, missing = ac.measure(table, width, column, count)
    if size >= 1 << 31:
        raise RemoteProtocolError(f"{count} values have {size} bytes together; a batch holds less than 2 GiB")
    offsets = np.empty(count + 1, np.int32)
    data = pa.allocate_buffer(size)  # Arrow's pool keeps pages that were touched; fresh ones cost more than the copy
    validity = np.zeros((count + 7) // 8, np.uint8) if missing else np.empty(0, np.uint8)
    ac.gather(view, extra, table, width, column, count, offsets, np.frombuffer(data, np.uint8), validity)
    bits = pa.py_buffer(validity) if missing else None
    return pa.Array.from_buffers(kind, count, [bits, pa.py_buffer(offsets), data], missing)


def _strings(view: memoryview, table: Rows, width: int, column: int, count: int) -> pa.Array:
    """Make a column of texts. Bytes that are not UTF-8 are replaced, as the codec of single messages does."""
    values = _gather(view, _NOTHING, table, width, column, count, pa.string())
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raw = values.cast(pa.binary()).to_pylist()
        return pa.array([None if text is None else text.decode("utf-8", "replace") for text in raw], pa.string())
    return values


def _words(view: memoryview, table: Rows, width: int, column: int, count: int, kind: pa.DataType) -> pa.Array:
    words = np.empty(2 * ac.count_words(view, table, width, column, count), np.int64)
    list_offsets = np.zeros(count + 1, np.int32)
    number = ac.split_words(view, table, width, column, count, words, list_offsets)
    values = _strings(view, words, 2, 0, number)
    return pa.ListArray.from_arrays(pa.array(list_offsets), values, type=kind)


def _property_maps(view: memoryview, table: Rows, count: int, pairs: int, kind: pa.DataType) -> pa.Array:
    places = np.empty(4 * pairs, np.int64)
    list_offsets = np.zeros(count + 1, np.int32)
    number = ac.split_properties(view, table, count, places, list_offsets)
    names = _strings(view, places, 4, 0, number)
    values = _strings(view, places, 4, 2, number)
    return pa.MapArray.from_arrays(pa.array(list_offsets), names, values, type=kind)


def _headers(properties: pa.MapArray, kind: pa.DataType) -> pa.Array:
    """Build the properties in the form of headers of Spark's Kafka source."""
    pairs = pa.StructArray.from_arrays([properties.keys, properties.items.cast(pa.binary())], ["key", "value"])
    return pa.ListArray.from_arrays(properties.offsets, pairs, type=kind)


def _message_ids(view: memoryview, rows: Rows, table: Rows) -> pa.Array:
    count = len(rows)
    v6 = np.count_nonzero(rows[:, rc.C_SYS_FLAG] & MessageSysFlag.STORE_HOST_V6)
    offsets = np.empty(count + 1, np.int32)
    data = np.empty(32 * count + 24 * int(v6), np.uint8)
    ac.message_ids(view, table, count, offsets, data)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)], 0)
