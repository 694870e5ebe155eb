"""Records of the log → Arrow record batches of message columns.

Both ways of reading end here: the answers of pulls and the files of a store hold the same records. The scanner's table
says where the parts of each lie, and maxq.arrow.columns_cy makes columns of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from maxq.arrow.columns_cy import ColumnBuilder, ColumnMemory
from maxq.arrow.schemas import arrow_schema, base_column
from maxq.store.log import record_cy as rc

Rows = NDArray[np.int64]

#: A batch has at most so many rows and about so many bytes of bodies: large enough that the interface to Spark costs
#: little a row, small enough that the tables of a batch take the memory of the last one's: with twice as many rows
#: the allocator gives it back and has it zeroed again, four times as many page faults.
MAX_ROWS: Final = 8_192
MAX_BYTES: Final = 8 * 1024 * 1024
#: Rows of a batch that has numbers and times only.
MAX_NARROW_ROWS: Final = 32_768
#: Bytes of bodies after which a batch ends: compressed bodies may be a thousandth of their size.
ENOUGH_BYTES: Final = 32 * 1024 * 1024

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
#: The same for columns of time, which are in milliseconds in a row.
TIMESTAMPS: Final = {"bornTimestamp": rc.C_BORN_TIMESTAMP, "storeTimestamp": rc.C_STORE_TIMESTAMP}
#: Columns of a row that are positions in the buffer which was scanned.
POSITION_COLUMNS: Final = (
    rc.C_POSITION, rc.C_BODY_POSITION, rc.C_TOPIC_POSITION, rc.C_PROPERTIES_POSITION, rc.C_BORN_HOST_POSITION,
    rc.C_STORE_HOST_POSITION,
)  # fmt: skip
_MOST_MS: Final = ((1 << 63) - 1) // 1000


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
            columns: names of columns of schemas, in the order of the batch.
            broker_name: what the column brokerName says.
        """
        self._columns = tuple(columns)
        self._is_narrow = is_narrow(columns)
        self.max_rows = MAX_NARROW_ROWS if self._is_narrow else MAX_ROWS
        self.schema = arrow_schema(columns)
        self._broker_name = broker_name.encode()
        self._memory = ColumnMemory()

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
            yield from self._that_fit(view, rows[first:last])
            first = last

    def _that_fit(self, view: memoryview, rows: Rows) -> Iterator[pa.RecordBatch]:
        """One batch of these rows, or several where their bodies, which came compressed, are large."""
        while len(rows):
            batch = self.batch(view, rows)
            yield batch
            rows = rows[batch.num_rows :]

    def batch(self, view: memoryview, rows: Rows) -> pa.RecordBatch:
        """One batch of `rows`, whose positions are positions in `view`: of all of them, or of the first ones, if their
        bodies, which came compressed, are enough."""
        size = int(rows[:, rc.C_SIZE].sum())
        builder = ColumnBuilder(self._columns, len(rows), size, None, self._memory, ENOUGH_BYTES)
        builder.add_rows(view, np.ascontiguousarray(rows).reshape(-1), len(rows), self._broker_name)
        return builder.batch()
