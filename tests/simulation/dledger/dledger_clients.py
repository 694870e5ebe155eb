"""Producers, a consumer and what they saw of a simulated DLedger group: plain messages, delayed ones, ones with a time,
transactions, and a consumer that fails now and then and gives back.

What they are told is a promise. Each acknowledged message comes, however often; a rolled back one never. The plain
ones of a queue are an append-only list: the place that the answer named holds that message, no two have one place, and
one that was sent after another was acknowledged lies behind it.
"""

import asyncio
from collections import Counter
from pathlib import PurePath
from typing import Final, NamedTuple
from zlib import crc32

from maxq.client.client_config import ClientEnvironment, ProducerConfig, PushConsumerConfig
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.producer.producer import Producer
from maxq.client.producer.transaction_producer import TransactionProducer
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.client.results.local_transaction_state import LocalTransactionState
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.errors import MaxQError
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message, MessageExt
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_rng import SimRng
from tests.simulation.dledger.dledger_servers import Server
from tests.simulation.servers.sim_server import CLIENT, NAMESRV_ADDRESS, TOPIC

_ENDS: Final = (
    LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOW,
)  # fmt: skip


class Appended(NamedTuple):
    """An acknowledged plain message: when it was sent and acknowledged, where it is said to be."""

    body: bytes
    began: float
    ended: float
    queue_id: int
    queue_offset: int


class Clients:
    """Of one story.

    Attributes:
        must_come: bodies that were acknowledged, and whose transaction, if any, is committed.
        must_not_come: those of transactions that were rolled back.
        came: consumed.
    """

    def __init__(self, machine: SimMachine, rng: SimRng, marks: Counter[str], *, timed: bool) -> None:
        self._machine = machine
        self._rng = rng
        self._marks = marks
        self._timed = timed
        self._sending = True
        self._producers: list[asyncio.Task[None]] = []
        self._consumer: PushConsumer | None = None
        self._ends: dict[bytes, LocalTransactionState] = {}  # of transactions, when the broker asks
        self._given_back: set[bytes] = set()
        self._appended: list[Appended] = []
        self.must_come: set[bytes] = set()
        self.must_not_come: set[bytes] = set()
        self.came: set[bytes] = set()

    async def start(self) -> None:
        rng, machine = self._rng, self._machine
        self._producers = [machine.spawn(self._produce(n, rng.fork(f"p{n}"))) for n in range(2)]
        self._producers.append(machine.spawn(self._produce_in_transactions(rng.fork("t"))))
        self._consumer = await machine.call(lambda: self._consume(rng.fork("consumer")))

    async def stop_sending(self) -> None:
        self._sending = False
        for producer in self._producers:
            await asyncio.wait_for(producer, 120)

    async def shutdown(self) -> None:
        assert self._consumer is not None
        await self._machine.call(self._consumer.shutdown)

    # -- producers --

    def _environment(self, rng: SimRng, process_id: int) -> ClientEnvironment:
        return ClientEnvironment(self._machine.clock, rng, self._machine.disk, CLIENT, process_id, PurePath("/home"))

    def _config(self, name: str) -> ProducerConfig:
        return ProducerConfig(
            namesrv_addr=NAMESRV_ADDRESS, producer_group=name, instance_name=name, default_topic_queue_nums=2
        )

    async def _produce(self, number: int, rng: SimRng) -> None:
        async with Producer(self._config(f"P{number}"), self._environment(rng, number + 1)) as producer:
            count = 0
            while self._sending:
                count += 1
                message = Message(TOPIC, f"{number}-{count} ".encode() * rng.choice((1, 5, 100)))
                kind = rng.below(10) if self._timed else 9
                if kind == 0:
                    message.delay_level = rng.between(1, 5)
                elif kind == 1:
                    message.delay_time_ms = rng.between(1, 9000)
                await self._send(producer, message, is_plain=kind > 1)
                await asyncio.sleep(rng.uniform(0, 0.3))

    async def _send(self, producer: Producer, message: Message, *, is_plain: bool) -> None:
        began = self._machine.loop.time()
        body = message.body
        try:
            result = await asyncio.wait_for(producer.send(message), 120)
        except MaxQError:
            self._marks["send failed"] += 1
            await asyncio.sleep(0.2)
            return
        self._marks[f"answer: {result.send_status.name}"] += 1
        if result.send_status is SendStatus.SEND_OK:
            self.must_come.add(body)
            if is_plain:
                self._note(body, began, result)
            else:
                self._marks["acknowledged: timed"] += 1

    def _note(self, body: bytes, began: float, result: SendResult) -> None:
        queue_id = result.message_queue.queue_id
        self._appended.append(Appended(body, began, self._machine.loop.time(), queue_id, result.queue_offset))

    async def _produce_in_transactions(self, rng: SimRng) -> None:
        """A broker that asks hears how each ended, or for a while that nobody knows yet."""
        clients = self

        class Listener:
            def execute_local_transaction(self, message: Message, arg: object) -> LocalTransactionState:
                return clients._ends[message.body]

            def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
                clients._marks["transaction checked"] += 1
                end = clients._ends[message.body]
                return LocalTransactionState.COMMIT_MESSAGE if end is LocalTransactionState.UNKNOW else end

        producer = TransactionProducer(self._config("T"), self._environment(rng, 8), Listener())
        async with producer:
            count = 0
            while self._sending or count == 0:
                count += 1
                body = b"t-%d" % count
                self._ends[body] = end = rng.choice(_ENDS)
                try:
                    result = await asyncio.wait_for(producer.send_message_in_transaction(Message(TOPIC, body)), 120)
                except MaxQError:
                    self._marks["half message failed"] += 1
                else:
                    is_kept = result.send_status is SendStatus.SEND_OK
                    is_rolled_back = end is LocalTransactionState.ROLLBACK_MESSAGE
                    self._marks[f"transaction: {end.name}"] += is_kept
                    if is_kept:
                        (self.must_not_come if is_rolled_back else self.must_come).add(body)
                await asyncio.sleep(rng.uniform(0.2, 1.5))
            while not self.must_come <= self.came:  # brokers go on to ask  # noqa: ASYNC110
                await asyncio.sleep(1)

    # -- the consumer --

    async def _consume(self, rng: SimRng) -> PushConsumer:
        config = PushConsumerConfig(
            namesrv_addr=NAMESRV_ADDRESS, consumer_group="G", instance_name="c",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        consumer = PushConsumer(config, self._environment(rng, 9), self._listen)
        consumer.subscribe(TOPIC)
        await consumer.start()
        return consumer

    async def _listen(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        self._marks["consumed"] += len(messages)
        for message in messages:
            if crc32(message.body) % 11 == 0 and message.body not in self._given_back:
                self._given_back.add(message.body)
                self._marks["given back"] += 1
                context.delay_level_when_next_consume = 2
                return ConsumeResult.RECONSUME_LATER
        self.came.update(message.body for message in messages)
        return None

    # -- what must hold --

    def check(self, server: Server) -> None:
        """Against the queues of a member, at the end."""
        assert not self.must_not_come & self.came, f"rolled back, and consumed: {self.must_not_come & self.came}"
        places: dict[tuple[int, int], bytes] = {}
        last: dict[int, list[Appended]] = {}
        for one in self._appended:
            other = places.setdefault((one.queue_id, one.queue_offset), one.body)
            assert other == one.body, f"{other[:20]!r} and {one.body[:20]!r} were both told {one[3:]}"
            if one.queue_offset < server.broker.store.min_offset(TOPIC, one.queue_id):
                continue  # its file is deleted, on every member's disk
            found = server.broker.store.get_message("check", TOPIC, one.queue_id, one.queue_offset, 1, None)
            assert found.buffers and one.body in bytes(found.buffers[0]), f"{one.body[:20]!r} is not at {one[3:]}"
            last.setdefault(one.queue_id, []).append(one)
        for appended in last.values():
            highest = -1
            ends = sorted(appended, key=lambda one: one.ended)
            at = 0
            for one in sorted(appended, key=lambda one: one.began):
                while at < len(ends) and ends[at].ended < one.began:
                    highest = max(highest, ends[at].queue_offset)
                    at += 1
                assert one.queue_offset > highest, f"{one} was sent after {highest} of its queue was acknowledged"
