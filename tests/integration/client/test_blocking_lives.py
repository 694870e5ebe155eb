"""Blocking clients and their threads: calls that meet a shutdown, two shutdowns, callbacks that end a client."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from maxq.api import (
    Admin,
    ConsumeContext,
    ConsumeFromWhere,
    LitePullConsumer,
    LocalTransactionState,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    SendResult,
    SimpleConsumer,
    TransactionProducer,
)
from maxq.client.errors import NotRunningError, WrongArgumentError
from maxq.errors import ClientError, MaxQError
from maxq.protocol.body.topic_config import TopicConfig

Name = Callable[[str], str]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def topic(namesrv: str, name: Name) -> str:
    """A topic with one queue."""
    with Admin(namesrv) as admin:
        for address in admin.run(lambda one: one.brokers.masters_of_cluster("DefaultCluster")):
            admin.topics.create(address, TopicConfig(name("T"), 1, 1))
    return name("T")


def _send(namesrv: str, topic: str, count: int) -> None:
    with Producer("PG", namesrv, send_msg_timeout=30_000) as producer:
        producer.send_many([Message(topic, b"%d" % number) for number in range(count)])


def _progress(namesrv: str, group: str, topic: str) -> int:
    """How many messages a group has done."""
    with Admin(namesrv) as admin:
        queues = admin.offsets.queues(topic)
        return sum(admin.offsets.committed(group, queue) or 0 for queue in queues)


def _until(condition: Callable[[], object], what: str, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.01)


@pytest.mark.parametrize("kind", ["poll", "receive"])
def test_who_waits_hears_of_a_shutdown(
    namesrv: str, topic: str, name: Name, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer: Any = (LitePullConsumer if kind == "poll" else SimpleConsumer)(name("G"), namesrv)
    consumer.subscribe(topic)
    consumer.start()
    with ThreadPoolExecutor() as threads:
        waiting = (
            threads.submit(consumer.poll, 60_000)
            if kind == "poll"
            else threads.submit(lambda: consumer.receive(wait_ms=15_000))
        )
        _until(waiting.running, "the call")
        time.sleep(0.2)  # it waits at the broker, or in the client
        consumer.shutdown()
        with pytest.raises(NotRunningError):
            waiting.result(5)
    assert "could not be asked" not in caplog.text, "a shutdown is no fault of a broker"


def test_an_iteration_that_outlives_its_admin_ends_in_silence(namesrv: str, topic: str) -> None:
    _send(namesrv, topic, 3)
    with Admin(namesrv) as admin:
        found = admin.messages.scan(topic)
        assert next(found).body == b"0"
    with pytest.raises(NotRunningError):
        next(found)


def test_the_second_shutdown_waits_for_the_first(namesrv: str, topic: str, name: Name) -> None:
    _send(namesrv, topic, 1)
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
        began.set()
        assert go_on.wait(20)
        ended.set()

    consumer = PushConsumer(name("G"), namesrv, listen, consume_from_where=FIRST)
    consumer.subscribe(topic)
    consumer.start()
    assert began.wait(20)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(consumer.shutdown)
        _until(lambda: not consumer._is_started, "the first")
        second = threads.submit(consumer.shutdown)
        time.sleep(0.1)
        assert not second.done()
        go_on.set()
        second.result(10)
        assert ended.is_set()
        first.result(10)
    assert _progress(namesrv, name("G"), topic) == 1


@pytest.mark.parametrize("is_coroutine", [False, True], ids=["thread", "coroutine"])
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_a_listener_shuts_its_consumer_down(
    namesrv: str, topic: str, name: Name, is_coroutine: bool, orderly: bool
) -> None:
    _send(namesrv, topic, 500)
    bodies: list[bytes] = []
    asked = threading.Event()

    def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
        bodies.extend(message.body for message in messages)
        if len(bodies) == 3:
            consumer.shutdown()
            asked.set()
        elif len(bodies) > 3:  # on a busy machine all messages may be consumed before the thread that shuts down runs
            _until(lambda: not consumer._is_started, "the shutdown")

    async def listen_on_the_loop(messages: list[MessageExt], context: ConsumeContext) -> None:
        listen(messages, context)

    consumer = PushConsumer(
        name("G"), namesrv, listen_on_the_loop if is_coroutine else listen, orderly=orderly, consume_from_where=FIRST,
        consume_thread_nums=1,
    )  # fmt: skip
    consumer.subscribe(topic)
    consumer.start()
    assert asked.wait(8)
    consumer.shutdown()
    assert 3 <= len(bodies) < 500
    assert _progress(namesrv, name("G"), topic) == len(bodies)


def test_a_callback_of_a_send_may_shut_its_producer_down(namesrv: str, topic: str, name: Name) -> None:
    producer = Producer(name("P"), namesrv)
    producer.start()
    told: list[object] = []

    def callback(result: SendResult | None, error: BaseException | None) -> None:
        producer.shutdown()
        told.append(result or error)

    sending = producer.send_async(Message(topic, b"x"), callback)
    assert sending.result(10).queue_offset == 0
    _until(lambda: told, "the callback")
    producer.shutdown()
    assert told == [sending.result()]
    with pytest.raises(NotRunningError):
        producer.send(Message(topic, b"x"))


def test_each_send_that_was_begun_has_an_outcome_that_its_callback_hears(namesrv: str, topic: str, name: Name) -> None:
    outcomes: list[tuple[SendResult | None, BaseException | None]] = []
    with Producer(name("P"), namesrv) as producer:
        sends = [
            producer.send_async(Message(topic, bytes(100_000)), lambda *outcome: outcomes.append(outcome))
            for _ in range(500)
        ]
    assert all(send.done() for send in sends)
    assert len(outcomes) == len(sends)
    for result, error in outcomes:
        assert (result is None) != (error is None)
        assert error is None or isinstance(error, MaxQError)


def test_a_shutdown_while_another_thread_starts_the_client_ends_it(namesrv: str, topic: str, name: Name) -> None:
    for pause in (0, 0.001, 0.003, 0.01):
        consumer = LitePullConsumer(name("G"), namesrv)
        consumer.subscribe(topic)
        with ThreadPoolExecutor() as threads:
            starting = threads.submit(consumer.start)
            _until(lambda: consumer._thread.is_running, "the start")  # noqa: B023
            time.sleep(pause)
            consumer.shutdown()
            starting.result(20)
        assert not consumer._thread.is_running
        with pytest.raises(NotRunningError):
            consumer.poll(0)


def test_a_signal_handler_ends_a_client_that_the_same_thread_starts(
    namesrv: str, topic: str, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = LitePullConsumer(name("G"), namesrv)
    consumer.subscribe(topic)
    run = consumer._thread.run

    def interrupted(work: Any) -> Any:
        monkeypatch.setattr(consumer._thread, "run", run)
        signal.raise_signal(signal.SIGUSR1)
        return run(work)

    monkeypatch.setattr(consumer._thread, "run", interrupted)
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.shutdown())
    try:
        with pytest.raises(NotRunningError, match="was shut down while it started"):
            consumer.start()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not consumer._thread.is_running
    with consumer:
        assert consumer.poll(0) == []


@pytest.mark.parametrize("commits", [False, True])
def test_threads_that_end_after_a_poll(
    namesrv: str, topic: str, name: Name, commits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    _send(namesrv, topic, 1_000)
    bodies: list[bytes] = []
    with LitePullConsumer(name("L"), namesrv, consume_from_where=FIRST, pull_threshold_for_queue=100) as consumer:
        consumer.subscribe(topic)

        def work() -> None:
            bodies.extend(message.body for message in consumer.poll(1_000))
            if commits:
                consumer.commit()

        while len(bodies) < (1_000 if commits else 100):
            worker = threading.Thread(target=work)
            worker.start()
            worker.join()
    assert len(bodies) == len(set(bodies))
    told = [record.getMessage() for record in caplog.records if "have ended after a poll" in record.getMessage()]
    assert bool(told) != commits


def test_a_forked_child_ends_its_copy_of_a_client_whatever_threads_of_the_parent_do(
    namesrv: str, topic: str, name: Name
) -> None:
    with LitePullConsumer(name("G"), namesrv) as consumer, ThreadPoolExecutor() as threads:
        holds, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            with consumer._life, consumer._thread._lock:
                holds.set()
                assert go_on.wait(20)

        holding = threads.submit(hold)
        assert holds.wait(20)
        child = os.fork()
        if not child:
            try:
                consumer.poll(0)
            except NotRunningError:
                consumer.shutdown()
                os._exit(7)
            os._exit(1)
        go_on.set()
        holding.result(20)
        ended: list[int] = []

        def has_ended() -> bool:
            pid, status = os.waitpid(child, os.WNOHANG)
            ended.append(status)
            return bool(pid)

        _until(has_ended, "the child")
        assert os.waitstatus_to_exitcode(ended[-1]) == 7


def test_an_admin_that_is_given_wrong_settings_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ClientError):
        Admin("127.0.0.1:1", access_key="without its secret")
    assert threading.active_count() == before


_BLOCKING = (
    "maxq/client/blocking/",
    "maxq/client/message_feed.py",
    "concurrent/futures/",
    "threading.py",
    "asyncio/tasks.py",
)


def _interrupted(call: Callable[[], object], at: int, handler: Callable[[], object]) -> bool:
    """Make a call, and call the handler at the line number `at` that it comes to in the modules that wait: a signal
    handler runs between any two. False if there are not so many lines."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if not any(name in frame.f_code.co_filename for name in _BLOCKING):
            return None
        lines += 1
        if lines == at:
            handler()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except MaxQError:
        assert lines >= at, "the call found its client ended before it was"
    finally:
        sys.settrace(before)
    return lines >= at


@pytest.mark.parametrize("kind", ["poll", "send", "send again", "send many"])
def test_a_signal_handler_may_end_a_client_at_any_line_of_a_call(
    namesrv: str, topic: str, name: Name, kind: str
) -> None:
    """The loop must not wait for anything that the interrupted thread holds."""
    _send(namesrv, topic, 10)
    for at in range(1, 150, 3):
        client: Any
        if kind == "poll":
            client = LitePullConsumer(name("G") + str(at), namesrv, consume_from_where=FIRST)
            client.subscribe(topic)
        else:
            client = Producer(name("P"), namesrv)
        client.start()
        if kind == "send again":
            client.send(Message(topic, b"x"))
        call: Callable[[], object] = {
            "poll": lambda: client.poll(5_000),  # noqa: B023
            "send": lambda: client.send(Message(topic, b"x")),  # noqa: B023
            "send again": lambda: client.send(Message(topic, b"x")),  # noqa: B023
            "send many": lambda: client.send_many((Message(topic, b"x") for _ in range(30)), in_flight=2),  # noqa: B023
        }[kind]
        outcomes: list[bool] = []
        caller = threading.Thread(
            target=lambda: outcomes.append(_interrupted(call, at, client.shutdown)),  # noqa: B023
            daemon=True,
        )
        caller.start()
        caller.join(20)
        assert not caller.is_alive(), f"interrupted at line {at} of the call: it hangs"
        client.shutdown()
        if outcomes == [False]:
            return
        assert outcomes == [True]
    assert kind == "send many", "the call has fewer lines"


class Closing:
    """A listener that shuts its producer down while it executes a transaction."""

    def __init__(self) -> None:
        self.producer: TransactionProducer
        self.executed = 0

    def execute_local_transaction(self, message: Message, arg: object) -> LocalTransactionState:
        self.executed += 1
        self.producer.shutdown()
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


def test_a_transaction_that_was_executed_raises_nothing_though_its_producer_was_shut_down(
    namesrv: str, topic: str, name: Name
) -> None:
    """What raises was not executed, and is sent again."""
    listener = Closing()
    listener.producer = TransactionProducer(name("P"), namesrv, listener)
    listener.producer.start()
    result = listener.producer.send_message_in_transaction(Message(topic, b"x"))
    assert listener.executed == 1
    assert result.local_transaction_state is LocalTransactionState.COMMIT_MESSAGE
    assert isinstance(result.end_error, NotRunningError)


def test_a_poll_that_is_refused_gives_nothing_out_again(namesrv: str, topic: str, name: Name) -> None:
    _send(namesrv, topic, 5)
    with LitePullConsumer(name("G"), namesrv, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)
        bodies = [message.body for message in consumer.poll(10_000)]
        with pytest.raises(WrongArgumentError):
            consumer.poll(-1)
        while len(bodies) < 5:
            bodies += [message.body for message in consumer.poll(10_000)]
        assert consumer.poll(300) == []
    assert sorted(bodies) == [b"%d" % number for number in range(5)]
    assert _progress(namesrv, name("G"), topic) == 5


def test_threads_that_poll_together_get_each_message_once_and_all_of_it_is_committed(
    namesrv: str, topic: str, name: Name
) -> None:
    _send(namesrv, topic, 3_000)
    got: list[list[bytes]] = [[], [], [], []]

    with LitePullConsumer(
        name("G"), namesrv, consume_from_where=FIRST, pull_threshold_for_queue=200, auto_commit_interval=1_000
    ) as consumer:
        consumer.subscribe(topic)

        def work(bodies: list[bytes]) -> None:
            deadline = time.monotonic() + 60
            while sum(map(len, got)) < 3_000 and time.monotonic() < deadline:
                bodies.extend(message.body for message in consumer.poll(100))
            consumer.commit()

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, got))
    assert sorted(body for bodies in got for body in bodies) == sorted(b"%d" % number for number in range(3_000))
    assert _progress(namesrv, name("G"), topic) == 3_000


@pytest.mark.parametrize("as_table", [False, True])
def test_polls_that_take_what_is_here_lose_nothing_when_they_are_interrupted(
    namesrv: str, name: Name, as_table: bool
) -> None:
    class InterruptError(Exception):
        pass

    topic, group = name(f"T{as_table}"), name(f"G{as_table}")
    _send(namesrv, topic, 500)
    bodies: list[bytes] = []
    with LitePullConsumer(group, namesrv, consume_from_where=FIRST, pull_batch_size=4) as consumer:
        consumer.subscribe(topic)

        def poll(at: int) -> None:
            """Poll, and raise at the line with this number that the caller's thread comes to in the consumer."""
            lines = 0

            def trace(frame: FrameType, event: str, _: object) -> Any:
                nonlocal lines
                if not frame.f_code.co_filename.endswith(("blocking/consumers.py", "lite_pull_consumer.py")):
                    return None
                if event == "line":
                    lines += 1
                    if lines == at:
                        raise InterruptError
                return trace

            before = sys.gettrace()
            sys.settrace(trace)
            try:
                if as_table:
                    found = consumer.poll_arrow(5_000, columns=["body"], linger_ms=0).column("body").to_pylist()
                else:
                    found = [message.body for message in consumer.poll(5_000)]
            finally:
                sys.settrace(before)
            bodies.extend(found)

        for at in [0, *range(1, 25), *range(1, 25)]:
            with contextlib.suppress(InterruptError):
                poll(at)
        ends = time.monotonic() + 30
        while len(bodies) < 500 and time.monotonic() < ends:
            poll(0)
    assert sorted(bodies) == sorted(b"%d" % number for number in range(500))
    assert _progress(namesrv, group, topic) == 500


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_poll_that_waits_takes_nothing_more_when_it_is_interrupted(namesrv: str, topic: str, name: Name) -> None:
    """Ctrl-C may come between any two lines, and not only while the call waits."""

    class InterruptError(Exception):
        pass

    bodies: list[bytes] = []
    with (
        Producer("PG", namesrv) as producer,
        LitePullConsumer(name("G"), namesrv, consume_from_where=FIRST) as consumer,
    ):
        consumer.subscribe(topic)
        consumer.wait_for_assignment()

        def poll(at: int) -> int:
            """Poll, and raise at the line with this number; returns how many there were."""
            lines = 0

            def trace(frame: FrameType, event: str, _: object) -> Any:
                nonlocal lines
                if not frame.f_code.co_filename.endswith(("blocking/consumers.py", "blocking/loop_thread.py")):
                    return None
                if event == "line":
                    lines += 1
                    if lines == at:
                        raise InterruptError
                return trace

            before = sys.gettrace()
            sys.settrace(trace)
            try:
                bodies.extend(message.body for message in consumer.poll(0 if at == 0 else 300))
            finally:
                sys.settrace(before)
            return lines

        count = poll(0)
        for at in range(1, count + 1):
            with contextlib.suppress(InterruptError):
                poll(at)
            producer.send(Message(topic, b"%d" % at))
            ends = time.monotonic() + 10
            while len(bodies) < at and time.monotonic() < ends:
                bodies.extend(message.body for message in consumer.poll(100))
            assert sorted(bodies) == sorted(b"%d" % number for number in range(1, at + 1)), f"interrupted at line {at}"
    assert count > 20


def test_a_thread_iterates_over_messages_and_leaves_those_that_it_did_not_take(
    namesrv: str, topic: str, name: Name
) -> None:
    _send(namesrv, topic, 50)
    bodies = []
    with LitePullConsumer(name("G"), namesrv, consume_from_where=FIRST, auto_commit=False) as consumer:
        consumer.subscribe(topic)
        for message in consumer:
            bodies.append(message.body)
            if len(bodies) == 20:
                break
        consumer.commit()
    assert _progress(namesrv, name("G"), topic) == 20
    with LitePullConsumer(name("G"), namesrv) as consumer:
        consumer.subscribe(topic)
        ending = threading.Thread(target=lambda: (_until(lambda: len(bodies) == 50, "all"), consumer.shutdown()))
        ending.start()
        for message in consumer:
            bodies.append(message.body)
        ending.join()
    assert sorted(bodies) == sorted(b"%d" % number for number in range(50))
    with pytest.raises(NotRunningError):
        iter(consumer)


_ENDS_WITHOUT_SHUTDOWN = """
import sys, threading, time
from maxq.api import ConsumeFromWhere, PushConsumer

begun = threading.Event()

def listen(messages, context):
    begun.set()
    time.sleep(0.3)

consumer = PushConsumer(sys.argv[1], sys.argv[2], listen, consume_thread_nums=2,
                        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
consumer.subscribe(sys.argv[3])
consumer.start()
assert begun.wait(20)
print(time.time(), flush=True)
"""


def test_an_interpreter_that_ends_waits_for_the_calls_under_way_and_no_others(
    namesrv: str, topic: str, name: Name
) -> None:
    _send(namesrv, topic, 200)
    command = [sys.executable, "-c", _ENDS_WITHOUT_SHUTDOWN, name("G"), namesrv, topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert time.time() - float(ended.stdout) < 20, "200 calls on two threads take 30 s"
