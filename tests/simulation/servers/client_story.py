"""One seed, one story of what clients promise (docs/reference/client-promises.md): random calls and faults on the
shipped clients and the shipped broker, in virtual time.

A consumer group of one kind (listeners that are coroutines, on threads, or orderly; that broadcast; that the broker
gives what they pop; lite pull, with queues that are shared out or assigned; simple) begins at the first message, at the
last one or at a time, and lives through rounds. In each, members are started, more messages are sent, and the members
are ended in some way: in order, with calls under way, cancelled, by an exception, twice at the same time, by a kill;
then some are started again. A wild round has up to four members, which start and end while others do; links that break
and heal; a broker that is started anew or killed; a second name server that hangs, or hears nothing of the broker;
queues that the topic gets and loses; a topic that is deleted and made again; and offsets that are reset, twice at the
same time. A quiet one has none of it, so that all promises hold to the letter. Listeners are quick or slow, fail, ask
for another try, finish a part of a batch, call sys.exit.

What must hold: every acknowledged message that the group is owed is done at least once, or a dead letter; what was done
in a quiet round does not come again; no offset is committed past a message that nobody has done or given back; no
listener is called, and no call goes on, once `shutdown` has returned; nobody who has left stays a member; an orderly
group does each queue's messages in order.

What is owed: with CONSUME_FROM_FIRST_OFFSET all messages, with CONSUME_FROM_TIMESTAMP those since then, with
CONSUME_FROM_LAST_OFFSET those whose send began when the group had begun with their queue.
"""

import asyncio
import contextlib
from collections import Counter, defaultdict
from pathlib import Path, PurePath
from typing import Final

from maxq.client.admin.admin import Admin
from maxq.client.admin.dead_letters import DeadLetterSelection
from maxq.client.client_config import ClientConfig, ClientEnvironment, ProducerConfig
from maxq.client.errors import NotRunningError
from maxq.client.producer.producer import Producer
from maxq.errors import MaxQError
from maxq.protocol.body.consumer_info import SetMessageRequestModeRequestBody
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import ConsumeFromWhere, MessageRequestMode
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.standalone import CLUSTER_NAME, StandaloneServer
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.servers.client_members import GROUP, TOPIC, Duty, Member, Place
from tests.simulation.servers.sim_server import NAMESRV as SECOND
from tests.simulation.servers.sim_server import NAMESRV_ADDRESS, NameServer

BROKER, PRODUCER = "10.0.0.1", "10.0.0.2"
BROKER_ADDRESS: Final = f"{BROKER}:10911"
QUEUES, MOST_QUEUES, MOST_MEMBERS = 3, 5, 4
SETTINGS: Final = {
    "mappedFileSizeCommitLog": "262144", "maxHashSlotNum": "100", "maxIndexNum": "400",
    "mappedFileSizeConsumeQueue": "8000", "mappedFileSizeTimerLog": "520000",
    "namesrvAddr": f"{BROKER}:9876;{NAMESRV_ADDRESS}", "autoCreateTopicEnable": "false",
}  # fmt: skip
KINDS: Final = ("coroutine", "threads", "orderly", "lite", "simple", "broadcast", "pop")
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
AT_TIME = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
_DELIVERED_WITHIN_S: Final = 1500  # locks of the dead expire after 60 s, retries wait


class ClientStory:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.kind = KINDS[seed % len(KINDS)]
        self.auto_commit = seed // len(KINDS) % 2 == 0
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []
        self.group = Duty()
        self.acknowledged: dict[bytes, int] = {}  # of this topic: body → when its send began, wall ms
        self.stored: dict[tuple[int, int], bytes] = {}  # queue and offset of what is owed → body
        self.for_good: set[Place] = set()  # done in a quiet round: must not come again
        self.given_back: set[bytes] = set()  # so that it may be committed past
        self.last_done: dict[int, int] = {}  # orderly: queue id → offset
        self.generation = 0  # of the topic
        self.queue_count = QUEUES
        self.skipped_before_ms = 0  # offsets were reset: what was sent before may be passed over
        self.is_remaking = False
        self.is_quiet = True  # this round
        self.is_over = True  # the upheaval of this round
        self.is_last = False
        self._failures: list[str] = []
        self._numbers = iter(range(1, 250))
        self._members: list[Member] = []

    def run(self) -> None:
        run_simulation(self._live, seed=self.seed, time_limit_s=24 * 3600.0)

    def tell(self, what: str) -> None:
        self.history.append(f"{self.world.loop.time():9.3f} {what}")

    def fail(self, what: str) -> None:
        self.tell(f"BROKEN: {what}")
        self._failures.append(what)

    def check(self) -> None:
        assert not self._failures, "; ".join(self._failures[:5])

    def _choose(self) -> None:
        """Choose what is the same for the whole story."""
        rng = self.rng
        begins = (FIRST, FIRST, LAST, AT_TIME)[rng.below(4)]
        self.is_assigned = self.kind == "lite" and rng.chance(0.3)
        if self.kind == "pop" or (self.kind == "simple" and begins is AT_TIME) or (self.is_assigned and begins is LAST):
            begins = FIRST  # a pop knows no times; what is assigned begins anew until it is committed
        self.begins_at = begins
        self.begins_ms = 0
        can_die = self.kind in ("coroutine", "threads", "pop") and rng.chance(0.4)
        self.most_tries = 2 if can_die else -1
        self.name_servers = NAMESRV_ADDRESS if rng.chance(0.3) else SETTINGS["namesrvAddr"]  # of all clients
        self.settings = {**SETTINGS, **({"accessMessageInMemoryMaxRatio": "0"} if rng.chance(0.5) else {})}
        self.tell(f"{self.kind}, {begins.name}, assigned: {self.is_assigned}, {self.most_tries} tries")
        self.tell(f"clients know {self.name_servers}")
        self.marks[begins.name] += 1

    # --- what the members tell ---

    def is_poison(self, message: MessageExt) -> bool:
        """Return whether no try can succeed: it becomes a dead letter."""
        return self.most_tries >= 0 and message.body.endswith(b"poison")

    def place_of(self, member: Member, message: MessageExt) -> Place:
        host = member.host if self.kind == "broadcast" else ""
        tries = message.reconsume_times > 0 and self.kind != "orderly"
        return generation_of(message), tries, message.queue_id, message.queue_offset, host

    def on_delivered(self, member: Member, message: MessageExt) -> None:
        if self.place_of(member, message) in self.for_good:
            self.fail(f"{message.body!r} comes again to {member.name}")

    def on_done(self, member: Member, message: MessageExt) -> None:
        member.duty.done.add(message.body)
        if self.kind == "orderly" and generation_of(message) == self.generation:
            last = self.last_done.setdefault(message.queue_id, message.queue_offset - 1)
            if message.queue_offset > last + 1:
                self.fail(f"queue {message.queue_id}: {message.queue_offset} was done out of order, after {last}")
            self.last_done[message.queue_id] = max(last, message.queue_offset)

    def on_given_back(self, messages: list[MessageExt]) -> None:
        """They come again from the retry topic; those of an orderly group from where they are."""
        if self.kind != "orderly":
            self.given_back |= {message.body for message in messages}

    def all_may_come_again(self) -> None:
        """Somebody went back, or commits were lost."""
        self.for_good.clear()

    # --- the rounds ---

    async def _live(self, world: SimWorld) -> None:
        self.world, self.rng = world, world.rng.fork("story")
        self._choose()
        world.network.default_link = LinkSettings(delay_ms=(0.1, 10), chunk_bytes=(1, 4000), whole=0.6, loss=0.0)
        self.machine = SimMachine(world.loop, BROKER, world.rng.fork("broker"), kill_keeps_cache=True)
        self.second = NameServer(world, SECOND, world.rng.fork("second"), -1)
        await self.second.start()
        await self._serve()
        with world.network.on_host(PRODUCER):
            environment = ClientEnvironment(world.clock, world.rng, world.disk, PRODUCER, 7, PurePath("/home"))
            self.producer = Producer(ProducerConfig(namesrv_addr=self.name_servers, producer_group="P"), environment)
            self.admin = Admin(ClientConfig(namesrv_addr=self.name_servers), environment)
            await self._set_queues(QUEUES)
            await asyncio.ensure_future(self.producer.start())
        await self._send_old()
        for number in range(3 + self.rng.below(3)):
            await self._round(is_quiet=self.rng.chance(0.4), number=number)
            self.check()
        await self._finally()
        self.check()
        await self.producer.shutdown()
        try:
            await self.producer.send(Message(TOPIC, b"late"))
        except NotRunningError:
            pass
        else:
            raise AssertionError("a producer sends after its shutdown")
        await self.admin.close()
        await self.machine.call(self.server.shutdown)
        await self.second.stop()

    async def _serve(self) -> None:
        """Start the broker, on its machine as the last one left it."""
        machine, world = self.machine, self.world
        if not machine.is_up:
            machine.boot()
        self.server = StandaloneServer(
            Path("/store"), BROKER, 9876, 10911, self.settings, disk=machine.disk, clock=machine.clock, rng=world.rng
        )
        await machine.call(self.server.start)

    async def _send_old(self) -> None:
        """Send what is there before the group."""
        if self.begins_at is FIRST:
            return
        for n in range((0, 3, 20)[self.rng.below(3)]):
            await self.producer.send(Message(TOPIC, b"0|old %d" % n))
        await asyncio.sleep(0.01)
        if self.begins_at is AT_TIME:
            self.begins_ms = self.world.clock.wall_ms()

    # --- sends ---

    def _duties(self) -> list[Duty]:
        return [member.duty for member in self._members] if self.kind == "broadcast" else [self.group]

    def _new_member(self) -> Member:
        duty = self.group
        if self.kind == "broadcast":
            duty = Duty()
            if self.begins_at is not LAST:
                duty.owed = dict(self.acknowledged)
        return Member(self, next(self._numbers), duty)

    async def _send(self, count: int, number: int) -> None:
        rng, n = self.rng, 0
        while n < count or not self.is_over:
            text = f"{self.generation}|{number}-{n}{'-poison' if rng.chance(0.02) else ''}"
            await self._send_one(text.encode())
            await asyncio.sleep(rng.uniform(0, 0.05 if n < count else 0.5))
            n += 1

    async def _send_one(self, body: bytes) -> None:
        generation, began_ms, is_remaking = self.generation, self.world.clock.wall_ms(), self.is_remaking
        for member in self._members:
            member.look_what_it_holds()
        owed_by = [(duty, set(duty.begun)) for duty in self._duties()]
        sending = asyncio.ensure_future(self.producer.send(Message(TOPIC, body)))
        if self.rng.chance(0.02):
            self.marks["a send was cancelled"] += 1
            await asyncio.sleep(self.rng.uniform(0, 0.02))
            sending.cancel()
        try:
            result = await sending
        except (MaxQError, asyncio.CancelledError):
            return  # it may be stored, or not
        if is_remaking or self.is_remaking or generation != self.generation or began_ms < self.skipped_before_ms:
            return
        self.acknowledged[body] = began_ms
        queue_id = result.message_queue.queue_id
        for duty, begun in owed_by:
            if self.begins_at is not LAST or queue_id in begun:
                duty.owed[body] = began_ms
                self.stored[queue_id, result.queue_offset] = body

    # --- a round ---

    async def _round(self, *, is_quiet: bool, number: int) -> None:
        rng, members = self.rng, self._members
        self.is_quiet = self.is_over = is_quiet
        self.tell(f"round {number}, {'quiet' if is_quiet else 'wild'}")
        if self.kind != "broadcast":
            del members[1:]
        count = 1 if (is_quiet and self.kind != "broadcast") or self.is_assigned else 1 + rng.below(MOST_MEMBERS)
        while len(members) < count:
            members.append(self._new_member())
        sending = asyncio.ensure_future(self._send(20 + rng.below(60), number))
        is_behind = is_quiet and rng.chance(0.5)
        if is_behind:  # and ends before all is done
            await sending
        hearing_again = None if is_quiet or rng.chance(0.7) else asyncio.ensure_future(self._deafen_second())
        await asyncio.gather(*(self._start(member) for member in members))
        if is_quiet:
            await asyncio.sleep(rng.uniform(0.02, 0.4 if is_behind else 6))
        else:
            await self._upheaval()
            if hearing_again is not None:
                await hearing_again
            self.is_over = True
        await sending
        await self._end_all()
        await self._check_members()
        await self._check_commits()
        if rng.chance(0.4) and self.kind != "broadcast":
            members[0] = self._new_member()
        else:
            self.marks["a consumer was started again"] += 1

    async def _start(self, member: Member) -> None:
        if not self.is_quiet:
            await asyncio.sleep(self.rng.uniform(0, (0, 0.03, 1)[self.rng.below(3)]))
        await member.start()

    async def _end_all(self) -> None:
        ends = []
        for member in self._members:
            how = "in order" if self.is_quiet else self._some_end()
            self.tell(f"{member.name} ends {how}")
            self.marks[f"a member ended {how}"] += 1
            ends.append(member.end(how=how))
        if self.rng.chance(0.5):
            await asyncio.gather(*ends)
        else:
            for end in ends:
                await end
        if self.is_quiet:
            for member in self._members:
                self.for_good |= member.certain

    def _some_end(self) -> str:
        return ("in order", "at once", "cancelled", "twice", "killed")[self.rng.below(5)]

    async def _upheaval(self) -> None:
        happenings = (
            self._one_more, self._one_leaves, self._one_leaves, self._cut_off, self._reset_connections,
            self._broker_anew, self._broker_dies, self._all_die, self._name_server_fails, self._hold_back,
            self._other_queues, self._remake_topic, self._reset_offsets,
        )  # fmt: skip
        for _ in range(1 + self.rng.below(6)):
            await asyncio.sleep(self.rng.uniform(0, (0.1, 4)[self.rng.below(2)]))
            await happenings[self.rng.below(len(happenings))]()
        self.world.network.heal()

    def _somebody(self) -> Member:
        return self._members[self.rng.below(len(self._members))]

    async def _one_more(self) -> None:
        if len(self._members) <= MOST_MEMBERS and not self.is_assigned:
            self._members.append(self._new_member())
            self.tell(f"one more: {self._members[-1].name}")
            await self._members[-1].start()

    async def _one_leaves(self) -> None:
        """One member ends and comes back, perhaps while another one begins."""
        member, how = self._somebody(), self._some_end()
        self.tell(f"{member.name} ends {how}")
        if self.rng.chance(0.5):
            await asyncio.gather(self._one_more(), member.end(how=how))
        else:
            await member.end(how=how)
        await asyncio.sleep(self.rng.uniform(0, 1))
        await member.start()

    async def _cut_off(self) -> None:
        member = self._somebody()
        self.tell(f"{member.name} is cut off")
        self.marks["a member was cut off"] += 1
        self.world.network.partition(BROKER, member.host, both_ways=self.rng.chance(0.5))
        await asyncio.sleep(self.rng.uniform(0.1, 8))
        self.world.network.heal(BROKER, member.host)

    async def _reset_connections(self) -> None:
        self.tell("connections are reset")
        self.world.network.reset(BROKER)

    async def _broker_anew(self) -> None:
        self.tell("the broker is started anew")
        self.marks["the broker was started anew"] += 1
        await self.machine.call(self.server.shutdown)
        await asyncio.sleep(self.rng.uniform(0, 2))
        await self._serve()

    async def _broker_dies(self) -> None:
        self.tell("the broker is killed")
        self.marks["the broker was killed"] += 1
        self.all_may_come_again()
        self.machine.kill()
        await asyncio.sleep(self.rng.uniform(0, 2))
        await self._serve()

    async def _all_die(self) -> None:
        """The broker and all members are killed in one moment."""
        self.tell("all are killed")
        self.marks["all were killed"] += 1
        self.all_may_come_again()
        for machine in (self.machine, *(member.machine for member in self._members)):
            machine.kill()
        await asyncio.sleep(self.rng.uniform(0, 2))
        await asyncio.gather(self._serve(), *(self._start(member) for member in self._members))

    async def _name_server_fails(self) -> None:
        rng = self.rng
        if rng.chance(0.5):
            self.tell("the second name server hangs")
            self.marks["a name server hung"] += 1
            await self.second.machine.pause(rng.uniform(0.1, 20))
            return
        hearing_again = asyncio.ensure_future(self._deafen_second())
        for _ in range(1 + rng.below(2)):
            await asyncio.sleep(rng.uniform(0.1, 4))
            await (self._other_queues, self._one_leaves, self._broker_anew)[rng.below(3)]()
        await hearing_again

    async def _deafen_second(self) -> None:
        """Let the second name server hear nothing of the broker for a while."""
        self.tell("the second name server hears nothing of the broker")
        self.marks["name servers differed"] += 1
        self.world.network.partition(BROKER, SECOND)
        await asyncio.sleep(self.rng.uniform(0.1, 8))
        self.world.network.heal(BROKER, SECOND)

    async def _hold_back(self) -> None:
        member = self._somebody()
        self.tell(f"{member.name} is held back, or goes back")
        if member.machine.is_up:
            with contextlib.suppress(MaxQError):
                await member.machine.call(member.pause)

    async def _other_queues(self) -> None:
        count = 1 + self.rng.below(MOST_QUEUES)
        self.tell(f"the topic has {count} queues")
        self.marks["a topic got or lost queues"] += 1
        await self._set_queues(count)

    async def _set_queues(self, count: int) -> None:
        for _ in range(60):
            try:
                await self.admin.topics.create(BROKER_ADDRESS, TopicConfig(TOPIC, count, count))
                if self.kind == "pop":
                    mode = SetMessageRequestModeRequestBody(TOPIC, GROUP, MessageRequestMode.POP)
                    await self.admin.groups.set_message_request_mode(BROKER_ADDRESS, mode)
                return
            except MaxQError:
                await asyncio.sleep(1)

    async def _remake_topic(self) -> None:
        if self.begins_at is LAST or self.kind == "broadcast":
            return  # nobody can see who has begun again; the files of those who broadcast know nothing of it
        self.tell("the topic is deleted and made again")
        self.marks["a topic was made again"] += 1
        await asyncio.sleep(10)  # a broker that was started anew knows a reader by its first pull since
        self.is_remaking = True
        self.all_may_come_again()
        for _ in range(60):
            try:
                await self.admin.topics.delete(TOPIC, CLUSTER_NAME)
                break
            except MaxQError:
                await asyncio.sleep(1)
        await asyncio.sleep(self.rng.uniform(0, (0.1, 5)[self.rng.below(2)]))
        await self._set_queues(QUEUES)
        self.generation += 1
        self.acknowledged.clear()
        self.stored.clear()
        self.last_done.clear()
        for duty in self._duties():
            duty.owed.clear()
        self.is_remaking = False
        await asyncio.sleep(5)  # who has not pulled since is forgotten when the broker is started anew

    async def _reset_offsets(self) -> None:
        if self.kind == "broadcast":
            return
        now_ms = self.world.clock.wall_ms()
        is_order_kept = self.kind == "orderly"  # so nothing may be passed over
        times = [0 if is_order_kept else now_ms - self.rng.below(20_000) for _ in range(1 + self.rng.below(2))]
        self.tell(f"offsets are reset to {[ms and ms - now_ms for ms in times]}")
        self.marks[f"offsets were reset by {len(times)}"] += 1
        self.all_may_come_again()
        self.skipped_before_ms = max(self.skipped_before_ms, *times)
        for body, began_ms in list(self.group.owed.items()):
            if began_ms < self.skipped_before_ms:
                del self.group.owed[body]
        self.stored = {place: body for place, body in self.stored.items() if body in self.group.owed}
        reset = self.admin.offsets.reset_by_time
        await asyncio.gather(*(reset(GROUP, TOPIC, ms) for ms in times), return_exceptions=True)
        self.all_may_come_again()

    # --- the end ---

    async def _finally(self) -> None:
        """All is quiet: what is owed is done in the end."""
        self.tell("the end")
        self.is_last = True
        self.is_quiet = False
        members = self._members
        await self._set_queues(MOST_QUEUES)
        await asyncio.gather(*(member.start() for member in members[: None if self.kind == "broadcast" else 1]))
        end = self.world.loop.time() + _DELIVERED_WITHIN_S
        while any(duty.missing for duty in self._duties()) and self.world.loop.time() < end:
            await asyncio.sleep(1)
            if any(duty.missing for duty in self._duties()) and self.most_tries >= 0:
                await self._note_dead_letters()
        for duty in self._duties():
            if missing := duty.missing:
                self.fail(f"{len(missing)} acknowledged messages were never done: {sorted(missing)[:5]}")
        self.is_quiet = True
        await self._end_all()
        await self._check_members()
        await self._check_commits()

    async def _note_dead_letters(self) -> None:
        with contextlib.suppress(MaxQError):
            async for letter in self.admin.dead_letters.scan(GROUP, DeadLetterSelection()):
                if letter.body not in self.group.done:
                    self.marks["a dead letter"] += 1
                    self.group.done.add(letter.body)

    # --- what must hold ---

    async def _check_members(self) -> None:
        for _ in range(20):  # the ends of connections are under way
            try:
                there = await self.admin.api.consumer_ids(BROKER_ADDRESS, GROUP)
            except MaxQError:
                return  # it knows none
            if not there:
                return
            await asyncio.sleep(0.5)
        self.fail(f"members that have left are still there: {there}")

    async def _check_commits(self) -> None:
        if self.kind in ("simple", "pop", "broadcast"):
            return  # a pop commits what it has given out; what is not acknowledged comes again
        owed: dict[int, dict[int, bytes]] = defaultdict(dict)
        for (queue_id, offset), body in self.stored.items():
            owed[queue_id][offset] = body
        for queue_id, bodies in owed.items():
            committed = await self._committed(MessageQueue(TOPIC, "broker-a", queue_id))
            skipped = sorted(
                offset for offset, body in bodies.items()
                if offset < committed and body not in self.group.done | self.given_back
            )  # fmt: skip
            if skipped:
                self.fail(f"queue {queue_id} is committed up to {committed}, but nobody has done {skipped[:5]}")

    async def _committed(self, queue: MessageQueue) -> int:
        for _ in range(100):
            try:
                return await self.admin.offsets.committed(GROUP, queue) or 0
            except MaxQError:  # the broker's registration may have been lost with its connections
                await asyncio.sleep(1)
        raise AssertionError(f"the offset of {queue} cannot be read")


def generation_of(message: MessageExt) -> int:
    """Return of which topic of this name a message is."""
    return int(message.body.split(b"|")[0])
