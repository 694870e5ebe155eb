"""Clients of one broker group that ask each of its brokers by its address, as those with an old route do, and note what
each of them answered: what was sent, read, given, delivered, ended, reset and deleted."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from maxq.client.results.pop_result import decode_pop_answer, handle_of
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import MaxQError
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import (
    AckMessageRequestHeader,
    PopMessageRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from maxq.protocol.header.send import (
    EndTransactionRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, decode_message_id, decode_records
from maxq.protocol.message.message_properties import encode_properties
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.protocol.message.pop_extra_info import real_topic
from maxq.remoting.client import RemotingClient
from maxq.testing.sim_rng import SimRng

PLAIN, POPPED, LATER, TRANSACTED, AGAIN, RESET = "Plain", "Popped", "Later", "Transacted", "Again", "Reset"
TOPICS: Final = (PLAIN, POPPED, LATER, TRANSACTED, RESET)
QUEUES: Final = 2
PULLING, POPPING, RESETTING, PASSING = ("Pulling-1", "Pulling-2"), "Popping", "Resetting", "Passing"
INVISIBLE_MS: Final = 30_000
#: An ack that took no longer came in time, and a message is nobody else's for so long, whatever clocks say, s.
SAFE_S: Final = 5.0
MOST_LATE_MS: Final = 20_000
_TIMEOUT_MS: Final = 6_000
_SUBSCRIPTION: Final = 4
_COMMIT: Final = MessageSysFlag.TRANSACTION_COMMIT
_ROLLBACK: Final = MessageSysFlag.TRANSACTION_ROLLBACK


@dataclass(slots=True, eq=False)
class Fact:
    """A broker has given a message away, or taken an ack.

    Attributes:
        began, ended: of the request, s.
        position: where the master's log ended, as far as it was written, when the answer came; 0: it was away.
        given: of an ack: when the message was given.
    """

    key: str
    broker: str
    life: int
    began: float
    ended: float
    position: int
    given: "Fact | None" = None

    def __str__(self) -> str:
        what = "given" if self.given is None else "acknowledged"
        return f"{self.key} {what} at {self.broker} (life {self.life}) [{self.began:.3f}, {self.ended:.3f}]"


@dataclass(slots=True, eq=False)
class Sent:
    """A message that was acknowledged.

    Attributes:
        when: when the answer came, s.
        due_ms: not before that wall time of the broker that took it; 0: at once.
    """

    key: str
    when: float
    due_ms: int = 0


@dataclass(slots=True)
class Transaction:
    """Attributes:
    commits: its producer commits it.
    when: when the answer to that came, s; None: it did not.
    """

    commits: bool
    when: float | None = None


@dataclass(slots=True)
class Generation:
    """Of the topic that is deleted and made again.

    Attributes:
        sent: bodies that were acknowledged.
        is_gone: it was deleted, as the answer said; None: nobody knows.
    """

    sent: list[str] = field(default_factory=list)
    is_gone: bool | None = False


@dataclass(slots=True)
class PassingGroup:
    """A life of the group that is made and deleted with its offsets.

    Attributes:
        commits: what was committed, be it answered or not.
        is_gone: it was deleted, as the answer said; None: nobody knows.
    """

    commits: list[int] = field(default_factory=list)
    is_gone: bool | None = False


class ActingTraffic:
    """Between `start` and `stop`.

    Args:
        brokers: name → address; the first is the master.
        life: of a broker's process, a number.
        position: where the master's log ends; 0 if it is away.
        wall_ms: of a broker's machine.

    Attributes:
        sent: by topic.
        read: keys that each group that pulls has read.
    """

    def __init__(
        self,
        client: RemotingClient,
        brokers: Mapping[str, str],
        chance: SimRng,
        *,
        now: Callable[[], float],
        life: Callable[[str], int],
        position: Callable[[], int],
        wall_ms: Callable[[str], int],
    ) -> None:
        self._client = client
        self._brokers = brokers
        self._master = next(iter(brokers))
        self._chance = chance
        self._now = now
        self._life = life
        self._position = position
        self._wall_ms = wall_ms
        self._ends = False
        self._writers: list[asyncio.Task[None]] = []
        self._readers: list[asyncio.Task[None]] = []
        self._epoch = 0
        self.sent: dict[str, list[Sent]] = defaultdict(list)
        self.read: dict[str, set[str]] = {group: set() for group in PULLING}
        self.given: list[Fact] = []
        self.acked: list[Fact] = []
        self.transactions: dict[str, Transaction] = {}
        self.resets: list[tuple[int, float | None]] = []  # offset, and when it was answered
        self.reset_commits: list[tuple[int, int]] = []  # what consumers committed of that group, before which reset
        self.generations: list[Generation] = []
        self.passing: list[PassingGroup] = []
        self.unsure: set[int] = set()  # commits without an answer of the groups whose offsets are set and deleted
        self._reset_end = 0  # of the queue whose offsets are set and deleted

    def start(self) -> None:
        """Send, read, pop, and so on until `stop`."""
        works = [self._send_plain(PLAIN), self._send_plain(POPPED), self._send_later(), self._transact(),
                 self._reset(), self._make_again(), self._make_group_again()]  # fmt: skip
        self._writers = [asyncio.ensure_future(work) for work in works]
        readers = [self._pull(group) for group in PULLING] + [self._pop() for _ in range(2)]
        self._readers = [asyncio.ensure_future(work) for work in readers]

    def readers_begin_anew(self) -> None:
        """Members of the groups that pull forget where they are, and ask."""
        self._epoch += 1

    async def stop_writing(self) -> None:
        self._ends = True
        await asyncio.gather(*self._writers)

    async def stop_reading(self) -> None:
        for one in self._readers:
            assert not one.done(), f"a reader ended: {one.exception()!r}"
            one.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    def unread(self, there: set[str]) -> list[str]:
        """What is there and has not come to somebody."""
        keys = {one.key for one in self.sent[PLAIN]} & there
        left = [f"{key} was not read by {group}" for group in PULLING for key in sorted(keys - self.read[group])]
        popped = {one.key for one in self.sent[POPPED]} & there
        return left + [f"{key} was not given" for key in sorted(popped - {fact.key for fact in self.given})]

    # -- asking --

    async def ask(self, broker: str, code: int, ext: dict[str, str], body: bytes = b"") -> RemotingCommand | None:
        """None: no answer."""
        try:
            return await self._client.invoke(self._brokers[broker], RemotingCommand(code, ext, body), _TIMEOUT_MS)
        except MaxQError:
            return None

    def _in_turn(self) -> list[str]:
        """Brokers, mostly the master first, as clients whose route is new or old ask them."""
        brokers = list(self._brokers)
        if self._chance.chance(0.2):
            brokers.sort(key=lambda _: self._chance.below(1 << 30))
        return brokers

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(self._chance.uniform(0.1, 1) * seconds)

    async def _rest_from_reading(self) -> None:
        """Longer when nothing more is sent."""
        await self._rest(2.4 if self._ends else 0.8)

    async def _send(
        self,
        broker: str,
        topic: str,
        body: str,
        *,
        queue_id: int = 0,
        sys_flag: int = 0,
        more: Mapping[str, str] | None = None,
    ) -> SendMessageResponseHeader | None:
        """Send a message, with `more` properties. None: it was not acknowledged."""
        properties = {const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: body, **(more or {})}
        header = SendMessageRequestHeader(
            "P", topic, "TBW102", QUEUES, queue_id, sys_flag, self._wall_ms(broker), 0, encode_properties(properties),
            0, False, False,
        )  # fmt: skip
        reply = await self.ask(broker, RequestCode.SEND_MESSAGE, header.encode(), body.encode())
        if reply is None or reply.code != ResponseCode.SUCCESS:
            return None
        return SendMessageResponseHeader.decode(reply.ext)

    # -- sends --

    async def _send_plain(self, topic: str) -> None:
        number = 0
        while not self._ends:
            for broker in self._in_turn():
                number += 1
                key = f"{topic}-{number}"
                if await self._send(broker, topic, key, queue_id=number % QUEUES) is not None:
                    self.sent[topic].append(Sent(key, self._now()))
                    break
            await self._rest(0.6)

    async def _send_later(self) -> None:
        number = 0
        while not self._ends:
            number += 1
            key, broker = f"{LATER}-{number}", self._in_turn()[0]
            began_ms = self._wall_ms(broker)
            delay_ms = self._chance.between(1, MOST_LATE_MS // 1000) * 1000
            waits = {const.PROPERTY_TIMER_DELAY_MS: str(delay_ms)}
            if self._chance.chance(0.4):
                level = self._chance.below(2)
                delay_ms = (1_000, 10_000)[level]
                waits = {const.PROPERTY_DELAY_TIME_LEVEL: str((1, 3)[level])}
            if await self._send(broker, LATER, key, queue_id=number % QUEUES, more=waits) is not None:
                self.sent[LATER].append(Sent(key, self._now(), began_ms + delay_ms))
            await self._rest(1.0)

    async def _transact(self) -> None:
        number = 0
        while not self._ends:
            number += 1
            key, broker = f"{TRANSACTED}-{number}", self._in_turn()[0]
            half = await self._send(
                broker, TRANSACTED, key, sys_flag=MessageSysFlag.TRANSACTION_PREPARED,
                more={const.PROPERTY_TRANSACTION_PREPARED: "true", const.PROPERTY_PRODUCER_GROUP: "P"},
            )  # fmt: skip
            if half is not None:
                await self._end(key, broker, half)
            await self._rest(1.5)

    async def _end(self, key: str, broker: str, half: SendMessageResponseHeader) -> None:
        """At the broker that has the half message; a producer whose answer does not come asks for the same again."""
        one = self.transactions[key] = Transaction(self._chance.chance(0.6))
        header = EndTransactionRequestHeader(
            "P", half.queue_offset, decode_message_id(half.msg_id)[1], _COMMIT if one.commits else _ROLLBACK,
            half.transaction_id or key, transaction_id=half.transaction_id,
        )  # fmt: skip
        for _ in range(3):
            await self._rest(1.5)
            reply = await self.ask(broker, RequestCode.END_TRANSACTION, header.encode())
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                one.when = self._now()
                return

    # -- groups that pull --

    async def _pull(self, group: str) -> None:
        """One member after the other: each asks where to go on, reads for a while, and leaves."""
        while True:
            epoch = self._epoch
            offsets = [await self._committed(group, queue) for queue in range(QUEUES)]
            for _ in range(self._chance.between(1, 15)):
                for queue in range(QUEUES):
                    if epoch == self._epoch:
                        offsets[queue] = await self._read(group, queue, offsets[queue], epoch)
                await self._rest_from_reading()
                if epoch != self._epoch:
                    break

    async def _committed(self, group: str, queue: int) -> int:
        ext = {"consumerGroup": group, "topic": PLAIN, "queueId": str(queue)}
        while True:
            for broker in self._in_turn():
                reply = await self.ask(broker, RequestCode.QUERY_CONSUMER_OFFSET, ext)
                if reply is not None and reply.code == ResponseCode.SUCCESS:
                    return int(reply.ext["offset"])
                if reply is not None and reply.code == ResponseCode.QUERY_NOT_FOUND:
                    return 0
            await self._rest(0.5)

    async def _read(self, group: str, queue: int, offset: int, epoch: int) -> int:
        """Returns where to go on."""
        for broker in self._in_turn():
            got = await self._pull_once(broker, group, PLAIN, queue, offset)
            if epoch != self._epoch:
                return offset
            if got is None:
                continue
            messages, following = got
            self.read[group] |= {message.body.decode() for message in messages}
            if messages and self._chance.chance(0.7):
                await self._commit(group, queue, following, epoch)
            return following
        return offset

    async def _commit(self, group: str, queue: int, offset: int, epoch: int) -> None:
        ext = {"consumerGroup": group, "topic": PLAIN, "queueId": str(queue), "commitOffset": str(offset)}
        for broker in self._in_turn():
            if epoch == self._epoch:
                reply = await self.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
                if reply is not None and reply.code == ResponseCode.SUCCESS:
                    return

    async def _pull_once(
        self, broker: str, group: str, topic: str, queue: int, offset: int
    ) -> tuple[list[MessageExt], int] | None:
        """Messages, and where to go on; None: it does not say."""
        header = PullMessageRequestHeader(group, topic, queue, offset, 32, _SUBSCRIPTION, 0, 0, 0, "*", "TAG")
        reply = await self.ask(broker, RequestCode.PULL_MESSAGE, header.encode())
        if reply is None:
            return None
        if reply.code == ResponseCode.SUCCESS:
            following = PullMessageResponseHeader.decode(reply.ext).next_begin_offset
            return decode_records(reply.body_bytes), following
        if reply.code == ResponseCode.PULL_OFFSET_MOVED:
            return [], PullMessageResponseHeader.decode(reply.ext).next_begin_offset
        return ([], offset) if reply.code == ResponseCode.PULL_NOT_FOUND else None

    async def all_of(self, broker: str, topic: str) -> list[MessageExt] | None:
        """Everything that this broker shows of a topic; None: it does not say."""
        found: list[MessageExt] = []
        for queue in range(QUEUES):
            offset = 0
            while True:
                got = await self._pull_once(broker, "Looking", topic, queue, offset)
                if got is None:
                    return None
                messages, following = got
                found += messages
                if not messages and following == offset:
                    break
                offset = following
        return found

    # -- a group that pops --

    async def _pop(self) -> None:
        while True:
            for broker in self._in_turn():
                if await self._take(broker):
                    break
            await self._rest_from_reading()

    async def _take(self, broker: str) -> bool:
        began, life = self._now(), self._life(broker)
        header = PopMessageRequestHeader(POPPING, POPPED, -1, self._chance.between(1, 8), INVISIBLE_MS, 0, 0, 0)
        reply = await self.ask(broker, RequestCode.POP_MESSAGE, header.encode())
        result = None if reply is None else decode_pop_answer(reply, POPPED, "broker-a", order=False)
        if result is None or not result.messages:
            return result is not None
        position = self._position()
        facts = {
            message.body: Fact(message.body.decode(), broker, life, began, self._now(), position)
            for message in result.messages
        }
        self.given += facts.values()
        if self._chance.chance(0.3):
            await self._rest(SAFE_S / 2)  # brokers may change meanwhile
        for message in result.messages:
            if self._chance.chance(0.9):
                await self._ack(message, facts[message.body])
        return True

    async def _ack(self, message: MessageExt, given: Fact) -> None:
        handle = handle_of(message)
        header = AckMessageRequestHeader(
            POPPING, real_topic(message.topic, POPPING, handle.retry), handle.queue_id or 0, str(handle),
            handle.queue_offset or 0,
        )  # fmt: skip
        others = [given.broker, *self._in_turn()] if self._chance.chance(0.6) else self._in_turn()
        for broker in others:
            began, life = self._now(), self._life(broker)
            reply = await self.ask(broker, RequestCode.ACK_MESSAGE, header.encode())
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                if self._now() - given.began < SAFE_S:
                    self.acked.append(Fact(given.key, broker, life, began, self._now(), self._position(), given))
                return

    # -- what operators do --

    async def _reset(self) -> None:
        """Consumers of this group commit as well."""
        while not self._ends:
            self._reset_end += await self._send(self._master, RESET, f"{RESET}-{self._reset_end}") is not None
            if self._chance.chance(0.5):
                self.reset_commits.append((self._reset_end, len(self.resets)))
                await self._commit_one(RESETTING, self._reset_end)
            offset = self._chance.below(self._reset_end + 1)
            ext = {"topic": RESET, "group": RESETTING, "timestamp": "-1", "isForce": "true", "queueId": "0",
                   "offset": str(offset)}  # fmt: skip
            is_done = await self._done_at_master(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
            self.resets.append((offset, self._now() if is_done else None))
            await self._rest(4.0)

    async def _commit_one(self, group: str, offset: int) -> None:
        """What was asked and not answered may be done later."""
        ext = {"consumerGroup": group, "topic": RESET, "queueId": "0", "commitOffset": str(offset)}
        for broker in self._in_turn():
            reply = await self.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
            if reply is None:
                self.unsure.add(offset)
            elif reply.code == ResponseCode.SUCCESS:
                return

    async def committed_of(self, broker: str, group: str) -> int | None:
        """What this broker says of a group in the topic whose offsets are set; -1: nothing; None: it does not say."""
        ext = {"consumerGroup": group, "topic": RESET, "queueId": "0", "setZeroIfNotFound": "false"}
        reply = await self.ask(broker, RequestCode.QUERY_CONSUMER_OFFSET, ext)
        if reply is not None and reply.code == ResponseCode.SUCCESS:
            return int(reply.ext["offset"])
        return -1 if reply is not None and reply.code == ResponseCode.QUERY_NOT_FOUND else None

    async def _make_group_again(self) -> None:
        """A group is made, commits and is deleted with its offsets, over and over."""
        body = SubscriptionGroupConfig(PASSING).encode()
        while not self._ends:
            one = PassingGroup()
            while not await self._done_at_master(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body):
                await self._rest(1.0)
                if self._ends:
                    return
            self.passing.append(one)
            for _ in range(self._chance.below(3)):
                offset = self._chance.below(self._reset_end + 1)
                one.commits.append(offset)
                await self._commit_one(PASSING, offset)
                await self._rest(3.0)
            if self._chance.chance(0.3) or self._ends:
                await self._rest(6.0)
            ext = {"groupName": PASSING, "cleanOffset": "true"}
            while not one.is_gone and not self._ends:
                one.is_gone = None
                if await self._done_at_master(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext):
                    one.is_gone = True
                else:
                    await self._rest(1.0)
            await self._rest(6.0)

    async def _done_at_master(self, code: int, ext: dict[str, str], body: bytes = b"") -> bool:
        reply = await self.ask(self._master, code, ext, body)
        return reply is not None and reply.code == ResponseCode.SUCCESS

    async def make_topic(self, topic: str) -> bool:
        """Returns whether the master says that it is there."""
        ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES),
               "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
        return await self._done_at_master(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)

    async def _make_again(self) -> None:
        """One topic is made, used and deleted, over and over."""
        while not self._ends:
            one = Generation()
            number = len(self.generations)
            while not await self.make_topic(AGAIN):
                await self._rest(1.0)
                if self._ends:
                    return
            self.generations.append(one)
            for n in range(self._chance.below(6)):
                body = f"{AGAIN}-{number}-{n}"
                if await self._send(self._master, AGAIN, body) is not None:
                    one.sent.append(body)
                await self._rest(1.0)
            if self._chance.chance(0.5):
                await self._rest(8.0)
            if self._ends:
                return
            while not one.is_gone:
                one.is_gone = None
                if await self._done_at_master(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": AGAIN}):
                    one.is_gone = True
                elif self._ends:
                    return
                else:
                    await self._rest(1.0)
            await self._rest(4.0)
