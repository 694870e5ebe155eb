"""The codec and the master's side against what a Java master and its Java slave said to each other."""

import random

import pytest

from maxq.config.message_store_config import MessageStoreConfig
from maxq.replication.ha.frames import ReportParser, TransferParser, encode_head, encode_report
from maxq.replication.ha.ha_connection import HAConnection
from tests.unit.replication.ha.golden_link import (
    LOG_FILE_SIZE,
    MASTER,
    Frame,
    connections,
    frames,
    log_of,
    master_stream,
    slave_stream,
)
from tests.unit.replication.ha.logs import NoFilledRanges


def of_master(connection: int) -> list[Frame]:
    return [frame for frame in frames() if frame.connection == connection and frame.from_master]


def of_slave(connection: int) -> list[Frame]:
    return [frame for frame in frames() if frame.connection == connection and not frame.from_master]


def cut(data: bytes, rng: random.Random) -> list[bytes]:
    """As TCP may deliver it."""
    parts = []
    start = 0
    while start < len(data):
        stop = start + rng.choice((1, 3, 12, 500, 40_000))
        parts.append(data[start:stop])
        start = stop
    return parts


@pytest.mark.parametrize("connection", connections())
@pytest.mark.parametrize("step", [None, 1], ids=["whole", "byte by byte"])
def test_every_frame_of_the_master_comes_out_again(connection: int, step: int | None) -> None:
    parser = TransferParser()
    for frame in of_master(connection):
        size = step or len(frame.data)
        pieces = [
            piece
            for start in range(0, len(frame.data), size)
            for piece in parser.receive_data(memoryview(frame.data)[start : start + size])
        ]
        offset, body = pieces[0][0], b"".join(bytes(data) for _, data in pieces)
        assert offset == frame.offset
        assert encode_head(offset, len(body)) + body == frame.data
        assert bool(body) == (frame.kind == "data")
        at = offset
        for place, data in pieces:
            assert place == at
            at += len(data)


@pytest.mark.parametrize("connection", connections())
@pytest.mark.parametrize("step", [None, 1], ids=["whole", "byte by byte"])
def test_every_report_of_the_slave_comes_out_again(connection: int, step: int | None) -> None:
    parser = ReportParser()
    for frame in of_slave(connection):
        size = step or len(frame.data)
        heard = [parser.receive_data(frame.data[start : start + size]) for start in range(0, len(frame.data), size)]
        assert heard == [None] * (len(heard) - 1) + [frame.offset]
        assert encode_report(frame.offset) == frame.data


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("connection", connections())
def test_however_the_stream_is_cut_the_same_bytes_come_to_the_same_places(connection: int, seed: int) -> None:
    parser = TransferParser()
    copy = bytearray(log_of(MASTER))
    start, end = of_master(connection)[0].offset, of_master(connection)[-1].offset
    copy[start:] = bytes(len(copy) - start)
    for part in cut(master_stream(connection), random.Random(seed)):
        for offset, data in parser.receive_data(memoryview(part)):
            copy[offset : offset + len(data)] = data
    assert copy[:end] == log_of(MASTER)[:end]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("connection", connections())
def test_however_reports_are_cut_the_last_whole_one_counts(connection: int, seed: int) -> None:
    parser = ReportParser()
    received = 0
    for part in cut(slave_stream(connection), random.Random(seed)):
        before, received = received // 8, (received + len(part)) // 8 * 8 + (received + len(part)) % 8
        newest = of_slave(connection)[received // 8 - 1].offset if received // 8 > before else None
        assert parser.receive_data(part) == newest


class GoldenLog:
    """The golden master's log, as far as it had grown."""

    min_physical_offset = 0

    def __init__(self) -> None:
        self.max_physical_offset = 0
        self.filled_ranges = NoFilledRanges()

    def log_bytes(self, offset: int, limit: int) -> memoryview | None:
        file_end = offset - offset % LOG_FILE_SIZE + LOG_FILE_SIZE
        end = min(offset + limit, file_end, self.max_physical_offset)
        return memoryview(log_of(MASTER))[offset:end] if offset < end else None


def runs(recorded: list[Frame], batch: int) -> list[list[Frame]]:
    """Frames that were there at the same time: one that was cut, at the batch size or at the end of a file, has more
    behind it."""
    found: list[list[Frame]] = [[]]
    for frame in recorded:
        found[-1].append(frame)
        if len(frame.body) != batch and frame.end % LOG_FILE_SIZE:
            found.append([])
    return found[:-1]


@pytest.mark.parametrize("connection", connections())
def test_our_master_sends_the_recorded_bytes(connection: int) -> None:
    """Same log, same first report: where transfers start, how they are cut at the batch size and at the end of a file,
    and what heartbeats say."""
    log = GoldenLog()
    config = MessageStoreConfig(mapped_file_size_commit_log=LOG_FILE_SIZE)
    ours = HAConnection(log, lambda: config, "127.0.0.1:1", 0, broker_name="")
    first = of_slave(connection)[0].offset
    log.max_physical_offset = first
    ours.on_report(first)
    said, now_ms = b"", 0
    for run in runs(of_master(connection), config.ha_transfer_batch_size):
        if run[0].kind == "heartbeat":
            now_ms += config.ha_send_heartbeat_interval
            said += ours.heartbeat(now_ms)
        else:
            log.max_physical_offset = run[-1].end
            said += b"".join(ours.next_pieces(1 << 20, now_ms))
    assert said == master_stream(connection)
