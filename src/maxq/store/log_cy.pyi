"""Typed face of the compiled append. See log_cy.py; rows: protocol/send_rows.py."""

from typing import Any

from maxq.store.tails_cy import TopicTail

class LogTail:
    """The writing end of the CommitLog: the newest mapped file and the position in it."""

    wrote_position: int  # bytes written in the current file
    file_from_offset: int
    file_size: int
    full: bool  # the last append_rows or append_final stopped because what it has does not fit in this file
    head: int  # 0, or 48: every record gets a DLedger entry's header in front of it, and files end with its filler
    next_index: int  # with heads: of the next entry
    term: int  # with heads: that new entries get
    final_topic: TopicTail | None  # where the last append_final went
    def attach(self, view: memoryview | None, file_from_offset: int, file_size: int, position: int) -> None: ...
    @property
    def max_offset(self) -> int:
        """file_from_offset + wrote_position."""
    def append_record(
        self,
        topic: bytes,
        queue_id: int,
        flag: int,
        queue_offset: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_timestamp: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body: bytes | memoryview,
        properties: bytes,
        body_crc: int,
        append_prop_crc: bool,
    ) -> int:
        """Write one record (V2 if topic is over 127 bytes). Returns its size, or -1 when it does not fit in this file
        with 8 bytes to spare (nothing written: call `close_file`, attach the next file, call again).
        born_host and store_host are 8 or 20 bytes (address, 4-byte port); the IPv6 bits of sys_flag must agree.
        append_prop_crc: put the `__CRC32#` property at the end (store-format §3.4)."""
    def forget_topic(self) -> None:
        """Drop the remembered TopicTail: it was replaced or removed."""
    def close_file(self) -> None:
        """Write the BLANK record, or DLedger's filler, over the rest of the file; wrote_position becomes file_size."""
    def append_entry(self, body: bytes | memoryview) -> int:
        """Write an entry with this body. Returns its size, or -1 when it does not fit in this file with 8 bytes to
        spare (nothing written)."""
    def append_rows(
        self,
        source: bytearray | memoryview,
        scratch: bytearray,
        rows: Any,
        first: int,
        count: int,
        topics: dict[bytes, TopicTail],
        born_host: bytes,
        store_host: bytes,
        store_timestamp: int,
        suffix: bytes,
        max_message_size: int,
    ) -> int:
        """Append rows [first, first+count) (see protocol/send_rows). Returns how many were appended; fewer than count
        means that row first+n needs something else: the file is full, or the row must take the general way."""

    def append_final(
        self, record: memoryview, group: bytes, topics: dict[bytes, TopicTail], store_timestamp: int
    ) -> int:
        """Write the final message of the half message `record`, whose producer group must be `group`. Returns its size;
        0 if nothing was written: the file is full, or this half message must take the general way."""

    def append_arrivals(
        self,
        source: bytearray | memoryview,
        scratch: bytearray,
        rows: Any,
        table: Any,
        born_hosts: list[bytes],
        topics: dict[bytes, TopicTail],
        store_host: bytes,
        store_timestamp: int,
        suffix: bytes,
        max_message_size: int,
    ) -> int:
        """The same for the rows of several arrivals (see protocol/send_rows), one of each born host. Of an arrival of
        which not all could be appended, A_TAKEN and A_ROWS say so, and R_COUNT of the others is 0. Returns how many
        rows were appended altogether."""

def is_compiled() -> bool: ...
