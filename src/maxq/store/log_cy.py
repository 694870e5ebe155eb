"""Append to the CommitLog: the compiled heart of the store.

`LogTail` writes records at the end of the log and takes their queue offsets from `QueueTail` (tails_cy). Send rows (a
batch of plain sends that protocol/send_scanner_cy read straight from the receive buffer) and single records from the
general path go through the same `_write_head`. What is written is dispatched by dispatch_cy. Format of a record:
record_cy.py.
"""

from isal.isal_zlib import crc32

from maxq.store.crc32_function import address
from maxq.store.record_cy import encode_prop_crc

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.libc.string import memcmp, memcpy
    from cython.cimports.maxq.runtime.buffers import copy_bytes, i32, i64, put32, put64, put_bytes, same_bytes, u32
    from cython.cimports.maxq.store.crc32_function import maxq_crc32_t
    from cython.cimports.maxq.store.tails_cy import QueueTail, TopicTail

    _crc32 = cython.declare(maxq_crc32_t, cython.cast(maxq_crc32_t, cython.cast(cython.size_t, address())))
else:
    from maxq.runtime.buffers import copy_bytes, i32, i64, put32, put64, put_bytes, same_bytes, u32
    from maxq.store.tails_cy import QueueTail, TopicTail

_HALF_TOPIC = b"RMQ_SYS_TRANS_HALF_TOPIC"
#: Properties of a half message that make its final message a matter of the general way.
_NOT_PLAINLY_FINAL = frozenset(
    b"DELAY CHECK_IMMUNITY_TIME_IN_SECONDS TRAN_PREPARED_QUEUE_OFFSET __CRC32# INNER_NUM INNER_BASE "
    b"INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS "
    b"TIMER_DEL_UNIQKEY TIMER_ROLL_TIMES".split()
)

_MAX_PROPERTIES = cython.declare(cython.int, 32767)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _crc31(buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.uint:
    """UtilAll.crc32 of buf[p : p + size]."""
    if not cython.compiled:
        return crc32(buf[p : p + size]) & 0x7FFFFFFF
    return _crc32(0, buf + p, size) & 0x7FFFFFFF


@cython.cclass
class LogTail:
    """The writing end of the CommitLog (see log_cy.pyi)."""

    wrote_position = cython.declare(cython.longlong, visibility="public")
    file_from_offset = cython.declare(cython.longlong, visibility="public")
    file_size = cython.declare(cython.longlong, visibility="public")
    full = cython.declare(cython.bint, visibility="public")
    head = cython.declare(cython.int, visibility="public")
    next_index = cython.declare(cython.longlong, visibility="public")
    term = cython.declare(cython.longlong, visibility="public")
    final_topic = cython.declare(TopicTail, visibility="public")
    _view = cython.declare(cython.uchar[::1])
    _buf = cython.declare(cython.p_uchar)
    _topic = cython.declare(TopicTail)  # of the last row: the next one is most often of the same topic

    def __init__(self):
        self.wrote_position = self.file_from_offset = self.file_size = 0
        self.head = 0
        self.next_index = self.term = 0
        self.full = False
        self._topic = None
        self.final_topic = None

    def attach(self, view, file_from_offset, file_size, position):
        self._view = view
        self.file_from_offset = file_from_offset
        self.file_size = 0 if view is None else file_size
        self.wrote_position = position
        if view is not None:
            if cython.compiled:
                self._buf = cython.address(self._view[0])
            else:
                self._buf = view

    @property
    def max_offset(self):
        return self.file_from_offset + self.wrote_position

    def close_file(self):
        """Write BLANK, or DLedger's filler, over the rest of the file."""
        if self.head and self.file_size - self.wrote_position >= 8:
            put32(self._buf, self.wrote_position, -1)
            put32(self._buf, self.wrote_position + 4, self.file_size - self.wrote_position)
        elif self.file_size - self.wrote_position >= 8:
            put32(self._buf, self.wrote_position, self.file_size - self.wrote_position)
            put32(self._buf, self.wrote_position + 4, 0xCBD43194)
        self.wrote_position = self.file_size

    @cython.cfunc
    @cython.exceptval(check=False)
    def _close_entry(self, p: cython.longlong, body_size: cython.longlong, index: cython.longlong) -> cython.void:
        """The body of an entry is there, 48 bytes behind p: put the header in front of it, its first field last.
        bodyCrc and chainCrc, which Java leaves 0, are filled in (dledger/entries_cy.py)."""
        buf: cython.p_uchar = self._buf
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

    def append_entry(self, body: cython.const[cython.uchar][::1]):
        """An entry with any body (see log_cy.pyi)."""
        body_size: cython.longlong = len(body)
        p: cython.longlong = self.wrote_position
        if body_size + 48 + 8 > self.file_size - p:
            return -1
        if body_size:
            if cython.compiled:
                memcpy(self._buf + p + 48, cython.cast(cython.p_uchar, cython.address(body[0])), body_size)
            else:
                self._buf[p + 48 : p + 48 + body_size] = body
        self._close_entry(p, body_size, self.next_index)
        self.next_index += 1
        self.wrote_position = p + 48 + body_size
        return body_size + 48

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _write_head(
        self,
        p: cython.longlong,
        total: cython.longlong,
        v2: cython.bint,
        body_crc: cython.longlong,
        queue_id: cython.int,
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
        body_size: cython.longlong,
    ) -> cython.longlong:
        """Fields 1 to 15 up to BODYLEN; returns the position of the body."""
        buf: cython.p_uchar = self._buf
        put32(buf, p, total)
        put32(buf, p + 4, 0xDAA320AB if v2 else 0xDAA320A7)
        put32(buf, p + 8, body_crc)
        put32(buf, p + 12, queue_id)
        put32(buf, p + 16, flag)
        put64(buf, p + 20, queue_offset)
        put64(buf, p + 28, self.file_from_offset + p)
        put32(buf, p + 36, sys_flag)
        put64(buf, p + 40, born_timestamp)
        copy_bytes(buf, p + 48, born_host, 0, born_size)
        p += 48 + born_size
        put64(buf, p, store_timestamp)
        copy_bytes(buf, p + 8, store_host, 0, store_size)
        p += 8 + store_size
        put32(buf, p, reconsume_times)
        put64(buf, p + 4, prepared_offset)
        put32(buf, p + 12, body_size)
        return p + 16

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
        body: cython.const[cython.uchar][::1],
        properties: bytes,
        body_crc: cython.longlong,
        append_prop_crc: cython.bint,
    ):
        body_size: cython.longlong = len(body)
        topic_size: cython.longlong = len(topic)
        properties_size: cython.longlong = len(properties)
        v2: cython.bint = topic_size > 127
        if append_prop_crc and properties_size and not properties.endswith(b"\x02"):
            properties += b"\x02"
            properties_size += 1
        reserved: cython.longlong = 20 if append_prop_crc else 0
        total: cython.longlong = (
            75
            + len(born_host)
            + len(store_host)
            + body_size
            + topic_size
            + (1 if v2 else 0)
            + properties_size
            + reserved
        )
        p: cython.longlong = self.wrote_position + self.head
        if total + 8 > self.file_size - p:
            return -1
        born: cython.p_uchar
        store: cython.p_uchar
        source: cython.p_uchar
        if cython.compiled:
            born = cython.cast(cython.p_uchar, cython.cast(cython.p_char, born_host))
            store = cython.cast(cython.p_uchar, cython.cast(cython.p_char, store_host))
        else:
            born, store = born_host, store_host
        buf: cython.p_uchar = self._buf
        q: cython.longlong = self._write_head(
            p,
            total,
            v2,
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
            body_size,
        )
        if body_size:
            if cython.compiled:
                source = cython.cast(cython.p_uchar, cython.address(body[0]))
                copy_bytes(buf, q, source, 0, body_size)
            else:
                copy_bytes(buf, q, body, 0, body_size)
        q += body_size
        if v2:
            buf[q] = topic_size >> 8
            q += 1
        buf[q] = topic_size & 0xFF
        q += 1
        put_bytes(self._buf, q, topic)
        q += topic_size
        buf[q] = (properties_size + reserved) >> 8
        buf[q + 1] = (properties_size + reserved) & 0xFF
        q += 2
        put_bytes(self._buf, q, properties)
        q += properties_size
        if append_prop_crc:
            crc = crc32(memoryview(self._view)[p:q]) & 0x7FFFFFFF
            put_bytes(self._buf, q, b"__CRC32#\x01" + encode_prop_crc(crc) + b"\x02")
        if self.head:
            self._close_entry(p - 48, total, self.next_index)
            self.next_index += 1
        self.wrote_position = p + total
        return total

    @cython.cfunc
    def _topic_of(self, topics: dict, source: cython.p_uchar, p: cython.Py_ssize_t, n: cython.Py_ssize_t) -> TopicTail:
        tail: TopicTail = self._topic
        if cython.compiled:
            if (
                tail is not None
                and len(tail.topic_bytes) == n
                and memcmp(cython.cast(cython.p_char, tail.topic_bytes), source + p, n) == 0
            ):
                return tail
            name: bytes = cython.cast(cython.p_char, source + p)[:n]
        else:
            name = bytes(source[p : p + n])
        tail = topics.get(name)
        self._topic = tail
        return tail

    def forget_topic(self):
        """Drop the remembered topic: its TopicTail was replaced."""
        self._topic = None

    @cython.ccall
    def append_rows(
        self,
        source: cython.uchar[::1],
        scratch: cython.uchar[::1],
        rows: cython.longlong[::1],
        first: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        topics: dict,
        born_host: bytes,
        store_host: bytes,
        store_timestamp: cython.longlong,
        suffix: bytes,
        max_message_size: cython.longlong,
    ):
        self.full = False
        if count == 0:
            return 0
        done: cython.Py_ssize_t
        written: cython.longlong
        flags: cython.longlong
        topic: TopicTail
        queue: QueueTail
        queue_id: cython.longlong
        src: cython.p_uchar
        scr: cython.p_uchar
        props: cython.p_uchar
        row: cython.p_longlong
        born: cython.p_uchar
        store: cython.p_uchar
        tail: cython.p_uchar
        if cython.compiled:
            src = cython.address(source[0])
            scr = cython.address(scratch[0])
            born = cython.cast(cython.p_uchar, cython.cast(cython.p_char, born_host))
            store = cython.cast(cython.p_uchar, cython.cast(cython.p_char, store_host))
            tail = cython.cast(cython.p_uchar, cython.cast(cython.p_char, suffix))
        else:
            src, scr, born, store, tail = memoryview(source), scratch, born_host, store_host, suffix
        born_size: cython.Py_ssize_t = len(born_host)
        store_size: cython.Py_ssize_t = len(store_host)
        host_bits: cython.longlong = (0x10 if born_size == 20 else 0) | (0x20 if store_size == 20 else 0)
        for done in range(count):
            if cython.compiled:
                row = cython.address(rows[0]) + (first + done) * 20
            else:
                row = memoryview(rows)[(first + done) * 20 : (first + done + 1) * 20]
            flags = row[0]
            topic = self._topic_of(topics, src, row[2], row[3])
            queue_id = row[4]
            if topic is None or not topic.plain or topic.batch or queue_id < 0 or queue_id > topic.max_queue_id:
                return done
            queue = topic.queues.get(queue_id)
            if queue is None:
                return done
            props = scr if flags & 1 else src
            # the IPv6 bits come from our own sockets, never from the client
            row[5] = (row[5] & ~cython.cast(cython.longlong, 0x30)) | host_bits | (2 if topic.multi_tags else 0)
            if flags & 32:
                written = self._append_half(
                    src,
                    props,
                    row,
                    topics.get(_HALF_TOPIC),
                    born,
                    born_size,
                    store,
                    store_size,
                    store_timestamp,
                    tail,
                    len(suffix),
                    max_message_size,
                )
                if written < 0:
                    return done
                continue
            if flags & 8:
                written = self._append_batch(
                    src, row, topic, queue, born, born_size, store, store_size, store_timestamp, max_message_size
                )
            else:
                written = self._append_one(
                    src,
                    props,
                    row,
                    topic,
                    queue,
                    born,
                    born_size,
                    store,
                    store_size,
                    store_timestamp,
                    tail,
                    len(suffix),
                    max_message_size,
                )
            if written < 0:
                return done
            topic.put_bytes += written
        return count

    def append_arrivals(
        self,
        source: cython.uchar[::1],
        scratch: cython.uchar[::1],
        rows: cython.longlong[::1],
        table: cython.longlong[::1],
        born_hosts: list,
        topics: dict,
        store_host: bytes,
        store_timestamp: cython.longlong,
        suffix: bytes,
        max_message_size: cython.longlong,
    ):
        total: cython.Py_ssize_t = 0
        number: cython.Py_ssize_t
        first: cython.Py_ssize_t
        count: cython.Py_ssize_t
        done: cython.Py_ssize_t
        row: cython.Py_ssize_t
        for number in range(len(born_hosts)):
            first = table[number * 5 + 3]
            count = table[number * 5 + 4]
            done = self.append_rows(
                source, scratch, rows, first, count, topics, born_hosts[number], store_host, store_timestamp, suffix,
                max_message_size,
            )  # fmt: skip
            if done < count:
                table[number * 5 + 2] = rows[(first + done) * 20 + 19]
                table[number * 5 + 4] = done
                for row in range(first + done, first + count):
                    rows[row * 20 + 16] = 0
            total += done
        return total

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _append_one(
        self,
        src: cython.p_uchar,
        props: cython.p_uchar,
        row: cython.p_longlong,
        topic: TopicTail,
        queue: QueueTail,
        born: cython.p_uchar,
        born_size: cython.Py_ssize_t,
        store: cython.p_uchar,
        store_size: cython.Py_ssize_t,
        store_timestamp: cython.longlong,
        suffix: cython.p_uchar,
        suffix_size: cython.Py_ssize_t,
        max_message_size: cython.longlong,
    ) -> cython.longlong:
        """One message. Its size, or -1 when this row needs something else."""
        body_size: cython.longlong = row[11]
        topic_size: cython.longlong = row[3]
        own_size: cython.longlong = row[9]
        mark: cython.longlong = 1 if own_size and props[row[8] + own_size - 1] != 2 else 0
        properties_size: cython.longlong = own_size + mark + suffix_size
        total: cython.longlong = 75 + born_size + store_size + body_size + topic_size + properties_size
        p: cython.longlong = self.wrote_position + self.head
        if body_size > max_message_size or body_size == 0 or properties_size > _MAX_PROPERTIES or topic_size > 127:
            return -1
        if total + 8 > self.file_size - p:
            self.full = True
            return -1
        buf: cython.p_uchar = self._buf
        q: cython.longlong = self._write_head(
            p,
            total,
            False,
            _crc31(src, row[10], body_size),
            row[4],
            row[7],
            queue.next_queue_offset,
            row[5],
            row[6],
            born,
            born_size,
            store_timestamp,
            store,
            store_size,
            row[12],
            0,
            body_size,
        )
        copy_bytes(buf, q, src, row[10], body_size)
        q += body_size
        buf[q] = topic_size
        copy_bytes(buf, q + 1, src, row[2], topic_size)
        q += 1 + topic_size
        buf[q] = properties_size >> 8
        buf[q + 1] = properties_size & 0xFF
        q += 2
        copy_bytes(buf, q, props, row[8], own_size)
        q += own_size
        if mark:
            buf[q] = 2
            q += 1
        copy_bytes(buf, q, suffix, 0, suffix_size)
        row[13] = self.file_from_offset + p
        row[14] = queue.next_queue_offset
        row[15] = total
        row[16] = 1
        queue.next_queue_offset += 1
        if self.head:
            self._close_entry(p - 48, total, self.next_index)
            self.next_index += 1
        self.wrote_position = p + total
        topic.put_nums += 1
        return total

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _append_half(
        self,
        src: cython.p_uchar,
        props: cython.p_uchar,
        row: cython.p_longlong,
        half: TopicTail,
        born: cython.p_uchar,
        born_size: cython.Py_ssize_t,
        store: cython.p_uchar,
        store_size: cython.Py_ssize_t,
        store_timestamp: cython.longlong,
        suffix: cython.p_uchar,
        suffix_size: cython.Py_ssize_t,
        max_message_size: cython.longlong,
    ) -> cython.longlong:
        """A message that opens a transaction, as a half message. Its size, or -1 when this row needs something else."""
        queue: QueueTail = None if half is None else half.queues.get(0)
        if queue is None:
            return -1
        body_size: cython.longlong = row[11]
        topic_size: cython.longlong = row[3]
        own_size: cython.longlong = row[9]
        mark: cython.longlong = 1 if own_size and props[row[8] + own_size - 1] != 2 else 0
        queue_id: bytes = b"\x02REAL_QID\x01%d\x02" % row[4]
        properties_size: cython.longlong = own_size + mark + suffix_size + row[18] + topic_size + 30 + len(queue_id)
        half_size: cython.longlong = len(_HALF_TOPIC)
        total: cython.longlong = 75 + born_size + store_size + body_size + half_size + properties_size
        p: cython.longlong = self.wrote_position + self.head
        if body_size > max_message_size or body_size == 0 or properties_size > _MAX_PROPERTIES:
            return -1
        if total + 8 > self.file_size - p:
            self.full = True
            return -1
        buf: cython.p_uchar = self._buf
        q: cython.longlong = self._write_head(
            p,
            total,
            False,
            _crc31(src, row[10], body_size),
            0,
            row[7],
            queue.next_queue_offset,
            row[5],
            row[6],
            born,
            born_size,
            store_timestamp,
            store,
            store_size,
            row[12],
            0,
            body_size,
        )
        copy_bytes(buf, q, src, row[10], body_size)
        q += body_size
        buf[q] = half_size
        put_bytes(self._buf, q + 1, _HALF_TOPIC)
        q += 1 + half_size
        buf[q] = properties_size >> 8
        buf[q + 1] = properties_size & 0xFF
        q += 2
        copy_bytes(buf, q, props, row[8], own_size)
        q += own_size
        if mark:
            buf[q] = 2
            q += 1
        copy_bytes(buf, q, suffix, 0, suffix_size)
        q += suffix_size
        put_bytes(self._buf, q, b"__transactionId__\x01")
        q += 18
        copy_bytes(buf, q, props, row[17], row[18])
        q += row[18]
        put_bytes(self._buf, q, b"\x02REAL_TOPIC\x01")
        q += 12
        copy_bytes(buf, q, src, row[2], topic_size)
        q += topic_size
        put_bytes(self._buf, q, queue_id)
        row[13] = self.file_from_offset + p
        row[14] = queue.next_queue_offset
        row[15] = total
        row[16] = 1
        queue.next_queue_offset += 1
        if self.head:
            self._close_entry(p - 48, total, self.next_index)
            self.next_index += 1
        self.wrote_position = p + total
        half.put_nums += 1
        half.put_bytes += total
        return total

    def append_final(
        self,
        record: cython.const[cython.uchar][::1],
        group: bytes,
        topics: dict,
        store_timestamp: cython.longlong,
    ):
        """The final message of a half message; see log_cy.pyi."""
        self.full = False
        rec: cython.p_uchar
        if cython.compiled:
            rec = cython.cast(cython.p_uchar, cython.address(record[0]))
        else:
            rec = record
        size: cython.longlong = len(record)
        # 124: what stands before the body's length ends before that, however wide the hosts are
        if size < 124 or u32(rec, 0) != size or u32(rec, 4) != 0xDAA320A7:
            return 0
        sys_flag: cython.longlong = u32(rec, 36)
        born_size: cython.Py_ssize_t = 20 if sys_flag & 0x10 else 8
        store_size: cython.Py_ssize_t = 20 if sys_flag & 0x20 else 8
        stored_at: cython.longlong = 48 + born_size
        p: cython.longlong = stored_at + 8 + store_size  # reconsume times
        body: cython.longlong = p + 16
        body_size: cython.longlong = u32(rec, p + 12)
        at: cython.longlong = body + body_size
        half_size: cython.longlong = len(_HALF_TOPIC)
        if at + 1 + half_size + 2 > size or rec[at] != half_size:
            return 0
        if not same_bytes(rec, at + 1, half_size, _HALF_TOPIC):
            return 0
        at += 1 + half_size
        properties_size: cython.longlong = (rec[at] << 8) | rec[at + 1]
        properties: cython.longlong = at + 2
        end: cython.longlong = properties + properties_size
        if end != size or properties_size > _MAX_PROPERTIES:
            return 0
        topic_at: cython.longlong = 0
        topic_size: cython.longlong = 0
        queue_id: cython.longlong = -1
        is_of_group: cython.bint = False
        mid: cython.longlong
        value_end: cython.longlong
        n: cython.longlong
        name: bytes
        p = properties
        while p < end:
            mid = p
            while mid < end and rec[mid] != 1 and rec[mid] != 2:
                mid += 1
            if mid == end or rec[mid] == 2:
                return 0
            value_end = mid + 1
            while value_end < end and rec[value_end] != 2:
                value_end += 1
            n = mid - p
            if cython.compiled:
                name = cython.cast(cython.p_char, rec + p)[:n]
            else:
                name = bytes(rec[p:mid])
            if n == 10 and name == b"REAL_TOPIC":
                topic_at = mid + 1
                topic_size = value_end - topic_at
            elif n == 8 and name == b"REAL_QID":
                queue_id = self._digits(rec, mid + 1, value_end)
            elif n == 6 and name == b"PGROUP":
                is_of_group = same_bytes(rec, mid + 1, value_end - mid - 1, group)
            elif name in _NOT_PLAINLY_FINAL:
                return 0
            p = value_end + 1
        if not is_of_group or topic_size == 0 or topic_size > 127 or queue_id < 0:
            return 0
        topic: TopicTail = self._topic_of(topics, rec, topic_at, topic_size)
        if topic is None or topic.batch or queue_id > topic.max_queue_id:
            return 0
        queue: QueueTail = topic.queues.get(queue_id)
        if queue is None:
            return 0
        total: cython.longlong = 75 + born_size + store_size + body_size + topic_size + properties_size
        p = self.wrote_position + self.head
        if total + 8 > self.file_size - p:
            self.full = True
            return 0
        buf: cython.p_uchar = self._buf
        born: cython.p_uchar
        store: cython.p_uchar
        at = stored_at + 8 + store_size
        if cython.compiled:
            born, store = rec + 48, rec + stored_at + 8
        else:
            born, store = rec[48:stored_at], rec[stored_at + 8 : at]
        q: cython.longlong = self._write_head(
            p,
            total,
            False,
            u32(rec, 8),
            queue_id,
            u32(rec, 16),
            queue.next_queue_offset,
            (sys_flag & ~cython.cast(cython.longlong, 0xC)) | 8 | (2 if topic.multi_tags else 0),
            i64(rec, 40),
            born,
            born_size,
            store_timestamp,
            store,
            store_size,
            u32(rec, at),
            i64(rec, 28),
            body_size,
        )
        copy_bytes(buf, q, rec, body, body_size)
        q += body_size
        buf[q] = topic_size
        copy_bytes(buf, q + 1, rec, topic_at, topic_size)
        q += 1 + topic_size
        buf[q] = properties_size >> 8
        buf[q + 1] = properties_size & 0xFF
        copy_bytes(buf, q + 2, rec, properties, properties_size)
        queue.next_queue_offset += 1
        if self.head:
            self._close_entry(p - 48, total, self.next_index)
            self.next_index += 1
        self.wrote_position = p + total
        topic.put_nums += 1
        topic.put_bytes += total
        self.final_topic = topic
        return total

    @cython.cfunc
    @cython.exceptval(check=False)
    def _digits(self, buf: cython.p_uchar, p: cython.longlong, end: cython.longlong) -> cython.longlong:
        """A number of at most nine digits; -1 if it is none."""
        value: cython.longlong = 0
        if end <= p or end - p > 9:
            return -1
        while p < end:
            if buf[p] < 0x30 or buf[p] > 0x39:
                return -1
            value = value * 10 + buf[p] - 0x30
            p += 1
        return value

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _append_batch(
        self,
        src: cython.p_uchar,
        row: cython.p_longlong,
        topic: TopicTail,
        queue: QueueTail,
        born: cython.p_uchar,
        born_size: cython.Py_ssize_t,
        store: cython.p_uchar,
        store_size: cython.Py_ssize_t,
        store_timestamp: cython.longlong,
        max_message_size: cython.longlong,
    ) -> cython.longlong:
        """A batch body (per message: size:4 magic:4 crc:4 flag:4 bodylen:4 body proplen:2 props), all of it or nothing.

        Every record has its message's own properties only, byte for byte, as RocketMQ 5.5 stores them; 5.3 put those of
        the request behind them, whose UNIQ_KEY then hid each message's own.
        The bytes written, or -1 when the row needs something else; nothing counts as written then, for wrote_position
        has not moved.
        """
        p: cython.longlong = row[10]
        end: cython.longlong = p + row[11]
        topic_size: cython.longlong = row[3]
        fixed: cython.longlong = 75 + born_size + store_size + topic_size
        q: cython.longlong
        w: cython.longlong = self.wrote_position
        body_size: cython.longlong
        own_size: cython.longlong
        own: cython.longlong
        total: cython.longlong
        number: cython.longlong = 0
        buf: cython.p_uchar = self._buf
        if row[11] > max_message_size or row[11] == 0 or topic_size > 127:
            return -1
        while p < end:
            if end - p < 22:
                return -1
            body_size = i32(src, p + 16)
            if body_size <= 0 or p + 22 + body_size > end:
                return -1
            own = p + 22 + body_size
            own_size = (cython.cast(cython.longlong, src[own - 2]) << 8) | src[own - 1]
            if own + own_size > end or i32(src, p) != 22 + body_size + own_size:
                return -1
            total = fixed + body_size + own_size
            if own_size > _MAX_PROPERTIES:
                return -1
            w += self.head
            if total + 8 > self.file_size - w:
                self.full = True
                return -1
            q = self._write_head(
                w,
                total,
                False,
                _crc31(src, p + 20, body_size),
                row[4],
                i32(src, p + 12),
                queue.next_queue_offset + number,
                row[5],
                row[6],
                born,
                born_size,
                store_timestamp,
                store,
                store_size,
                row[12],
                0,
                body_size,
            )
            copy_bytes(buf, q, src, p + 20, body_size)
            q += body_size
            buf[q] = topic_size
            copy_bytes(buf, q + 1, src, row[2], topic_size)
            q += 1 + topic_size
            buf[q] = own_size >> 8
            buf[q + 1] = own_size & 0xFF
            q += 2
            copy_bytes(buf, q, src, own, own_size)
            if self.head:
                self._close_entry(w - 48, total, self.next_index + number)
            w += total
            number += 1
            p = own + own_size
        row[13] = self.file_from_offset + self.wrote_position + self.head
        row[14] = queue.next_queue_offset
        row[15] = w - self.wrote_position
        row[16] = number
        queue.next_queue_offset += number
        if self.head:
            self.next_index += number
        self.wrote_position = w
        topic.put_nums += number
        return row[15]


def is_compiled() -> bool:
    """Which form runs."""
    return cython.compiled
