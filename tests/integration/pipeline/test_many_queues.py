"""A stream over 200 queues on 2 brokers reads every message once while one broker is killed and starts again."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.errors import MaxQError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.stream_source import TopicStream
from maxq.pipeline.wire.wire_client import WireClient
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.topic_config import TopicConfig
from tests.interop.processes.servers import MaxqBroker, MaxqNamesrv, free_port_base

QUEUES = 100  # a broker


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[MaxqNamesrv, list[MaxqBroker]]]:
    namesrv = MaxqNamesrv(tmp_path / "namesrv", free_port_base())
    brokers = [MaxqBroker(tmp_path / name, free_port_base()) for name in ("broker-a", "broker-b")]
    try:
        namesrv.start()
        for broker in brokers:
            broker.start(namesrv.address, {"brokerName": broker.folder.name, "flushDiskType": "SYNC_FLUSH"})
        yield namesrv, brokers
    finally:
        for server in (*brokers, namesrv):
            server.stop()


def test_a_stream_over_200_queues_outlasts_a_broker(cluster: tuple[MaxqNamesrv, list[MaxqBroker]]) -> None:
    namesrv, brokers = cluster
    with Admin(namesrv.address) as admin:
        for broker in brokers:
            admin.topics.create(broker.address, TopicConfig("Many", QUEUES, QUEUES))
    options = ReadOptions.parse(
        {"rocketmq.namesrv": namesrv.address, "subscribe": "Many", "startingOffsets": "earliest",
         "columns": "brokerName,queueId,queueOffset", "maxOffsetsPerTrigger": "700"}, streaming=True,
    )  # fmt: skip
    stream, reader = TopicStream(options, WireClient(options.connection, route_age_ms=200)), WireReader(options)
    seen: Counter[tuple[str, int, int]] = Counter()
    acknowledged: set[tuple[str, int, int]] = set()
    done = threading.Event()

    def send() -> None:
        with Producer("many", namesrv.address, retry_times_when_send_failed=0) as producer:
            for n in range(30):
                for broker in brokers:
                    name = broker.folder.name
                    for queue_id in range(n % 3, QUEUES, 3):
                        try:
                            result = producer.send(Message("Many", b"x"), queue=MessageQueue("Many", name, queue_id))
                        except MaxQError:
                            continue  # its broker is away just now
                        acknowledged.add((name, queue_id, result.queue_offset))
        done.set()

    sender = threading.Thread(target=send)
    sender.start()
    restart: threading.Thread | None = None
    offset = stream.initial_offset()
    try:
        while True:
            finished = done.is_set() and (restart is None or not restart.is_alive())
            end = stream.latest_offset(offset, limited=True)
            for part in stream.partitions(offset, end):
                for batch in reader.read(part.ranges):
                    seen.update((row["brokerName"], row["queueId"], row["queueOffset"]) for row in batch.to_pylist())
            if finished and end == offset:
                break
            offset = end
            if restart is None and len(seen) > 500:
                brokers[1].kill()
                settings = {"brokerName": "broker-b", "flushDiskType": "SYNC_FLUSH"}
                restart = threading.Timer(1.0, brokers[1].start, (namesrv.address, settings))
                restart.start()
    finally:
        sender.join()
        if restart is not None:
            restart.join()
        stream.stop()
    assert restart is not None
    assert acknowledged <= seen.keys()
    assert set(seen.values()) == {1}
    assert len({(broker, queue) for broker, queue, _ in seen}) == 2 * QUEUES
