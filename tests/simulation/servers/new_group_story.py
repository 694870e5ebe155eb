"""One seed, one story of a group that begins where its queues end, on an old topic, while messages flow.

Members start together and one after the other, are cut off, are ended in some way and started again; the broker is
started anew. What must hold: a message whose send began when a member held its queue is done at least once, whatever
became of that member.
"""

import asyncio
import contextlib
from collections.abc import Collection

from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.errors import NotRunningError
from maxq.errors import MaxQError
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from tests.simulation.servers.client_story import BROKER, SETTINGS, TOPIC, ClientStory, Member


class NewGroupStory(ClientStory):
    """One seed."""

    settings = {**SETTINGS, "accessMessageInMemoryMaxRatio": "0"}  # no queue is young
    begins_at = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.begun: set[int] = set()  # queues that a member has held
        self.is_over = False

    async def _rounds(self) -> Member:
        rng = self.rng
        self.is_quiet = False
        old = (0, 0, 3, 20)[rng.below(4)]
        for n in range(old):
            await self.producer.send(Message(TOPIC, b"old %d" % n))
        members = [Member(self, next(self._numbers)) for _ in range(1 + rng.below(4))]
        flow = asyncio.ensure_future(self._flow(members))
        self.tell(f"{len(members)} members of a new {self.kind} group, {old} old messages")
        await asyncio.gather(*(self._start(member) for member in members))
        for number in range(1 + rng.below(6)):
            await self._upheaval_of(members, number)
        self.is_over = True
        await flow
        for member in members:
            await member.end(how=("in order", "at once", "cancelled", "twice")[rng.below(4)])
        await self._check_members()
        return members[0]

    async def _start(self, member: Member) -> None:
        await asyncio.sleep(self.rng.uniform(0, (0, 0.03, 1)[self.rng.below(3)]))
        await member.start()

    async def _upheaval_of(self, members: list[Member], number: int) -> None:
        rng, network = self.rng, self.world.network
        await asyncio.sleep(rng.uniform(0, (0.1, 4)[rng.below(2)]))
        what = rng.below(6)
        self.marks[f"upheaval {what}"] += 1
        if what == 0 and len(members) < 5:
            self.tell("one more member")
            members.append(Member(self, next(self._numbers)))
            await members[-1].start()
        elif what <= 2:
            member = members[rng.below(len(members))]
            how = ("in order", "at once", "cancelled")[rng.below(3)]
            self.tell(f"{member.name} ends {how}")
            await member.end(how=how)
            await asyncio.sleep(rng.uniform(0, 1))
            await member.start()
        elif what == 3:
            member = members[rng.below(len(members))]
            self.tell(f"{member.name} is cut off")
            network.partition(BROKER, member.host, both_ways=rng.chance(0.5))
            await asyncio.sleep(rng.uniform(0.1, 8))
            network.heal()
        elif what == 4:
            self.tell("the broker is started anew")
            await self._stop_serving()
            await asyncio.sleep(rng.uniform(0, 2))
            self.server = await self._serve()
        else:
            network.reset(BROKER)

    async def _flow(self, members: list[Member]) -> None:
        n = 0
        while not self.is_over:
            n += 1
            body = b"new %d" % n
            self._look_who_holds(members)
            begun = set(self.begun)
            try:
                result = await self.producer.send(Message(TOPIC, body))
            except MaxQError:
                continue
            if result.message_queue.queue_id in begun:
                self.acknowledged.add(body)
            await asyncio.sleep(self.rng.uniform(0, 0.1))

    def _look_who_holds(self, members: list[Member]) -> None:
        for member in members:
            consumer = member.consumer
            if isinstance(consumer, PushConsumer):
                with contextlib.suppress(NotRunningError):
                    self._begins(consumer.assigned_queues())
            elif isinstance(consumer, LitePullConsumer):
                self._begins(consumer.assignment())

    def _begins(self, queues: Collection[MessageQueue]) -> None:
        self.begun |= {queue.queue_id for queue in queues if queue.topic == TOPIC}

    def on_done(self, member: Member, message: MessageExt) -> None:
        self.last_done.setdefault(message.queue_id, message.queue_offset - 1)
        super().on_done(member, message)

    async def _check_commits(self) -> None:
        """Check nothing: where the group began, it has passed messages over."""
