"""Members of the group of client_story.py: a machine with one consumer, its listener or its tasks that poll, and notes
of what they were given and have done."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from maxq.client.client_config import (
    ClientEnvironment,
    LitePullConsumerConfig,
    PushConsumerConfig,
    SimpleConsumerConfig,
)
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.consumer.simple_consumer import SimpleConsumer
from maxq.client.errors import NotRunningError
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.errors import ClientError, MaxQError
from maxq.protocol.enums import MessageModel
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.testing.sim_loop import SimLoop
from maxq.testing.sim_machine import MachineDiedError, SimMachine
from maxq.testing.sim_rng import SimRng

if TYPE_CHECKING:
    from tests.simulation.servers.client_story import ClientStory

TOPIC, GROUP = "Promised", "G"
_START_TRIES = 300  # of a second each, while the broker is away

Consumer = PushConsumer | LitePullConsumer | SimpleConsumer
#: What a broker stores once: generation of the topic, whether it came back for another try, queue, queue offset, and
#: the member if each has its own offsets.
Place = tuple[int, bool, int, int, str]


class Duty:
    """What is owed to a group; if it broadcasts, to one member.

    Attributes:
        begun: queues in which it has begun, so that messages that are sent to them from now on are owed.
        owed: body → when its send began, wall ms.
        done: bodies.
    """

    def __init__(self) -> None:
        self.begun: set[int] = set()
        self.owed: dict[bytes, int] = {}
        self.done: set[bytes] = set()

    @property
    def missing(self) -> set[bytes]:
        """Return what is owed and was never done."""
        return self.owed.keys() - self.done


class SimThreads(Executor):
    """Threads in virtual time: what is submitted is done a moment later, in one go."""

    def __init__(self, loop: SimLoop, rng: SimRng) -> None:
        self._loop, self._rng = loop, rng

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        self._loop.call_later(self._rng.uniform(0, 0.03), lambda: work(*args, **more))
        return Future()


class Member:
    """One consumer on a machine of its own, and what it has been given.

    Attributes:
        certain: done since the start, and not to come again after an end in order.
    """

    def __init__(self, story: "ClientStory", number: int, duty: Duty) -> None:
        self.story = story
        self.rng = story.rng
        self.duty = duty
        self.name = f"member {number}"
        self.host = f"10.0.1.{number}"
        self.machine = SimMachine(story.world.loop, self.host, story.world.rng.fork(self.name), kill_keeps_cache=True)
        self.machine.boot()
        self.has_left = True
        self.certain: set[Place] = set()
        self._finished: set[Place] = set()  # lite pull: of batches before the last poll
        self._in_hand: dict[int, set[Place]] = defaultdict(set)  # lite pull: by poller, of the last one
        self._polling: list[asyncio.Task[None]] = []
        self.consumer = self._make()

    def _make(self) -> Consumer:
        story, rng, machine = self.story, self.rng, self.machine
        environment = ClientEnvironment(machine.clock, story.world.rng, machine.disk, self.host, 1, PurePath("/home"))
        common: dict[str, Any] = {
            "namesrv_addr": story.name_servers, "consumer_group": GROUP, "consume_from_where": story.begins_at,
            "consume_timestamp": story.begins_ms,
        }  # fmt: skip
        pulls: dict[str, Any] = {"pull_batch_size": (3, 8, 32)[rng.below(3)], "persist_consumer_offset_interval": 2_000}
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
            await_termination_when_shutdown=8_000, max_reconsume_times=story.most_tries,
            client_rebalance=story.kind != "pop", pop_invisible_time=15_000,
            message_model=MessageModel.BROADCASTING if story.kind == "broadcast" else MessageModel.CLUSTERING,
        )  # fmt: skip
        if story.kind == "threads":
            threads = SimThreads(story.world.loop, story.world.rng)
            return PushConsumer(push, environment, self._listen_at_once, executor=threads)
        return PushConsumer(push, environment, self._listen, orderly=story.kind == "orderly")

    # --- life ---

    async def start(self) -> None:
        """Start, with a new consumer if the last one was killed. While the broker is away it is tried again."""
        if not self.machine.is_up:
            self.machine.boot()
            self.consumer = self._make()
        for _ in range(_START_TRIES):
            try:
                await self.machine.call(self._start)
                return
            except MachineDiedError:
                return
            except MaxQError:
                if self.story.is_quiet:
                    raise
                await asyncio.sleep(1)
        raise AssertionError(f"{self.name} could not be started")

    async def _start(self) -> None:
        self.has_left, self.certain = False, set()
        self._finished.clear()
        self._in_hand.clear()
        consumer = self.consumer
        if isinstance(consumer, PushConsumer):
            consumer.subscribe(TOPIC)
        elif not self.story.is_assigned:
            await consumer.subscribe(TOPIC)
        await consumer.start()
        try:
            await consumer.start()
        except ClientError:
            pass
        else:
            raise AssertionError(f"{self.name} could be started twice")
        if isinstance(consumer, LitePullConsumer) and self.story.is_assigned:
            try:
                await consumer.assign(await consumer.fetch_message_queues(TOPIC))
            except BaseException:
                await consumer.shutdown()
                raise
        if not isinstance(consumer, PushConsumer):
            pollers = 1 if self.story.is_quiet else 1 + self.rng.below(2)
            self._polling = [asyncio.create_task(self._poll_all(consumer, poller)) for poller in range(pollers)]
            for task in self._polling:
                task.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody else looks

    async def end(self, *, how: str) -> None:
        """Leave; `how` is told in the history."""
        if how == "killed":
            self.machine.kill()
        if not self.machine.is_up:
            return
        with contextlib.suppress(MachineDiedError):
            await self.machine.call(lambda: self._end(how))
            self.has_left = True

    async def _end(self, how: str) -> None:
        polling, self._polling = self._polling, []
        for task in polling:
            task.cancel()
        await asyncio.gather(*polling, return_exceptions=True)
        ending = asyncio.ensure_future(self._shutdown(how))
        if how == "cancelled":
            await asyncio.sleep(self.rng.uniform(0, 0.2))
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

    # --- what others do with it ---

    def look_what_it_holds(self) -> None:
        """Note the queues in which the group has begun."""
        consumer = self.consumer
        if not self.machine.is_up or isinstance(consumer, SimpleConsumer):
            return
        held: list[MessageQueue] = []
        with contextlib.suppress(NotRunningError):
            held = [*(consumer.assigned_queues() if isinstance(consumer, PushConsumer) else consumer.assignment())]
        self.duty.begun |= {queue.queue_id for queue in held if queue.topic == TOPIC}

    async def pause(self) -> None:
        """Hold it back for a moment, or change how much it does at a time; lite pull: perhaps go back to the start."""
        consumer, rng = self.consumer, self.rng
        if isinstance(consumer, PushConsumer):
            if rng.chance(0.5):
                consumer.set_consume_thread_nums(1 + rng.below(8))
                return
            consumer.suspend()
            await asyncio.sleep(rng.uniform(0, 2))
            consumer.resume()
        elif isinstance(consumer, LitePullConsumer):
            held = sorted(consumer.assignment())
            if held and rng.chance(0.5):
                self.story.all_may_come_again()
                await consumer.seek_to_begin(held[rng.below(len(held))])
                return
            consumer.pause(held)
            await asyncio.sleep(rng.uniform(0, 2))
            consumer.resume(held)

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
        rng, story = self.rng, self.story
        what, is_orderly = rng.below(60), self.story.kind == "orderly"
        if story.kind == "broadcast":  # what fails is not tried again
            what = 60
        elif any(story.is_poison(message) for message in messages):
            story.marks["a poisoned message failed"] += 1
            what = 3
        if what < 3:
            story.marks["a listener failed"] += 1
            story.on_given_back(messages)
            raise (ValueError, SystemExit, asyncio.CancelledError)[what]
        if what == 3:
            story.marks["a listener asked for another try"] += 1
            story.on_given_back(messages)
            return ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if is_orderly else ConsumeResult.RECONSUME_LATER
        if what == 4 and not is_orderly and len(messages) > 1:
            story.marks["a part of a batch was done"] += 1
            context.ack_index = 0
            story.on_given_back(messages[1:])
            messages = messages[:1]
        for message in messages:
            story.on_done(self, message)
            self.certain.add(story.place_of(self, message))
        return None

    def _listen_at_once(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        self._begin(messages)
        try:
            return self._outcome(messages, context)
        finally:
            messages.clear()  # the list is the listener's own

    async def _listen(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        self._begin(messages)
        rng = self.rng
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

    async def _poll_all(self, consumer: LitePullConsumer | SimpleConsumer, poller: int) -> None:
        while True:
            try:
                if isinstance(consumer, SimpleConsumer):
                    await self._receive(consumer)
                elif self.rng.chance(0.3):
                    await self._iterate(consumer, poller)
                else:
                    await self._poll(consumer, poller)
            except MaxQError:
                await asyncio.sleep(0.2)

    async def _poll(self, consumer: LitePullConsumer, poller: int) -> None:
        await self._use(consumer, poller, await consumer.poll(300))

    async def _iterate(self, consumer: LitePullConsumer, poller: int) -> None:
        self.story.marks["messages were iterated"] += 1
        async for message in consumer:
            await self._use(consumer, poller, [message])
            if self.rng.chance(0.2):
                break

    async def _use(self, consumer: LitePullConsumer, poller: int, messages: list[MessageExt]) -> None:
        story, rng = self.story, self.rng
        self._finished |= self._in_hand.pop(poller, set())
        if story.auto_commit:
            self.certain |= self._finished
        self._begin(messages)
        await asyncio.sleep(rng.uniform(0, 0.05))
        if rng.chance(0.02) and not story.is_last:
            story.marks["a task that polls failed"] += 1
            raise ConnectionAbortedError("as scripted")  # it ends: what it holds is not done
        for message in messages:
            story.on_done(self, message)
        self._in_hand[poller] = {story.place_of(self, message) for message in messages}
        messages.clear()  # the list is the program's own
        if not story.auto_commit and rng.chance(0.5):
            await consumer.commit()
            self._finished |= self._in_hand[poller]
            self.certain |= self._finished

    async def _receive(self, consumer: SimpleConsumer) -> None:
        story, rng = self.story, self.rng
        messages = await consumer.receive(1 + rng.below(16), wait_ms=500)
        self._begin(messages)
        await asyncio.sleep(rng.uniform(0, 0.05))
        self.duty.begun |= {message.queue_id for message in messages if not message.reconsume_times}
        good = [message for message in messages if not rng.chance(0.03)]
        for message in good:
            story.on_done(self, message)  # the ack may arrive although its answer does not
            await consumer.ack(message)
            self.certain.add(story.place_of(self, message))
