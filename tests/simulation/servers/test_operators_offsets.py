"""What operators have set or removed of consumer offsets stays so, whatever a slave has copied before, or was told by
consumers, while it did not hear of that."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from maxq.broker.tables.offset.operator_changes import MOST
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.header.pull import PULL_FLAG_SUBSCRIPTION, PullMessageRequestHeader
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld
from tests.simulation.servers.sim_server import CLIENT
from tests.simulation.servers.test_acting_groups import BROKERS, Client, Group, bodies, groups_of, play, tell

pytestmark = pytest.mark.usefixtures("quiet")

MESSAGES = 10


class Operator(Client):
    """Sets and removes offsets of group G in topic T."""

    async def change(self, how: str) -> None:
        """At the master. `how` is reset or removal; after the latter the group is made again."""
        if how == "reset":
            ext = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true", "queueId": "0", "offset": "3"}
            await self._do(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
            return
        await self._do(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", "cleanOffset": "true"})
        await self.make_group(0)

    async def _do(self, code: int, ext: dict[str, str]) -> None:
        answer = await self.ask(0, code, ext)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def goes_on(self, broker: int, offset: int) -> int:
        """Where a consumer that pulls at `offset` is told to go on."""
        header = PullMessageRequestHeader(
            "G", "T", 0, offset, 4, PULL_FLAG_SUBSCRIPTION, 0, 0, 0, subscription="*", expression_type="TAG"
        )
        answer = await self.ask(broker, RequestCode.PULL_MESSAGE, header.encode())
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED, answer.remark
        return int(answer.ext["nextBeginOffset"])

    async def stands(self, how: str) -> bool:
        """Is what the master says what the change has left?"""
        return await self.committed(0) == (3 if how == "reset" else 0)


Act = Callable[[SimWorld, Group, Operator, str], Awaitable[None]]


async def _made_before(world: SimWorld, group: Group, operator: Operator, how: str) -> None:
    """The master dies as soon as it has answered; its slave has an old copy."""
    world.network.partition(*BROKERS[:2])
    await operator.change(how)
    group.brokers[0].machine.kill()
    world.network.heal()
    await group.until_serves(1)
    await group.brokers[0].start()
    await group.until_serves(0)


async def _copied(world: SimWorld, group: Group, operator: Operator, how: str) -> None:
    """Its slave has heard of it, and acts later."""
    await operator.change(how)
    await asyncio.sleep(10)
    group.brokers[0].machine.kill()
    await group.until_serves(1)
    await group.brokers[0].start()
    await group.until_serves(0)


async def _handed_over(world: SimWorld, group: Group, operator: Operator, how: str) -> None:
    """A consumer has committed at the slave, which could not tell its master until after the change."""
    world.network.partition(*BROKERS[:2])
    await operator.commit(1, MESSAGES)
    await operator.change(how)
    group.brokers[0].machine.kill()  # it forgets that a reset waits for the consumer's next pull
    await group.brokers[0].start()
    world.network.heal()
    await group.until_serves(0)


@pytest.mark.parametrize("how", ["reset", "removal"])
@pytest.mark.parametrize("act", [_made_before, _copied, _handed_over])
def test_a_slave_brings_back_no_offsets_that_an_operator_has_set_or_removed(act: Act, how: str) -> None:
    async def live(world: SimWorld, group: Group, operator: Operator) -> None:
        for _ in range(MESSAGES):
            assert await operator.send(0) is not None
        await operator.make_group(0)
        await operator.commit(0, 7)
        await asyncio.sleep(10)
        assert await operator.committed(1) == 7
        await act(world, group, operator, how)
        await asyncio.sleep(15)
        assert await operator.stands(how)

    async def made(machine: SimMachine) -> Operator:
        return Operator(machine)

    async def story(world: SimWorld) -> None:
        group = Group(world, brokers=2)
        await group.start()
        machine = SimMachine(world.loop, CLIENT, SimRng(1).fork("client"))
        machine.boot()
        operator = await machine.call(lambda: made(machine))
        await machine.call(lambda: live(world, group, operator))
        await machine.call(operator.close)
        await group.stop()

    tell(1, story)


@pytest.mark.parametrize("hears", ["nothing", "by its first question", "by a pull"])
def test_a_reset_that_waits_at_the_master_ends_by_commits_at_its_slave_of_who_knows_of_it(hears: str) -> None:
    """Who pulled was told by the master, which has a slow disk and was killed just then."""

    async def live(group: Group, operator: Operator) -> None:
        for _ in range(MESSAGES):
            assert await operator.send(0) is not None
        await operator.make_group(0)
        await operator.commit(0, 7)
        await operator.change("reset")
        await asyncio.sleep(10)
        if hears == "by a pull":
            group.brokers[0].machine.process.slowness = 100
            assert await operator.goes_on(0, 7) == 3
        group.brokers[0].machine.kill()
        await group.until_serves(1)
        if hears == "by its first question":
            assert await operator.committed(1) == 3
        await operator.commit(1, 8)
        await group.brokers[0].start()
        await group.until_serves(0)
        await asyncio.sleep(15)
        assert await operator.committed(0) == (3 if hears == "nothing" else 8)

    async def made(machine: SimMachine) -> Operator:
        return Operator(machine)

    async def story(world: SimWorld) -> None:
        group = Group(world, brokers=2)
        await group.start()
        machine = SimMachine(world.loop, CLIENT, SimRng(1).fork("client"))
        machine.boot()
        operator = await machine.call(lambda: made(machine))
        await machine.call(lambda: live(group, operator))
        await machine.call(operator.close)
        await group.stop()

    tell(1, story)


def test_a_change_that_the_master_has_forgotten_and_its_slave_has_not_takes_no_offset_back() -> None:
    """Operators have made more changes since than are remembered, of which the slave has not heard."""

    async def act(world: SimWorld, group: Group, client: Client) -> None:
        for _ in range(MESSAGES):
            assert await client.send(0) is not None
        await client.make_group(0)
        await client.commit(0, 2)
        for name in ("G", *(f"Other{number}" for number in range(MOST))):
            if name == "Other0":
                await client.make_group(0)
                await client.commit(0, 3)
                await asyncio.sleep(10)
                assert await client.committed(1) == 3
                world.network.partition(*BROKERS[:2])
                await client.commit(0, 7)
            answer = await client.ask(
                0, RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": name, "cleanOffset": "true"}
            )
            assert answer.code == ResponseCode.SUCCESS
        await asyncio.sleep(10)  # the commit is in the file
        group.brokers[0].machine.kill()
        world.network.heal()
        await group.until_serves(1)
        await group.brokers[0].start()
        await group.until_serves(0)
        assert await client.committed(0) == 7

    play(act, brokers=2)


@pytest.mark.parametrize("removes", ["true", "false"])
def test_a_group_that_has_popped_and_was_deleted_stays_so_when_its_broker_is_killed(removes: str) -> None:
    """When it is made again, it begins anew, or goes on before what was open."""

    async def act(world: SimWorld, group: Group, client: Client) -> None:
        for _ in range(3):
            assert await client.send(0) is not None
        await asyncio.sleep(6)  # its slave has the topic
        messages = await client.pop(0)
        for message in messages if removes == "true" else messages[:1]:
            await client.ack(0, message)
        ext = {"groupName": "Popping", "cleanOffset": removes}
        answer = await client.ask(0, RequestCode.DELETE_SUBSCRIPTIONGROUP, ext)
        assert answer.code == ResponseCode.SUCCESS
        await asyncio.sleep(1)  # its slave hears of that
        master = group.brokers[0]
        master.machine.kill()
        await group.until_serves(1)
        assert "Popping" not in groups_of(group.brokers[1])
        await master.start()
        await group.until_serves(0)
        await asyncio.sleep(5)
        assert "Popping" not in groups_of(master)
        assert bodies(await client.pop(0)) == bodies(messages)

    play(act, brokers=2, autoCreateSubscriptionGroup="true")
