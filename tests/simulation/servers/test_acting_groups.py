"""Groups in which slaves stand in for their master, with several slaves or name servers: no two brokers serve at once,
and no consumer passes over a message that was acknowledged."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

import pytest

from maxq.broker.controller import BrokerController
from maxq.client.results.pop_result import decode_pop_answer, handle_of
from maxq.codes import RequestCode, ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import MaxQError
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import AckMessageRequestHeader, PopMessageRequestHeader
from maxq.protocol.message.message import MessageExt
from maxq.remoting.client import RemotingClient
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.short_form import seeds
from tests.simulation.dledger.dledger_servers import small_wheel
from tests.simulation.servers.sim_server import CLIENT, SimServer

pytestmark = pytest.mark.usefixtures("quiet")

BROKERS: Final = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
NAME_SERVERS: Final = ("10.0.0.9", "10.0.0.8")
INVISIBLE_MS: Final = 20_000


class Server(SimServer):
    """A broker by its id, or a name server (-1, -2)."""

    def __init__(self, world: SimWorld, address: str, number: int, name_servers: Sequence[str], **more: str) -> None:
        super().__init__(world, address, SimRng(world.rng.between(0, 1 << 30)).fork(address), number)
        self._name_servers = name_servers
        self._more = more

    @property
    def name(self) -> str:
        return str(self.number)

    @property
    def serves(self) -> bool:
        """For its group, as far as it knows and would say."""
        running = self.running
        if not self.machine.is_up or not isinstance(running, BrokerController):
            return False
        return running.failover.services.is_running and running.authority.doubt() is None

    def broker_properties(self) -> dict[str, str]:
        return {
            "brokerId": str(self.number), "brokerIP2": self.machine.address, "haListenPort": "10912",
            "brokerRole": "SLAVE" if self.number else "ASYNC_MASTER",
            "namesrvAddr": ";".join(f"{address}:9876" for address in self._name_servers),
            "enableSlaveActingMaster": "true", "brokerNotActiveTimeoutMillis": "3000",
            "brokerHeartbeatInterval": "500", "syncBrokerMemberGroupPeriod": "500", **self._more,
        }  # fmt: skip

    def namesrv_properties(self) -> dict[str, str]:
        return {"supportActingMaster": "true", "scanNotActiveBrokerInterval": "500"}


class Group:
    """Attributes:
    together: which brokers served at once, and when.
    """

    def __init__(self, world: SimWorld, *, name_servers: int = 1, brokers: int = 3, **more: str) -> None:
        world.network.default_link = LinkSettings(delay_ms=(0.1, 5))
        addresses = NAME_SERVERS[:name_servers]
        self.world = world
        self.name_servers = [Server(world, address, -1 - n, addresses) for n, address in enumerate(addresses)]
        self.brokers = [
            Server(world, address, n, addresses, totalReplicas=str(brokers), **more)
            for n, address in enumerate(BROKERS[:brokers])
        ]
        self.together: list[tuple[float, list[int]]] = []

    async def start(self) -> None:
        for server in (*self.name_servers, *self.brokers):
            await server.start()
        self._watching = asyncio.ensure_future(self._watch())
        await asyncio.sleep(5)

    async def _watch(self) -> None:
        while True:
            if len(self.serving) > 1:
                self.together.append((self.world.loop.time(), self.serving))
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._watching.cancel()
        for server in reversed((*self.name_servers, *self.brokers)):
            await server.stop()

    @property
    def serving(self) -> list[int]:
        return [broker.number for broker in self.brokers if broker.serves]

    async def until_serves(self, number: int) -> None:
        async with asyncio.timeout(60):
            while self.serving != [number]:  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(0.1)


def tell(seed: int, story: Callable[[SimWorld], Awaitable[None]]) -> None:
    with small_wheel():
        run_simulation(story, seed=seed, time_limit_s=3600, step_limit=10_000_000)


@pytest.mark.parametrize("seed", seeds([0], range(2)))
def test_a_slave_that_acts_and_that_its_name_server_loses_is_not_replaced(seed: int) -> None:
    async def story(world: SimWorld) -> None:
        group = Group(world)
        await group.start()
        group.brokers[0].machine.kill()
        await group.until_serves(1)
        for _ in range(20):
            world.network.reset(BROKERS[1])
            await asyncio.sleep(world.rng.uniform(0.3, 1.2))
        await group.until_serves(1)
        assert not group.together
        group.brokers[1].machine.kill()
        await group.until_serves(2)
        await group.stop()

    tell(seed, story)


@pytest.mark.parametrize("cut", NAME_SERVERS)
@pytest.mark.parametrize("seed", seeds([0], range(2)))
def test_a_master_that_one_name_server_of_two_does_not_hear_is_not_replaced(seed: int, cut: str) -> None:
    async def story(world: SimWorld) -> None:
        group = Group(world, name_servers=2)
        await group.start()
        world.network.partition(BROKERS[0], cut)
        await asyncio.sleep(40)
        assert (group.serving, group.together) == ([0], [])
        group.brokers[0].machine.kill()
        await group.until_serves(1)
        await group.brokers[0].start()
        await group.until_serves(0)
        await asyncio.sleep(40)
        assert (group.serving, group.together) == ([0], [])
        await group.stop()

    tell(seed, story)


@pytest.mark.parametrize("hears", [True, False])
@pytest.mark.parametrize("seed", seeds([0], range(3)))
def test_a_master_that_no_name_server_hears_ends_to_serve_before_a_slave_begins(seed: int, hears: bool) -> None:
    """Its slaves hear it, and ask it to stand back, or do not."""

    async def story(world: SimWorld) -> None:
        group = Group(world)
        await group.start()
        world.network.partition(BROKERS[0], NAME_SERVERS[0])
        for slave in BROKERS[1:] if not hears else ():
            world.network.partition(BROKERS[0], slave)
        await group.until_serves(1)
        await asyncio.sleep(40)
        assert (group.serving, group.together) == ([1], [])
        world.network.heal()
        await group.until_serves(0)
        await asyncio.sleep(40)
        assert (group.serving, group.together) == ([0], [])
        await group.stop()

    tell(seed, story)


@pytest.mark.parametrize("seed", seeds([0], range(3)))
def test_a_slave_that_acts_and_is_cut_off_ends_to_serve_before_its_master_or_another_slave_begins(seed: int) -> None:
    async def story(world: SimWorld) -> None:
        group = Group(world)
        await group.start()
        group.brokers[0].machine.kill()
        await group.until_serves(1)
        for other in (NAME_SERVERS[0], BROKERS[0], BROKERS[2]):
            world.network.partition(BROKERS[1], other)
        await group.until_serves(2)
        await group.brokers[0].start()
        await group.until_serves(0)
        world.network.heal()
        await asyncio.sleep(40)
        assert (group.serving, group.together) == ([0], [])
        await group.stop()

    tell(seed, story)


@pytest.mark.parametrize("seed", seeds([0], range(3)))
def test_where_no_name_server_runs_a_master_that_comes_back_serves_when_it_has_asked_its_slaves(seed: int) -> None:
    async def story(world: SimWorld) -> None:
        group = Group(world)
        await group.start()
        group.brokers[0].machine.kill()
        await group.until_serves(1)
        group.name_servers[0].machine.kill()
        await asyncio.sleep(10)
        assert group.serving == [1]
        starting = asyncio.ensure_future(group.brokers[0].start())
        await group.until_serves(0)
        await starting
        await asyncio.sleep(20)
        assert (group.serving, group.together) == ([0], [])
        await group.stop()

    tell(seed, story)


@pytest.mark.parametrize("seed", seeds([0], range(3)))
def test_where_no_name_server_runs_or_answers_the_master_goes_on_while_its_slaves_ask_it(seed: int) -> None:
    async def story(world: SimWorld) -> None:
        group = Group(world)
        await group.start()
        group.name_servers[0].machine.power_off()
        served = 0
        for _ in range(100):
            await asyncio.sleep(0.4)
            served += group.serving == [0]
        assert served == 100
        group.name_servers[0].machine.kill()
        await group.stop()

    tell(seed, story)


def test_a_slave_that_was_started_without_its_master_hears_of_the_return_from_the_master_itself() -> None:
    """No name server tells it; nor has it known where its master is, which reaches it late."""

    async def story(world: SimWorld) -> None:
        group = Group(world, brokers=2)
        await group.start()
        for broker in group.brokers:
            broker.machine.kill()
        await group.brokers[1].start()
        await group.until_serves(1)
        for other in (NAME_SERVERS[0], BROKERS[0]):
            world.network.partition(BROKERS[1], other)
        starting = asyncio.ensure_future(group.brokers[0].start())
        await asyncio.sleep(12)  # it tells its slaves where to copy from, and waits for none longer than 10 s
        world.network.heal(BROKERS[1], BROKERS[0])
        await starting
        await group.until_serves(0)
        await asyncio.sleep(40)
        assert (group.serving, group.together) == ([0], [])
        await group.stop()

    tell(1, story)


def groups_of(server: Server) -> Collection[str]:
    """Consumer groups that it knows."""
    assert isinstance(server.running, BrokerController)
    return server.running.groups.subscription_group_table.keys()


class Client:
    """Asks the brokers of a group, by id, about queue 0 of a topic."""

    QUEUE: Final = {"consumerGroup": "G", "topic": "T", "queueId": "0"}

    def __init__(self, machine: SimMachine) -> None:
        self._client = RemotingClient(NettyClientConfig(), clock=machine.clock, rng=SimRng(1))
        self._sent = 0

    async def ask(self, broker: int, code: int, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
        return await self._client.invoke(f"{BROKERS[broker]}:10911", RemotingCommand(code, ext, body), 3000)

    async def send(self, broker: int) -> int | None:
        """Returns the queue offset of a message that was acknowledged. Bodies are numbers."""
        ext = {
            "producerGroup": "P", "topic": "T", "queueId": "0", "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
            "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "",
        }  # fmt: skip
        self._sent += 1
        try:
            answer = await self.ask(broker, RequestCode.SEND_MESSAGE, ext, b"%d" % self._sent)
        except MaxQError:
            return None
        return int(answer.ext["queueOffset"]) if answer.code == ResponseCode.SUCCESS else None

    async def make_group(self, broker: int) -> None:
        body = SubscriptionGroupConfig("G").encode()
        answer = await self.ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def commit(self, broker: int, offset: int) -> None:
        ext = {**self.QUEUE, "commitOffset": str(offset)}
        answer = await self.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def reset(self, broker: int, offset: int) -> None:
        """Order the group to go back to an offset with its next pull."""
        ext = {"topic": "T", "group": "G", "timestamp": "0", "offset": str(offset), "queueId": "0", "isForce": "true"}
        answer = await self.ask(broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def pull(self, broker: int, offset: int) -> RemotingCommand:
        ext = {
            **self.QUEUE, "queueOffset": str(offset), "maxMsgNums": "8", "sysFlag": "4", "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        return await self.ask(broker, RequestCode.PULL_MESSAGE, ext)

    async def until_told_of_reset(self, broker: int, offset: int) -> None:
        async with asyncio.timeout(60):
            while True:
                with suppress(MaxQError):
                    if (await self.pull(broker, offset)).code == ResponseCode.PULL_OFFSET_MOVED:
                        return
                await asyncio.sleep(0.01)

    async def committed(self, broker: int) -> int:
        answer = await self.ask(broker, RequestCode.QUERY_CONSUMER_OFFSET, self.QUEUE)
        return int(answer.ext["offset"])

    async def pop(self, broker: int) -> list[MessageExt]:
        header = PopMessageRequestHeader("Popping", "T", 0, 8, INVISIBLE_MS, 0, 0, 0)
        result = decode_pop_answer(
            await self.ask(broker, RequestCode.POP_MESSAGE, header.encode()), "T", "broker-a", order=False
        )
        return [] if result is None else result.messages

    async def ack(self, broker: int, message: MessageExt) -> None:
        handle = handle_of(message)
        header = AckMessageRequestHeader("Popping", "T", 0, str(handle), message.queue_offset)
        answer = await self.ask(broker, RequestCode.ACK_MESSAGE, header.encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def close(self) -> None:
        await self._client.close()


def bodies(messages: Sequence[MessageExt]) -> list[bytes]:
    """Sorted."""
    return sorted(message.body for message in messages)


def play(
    act: Callable[[SimWorld, Group, Client], Coroutine[Any, Any, None]], *, seed: int = 1, **settings: Any
) -> None:
    """With a client, on a machine of its own."""

    async def story(world: SimWorld) -> None:
        group = Group(world, **settings)
        await group.start()
        machine = SimMachine(world.loop, CLIENT, SimRng(seed).fork("client"))
        machine.boot()
        client = await machine.call(lambda: _made(machine))
        await machine.call(lambda: act(world, group, client))
        await machine.call(client.close)
        await group.stop()

    async def _made(machine: SimMachine) -> Client:
        return Client(machine)

    tell(seed, story)


def test_what_was_acknowledged_at_a_slave_does_not_come_again_when_its_time_is_over_before_the_master_is_back() -> None:
    """The master has handed check points over as it ended; they are due by the time that it is told of the acks."""

    async def act(world: SimWorld, group: Group, client: Client) -> None:
        messages = []
        for _ in range(12):
            assert await client.send(0) is not None
            messages += await client.pop(0)
            await asyncio.sleep(0.5)  # its slave hears of the topic; they are not due at the same moment
        world.network.partition(*BROKERS[:2])  # what it writes as it ends is not at its slave
        await group.brokers[0].stop()
        group.brokers[0].machine.kill()
        await group.until_serves(1)
        world.network.heal()
        for message in messages:
            await client.ack(1, message)
        await asyncio.sleep(INVISIBLE_MS / 1000 + 5)
        group.brokers[0].slowness = 30  # its timer takes a while until it delivers
        await group.brokers[0].start()
        await group.until_serves(0)
        for _ in range(20):
            assert await client.pop(0) == []
            await asyncio.sleep(1)

    play(act, brokers=2, autoCreateSubscriptionGroup="true", reviveInterval="500", timerPrecisionMs="500")


def test_a_slave_that_comes_back_in_the_place_of_another_knows_what_was_committed_and_acknowledged_there() -> None:
    async def act(world: SimWorld, group: Group, client: Client) -> None:
        master, one, _ = group.brokers
        await client.make_group(0)
        for _ in range(8):
            assert await client.send(0) is not None
        await asyncio.sleep(5)
        for broker in (one, master):
            broker.machine.kill()
        await group.until_serves(2)
        await client.commit(2, 7)
        messages = await client.pop(2)
        for message in messages[:4]:
            await client.ack(2, message)
        await one.start()
        await group.until_serves(1)
        assert await client.committed(1) == 7
        assert await client.pop(1) == []
        for message in messages[4:6]:
            await client.ack(1, message)
        await master.start()
        await group.until_serves(0)
        assert await client.committed(0) == 7
        await asyncio.sleep(INVISIBLE_MS / 1000 + 5)
        assert bodies(await client.pop(0)) == bodies(messages[6:])
        assert not group.together

    play(act, autoCreateSubscriptionGroup="true", reviveInterval="500")


def test_a_slave_that_acts_in_the_place_of_one_that_died_knows_what_was_committed_and_acknowledged_there() -> None:
    async def act(world: SimWorld, group: Group, client: Client) -> None:
        master, one, _ = group.brokers
        await client.make_group(0)
        for _ in range(8):
            assert await client.send(0) is not None
        await asyncio.sleep(5)
        master.machine.kill()
        await group.until_serves(1)
        await client.commit(1, 7)
        messages = await client.pop(1)
        for message in messages[:4]:
            await client.ack(1, message)
        await asyncio.sleep(5)
        one.machine.kill()
        await group.until_serves(2)
        assert await client.committed(2) == 7
        for message in messages[4:6]:
            await client.ack(2, message)
        await master.start()
        await group.until_serves(0)
        assert await client.committed(0) == 7
        await asyncio.sleep(INVISIBLE_MS / 1000 + 5)
        assert bodies(await client.pop(0)) == bodies(messages[6:])
        assert not group.together

    play(act, autoCreateSubscriptionGroup="true", reviveInterval="500")


def test_an_acting_slave_that_is_started_anew_knows_what_was_committed_and_acknowledged_before() -> None:
    async def act(world: SimWorld, group: Group, client: Client) -> None:
        master, one, _ = group.brokers
        await client.make_group(0)
        for _ in range(8):
            assert await client.send(0) is not None
        await asyncio.sleep(5)
        master.machine.kill()
        await group.until_serves(1)
        await client.commit(1, 7)
        messages = await client.pop(1)
        for message in messages[:4]:
            await client.ack(1, message)
        await asyncio.sleep(5)
        one.machine.kill()
        await one.start()
        await group.until_serves(1)
        assert await client.committed(1) == 7
        assert await client.pop(1) == [], "they are acknowledged, or held"
        for message in messages[4:6]:
            await client.ack(1, message)
        await master.start()
        await group.until_serves(0)
        await asyncio.sleep(INVISIBLE_MS / 1000 + 5)
        assert bodies(await client.pop(0)) == bodies(messages[6:])

    play(act, autoCreateSubscriptionGroup="true", reviveInterval="500")


def test_what_an_acting_slave_kept_comes_back_by_one_that_has_copied_it() -> None:
    """The master comes back before the other slave has begun to act."""

    async def act(world: SimWorld, group: Group, client: Client) -> None:
        master, one, _ = group.brokers
        await client.make_group(0)
        for _ in range(8):
            assert await client.send(0) is not None
        await asyncio.sleep(5)
        master.machine.kill()
        await group.until_serves(1)
        await client.commit(1, 7)
        await asyncio.sleep(5)
        one.machine.kill()
        await master.start()
        await group.until_serves(0)
        assert await client.committed(0) == 7

    play(act)


def test_a_slave_that_acts_and_reaches_no_name_server_leaves_the_group_to_the_next_one() -> None:
    """Clients do not find it. Who stands in for it asks what it kept, and it takes that back when it is found again."""

    async def act(world: SimWorld, group: Group, client: Client) -> None:
        await client.make_group(0)
        for _ in range(8):
            assert await client.send(0) is not None
        await asyncio.sleep(5)
        group.brokers[0].machine.kill()
        await group.until_serves(1)
        world.network.partition(BROKERS[1], NAME_SERVERS[0])
        await client.commit(1, 5)
        messages = await client.pop(1)
        await client.ack(1, messages[0])
        await group.until_serves(2)
        assert await client.committed(2) == 5
        assert await client.pop(2) == []
        await client.commit(2, 7)
        await client.ack(2, messages[1])
        await asyncio.sleep(20)
        assert group.serving == [2]
        world.network.heal(BROKERS[1], NAME_SERVERS[0])
        await group.until_serves(1)
        assert await client.committed(1) == 7
        await group.brokers[0].start()
        await group.until_serves(0)
        await asyncio.sleep(INVISIBLE_MS / 1000 + 5)
        assert bodies(await client.pop(0)) == bodies(messages[2:])
        assert not group.together

    play(act, autoCreateSubscriptionGroup="true", reviveInterval="500")


def test_a_slave_that_stood_still_goes_on_with_what_was_done_in_its_place() -> None:
    """It registers anew as it wakes, so that name servers never tell it that another one acted."""

    async def act(world: SimWorld, group: Group, client: Client) -> None:
        master, one, _ = group.brokers
        await client.make_group(0)
        for _ in range(8):
            assert await client.send(0) is not None
        await asyncio.sleep(5)
        master.machine.kill()
        await group.until_serves(1)
        pause = asyncio.ensure_future(one.machine.pause(35))
        await group.until_serves(2)
        await client.commit(2, 7)
        messages = await client.pop(2)
        for message in messages[:4]:
            await client.ack(2, message)
        await pause
        await group.until_serves(1)
        assert await client.committed(1) == 7
        assert await client.pop(1) == []
        assert not group.together

    play(act, autoCreateSubscriptionGroup="true")


def test_what_a_group_that_began_at_a_slave_did_not_acknowledge_comes_again_at_the_master() -> None:
    """The master has not heard of the group, and none of its members comes back for a while."""

    async def act(world: SimWorld, group: Group, client: Client) -> None:
        for _ in range(3):
            assert await client.send(0) is not None
        await asyncio.sleep(5)
        group.brokers[0].machine.kill()
        await group.until_serves(1)
        messages = await client.pop(1)
        await client.ack(1, messages[0])
        await group.brokers[0].start()
        await group.until_serves(0)
        await asyncio.sleep(INVISIBLE_MS / 1000 + 35)
        assert bodies(await client.pop(0)) == bodies(messages[1:])

    play(act, brokers=2, autoCreateSubscriptionGroup="true", reviveInterval="500")


@pytest.mark.parametrize("seed", seeds([1], range(1, 4)))
def test_what_a_master_takes_that_has_lost_its_end_is_passed_over_by_no_consumer(seed: int) -> None:
    """Its producers have an old route, and go on with it as soon as it listens; its slave has consumed what it lost."""

    async def act(world: SimWorld, group: Group, client: Client) -> None:
        master = group.brokers[0]
        for _ in range(10):
            assert await client.send(0) is not None
        await client.make_group(0)
        await asyncio.sleep(12)
        for _ in range(5):
            assert await client.send(0) is not None
        await asyncio.sleep(0.2)
        master.machine.power_off()
        await group.until_serves(1)
        await client.commit(1, 15)
        starting = asyncio.ensure_future(master.start())
        taken: list[int] = []
        while len(taken) < 8:
            offset = await client.send(0)
            taken += [] if offset is None else [offset]
            await asyncio.sleep(0.2)
        await starting
        await group.until_serves(0)
        assert await client.committed(0) <= min(taken)

    play(act, seed=seed, brokers=2, flushIntervalCommitLog="5000", autoCreateSubscriptionGroup="true")


@pytest.mark.parametrize("how", ["copied", "taken over"])
def test_a_reset_waits_on_when_another_slave_has_what_was_committed_at_one_by_who_had_not_heard_of_it(how: str) -> None:
    async def act(world: SimWorld, group: Group, client: Client) -> None:
        master, one, two = group.brokers
        await client.make_group(0)
        for _ in range(8):
            assert await client.send(0) is not None
        await client.commit(0, 6)
        await asyncio.sleep(12)
        await client.reset(0, 2)
        await asyncio.sleep(12)
        if how == "taken over":
            one.machine.kill()
            await asyncio.sleep(5)
        master.machine.kill()
        await group.until_serves(1 if how == "copied" else 2)
        await client.commit(1 if how == "copied" else 2, 7)
        await asyncio.sleep(8)
        if how == "taken over":
            await one.start()
            await group.until_serves(1)
            two.machine.kill()
        await master.start()
        await group.until_serves(0)
        assert await client.committed(0) == 2
        assert isinstance(master.running, BrokerController)
        assert master.running.offsets.has_offset_reset("T", "G", 0)

    play(act)


@pytest.mark.parametrize("how", ["at once", "late", "late, to a master that was started again"])
def test_a_commit_at_a_slave_by_who_had_not_heard_of_a_reset_does_not_undo_it_after_a_pull_has_taken_it(
    how: str,
) -> None:
    """A slave hands the commit over when the master is back and the group goes on from where it was reset to."""

    async def act(world: SimWorld, group: Group, client: Client) -> None:
        master, _, two = group.brokers
        await client.make_group(0)
        for _ in range(8):
            assert await client.send(0) is not None
        await client.commit(0, 6)
        await asyncio.sleep(12)
        await client.reset(0, 2)
        await asyncio.sleep(12)
        master.machine.kill()
        await group.until_serves(1)
        await client.commit(1, 7)
        await asyncio.sleep(8)
        if how != "at once":
            two.machine.kill()
        starting = asyncio.ensure_future(master.start())
        await client.until_told_of_reset(0, 7)
        await client.commit(0, 3)
        await starting
        await group.until_serves(0)
        if "again" in how:
            await asyncio.sleep(12)
            assert await client.committed(0) == 3
            await master.stop()
            master.machine.kill()
            await master.start()
            await group.until_serves(0)
        if how != "at once":
            await two.start()
        await asyncio.sleep(20)
        assert await client.committed(0) == 3

    play(act)


def test_a_slave_does_not_follow_an_acting_one_back_that_was_started_anew_without_its_newest_commits() -> None:
    """It acts again before it is copied once more, and has not reached the slave that has copied them."""

    async def act(world: SimWorld, group: Group, client: Client) -> None:
        master, one, _ = group.brokers
        await client.make_group(0)
        for _ in range(8):
            assert await client.send(0) is not None
        await client.commit(0, 1)
        await asyncio.sleep(12)
        master.machine.kill()
        await group.until_serves(1)
        await asyncio.sleep(8)
        await client.commit(1, 7)
        await asyncio.sleep(3.3)
        assert await client.committed(2) == 7
        world.network.partition(*BROKERS[1:])
        one.machine.kill()
        await one.start()
        await group.until_serves(1)
        assert await client.committed(1) == 1
        world.network.heal()
        await asyncio.sleep(20)
        assert await client.committed(2) == 7
        await master.start()
        await group.until_serves(0)
        assert await client.committed(0) == 7

    play(act)


@pytest.mark.parametrize("next_one", [0, 2])
def test_a_group_that_goes_back_at_an_acting_slave_goes_on_there_also_at_the_next_broker(next_one: int) -> None:
    """Another slave has copied where the group was before."""

    async def act(world: SimWorld, group: Group, client: Client) -> None:
        master, one, _ = group.brokers
        await client.make_group(0)
        for _ in range(8):
            assert await client.send(0) is not None
        await client.commit(0, 1)
        await asyncio.sleep(12)
        master.machine.kill()
        await group.until_serves(1)
        for offset in (7, 3):
            await client.commit(1, offset)
            await asyncio.sleep(8)
        if next_one == 0:
            await master.start()
        else:
            one.machine.kill()
        await group.until_serves(next_one)
        assert await client.committed(next_one) == 3

    play(act)
