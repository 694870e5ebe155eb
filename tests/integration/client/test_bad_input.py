"""Bad input to every call that sends, in the common way and in the general one, of the blocking clients and of those
for asyncio: an error at the call that names the value, its limit and what to do; what was accepted before it is
sent."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from maxq import aio, api
from maxq.api import ConsumeFromWhere, LitePullConsumer, LocalTransactionState, Message, MessageQueue
from maxq.client.errors import NotRunningError
from maxq.errors import LocalProtocolError, MaxQError

Name = Callable[[str], str]
Make = Callable[[str], Any]
FIRST: Final = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
GROUP: Final = "PG_bad_input"


def _with(**fields: Any) -> Make:
    """Make a message with fields that its constructor may not take."""

    def make(topic: str) -> Message:
        message = Message(topic, b"x")
        for name, value in fields.items():
            setattr(message, name, value)
        return message

    return make


#: What is given instead of a message of a topic, and what the error says.
BAD: Final[dict[str, tuple[Make, str]]] = {
    "a body that is text": (_with(body="text"), r"body of a message is bytes, not str; encode it first: text.encode"),
    "a body that is a number": (_with(body=5), "body of a message is bytes, not int"),
    "no body": (_with(body=None), "body of a message is bytes, not NoneType"),
    "an empty body": (_with(body=b""), "is empty; send at least one byte"),
    "too large a body": (
        _with(body=bytes((4 << 20) + 1)), "has 4194305 bytes, more than max_message_size 4194304; send less, or raise"
    ),
    "a separator in a value": (
        _with(properties={"name": "a\x02b"}), "the property 'name' has a control character .*U.0002 .*leave them out"
    ),
    "a separator in a name": (
        _with(properties={"na\x01me": "a"}), r"the property 'na\\x01me' has a control character .*leave them out"
    ),
    "a value that is a number": (
        _with(properties={"name": 5}), "value of the property 'name' is of type int; values are str: convert it"
    ),
    "a value that is bytes": (
        _with(properties={"name": b"x"}), "value of the property 'name' is of type bytes; values are str: convert it"
    ),
    "a name that is a number": (_with(properties={5: "x"}), "the name 5 of a property is of type int; names are str"),
    "a value that is half a character": (_with(properties={"name": "\ud800"}), "properties .* cannot be sent: .*ud800"),
    "too long properties": (
        _with(properties={"name": "ä" * 17_000}), r"take 34\d\d\d bytes, more than 32767; put large"
    ),
    "no properties": (_with(properties=None), "properties of a message are a dict of str to str, not NoneType"),
    "a list of properties": (_with(properties=[("a", "b")]), "are a dict of str to str, not list"),
    "too long a topic": (
        lambda topic: Message("T" * 128, b"x"), "topic name has 128 characters, more than 127: .*choose a shorter one"
    ),
    "an empty topic": (lambda topic: Message("", b"x"), "topic name is empty; give 1 to 127 characters"),
    "a topic with a blank": (lambda topic: Message("a b", b"x"), "topic name 'a b' has characters other than .*choose"),
    "a topic that is a number": (
        lambda topic: Message(5, b"x"), "topic of a message is a str, not int|topic name is a text .*, not 5"  # type: ignore[arg-type]
    ),
    "a topic of the broker's own": (
        lambda topic: Message("SCHEDULE_TOPIC_XXXX", b"x"), "SCHEDULE_TOPIC_XXXX is forbidden; choose a topic of"
    ),
    "a flag that is text": (_with(flag="x"), "flag of a message is an int of 32 bits, not 'x'"),
    "too large a flag": (_with(flag=1 << 31), "flag of a message is an int of 32 bits, not 2147483648"),
    "bytes": (lambda topic: b"x", r"a bytes cannot be sent; make a Message\(topic, body\)"),
    "a list of messages": (lambda topic: [Message(topic, b"x")], r"a list cannot be sent; make a Message"),
    "nothing": (lambda topic: None, "a NoneType cannot be sent; make a Message"),
}  # fmt: skip

#: Ways to have a producer: its sends take the common way, the general one, or wait for others.
PRODUCERS: Final[dict[str, dict[str, Any]]] = {
    "common way": {}, "slow path": {"send_latency_enable": True}, "gathering": {"auto_batch": True},
}  # fmt: skip


def _first_queue(queues: Any, message: Any, arg: Any) -> Any:
    return queues[0]


#: Calls with one bad message, on a blocking producer or on one for asyncio.
CALLS: Final[dict[str, Callable[[Any, Any, MessageQueue], Any]]] = {
    "send": lambda p, bad, queue: p.send(bad),
    "send with a time-out": lambda p, bad, queue: p.send(bad, timeout_ms=2_000),
    "send to a queue": lambda p, bad, queue: p.send(bad, queue=queue),
    "send_async": lambda p, bad, queue: p.send_async(bad),
    "send_orderly": lambda p, bad, queue: p.send_orderly(bad, _first_queue, 1),
    "send_oneway": lambda p, bad, queue: p.send_oneway(bad),
    "send_batch": lambda p, bad, queue: p.send_batch([Message(queue.topic, b"good"), bad]),
    "send_many": lambda p, bad, queue: p.send_many([bad]),
    "request": lambda p, bad, queue: p.request(bad, timeout_ms=2_000),
    "send_message_in_transaction": lambda p, bad, queue: p.send_message_in_transaction(bad),
}


class _Committing:
    """Commits each transaction."""

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: Message) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


@pytest.fixture(scope="module", params=PRODUCERS)
def producer(request: pytest.FixtureRequest, namesrv: str) -> Iterator[api.TransactionProducer]:
    settings = PRODUCERS[request.param]
    with api.TransactionProducer(GROUP, namesrv, _Committing(), **settings) as running:
        yield running


@pytest.fixture(scope="module")
def known(namesrv: str) -> MessageQueue:
    """A queue of a topic that is there."""
    with api.Producer(GROUP, namesrv) as first:
        return first.send(Message("BadInput", b"first")).message_queue


def _check(error: MaxQError, why: str) -> None:
    assert re.search(why, str(error)), f"{error!s:.500}"
    assert not error.may_be_stored
    assert not error.retriable


def _is_of_a_batch(call: str, bad: Any) -> bool:
    """Is it refused because of the topic of the message before it?"""
    return call == "send_batch" and isinstance(bad, Message) and bad.topic != "BadInput"


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_refused_by_every_call_of_a_blocking_producer(
    producer: api.TransactionProducer, known: MessageQueue, bad: str
) -> None:
    make, why = BAD[bad]
    for name, call in CALLS.items():
        producer.send(Message(known.topic, b"good"))  # what is cached is there
        given = make(known.topic)
        with pytest.raises(MaxQError) as refused:
            call(producer, given, known).result()  # of send_async
        if not _is_of_a_batch(name, given):
            _check(refused.value, why)


@pytest.mark.parametrize("way", PRODUCERS)
async def test_bad_input_is_refused_by_every_call_of_a_producer_for_asyncio(
    namesrv: str, known: MessageQueue, way: str
) -> None:
    async with aio.TransactionProducer(GROUP, namesrv, _Committing(), **PRODUCERS[way]) as producer:
        for make, why in BAD.values():
            for name, call in CALLS.items():
                await producer.send(Message(known.topic, b"good"))
                given = make(known.topic)
                with pytest.raises(MaxQError) as refused:
                    began = call(producer, given, known)
                    assert name != "send_async", "it is refused at the call"
                    await began
                if not _is_of_a_batch(name, given):
                    _check(refused.value, why)


@pytest.mark.parametrize("bad", BAD)
def test_what_send_many_accepted_before_a_bad_message_is_sent(
    producer: api.TransactionProducer, namesrv: str, name: Name, bad: str
) -> None:
    topic = name("T")[-100:]
    make, why = BAD[bad]
    producer.send(Message(topic, b"first"))
    messages = [Message(topic, b"%d" % n) for n in range(20)]
    with pytest.raises(MaxQError, match=why):
        producer.send_many([*messages, make(topic), Message(topic, b"late")])
    found: list[bytes] = []
    with LitePullConsumer(name("G")[-100:], namesrv, consume_from_where=FIRST) as consumer:
        consumer.subscribe(topic)
        while len(found) < 21:
            found += [message.body for message in consumer.poll(20_000)]
    assert sorted(found) == sorted([b"first", *(message.body for message in messages)])


async def test_what_is_gathered_beside_bad_input_is_sent(namesrv: str, known: MessageQueue) -> None:
    async with aio.Producer(GROUP, namesrv, auto_batch=True, batch_max_delay_ms=50) as producer:
        sends: list[Any] = []
        for make, _ in BAD.values():
            sends += [producer.send(Message(known.topic, b"good")), producer.send(make(known.topic))]
            sends.append(producer.send(Message(known.topic, b"good"), queue=MessageQueue("Other", "b", 0)))
            sends.append(producer.send(Message(known.topic, b"good"), queue=[known]))  # type: ignore[arg-type]
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert not [outcome for outcome in outcomes[::4] if isinstance(outcome, BaseException)]
    for kind in (1, 2, 3):
        assert all(isinstance(outcome, MaxQError) for outcome in outcomes[kind::4])


async def test_small_messages_that_are_together_more_than_one_may_have_are_sent(
    namesrv: str, known: MessageQueue
) -> None:
    settings = {"auto_batch": True, "batch_max_delay_ms": 50, "max_message_size": 2_000}
    async with aio.Producer(GROUP, namesrv, **settings) as producer:  # type: ignore[arg-type]
        sends = [producer.send(Message(known.topic, bytes(300), {"KEYS": "k"})) for _ in range(50)]
        assert len(await asyncio.gather(*sends)) == 50


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "a batch has at least one message"),
        ((), "a batch has at least one message"),
        (None, "send_batch takes a list of Message, not None"),
        (5, "send_batch takes a list of Message, not 5"),
        ("text", "send_batch takes a list of Message, not 'text'"),
        (Message("BadInput", b"x"), "send_batch takes a list of Message, not Message.*for one there is `send`"),
        ([Message("BadInput", b"x"), Message("Other", b"x")], "one topic, not BadInput and Other; send two"),
        ([Message("BadInput", b"x", {"DELAY": "3"})], "cannot hold delayed messages; send them one by one"),
        ([Message("BadInput", bytes(3 << 20)), Message("BadInput", bytes(3 << 20))], "more than max_message_size"),
    ],
)
def test_a_batch_that_is_none(producer: api.TransactionProducer, known: MessageQueue, given: Any, why: str) -> None:
    with pytest.raises(MaxQError, match=why):
        producer.send_batch(given)


@pytest.mark.parametrize("topic", [5, None, ["T"], "", "a b", "T" * 128])
def test_calls_with_a_topic_that_is_none(producer: api.TransactionProducer, topic: Any) -> None:
    for call in (producer.fetch_publish_message_queues, lambda topic: producer.recall_message(topic, "x")):
        with pytest.raises(MaxQError, match=r"topic name .*(is|has) "):
            call(topic)


def test_a_recall_handle_that_is_none(producer: api.TransactionProducer, known: MessageQueue) -> None:
    plain = producer.send(Message(known.topic, b"x"))
    with pytest.raises(MaxQError, match=r"recall_handle is a text .* not None; results of messages without a delivery"):
        producer.recall_message(known.topic, plain.recall_handle)  # type: ignore[arg-type]
    with pytest.raises(MaxQError, match="recall handle is invalid"):
        producer.recall_message(known.topic, "no handle")


# --- clients that do not run ------------------------------------------------------------------------------------------

QUEUE: Final = MessageQueue("BadInput", "broker-a", 0)


def _message() -> Message:
    return Message("BadInput", b"x")


#: Client → how it is made, and calls of it.
IDLE: Final[dict[str, tuple[Callable[[Any, str], Any], dict[str, Callable[[Any], Any]]]]] = {
    "producer": (
        lambda kinds, namesrv: kinds.TransactionProducer(GROUP, namesrv, _Committing()),
        {name: lambda p, call=call: call(p, _message(), QUEUE) for name, call in CALLS.items()}
        | {
            "fetch_publish_message_queues": lambda p: p.fetch_publish_message_queues("BadInput"),
            "recall_message": lambda p: p.recall_message("BadInput", "x"),
        },
    ),
    "lite pull": (
        lambda kinds, namesrv: kinds.LitePullConsumer("CG_bad_input", namesrv),
        {
            "poll": lambda c: c.poll(10),
            "commit": lambda c: c.commit(),
            "seek": lambda c: c.seek(QUEUE, 0),
            "committed": lambda c: c.committed(QUEUE),
            "fetch_message_queues": lambda c: c.fetch_message_queues("BadInput"),
            "wait_for_assignment": lambda c: c.wait_for_assignment(timeout_ms=10),
        },
    ),
    "simple": (
        lambda kinds, namesrv: kinds.SimpleConsumer("CG_bad_input", namesrv),
        {"receive": lambda c: c.receive(1, wait_ms=10)},
    ),
    "push": (
        lambda kinds, namesrv: kinds.PushConsumer("CG_bad_input", namesrv, lambda messages, context: None),
        {"assigned_queues": lambda c: c.assigned_queues()},
    ),
}
_CASES: Final = [(kind, name) for kind, (_, calls) in IDLE.items() for name in calls]


@pytest.mark.parametrize(("kind", "name"), _CASES)
def test_a_client_that_does_not_run_says_so(namesrv: str, kind: str, name: str) -> None:
    make, calls = IDLE[kind]
    client = make(api, namesrv)
    for _ in range(2):
        with pytest.raises(NotRunningError, match="not running"):
            calls[name](client)
        with client:
            pass

    async def use() -> None:
        client = make(aio, namesrv)
        for _ in range(2):
            with pytest.raises(NotRunningError, match="not running"):
                await _awaited(calls[name](client))
            async with client:
                pass

    asyncio.run(use())


async def _awaited(work: Any) -> None:
    if hasattr(work, "__await__"):
        await work


@pytest.mark.parametrize(("kind", "name"), _CASES)
def test_a_client_whose_loop_is_gone_says_so(namesrv: str, kind: str, name: str) -> None:
    make, calls = IDLE[kind]
    made: list[Any] = []

    async def start() -> None:
        made.append(make(aio, namesrv))
        await made[0].start()
        if kind == "producer":
            await made[0].send(_message())

    async def use() -> None:
        await _awaited(calls[name](made[0]))

    asyncio.run(start())
    with pytest.raises(NotRunningError, match="was not shut down before its event loop ended: make another one"):
        asyncio.run(use())


@pytest.mark.parametrize(("kind", "name"), _CASES)
async def test_a_client_that_is_used_on_another_loop_says_so(namesrv: str, kind: str, name: str) -> None:
    make, calls = IDLE[kind]
    found: list[BaseException] = []

    async with make(aio, namesrv) as client:
        if kind == "producer":
            await client.send(_message())

        def elsewhere() -> None:
            async def use() -> None:
                await _awaited(calls[name](client))

            try:
                asyncio.run(use())
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        if kind == "producer":
            await client.send(_message())
    (error,) = found
    assert isinstance(error, NotRunningError), error
    assert "runs on another event loop: call it there" in str(error)


def test_a_call_without_a_loop_says_so(namesrv: str) -> None:
    async def use() -> None:
        async with aio.Producer(GROUP, namesrv) as producer:
            await producer.send(_message())
            with pytest.raises(NotRunningError, match="runs on another event loop"):
                await asyncio.to_thread(producer.send_async, _message())

    asyncio.run(use())


def test_a_message_says_at_once_what_cannot_be() -> None:
    with pytest.raises(LocalProtocolError, match="x01"):
        Message("T", b"x").put_user_property("a\x01b", "x")
