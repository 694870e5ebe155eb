"""What the blocking clients promise (docs/reference/client-promises.md), against a running server: shutdown, second
start, fork, exceptions, threads."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from maxq.api import (
    Admin,
    ConsumeContext,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    async_lite_pull_consumer,
    async_push_consumer,
    async_simple_consumer,
)
from maxq.client.errors import NotRunningError
from maxq.errors import BrokerError, ClientError
from maxq.protocol.body.topic_config import TopicConfig

Name = Callable[[str], str]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def topic(namesrv: str, name: Name) -> str:
    with Admin(namesrv) as admin:
        for address in admin.run(lambda one: one.brokers.masters_of_cluster("DefaultCluster")):
            admin.topics.create(address, TopicConfig(name("T"), 2, 2))
    return name("T")


def _send(namesrv: str, topic: str, numbers: range) -> set[bytes]:
    with Producer("PG", namesrv) as producer:
        producer.send_many([Message(topic, b"%d" % number) for number in numbers])
    return {b"%d" % number for number in numbers}


class Calls:
    """A listener that notes what it returned from, and lets a test hold its calls."""

    def __init__(self, hold: Callable[[bytes], bool] = lambda body: False) -> None:
        self.done: list[bytes] = []
        self.begun = 0
        self.go_on = threading.Event()
        self._hold = hold
        self._changed = threading.Condition()

    def __call__(self, messages: list[MessageExt], context: ConsumeContext) -> None:
        with self._changed:
            self.begun += len(messages)
            self._changed.notify_all()
        if self._hold(messages[0].body):
            assert self.go_on.wait(30)
        with self._changed:
            self.done += [message.body for message in messages]
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, 30), f"not in 30 s: {what}"


@pytest.fixture
def consumers(namesrv: str, name: Name, topic: str) -> Iterator[Callable[..., PushConsumer]]:
    made: list[PushConsumer] = []

    def make(listener: object, **settings: object) -> PushConsumer:
        consumer = PushConsumer(name("G"), namesrv, listener, consume_from_where=FIRST, **settings)  # type: ignore[arg-type]
        consumer.subscribe(topic)
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.shutdown(0)


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_what_a_listener_returned_from_does_not_come_again_after_a_shutdown(
    namesrv: str, topic: str, consumers: Callable[..., PushConsumer], orderly: bool
) -> None:
    wanted = _send(namesrv, topic, range(600))
    first = Calls(hold=lambda body: len(first.done) >= 100)
    consumer = consumers(first, orderly=orderly)
    consumer.start()
    first.wait(lambda: first.begun > len(first.done) >= 100, "some calls done, some under way")
    timer = threading.Timer(0.2, first.go_on.set)  # while the shutdown waits
    timer.start()
    consumer.shutdown()
    timer.join()
    begun, done = first.begun, set(first.done)
    assert begun == len(done), "a call was still under way after the shutdown"
    second = Calls()
    with consumers(second, orderly=orderly):
        second.wait(lambda: done | set(second.done) == wanted, "the rest")
    assert not done & set(second.done)
    assert first.begun == begun


def test_no_call_begins_after_a_shutdown_that_waited_long_enough(
    namesrv: str, topic: str, consumers: Callable[..., PushConsumer]
) -> None:
    wanted = _send(namesrv, topic, range(200))
    first = Calls(hold=lambda body: True)
    consumer = consumers(first, consume_thread_nums=3)
    consumer.start()
    first.wait(lambda: first.begun == 3, "three calls under way")
    consumer.shutdown(await_termination_ms=50)
    first.go_on.set()
    first.wait(lambda: len(first.done) == 3, "they run on to their end")
    second = Calls()
    with consumers(second):
        second.wait(lambda: set(second.done) == wanted, "all of them: nothing was committed")
    assert first.begun == 3


def test_a_slow_call_holds_no_other_back(namesrv: str, topic: str, consumers: Callable[..., PushConsumer]) -> None:
    wanted = _send(namesrv, topic, range(300))
    slow = {b"0", b"1", b"2"}
    calls = Calls(hold=lambda body: body in slow)
    with consumers(calls, consume_thread_nums=4):
        calls.wait(lambda: set(calls.done) == wanted - slow, "all others, on the fourth thread")
        calls.go_on.set()
        calls.wait(lambda: set(calls.done) == wanted, "the slow ones")


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, RuntimeError])
def test_what_a_listener_raises_ends_nothing(
    namesrv: str, topic: str, consumers: Callable[..., PushConsumer], kind: str, error: type[BaseException]
) -> None:
    _send(namesrv, topic, range(20))
    done: list[bytes] = []
    end = threading.Event()

    def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
        if messages[0].body == b"3" and not messages[0].reconsume_times:
            raise error
        done.append(messages[0].body)
        if len(set(done)) >= 19:
            end.set()

    async def listen_on_loop(messages: list[MessageExt], context: ConsumeContext) -> None:
        listen(messages, context)

    consumer = consumers(listen if kind == "thread" else listen_on_loop)
    consumer.start()
    assert end.wait(20)
    assert len(consumer.assigned_queues()) >= 2
    consumer.shutdown()


def test_a_consumer_may_be_started_again_and_a_second_start_changes_nothing(
    namesrv: str, topic: str, consumers: Callable[..., PushConsumer]
) -> None:
    calls = Calls()
    consumer = consumers(calls)
    for numbers in (range(10), range(10, 20), range(20, 30)):
        consumer.start()
        with pytest.raises(ClientError, match="already started"):
            consumer.start()
        wanted = _send(namesrv, topic, numbers)
        calls.wait(lambda wanted=wanted: wanted <= set(calls.done), "what was sent after this start")  # type: ignore[misc]
        consumer.shutdown()
    assert len(calls.done) == 30


def test_producers_and_lite_pull_consumers_may_be_started_again(namesrv: str, topic: str, name: Name) -> None:
    producer = Producer("PG", namesrv)
    consumer = LitePullConsumer(name("L"), namesrv, consume_from_where=FIRST)
    for number in range(2):
        producer.start()
        consumer.start()
        for client in (producer, consumer):
            with pytest.raises(ClientError, match="already started"):
                client.start()  # type: ignore[attr-defined]
        if not number:
            consumer.subscribe(topic)  # while it runs: is known at the second start, too
        producer.send(Message(topic, b"%d" % number))
        found: list[MessageExt] = []
        while not found:
            found = consumer.poll(1_000)
        assert [message.body for message in found] == [b"%d" % number]
        producer.shutdown()
        consumer.shutdown()


def test_a_forked_child_is_told_and_the_parent_goes_on(namesrv: str, topic: str) -> None:
    with Producer("PG", namesrv) as producer:
        producer.send(Message(topic, b"before"))
        read, write = os.pipe()
        child = os.fork()
        if not child:
            told = b""
            try:
                try:
                    producer.send(Message(topic, b"child"))
                except NotRunningError as error:
                    told = str(error).encode()
                producer.shutdown()
                with Producer("PC", namesrv) as own:
                    told += b" / " + own.send(Message(topic, b"own")).send_status.name.encode()
            finally:
                os.write(write, told)
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            told = pipe.read()
        os.waitpid(child, 0)
        assert told.startswith(b"the client was started before this process was forked") and told.endswith(b"SEND_OK")
        assert producer.send(Message(topic, b"after")).send_status.name == "SEND_OK"


def test_leaving_a_lite_pull_consumer_by_an_exception_commits_nothing_that_was_not_done(
    namesrv: str, topic: str, name: Name
) -> None:
    wanted = _send(namesrv, topic, range(100))
    done: list[bytes] = []
    interrupts = [KeyboardInterrupt()]

    def consume() -> None:
        with LitePullConsumer(name("L"), namesrv, consume_from_where=FIRST, pull_batch_size=8) as consumer:
            consumer.subscribe(topic)
            while set(done) != wanted:
                for message in consumer.poll(1_000):
                    if len(done) == 20 and interrupts:
                        raise interrupts.pop()
                    done.append(message.body)

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert len(done) == 20
    consume()
    assert len(done) < 100 + 8, "what was done before the batch in hand came again, too"


def test_threads_that_poll_do_not_finish_each_others_batches(namesrv: str, topic: str, name: Name) -> None:
    _send(namesrv, topic, range(40))
    group = name("L")
    held: list[list[MessageExt]] = []
    with pytest.raises(ZeroDivisionError), LitePullConsumer(group, namesrv, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)

        def poll() -> None:
            while not (messages := consumer.poll(1_000)):
                pass
            held.append(messages)

        other = threading.Thread(target=poll)
        other.start()
        other.join()
        poll()
        consumer.poll(0)
        consumer.commit()
        raise ZeroDivisionError
    first = held[0][0]
    with LitePullConsumer(group, namesrv, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)
        again: list[tuple[int, int]] = []
        while (first.queue_id, first.queue_offset) not in again:
            again += [(message.queue_id, message.queue_offset) for message in consumer.poll(1_000)]


def test_a_source_that_waits_keeps_nobody_elses_send(namesrv: str, topic: str) -> None:
    go_on = threading.Event()
    results = []

    def slow() -> Iterator[Message]:
        yield Message(topic, b"first")
        assert go_on.wait(30)
        yield Message(topic, b"second")

    with Producer("PG", namesrv) as producer:
        sending = threading.Thread(target=lambda: results.extend(producer.send_many(slow())))
        sending.start()
        assert producer.send(Message(topic, b"other")).send_status.name == "SEND_OK"
        go_on.set()
        sending.join(30)
    assert [result.send_status.name for result in results] == ["SEND_OK", "SEND_OK"]


def test_results_of_a_generator_are_in_its_order_and_what_it_gave_before_it_failed_is_sent(
    namesrv: str, topic: str, name: Name
) -> None:
    with Producer("PG", namesrv) as producer:
        numbered = (Message(topic, b"%d" % n, {"UNIQ_KEY": str(n)}) for n in range(3_000))
        results = producer.send_many(numbered, in_flight=64)
        assert [result.msg_id for result in results] == [str(n) for n in range(3_000)]

        def failing() -> Iterator[Message]:
            yield from (Message(topic, b"given") for _ in range(100))
            raise LookupError("as scripted")

        with pytest.raises(LookupError):
            producer.send_many(failing())
        with pytest.raises(ClientError, match="the body of a message is bytes, not str"):
            producer.send_many(Message(topic, "text" if n == 50 else b"good") for n in range(100_000))  # type: ignore[arg-type]
    found: list[bytes] = []
    with LitePullConsumer(name("L"), namesrv, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)
        while found.count(b"given") < 100:
            found += [message.body for message in consumer.poll(1_000)]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", ["push", "lite", "simple"])
def test_a_loop_that_ends_leaves_no_member_though_nobody_shut_it_down(
    namesrv: str, topic: str, name: Name, kind: str, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """Brokers would give its queues to nobody else for two minutes."""
    consumer: Any
    if kind == "push":
        consumer = async_push_consumer(name("G"), namesrv, lambda messages, context: None)
    else:
        consumer = (async_lite_pull_consumer if kind == "lite" else async_simple_consumer)(name("G"), namesrv)

    async def main() -> None:
        subscribed = consumer.subscribe(topic)
        if subscribed is not None:
            await subscribed
        await consumer.start()

    async def again() -> None:
        await consumer.start()

    run(main())
    with Admin(namesrv) as admin:
        deadline = time.monotonic() + 10
        while True:
            try:
                admin.groups.connections(name("G"))
            except BrokerError as error:
                assert "not online" in str(error)
                break
            assert time.monotonic() < deadline, "it is still a member"
            time.sleep(0.05)
    with pytest.raises(ClientError, match="was not shut down before its event loop ended: make another one"):
        run(again())
