"""What a master sends a slave, and what it believes of its reports."""

from collections.abc import Iterable

import pytest

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import RemoteProtocolError
from maxq.protocol.message.message import MessageExt, encode_record
from maxq.replication.ha.frames import HEAD, encode_filled_ranges, encode_name
from maxq.replication.ha.ha_connection import LEAST_BYTES_A_SECOND, HAConnection, HAConnectionState
from maxq.store.recovery.filled_ranges import FilledRange
from tests.unit.replication.ha.logs import FILE, BytesLog, config

ROOM = 1 << 20


def connection(log: BytesLog, settings: MessageStoreConfig | None = None) -> HAConnection:
    made = settings or config()
    return HAConnection(log, lambda: made, "10.0.0.2:40001", now_ms=0, broker_name="")


def asked(log: BytesLog, offset: int, settings: MessageStoreConfig | None = None) -> HAConnection:
    one = connection(log, settings)
    one.on_report(offset)
    return one


def frames_of(pieces: Iterable[bytes | memoryview]) -> list[tuple[int, bytes]]:
    """Offsets and bodies."""
    stream, found = b"".join(pieces), []
    while stream:
        offset, size = HEAD.unpack_from(stream)
        found.append((offset, stream[HEAD.size : HEAD.size + size]))
        stream = stream[HEAD.size + size :]
    return found


def test_nothing_is_sent_before_the_slave_has_asked() -> None:
    one = connection(BytesLog(b"a" * 100))
    assert one.next_pieces(ROOM, 0) == []
    assert one.heartbeat(60_000) == b""
    assert one.state is HAConnectionState.READY


@pytest.mark.parametrize(
    ("reported", "start"),
    [(0, 2 * FILE), (1, 1), (700, 700), (2 * FILE + 100, 2 * FILE + 100)],
    ids=["0: the last file", "1: everything", "inside a record", "all there"],
)
def test_where_the_first_transfer_starts(reported: int, start: int) -> None:
    one = asked(BytesLog(b"a" * (2 * FILE + 100)), reported)
    assert one.next_offset == start
    assert one.state is HAConnectionState.TRANSFER


def test_everything_begins_where_the_masters_log_does() -> None:
    assert asked(BytesLog(b"a" * 100, start=3 * FILE), 1).next_offset == 3 * FILE


def test_an_empty_slave_of_an_empty_master_begins_with_it() -> None:
    log = BytesLog()
    one = asked(log, 1)
    log.data += b"first"
    assert frames_of(one.next_pieces(ROOM, 0)) == [(0, b"first")]
    one.on_report(5)
    assert one.replicated_offset == 5


def test_frames_are_not_larger_than_the_batch_and_end_with_their_file() -> None:
    log = BytesLog(bytes(range(256)) * 20)
    frames = frames_of(asked(log, 100, config(ha_transfer_batch_size=1000)).next_pieces(ROOM, 0))
    assert [(offset, len(body)) for offset, body in frames] == [
        (100, 1000), (1100, 1000), (2100, 1000), (3100, 996), (4096, 1000), (5096, 24),
    ]  # fmt: skip
    assert b"".join(body for _, body in frames) == bytes(log.data[100:])


def test_what_is_sent_at_once_is_bounded_and_the_next_call_goes_on() -> None:
    one = asked(BytesLog(b"a" * 4000), 1, config(ha_transfer_batch_size=1000))
    assert [offset for offset, _ in frames_of(one.next_pieces(1500, 0))] == [1, 1001]
    assert one.behind_bytes == 4000 - 2001
    assert [offset for offset, _ in frames_of(one.next_pieces(1500, 0))] == [2001, 3001]
    assert one.next_pieces(1500, 0) == []


def test_a_slave_ahead_of_the_master_gets_nothing_for_ever_and_acknowledges_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = BytesLog(b"a" * 100)
    one = asked(log, 150)
    assert one.state is HAConnectionState.SUSPEND
    assert "has 150 bytes of log, this master only 100" in one.reason
    assert one.reason in caplog.text
    log.data += b"b" * 100  # the master has grown beyond it: the logs are two
    assert one.next_pieces(ROOM, 0) == []
    assert one.replicated_offset == -1
    assert not one.is_in_sync(200)
    assert HEAD.unpack(one.heartbeat(5000)) == (150, 0)


def test_a_slave_below_the_masters_minimum_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    one = asked(BytesLog(b"a" * 100, start=FILE), FILE - 10)
    assert one.state is HAConnectionState.SUSPEND
    assert f"needs the log from {FILE - 10} on, this master's begins at {FILE}" in caplog.text


def test_a_slow_slave_whose_file_is_deleted_is_suspended() -> None:
    log = BytesLog(b"a" * FILE)
    one = asked(log, 10)
    log.start, log.data = FILE, bytearray(b"b" * 50)
    assert one.next_pieces(ROOM, 0) == []
    assert one.state is HAConnectionState.SUSPEND


def test_where_a_slave_begins_says_nothing_of_what_it_has() -> None:
    one = asked(BytesLog(b"a" * 100), 40)
    one.next_pieces(ROOM, 0)
    assert one.replicated_offset == -1
    one.on_report(40)
    assert one.replicated_offset == 40


def test_a_request_that_comes_in_two_parts_acknowledges_nothing() -> None:
    log, joint = record_log()
    one = asked(log, joint)
    one.next_pieces(ROOM, 0)
    one.on_report(joint)
    assert one.replicated_offset == -1
    one.on_report(len(log.data))
    assert one.replicated_offset == len(log.data)


def test_an_acknowledgement_of_what_was_not_sent_is_refused_and_counts_for_nothing() -> None:
    one = asked(BytesLog(b"a" * 100), 40)
    one.on_report(40)
    assert one.replicated_offset == 40
    for claimed in (41, 90, 100, 1 << 62):  # nothing was sent yet
        with pytest.raises(RemoteProtocolError, match=f"reported offset {claimed}, and was sent the log up to 40"):
            one.on_report(claimed)
    one.next_pieces(ROOM, 0)
    assert one.replicated_offset == 40
    one.on_report(100)
    assert one.replicated_offset == 100


def test_an_empty_slave_may_repeat_that_it_wants_everything() -> None:
    one = asked(BytesLog(), 1)
    one.on_report(1)
    assert one.replicated_offset == 0


def test_a_heartbeat_goes_out_when_nothing_was_written_for_its_interval() -> None:
    log = BytesLog(b"a" * 100)
    one = asked(log, 100, config(ha_send_heartbeat_interval=500))
    assert one.heartbeat(499) == b""
    assert HEAD.unpack(one.heartbeat(500)) == (100, 0)
    assert one.heartbeat(999) == b""
    log.data += b"x"
    one.next_pieces(ROOM, 900)
    assert one.heartbeat(1399) == b""
    assert HEAD.unpack(one.heartbeat(1400)) == (101, 0)


def test_a_slave_is_silent_after_the_housekeeping_interval() -> None:
    one = asked(BytesLog(), 0, config(ha_housekeeping_interval=700))
    assert not one.is_silent(700)
    assert one.is_silent(701)
    one.last_read_ms = 600
    assert not one.is_silent(1300)


def test_in_sync_is_less_than_the_gap_behind() -> None:
    one = asked(BytesLog(b"a" * 300), 100, config(ha_max_gap_not_in_sync=200))
    assert one.is_in_sync(299)
    assert not one.is_in_sync(300)


def test_flow_control_counts_all_bytes_and_lets_the_limit_through_in_a_second() -> None:
    limit = 100_000
    settings = config(
        ha_flow_control_enable=True,
        max_ha_transfer_byte_in_second=limit,
        ha_transfer_batch_size=1000,
        mapped_file_size_commit_log=FILE,
    )
    log = BytesLog(b"a" * (20 * FILE * 10))
    one = asked(log, 1, settings)
    now, sent = 0, 0
    while now < 3000:
        sent += sum(map(len, one.next_pieces(ROOM, now)))
        wait = one.resume_in_ms(now)
        assert wait > 0  # never allowed to go on at once, never stuck
        now += wait
    assert 2.8 * limit <= sent <= 3.05 * limit


def test_without_flow_control_nothing_is_kept_back() -> None:
    one = asked(BytesLog(b"a" * 3000), 1)
    assert one.resume_in_ms(0) == 0


def record_log() -> tuple[BytesLog, int]:
    """A log of three records, and where a slave that has two of them asks from."""
    data = b""
    for number in range(3):
        message = MessageExt(topic="T", body=b"x" * 50, queue_offset=number, physical_offset=len(data))
        data += encode_record(message, b"")
    return BytesLog(data), len(data) // 3 + 4


def test_a_slave_with_the_same_record_hears_of_fillers_before_the_log() -> None:
    log, offset = record_log()
    log.filled_ranges.known = [FilledRange(0, 9, 5)]
    first, *rest = asked(log, offset).next_pieces(1 << 20, 0)
    assert first == encode_filled_ranges(log.filled_ranges.known)
    assert frames_of(rest) == [(offset, bytes(log.data[offset:]))]


@pytest.mark.parametrize(
    ("asked_for", "wants_name", "is_named"),
    [
        ("joint", True, True),
        (1, True, True),
        ("joint", False, False),  # a slave of an earlier version
        (1, False, False),
        ("low", True, True),
        ("low", False, False),
        (0, True, False),
        ("record", True, False),
    ],
)
def test_a_maxq_slave_that_asks_hears_whose_log_it_is_before_anything_else_and_others_do_not(
    asked_for: int | str, wants_name: bool, is_named: bool
) -> None:
    log, joint = record_log()
    log.filled_ranges.known = [FilledRange(0, 9, 5)]
    connection = HAConnection(log, config, "10.0.0.2:40001", now_ms=0, broker_name="broker-a")
    if asked_for == "low":
        del log.data[: joint - 4]
        log.start = joint - 4
    offset = joint if asked_for == "joint" else joint - 4 if asked_for in ("record", "low") else int(asked_for)
    connection.on_report(offset, wants_name=wants_name)
    first = bytes(connection.next_pieces(1 << 20, 0)[0])
    assert first.startswith(encode_name("broker-a") + encode_filled_ranges(log.filled_ranges.known)) == is_named
    assert (b"broker-a" in first) == is_named


@pytest.mark.parametrize(("asked_for", "wants_name"), [("joint", True), (1, True), ("joint", False), (0, True)])
def test_a_maxq_slave_copies_tables_once_the_logs_have_joined(asked_for: int | str, wants_name: bool) -> None:
    log, joint = record_log()
    connection = HAConnection(log, config, "10.0.0.2:40001", now_ms=0, broker_name="broker-a")
    connection.on_report(joint if asked_for == "joint" else int(asked_for), wants_name=wants_name)
    connection.next_pieces(1 << 20, 0)
    assert not connection.copies_tables
    connection.on_report(log.max_physical_offset)
    assert connection.copies_tables == (wants_name and asked_for != 0)


def test_a_slave_that_takes_everything_hears_of_fillers_too() -> None:
    log, _ = record_log()
    log.filled_ranges.known = [FilledRange(0, 9, 5)]
    assert asked(log, 1).next_pieces(1 << 20, 0)[0] == encode_filled_ranges(log.filled_ranges.known)


@pytest.mark.parametrize("offset_change", [-4, -1, 1, 4])
def test_a_slave_that_may_be_a_java_broker_hears_nothing_of_fillers(offset_change: int) -> None:
    log, offset = record_log()
    log.filled_ranges.known = [FilledRange(0, 9, 5)]
    pieces = asked(log, offset + offset_change).next_pieces(1 << 20, 0)
    assert frames_of(pieces)[0][0] == offset + offset_change


def test_without_fillers_there_is_nothing_to_hear() -> None:
    log, offset = record_log()
    assert frames_of(asked(log, offset).next_pieces(1 << 20, 0)) == [(offset, bytes(log.data[offset:]))]


def test_when_the_next_heartbeat_or_the_end_of_patience_is_due() -> None:
    settings = config(ha_send_heartbeat_interval=500, ha_housekeeping_interval=700)
    one = connection(BytesLog(b"a" * 100), settings)
    assert one.next_deadline_ms() == 701, "before it has asked it gets no heartbeat"
    one.on_report(100)
    assert one.next_deadline_ms() == 500
    one.last_read_ms = 300
    one.heartbeat(500)
    assert one.next_deadline_ms() == 1000
    one.heartbeat(1000)
    assert one.next_deadline_ms() == 1001


def test_a_slave_that_takes_next_to_nothing_does_not_read() -> None:
    one = connection(BytesLog(), config(ha_housekeeping_interval=2000))
    least = 2 * LEAST_BYTES_A_SECOND
    assert [one.is_read(taken) for taken in (0, least - 1, least, 10 * least)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("asked_for", "start", "began_at"),
    [(0, 0, 2 * FILE + 100), (0, 2 * FILE, 0), (1, 0, 0), (2 * FILE, 0, 0)],
    ids=["the last file of three", "the only file", "everything", "what follows"],
)
def test_an_empty_slave_that_begins_with_the_last_file_lacks_what_is_before(
    asked_for: int, start: int, began_at: int
) -> None:
    log = BytesLog(b"a" * (2 * FILE + 100 - start), start=start)
    assert asked(log, asked_for).began_at == began_at


def test_what_was_not_sent_yet_is_known_once_it_is_known_where_to_begin() -> None:
    log = BytesLog(b"a" * 100)
    one = connection(log)
    assert one.behind_bytes == 0
    one.on_report(40)
    assert one.behind_bytes == 60
    one.next_pieces(ROOM, 0)
    assert one.behind_bytes == 0
    assert (one.host, one.client_address) == ("10.0.0.2", "10.0.0.2:40001")


def test_a_connection_that_reports_is_a_slave_of_its_own_again() -> None:
    one = asked(BytesLog(b"a" * 100), 40)
    one.is_distinct = False
    one.on_report(40)
    assert one.is_distinct


def test_a_slave_that_began_with_its_last_record_has_shown_it() -> None:
    log, joint = record_log()
    assert asked(log, joint).has_shown_record
    assert not asked(log, joint - 4).has_shown_record
    assert not asked(log, 1).has_shown_record


def test_which_first_reports_only_slaves_of_maxq_say() -> None:
    log, joint = record_log()
    one = connection(log)
    assert [one.is_of_maxq(offset) for offset in (0, 1, joint, joint - 4, 7)] == [False, True, True, False, False]
    log.start = FILE
    assert one.is_of_maxq(FILE)
