"""The blocking face: the same clients without an event loop, from any thread."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from maxq.api import (
    Admin,
    ConsumeContext,
    ConsumeResult,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    SendStatus,
)
from maxq.client.errors import NotRunningError
from maxq.errors import ClientError
from tests.integration.client.helpers import FROM_FIRST

Name = Callable[[str], str]


def test_messages_are_sent_from_many_threads_and_consumed_in_threads(namesrv: str, name: Name) -> None:
    topic, count = name("T"), 200
    before = set(threading.enumerate())
    bodies: list[bytes] = []
    threads: set[str] = set()
    done = threading.Event()

    def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        threads.add(threading.current_thread().name)
        time.sleep(0.001)  # listeners may block
        bodies.extend(message.body for message in messages)
        if len(bodies) >= count:
            done.set()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(name("G"), namesrv, listen, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    with Producer(name("P"), namesrv) as producer, ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda n: producer.send(Message(topic, b"%d" % n)), range(count)))
        with consumer:
            assert done.wait(20)
            assert {queue.queue_id for queue in consumer.assigned_queues() if queue.topic == topic} == {0, 1, 2, 3}
    assert all(result.send_status is SendStatus.SEND_OK for result in sent)
    assert Counter(bodies) == Counter(b"%d" % n for n in range(count))
    assert all(thread.startswith("maxq-consume") for thread in threads)
    ours = set(threading.enumerate()) - before
    assert not [thread for thread in ours if thread.name == "maxq-client"], "the clients' threads have ended"


def test_every_way_of_sending_works(namesrv: str, name: Name) -> None:
    topic = name("T")
    told: list[object] = []
    with Producer(name("P"), namesrv) as producer, Admin(namesrv) as admin:
        producer.send(Message(topic, b"1"))
        queue = producer.fetch_publish_message_queues(topic)[2]
        assert producer.send(Message(topic, b"2"), queue=queue).message_queue == queue
        future = producer.send_async(Message(topic, b"3"), lambda result, error: told.append(error))
        assert future.result(10).send_status is SendStatus.SEND_OK
        producer.send_batch([Message(topic, b"4"), Message(topic, b"5")])
        producer.send_many([Message(topic, b"6"), Message(topic, b"7")])
        producer.send_orderly(Message(topic, b"8"), lambda queues, _, key: queues[key], 1)
        bodies = {message.body for message in admin.messages.scan(topic)}
    assert bodies == {b"%d" % n for n in range(1, 9)}
    assert told == [None]


def test_lite_pull_and_admin_block_too(namesrv: str, name: Name) -> None:
    topic, group = name("T"), name("G")
    with Producer(name("P"), namesrv) as producer, Admin(namesrv) as admin:
        for n in range(8):
            producer.send(Message(topic, b"%d" % n, {"KEYS": f"key{n}"}))
        with LitePullConsumer(group, namesrv, consume_from_where=FROM_FIRST) as consumer:
            queues = consumer.fetch_message_queues(topic)
            consumer.assign(queues[:1])
            assert consumer.assignment() == set(queues[:1])
            assert len(consumer.poll(10_000)) == 2
            consumer.commit()
            assert consumer.committed(queues[0]) == 2
            consumer.seek_to_begin(queues[0])
            assert consumer.poll(10_000)[0].queue_offset == 0
        assert topic in admin.topics.names()
        assert admin.offsets.committed(group, queues[0]) == 2
        (found,) = admin.messages.query_by_key(topic, "key3")
        assert found.body == b"3"
        assert admin.run(lambda a: a.cluster_info()).cluster_addr_table


def test_errors_arrive_where_the_call_was_made(namesrv: str, name: Name) -> None:
    producer = Producer(name("P"), namesrv)
    with pytest.raises(NotRunningError):
        producer.send(Message(name("T"), b"x"))
    with producer:
        with pytest.raises(ClientError, match="is empty"):
            producer.send(Message(name("T"), b""))
        with pytest.raises(ClientError, match="already"):
            producer._thread.run(producer._running.start())
    with pytest.raises(NotRunningError):
        producer.send(Message(name("T"), b"x"))
    with pytest.raises(ClientError, match="no name server is known"):
        Producer(name("P"), "").start()
