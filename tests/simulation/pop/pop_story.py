"""One seed, one story of pop consumption: members of a group pop, acknowledge one by one or in batches, change
invisible times, leave messages lying, in any order or queue by queue, while their brokers die, hand over and stand on
disks that fail (broker_pair.py). pop_promises.py says what may not happen.

The brokers are a master and its slave, or one alone. Their check points stay in memory for long, or go to the revive
topic and through the timer; the files of the log are small, so that everything is written across their ends.

In some stories invisible times are nothing, negative or for ever; answers to changes of these times are
lost, and members use the receipts that they have; a second group pops in any order, and may begin at the ends of the
queues; a group filters; a member pulls and commits beside those that pop; an administrator resets groups, deletes them
with their offsets, or deletes the topic, which is made again by the next message; the slave stands in for a master that
is away.

At the end, when nothing goes wrong any more, all that was sent has come, and nothing that was acknowledged comes again.
"""

import asyncio
from collections import Counter
from typing import ClassVar, Final

from maxq.broker.pop.pop_reader import INIT_MAX, INIT_MIN
from maxq.client.results.pop_result import decode_pop_answer, handle_of
from maxq.codes import RequestCode, ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import MaxQError
from maxq.protocol.body.pop import BatchAck, encode_batch_acks
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import (
    PULL_FLAG_SUBSCRIPTION,
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PullMessageRequestHeader,
)
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.message.message import MessageExt, decode_records
from maxq.protocol.message.pop_extra_info import parse_extra_info, real_topic
from maxq.remoting.client import RemotingClient
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.dledger.dledger_servers import small_wheel
from tests.simulation.pop.pop_promises import Hold, OrderedPopPromises, PopPromises, number_of
from tests.simulation.servers.broker_pair import BROKER_NAME, BrokerPair

CLIENT: Final = "10.0.1.1"
TOPIC: Final = "Popped"
GROUP: Final = "Poppers"
QUEUES: Final = 2
MEMBERS: Final = 3
TIMEOUT_MS: Final = 4_000
INVISIBLE_MS: Final = (500, 2_000, 8_000, 30_000)
NO_TIME_MS: Final = (0, -1, -60_000, 1)
FOR_EVER_MS: Final = (1 << 40, (1 << 62) - 1, (1 << 63) - 1)
TAGS: Final = ("a", "b", "c")
OTHERS: Final = "Others"
PATIENCE_S: Final = 1_200.0
REST_S: Final = 150.0


class PopStory:
    """Attributes:
    marks: how often each kind of thing happened.
    history: what happened, for whoever reads a failure.
    """

    FAILS: ClassVar[bool] = False  # disks fail, too

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []
        rng = self._rng = SimRng(seed).fork("pop")
        self._in_order = rng.chance(0.25)
        self._promises = {GROUP: OrderedPopPromises() if self._in_order else PopPromises()}
        self._alone = rng.chance(0.4)
        self._settings = {
            "flushDiskType": rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH")),
            "popCkStayBufferTime": str(rng.choice((200, 2_000, 10_000))),
            "popCkStayBufferTimeOut": str(rng.choice((300, 3_000))),
            "popCkMaxBufferSize": str(rng.choice((2, 200_000, 200_000))),
            "reviveInterval": str(rng.choice((100, 1_000))), "reviveQueueNum": str(rng.choice((1, 3))),
            "enableRetryTopicV2": rng.choice(("true", "false")),
            "useSeparateRetryQueue": rng.choice(("true", "false")),
            "timerPrecisionMs": rng.choice(("100", "1000")), "mappedFileSizeTimerLog": "5200",
            "timerWheelEnable": rng.choice(("true", "true", "true", "false")),
            "flushDelayOffsetInterval": "1000", "flushConsumerOffsetInterval": rng.choice(("700", "5000")),
            **({"brokerRole": "ASYNC_MASTER"} if self._alone else {}),
        }  # fmt: skip
        wild = rng.fork("wild")
        if wild.chance(0.3):
            self._promises[OTHERS] = PopPromises()
        times = wild.choice(((), (), NO_TIME_MS, FOR_EVER_MS, NO_TIME_MS + FOR_EVER_MS))
        if self._in_order:
            # A receipt for ever that a member did not hear of would hold the queue for ever; and receipts of two pops
            # of the same millisecond, which only one without any time allows, are the same to a broker.
            times = tuple(ms for ms in times if ms > 0 and ms not in FOR_EVER_MS)
        self._times = (*INVISIBLE_MS, *times)
        self._filters = dict.fromkeys(self._promises, "*")
        if wild.chance(0.2) and not self._in_order:
            self._filters[GROUP] = wild.choice(("a", "b || c"))
        self._pulls = wild.chance(0.15) and not self._in_order
        self._acts = wild.chance(0.25) and not self._alone
        self._pulls = self._pulls and not self._acts
        self._lost = rng.fork("no answers")
        # What is in the revive topic is named by the newest receipt alone: what is too much, or was open at an end.
        is_handed_over = self._settings["popCkMaxBufferSize"] == "2" or self._acts or self.FAILS
        self._loses_answers = not (is_handed_over or self._in_order) and self._lost.chance(0.5)  # to changes of time
        kinds: tuple[str, ...] = ("delete topic", "stop timer")
        if not self._in_order and not self._pulls:
            kinds = ("reset", "delete group", *kinds)
        self._orders = () if self._acts else wild.choice(((), kinds, (wild.choice(kinds),)))
        self._begins_late = not self._orders and OTHERS in self._promises and rng.fork("begin").chance(0.5)
        if self._begins_late:
            self._settings["initPopOffsetByCheckMsgInMem"] = "false"
        self._begun: set[int] = set()  # queues that the second group has popped, if it begins at their ends
        self._sending = asyncio.Lock()
        self._queue_of: dict[str, int] = {}
        self._pair: BrokerPair
        self._machine: SimMachine
        self._calm = False  # nothing goes wrong any more; nobody leaves anything lying
        self._pause_s = 0.0  # of members between two pops
        self._number = 0

    def run(self) -> None:
        """Tell it. AssertionError and whatever the code under test raises are failures."""
        with small_wheel():
            run_simulation(self._main, seed=self.seed, time_limit_s=7200, step_limit=20_000_000)

    async def _main(self, world: SimWorld) -> None:
        rng = self._rng
        world.network.default_link = LinkSettings(delay_ms=(0.1, 5), chunk_bytes=(1, 4000), whole=0.5, loss=0.002)
        self.history.append(f"{'in order' if self._in_order else 'in any order'}, alone: {self._alone}")
        self.history.append(f"{self._settings}")
        self.history.append(
            f"times {self._times}, filters {self._filters}, {self._orders}, pulls: {self._pulls}, acts: {self._acts}, "
            f"loses answers: {self._loses_answers}"
        )
        self._pair = BrokerPair(
            world,
            rng,
            self.marks,
            self.history,
            self._settings,
            alone=self._alone,
            fails=self.FAILS,
            acts=self._acts,
            tables=("consumerOrderInfo.json",) if self._in_order else ("consumerOffset.json", "delayOffset.json"),
        )
        await self._pair.start()
        self._machine = SimMachine(world.loop, CLIENT, rng.fork("client"))
        self._machine.boot()
        sending = self._machine.spawn(self._send(rng.fork("sender")))
        members = [
            self._machine.spawn(self._live(rng.fork(f"member {n}" if group == GROUP else f"{group} {n}"), group))
            for group in self._promises
            for n in range(MEMBERS)
        ]
        if self._pulls:
            members.append(self._machine.spawn(self._pull(rng.fork("puller"))))
        admin = self._machine.spawn(self._administer(rng.fork("administrator")))
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(rng.between(1, 4)):
                await asyncio.sleep(rng.choice((0.3, 2.0, 6.0)) * rng.uniform(0.3, 1.5))
                await self._pair.trouble()
                self._raise_what_failed(members)
            await asyncio.sleep(rng.uniform(0, 2))
            self._calm = True
            await admin
            sending.cancel()
            end = world.loop.time() + REST_S
            while any(of_group.open for of_group in self._promises.values()) and world.loop.time() < end:
                await asyncio.sleep(1)
                self._raise_what_failed(members)
            for group, of_group in self._promises.items():
                lost = sorted(of_group.open)
                assert not lost, f"{len(lost)} of {len(of_group.sent)} messages do not come to {group}: {lost[:5]}"
            self._pause_s = 1.5
            await asyncio.sleep(INVISIBLE_MS[-1] / 1000 + 5)
        self._raise_what_failed(members)
        for member in members:
            member.cancel()
        await asyncio.sleep(0.1)
        for of_group in self._promises.values():
            self.marks["messages"] += len(of_group.sent)
            self.marks["acknowledged in time"] += len(of_group.done)
            self.marks["acknowledged by an earlier receipt"] += len(of_group.by_earlier)
            self.marks["given again"] += of_group.given.total() - len(of_group.given)
        await self._pair.stop()

    @staticmethod
    def _raise_what_failed(members: "list[asyncio.Task[None]]") -> None:
        for member in members:
            if member.done():
                member.result()

    # -- the sender --

    async def _send(self, rng: SimRng) -> None:
        """No message is sent twice: what comes again was given again."""
        client = self._client()
        while True:
            async with self._sending:
                self._number += 1
                body, tag = f"m{self._number}", TAGS[self._number % len(TAGS)]
                properties = f"TAGS\x01{tag}\x02"
                queue_id = self._queue_of[body] = rng.below(QUEUES)
                header = SendMessageRequestHeader("PG", TOPIC, "TBW102", QUEUES, queue_id, 0, 1, 0, properties)
                text = (body + " " * rng.choice((0, 50, 1_000))).encode()
                has_begun = not self._begins_late or queue_id in self._begun
                answer = await self._ask(client, RequestCode.SEND_MESSAGE_V2, header.encode_v2(), text)
                if answer is not None and answer.code == ResponseCode.SUCCESS:
                    for group, of_group in self._promises.items():
                        if self._wants(group, body) and (group == GROUP or has_begun):
                            of_group.sent.add(body)
            await asyncio.sleep(rng.choice((0.01, 0.1, 0.5)) * rng.uniform(0, 1.5))

    def _wants(self, group: str, body: str) -> bool:
        return self._filters[group] == "*" or TAGS[number_of(body) % len(TAGS)] in self._filters[group].split(" || ")

    # -- the administrator --

    async def _administer(self, rng: SimRng) -> None:
        """Until nothing more is to go wrong. An order is given again until the broker says that it is done."""
        client = self._client()
        while self._orders and not self._calm:
            await asyncio.sleep(rng.choice((0.5, 2.0, 6.0)) * rng.uniform(0.3, 1.5))
            order, group = rng.choice(self._orders), rng.choice([*self._promises])
            if order == "delete topic":
                async with self._sending:
                    await self._order(client, order, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
                    for of_group in self._promises.values():
                        of_group.deleted(self._number, self._now())
                continue
            if order == "stop timer":
                for stops in ("true", "false"):
                    text = f"timerStopEnqueue={stops}".encode()
                    await self._order(client, order, RequestCode.UPDATE_BROKER_CONFIG, {}, text)
                    await asyncio.sleep(rng.choice((0.5, 6.0, 12.0)))
                continue
            of_group = self._promises[group]
            of_group.may_come_again(1 << 62)  # what is sent before the answer comes
            before, queues = set(of_group.sent), range(QUEUES)
            if order == "reset":
                queue_id = rng.below(QUEUES)
                queues = range(queue_id, queue_id + 1)
                ext = {"topic": TOPIC, "group": group, "timestamp": "-1", "isForce": "true",
                       "queueId": str(queue_id), "offset": "0"}  # fmt: skip
                asked_ms = await self._order(client, order, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
            else:
                ext = {"groupName": group, "cleanOffset": "true"}
                asked_ms = await self._order(client, order, RequestCode.DELETE_SUBSCRIPTIONGROUP, ext)
            of_group.may_come_again(self._number)
            of_group.must_come_again({body for body in before if self._queue_of[body] in queues}, asked_ms)

    async def _order(
        self, client: RemotingClient, what: str, code: RequestCode, ext: dict[str, str], body: bytes = b""
    ) -> int:
        """Returns when the broker was asked that has said that it is done."""
        for _ in range(200):
            asked_ms = self._now()
            answer = await self._ask(client, code, ext, body)
            if answer is not None and answer.code in (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST):
                self.marks[what] += 1
                at_s = asyncio.get_running_loop().time() - 1000
                self.history.append(f"{at_s:9.3f} {what} {ext}{body.decode()}, up to m{self._number}")
                return asked_ms
            await asyncio.sleep(0.3)
        raise AssertionError(f"{what} is not done: {answer}")

    # -- members of the groups --

    async def _pull(self, rng: SimRng) -> None:
        """A member that pulls and commits; what it got needs not come."""
        client, of_group = self._client(), self._promises[GROUP]
        while True:
            await asyncio.sleep(rng.choice((0.3, 2.0)))
            queue = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(rng.below(QUEUES))}
            told = await self._ask(client, RequestCode.QUERY_CONSUMER_OFFSET, queue)
            if told is None or told.code != ResponseCode.SUCCESS:
                continue
            header = PullMessageRequestHeader(
                GROUP, TOPIC, int(queue["queueId"]), int(told.ext["offset"]), 4, PULL_FLAG_SUBSCRIPTION, 0, 0, 0,
                subscription=self._filters[GROUP], expression_type="TAG",
            )  # fmt: skip
            found = await self._ask(client, RequestCode.PULL_MESSAGE, header.encode())
            if found is None or found.code != ResponseCode.SUCCESS:
                continue
            bodies = [message.body.decode().rstrip() for message in decode_records(found.body_bytes)]
            of_group.given.update(bodies)
            of_group.unsure.update(bodies)
            self.marks["pulled"] += len(bodies)
            commit = {**queue, "commitOffset": found.ext["nextBeginOffset"]}
            await self._ask(client, RequestCode.UPDATE_CONSUMER_OFFSET, commit)

    async def _live(self, rng: SimRng, group: str) -> None:
        client = self._client()
        while True:
            holds = await self._pop(client, rng, group)
            if self._begins_late and group == OTHERS and not holds:  # it has begun, and others send
                await asyncio.sleep(rng.choice((0.0, 1.0, 4.0)))
            if holds:
                await self._use(client, holds, rng, group)
            await asyncio.sleep(rng.choice((0.0, 0.05, 0.4)) + self._pause_s)

    async def _pop(self, client: RemotingClient, rng: SimRng, group: str) -> list[Hold]:
        invisible_ms = 8_000 if self._calm else rng.choice(self._times)
        order = self._in_order and group == GROUP
        queue_id = rng.choice((-1, -1, *range(QUEUES)))
        poll_ms = rng.choice((0, 300, 1_500))
        header = PopMessageRequestHeader(
            group, TOPIC, queue_id, rng.choice((1, 4, 32)), invisible_ms, poll_ms, self._now(),
            INIT_MAX if self._begins_late and group == OTHERS else INIT_MIN, "TAG", self._filters[group], order,
        )  # fmt: skip
        answer = await self._ask(client, RequestCode.POP_MESSAGE, header.encode(), timeout_ms=poll_ms + TIMEOUT_MS)
        result = None if answer is None else decode_pop_answer(answer, TOPIC, BROKER_NAME, order=order)
        if result is None:
            if invisible_ms > INVISIBLE_MS[-1]:  # nobody has the receipts
                self._promises[group].need_not_come(self._number)
            await asyncio.sleep(0.2)
            return []
        if group == OTHERS and queue_id >= 0:
            self._begun.add(queue_id)
        holds = [self._hold(message) for message in result.messages]
        for hold in holds:
            assert self._wants(group, hold.body), f"{self._filters[group]} does not select {hold}"
        self._promises[group].comes(holds)
        self.marks["popped"] += len(holds)
        return holds

    @staticmethod
    def _hold(message: MessageExt) -> Hold:
        handle = handle_of(message)
        assert handle.queue_id is not None and handle.queue_offset is not None
        ends_ms = handle.pop_time + handle.invisible_time
        return Hold(
            message.body.decode().rstrip(), handle.queue_id, handle.queue_offset, str(handle), handle.pop_time,
            ends_ms, ends_ms,
        )  # fmt: skip

    async def _use(self, client: RemotingClient, holds: list[Hold], rng: SimRng, group: str) -> None:
        endless = holds[0].ends_ms > self._now() + INVISIBLE_MS[-1]
        if not self._calm:
            if rng.chance(0.1) and not endless:
                return  # this member has died
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.3, 3.0)))
        if not self._calm and (rng.chance(0.15) or (self._loses_answers and self._lost.chance(0.25))):
            at = rng.below(len(holds))
            changed = await self._change(client, holds[at], rng, group)
            if holds[at].is_in_doubt and self._loses_answers:
                await asyncio.sleep(self._lost.choice((0.0, 0.5, 3.0)))
                await self._ack(client, [holds[at]], self._lost, group)
            holds = [*holds[:at], *([] if changed is None else [changed]), *holds[at + 1 :]]
        if not self._calm:
            holds = [hold for hold in holds if rng.chance(0.92) or hold.ends_ms > self._now() + INVISIBLE_MS[-1]]
        if rng.chance(0.5) and not isinstance(self._promises[group], OrderedPopPromises) and holds:
            await self._ack(client, holds, rng, group)
            return
        for hold in holds:
            await self._ack(client, [hold], rng, group)

    async def _ack(self, client: RemotingClient, holds: list[Hold], rng: SimRng, group: str) -> None:
        """Messages of one pop. What is refused, or not answered, may be asked for again; a message that does not come
        by itself is asked for until the broker says so."""
        for hold in holds:
            self._promises[group].asks_ack(hold, self._now())
        endless = max(hold.ends_ms for hold in holds) > self._now() + INVISIBLE_MS[-1]
        for _ in range(200 if endless else rng.choice((1, 2, 3))):
            if len(holds) == 1 and rng.chance(0.7):
                answer = await self._ask(client, RequestCode.ACK_MESSAGE, _ack_of(holds[0], group).encode())
            else:
                body = encode_batch_acks(BROKER_NAME, _batches(holds, group))
                answer = await self._ask(client, RequestCode.BATCH_ACK_MESSAGE, {}, body)
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                for hold in holds:
                    self._promises[group].acked(hold, self._now())
                return
            await asyncio.sleep(0.3)

    async def _change(self, client: RemotingClient, hold: Hold, rng: SimRng, group: str) -> Hold | None:
        """The message as it is held now; None: nobody knows whether it is."""
        invisible_ms = rng.choice((0, 300, 6_000, *self._times[len(INVISIBLE_MS) :]))
        is_lost = self._loses_answers and self._lost.chance(0.5)
        if is_lost and self._lost.chance(0.7):
            invisible_ms = max(invisible_ms, 6_000)
        header = ChangeInvisibleTimeRequestHeader(
            group, _topic_of(hold, group), hold.queue, hold.handle, hold.offset, invisible_ms, suspend=rng.chance(0.3)
        )
        self._promises[group].asks_change(hold, self._now(), invisible_ms)
        answer = await self._ask(client, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.encode())
        answer = None if is_lost else answer
        if answer is not None and answer.code == ResponseCode.MESSAGE_ILLEGAL:
            self.marks["changes of invisible time that came too late"] += 1
            self._promises[group].not_changed(hold)
            return None
        if answer is None or answer.code != ResponseCode.SUCCESS:
            if max(invisible_ms, hold.ends_ms - hold.start_ms) > INVISIBLE_MS[-1]:
                self._promises[group].sent.discard(hold.body)
            return None
        told = ChangeInvisibleTimeResponseHeader.decode(answer.ext)
        handle = parse_extra_info(hold.handle)._replace(
            start_offset=hold.offset, pop_time=told.pop_time, invisible_time=told.invisible_time,
            revive_qid=told.revive_qid,
        )  # fmt: skip
        ends_ms = told.pop_time + told.invisible_time
        changed = Hold(hold.body, hold.queue, hold.offset, str(handle), told.pop_time, ends_ms, ends_ms)
        self.marks["changes of invisible time"] += 1
        self._promises[group].changed(hold, changed, self._now())
        return changed

    # -- requests --

    def _now(self) -> int:
        return self._machine.clock.wall_ms()

    def _client(self) -> RemotingClient:
        return RemotingClient(NettyClientConfig(), clock=self._machine.clock, rng=self._rng.fork("client"))

    async def _ask(
        self, client: RemotingClient, code: int, ext: dict[str, str], body: bytes = b"", timeout_ms: int = TIMEOUT_MS
    ) -> RemotingCommand | None:
        """Whoever is master now. None: no answer."""
        try:
            answer = await client.invoke(self._pair.address, RemotingCommand(code, ext, body), timeout_ms)
        except MaxQError:
            self.marks["no answer"] += 1
            return None
        if answer.code == ResponseCode.SUCCESS:
            self._pair.heard(code)
        else:
            self.marks[f"answer {ResponseCode(answer.code).name} to {RequestCode(code).name}"] += 1
        return answer


class FaultyPopStory(PopStory):
    """The same on disks of which every call can fail."""

    FAILS = True


def _topic_of(hold: Hold, group: str) -> str:
    return real_topic(TOPIC, group, parse_extra_info(hold.handle).retry)


def _ack_of(hold: Hold, group: str) -> AckMessageRequestHeader:
    return AckMessageRequestHeader(group, _topic_of(hold, group), hold.queue, hold.handle, hold.offset)


def _batches(holds: list[Hold], group: str) -> list[BatchAck]:
    batches: dict[tuple[str, int, int, int], BatchAck] = {}
    for hold in holds:
        handle = parse_extra_info(hold.handle)
        key = (handle.retry, hold.queue, handle.start_offset, handle.pop_time)
        batch = batches.setdefault(key, BatchAck(
            TOPIC, group, handle.retry, handle.start_offset, hold.queue, handle.revive_qid, handle.pop_time,
            handle.invisible_time, [],
        ))  # fmt: skip
        batch.bits.append(hold.offset - handle.start_offset)
    return list(batches.values())
