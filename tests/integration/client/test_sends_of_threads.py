"""Threads that send with a blocking producer write their requests themselves; the loop only takes the answers."""

import gc
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest

from maxq.api import LitePullConsumer, Message, Producer, SendResult
from maxq.client.producer.fast_sends_cy import is_compiled
from maxq.errors import MaxQError, RemotingTimeoutError
from maxq.testing.server_process import StandaloneProcess
from tests.integration.client.helpers import FROM_FIRST

Name = Callable[[str], str]

pytestmark = pytest.mark.skipif(not is_compiled(), reason="uncompiled, the loop sends")


@pytest.fixture
def topic(name: Name) -> str:
    return name("T")


@pytest.fixture
def producer(namesrv: str, name: Name, topic: str) -> Iterator[Producer]:
    """A producer that knows the queues of the topic and is connected."""
    with Producer(name("P"), namesrv) as producer:
        for _ in range(8):
            producer.send(Message(topic, b"first"))
        yield producer


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def received(namesrv: str, group: str, topic: str, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    with LitePullConsumer(group, namesrv, consume_from_where=FROM_FIRST) as consumer:
        consumer.subscribe(topic)
        ends = time.monotonic() + 60
        while len(bodies) < count and time.monotonic() < ends:
            bodies += [message.body for message in consumer.poll(1_000)]
    return bodies


def test_a_send_wakes_nobody_but_who_waits_for_it(producer: Producer, topic: str) -> None:
    loop: Any = producer._thread._loop
    with mock.patch.object(loop, "call_soon_threadsafe", wraps=loop.call_soon_threadsafe) as given:
        results = [producer.send(Message(topic, b"%d" % n)) for n in range(20)]
        results += [producer.send_batch([Message(topic, b"a"), Message(topic, b"b")]) for _ in range(20)]
    assert given.call_count <= 2, "the timer is set now and then"
    assert len({(result.message_queue, result.queue_offset) for result in results}) == 40


def test_messages_that_were_sent_are_freed_without_the_cycle_collector(producer: Producer, topic: str) -> None:
    messages = [Message(topic, b"%d" % n) for n in range(2)]
    gc.disable()
    try:
        before = sys.getrefcount(messages[0])
        for _ in range(5):
            producer.send(messages[0])
            producer.send_batch(messages)
        ends = time.monotonic() + 10
        while (left := sys.getrefcount(messages[0])) > before and time.monotonic() < ends:
            time.sleep(0.001)  # the loop may have told of an answer, and hold it still
    finally:
        gc.enable()
    assert left == before


@pytest.mark.parametrize("size", [10, 5_000])
def test_queues_take_turns_also_for_messages_that_the_loop_sends(producer: Producer, topic: str, size: int) -> None:
    """As those are that are compressed."""
    queues = Counter(producer.send(Message(topic, bytes(size))).message_queue.queue_id for _ in range(16))
    assert len(queues) >= 4 and set(queues.values()) == {16 // len(queues)}


def test_nothing_of_a_batch_is_left_in_the_next_one(namesrv: str, name: Name, producer: Producer, topic: str) -> None:
    producer.send_batch([Message(topic, b"\xff" * 10_000)])
    producer.send_batch([Message(topic, b"%d" % n) for n in range(20)])
    flags: list[int] = []
    with LitePullConsumer(name("G"), namesrv, consume_from_where=FROM_FIRST) as consumer:
        consumer.subscribe(topic)
        ends = time.monotonic() + 60
        while len(flags) < 29 and time.monotonic() < ends:
            flags += [message.flag for message in consumer.poll(1_000)]
    assert flags == [0] * 29


@pytest.mark.usefixtures("quick_switches")
def test_whatever_ways_of_sending_are_used_at_once_each_message_comes_whole(
    namesrv: str, name: Name, producer: Producer, topic: str
) -> None:
    """Messages are so large that sockets do not take them at once, and that some go in several writes."""
    sizes, draws = (100, 5_000, 70_000, 300_000, 1_300_000), random.Random(7)
    bodies = {n: b"%d;" % n + draws.randbytes(sizes[n % 5]) for n in range(200)}
    results: list[SendResult] = []

    def send(numbers: range, how: str) -> None:
        messages = [Message(topic, bodies[n]) for n in numbers]
        if how == "many":
            results.extend(producer.send_many(messages))
        elif how == "batch":
            for message in messages:
                results.append(producer.send_batch([message]))
        else:
            for message in messages:
                results.append(producer.send(message))

    ways = ("one", "many", "batch", "one", "one")
    with ThreadPoolExecutor(len(ways)) as pool:
        for sending in [pool.submit(send, range(at, 200, len(ways)), how) for at, how in enumerate(ways)]:
            sending.result(120)
    assert len({result.msg_id for result in results}) == 200
    assert Counter(received(namesrv, name("G"), topic, 208)) == Counter([*bodies.values(), *[b"first"] * 8])


def test_a_send_inside_another_one_of_the_same_thread_is_one_of_its_own(producer: Producer, topic: str) -> None:
    """As a signal handler may make one."""
    remoting: Any = producer._client._sender.instance.remoting
    next_opaque, inner = remoting.next_opaque, []

    def interrupted() -> int:
        if threading.current_thread() is threading.main_thread() and not inner:
            inner.append(None)
            inner[0] = producer.send(Message(topic, b"inner"))
        opaque: int = next_opaque()
        return opaque

    with mock.patch.object(remoting, "next_opaque", interrupted):
        outer = producer.send(Message(topic, b"outer"))
    places = {(result.message_queue, result.queue_offset) for result in (outer, *inner)}
    assert len(places) == len({result.msg_id for result in (outer, *inner)}) == 2


def test_a_send_without_an_answer_ends_in_time_and_the_next_one_works(name: Name) -> None:
    with StandaloneProcess() as server, Producer(name("P"), server.namesrv_address) as producer:
        for _ in range(8):
            producer.send(Message("T", b"first"))
        os.kill(server.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            with pytest.raises(RemotingTimeoutError):
                producer.send(Message("T", b"x"), timeout_ms=300)
            assert 0.25 < time.monotonic() - began < 20
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert producer.send(Message("T", b"y")).msg_id


@pytest.mark.parametrize("what_ends", ["the producer", "the server"])
def test_no_thread_hangs_whose_producer_or_server_ends(name: Name, what_ends: str) -> None:
    with StandaloneProcess() as server:
        producer = Producer(name("P"), server.namesrv_address, send_msg_timeout=1_000)
        producer.start()
        sent, is_over = Counter[int](), threading.Event()

        def send(number: int) -> None:
            while True:
                try:
                    producer.send_batch([Message("T", bytes(100_000))] * 3)
                    sent[number] += 1
                except MaxQError:  # a busy machine is late now and then
                    if is_over.is_set():
                        return

        threads = [threading.Thread(target=send, args=[number], daemon=True) for number in range(4)]
        for thread in threads:
            thread.start()
        ends = time.monotonic() + 60
        while len(sent) < 4 or min(sent.values()) < 5:
            assert time.monotonic() < ends
            time.sleep(0.01)
        is_over.set()
        if what_ends == "the server":
            os.kill(server.pid, signal.SIGKILL)
        else:
            threading.Thread(target=producer.shutdown).start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "it hangs"
        producer.shutdown()
