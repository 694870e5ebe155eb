"""The codec of the HA link: whole, byte by byte, and cut anywhere."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.errors import RemoteProtocolError
from maxq.replication.ha.frames import (
    FILLED_OFFSET,
    HEAD,
    ReportParser,
    TransferParser,
    encode_filled_ranges,
    encode_head,
    encode_name,
    encode_offer,
    encode_report,
    encode_request,
    is_joint,
    joint_offset,
)
from maxq.store.recovery.filled_ranges import FilledRange
from tests.unit.store.stores import message, opened, small_config


def test_worked_bytes_of_the_specification() -> None:
    assert encode_report(1000).hex() == "00000000000003e8"
    assert encode_head(1000, 197).hex() == "00000000000003e8000000c5"
    assert encode_head(1197, 0).hex() == "00000000000004ad00000000"


def test_of_two_reports_in_one_arrival_the_newest_counts() -> None:
    assert ReportParser().receive_data(encode_report(5) + encode_report(9)) == 9


def test_a_report_counts_when_its_eighth_byte_is_there() -> None:
    parser, report = ReportParser(), encode_report(1 << 40)
    assert [parser.receive_data(report[i : i + 1]) for i in range(8)] == [None] * 7 + [1 << 40]


def test_a_whole_report_counts_though_the_next_one_has_begun() -> None:
    parser = ReportParser()
    assert parser.receive_data(encode_report(7) + encode_report(8)[:3]) == 7
    assert parser.receive_data(encode_report(8)[3:]) == 8


def test_a_request_is_heard_once_and_asks_for_the_name() -> None:
    parser = ReportParser()
    assert parser.receive_data(encode_request(7)) == 7
    assert parser.wants_name
    for arrivals in ([7], [7, 7], [7, 0]):
        parser = ReportParser()
        assert [parser.receive_data(encode_report(offset)) for offset in arrivals] == arrivals
        parser.receive_data(encode_report(8) * 2)  # later ones are no request
        assert not parser.wants_name


def test_a_negative_report_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="offset -1"):
        ReportParser().receive_data(encode_report(-1))


@pytest.mark.parametrize("head", [encode_head(-1, 5), encode_head(5, -1)])
def test_a_negative_head_is_refused(head: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="no such frame"):
        TransferParser().receive_data(memoryview(head))


frames = st.lists(st.binary(max_size=40), min_size=1, max_size=12)


@given(frames, st.lists(st.integers(1, 60), min_size=1), st.booleans())
def test_bodies_come_out_at_their_offsets_wherever_the_stream_is_cut(
    bodies: list[bytes], cuts: list[int], joined: bool
) -> None:
    stream, offset = bytearray(), 100
    for body in bodies:
        stream += encode_head(offset, len(body)) + body
        offset += len(body)
    parser, position, end, heartbeats, turn = TransferParser(), 0, 100, 0, 0
    found = b""
    while position < len(stream):
        part = memoryview(bytearray(stream[position : position + cuts[turn % len(cuts)]]))
        position += len(part)
        turn += 1
        pieces = parser.receive_runs(part) if joined else parser.receive_data(part)
        for at, piece in pieces:
            assert at == end
            end += len(piece)
            found += bytes(piece)
            heartbeats += not len(piece)
    assert found == b"".join(bodies)
    assert heartbeats == sum(not body for body in bodies)


def test_frames_of_one_arrival_become_one_piece() -> None:
    stream = bytearray(encode_head(50, 3) + b"abc" + encode_head(53, 2) + b"de" + encode_head(55, 4) + b"fg")
    parser = TransferParser()
    assert [(at, bytes(piece)) for at, piece in parser.receive_runs(memoryview(stream))] == [(50, b"abcdefg")]
    assert [(at, bytes(piece)) for at, piece in parser.receive_runs(memoryview(bytearray(b"hi")))] == [(57, b"hi")]


def test_frames_that_do_not_follow_each_other_stay_apart() -> None:
    stream = bytearray(encode_head(50, 2) + b"ab" + encode_head(60, 2) + b"cd" + encode_head(62, 0))
    pieces = TransferParser().receive_runs(memoryview(stream))
    assert [(at, bytes(piece)) for at, piece in pieces] == [(50, b"ab"), (60, b"cd"), (62, b"")]


@given(st.binary(max_size=200))
def test_any_bytes_give_pieces_or_a_protocol_error(data: bytes) -> None:
    try:
        pieces = TransferParser().receive_data(memoryview(data))
    except RemoteProtocolError:
        return
    assert sum(len(piece) for _, piece in pieces) <= len(data)


def test_seals_are_heard_once_and_only_before_anything_else() -> None:
    named = [FilledRange(1, 2, 3), FilledRange(1 << 40, (1 << 40) + 7, 0xFFFFFFFF)]
    parser = TransferParser()
    assert parser.receive_data(memoryview(encode_filled_ranges(named))) == []
    assert parser.take_filled_ranges() == named
    assert parser.take_filled_ranges() == []
    with pytest.raises(RemoteProtocolError, match="no such frame"):
        parser.receive_data(memoryview(encode_filled_ranges(named)))


@pytest.mark.parametrize("size", [0, -20, 19, 21, 20 * 50_001])
def test_a_head_of_seals_of_an_impossible_size_is_no_frame(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match="no such frame"):
        TransferParser().receive_data(memoryview(HEAD.pack(FILLED_OFFSET, size)))


@pytest.mark.parametrize("filled", [FilledRange(5, 5, 0), FilledRange(-1, 5, 0), FilledRange(9, 5, 0)])
def test_filled_ranges_that_are_none_are_refused(filled: FilledRange) -> None:
    parser = TransferParser()
    parser.receive_data(memoryview(encode_filled_ranges([filled])))
    with pytest.raises(RemoteProtocolError, match="no ranges"):
        parser.take_filled_ranges()


def test_where_a_record_is_asked_for_again_tells_who_asks(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    ends = [store.put_message(message("T", 0, b"x" * 50)).end_offset for _ in range(5)]
    log = [(offset, store.log_bytes(offset, 64)) for offset in range(ends[3])]
    asked = [offset for offset, piece in log if piece is not None and is_joint(offset, piece)]
    assert asked == [joint_offset(start) for start in [0, *ends[:3]]]
    store.close()


def test_an_offer_is_heard_wherever_it_stands_among_reports() -> None:
    for stream in (encode_offer(10912), encode_report(5) + encode_offer(10912) + encode_report(5)):
        parser = ReportParser()
        assert parser.receive_data(stream) is None
        assert parser.offered_port == 10912


@pytest.mark.parametrize("name", ["b", "broker-a", "ü" * 100])
def test_a_name_of_any_length_is_heard_however_it_arrives(name: str) -> None:
    data = encode_name(name) + encode_head(1197, 0)
    for size in (1, len(data)):
        parser = TransferParser()
        pieces = [parser.receive_runs(memoryview(bytearray(data[at : at + size]))) for at in range(0, len(data), size)]
        assert parser.take_name() == name
        assert parser.take_name() == ""
        assert [(offset, bytes(body)) for some in pieces for offset, body in some] == [(1197, b"")]
