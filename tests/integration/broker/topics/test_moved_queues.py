"""Queues of a static topic that are moved to another broker while messages for them wait at the old one."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from maxq.api import (
    ConsumeContext,
    ConsumeFromWhere,
    LocalTransactionState,
    Message,
    MessageExt,
    async_admin,
    async_lite_pull_consumer,
    async_producer,
    async_push_consumer,
    async_simple_consumer,
    async_transaction_producer,
)
from maxq.client.admin.admin import Admin
from maxq.client.admin.offsets import LATEST
from maxq.client.admin.static_topic_plan import BrokerPart
from maxq.codes import RequestCode
from maxq.errors import BrokerError, ClientError, NoRouteError
from maxq.protocol.body.offsets import DelayOffsetSerializeWrapper
from maxq.protocol.message.message import encode_batch
from maxq.store.dispatch import dispatcher as dispatch
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until

FAST = {"poll_name_server_interval": 100, "heartbeat_broker_interval": 100}
QUICK = {"messageDelayLevel": "1s 2s 3s", "timerPrecisionMs": "100", "transactionTimeOut": "300",
         "transactionCheckInterval": "100", "mappedFileSizeCommitLog": str(8 << 20)}  # fmt: skip
COUNT = 4


class Undecided:
    """Knows nothing of a transaction before it is `decided`."""

    def __init__(self) -> None:
        self.decided = False

    async def execute_local_transaction(self, message: Message, arg: object) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW

    async def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE if self.decided else LocalTransactionState.UNKNOW


class Decided(Undecided):
    """Commits at once."""

    async def execute_local_transaction(self, message: Message, arg: object) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


@pytest.fixture
async def brokers(start_broker: Start, namesrv: str) -> dict[str, RunningBroker]:
    return {
        name: await start_broker(name, brokerName=name, namesrvAddr=namesrv, **QUICK)
        for name in ("broker-a", "broker-b")
    }


@asynccontextmanager
async def reading(namesrv: str, topic: str, *, most: float = math.inf) -> AsyncIterator[list[bytes]]:
    """What a running group gets; with the message behind the first `most` it is never done."""
    read: list[bytes] = []

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
        if len(read) >= most:
            await asyncio.Event().wait()
        read.extend(message.body for message in messages)

    consumer = async_push_consumer(
        "Readers", namesrv, listen, rebalance_interval=100, await_termination_when_shutdown=0, **FAST,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )  # fmt: skip
    consumer.subscribe(topic)
    async with consumer:
        yield read


def waiting(kind: str) -> Iterator[Message]:
    """Yield messages that readers do not see yet when the queues move."""
    for number in range(COUNT):
        message = Message("Static", b"%s %d" % (kind.encode(), number))
        if kind == "delayed":
            message.delay_level = 2
        elif kind == "timed":
            message.delay_time_ms = 2_000
        yield message


@pytest.mark.parametrize("kind", ["delayed", "timed", "transactional"])
async def test_what_waits_at_the_old_broker_reaches_readers_that_have_gone_on(
    brokers: dict[str, RunningBroker], namesrv: str, kind: str
) -> None:
    outcome = Undecided()
    async with (
        async_admin(namesrv) as admin,
        async_transaction_producer("PG", namesrv, outcome, **FAST) as producer,
        reading(namesrv, "Static") as read,
    ):
        await admin.static_topics.create("Static", 2, ["broker-a"])
        for message in waiting(kind):
            if kind == "transactional":
                await producer.send_message_in_transaction(message, None)
            else:
                await producer.send(message)
        await admin.static_topics.remap("Static", ["broker-b"])
        for number in range(COUNT):
            await producer.send(Message("Static", b"behind %d" % number))
        await until(lambda: sum(body.startswith(b"behind") for body in read) == COUNT)  # they are at the new broker
        outcome.decided = True
        await until(lambda: sum(body.startswith(kind.encode()) for body in read) == COUNT)
    assert len(read) == len(set(read)) == 2 * COUNT


async def test_what_went_to_the_new_leader_is_noted_soon_for_the_log_does_not_tell_of_it(
    start_broker: Start, namesrv: str
) -> None:
    """A kill would have it delivered once more."""
    more = {**QUICK, "namesrvAddr": namesrv, "flushDelayOffsetInterval": "600000"}
    old = await start_broker("broker-a", brokerName="broker-a", **more)
    new = await start_broker("broker-b", brokerName="broker-b", **more)
    async with async_admin(namesrv) as admin, async_producer("PG", namesrv, **FAST) as producer:
        await admin.static_topics.create("Static", 1, ["broker-a"])
        for message in waiting("delayed"):
            await producer.send(message)
        await admin.static_topics.remap("Static", ["broker-b"])
        await asyncio.wait_for(_has_messages(new, "Static"), 30)
        files = old.controller.carried_files

        def noted() -> bool:
            table = DelayOffsetSerializeWrapper.decode(files.read_delay_offsets()).offset_table
            return table.get(2, 0) == COUNT

        await until(noted)


class CutError(Exception):
    """Whoever moves the queues ends."""


@pytest.mark.parametrize("requests", range(4))
async def test_a_remapping_that_ended_in_the_middle_is_finished_by_the_next_one(
    brokers: dict[str, RunningBroker], namesrv: str, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        async_admin(namesrv) as admin,
        async_producer("PG", namesrv, **FAST) as producer,
        reading(namesrv, "Static") as read,
    ):
        await admin.static_topics.create("Static", 2, ["broker-a"])
        for number in range(COUNT):
            await producer.send(Message("Static", b"before %d" % number))
        with monkeypatch.context() as patch:
            _cut_after(admin, requests, patch)
            with pytest.raises(CutError):
                await admin.static_topics.remap("Static", ["broker-b"])
        for number in range(COUNT):
            await producer.send(Message("Static", b"between %d" % number))
        await admin.static_topics.remap("Static", ["broker-b"])
        for number in range(COUNT):
            await producer.send(Message("Static", b"behind %d" % number))
        await until(lambda: len(set(read)) == 3 * COUNT)
        await admin.static_topics.remap("Static", ["broker-a"])
    assert brokers["broker-a"].controller.mappings.table["Static"].info().curr_id_map == {0: 2, 1: 3}


@pytest.mark.parametrize("queues", [3, 4])
async def test_what_a_broker_has_that_is_away_is_not_made_anew(
    brokers: dict[str, RunningBroker], start_broker: Start, namesrv: str, queues: int
) -> None:
    """Its messages were lost: its queues began anew elsewhere, and two brokers led them when it was back."""
    names = ["broker-a", "broker-b", "broker-c"]
    away = await start_broker("broker-c", brokerName="broker-c", namesrvAddr=namesrv, **QUICK)
    async with (
        async_admin(namesrv) as admin,
        async_producer("PG", namesrv, **FAST) as producer,
        reading(namesrv, "Static") as read,
    ):
        await admin.static_topics.create("Static", 3, names)
        await away.stop()
        await until(lambda: _has_no_master(admin, "broker-c"))
        with pytest.raises(ClientError, match="no broker that has a master now leads 2: start"):
            await admin.static_topics.create("Static", queues, names[:2])
        await start_broker("broker-c", brokerName="broker-c", namesrvAddr=namesrv, **QUICK)
        for number in range(2 * COUNT):
            await producer.send(Message("Static", b"%d" % number))
        await until(lambda: len(set(read)) == 2 * COUNT)
        await admin.static_topics.create("Static", 4, names)


async def _has_no_master(admin: Admin, name: str) -> bool:
    group = (await admin.cluster_info()).broker_addr_table.get(name)
    return group is None or group.master_address is None


@pytest.mark.parametrize("begun", [0, 2])
@pytest.mark.parametrize("requests", [1, 3])
async def test_a_topic_whose_making_ended_in_the_middle_is_made_by_the_next_command(
    brokers: dict[str, RunningBroker], namesrv: str, requests: int, begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["broker-a", "broker-b"]
    async with (
        async_admin(namesrv) as admin,
        async_producer("PG", namesrv, **FAST) as producer,
        reading(namesrv, "Static") as read,
    ):
        if begun:
            await admin.static_topics.create("Static", begun, names)
        with monkeypatch.context() as patch:
            _cut_after(admin, requests, patch)
            with pytest.raises(CutError):
                await admin.static_topics.create("Static", 6, names)
        assert await _queues(admin) in ([], list(range(begun)), list(range(6)))
        await admin.static_topics.create("Static", 6, names)
        await until(lambda: _has_six(admin))
        for number in range(COUNT):
            await producer.send(Message("Static", b"%d" % number))
        await until(lambda: len(set(read)) == COUNT)


async def _queues(admin: Admin) -> list[int]:
    try:
        return [queue.queue_id for queue in await admin.offsets.queues("Static")]
    except NoRouteError:
        return []


async def _has_six(admin: Admin) -> bool:
    return len(await _queues(admin)) == 6


def _cut_after(admin: Admin, requests: int, patch: pytest.MonkeyPatch) -> None:
    """Whoever changes the topic ends after so many requests."""
    put = admin.static_topics._put
    left = iter(range(requests))

    async def cut(address: str, part: BrokerPart, force: bool) -> None:
        if next(left, None) is None:
            raise CutError
        await put(address, part, force)

    patch.setattr(admin.static_topics, "_put", cut)


async def test_a_message_waits_until_the_broker_that_leads_its_queue_is_back(
    brokers: dict[str, RunningBroker], start_broker: Start, namesrv: str
) -> None:
    """It holds up no other message of its level."""
    async with (
        async_admin(namesrv) as admin,
        async_producer("PG", namesrv, **FAST) as producer,
    ):
        await admin.static_topics.create("Static", 2, ["broker-a"])
        message = Message("Static", b"waits")
        message.delay_level = 1
        await producer.send(message)
        await admin.static_topics.remap("Static", ["broker-b"])
        other = brokers["broker-b"]
        await other.stop()
        brokers["broker-a"].create_topic("T")
        await until(lambda: brokers["broker-a"].controller.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1)
        await brokers["broker-a"].send("T", b"other", DELAY="1")
        await until(lambda: brokers["broker-a"].controller.store.max_offset("T", 0) == 1)
        again = await start_broker("broker-b", brokerName="broker-b", namesrvAddr=namesrv, **QUICK)
        await asyncio.wait_for(_has_messages(again, "Static"), 30)


async def _has_messages(broker: RunningBroker, topic: str) -> None:
    store = broker.controller.store
    await until(lambda: any(store.max_offset(topic, queue_id) for queue_id in range(2)))


async def test_a_message_behind_a_long_batch_is_read_after_the_move(
    brokers: dict[str, RunningBroker], namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is acknowledged before it has a place in its queue, which ends behind it all the same."""
    monkeypatch.setattr(dispatch, "_PIECE", 1)
    monkeypatch.setattr(dispatch, "_TURN_NS", -1)
    body = encode_batch([Message("Long", b"x")] * 3_000)
    old = brokers["broker-a"]
    old.create_topic("Long", queues=1)
    async with (
        async_admin(namesrv) as admin,
        async_producer("PG", namesrv, **FAST) as producer,
        reading(namesrv, "Static") as read,
    ):
        await admin.static_topics.create("Static", 1, ["broker-a"])
        await producer.send(Message("Static", b"before"))
        answer = await old.invoke(old.send_request("Long", body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True))
        assert answer.code == 0, answer.remark
        await producer.send(Message("Static", b"last"))
        assert old.controller.store.dispatch_behind_bytes > 0
        await admin.static_topics.remap("Static", ["broker-b"])
        await producer.send(Message("Static", b"behind"))
        await until(lambda: b"behind" in read)
    assert read == [b"before", b"last", b"behind"]


async def test_a_transaction_on_a_queue_that_has_moved_is_ended_by_its_producer(
    brokers: dict[str, RunningBroker], namesrv: str
) -> None:
    """What an answer says of a half message is its place among half messages, no place of the global queue."""
    async with (
        async_admin(namesrv) as admin,
        async_transaction_producer("PG", namesrv, Decided(), **FAST) as producer,
    ):
        await admin.static_topics.create("Static", 2, ["broker-a"])
        await producer.send(Message("Static", b"before"))
        await admin.static_topics.remap("Static", ["broker-b"])
        for number in range(COUNT):
            result = await producer.send_message_in_transaction(Message("Static", b"%d" % number), None)
            assert result.end_error is None, result


async def test_a_group_that_goes_back_to_an_older_part_goes_on_there(
    brokers: dict[str, RunningBroker], namesrv: str
) -> None:
    async def read(most: int, *, from_begin: bool = False) -> list[bytes]:
        """What the next consumer of the group gets, which commits and ends then."""
        found: list[bytes] = []
        consumer = async_lite_pull_consumer(
            "Readers", namesrv, auto_commit=False, pull_batch_size=1, rebalance_interval=100, **FAST,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        await consumer.subscribe("Static")
        async with consumer:
            await consumer.wait_for_assignment()
            if from_begin:
                (queue,) = consumer.assignment()
                await consumer.seek_to_begin(queue)
            while len(found) < most:
                messages = await consumer.poll(10_000)
                assert messages, found
                found += [message.body for message in messages]
            await consumer.commit()
        return found

    async with async_admin(namesrv) as admin, async_producer("PG", namesrv, **FAST) as producer:
        await admin.static_topics.create("Static", 1, ["broker-a"])
        bodies = [b"%d" % number for number in range(2 * COUNT)]
        for body in bodies[:COUNT]:
            await producer.send(Message("Static", body))
        await admin.static_topics.remap("Static", ["broker-b"])
        for body in bodies[COUNT:]:
            await producer.send(Message("Static", body))
        assert await read(2 * COUNT) == bodies
        assert await read(2, from_begin=True) == bodies[:2]
        assert await read(2 * COUNT - 2) == bodies[2:]


async def _polled(namesrv: str, most: int) -> list[bytes]:
    """Return what a consumer gets that reads so many messages, commits, and ends."""
    consumer = async_lite_pull_consumer("Readers", namesrv, pull_batch_size=1, rebalance_interval=100, **FAST)
    await consumer.subscribe("Static")
    read: list[bytes] = []
    async with consumer:
        while len(read) < most:
            read += [message.body for message in await consumer.poll(10_000)]
    return read


async def _listened(namesrv: str, most: int) -> list[bytes]:
    async with reading(namesrv, "Static", most=most) as read:
        await until(lambda: len(read) == most)
    return read


@pytest.mark.parametrize("read", [_polled, _listened], ids=["lite pull", "push"])
async def test_a_group_that_was_reset_into_an_older_part_makes_progress_there(
    brokers: dict[str, RunningBroker], namesrv: str, read: Callable[[str, int], Awaitable[list[bytes]]]
) -> None:
    """Three parts; each consumer goes on where the one before it has ended."""
    bodies = [b"%d" % number for number in range(9)]
    async with async_admin(namesrv) as admin, async_producer("PG", namesrv, **FAST) as producer:
        await admin.static_topics.create("Static", 1, ["broker-a"])
        for number, body in enumerate(bodies):
            if number in (3, 6):
                await admin.static_topics.remap("Static", ["broker-b" if number == 3 else "broker-a"])
            await producer.send(Message("Static", body))
        async with reading(namesrv, "Static") as everything:
            await until(lambda: len(everything) == 9)
        await admin.offsets.reset_by_time("Readers", "Static", 0)
    assert [await read(namesrv, most) for most in (2, 2, 5)] == [bodies[:2], bodies[2:4], bodies[4:]]


async def test_a_reset_leads_back_into_an_older_part(brokers: dict[str, RunningBroker], namesrv: str) -> None:
    async with async_admin(namesrv) as admin, async_producer("PG", namesrv, **FAST) as producer:
        await admin.static_topics.create("Static", 1, ["broker-a"])
        bodies = [b"%d" % number for number in range(2 * COUNT)]
        for body in bodies[:COUNT]:
            await producer.send(Message("Static", body))
        await admin.static_topics.remap("Static", ["broker-b"])
        for body in bodies[COUNT:]:
            await producer.send(Message("Static", body))
        async with reading(namesrv, "Static") as read:
            await until(lambda: len(read) == 2 * COUNT)
            (queue,) = await admin.offsets.queues("Static")
            with pytest.raises(ClientError, match="leads queue 1 of static topic Static"):
                await admin.offsets.max(replace(queue, queue_id=1))
            assert await admin.offsets.reset_by_time("Readers", "Static", 0) == {queue: 0}
            await until(lambda: len(read) >= 4 * COUNT)  # the running member hears of it
            assert read[-2 * COUNT :] == bodies
        await admin.offsets.reset_by_time("Readers", "Static", 0)  # nobody is there to hear of it
        progress = await admin.groups.consume_stats("Readers", "Static")
        assert progress.offset_table[queue].consumer_offset == 0
        await admin.offsets.reset_by_time("Readers", "Static", LATEST)
        await producer.send(Message("Static", b"new"))
        async with reading(namesrv, "Static") as read:
            await until(lambda: read == [b"new"])
        assert await admin.offsets.reset_queue("Readers", queue, 1) == 1
        async with reading(namesrv, "Static") as read:
            await until(lambda: read == [*bodies[1:], b"new"])
        await brokers["broker-a"].stop()
        assert await admin.offsets.reset_by_time("Readers", "Static", LATEST) == {queue: 10_000 + COUNT + 1}
        with pytest.raises(BrokerError, match="start the broker, and reset again"):
            await admin.offsets.reset_by_time("Readers", "Static", 0)


class Moving(Undecided):
    """Moves the queues while the local transaction is executed, and commits."""

    def __init__(self, namesrv: str) -> None:
        super().__init__()
        self._namesrv = namesrv
        self.learn_route: Callable[[], Awaitable[object]]

    async def execute_local_transaction(self, message: Message, arg: object) -> LocalTransactionState:
        async with async_admin(self._namesrv) as admin:
            await admin.static_topics.remap("Static", ["broker-b"])
        await self.learn_route()
        return LocalTransactionState.COMMIT_MESSAGE


async def test_a_transaction_whose_queue_moves_meanwhile_is_ended_where_its_half_message_is(
    brokers: dict[str, RunningBroker], namesrv: str
) -> None:
    """The new leader was told, which has none."""
    outcome = Moving(namesrv)
    async with (
        async_admin(namesrv) as admin,
        async_transaction_producer("PG", namesrv, outcome, **FAST) as producer,
        reading(namesrv, "Static") as read,
    ):
        routes = producer._running().instance.routes
        outcome.learn_route = lambda: routes.update_route("Static")
        await admin.static_topics.create("Static", 1, ["broker-a"])
        result = await producer.send_message_in_transaction(Message("Static", b"moved"), None)
        assert result.end_error is None, result
        await until(lambda: read == [b"moved"])


async def test_what_lies_where_queues_were_is_popped_there(brokers: dict[str, RunningBroker], namesrv: str) -> None:
    read: list[bytes] = []
    async with (
        async_admin(namesrv) as admin,
        async_producer("PG", namesrv, **FAST) as producer,
        async_simple_consumer(
            "Poppers", namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **FAST
        ) as consumer,
    ):
        await admin.static_topics.create("Static", 2, ["broker-a"])
        await consumer.subscribe("Static")
        for number in range(COUNT):
            await producer.send(Message("Static", b"before %d" % number))
        await admin.static_topics.remap("Static", ["broker-b"])
        for number in range(COUNT):
            await producer.send(Message("Static", b"behind %d" % number))
        end = asyncio.get_running_loop().time() + 30
        while len(read) < 2 * COUNT and asyncio.get_running_loop().time() < end:
            messages = await consumer.receive(wait_ms=1_000)
            read += [message.body for message in messages]
            if messages:
                await consumer.ack_all(messages)
    assert sorted(read) == sorted(b"%b %d" % (when, n) for when in (b"before", b"behind") for n in range(COUNT))


async def test_a_consumer_whose_broker_assigns_queues_gets_all_of_a_static_topic(
    brokers: dict[str, RunningBroker], namesrv: str
) -> None:
    read: list[bytes] = []

    def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
        read.extend(message.body for message in messages)

    consumer = async_push_consumer(
        "Readers", namesrv, listen, client_rebalance=False, rebalance_interval=100, **FAST,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )  # fmt: skip
    consumer.subscribe("Static")
    async with async_admin(namesrv) as admin, async_producer("PG", namesrv, **FAST) as producer:
        await admin.static_topics.create("Static", 4, ["broker-a", "broker-b"])
        for number in range(COUNT):
            await producer.send(Message("Static", b"%d" % number))
        async with consumer:
            await until(lambda: len(read) == COUNT)
        assert sorted(read) == [b"%d" % number for number in range(COUNT)]
