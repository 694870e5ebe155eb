"""Clients that ask the brokers of a group for promises of every kind, and note what they are told.

`PromiseClients` ask all brokers as a client with an old route would: those that lead no more as often as the one that
does. `PromiseTraffic` are a producer and consumers as a program has them. Shared by the simulation and by the torture
of real processes; loop, clock and chance are the caller's.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from maxq.client.client_config import ClientEnvironment, ProducerConfig, SimpleConsumerConfig
from maxq.client.consumer.simple_consumer import SimpleConsumer
from maxq.client.producer.producer import Producer
from maxq.client.results.send_result import SendStatus
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import MaxQError
from maxq.protocol.body.offsets import LockBatchRequestBody, LockBatchResponseBody
from maxq.protocol.body.subscription import SubscriptionGroupConfig, SubscriptionGroupWrapper
from maxq.protocol.body.topic_config import TopicConfigAndMappingSerializeWrapper
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import Message
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.client import RemotingClient
from tests.promise_history import History, Kind, Told

QUEUES: Final = 2
_TIMEOUT_MS: Final = 15_000
_WAIT_MS: Final = 1_000  # of a pop that finds nothing
_DUE_AFTER_MS: Final = 12_000


class Chance(Protocol):
    """SimRng, or random.Random by another name."""

    def uniform(self, low: float, high: float, /) -> float: ...


class PromiseClients:
    """Between `start` and `stop`.

    Args:
        brokers: name → address of all brokers of the group, those that are down, too.
        broker_name: of the group.
        prefix: of the names of the topics and groups that they make; no other history has it.
    """

    def __init__(
        self,
        client: RemotingClient,
        history: History,
        brokers: Mapping[str, str],
        chance: Chance,
        *,
        broker_name: str,
        prefix: str = "promised",
        pause_s: float = 0.2,
    ) -> None:
        self.topic = f"{prefix}-topic"
        self.group = f"{prefix}-group"
        self.history = history
        self._client = client
        self._brokers = brokers
        self._chance = chance
        self._broker_name = broker_name
        self._prefix = prefix
        self._pause_s = pause_s
        self._tasks: list[asyncio.Task[None]] = []
        self._ends = False
        self._has_lost = False

    def messages_were_lost(self) -> None:
        """Nobody knows any more which messages are there to be committed."""
        self._has_lost = True

    def start(self) -> None:
        """Ask until `stop`."""
        works = [self._lock(name, broker) for name in ("one", "two") for broker in self._brokers]
        works += [self._commit(), *(self._read_offsets(broker) for broker in self._brokers), self._make_topics(),
                  self._make_groups()]  # fmt: skip
        self._tasks = [asyncio.ensure_future(work) for work in works]

    async def stop(self) -> None:
        """What is under way is waited for."""
        self._ends = True
        await asyncio.gather(*self._tasks)

    # -- asking --

    async def _ask(self, broker: str, code: int, ext: dict[str, str], body: bytes = b"") -> RemotingCommand | None:
        try:
            return await self._client.invoke(self._brokers[broker], RemotingCommand(code, ext, body), _TIMEOUT_MS)
        except MaxQError:
            return None

    async def _rest(self) -> None:
        await asyncio.sleep(self._chance.uniform(0.1, 1.0) * self._pause_s)

    def _said(self, one: Told, reply: RemotingCommand | None) -> bool:
        """Note the answer, if there is one."""
        if reply is not None:
            self.history.answered(one, reply.code == ResponseCode.SUCCESS)
        return bool(one.ok)

    # -- locks --

    async def _lock(self, client: str, broker: str) -> None:
        queue = 0
        while not self._ends:
            queue = (queue + 1) % QUEUES
            body = self._lock_body(client, queue)
            one = self.history.ask(Kind.LOCK, f"{self.topic}-{queue}", client, broker)
            reply = await self._ask(broker, RequestCode.LOCK_BATCH_MQ, {}, body)
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                owned = LockBatchResponseBody.decode(reply.body_bytes).lock_ok_mq_set
                self.history.answered(one, bool(owned))
                if owned and self._chance.uniform(0, 1) < 0.5:
                    given = self.history.ask(Kind.UNLOCK, one.key, client, broker)
                    self._said(given, await self._ask(broker, RequestCode.UNLOCK_BATCH_MQ, {}, body))
            elif reply is not None:
                self.history.answered(one, False)
            await self._rest()

    def _lock_body(self, client: str, queue: int) -> bytes:
        queues = [MessageQueue(self.topic, self._broker_name, queue)]
        return LockBatchRequestBody(self.group, client, mq_set=queues).encode()

    # -- offsets --

    async def _commit(self) -> None:
        """One consumer: at each broker in turn, always further, and never beyond the messages that are there."""
        offset, at, end = 0, 0, 0
        brokers = list(self._brokers)
        while not self._ends:
            broker = brokers[at]
            if self._has_lost:
                self._has_lost, end = False, 0
            for _ in range(3):  # who leads no more takes commits, and no messages
                end = max(end, await self._send(broker))
            if offset >= end:
                at = (at + 1) % len(brokers)
                await self._rest()
                continue
            offset += 1
            one = self.history.ask(Kind.COMMIT, self.topic, "consumer", broker, offset)
            ext = {**self._queue(), "commitOffset": str(offset)}
            if not self._said(one, await self._ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, ext)):
                at = (at + 1) % len(brokers)
            await self._rest()

    async def _send(self, broker: str) -> int:
        """A message to commit. Returns where its queue ends with it; 0: it is not known to be there."""
        ext = {
            "producerGroup": self.group, "topic": self.topic, "queueId": "0", "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "2", "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "",
        }  # fmt: skip
        reply = await self._ask(broker, RequestCode.SEND_MESSAGE, ext, b"x")
        is_there = reply is not None and reply.code == ResponseCode.SUCCESS
        return int(reply.ext["queueOffset"]) + 1 if reply is not None and is_there else 0

    async def _read_offsets(self, broker: str) -> None:
        while not self._ends:
            one = self.history.ask(Kind.OFFSET, self.topic, "reader", broker)
            reply = await self._ask_offset(broker)
            if reply is not None:
                is_ok = reply.code == ResponseCode.SUCCESS
                self.history.answered(one, is_ok, int(reply.ext["offset"]) if is_ok else None)
            await self._rest()

    async def _ask_offset(self, broker: str) -> RemotingCommand | None:
        return await self._ask(broker, RequestCode.QUERY_CONSUMER_OFFSET,
                               {**self._queue(), "setZeroIfNotFound": "false"})  # fmt: skip

    def _queue(self) -> dict[str, str]:
        return {"consumerGroup": self.group, "topic": self.topic, "queueId": "0"}

    # -- tables --

    async def _make_topics(self) -> None:
        await self._make(self.topic, self._topic_request)
        number = 0
        while not self._ends:
            number += 1
            await self._make_and_delete(f"{self.topic}-{number}", self._topic_request,
                                        RequestCode.DELETE_TOPIC_IN_BROKER, "topic")  # fmt: skip

    async def _make_groups(self) -> None:
        await self._make(self.group, self._group_request)
        number = 0
        while not self._ends:
            number += 1
            await self._make_and_delete(f"{self.group}-{number}", self._group_request,
                                        RequestCode.DELETE_SUBSCRIPTIONGROUP, "groupName")  # fmt: skip

    async def _make_and_delete(self, name: str, request: "_Request", delete: int, field: str) -> None:
        await self._make(name, request)
        if self._chance.uniform(0, 1) < 0.5:
            await self._everywhere(Kind.DELETE, name, lambda: (delete, {field: name}, b""))

    async def _make(self, name: str, request: "_Request") -> None:
        await self._everywhere(Kind.MAKE, name, lambda: request(name))

    async def _everywhere(self, kind: Kind, name: str, request: "_Made") -> None:
        """Ask one after the other until one says that it is done."""
        while not self._ends:
            for broker in self._brokers:
                one = self.history.ask(kind, name, "admin", broker)
                if self._said(one, await self._ask(broker, *request())):
                    await self._rest()
                    return
                await self._rest()

    @staticmethod
    def _topic_request(name: str) -> tuple[int, dict[str, str], bytes]:
        ext = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
               "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
        return RequestCode.UPDATE_AND_CREATE_TOPIC, ext, b""

    @staticmethod
    def _group_request(name: str) -> tuple[int, dict[str, str], bytes]:
        return RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, SubscriptionGroupConfig(name).encode()

    # -- the end --

    async def tables(self) -> list[str]:
        """Names of topics and groups that the one who leads at the end has.

        Raises:
            MaxQError: nobody says.
        """
        broker = await self._speaker()
        topics = await self._ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG, {})
        groups = await self._ask(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {})
        if topics is None or groups is None:
            raise MaxQError(f"{broker} does not tell its tables")
        return [
            *TopicConfigAndMappingSerializeWrapper.decode(topics.body_bytes).topic_config_table,
            *SubscriptionGroupWrapper.decode(groups.body_bytes).subscription_group_table,
        ]

    async def offset(self) -> int:
        """What is committed, as the one says who leads at the end; −1: nothing.

        Raises:
            MaxQError: nobody says.
        """
        reply = await self._ask_offset(await self._speaker())
        if reply is None:
            raise MaxQError("nobody tells the offset")
        return int(reply.ext["offset"]) if reply.code == ResponseCode.SUCCESS else -1

    async def _speaker(self) -> str:
        for broker in self._brokers:
            master = await self._ask(broker, RequestCode.MAXQ_PURGE_TOPIC, {})  # who does not lead refuses by its role
            if master is not None and master.code not in _NOT_THE_MASTER:
                return broker
        raise MaxQError("no broker of the group is active")


_NOT_THE_MASTER: Final = (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE)


class PromiseTraffic:
    """A producer, and consumers that pop, between `start` and `stop`. No message is sent twice: what comes again was
    given again.

    Args:
        environment: of a client, by its number.
        topic, group: of the messages, and of who pops them.
        invisible_ms: for how long a message is asked for.
        safe_ms: an ack that took no longer came in time, and a message is nobody else's for so long, whatever clocks
            say.
        recalls: what is drawn by a producer that takes back what it has sent; None: there is none.
        late_s: a pop that took so long was answered although no slave has it, so that a slave which acts as master
            then may give the messages to others (docs/explanation/pop.md).
    """

    POPPERS = 2

    def __init__(
        self,
        environment: Callable[[int], ClientEnvironment],
        history: History,
        chance: Chance,
        *,
        name_server: str,
        topic: str,
        group: str,
        invisible_ms: int,
        safe_ms: int,
        pause_s: float = 0.6,
        recalls: Chance | None = None,
        late_s: float = float("inf"),
    ) -> None:
        self._late_s = late_s
        self._recalls = recalls
        self._environment = environment
        self._history = history
        self._chance = chance
        self._name_server = name_server
        self._topic = topic
        self._group = group
        self._invisible_ms = invisible_ms
        self._safe_ms = safe_ms
        self._pause_s = pause_s
        self._ends = False
        self._producing: asyncio.Future[list[None]]
        self._popping: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Send and pop until `stop`."""
        producing = [self._produce(), *([] if self._recalls is None else [self._take_back(self._recalls)])]
        self._producing = asyncio.gather(*producing)
        self._popping = [asyncio.ensure_future(self._pop(1 + number)) for number in range(self.POPPERS)]

    async def stop(self, patience_s: float) -> set[str]:
        """Send no more, and pop until everything acknowledged was given to somebody, or for so long: what was given."""
        self._ends = True
        await self._producing
        sent = self._keys(Kind.SEND)
        end = self._history.now() + patience_s
        while not sent <= self._keys(Kind.GIVEN) and self._history.now() < end:  # noqa: ASYNC110 told by tasks
            await asyncio.sleep(0.1)
        for one in self._popping:
            assert not one.done(), f"a consumer ended: {one.exception()!r}"
            one.cancel()
        await asyncio.gather(*self._popping, return_exceptions=True)
        return self._keys(Kind.GIVEN)

    def _keys(self, kind: Kind) -> set[str]:
        return {one.key for one in self._history.told if one.kind is kind and one.ok}

    async def _rest(self) -> None:
        await asyncio.sleep(self._chance.uniform(0, 1) * self._pause_s)

    def _producer(self, number: int) -> Producer:
        config = ProducerConfig(
            namesrv_addr=self._name_server, producer_group=f"{self._group}-P",
            instance_name=f"{self._group}-p{number or ''}", retry_times_when_send_failed=0,
        )  # fmt: skip
        return Producer(config, self._environment(number))

    async def _take_back(self, chance: Chance) -> None:
        """Messages with a delivery time are sent and taken back. What is not taken back in time comes."""
        async with self._producer(1 + self.POPPERS) as producer:
            number = 0
            while not self._ends:
                number += 1
                message = Message(self._topic, f"r{number}".encode())
                message.delay_time_ms = _DUE_AFTER_MS
                began = self._history.now()
                with contextlib.suppress(MaxQError):
                    result = await producer.send(message)
                    await asyncio.sleep(chance.uniform(0, 1) * self._pause_s)
                    if result.recall_handle:
                        one = self._history.ask(Kind.RECALL, f"r{number}", "producer", "group")
                        await producer.recall_message(self._topic, result.recall_handle)
                        self._history.answered(one, self._history.now() - began < _DUE_AFTER_MS / 2000)
                await asyncio.sleep(chance.uniform(0, 1) * self._pause_s)

    async def _produce(self) -> None:
        async with self._producer(0) as producer:
            number = 0
            while not self._ends:
                number += 1
                one = self._history.ask(Kind.SEND, f"m{number}", "producer", "group")
                with contextlib.suppress(MaxQError):
                    result = await producer.send(Message(self._topic, one.key.encode()))
                    self._history.answered(one, result.send_status is SendStatus.SEND_OK)
                await self._rest()

    async def _pop(self, number: int) -> None:
        name = f"{self._group}-{number}"
        config = SimpleConsumerConfig(
            namesrv_addr=self._name_server, consumer_group=self._group, instance_name=name,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        consumer = SimpleConsumer(config, self._environment(number))
        await consumer.subscribe(self._topic)
        async with consumer:
            while True:
                with contextlib.suppress(MaxQError):
                    await self._take(consumer, name)
                await self._rest()

    async def _take(self, consumer: SimpleConsumer, name: str) -> None:
        history, began = self._history, self._history.now()
        count = int(self._chance.uniform(1, 9))
        messages = await consumer.receive(count, self._invisible_ms, wait_ms=_WAIT_MS)
        safe_ms = self._safe_ms if history.now() - began < self._late_s else 0
        for message in messages:
            one = history.ask(Kind.GIVEN, message.body.decode(), name, "group", safe_ms)
            one.began = began
            history.answered(one, True)
        kept = [message for message in messages if self._chance.uniform(0, 1) < 0.9]
        if self._chance.uniform(0, 1) < 0.4:
            await asyncio.sleep(self._chance.uniform(0, self._safe_ms / 2000))  # brokers may change meanwhile
        if kept and self._chance.uniform(0, 1) < 0.5:
            asked = [history.ask(Kind.ACK, message.body.decode(), name, "group") for message in kept]
            await consumer.ack_all(kept)
            for one in asked:
                self._acknowledged(one, began)
            return
        for message in kept:
            one = history.ask(Kind.ACK, message.body.decode(), name, "group")
            await consumer.ack(message)
            self._acknowledged(one, began)

    def _acknowledged(self, one: Told, began: float) -> None:
        self._history.answered(one, self._history.now() - began < self._safe_ms / 1000)


class _Request(Protocol):
    def __call__(self, name: str, /) -> tuple[int, dict[str, str], bytes]: ...


class _Made(Protocol):
    def __call__(self) -> tuple[int, dict[str, str], bytes]: ...
