"""One seed, one story of what producers promise (docs/reference/client-promises.md): all ways to send and all faults,
on the shipped clients, brokers and name servers, in virtual time.

A process sends in every way there is, several calls at a time, some of which are cancelled; between it and each broker
there is a meddler (meddler.py). Others send in transactions (send_transactions.py) and answer requests
(send_replies.py). Meanwhile brokers are killed, paused, restarted and hand over, name servers hang, connections break,
the sending process itself stands still for a while, and the others are killed. The brokers are a group that elects its
master, or two masters. At the end all is quiet, and every message that is stored is read.

What must hold: what was acknowledged is stored, with the body and the properties that it was given, and where its
result says; results of many are in the messages' order; a batch lies together; messages of which each was sent after
the result of the one before are in that order; a call ends in its time, and after it has ended nothing of it is sent;
no outcome is told twice; what is stored although its call raised an error has an error that says so (`may_be_stored`),
row by row if it was a table; what left so many times is stored so many times at most; a reply is that to the request;
errors are MaxQErrors; when all calls have ended nothing waits any more, and the next sends succeed.
"""

import asyncio
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

import pyarrow as pa

from maxq.api import Message, MessageQueue, async_admin, async_lite_pull_consumer
from maxq.client.blocking.loop_thread import SendCall
from maxq.client.client_config import ProducerConfig
from maxq.client.errors import ArrowSendError, NotRunningError
from maxq.client.message_feed import MessageFeed
from maxq.client.producer.producer import Producer, SendStart
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.errors import MaxQError
from maxq.machine import system_environment
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import SerializeType
from maxq.protocol.message.message import MessageExt
from maxq.remoting.connection import Connection
from maxq.testing.sim_network import LinkSettings
from maxq.testing.simulated_cluster import (
    SimulatedBroker,
    SimulatedMember,
    SimulatedNameServer,
    Simulation,
    _of_broker,
)
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.servers.meddler import Meddler
from tests.simulation.servers.send_replies import ASKED, Replier, reply_to
from tests.simulation.servers.send_transactions import BROKER_SETTINGS, Bank

TOPIC, QUEUES = "Sent", 3
_TOPICS: Final = (TOPIC, f"ns%{TOPIC}", ASKED)
NAME_SERVERS: Final = ("10.0.0.9", "10.0.0.8")
NAMESRV: Final = ";".join(f"{host}:9876" for host in NAME_SERVERS)
NUMBER: Final = "message-number"  # a property of each message
_NUMBERS: Final = re.compile(NUMBER.encode() + rb"(?:\\u0001|\x01)(\d+)(?:\\u0002|\x02)")
_SLACK_S: Final = 0.25  # that a call may take longer than its time-out
_SETTLE_S: Final = 60.0

#: Ways to have a producer: those of the common way of sends, and those of the general one.
PRODUCERS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "plain too": {"namespace": "ns"},
    "binary": {"serialize_type": SerializeType.ROCKETMQ},
    "gathering": {"auto_batch": True, "batch_max_delay_ms": 20},
    "wary": {"send_latency_enable": True},
    "without retries": {"retry_times_when_send_failed": 0, "retry_times_when_send_async_failed": 0},
}


class ScriptedError(Exception):
    """Raised by the program that sends, not by the client."""


@dataclass(slots=True)
class Call:
    """One call of a producer.

    Attributes:
        numbers: of its messages.
        seconds: of its time-out; 0: it has none of its own.
        results: of its messages, by number; of a batch, for its first one.
        untold: rows of a table that are not stored, or, if true, may be.
        error: what it raised.
    """

    way: str
    messages: list[Message]
    numbers: list[int]
    seconds: float
    began: float
    ended: float | None = None
    results: dict[int, SendResult] = field(default_factory=dict)
    untold: dict[int, bool] = field(default_factory=dict)
    error: BaseException | None = None
    is_cancelled: bool = False

    def __str__(self) -> str:
        return f"{self.way} of {self.numbers[0]}…{self.numbers[-1]} (began {self.began:.3f}, ended {self.ended})"


class _UnderWay(set[SendCall]):
    """The one call that is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = asyncio.Event()

    def discard(self, call: object) -> None:
        super().discard(call)  # type: ignore[arg-type]
        self.is_over.set()


class Broker(SimulatedBroker):
    """A broker behind a meddler, whose address it registers."""

    def __init__(self, sim: Simulation, number: int, host: str, settings: dict[str, str]) -> None:
        self._front = host
        super().__init__(sim, f"broker {number}", f"10.0.0.{number}", {**settings, "brokerIP1": host})

    @property
    def address(self) -> str:
        return f"{self._front}:10911"


class SendStory:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.is_group = seed % 2 == 1
        self.marks: Counter[str] = Counter()
        self.sent: dict[int, Message] = {}  # by number
        self.calls: list[Call] = []
        self.call_of: dict[int, Call] = {}
        self.stored: dict[int, list[MessageExt]] = defaultdict(list)
        self._left: Counter[int] = Counter()  # how often a message left for a broker
        self._sim: Simulation | None = None
        self._failures: list[str] = []
        self.is_over = False  # the time of faults
        self._has_ended = False  # the process that sends
        self._stood_still: list[tuple[float, float]] = []  # the process that sends: from, until
        self._tasks: set[asyncio.Task[None]] = set()

    topic = TOPIC
    name_server_addresses = NAMESRV

    @staticmethod
    def number_of(message: Message) -> int:
        """Return the number of a message."""
        return int(message.properties[NUMBER])

    @property
    def history(self) -> list[str]:
        return [] if self._sim is None else self._sim.history

    def run(self) -> None:
        with mock.patch.object(Connection, "write", self._watched(Connection.write)):
            run_simulation(self._main, seed=self.seed, time_limit_s=3600.0, step_limit=20_000_000)

    def fail(self, what: str) -> None:
        self._told.log(f"BROKEN: {what}")
        self._failures.append(what)

    def check(self) -> None:
        assert not self._failures, "; ".join(self._failures[:5])

    @property
    def _told(self) -> Simulation:
        assert self._sim is not None, "the story has begun"
        return self._sim

    def _watched(self, write: Callable[[Connection, Any], None]) -> Callable[[Connection, Any], None]:
        """See every request that leaves the process that sends."""

        def watched(connection: Connection, buffers: Sequence[bytes | memoryview]) -> None:
            if connection.local_address.startswith("10.1.") and not connection.is_closed:
                for number in _NUMBERS.findall(b"".join(buffers)):
                    self._leaves(int(number))
            write(connection, buffers)

        return watched

    def _leaves(self, number: int) -> None:
        call = self.call_of[number]
        self._left[number] += 1
        is_shared = call.is_cancelled and call.way.endswith("gathering")  # others are in its request
        if call.ended is not None and not is_shared:
            self.fail(f"{call} had ended when {number} was sent")

    # -- the servers --

    async def _main(self, world: SimWorld) -> None:
        sim = self._sim = Simulation(world, self.seed, 1, {})
        self.rng = sim.rng.fork("sends")
        world.network.default_link = LinkSettings(delay_ms=(0.1, 5), chunk_bytes=(1, 4000), whole=0.6)
        common = {"namesrvAddr": NAMESRV, **BROKER_SETTINGS}
        self.meddlers: list[Meddler] = []
        sim.brokers = []
        for number in (1, 2, 3) if self.is_group else (1, 2):
            own = _of_broker(number, 3) if self.is_group else {"brokerName": f"broker-{number}"}
            host = f"10.2.0.{number}"
            sim.brokers.append(Broker(sim, number, host, {**common, **own}))
            target = (f"10.0.0.{number}", 10911)
            self.meddlers.append(Meddler(world, self.rng.fork(host), host, target, self.marks))
            await self.meddlers[-1].start()
        self.name_servers = [SimulatedNameServer(sim, f"name server {host}", host) for host in NAME_SERVERS]
        await self.name_servers[1].start()
        sim._namesrv = self.name_servers[0]  # which `run` starts
        await sim.run(self._story)

    async def _story(self, sim: Simulation) -> None:
        await self._create_topics()
        member = sim.add_member(self._send_all, name="the sender")
        self.bank, replier = Bank(self), Replier(self)
        self.payer = sim.add_member(self.bank.pay, name="the payer")
        self.others = [
            self.payer, sim.add_member(self.bank.witness, name="the witness"),
            sim.add_member(replier.run, name="the replier"),
        ]  # fmt: skip
        for meddler in self.meddlers:
            meddler.victims = {one.machine.address for one in (member, *self.others)}
        await self._faults(member)
        await self._calm()
        self.is_over = True
        await sim.until(lambda: self._has_ended and self.bank.has_ended, seconds=120, what="all calls have ended")
        await self._read_all()
        self._check_all()
        self.check()

    async def _create_topics(self) -> None:
        sim = self._told
        async with async_admin(NAMESRV) as admin:

            async def create() -> bool:
                masters = [broker for broker in sim.brokers if broker.is_master]
                for topic in _TOPICS:
                    for broker in masters:
                        await admin.topics.create(broker.address, TopicConfig(topic, QUEUES, QUEUES))
                return len(masters) == (1 if self.is_group else len(sim.brokers))

            await sim._try(create)
            await asyncio.sleep(1)

    # -- what goes wrong --

    async def _faults(self, member: SimulatedMember) -> None:
        rng, sim = self.rng.fork("faults"), self._told
        rate = rng.choice((0.0, 0.02, 0.1, 0.3))
        for meddler in self.meddlers:
            meddler.rate = rate
        end = sim.seconds + rng.uniform(10, 25)
        while sim.seconds < end:
            await asyncio.sleep(rng.uniform(0.1, 3))
            await self._fault(member, rng.below(14), rng)

    async def _fault(self, member: SimulatedMember, what: int, rng: Any) -> None:
        sim, network = self._told, self._told.world.network
        at = rng.below(len(sim.brokers))
        broker, meddler = sim.brokers[at], self.meddlers[at]
        front, here = meddler.host, rng.choice((member, member, *self.others)).machine.address
        if what == 0:
            sim.log(f"connections with {front} are reset")
            self.marks["connections were reset"] += 1
            network.reset(here, front)
        elif what in (1, 2):
            sim.log(f"no packet passes to {front}")
            self.marks["packets did not pass"] += 1
            first, second = (here, front) if rng.chance(0.5) else (front, here)
            network.partition(first, second, both_ways=rng.chance(0.3))
            await asyncio.sleep(rng.uniform(0.05, 5))
            network.heal(first, second)
        elif what == 3:
            self.marks["a broker was killed"] += 1
            broker.kill()
            if rng.chance(0.5):
                meddler.refuse()
            await asyncio.sleep(rng.choice((0.0, 0.5, 4.0)))
            await broker.start()
            await meddler.start()
        elif what == 4:
            self.marks["a broker was paused"] += 1
            await broker.pause(rng.uniform(0.05, 5))
        elif what == 5:
            self.marks["a broker was restarted"] += 1
            await broker.restart()
        elif what == 6:
            name_server = rng.choice(self.name_servers)
            self.marks["a name server hung"] += 1
            await name_server.pause(rng.uniform(0.2, 5))
        elif what == 7:
            self.marks["no name server answered"] += 1
            seconds = rng.uniform(0.2, 5)
            await asyncio.gather(*(name_server.pause(seconds) for name_server in self.name_servers))
        elif what == 8:
            name_server = rng.choice(self.name_servers)
            self.marks["a name server was restarted"] += 1
            await name_server.restart()
        elif what == 9:
            self.marks["the sender stood still"] += 1
            began = sim.world.loop.time()
            await member.pause(rng.uniform(0.01, 4))
            self._stood_still.append((began, sim.world.loop.time()))
        elif what in (12, 13):
            other = rng.choice(self.others)
            self.marks[f"{other.name} was killed"] += 1
            other.kill()
            await asyncio.sleep(rng.choice((0.0, 1.0, 6.0)))
            other.start_now()
        elif what == 10 and self.is_group:
            self.marks["a broker handed over"] += 1
            await sim.hand_over()
        else:
            sim.log(f"connections of {broker.name} are reset")
            network.reset(broker.machine.address)

    async def _calm(self) -> None:
        sim = self._told
        for meddler in self.meddlers:
            meddler.rate = 0.0
            await meddler.start()
        sim.world.network.heal()
        for broker in sim.brokers:
            if not broker.is_up:
                await broker.start()
        for other in self.others:
            if not other.is_up:
                other.start_now()
        await sim.wait_for_master()
        sim.log("all is calm")

    # -- who sends --

    async def _send_all(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.producers = {name: self._producer(name, settings) for name, settings in PRODUCERS.items()}
        for producer in self.producers.values():
            await producer.start()
        rng, numbers = self.rng.fork("calls"), itertools.count()
        while not self.is_over:
            await asyncio.sleep(rng.uniform(0, 0.2))
            task = asyncio.ensure_future(self._one(rng.fork(f"call {next(numbers)}")))
            self._tasks.add(task)
            task.add_done_callback(self.look_at)
        async with asyncio.timeout(_SETTLE_S):
            while self._tasks:
                await asyncio.wait(self._tasks)
        await self._check_calm(rng)
        for producer in self.producers.values():
            await producer.shutdown()
        try:
            await self.producers["plain"].send(Message(TOPIC, b"late"))
        except NotRunningError:
            pass
        else:
            self.fail("a producer sends after its shutdown")
        self._has_ended = True

    def look_at(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._told.fail(error, f"a call raised {error!r}")

    def _producer(self, name: str, settings: dict[str, Any]) -> Producer:
        group = "G-" + name.replace(" ", "-")
        config = ProducerConfig(
            namesrv_addr=NAMESRV, producer_group=group, send_msg_timeout=1500, poll_name_server_interval=5_000,
            heartbeat_broker_interval=5_000, **settings,
        )  # fmt: skip
        return Producer(config, system_environment())

    async def _check_calm(self, rng: Any) -> None:
        """The next sends of each producer succeed, and nothing waits after them."""
        await asyncio.sleep(8)  # late answers; routes and connections are as they should be
        for name, producer in self.producers.items():
            message = self.message(rng, "calm")
            call = self.call(f"a calm send, {name}", [message], 3.0)
            await self.await_call(call, producer.send(message, timeout_ms=3_000), lambda result: [result])
            if call.error is not None:
                self.fail(f"{call} failed although all is calm: {call.error!r}")
        await self._check_replies(rng)
        await asyncio.sleep(4)
        for name, producer in self.producers.items():
            if waiting_for := producer._sender.instance.pending_requests._futures:
                self.fail(f"{len(waiting_for)} requests of {name} wait for replies, and nobody waits for them")
            for address, connection in producer._sender.instance.remoting.open_connections():
                waiting = set(connection.waiters)
                await asyncio.sleep(0.5)  # there are heartbeats
                if still := waiting & set(connection.waiters):
                    self.fail(f"{len(still)} requests of {name} to {address} wait for ever")
        for task in asyncio.all_tasks():
            if task.get_name() in ("maxq-send-many", "maxq-auto-batch"):
                self.fail(f"{task.get_name()} has not ended")

    async def _check_replies(self, rng: Any) -> None:
        """A request is answered, once the replier has its queues again."""
        end = self._loop.time() + _SETTLE_S
        while True:
            message = self.message(rng, "calm", ASKED)
            call = self.call("a calm request", [message], 5.0)
            await self.await_call(call, self._reply(call, self.producers["plain"].request(message, timeout_ms=5_000)))
            if call.error is None:
                return
            if self._loop.time() > end:
                self.fail(f"{call} failed although all is calm: {call.error!r}")
                return

    # -- calls --

    def message(self, rng: Any, text: str = "", topic: str = TOPIC) -> Message:
        number = len(self.sent)
        size = rng.choice((1, 10, 10, 100, 100, 1_000, 5_000))
        body = f"{number}|{text}|".encode() + (rng.bytes(size) if rng.chance(0.5) else bytes(size))
        message = Message(topic, body, {NUMBER: str(number)})
        if rng.chance(0.4):
            message.keys = [f"k{number}", 'ä"\\']
            message.tags = rng.choice(("A", "B", "Ü"))
        if rng.chance(0.05):
            message.flag = rng.between(-5, 5)
        self.sent[number] = Message(topic, body, dict(message.properties), message.flag)
        return message

    def call(self, way: str, messages: list[Message], seconds: float) -> Call:
        numbers = [int(message.properties[NUMBER]) for message in messages]
        call = Call(way, messages, numbers, seconds, self._loop.time())
        self.calls.append(call)
        for number in numbers:
            self.call_of[number] = call
        self.marks[way] += 1
        return call

    async def await_call(
        self, call: Call, work: Awaitable[Any], results: Callable[[Any], Sequence[SendResult]] = lambda answer: ()
    ) -> None:
        """Await a call and keep its outcome."""
        try:
            answer = await work
        except (MaxQError, ScriptedError) as error:
            call.error = error
            self.marks[f"raised {type(error).__name__}"] += 1
        except asyncio.CancelledError:
            call.is_cancelled = True
            self.marks["a call was cancelled"] += 1
        else:
            for number, result in zip(call.numbers, results(answer), strict=False):
                self._acknowledged(call, number, result)
        call.ended = self._loop.time()
        if call.seconds and not call.is_cancelled:
            took = call.ended - call.began - self.stood_still(call.began, call.ended)
            if took > call.seconds + _SLACK_S:
                self.fail(f"{call} took {took:.3f} s, more than {call.seconds} s: {call.error!r}")

    def stood_still(self, began: float, ended: float) -> float:
        now = self._stood_still
        return sum(max(0.0, min(ended, until) - max(began, since)) for since, until in now) + (
            _SLACK_S if any(since <= ended for since, _ in now[-1:]) else 0.0
        )

    def _acknowledged(self, call: Call, number: int, result: SendResult) -> None:
        if number in call.results:
            self.fail(f"{call}: the result of {number} is told twice")
        call.results[number] = result

    async def _one(self, rng: Any) -> None:
        """One call, or some that belong together."""
        ways = (
            self._single, self._single, self._blocking, self._async, self._batch, self._many, self._fed, self._together,
            self._one_behind_the_other, self._oneway, self._again, self._request, self._table,
        )  # fmt: skip
        name = rng.choice((*PRODUCERS, "plain"))
        way = rng.choice(ways)
        task = asyncio.ensure_future(way(self.producers[name], name, rng))
        if way != self._again and rng.chance(0.2):
            if rng.chance(0.5):
                for _ in range(rng.below(12)):
                    await asyncio.sleep(0)
            else:
                await asyncio.sleep(rng.uniform(0, 0.5))
            task.cancel()
            await asyncio.wait([task])
            if task.cancelled():
                return
        try:
            await task
        except asyncio.CancelledError:
            self.fail(f"{way.__name__} of {name} ended as cancelled, which nobody asked for")

    def _timeout(self, name: str, rng: Any) -> tuple[int | None, float]:
        """Draw a time-out, None for that of the producer; and how many seconds it is."""
        if name == "gathering":  # what has a time-out of its own is not gathered
            return None, 1.52
        timeout_ms = rng.choice((200, 600, 1500, 3000))
        return timeout_ms, timeout_ms / 1000

    async def _queue(self, producer: Producer, rng: Any) -> MessageQueue | None:
        """One queue, for some of the sends whose producer knows the topic."""
        if rng.chance(0.75):
            return None
        info = producer._sender.instance.routes.known_publish_info(producer._sender.preparer.wire_topic(TOPIC))
        if info is None or not info.queues:
            return None
        queue = rng.choice(info.queues)
        return MessageQueue(TOPIC, queue.broker_name, queue.queue_id)

    async def _single(self, producer: Producer, name: str, rng: Any) -> None:
        message, (timeout_ms, seconds) = self.message(rng), self._timeout(name, rng)
        queue = await self._queue(producer, rng)
        call = self.call(f"send, {name}", [message], seconds)
        await self.await_call(call, producer.send(message, queue=queue, timeout_ms=timeout_ms), lambda result: [result])
        result = call.results.get(call.numbers[0])
        if queue is not None and result is not None and result.message_queue != self._wire(name, queue):
            self.fail(f"{call} went to {result.message_queue}, not to {queue}")

    def _wire(self, name: str, queue: MessageQueue) -> MessageQueue:
        prefix = "ns%" if PRODUCERS[name].get("namespace") else ""
        return MessageQueue(prefix + queue.topic, queue.broker_name, queue.queue_id)

    async def _blocking(self, producer: Producer, name: str, rng: Any) -> None:
        """What the loop of a blocking producer does for a send; the thread that waits is a coroutine here."""
        message, (timeout_ms, seconds) = self.message(rng), self._timeout(name, rng)
        queue = await self._queue(producer, rng)
        call = self.call(f"blocking send, {name}", [message], seconds)

        async def work() -> SendResult:
            under_way = _UnderWay()
            start = SendStart(producer, message, queue, timeout_ms, is_batch=False)
            sending = SendCall(start, under_way)
            sending.give(self._loop)
            sending.post()
            try:
                await under_way.is_over.wait()
            except asyncio.CancelledError:
                sending.cancel()
                await under_way.is_over.wait()
                raise
            return sending.result()

        await self.await_call(call, work(), lambda result: [result])

    async def _async(self, producer: Producer, name: str, rng: Any) -> None:
        message, (timeout_ms, seconds) = self.message(rng), self._timeout(name, rng)
        told: list[tuple[SendResult | None, Exception | None]] = []
        call = self.call(f"send_async, {name}", [message], seconds)
        try:
            future = producer.send_async(
                message, lambda result, error: told.append((result, error)), timeout_ms=timeout_ms
            )
        except NotRunningError as error:
            call.error, call.ended = error, self._loop.time()
            return
        await self.await_call(call, future, lambda result: [result])
        await asyncio.sleep(0)
        if len(told) != 1:
            self.fail(f"the callback of {call} was called {len(told)} times")
        elif call.results and told[0] != (call.results[call.numbers[0]], None):
            self.fail(f"the callback of {call} was told {told[0]}")

    async def _batch(self, producer: Producer, name: str, rng: Any) -> None:
        messages = [self.message(rng) for _ in range(1 + rng.below(6))]
        timeout_ms, seconds = self._timeout(name, rng)
        for message in messages:  # of a batch brokers keep the flag of each, but it has one region of properties
            message.flag = 0
            self.sent[int(message.properties[NUMBER])].flag = 0
        call = self.call(f"send_batch, {name}", messages, seconds)
        await self.await_call(call, producer.send_batch(messages, timeout_ms=timeout_ms), self._split(call))

    def _split(self, call: Call) -> Callable[[SendResult], list[SendResult]]:
        def split(result: SendResult) -> list[SendResult]:
            ids, places = result.msg_id.split(","), result.offset_msg_id.split(",")
            if not len(ids) == len(places) == len(call.numbers):
                self.fail(f"{call} names {len(ids)} messages and {len(places)} places")
            return [
                result._replace(msg_id=one, offset_msg_id=place, queue_offset=result.queue_offset + n)
                for n, (one, place) in enumerate(zip(ids, places, strict=False))
            ]

        return split

    async def _many(self, producer: Producer, name: str, rng: Any) -> None:
        messages = [self.message(rng) for _ in range(1 + rng.below(25))]
        call = self.call(f"send_many, {name}", messages, 0)
        stops_at = rng.below(len(messages)) if rng.chance(0.15) else -1
        told: list[SendResult] = []

        def drawn() -> Iterator[Message]:
            for n, message in enumerate(messages):
                if n == stops_at:
                    raise ScriptedError("as scripted")
                yield message

        async def work() -> list[SendResult]:
            results = await producer.send_many(drawn(), in_flight=rng.choice((1, 2, 5, 512)), on_result=told.append)
            if len(results) != len(messages):
                self.fail(f"{call} has {len(results)} results of {len(messages)} messages")
            if Counter(result.msg_id for result in results) != Counter(result.msg_id for result in told):
                self.fail(f"on_result of {call} was told of other results than it returns")
            return results

        await self.await_call(call, work(), lambda results: results)
        if call.error is not None or call.is_cancelled:
            number_of = {message.uniq_key: number for message, number in zip(messages, call.numbers, strict=True)}
            for result in told:
                self._acknowledged(call, number_of[result.msg_id], result)

    async def _fed(self, producer: Producer, name: str, rng: Any) -> None:
        messages = [self.message(rng) for _ in range(1 + rng.below(10))]
        call = self.call(f"send_many of a feed, {name}", messages, 0)
        feed = MessageFeed(
            self._loop, 1000, lambda place, result: self._acknowledged(call, call.numbers[place], result)
        )

        async def give() -> None:
            for message in messages:
                feed.put(message)
                await asyncio.sleep(rng.uniform(0, 0.3))
            feed.end()

        giving = asyncio.ensure_future(give())
        try:
            await self.await_call(call, producer.send_many(feed, in_flight=rng.choice((1, 3, 512))))
        finally:
            giving.cancel()
        if call.error is None and not call.is_cancelled and len(call.results) != len(messages):
            self.fail(f"{call} told {len(call.results)} results of {len(messages)} messages")

    async def _together(self, producer: Producer, name: str, rng: Any) -> None:
        """Sends that leave in one write."""
        works, (timeout_ms, seconds) = [], self._timeout(name, rng)
        for _ in range(2 + rng.below(8)):
            message = self.message(rng)
            call = self.call(f"sends together, {name}", [message], seconds)
            works.append(self.await_call(call, producer.send(message, timeout_ms=timeout_ms), lambda result: [result]))
        await asyncio.gather(*works)

    async def _one_behind_the_other(self, producer: Producer, name: str, rng: Any) -> None:
        last: SendResult | None = None
        for _ in range(2 + rng.below(4)):
            message, (timeout_ms, seconds) = self.message(rng), self._timeout(name, rng)
            call = self.call(f"send_orderly, {name}", [message], seconds)
            sending = producer.send_orderly(
                message, lambda queues, message, arg: queues[arg % len(queues)], 7, timeout_ms=timeout_ms
            )
            await self.await_call(call, sending, lambda result: [result])
            if call.is_cancelled:
                return
            result = call.results.get(call.numbers[0])
            if (
                result is not None and last is not None and result.message_queue == last.message_queue
                and result.queue_offset <= last.queue_offset
            ):  # fmt: skip
                self.fail(f"{call} is at {result.queue_offset}, behind one at {last.queue_offset}")
            last = result or last

    async def _oneway(self, producer: Producer, name: str, rng: Any) -> None:
        message = self.message(rng)
        call = self.call(f"send_oneway, {name}", [message], 1.5)
        await self.await_call(call, producer.send_oneway(message, queue=await self._queue(producer, rng)))

    async def _request(self, producer: Producer, name: str, rng: Any) -> None:
        if PRODUCERS[name].get("namespace"):  # the replier has none
            producer, name = self.producers["plain"], "plain"
        message, timeout_ms = self.message(rng, topic=ASKED), rng.choice((200, 600, 1500, 3000))
        call = self.call(f"request, {name}", [message], timeout_ms / 1000)
        await self.await_call(call, self._reply(call, producer.request(message, timeout_ms=timeout_ms)))
        if call.error is None and not call.is_cancelled:
            self.marks["a reply came"] += 1

    async def _reply(self, call: Call, asking: Awaitable[MessageExt]) -> None:
        body = (await asking).body
        if body != reply_to(call.numbers[0]):
            self.fail(f"{call} got the reply {body!r}")

    async def _table(self, producer: Producer, name: str, rng: Any) -> None:
        """Rows, of which some are for certain queues; their outcome is told row by row, also in an error."""
        messages = [self.message(rng) for _ in range(1 + rng.below(25))]
        for message in messages:
            message.flag = 0  # which rows have not
            self.sent[self.number_of(message)].flag = 0
        columns: dict[str, Any] = {
            "body": [message.body for message in messages],
            "tags": pa.array([message.tags for message in messages], pa.string()),
            "keys": pa.array([message.keys for message in messages], pa.string()),
            "properties": [{NUMBER: message.properties[NUMBER]} for message in messages],
        }
        is_sharded = rng.chance(0.3)
        if is_sharded:
            columns["shardingKey"] = pa.array([rng.choice((None, "a", "b")) for _ in messages], pa.string())
        call = self.call(f"send_arrow, {name}", messages, 0)
        table = pa.table(columns)

        async def work() -> None:
            try:
                rows = await producer.send_arrow(table, topic=TOPIC)
            except ArrowSendError as error:
                call.error, rows = error, error.sent
                self.marks["raised ArrowSendError"] += 1
            self._check_rows(call, name, rows.to_pylist())

        await self.await_call(call, work())

    def _check_rows(self, call: Call, name: str, rows: list[dict[str, Any]]) -> None:
        for number, row in zip(call.numbers, rows, strict=False):
            if row["queueOffset"] is None:
                call.untold[number] = bool(row["mayBeStored"])
                continue
            queue = self._wire(name, MessageQueue(TOPIC, row["brokerName"], row["queueId"]))
            status = SendStatus[row["sendStatus"]]
            self._acknowledged(call, number, SendResult(status, row["uniqKey"], queue, row["queueOffset"], ""))
        if call.error is None and len(rows) != len(call.numbers):
            self.fail(f"{call} has outcomes of {len(rows)} rows, of {len(call.numbers)}")
        if call.error is None and len(call.results) != len(call.numbers):
            self.fail(f"{call} raised nothing, and {len(call.results)} of {len(call.numbers)} rows are stored")

    async def _again(self, producer: Producer, name: str, rng: Any) -> None:
        """A producer is shut down, with calls under way, and started again."""
        if rng.chance(0.6):
            return
        self.marks["a producer was started again"] += 1
        work = asyncio.ensure_future(self._together(producer, name, rng))
        await asyncio.sleep(rng.uniform(0, 0.05))
        stopping = asyncio.ensure_future(producer.shutdown())
        await asyncio.gather(work, stopping)
        await asyncio.sleep(rng.uniform(0, 0.2))
        try:
            await producer.start()
        except MaxQError as error:  # another call has started it
            if "already" not in str(error):
                raise

    # -- what is stored --

    async def _read_all(self) -> None:
        async with async_admin(NAMESRV) as admin, async_lite_pull_consumer("reader", NAMESRV) as consumer:
            for topic in _TOPICS:
                stats = await self._told._try(lambda topic=topic: admin.topics.stats(topic))  # type: ignore[misc]
                ends = {queue: at.max_offset for queue, at in stats.offset_table.items() if at.max_offset}
                if not ends:
                    continue
                await consumer.assign(list(ends))
                for queue in ends:
                    await consumer.seek(queue, 0)
                missing = sum(ends.values())
                deadline = self._told.seconds + 120
                is_paid = topic == TOPIC
                while missing > 0 or (is_paid and not self.bank.committed <= self.stored.keys()):
                    for message in await consumer.poll(1_000):
                        missing -= 1
                        self.stored[self.number_of(message)].append(message)
                    if self._told.seconds >= deadline:
                        assert missing <= 0, f"{missing} messages of {topic} cannot be read"
                        break

    def _check_all(self) -> None:
        for number, copies in self.stored.items():
            self._check_bytes(number, copies)
        for call in self.calls:
            for number, result in call.results.items():
                self._check_place(call, number, result)
            self._check_truth(call)
            if call.way.startswith("send_batch"):
                self._check_batch(call)
            for number, may_be_stored in call.untold.items():
                if self.stored.get(number) and not may_be_stored:
                    self.fail(f"{call}: {number} is stored, and its row says that it is not")
        self.bank.check()
        seen = {message.msg_id for copies in self.stored.values() for message in copies}
        if len(seen) != len(self.stored):
            self.fail(f"{len(self.stored)} messages have {len(seen)} ids")

    def _check_bytes(self, number: int, copies: list[MessageExt]) -> None:
        given = self.sent[number]
        if len(copies) > self._left[number]:
            self.fail(f"{number} is stored {len(copies)} times, and left {self._left[number]} times")
        for copy in copies:
            if copy.body != given.body:
                self.fail(f"the body of {number} is another one: {copy.body[:40]!r}")
            if copy.flag != given.flag:
                self.fail(f"the flag of {number} is {copy.flag}, not {given.flag}")
            stored = {name: copy.properties.get(name) for name in given.properties}
            if stored != given.properties:
                self.fail(f"the properties of {number} are {stored}, not {given.properties}")

    def _check_place(self, call: Call, number: int, result: SendResult) -> None:
        queue = result.message_queue
        place = (queue.topic, queue.broker_name, queue.queue_id, result.queue_offset, result.offset_msg_id)
        has_id = bool(result.offset_msg_id)  # not those of rows
        places = [
            (copy.topic, copy.broker_name, copy.queue_id, copy.queue_offset, copy.offset_msg_id if has_id else "")
            for copy in self.stored[number]
        ]
        if place not in places:
            self.fail(f"{call}: {number} is not at {place}, but at {places}")
        elif result.msg_id != self.stored[number][0].msg_id:
            self.fail(f"{call}: {number} has the id {self.stored[number][0].msg_id}, not {result.msg_id}")

    def _check_truth(self, call: Call) -> None:
        """One call of one message or batch: if it is stored, its error says that it may be."""
        if call.error is None or call.seconds == 0 or not isinstance(call.error, MaxQError):
            return
        stored = [number for number in call.numbers if self.stored.get(number)]
        if stored:
            self.marks["stored in spite of an error"] += 1
        if stored and not call.error.may_be_stored:
            self.fail(f"{call} raised {call.error!r}, and {stored} are stored")

    def _check_batch(self, call: Call) -> None:
        """All of a batch are there, or none; each copy of it lies together and in order."""
        counts = {len(self.stored.get(number, ())) for number in call.numbers}
        if len(counts) > 1:
            self.fail(f"{call} is stored in part")
            return
        for first in self.stored.get(call.numbers[0], ()):
            for n, number in enumerate(call.numbers):
                place = (first.broker_name, first.queue_id, first.queue_offset + n)
                if place not in [(c.broker_name, c.queue_id, c.queue_offset) for c in self.stored[number]]:
                    self.fail(f"{call} does not lie together: {number} is not at {place}")
