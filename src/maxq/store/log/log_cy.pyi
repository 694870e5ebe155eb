"""Typed face of the log's writing end. See log_cy.py."""

from maxq.store.log.tails_cy import TopicWriteState

class LogTail:
    """The writing end of the CommitLog: the newest mapped file and the position in it."""

    wrote_position: int  # bytes written in the current file
    file_from_offset: int
    file_size: int
    full: bool  # the last append_rows or append_final stopped because what it has does not fit in this file
    head: int  # 0, or 48: every record gets a DLedger entry's header in front of it, and files end with its filler
    next_index: int  # with heads: of the next entry
    term: int  # with heads: that new entries get
    final_topic: TopicWriteState | None  # where the last append_final went
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
        append_prop_crc: put the `__CRC32#` property at the end."""
    def forget_topic(self) -> None:
        """Drop the remembered TopicWriteState: it was replaced or removed."""
    def close_file(self) -> None:
        """Write the BLANK record, or DLedger's filler, over the rest of the file; wrote_position becomes file_size."""
    def append_entry(self, body: bytes | memoryview) -> int:
        """Write an entry with this body. Returns its size, or -1 when it does not fit in this file with 8 bytes to
        spare (nothing written)."""

def is_compiled() -> bool: ...
