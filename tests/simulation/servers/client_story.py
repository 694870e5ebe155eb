"""One seed, one story of what clients promise (docs/client.md): random calls and faults on the shipped clients and the
shipped broker, in virtual time.

A consumer group of one kind (listeners that are coroutines, on threads, or orderly; lite pull; simple) lives through
rounds. In each, members are started, more messages are sent, and the members are ended in some way: in order, with
calls under way, cancelled, by an exception, twice at the same time; then some are started again. A wild round has more
members, links that break and heal, and a broker that is started anew; a quiet one has none of it, so that all promises
hold to the letter. Listeners are quick or slow, fail, ask for another try, finish a part of a batch, call sys.exit.

What must hold: every acknowledged message is done at least once; what was done in a quiet round does not come again; no
offset is committed past a message that nobody has done or given back; no listener is called, and no call goes on, once
`shutdown` has returned; nobody who has left stays a member; an orderly group does each queue's messages in order.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path, PurePath
from typing import Any, Final

from maxq.client.admin.admin import Admin
from maxq.client.client_config import (
    ClientConfig,
    ClientEnvironment,
    LitePullConsumerConfig,
    ProducerConfig,
    PushConsumerConfig,
    SimpleConsumerConfig,
)
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.consumer.simple_consumer import SimpleConsumer
from maxq.client.errors import NotRunningError
from maxq.client.producer.producer import Producer
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.errors import ClientError, MaxQError
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.standalone import StandaloneServer
from maxq.testing.sim_network import LinkSettings
from maxq.testing.simulation import SimWorld, run_simulation

BROKER, PRODUCER = "10.0.0.1", "10.0.0.2"
NAMESRV = f"{BROKER}:9876"
TOPIC, GROUP, QUEUES = "Promised", "G", 3
SETTINGS = {"mappedFileSizeCommitLog": "1048576", "maxHashSlotNum": "1000", "maxIndexNum": "4000"}
KINDS: Final = ("coroutine", "threads", "orderly", "lite", "simple")
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

Consumer = PushConsumer | LitePullConsumer | SimpleConsumer


class SimThreads(Executor):
    """Threads in virtual time: what is submitted is done a moment later, in one go."""

    def __init__(self, world: SimWorld) -> None:
        self._world = world

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        self._world.loop.call_later(self._world.rng.uniform(0, 0.03), lambda: work(*args, **more))
        return Future()


class Member:
    """One consumer and what it has been given."""

    def __init__(self, story: "ClientStory", number: int) -> None:
        self.story = story
        self.name = f"member {number}"
        self.host = f"10.0.1.{number}"
        self.client_id = ""
        self.has_left = False
        self.certain: set[bytes] = set()  # done since the start, and not to come again after an end in order
        self.finished: set[bytes] = set()  # lite pull: of batches before the last poll
        self.in_hand: set[bytes] = set()  # lite pull: of the last one
        self.polling: asyncio.Task[None] | None = None
        self.consumer = self._make()

    def _make(self) -> Consumer:
        story, rng = self.story, self.story.rng
        environment = ClientEnvironment(
            story.world.clock, story.world.rng, story.world.disk, self.host, 1, PurePath("/home")
        )
        common: dict[str, Any] = {
            "namesrv_addr": NAMESRV, "consumer_group": GROUP, "consume_from_where": story.begins_at,
        }  # fmt: skip
        pulls = {"pull_batch_size": (3, 8, 32)[rng.below(3)], "persist_consumer_offset_interval": 2_000}
        if story.kind == "simple":
            return SimpleConsumer(SimpleConsumerConfig(**common, invisible_duration=15_000), environment)
        if story.kind == "lite":
            config = LitePullConsumerConfig(
                **common, **pulls, auto_commit=story.auto_commit, auto_commit_interval=1_000, poll_timeout=500
            )
            return LitePullConsumer(config, environment)
        push = PushConsumerConfig(
            **common, **pulls, consume_thread_nums=1 + rng.below(6), suspend_current_queue_time=50,
            consume_message_batch_max_size=(1, 1, 4)[rng.below(3)], consume_timeout_minutes=1,
            await_termination_when_shutdown=8_000,
        )  # fmt: skip
        if story.kind == "threads":
            return PushConsumer(push, environment, self._listen_at_once, executor=SimThreads(story.world))
        return PushConsumer(push, environment, self._listen, orderly=story.kind == "orderly")

    # --- life ---

    async def start(self) -> None:
        with self.story.world.network.on_host(self.host):
            await asyncio.ensure_future(self._start())

    async def _start(self) -> None:
        self.has_left, self.certain, self.finished, self.in_hand = False, set(), set(), set()
        consumer = self.consumer
        if isinstance(consumer, PushConsumer):
            consumer.subscribe(TOPIC)
        else:
            await consumer.subscribe(TOPIC)
        await consumer.start()
        self.client_id = consumer.client_id
        try:
            await consumer.start()
        except ClientError:
            pass
        else:
            raise AssertionError(f"{self.name} could be started twice")
        if not isinstance(consumer, PushConsumer):
            self.polling = asyncio.create_task(self._poll_all(consumer))

    async def end(self, *, how: str) -> None:
        """Leave; `how` is told in the history."""
        with self.story.world.network.on_host(self.host):
            await asyncio.ensure_future(self._end(how))
        self.has_left = True

    async def _end(self, how: str) -> None:
        polling, self.polling = self.polling, None
        if polling is not None:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
        ending = asyncio.ensure_future(self._shutdown(how))
        if how == "cancelled":
            await asyncio.sleep(self.story.rng.uniform(0, 0.2))
            ending.cancel()
        elif how == "twice":
            await self._shutdown(how)
        await asyncio.gather(ending, return_exceptions=True)
        await self._shutdown(how)  # nothing is left to do, unless the first was cancelled before it began

    async def _shutdown(self, how: str) -> None:
        if isinstance(self.consumer, PushConsumer):
            await self.consumer.shutdown(0 if how == "at once" else None)
        elif isinstance(self.consumer, LitePullConsumer):
            await self.consumer.shutdown(is_finished=False)  # its task was interrupted, and may hold a batch
        else:
            await self.consumer.shutdown()

    # --- listeners ---

    def _begin(self, messages: list[MessageExt]) -> None:
        if self.has_left:
            self.story.fail(f"{self.name} is called after its shutdown")
        for message in messages:
            self.story.on_delivered(self, message)

    def _outcome(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        """How a call ends; what it has done is noted."""
        if self.has_left:
            self.story.fail(f"a call of {self.name} goes on after its shutdown")
        rng, story = self.story.rng, self.story
        what, is_orderly = rng.below(60), self.story.kind == "orderly"
        if what < 3:
            story.marks["a listener failed"] += 1
            story.on_given_back(messages, certain=not is_orderly)
            raise (ValueError, SystemExit, asyncio.CancelledError)[what]
        if what == 3:
            story.marks["a listener asked for another try"] += 1
            story.on_given_back(messages, certain=not is_orderly)
            return ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if is_orderly else ConsumeResult.RECONSUME_LATER
        if what == 4 and not is_orderly and len(messages) > 1:
            story.marks["a part of a batch was done"] += 1
            context.ack_index = 0
            story.on_given_back(messages[1:], certain=True)
            messages = messages[:1]
        for message in messages:
            story.on_done(self, message)
        return None

    def _listen_at_once(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        self._begin(messages)
        try:
            return self._outcome(messages, context)
        finally:
            messages.clear()  # the list is the listener's own

    async def _listen(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        self._begin(messages)
        rng = self.story.rng
        if rng.chance(0.8):
            await asyncio.sleep(rng.uniform(0, 0.05))
        elif rng.chance(0.1):
            # In a quiet round a shutdown waits long enough: what lies behind a call that did not end comes again, too.
            await asyncio.sleep(rng.uniform(1, 6 if self.story.is_quiet else 20))
        try:
            return self._outcome(messages, context)
        finally:
            messages.clear()

    # --- who asks for messages ---

    async def _poll_all(self, consumer: LitePullConsumer | SimpleConsumer) -> None:
        poll = self._poll if isinstance(consumer, LitePullConsumer) else self._receive
        while True:
            try:
                await poll()
            except MaxQError:
                await asyncio.sleep(0.2)

    async def _poll(self) -> None:
        consumer, story, rng = self.consumer, self.story, self.story.rng
        assert isinstance(consumer, LitePullConsumer)
        messages = await consumer.poll(300)
        self.finished |= self.in_hand
        if story.auto_commit:
            self.certain |= self.finished
        self._begin(messages)
        await asyncio.sleep(rng.uniform(0, 0.05))
        if rng.chance(0.02) and not story.is_last:
            story.marks["a task that polls failed"] += 1
            raise ConnectionAbortedError("as scripted")  # it ends: what it holds is not done
        for message in messages:
            story.on_done(self, message)
        self.in_hand = {message.body for message in messages}
        messages.clear()  # the list is the program's own
        if not story.auto_commit and rng.chance(0.5):
            await consumer.commit()
            self.certain |= self.finished | self.in_hand

    async def _receive(self) -> None:
        consumer, story, rng = self.consumer, self.story, self.story.rng
        assert isinstance(consumer, SimpleConsumer)
        messages = await consumer.receive(1 + rng.below(16), wait_ms=500)
        self._begin(messages)
        await asyncio.sleep(rng.uniform(0, 0.05))
        good = [message for message in messages if not rng.chance(0.03)]
        for message in good:
            story.done.add(message.body)  # the ack may arrive although its answer does not
            await consumer.ack(message)
            story.on_done(self, message)


class ClientStory:
    """One seed."""

    settings = SETTINGS
    begins_at = FIRST

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.kind = KINDS[seed % len(KINDS)]
        self.auto_commit = seed // len(KINDS) % 2 == 0
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []
        self.acknowledged: set[bytes] = set()
        self.done: set[bytes] = set()
        self.for_good: set[bytes] = set()  # done in a quiet round: must not come again
        self.copied: set[bytes] = set()  # given back: there may be two of them, of which one is done
        self.passed: dict[int, set[int]] = defaultdict(set)  # queue id → offsets that may be committed past
        self.last_done: dict[int, int] = defaultdict(lambda: -1)  # orderly: queue id → offset
        self.is_quiet = True  # this round
        self.is_last = False
        self._failures: list[str] = []
        self._numbers = iter(range(1, 250))

    def run(self) -> None:
        run_simulation(self._live, seed=self.seed, time_limit_s=24 * 3600.0)

    def tell(self, what: str) -> None:
        self.history.append(f"{self.world.loop.time():9.3f} {what}")

    def fail(self, what: str) -> None:
        self.tell(f"BROKEN: {what}")
        self._failures.append(what)

    def check(self) -> None:
        assert not self._failures, "; ".join(self._failures[:5])

    # --- what the members tell ---

    def on_delivered(self, member: Member, message: MessageExt) -> None:
        if message.body in self.for_good - self.copied:
            self.fail(f"{message.body!r} comes again to {member.name}")

    def on_done(self, member: Member, message: MessageExt) -> None:
        self.done.add(message.body)
        if self.kind != "lite":
            member.certain.add(message.body)
        if not message.reconsume_times or self.kind == "orderly":
            self.passed[message.queue_id].add(message.queue_offset)
            if self.kind == "orderly":
                if message.queue_offset > self.last_done[message.queue_id] + 1:
                    self.fail(f"queue {message.queue_id}: {message.queue_offset} was done out of order")
                self.last_done[message.queue_id] = max(self.last_done[message.queue_id], message.queue_offset)

    def on_given_back(self, messages: list[MessageExt], *, certain: bool) -> None:
        """They come again from the retry topic, or from where they are."""
        for message in messages:
            self.copied.add(message.body)
            if certain and not message.reconsume_times:
                self.passed[message.queue_id].add(message.queue_offset)

    # --- the rounds ---

    async def _live(self, world: SimWorld) -> None:
        self.world, self.rng = world, world.rng.fork("story")
        world.network.default_link = LinkSettings(delay_ms=(0.1, 10), chunk_bytes=(1, 4000), whole=0.6, loss=0.0)
        self.server = await self._serve()
        with world.network.on_host(PRODUCER):
            self.producer = Producer(
                ProducerConfig(namesrv_addr=NAMESRV, producer_group="P"), self._environment(PRODUCER)
            )
            self.admin = Admin(ClientConfig(namesrv_addr=NAMESRV), self._environment(PRODUCER))
            await self.admin.topics.create(f"{BROKER}:10911", TopicConfig(TOPIC, QUEUES, QUEUES))
            await asyncio.ensure_future(self.producer.start())
        await self._finally(await self._rounds())
        self.check()
        await self.producer.shutdown()
        try:
            await self.producer.send(Message(TOPIC, b"late"))
        except NotRunningError:
            pass
        else:
            raise AssertionError("a producer sends after its shutdown")
        await self.admin.close()
        await self._stop_serving()

    async def _rounds(self) -> Member:
        """Let members come and go. Returns one that does not run."""
        members = [Member(self, next(self._numbers))]
        for number in range(3 + self.rng.below(3)):
            await self._round(members, is_quiet=self.rng.chance(0.5), number=number)
            self.check()
        return members[0]

    def _environment(self, host: str) -> ClientEnvironment:
        return ClientEnvironment(self.world.clock, self.world.rng, self.world.disk, host, 7, PurePath("/home"))

    async def _serve(self) -> StandaloneServer:
        world = self.world
        server = StandaloneServer(
            Path("/store"), BROKER, 9876, 10911, self.settings, disk=world.disk, clock=world.clock, rng=world.rng
        )
        with world.network.on_host(BROKER):
            await asyncio.ensure_future(server.start())
        return server

    async def _stop_serving(self) -> None:
        with self.world.network.on_host(BROKER):
            await asyncio.ensure_future(self.server.shutdown())

    async def _send(self, count: int, number: int) -> None:
        for n in range(count):
            body = f"{number}-{n}".encode()
            sending = asyncio.ensure_future(self.producer.send(Message(TOPIC, body)))
            if self.rng.chance(0.02):
                self.marks["a send was cancelled"] += 1
                await asyncio.sleep(self.rng.uniform(0, 0.02))
                sending.cancel()
            try:
                await sending
                self.acknowledged.add(body)
            except (MaxQError, asyncio.CancelledError):
                pass  # it may be stored, or not
            await asyncio.sleep(self.rng.uniform(0, 0.05))

    async def _round(self, members: list[Member], *, is_quiet: bool, number: int) -> None:
        rng, self.is_quiet = self.rng, is_quiet
        self.tell(f"round {number}, {'quiet' if is_quiet else 'wild'}, {self.kind}")
        sending = asyncio.ensure_future(self._send(20 + rng.below(60), number))
        is_behind = rng.chance(0.5)
        if is_behind:  # and ends before all is done
            await sending
        await members[0].start()
        if is_quiet:
            await asyncio.sleep(rng.uniform(0.02, 0.4 if is_behind else 6))
            await sending
        else:
            await self._upheaval(members)
            await sending
        for member in list(members):
            how = ("in order", "at once", "cancelled", "twice")[0 if is_quiet else rng.below(4)]
            self.tell(f"{member.name} ends {how}")
            self.marks[f"a member ended {how}"] += 1
            await member.end(how=how)
            if is_quiet:
                self.for_good |= member.certain
        await self._check_members()
        await self._check_commits()
        del members[1:]
        if rng.chance(0.4):
            members[0] = Member(self, next(self._numbers))
        else:
            self.marks["a consumer was started again"] += 1

    async def _upheaval(self, members: list[Member]) -> None:
        rng, network = self.rng, self.world.network
        for _ in range(1 + rng.below(5)):
            await asyncio.sleep(rng.uniform(0.1, 4))
            what = rng.below(7)
            if what == 0 and len(members) < 4:
                self.tell("one more member")
                members.append(Member(self, next(self._numbers)))
                await members[-1].start()
            elif what == 1 and len(members) > 1:
                await members.pop().end(how="cancelled")
            elif what == 2:
                self.tell("connections are reset")
                network.reset(BROKER)
            elif what == 3:
                self.tell("a member is cut off")
                self.marks["a member was cut off"] += 1
                network.partition(BROKER, members[rng.below(len(members))].host, both_ways=rng.chance(0.5))
                await asyncio.sleep(rng.uniform(0.1, 8))
                network.heal()
            elif what == 4:
                self.tell("the broker is started anew")
                self.marks["the broker was started anew"] += 1
                await self._stop_serving()
                await asyncio.sleep(rng.uniform(0, 2))
                self.server = await self._serve()
            elif isinstance(consumer := members[0].consumer, PushConsumer):
                if what == 5:
                    consumer.set_consume_thread_nums(1 + rng.below(8))
                else:
                    consumer.suspend()
                    await asyncio.sleep(rng.uniform(0, 2))
                    consumer.resume()
        network.heal()

    async def _finally(self, member: Member) -> None:
        """All is quiet: what was acknowledged is done in the end. Locks of the dead expire after 60 s, retries wait."""
        self.is_quiet = self.is_last = True
        await member.start()
        end = self.world.loop.time() + 900
        while not self.acknowledged <= self.done and self.world.loop.time() < end:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1)
        missing = self.acknowledged - self.done
        if missing:
            self.fail(f"{len(missing)} acknowledged messages were never done: {sorted(missing)[:5]}")
        await member.end(how="in order")
        await self._check_members()
        await self._check_commits()

    # --- what must hold ---

    async def _check_members(self) -> None:
        try:
            there = await self.admin.api.consumer_ids(f"{BROKER}:10911", GROUP)
        except MaxQError:
            return  # it knows none
        if there:
            self.fail(f"members that have left are still there: {there}")

    async def _check_commits(self) -> None:
        if self.kind == "simple":
            return  # a pop commits what it has given out; what is not acknowledged comes again
        for queue_id in range(QUEUES):
            queue = MessageQueue(TOPIC, "broker-a", queue_id)
            committed = None
            for _ in range(100):
                try:
                    committed = await self.admin.offsets.committed(GROUP, queue)
                    break
                except MaxQError:  # the broker's registration may have been lost with its connections
                    await asyncio.sleep(1)
            skipped = set(range(committed or 0)) - self.passed[queue_id]
            if skipped:
                self.fail(f"queue {queue_id} is committed up to {committed}, but nobody has done {sorted(skipped)[:5]}")
