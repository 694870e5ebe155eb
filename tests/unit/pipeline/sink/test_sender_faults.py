"""At least once: what a broker did not acknowledge is sent again, and a task that cannot be finished fails."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from maxq.codes import ResponseCode
from maxq.errors import MaxQError, PipelineError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink.sender import Outgoing, PublishRoutes, Sender
from maxq.pipeline.sink.sink_task import SinkTask
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.wire.wire_client import WireClient
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message_queue import MessageQueue
from maxq.testing.server_process import StandaloneProcess
from tests.unit.pipeline.sink.test_sink_task import bodies

OPTIONS = WriteOptions.parse({"rocketmq.namesrv": "127.0.0.1:1"})


def rows_of(server: StandaloneProcess) -> list[bytes]:
    given = {"rocketmq.namesrv": server.namesrv_address, "subscribe": "T", "columns": "body,queueId"}
    options = ReadOptions.parse(given, streaming=False)
    found: list[bytes] = []
    for partition in plan_batch(options, Conditions()):
        for batch in WireReader(options).read(partition.ranges):
            found += batch.column("body").to_pylist()
    return found


def task(namesrv: str, **options: str) -> SinkTask:
    given = {"rocketmq.namesrv": namesrv, "topic": "T", "batchBytes": "16k", "rocketmq.brokerWait": "30s", **options}
    return SinkTask(WriteOptions.parse(given), {"body": "body", "shardingKey": "shardingKey"})


def test_a_broker_that_is_killed_and_comes_back_has_every_row_and_of_each_key_in_order(tmp_path: Path) -> None:
    count, keys = 2000, 3
    with StandaloneProcess({}, folder=tmp_path) as server:
        helpers: list[threading.Thread] = []

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(8):
                if number in (3, 6):
                    for helper in helpers:
                        helper.join()
                    server.kill()
                    helpers.append(threading.Thread(target=server.start))
                    helpers[-1].start()
                column = pa.array([f"{number * count + row}" for row in range(count)], pa.string())
                of_key = pa.array([f"{row % keys}" for row in range(count)])
                yield pa.record_batch({"body": column, "shardingKey": of_key})

        result = task(server.namesrv_address).run(batches())
        found = rows_of(server)

    assert result.rows == 8 * count
    assert {int(body) for body in found} == set(range(8 * count))
    for key in range(keys):
        numbers = dict.fromkeys(int(body) for body in found if int(body) % count % keys == key)
        assert list(numbers) == sorted(numbers)


def test_a_task_whose_broker_stays_away_fails_and_says_for_how_long(tmp_path: Path) -> None:
    with StandaloneProcess({}, folder=tmp_path) as server:

        def batches() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"body": bodies(1000), "shardingKey": pa.nulls(1000, pa.string())})
            server.kill()
            yield pa.record_batch({"body": bodies(1000), "shardingKey": pa.nulls(1000, pa.string())})

        with pytest.raises(PipelineError, match="could not be sent for 300 ms"):
            task(server.namesrv_address, **{"rocketmq.brokerWait": "300ms"}).run(batches())


def test_without_a_name_server_a_task_fails_at_once() -> None:
    batch = pa.record_batch({"body": bodies(1), "shardingKey": pa.nulls(1, pa.string())})
    with pytest.raises(MaxQError, match="no name server answers"):
        task("127.0.0.1:1").run([batch])


class BusyOnce:
    """A connection to a broker that refuses one request once, and answers another before it."""

    address = "127.0.0.1:1"

    def __init__(self, *, refused: bytes, before: bytes) -> None:
        self._refused, self._before = [refused], before
        self._waiting: list[tuple[int, bytes]] = []
        self._sent = 0
        self.stored: list[bytes] = []

    def send(self, code: int, ext: dict[str, str], body: bytes) -> int:
        self._sent += 1
        self._waiting.append((self._sent, body))
        return self._sent

    def receive(self) -> RemotingCommand:
        self._waiting.sort(key=lambda one: one[1] != self._before)
        opaque, body = self._waiting.pop(0)
        if body in self._refused:
            self._refused.remove(body)
            return RemotingCommand(ResponseCode.SYSTEM_BUSY, opaque=opaque)
        self.stored.append(body)
        return RemotingCommand(ResponseCode.SUCCESS, opaque=opaque)

    def close(self) -> None:
        """There is nothing to close."""


def test_rows_of_a_queue_keep_their_order_beside_rows_for_any_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    broker = BusyOnce(refused=b"first", before=b"any")
    monkeypatch.setattr(WireClient, "connection", lambda client, address: broker)
    routes = PublishRoutes(WireClient(OPTIONS.connection))
    monkeypatch.setattr(routes, "queues", lambda topic: [queue])
    monkeypatch.setattr(routes, "address", lambda queue: broker.address)
    sender = Sender(OPTIONS, routes)
    for where, body in ((queue, b"first"), (None, b"any"), (queue, b"second")):
        sender.send(Outgoing(0, "T", where, body, lambda queue: {}, lambda broker_name, answer: None))
    sender.finish()
    assert broker.stored == [b"any", b"first", b"second"]
