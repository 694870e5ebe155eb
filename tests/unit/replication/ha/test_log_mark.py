"""Two logs are found to be different ones, or not, by the marks of their ends."""

import pytest

from maxq.replication.ha.log_mark import has_other_bytes, log_mark
from maxq.store.recovery.filled_ranges import FilledRange
from tests.unit.replication.ha.logs import FILE, BytesLog

LOG = bytes(i * 7 % 251 for i in range(3 * FILE))


def other(offset: int) -> bytes:
    return LOG[:offset] + bytes([LOG[offset] ^ 1]) + LOG[offset + 1 :]


@pytest.mark.parametrize("end", [1, 900, FILE, FILE + 1, 3 * FILE])
def test_a_log_that_begins_as_another_one_is_not_another_and_one_with_another_end_is(end: int) -> None:
    mark = log_mark(BytesLog(LOG[:end]))
    assert not has_other_bytes(BytesLog(LOG), mark)
    assert not has_other_bytes(BytesLog(LOG[:end]), mark)
    assert has_other_bytes(BytesLog(other(end - 1)), mark)
    assert not has_other_bytes(BytesLog(other(end - 1)[: end - 1]), mark), "it does not come so far"
    assert not has_other_bytes(BytesLog(other(end - 1)[end:], start=end), mark), "it begins behind"


def test_fillers_are_not_compared_whoever_has_them() -> None:
    log = BytesLog(LOG[:900])
    log.filled_ranges.known = [FilledRange(100, 200, 1), FilledRange(700, 800, 1)]
    mark = log_mark(log)
    assert not has_other_bytes(BytesLog(other(799)), mark)
    assert has_other_bytes(BytesLog(other(800)), mark)
    log.filled_ranges.known = [FilledRange(700, 900, 1)]
    assert not has_other_bytes(BytesLog(other(800)), log_mark(log))
    slave = BytesLog(other(899))
    slave.filled_ranges.known = [FilledRange(850, 860, 1)]
    assert not has_other_bytes(slave, log_mark(BytesLog(LOG[:900])))


@pytest.mark.parametrize(
    "mark", ["", "::", "1:2", "0:1:x", "-1:5:0", "0:0:0", "0:-1:0", "0:99999999:0", "0:1:2:3", "٣:1:0"]
)
def test_what_is_no_mark_says_nothing(mark: str) -> None:
    assert not has_other_bytes(BytesLog(LOG), mark)
    assert log_mark(BytesLog()) == ""
