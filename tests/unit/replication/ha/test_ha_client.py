"""A slave's side of the link: joining, appending, reporting."""

import pytest

from maxq.errors import RemoteProtocolError, ReplicationDivergedError, ReplicationGapError
from maxq.replication.ha.frames import REPORT, encode_filled_ranges, encode_head, encode_name, encode_offer
from maxq.replication.ha.ha_client import HAClient
from maxq.replication.ha.ha_connection import HAConnectionState
from maxq.store.recovery.filled_ranges import FilledRange
from tests.unit.replication.ha.logs import FILE, BytesLog, config

LOG = bytes(i * 7 % 251 for i in range(3 * FILE))


class First:
    """An order for the whole log."""

    def __init__(self, *, again: bool = False) -> None:
        self.again = again

    async def choose(self) -> int:
        return 1

    def nothing_there(self, reported: int) -> bool:
        assert reported == 1
        return self.again


def client_of(log: BytesLog, first: First | None = None, **changes: object) -> HAClient:
    settings = config(**changes)
    return HAClient(log, lambda: settings, first, now_ms=0, own_port=lambda: 10912, broker_name="broker-a")


async def connected(log: BytesLog, first: First | None = None, **changes: object) -> HAClient:
    client = client_of(log, first, **changes)
    client.on_connected(await client.request_offset(), 0)
    return client


async def joined(log: BytesLog, **changes: object) -> HAClient:
    client = await connected(log, None, **changes)
    start, end = await client.request_offset(), log.max_physical_offset
    client.receive_data(frame(start, bytes(log.data[start - log.start :])), 0)
    assert reported(client) == end
    return client


def frame(offset: int, body: bytes) -> memoryview:
    return memoryview(bytearray(encode_head(offset, len(body)) + body))


def reported(client: HAClient) -> int | None:
    report = client.take_report(0)
    return REPORT.unpack(report)[0] if report else None


@pytest.mark.parametrize(
    ("log", "offset"),
    [
        (BytesLog(), 0),
        (BytesLog(LOG[:900]), 400),
        (BytesLog(LOG[:FILE]), FILE - 500),
        (BytesLog(LOG[FILE : FILE + 9], start=FILE), FILE + 4),
    ],
    ids=["empty", "a file", "a whole file", "a log that begins later"],
)
async def test_the_first_report_asks_for_the_last_record_again_from_its_magic_code_on(
    log: BytesLog, offset: int
) -> None:
    assert await client_of(log).request_offset() == offset


async def test_equal_bytes_join_and_what_is_beyond_them_is_appended_and_reported_once() -> None:
    log = BytesLog(LOG[: FILE + 500])
    client = await connected(log)
    assert client.receive_data(frame(FILE, LOG[FILE : FILE + 700]), 0)
    assert log.data == LOG[: FILE + 700]
    assert reported(client) == FILE + 700
    assert reported(client) is None


async def test_until_the_end_is_compared_nothing_is_reported_but_that_it_lives() -> None:
    client = await connected(BytesLog(LOG[: FILE + 500]), ha_send_heartbeat_interval=500)
    client.receive_data(frame(FILE, LOG[FILE : FILE + 200]), 0)
    assert reported(client) is None
    assert REPORT.unpack(client.heartbeat(500))[0] == 0
    client.receive_data(frame(FILE + 200, LOG[FILE + 200 : FILE + 500]), 600)
    assert reported(client) == FILE + 500
    assert REPORT.unpack(client.heartbeat(1200))[0] == FILE + 500


async def test_other_bytes_end_the_connection_and_change_nothing() -> None:
    log = BytesLog(LOG[: FILE + 500])
    client = await connected(log)
    other = LOG[FILE : FILE + 450] + b"?" + LOG[FILE + 451 : FILE + 600]
    with pytest.raises(ReplicationDivergedError, match="other bytes than this slave") as caught:
        client.receive_data(frame(FILE, other), 0)
    assert caught.value.physical_offset == FILE
    assert log.data == LOG[: FILE + 500]
    assert reported(client) is None


async def test_a_master_that_ends_before_its_slave_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    client = await connected(BytesLog(LOG[: FILE + 500]))
    client.receive_data(frame(FILE, LOG[FILE : FILE + 100]), 0)
    client.receive_data(frame(FILE + 100, b""), 0)
    assert client.ahead_bytes == 400
    assert f"ends at {FILE + 500}, its idle master sends nothing from {FILE + 100}" in caplog.text
    assert reported(client) is None


async def test_a_frame_that_is_not_what_was_asked_for_names_both_offsets() -> None:
    client = await connected(BytesLog(LOG[: FILE + 500]))
    with pytest.raises(ReplicationGapError) as caught:
        client.receive_data(frame(FILE + 1, b"x"), 0)
    assert (caught.value.expected, caught.value.received) == (FILE, FILE + 1)


async def test_a_gap_after_joining_names_both_offsets() -> None:
    client = await joined(BytesLog(LOG[:FILE]))
    client.receive_data(frame(FILE, LOG[FILE : FILE + 10]), 0)
    with pytest.raises(ReplicationGapError) as caught:
        client.receive_data(frame(FILE + 20, b"x"), 0)
    assert (caught.value.expected, caught.value.received) == (FILE + 10, FILE + 20)


async def test_a_heartbeat_at_another_offset_is_a_gap() -> None:
    client = await joined(BytesLog(LOG[:FILE]))
    with pytest.raises(ReplicationGapError):
        client.receive_data(frame(FILE + 20, b""), 0)


async def test_bytes_that_are_no_frames_are_the_masters_fault() -> None:
    client = await connected(BytesLog())
    with pytest.raises(RemoteProtocolError):
        client.receive_data(memoryview(bytearray(b"\xff" * 12)), 0)


async def test_an_empty_log_takes_what_the_master_begins_with() -> None:
    log = BytesLog()
    client = await connected(log)
    assert not client.receive_data(frame(2 * FILE, LOG[2 * FILE : 2 * FILE + 30]), 0)  # anew, as one with a log
    assert (log.start, bytes(log.data)) == (2 * FILE, LOG[2 * FILE : 2 * FILE + 30])
    assert reported(client) == 2 * FILE + 30


async def test_a_heartbeat_to_an_empty_log_may_mean_ask_elsewhere() -> None:
    assert (await connected(BytesLog(), First(again=True))).receive_data(frame(1, b""), 0) is False
    assert (await connected(BytesLog(), First())).receive_data(frame(1, b""), 0) is True


async def test_a_head_alone_is_no_heartbeat() -> None:
    client = await connected(BytesLog(), First(again=True))
    assert client.receive_data(memoryview(bytearray(encode_head(1, 5))), 0) is True


async def test_the_last_report_is_repeated_when_nothing_was_written_for_its_interval() -> None:
    client = await joined(BytesLog(LOG[:FILE]), ha_send_heartbeat_interval=500)
    assert client.heartbeat(499) == b""
    assert REPORT.unpack(client.heartbeat(500))[0] == FILE
    assert client.heartbeat(999) == b""


async def test_a_master_is_silent_after_the_housekeeping_interval() -> None:
    client = await connected(BytesLog(), ha_housekeeping_interval=700)
    assert not client.is_silent(700)
    assert client.is_silent(701)
    client.receive_data(frame(0, b""), 600)
    assert not client.is_silent(1300)


async def test_a_closed_connection_drops_what_is_not_whole_and_reports_nothing() -> None:
    log = BytesLog(LOG[:FILE])
    client = await connected(log)
    client.on_closed()
    assert log.drops == 1
    assert client.state is HAConnectionState.READY
    assert client.heartbeat(1 << 40) == b""


async def test_half_a_frame_of_a_lost_connection_does_not_spoil_the_next() -> None:
    log = BytesLog(LOG[:FILE])
    client = await connected(log)
    client.receive_data(memoryview(bytearray(encode_head(FILE, 9)[:7])), 0)
    client.on_closed()
    client.on_connected(await client.request_offset(), 0)
    client.receive_data(frame(FILE - 500, LOG[FILE - 500 : FILE + 9]), 0)
    assert log.data == LOG[: FILE + 9]


FILLED_RANGES = [FilledRange(10, 60, 1), FilledRange(70, 90, 2)]


@pytest.mark.parametrize("cut", [1, 12, 13, 20, 31, 52, 60, 80])
async def test_what_the_master_names_is_adopted_before_the_logs_are_joined(cut: int) -> None:
    log = BytesLog(LOG[: FILE + 500])
    client = await connected(log)
    stream = encode_name("broker-a") + encode_filled_ranges(FILLED_RANGES) + bytes(frame(FILE, LOG[FILE : FILE + 700]))
    for part in (stream[:cut], stream[cut:]):
        assert client.receive_data(memoryview(bytearray(part)), 0)
    assert log.filled_ranges.adopted == FILLED_RANGES
    assert reported(client) == FILE + 700


@pytest.mark.parametrize("has_last_places", [True, False])
async def test_a_slave_that_has_what_the_master_lost_offers_it_when_the_ends_are_equal_and_does_not_join(
    *, has_last_places: bool
) -> None:
    """Its log is another only if the master may have given the places to other messages."""
    log = BytesLog(LOG[: FILE + 500])
    log.filled_ranges.has_last_places = has_last_places
    log.filled_ranges.contradicted = FILLED_RANGES[1:]
    client = await connected(log)
    said = encode_filled_ranges(FILLED_RANGES) + bytes(frame(FILE, LOG[FILE : FILE + 400]))
    client.receive_data(memoryview(bytearray(said)), 0)
    assert client.take_report(0) == b"" and client.offered is None
    for piece in (frame(FILE + 400, LOG[FILE + 400 : FILE + 700]), frame(FILE + 700, LOG[FILE + 700 : FILE + 900])):
        assert client.receive_data(piece, 0)
    assert client.is_another is None
    assert client.take_report(0) == encode_offer(10912)
    assert client.take_report(0) == b""
    await client.compare_offered()
    assert client.is_another is has_last_places
    assert "the master has lost bytes 70 … 90" in str(client.offered)
    assert log.data == LOG[: FILE + 500] and log.filled_ranges.adopted == []
    client.on_connected(FILE, 0)
    assert client.offered is None
    await client.compare_offered()
    assert client.is_another is None


@pytest.mark.parametrize("change", ["nothing", "offer", "log"])
async def test_what_is_offered_again_is_examined_again_only_if_it_or_the_log_is_another(change: str) -> None:
    """It may be gigabytes, and a connection is made every five seconds."""
    log = BytesLog(LOG[: FILE + 500])
    log.filled_ranges.contradicted = FILLED_RANGES[1:]
    client = await connected(log)
    for examined in (1, 1 if change == "nothing" else 2):
        end = log.max_physical_offset
        said = encode_filled_ranges(FILLED_RANGES) + bytes(frame(FILE, LOG[FILE:end]))
        client.receive_data(memoryview(bytearray(said)), 0)
        assert client.take_report(0) == encode_offer(10912)
        await client.compare_offered()
        assert client.is_another is False
        assert log.filled_ranges.examined == examined
        if change == "offer":
            log.filled_ranges.contradicted = FILLED_RANGES
        elif change == "log":
            log.data += LOG[end : end + 100]
        client.on_connected(FILE, 0)


async def test_a_slave_of_another_log_offers_nothing() -> None:
    log = BytesLog(LOG[: FILE + 500])
    log.filled_ranges.contradicted = FILLED_RANGES[1:]
    client = await connected(log)
    with pytest.raises(ReplicationDivergedError, match="other bytes than this slave"):
        client.receive_data(
            memoryview(bytearray(encode_filled_ranges(FILLED_RANGES) + bytes(frame(FILE, b"other" * 99)))), 0
        )
    assert client.offered is None


@pytest.mark.parametrize("cut", [1, 12, 15, 400])
async def test_a_slave_takes_nothing_of_a_master_of_another_name(cut: int) -> None:
    log = BytesLog(LOG[: FILE + 500])
    client = await connected(log)
    stream = encode_name("broker-b") + bytes(frame(FILE, LOG[FILE : FILE + 700]))
    with pytest.raises(ReplicationDivergedError, match="calls itself broker-b, this slave is broker-a"):
        for part in (stream[:cut], stream[cut:]):
            client.receive_data(memoryview(bytearray(part)), 0)
    assert log.data == LOG[: FILE + 500]
    assert not client.is_joined and client.is_another is None


async def test_what_an_earlier_master_had_in_common_is_forgotten() -> None:
    log = BytesLog(LOG[:FILE])
    log.filled_ranges.as_on_master = frozenset({(0, 9)})
    await connected(log)
    assert log.filled_ranges.as_on_master == frozenset()


async def test_when_the_next_report_or_the_end_of_patience_is_due() -> None:
    log = BytesLog(LOG[:900])
    client = await connected(log, None, ha_send_heartbeat_interval=500, ha_housekeeping_interval=700)
    assert client.next_deadline_ms() == 500
    client.receive_data(frame(400, LOG[400:900]), 300)
    assert client.next_deadline_ms() == 500
    assert REPORT.unpack(client.heartbeat(500)) == (400,), "what was asked for: nobody has taken the report of 900"
    assert client.next_deadline_ms() == 1000
    client.heartbeat(1000)
    assert client.next_deadline_ms() == 1001


async def test_of_bytes_that_differ_within_the_last_record_none_is_taken_and_equal_ones_say_how_far() -> None:
    log = BytesLog(LOG[:900])
    client = await connected(log)
    client.receive_data(frame(400, LOG[400:700]), 0)
    assert not client.is_joined
    with pytest.raises(ReplicationDivergedError, match="offset 700 and behind; this slave's log ends at 900"):
        client.receive_data(frame(700, b"?" + LOG[701:900]), 0)
    assert bytes(log.data) == LOG[:900]
    assert client.ahead_bytes == 0


async def test_how_far_a_slave_is_ahead_of_an_idle_master_is_known_until_it_sends_that() -> None:
    log = BytesLog(LOG[:900])
    client = await connected(log)
    client.receive_data(frame(400, b""), 0)
    assert client.ahead_bytes == 500
    client.receive_data(frame(400, LOG[400:600]), 0)
    client.receive_data(frame(600, b""), 0)
    assert client.ahead_bytes == 300
    client.receive_data(frame(600, LOG[600:950]), 0)
    assert (client.ahead_bytes, client.is_joined, bytes(log.data)) == (0, True, LOG[:950])
    client.on_closed()
    assert (client.is_joined, client.reported_offset, client.state) == (False, -1, HAConnectionState.READY)
    client.state = HAConnectionState.SHUTDOWN
    client.on_closed()
    assert client.state is HAConnectionState.SHUTDOWN
