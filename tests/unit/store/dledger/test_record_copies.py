"""Copies made from record to record (delays that are due, messages given back) in a DLedger log."""

from pathlib import Path

import pytest

from maxq.protocol.message.message import decode_record
from maxq.store.append.record_copy_cy import RecordCopy
from tests.unit.store.dledger.test_message_ledger import FILE_SIZE, leading
from tests.unit.store.stores import message


def test_a_copy_is_an_entry_that_the_core_hears_of_and_that_is_seen_when_it_is_committed(tmp_path: Path) -> None:
    store, ledger = leading(tmp_path)
    first = store.put_message(message("A", 0, b"body"))
    store.put_message(message("B", 0, b"opens the queue"))
    ledger.commit(ledger.end_index)
    appended: list[tuple[int, int]] = []
    ledger.set_listeners(lambda low, high: appended.append((low, high)), lambda index: None)

    record = store.select_one_message(first.physical_offset)
    copy = RecordCopy()
    assert record is not None and copy.read(record)
    before, end = ledger.end_index, store.appended_offset
    for _ in range(2):
        assert store.fast_path_writer.append_copy(record, copy, b"B", 0, b"", 1) > 0
    store.appended()

    assert appended == [(before + 1, before + 2)]
    entry = ledger.entry(before + 2)
    stored = decode_record(memoryview(entry.body))
    assert (stored.topic, stored.queue_offset, stored.body) == ("B", 2, b"body")
    assert stored.physical_offset == entry.pos + 48 and entry.term == 1
    assert store.appended_offset == entry.pos + entry.size > end == store.max_physical_offset
    assert store.max_offset("B", 0) == 1
    ledger.commit(before + 2)
    assert store.max_offset("B", 0) == 3
    store.close()


@pytest.mark.parametrize("size", (FILE_SIZE - 240, FILE_SIZE - 220, FILE_SIZE - 200))
def test_a_copy_that_no_file_takes_with_its_header_is_left_to_the_general_way(tmp_path: Path, size: int) -> None:
    store, ledger = leading(tmp_path)
    body = bytes(size)
    first = store.put_message(message("A", 0, body))
    store.put_message(message("B", 0, b""))
    if not first.ok:
        store.close()
        return  # nothing of that size can be there to be copied
    ledger.commit(ledger.end_index)
    record = store.select_one_message(first.physical_offset)
    copy = RecordCopy()
    assert record is not None and copy.read(record)
    for length in range(0, 64, 8):  # a copy's properties may be longer
        files = len(store.commit_log.files.files)
        properties = b"K\x01" + b"v" * length
        stored = store.fast_path_writer.append_copy(record, copy, b"B", 0, properties, 1)
        store.appended()
        assert len(store.commit_log.files.files) <= files + 2
        assert stored == 0 or stored + 48 + 8 <= FILE_SIZE
    store.close()
