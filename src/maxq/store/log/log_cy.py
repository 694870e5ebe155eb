"""The writing end of the CommitLog: the compiled heart of the store.

`LogTail` knows the newest file and the position in it, and writes one record or one DLedger entry there. What makes
records of many sends goes through its `write_front` and `end_record`: log_rows_cy (rows of fast-path sends) and
log_transactions_cy (half messages and final messages). dispatch_cy dispatches the written records. Format of a record:
record_layout.py; of an entry: dledger/entries_cy.py.
"""

from typing import TYPE_CHECKING

from isal.isal_zlib import crc32

from maxq.store.log.crc32_function import address
from maxq.store.log.record_cy import crc31, encode_prop_crc

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.libc.string import memcpy
    from cython.cimports.maxq.protocol.message import record_layout as layout
    from cython.cimports.maxq.runtime.buffers import copy_bytes, put32, put64, put_bytes
    from cython.cimports.maxq.store.log.crc32_function import maxq_crc32_t
    from cython.cimports.maxq.store.log.tails_cy import TopicMemory

    _crc32 = cython.declare(maxq_crc32_t, cython.cast(maxq_crc32_t, cython.cast(cython.size_t, address())))
else:
    from maxq.protocol.message import record_layout as layout
    from maxq.runtime.buffers import copy_bytes, put32, put64, put_bytes
    from maxq.store.log.tails_cy import TopicMemory

if TYPE_CHECKING:
    from maxq.store.log.tails_cy import TopicWriteState


@cython.cclass
class LogTail:
    """The writing end of the CommitLog: the newest mapped file and the position in it."""

    def __init__(self):
        self.wrote_position = self.file_from_offset = self.file_size = 0
        self.head = 0
        self.next_index = self.term = 0
        self.full = False
        self.topic_memory = TopicMemory()
        self.final_topic = None

    def attach(
        self,
        view,  # type: memoryview | None
        file_from_offset,  # type: int
        file_size,  # type: int
        position,  # type: int
    ):
        # type: (...) -> None
        self._view = view
        self.file_from_offset = file_from_offset
        self.file_size = 0 if view is None else file_size
        self.wrote_position = position
        if view is not None:
            if cython.compiled:
                self.buf = cython.address(self._view[0])
            else:
                self.buf = view

    @property
    def max_offset(self):
        # type: (...) -> int
        """Physical offset behind the last byte that was written."""
        return self.file_from_offset + self.wrote_position

    def forget_topic(self):
        # type: (...) -> None
        """Drop the remembered TopicWriteState: it was replaced or removed."""
        self.topic_memory.forget()

    def close_file(self):
        # type: (...) -> None
        """Write the BLANK record, or DLedger's filler, over the rest of the file; wrote_position becomes file_size."""
        if self.head and self.file_size - self.wrote_position >= 8:
            put32(self.buf, self.wrote_position, -1)
            put32(self.buf, self.wrote_position + 4, self.file_size - self.wrote_position)
        elif self.file_size - self.wrote_position >= 8:
            put32(self.buf, self.wrote_position, self.file_size - self.wrote_position)
            put32(self.buf, self.wrote_position + layout.MAGIC, layout.MAGIC_BLANK)
        self.wrote_position = self.file_size

    @cython.cfunc
    @cython.exceptval(check=False)
    def close_entry(self, p: cython.longlong, body_size: cython.longlong, index: cython.longlong) -> cython.void:
        """Put the header in front of an entry whose body stands 48 bytes behind p, its first field last. bodyCrc and
        chainCrc, which Java leaves 0, are filled in (dledger/entries_cy.py)."""
        buf: cython.p_uchar = self.buf
        put32(buf, p + 4, body_size + 48)
        put64(buf, p + 8, index)
        put64(buf, p + 16, self.term)
        put64(buf, p + 24, self.file_from_offset + p)
        put32(buf, p + 32, 0)
        put32(buf, p + 44, body_size)
        if cython.compiled:
            put32(buf, p + 40, _crc32(0, buf + p + 48, body_size))
            put32(buf, p + 36, _crc32(_crc32(0, buf + p + 4, 32), buf + p + 40, 8))
        else:
            put32(buf, p + 40, crc32(buf[p + 48 : p + 48 + body_size]))
            put32(buf, p + 36, crc32(buf[p + 40 : p + 48], crc32(buf[p + 4 : p + 36])))
        put32(buf, p, 1)

    def append_entry(
        self,
        body: cython.const[cython.uchar][::1],  # type: bytes | memoryview
    ):
        # type: (...) -> int
        """Write an entry with this body. Returns its size, or -1 when it does not fit in this file with 8 bytes to
        spare (nothing written)."""
        body_size: cython.longlong = len(body)
        p: cython.longlong = self.wrote_position
        if body_size + 48 + 8 > self.file_size - p:
            return -1
        if body_size:
            if cython.compiled:
                memcpy(self.buf + p + 48, cython.cast(cython.p_uchar, cython.address(body[0])), body_size)
            else:
                self.buf[p + 48 : p + 48 + body_size] = body
        self.close_entry(p, body_size, self.next_index)
        self.next_index += 1
        self.wrote_position = p + 48 + body_size
        return body_size + 48

    @cython.cfunc
    @cython.exceptval(check=False)
    def write_front(
        self,
        p: cython.longlong,
        total: cython.longlong,
        body_crc: cython.longlong,
        queue_id: cython.longlong,
        flag: cython.longlong,
        queue_offset: cython.longlong,
        sys_flag: cython.longlong,
        born_timestamp: cython.longlong,
        born_host: cython.p_uchar,
        born_size: cython.Py_ssize_t,
        store_timestamp: cython.longlong,
        store_host: cython.p_uchar,
        store_size: cython.Py_ssize_t,
        reconsume_times: cython.longlong,
        prepared_offset: cython.longlong,
        body: cython.p_uchar,
        body_at: cython.Py_ssize_t,
        body_size: cython.longlong,
        topic: cython.p_uchar,
        topic_at: cython.Py_ssize_t,
        topic_size: cython.longlong,
        properties_size: cython.longlong,
    ) -> cython.longlong:
        """Write all of the record at p except its properties; the record is V2 if its topic is over 127 bytes. Returns
        the position at which the properties begin."""
        buf: cython.p_uchar = self.buf
        v2: cython.bint = topic_size > 127
        put32(buf, p + layout.TOTAL_SIZE, total)
        put32(buf, p + layout.MAGIC, layout.MAGIC_V2 if v2 else layout.MAGIC_V1)
        put32(buf, p + layout.BODY_CRC, body_crc)
        put32(buf, p + layout.QUEUE_ID, queue_id)
        put32(buf, p + layout.FLAG, flag)
        put64(buf, p + layout.QUEUE_OFFSET, queue_offset)
        put64(buf, p + layout.PHYSICAL_OFFSET, self.file_from_offset + p)
        put32(buf, p + layout.SYS_FLAG, sys_flag)
        put64(buf, p + layout.BORN_TIMESTAMP, born_timestamp)
        copy_bytes(buf, p + layout.BORN_HOST, born_host, 0, born_size)
        p += layout.BORN_HOST + born_size
        put64(buf, p, store_timestamp)
        copy_bytes(buf, p + 8, store_host, 0, store_size)
        p += 8 + store_size
        put32(buf, p, reconsume_times)
        put64(buf, p + 4, prepared_offset)
        put32(buf, p + 12, body_size)
        copy_bytes(buf, p + 16, body, body_at, body_size)
        p += 16 + body_size
        if v2:
            buf[p] = topic_size >> 8
            p += 1
        buf[p] = topic_size & 0xFF
        copy_bytes(buf, p + 1, topic, topic_at, topic_size)
        p += 1 + topic_size
        buf[p] = properties_size >> 8
        buf[p + 1] = properties_size & 0xFF
        return p + 2

    @cython.cfunc
    @cython.exceptval(check=False)
    def end_record(self, p: cython.longlong, total: cython.longlong) -> cython.void:
        """Note that the record at p was written and is now the last of the log."""
        if self.head:
            self.close_entry(p - 48, total, self.next_index)
            self.next_index += 1
        self.wrote_position = p + total

    def append_record(
        self,
        topic: bytes,
        queue_id: cython.int,
        flag: cython.longlong,
        queue_offset: cython.longlong,
        sys_flag: cython.longlong,
        born_timestamp: cython.longlong,
        born_host: bytes,
        store_timestamp: cython.longlong,
        store_host: bytes,
        reconsume_times: cython.longlong,
        prepared_transaction_offset: cython.longlong,
        body: cython.const[cython.uchar][::1],  # type: bytes | memoryview
        properties: bytes,
        body_crc: cython.longlong,
        append_prop_crc: cython.bint,
    ):
        # type: (...) -> int
        """Write one record (V2 if topic is over 127 bytes). Returns its size, or -1 when it does not fit in this file
        with 8 bytes to spare (nothing written: call `close_file`, attach the next file, call again).
        born_host and store_host are 8 or 20 bytes (address, 4-byte port); the IPv6 bits of sys_flag must agree.
        append_prop_crc: put the `__CRC32#` property at the end."""
        body_size: cython.longlong = len(body)
        topic_size: cython.longlong = len(topic)
        properties_size: cython.longlong = len(properties)
        if append_prop_crc and properties_size and not properties.endswith(b"\x02"):
            properties += b"\x02"
            properties_size += 1
        reserved: cython.longlong = 20 if append_prop_crc else 0
        total: cython.longlong = (
            layout.FIXED_SIZE
            + len(born_host)
            + len(store_host)
            + body_size
            + topic_size
            + (1 if topic_size > 127 else 0)
            + properties_size
            + reserved
        )
        p: cython.longlong = self.wrote_position + self.head
        if total + 8 > self.file_size - p:
            return -1
        born: cython.p_uchar
        store: cython.p_uchar
        name: cython.p_uchar
        source: cython.p_uchar
        if cython.compiled:
            born = cython.cast(cython.p_uchar, cython.cast(cython.p_char, born_host))
            store = cython.cast(cython.p_uchar, cython.cast(cython.p_char, store_host))
            name = cython.cast(cython.p_uchar, cython.cast(cython.p_char, topic))
            source = cython.cast(cython.p_uchar, cython.address(body[0])) if body_size else name
        else:
            born, store, name, source = born_host, store_host, topic, body
        q: cython.longlong = self.write_front(
            p,
            total,
            body_crc,
            queue_id,
            flag,
            queue_offset,
            sys_flag,
            born_timestamp,
            born,
            len(born_host),
            store_timestamp,
            store,
            len(store_host),
            reconsume_times,
            prepared_transaction_offset,
            source,
            0,
            body_size,
            name,
            0,
            topic_size,
            properties_size + reserved,
        )
        q = put_bytes(self.buf, q, properties)
        if append_prop_crc:
            crc = crc31(memoryview(self._view)[p:q])
            put_bytes(self.buf, q, b"__CRC32#\x01" + encode_prop_crc(crc) + b"\x02")
        self.end_record(p, total)
        return total


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
