"""Java's hash, packed hosts, message ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.errors import LocalProtocolError, RemoteProtocolError
from maxq.protocol.message.java_hash import java_hash
from maxq.protocol.message.message_id import (
    UniqIdGenerator,
    decode_host,
    decode_message_id,
    encode_host,
    host_text,
    offset_message_id,
)


class FixedClock:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000


class Zeros:
    def below(self, bound: int) -> int:
        return 0

    def bytes(self, count: int) -> bytes:
        return bytes(count)


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("TagA", 2598919), ("TagB", 2598920), ("RocketMQ", -453554280), ("polygenelubricants", -2147483648),
     ("payment", -786681338), ("😀", 1772899), ("TopicTest#k1", 2746024)],
)  # fmt: skip
def test_hash_is_javas_string_hash_code(text: str, value: int) -> None:
    assert java_hash(text) == value


def naive_hash(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    value = sum(
        int.from_bytes(units[i : i + 2], "big") * 31 ** (len(units) // 2 - 1 - i // 2) for i in range(0, len(units), 2)
    )
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


@given(st.text(max_size=30))
def test_hash_is_the_polynomial_over_utf16_units(text: str) -> None:
    assert java_hash(text) == naive_hash(text)


@pytest.mark.parametrize(
    ("host", "port", "packed"),
    [("10.0.0.1", 10911, "0a00000100002a9f"), ("::1", 80, "00" * 15 + "01" + "00000050"),
     ("[fe80::1%eth0]", 1, "fe80" + "00" * 13 + "01" + "00000001"), ("::ffff:1.2.3.4", 5, "0102030400000005")],
)  # fmt: skip
def test_hosts_are_packed_as_records_hold_them(host: str, port: int, packed: str) -> None:
    assert encode_host(host, port).hex() == packed


def test_packed_hosts_are_read_back_and_shown() -> None:
    assert decode_host(encode_host("10.0.0.1", 10911)) == ("10.0.0.1", 10911)
    assert host_text(encode_host("10.0.0.1", 10911)) == "10.0.0.1:10911"
    assert host_text(encode_host("::1", 10911)) == "[::1]:10911"
    with pytest.raises(RemoteProtocolError, match="8 or 20"):
        decode_host(b"123")
    with pytest.raises(LocalProtocolError, match=r"example\.org"):
        encode_host("example.org", 1)


def test_offset_ids_go_both_ways() -> None:
    text = offset_message_id(encode_host("10.0.0.1", 10911), 1024)
    assert text == "0A00000100002A9F0000000000000400"
    assert decode_message_id(text) == (encode_host("10.0.0.1", 10911), 1024)
    six = offset_message_id(encode_host("::1", 10911), 7)
    assert len(six) == 56 and decode_message_id(six) == (encode_host("::1", 10911), 7)


@given(st.text(max_size=60) | st.text("0123456789ABCDEFabcdef ", min_size=32, max_size=32))
def test_any_text_is_an_id_or_the_protocol_error(text: str) -> None:
    try:
        host, _ = decode_message_id(text)
    except RemoteProtocolError:
        return
    assert len(text) == 2 * (len(host) + 8)


def test_unique_ids_count_and_carry_the_time_since_the_month_began() -> None:
    clock = FixedClock(1700000000123)  # 2023-11-14T22:13:20.123Z
    ids = UniqIdGenerator(0x12345, "10.0.0.1", clock, Zeros())
    since_november = 1700000000123 - 1698796800000
    assert ids.next() == f"0A000001234500000000{since_november:08X}0001"
    assert ids.next().endswith("0002")
    assert len(UniqIdGenerator(1, "::1", clock, Zeros()).next()) == 56


def test_unique_ids_follow_the_month_and_tolerate_a_small_step_back() -> None:
    clock = FixedClock(1698796800000 + 5)  # the month is 5 ms old
    ids = UniqIdGenerator(1, "10.0.0.1", clock, Zeros())
    assert ids.next()[20:28] == "00000005"
    clock.now_ms -= 1000
    assert ids.next()[20:28] == "00000000"
    clock.now_ms = 1701388800000 + 7  # December
    assert ids.next()[20:28] == "00000007"
    clock.now_ms = 1704067200000 + 9  # January of the next year
    assert ids.next()[20:28] == "00000009"


def test_unique_ids_do_not_repeat_within_a_counters_round() -> None:
    ids = UniqIdGenerator(1, "10.0.0.1", FixedClock(1700000000123), Zeros())
    assert len({ids.next() for _ in range(65536)}) == 65536
