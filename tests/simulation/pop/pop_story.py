"""One seed, one story of pop consumption: members of a group pop, acknowledge one by one or in batches, change
invisible times, leave messages lying, in any order or queue by queue, while their brokers die, hand over and stand on
disks that fail (broker_pair.py). pop_promises.py says what may not happen.

The brokers are a master and its slave, or one alone. Their check points stay in memory for long, or go to the revive
topic and through the timer; the files of the log are small, so that everything is written across their ends.

At the end, when nothing goes wrong any more, all that was sent has come, and nothing that was acknowledged comes again.
"""

import asyncio
from collections import Counter
from typing import ClassVar, Final

from maxq.client.results.pop_result import decode_pop_answer, handle_of
from maxq.codes import RequestCode, ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import MaxQError
from maxq.protocol.body.pop import BatchAck, encode_batch_acks
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
)
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.pop_extra_info import parse_extra_info, real_topic
from maxq.remoting.client import RemotingClient
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.dledger.dledger_servers import small_wheel
from tests.simulation.pop.pop_promises import Hold, OrderedPopPromises, PopPromises
from tests.simulation.servers.broker_pair import BROKER_NAME, BrokerPair

CLIENT: Final = "10.0.1.1"
TOPIC: Final = "Popped"
GROUP: Final = "Poppers"
QUEUES: Final = 2
MEMBERS: Final = 3
TIMEOUT_MS: Final = 4_000
INVISIBLE_MS: Final = (500, 2_000, 8_000, 30_000)
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
        self._promises = OrderedPopPromises() if self._in_order else PopPromises()
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
        self._pair: BrokerPair
        self._machine: SimMachine
        self._calm = False  # nothing goes wrong any more; nobody leaves anything lying
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
        self._pair = BrokerPair(
            world,
            rng,
            self.marks,
            self.history,
            self._settings,
            alone=self._alone,
            fails=self.FAILS,
            tables=("consumerOrderInfo.json",) if self._in_order else ("consumerOffset.json", "delayOffset.json"),
        )
        await self._pair.start()
        self._machine = SimMachine(world.loop, CLIENT, rng.fork("client"))
        self._machine.boot()
        sending = self._machine.spawn(self._send(rng.fork("sender")))
        members = [self._machine.spawn(self._live(rng.fork(f"member {n}"))) for n in range(MEMBERS)]
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(rng.between(1, 4)):
                await asyncio.sleep(rng.choice((0.3, 2.0, 6.0)) * rng.uniform(0.3, 1.5))
                await self._pair.trouble()
                self._raise_what_failed(members)
            await asyncio.sleep(rng.uniform(0, 2))
            sending.cancel()
            self._calm = True
            end = world.loop.time() + REST_S
            while self._promises.open and world.loop.time() < end:
                await asyncio.sleep(1)
                self._raise_what_failed(members)
            lost = sorted(self._promises.open)
            assert not lost, f"{len(lost)} of {len(self._promises.sent)} messages do not come: {lost[:5]}"
            await asyncio.sleep(INVISIBLE_MS[-1] / 1000 + 5)
        self._raise_what_failed(members)
        for member in members:
            member.cancel()
        await asyncio.sleep(0.1)
        self.marks["messages"] += len(self._promises.sent)
        self.marks["acknowledged in time"] += len(self._promises.done)
        self.marks["given again"] += self._promises.given.total() - len(self._promises.given)
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
            self._number += 1
            body = f"m{self._number}"
            header = SendMessageRequestHeader("PG", TOPIC, "TBW102", QUEUES, rng.below(QUEUES), 0, 1, 0, "")
            padding = " " * rng.choice((0, 50, 1_000))
            answer = await self._ask(client, RequestCode.SEND_MESSAGE_V2, header.encode_v2(), (body + padding).encode())
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self._promises.sent.add(body)
            await asyncio.sleep(rng.choice((0.01, 0.1, 0.5)) * rng.uniform(0, 1.5))

    # -- members of the group --

    async def _live(self, rng: SimRng) -> None:
        client = self._client()
        while True:
            holds = await self._pop(client, rng)
            if holds:
                await self._use(client, holds, rng)
            await asyncio.sleep(rng.choice((0.0, 0.05, 0.4)))

    async def _pop(self, client: RemotingClient, rng: SimRng) -> list[Hold]:
        invisible_ms = 8_000 if self._calm else rng.choice(INVISIBLE_MS)
        queue_id = rng.choice((-1, -1, *range(QUEUES)))
        poll_ms = rng.choice((0, 300, 1_500))
        header = PopMessageRequestHeader(
            GROUP, TOPIC, queue_id, rng.choice((1, 4, 32)), invisible_ms, poll_ms, self._now(), 0, "TAG", "*",
            self._in_order,
        )  # fmt: skip
        answer = await self._ask(client, RequestCode.POP_MESSAGE, header.encode(), timeout_ms=poll_ms + TIMEOUT_MS)
        result = None if answer is None else decode_pop_answer(answer, TOPIC, BROKER_NAME, order=self._in_order)
        if result is None:
            await asyncio.sleep(0.2)
            return []
        holds = [self._hold(message) for message in result.messages]
        self._promises.comes(holds)
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

    async def _use(self, client: RemotingClient, holds: list[Hold], rng: SimRng) -> None:
        if not self._calm:
            if rng.chance(0.1):
                return  # this member has died
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.3, 3.0)))
        if not self._calm and rng.chance(0.15):
            at = rng.below(len(holds))
            changed = await self._change(client, holds[at], rng)
            holds = [*holds[:at], *([] if changed is None else [changed]), *holds[at + 1 :]]
        if not self._calm:
            holds = [hold for hold in holds if rng.chance(0.92)]
        if rng.chance(0.5) and not self._in_order and holds:
            await self._ack(client, holds, rng)
            return
        for hold in holds:
            await self._ack(client, [hold], rng)

    async def _ack(self, client: RemotingClient, holds: list[Hold], rng: SimRng) -> None:
        """Messages of one pop. What is refused, or not answered, may be asked for again."""
        for hold in holds:
            self._promises.asks_ack(hold, self._now())
        for _ in range(rng.choice((1, 2, 3))):
            if len(holds) == 1 and rng.chance(0.7):
                answer = await self._ask(client, RequestCode.ACK_MESSAGE, _ack_of(holds[0]).encode())
            else:
                body = encode_batch_acks(BROKER_NAME, _batches(holds))
                answer = await self._ask(client, RequestCode.BATCH_ACK_MESSAGE, {}, body)
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                for hold in holds:
                    self._promises.acked(hold, self._now())
                return
            await asyncio.sleep(0.3)

    async def _change(self, client: RemotingClient, hold: Hold, rng: SimRng) -> Hold | None:
        """The message as it is held now; None: nobody knows whether it is."""
        invisible_ms = rng.choice((0, 300, 6_000))
        header = ChangeInvisibleTimeRequestHeader(
            GROUP, _topic_of(hold), hold.queue, hold.handle, hold.offset, invisible_ms, suspend=rng.chance(0.3)
        )
        self._promises.asks_change(hold, self._now(), invisible_ms)
        answer = await self._ask(client, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.encode())
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        told = ChangeInvisibleTimeResponseHeader.decode(answer.ext)
        handle = parse_extra_info(hold.handle)._replace(
            start_offset=hold.offset, pop_time=told.pop_time, invisible_time=told.invisible_time,
            revive_qid=told.revive_qid,
        )  # fmt: skip
        ends_ms = told.pop_time + told.invisible_time
        changed = Hold(hold.body, hold.queue, hold.offset, str(handle), told.pop_time, ends_ms, ends_ms)
        self.marks["changes of invisible time"] += 1
        return changed if self._promises.changed(hold, changed, self._now()) else None

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


def _topic_of(hold: Hold) -> str:
    return real_topic(TOPIC, GROUP, parse_extra_info(hold.handle).retry)


def _ack_of(hold: Hold) -> AckMessageRequestHeader:
    return AckMessageRequestHeader(GROUP, _topic_of(hold), hold.queue, hold.handle, hold.offset)


def _batches(holds: list[Hold]) -> list[BatchAck]:
    batches: dict[tuple[str, int, int, int], BatchAck] = {}
    for hold in holds:
        handle = parse_extra_info(hold.handle)
        key = (handle.retry, hold.queue, handle.start_offset, handle.pop_time)
        batch = batches.setdefault(key, BatchAck(
            TOPIC, GROUP, handle.retry, handle.start_offset, hold.queue, handle.revive_qid, handle.pop_time,
            handle.invisible_time, [],
        ))  # fmt: skip
        batch.bits.append(hold.offset - handle.start_offset)
    return list(batches.values())
