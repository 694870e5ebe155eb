"""TimerCheckpoint: the bytes that Java writes."""

from dataclasses import replace

import pytest

from maxq.errors import RemoteProtocolError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.timer_checkpoint import MovedMessage, TimerCheckpoint

#: Answer of a Java broker to 60 (golden wire/broker/json/000060).
GOLDEN = bytes.fromhex(
    "000001a1fc0538780000000000000138000000000000000700000000000000070000000000000000000001a1fc0539dd0000000000000028"
)

#: What a MaxQ broker of the version before dedupe_position was told wrote of `told`.
EARLIER = bytes.fromhex(
    "4d58514d000000021d852093000000000000303900000000000012670000012c000001a1"
    "fc05387800000000000023280000012d000001a1fc053c60"
)


def test_javas_answer_is_read_and_written() -> None:
    checkpoint = TimerCheckpoint.decode(GOLDEN)
    assert checkpoint == TimerCheckpoint(0x1A1FC053878, 312, 7, 7, DataVersion(40, 0, 0x1A1FC0539DD))
    assert checkpoint.encode() == GOLDEN


def test_old_brokers_send_no_version() -> None:
    assert TimerCheckpoint.decode(GOLDEN[:32]).data_version == DataVersion()


def test_what_follows_the_form_is_not_looked_at() -> None:
    assert TimerCheckpoint.decode(GOLDEN.ljust(4096, b"\xff")).encode() == GOLDEN


@pytest.mark.parametrize("size", [0, 31, 33, 55])
def test_other_lengths_are_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"32 or 56 bytes, not {size}"):
        TimerCheckpoint.decode(GOLDEN[:size])


def told() -> TimerCheckpoint:
    checkpoint = TimerCheckpoint.decode(GOLDEN)
    checkpoint.moved = (MovedMessage(4711, 300, 0x1A1FC053878), MovedMessage(9000, 301, 0x1A1FC053C60))
    checkpoint.log_end = 12_345
    checkpoint.dedupe_position = 12_000
    return checkpoint


def test_what_maxqs_brokers_tell_each_other_follows_javas_bytes_and_is_whole_or_nothing() -> None:
    data = told().encode_answer()
    assert data[:56] == GOLDEN
    assert TimerCheckpoint.decode(data) == told()
    earlier = GOLDEN + EARLIER
    for broken in (earlier[:-1], data[:60], bytes([*earlier[:-1], earlier[-1] ^ 1])):
        assert TimerCheckpoint.decode(broken).moved is None


def test_what_earlier_versions_say_is_understood_and_what_is_said_now_is_what_they_understand() -> None:
    data = told().encode_answer()
    assert data.startswith(GOLDEN + EARLIER)  # they look at no more
    for less in (GOLDEN + EARLIER, data[:-1], bytes([*data[:-1], data[-1] ^ 1])):
        assert TimerCheckpoint.decode(less) == replace(told(), dedupe_position=-1)
