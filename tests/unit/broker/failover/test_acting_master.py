"""A member of a group follows which broker is active."""

import asyncio
import gc
import warnings

import pytest

from maxq.broker.failover.acting_master import ActingMasterService
from maxq.broker.failover.group_api import Sign
from maxq.codes import ResponseCode
from maxq.errors import BrokerError, MaxQError, RemotingTimeoutError, RequestRefusedError
from maxq.protocol.header.admin import ExchangeHAInfoHeader
from maxq.testing.sim_clock import SimClock
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.broker.failover.group_world import ADDRESSES, MASTER, MASTER_HA, SLAVE_1, SLAVE_2, Member


async def slave(broker_id: int = 1, **settings: object) -> Member:
    """A slave that is online and follows its master."""
    member = Member(broker_id, None, **settings)
    await member.acting.go_online()
    await member.see(0, 1, 2)
    return member


# --- going online -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("broker_id", "running"), [(0, True), (1, False)])
@pytest.mark.parametrize(("acting", "replicas"), [("true", 1), ("false", 1), ("false", 3)])
async def test_without_preparation_a_master_starts_its_services_and_a_slave_does_not(
    broker_id: int, running: bool, acting: str, replicas: int
) -> None:
    member = Member(broker_id, enableSlaveActingMaster=acting, totalReplicas=replicas)
    assert not member.acting.is_isolated
    await member.acting.go_online()
    assert member.services.is_running is running
    assert member.registration.now == 1
    assert member.api.fetches == 0
    assert not member.acting.is_acting_master
    assert member.acting.min_broker_id is None


async def test_several_replicas_prepare_and_register_only_then() -> None:
    clock = SimClock()
    member = Member(1, clock, totalReplicas=3)
    assert member.acting.is_isolated
    await member.acting.send_heartbeat()
    await member.see(1, 2)  # does not count while isolated
    assert not member.services.is_running
    assert member.api.heartbeats == []
    member.api.members = {2: "10.0.0.3:10911"}
    await member.acting.go_online()
    assert not member.acting.is_isolated
    assert not member.services.is_running  # 2 is active until the name server knows of 1
    assert member.acting.min_broker_id == 2
    await member.see(1, 2)
    clock.advance_ms(3_000)
    await member.see(1, 2)
    assert member.services.is_running


@pytest.mark.parametrize("prepares", [True, False])
async def test_a_slave_that_finds_nobody_leaves_its_master_time_to_register(prepares: bool) -> None:
    """It was started together with the name server, on one machine perhaps, while its master went on."""
    clock = SimClock()
    member = Member(1, clock, totalReplicas=3, brokerHeartbeatInterval=1_000, skipPreOnline=str(not prepares).lower())
    await member.acting.go_online()
    for ms, acts in ((0, False), (2_900, False), (200, True)):
        clock.advance_ms(ms)
        await member.see(1)
        assert member.acting.is_acting_master is acts


async def test_a_slave_that_finds_nobody_follows_the_master_that_registers() -> None:
    member = Member(1, totalReplicas=3)
    await member.acting.go_online()
    await member.see(1)
    await member.see(0, 1)
    assert not member.services.is_running
    assert (member.sync.master_address, member.ha.log[-1]) == (MASTER, MASTER_HA)


async def test_where_no_name_server_is_set_nobody_is_asked() -> None:
    member = Member(0, totalReplicas=3)
    member.name_servers, member.api.members = [], None
    await member.acting.go_online()
    assert member.services.is_running


def test_a_master_that_becomes_a_slave_while_it_prepares_does_not_act() -> None:
    async def main(world: SimWorld) -> None:
        member = Member(0, world.clock, totalReplicas=3)
        member.api.members = None
        preparing = asyncio.ensure_future(member.acting.go_online())
        await asyncio.sleep(20)
        assert member.acting.is_isolated
        member.own.broker_id, member.api.members = 2, {0: MASTER}
        await preparing
        assert not member.services.is_running

    run_simulation(main, seed=1)


async def test_whoever_is_shown_in_routes_answers_for_the_group_already() -> None:
    member = Member(0)
    member.registration.on_register = lambda: member.switch.log.append("registered")
    await member.acting.go_online()
    assert member.switch.log == ["stop", "start", "registered"]


async def test_skip_pre_online_goes_online_at_once() -> None:
    member = Member(1, totalReplicas=3, skipPreOnline="true")
    await member.acting.go_online()
    assert member.api.fetches == 0
    assert (member.acting.is_isolated, member.services.is_running, member.registration.now) == (False, False, 1)


# --- which broker is active -------------------------------------------------------------------------------------------


async def test_the_smallest_slave_takes_over_and_forgets_the_master() -> None:
    member = await slave()
    assert (member.sync.master_address, member.ha.log) == (MASTER, [MASTER_HA])
    await member.see(1, 2)
    assert member.services.is_running
    assert member.acting.min_broker_id == 1
    assert member.sync.master_address == ""
    assert member.ha.log[-1] == ""
    assert member.api.dropped == [MASTER]
    assert member.acting.is_acting_master


async def test_a_slave_whose_log_is_another_than_its_masters_does_not_act_before_they_are_one() -> None:
    member = await slave()
    member.ha.is_apart = True
    await member.see(1)
    assert not member.services.is_running
    member.ha.is_apart = False
    await member.see(1)
    assert member.services.is_running


async def test_a_slave_whose_log_is_another_is_with_the_name_servers_while_no_other_slave_or_a_master_lives() -> None:
    member = await slave()
    member.ha.is_apart = True
    for living, is_hidden in (((1,), False), ((0, 1), False), ((1, 2), True), ((2,), True), ((0, 2), False)):
        await member.see(*living)
        assert member.registration.is_isolated is is_hidden
        assert not member.services.is_running and not member.acting.is_isolated
    await member.see(1, 2)
    beats = len(member.api.heartbeats)
    await member.acting.send_heartbeat()
    assert len(member.api.heartbeats) == beats
    member.ha.is_apart = False
    await member.see(2)
    assert not member.registration.is_isolated
    await member.see(1, 2)
    assert member.services.is_running


async def test_a_slave_that_acts_ends_to_when_it_finds_that_its_log_is_another() -> None:
    """A master came back, lost its end, and went before it was known."""
    member = await slave()
    await member.see(1, 2)
    assert member.services.is_running
    member.ha.is_apart = True
    await member.see(1, 2)
    assert not member.services.is_running
    await member.see(1, 2)
    assert member.registration.is_isolated
    member.ha.is_apart = False
    await member.see(2)
    await member.see(1, 2)
    assert member.services.is_running


async def test_a_slave_that_knows_that_its_log_is_another_goes_online_without_the_name_servers_beside_another() -> None:
    for others, is_hidden in (({2: SLAVE_2}, True), ({}, False), ({0: MASTER, 2: SLAVE_2}, False)):
        member = Member(1, None, totalReplicas=3)
        member.ha.is_apart, member.api.members = True, others
        member.ha.copying.add("10.0.0.1")
        await member.acting.go_online()
        assert member.registration.is_isolated is is_hidden and not member.acting.is_isolated


@pytest.mark.parametrize(("broker_id", "is_apart"), [(1, False), (2, False), (1, True)])
async def test_every_slave_asks_the_master_that_it_has_lost(broker_id: int, *, is_apart: bool) -> None:
    """A master that comes back and reaches no name server waits until all slaves have asked it, whoever acts."""
    member = await slave(broker_id)
    member.ha.is_apart = is_apart
    await member.see(1, 2)
    await member.see(*({1, 2} - ({1} if is_apart else set())))
    assert member.sync.master_address == ""
    member.api.was_asked.clear()
    await member.acting.watch_master()
    assert member.api.was_asked.is_set()
    assert member.services.is_running is (broker_id == 1 and not is_apart)


@pytest.mark.parametrize("broker_id", [1, 2])
async def test_a_master_that_answers_is_not_taken_for_gone_because_a_name_server_misses_it(broker_id: int) -> None:
    """The name server was started anew, or its connection to the master broke."""
    clock = SimClock()
    member = Member(broker_id, clock)
    await member.acting.go_online()
    await member.see(0, 1, 2)
    member.api.signs[MASTER] = Sign.LIVES
    await member.see(1, 2)
    await member.acting.on_min_broker_id_changed(1, SLAVE_1, None)
    assert (member.acting.min_broker_id, member.services.is_running) == (0, False)
    assert (member.sync.master_address, member.ha.log[-1]) == (MASTER, MASTER_HA)
    member.api.signs.clear()
    await member.see(1, 2)
    assert (member.acting.min_broker_id, member.services.is_running) == (1, broker_id == 1)


async def test_a_master_that_clients_do_not_find_for_long_is_taken_for_gone_though_it_answers() -> None:
    clock = SimClock()
    member = Member(1, clock)
    await member.acting.go_online()
    await member.see(0, 1)
    member.api.signs[MASTER] = Sign.LIVES
    for ms, acts in ((0, False), (9_000, False), (2_000, True)):
        clock.advance_ms(ms)
        await member.see(1)
        assert member.services.is_running is acts


@pytest.mark.parametrize("in_between", [(0, 1), (1,)])
async def test_the_time_begins_anew_for_a_master_that_was_found_again(in_between: tuple[int, ...]) -> None:
    clock = SimClock()
    member = Member(1, clock)
    await member.acting.go_online()
    await member.see(0, 1)
    member.api.signs[MASTER] = Sign.LIVES
    await member.see(1)
    clock.advance_ms(9_000)
    await member.see(*in_between)
    clock.advance_ms(9_000)
    await member.see(1)
    assert member.services.is_running is (in_between == (1,))


async def test_news_that_come_twice_do_not_make_the_time_begin_anew() -> None:
    """While the master is asked because of the first."""
    clock = SimClock()
    member = Member(1, clock)
    await member.acting.go_online()
    await member.see(0, 1)
    member.api.signs[MASTER] = Sign.LIVES
    for _ in range(3):
        member.api.answers.clear()
        first = asyncio.create_task(member.see(1))
        second = asyncio.create_task(member.acting.on_min_broker_id_changed(1, SLAVE_1, None))
        await asyncio.sleep(0)
        member.api.answers.set()
        await asyncio.gather(first, second)
        clock.advance_ms(5_000)
    assert member.services.is_running


async def test_news_that_was_not_followed_keeps_no_slave_from_acting_later() -> None:
    """A name server that was started anew hears of slave 2 first."""
    member = await slave()
    member.api.signs[MASTER] = Sign.LIVES
    member.api.answers.clear()
    first = asyncio.create_task(member.acting.on_min_broker_id_changed(1, SLAVE_1, None))
    second = asyncio.create_task(member.acting.on_min_broker_id_changed(2, SLAVE_2, None))
    await asyncio.sleep(0)
    member.api.answers.set()
    await asyncio.gather(first, second)
    member.api.signs.clear()
    await member.see(1, 2)
    assert member.services.is_running


async def test_a_master_that_stands_still_or_is_cut_off_is_not_taken_for_gone_because_a_name_server_lost_it() -> None:
    """It goes on a second later, sure of its role, and is known to the name server again."""
    clock = SimClock()
    member = Member(1, clock, brokerNotActiveTimeoutMillis=10_000)
    await member.acting.go_online()
    await member.see(0, 1)
    member.api.signs[MASTER] = Sign.LIVES
    clock.advance_ms(60_000)
    await member.acting.hear_master()
    member.api.signs[MASTER] = Sign.SILENT
    for ms, acts in ((1_000, False), (1_000, False), (7_900, False), (200, True)):
        clock.advance_ms(ms)
        await member.see(1)
        assert member.services.is_running is acts


async def test_a_master_that_answers_is_asked_to_stand_back_before_a_slave_acts_and_may_refuse() -> None:
    clock = SimClock()
    member = Member(1, clock, brokerNotActiveTimeoutMillis=10_000)
    await member.acting.go_online()
    await member.see(0, 1)
    member.api.signs[MASTER], member.api.stands_back = Sign.LIVES, Sign.LIVES
    for ms in (0, 9_900, 200, 60_000):
        clock.advance_ms(ms)
        await member.see(1)
        assert not member.services.is_running
        assert bool(member.api.stood_back) is (ms in (200, 60_000))
    member.api.stands_back = Sign.GONE
    await member.see(1)
    assert member.services.is_running


async def test_a_master_whose_slaves_do_not_act_or_that_a_name_server_knows_does_not_stand_back() -> None:
    clock = SimClock()
    member = Member(0, clock, enableSlaveActingMaster=False)
    await member.acting.go_online()
    clock.advance_ms(8_000)
    assert not member.acting.stand_back(1, SLAVE_1)
    assert member.services.is_running
    member = Member(0, clock)
    await member.acting.go_online()
    clock.advance_ms(8_000)
    await member.see(0, 1)
    assert not member.acting.stand_back(1, SLAVE_1)
    assert member.services.is_running


@pytest.mark.parametrize("is_started", [True, False])
async def test_a_master_that_stands_back_while_it_prepares_asks_that_slave_once_more(is_started: bool) -> None:
    clock = SimClock()
    member = Member(0, clock, totalReplicas=3)
    member.api.members = {1: SLAVE_1, 2: SLAVE_2}
    if not is_started:
        await member.acting.go_online()
        clock.advance_ms(20_000)
        member.metadata.taken.clear()

    async def leave() -> None:
        if member.metadata.taken == [SLAVE_2]:  # the other one was asked before
            clock.advance_ms(8_000)
            assert member.acting.stand_back(2, SLAVE_2)

    member.metadata.on_take = leave
    await (member.acting.go_online() if is_started else member.acting.look())
    assert member.metadata.taken == [SLAVE_2, SLAVE_1] * 2
    assert member.acting.is_active


async def test_a_master_that_is_asked_to_stand_back_again_and_again_comes_back_when_name_servers_name_it() -> None:
    clock = SimClock()
    member = Member(0, clock, totalReplicas=2)
    member.api.members = {1: SLAVE_1}

    async def leave() -> None:
        clock.advance_ms(8_000)
        assert member.acting.stand_back(1, SLAVE_1)

    member.metadata.on_take = leave
    await member.acting.go_online()
    assert member.registration.now == 1
    assert not member.acting.is_active
    for _ in range(5):
        await member.see(0, 1)
        clock.advance_ms(1_000)
    assert member.acting.is_active


async def test_a_master_that_was_cut_off_ends_its_services_before_it_takes_state_back() -> None:
    clock = SimClock()
    member = Member(0, clock, totalReplicas=2)
    member.api.members = {1: SLAVE_1}
    await member.acting.go_online()
    clock.advance_ms(7_000)  # no name server says who lives, and it does not stand still
    assert member.acting.stood_still() is None
    running: list[bool] = []

    async def note() -> None:
        running.append(member.services.is_running)

    member.metadata.on_take = note
    member.api.members = {1: SLAVE_1}
    await member.acting.look()
    assert running == [False]
    assert member.services.is_running


async def test_a_slave_that_is_not_to_act_itself_asks_no_master_to_stand_back() -> None:
    clock = SimClock()
    member = Member(2, clock, brokerNotActiveTimeoutMillis=10_000)
    await member.acting.go_online()
    await member.see(0, 1, 2)
    member.api.signs |= {MASTER: Sign.LIVES, SLAVE_1: Sign.GONE}
    for _ in range(2):
        await member.see(1, 2)
        clock.advance_ms(10_000)
    assert (member.acting.min_broker_id, member.api.stood_back) == (1, [])
    await member.see(2)
    assert not member.services.is_running, "its master goes on, though slave 1 was to act for it"
    clock.advance_ms(10_000)
    await member.see(2)
    assert (member.services.is_running, member.api.stood_back) == (True, [MASTER])


async def test_a_slave_that_acts_is_sure_of_it_while_a_name_server_says_so() -> None:
    clock = SimClock()
    member = Member(1, clock, totalReplicas=2, skipPreOnline="true", brokerNotActiveTimeoutMillis=60_000)
    await member.acting.go_online()
    await member.see(0, 1)
    await member.see(1)
    for answer, is_sure in (({1: SLAVE_1}, True), ({}, False), ({1: SLAVE_1}, True), (None, False)):
        clock.advance_ms(2_500)
        member.api.members = answer
        await member.acting.sync_member_group()
        assert (member.acting.doubt() is None) is is_sure
        assert member.services.is_running
    member.name_servers = []
    assert member.acting.doubt() is None, "nobody could be told to act in its place"


async def test_a_master_that_was_cut_off_for_long_has_time_to_register_at_a_name_server_that_lost_it() -> None:
    clock = SimClock()
    member = Member(1, clock, brokerNotActiveTimeoutMillis=10_000, brokerHeartbeatInterval=1_000)
    await member.acting.go_online()
    await member.see(0, 1)
    member.api.signs[MASTER] = Sign.SILENT
    clock.advance_ms(60_000)
    await member.see(1)
    assert not member.services.is_running
    await member.see(0, 1)
    clock.advance_ms(2_000)
    for ms, acts in ((0, False), (2_900, False), (200, True)):
        clock.advance_ms(ms)
        await member.see(1)
        assert member.services.is_running is acts


def test_the_master_is_heard_all_the_time() -> None:
    async def main(world: SimWorld) -> None:
        member = Member(1, world.clock, brokerNotActiveTimeoutMillis=10_000)
        member.api.members = {0: MASTER, 1: SLAVE_1}
        member.api.signs[MASTER] = Sign.LIVES
        await member.acting.go_online()
        member.acting.start()
        await asyncio.sleep(60)
        member.api.members = {1: SLAVE_1}
        member.api.signs[MASTER] = Sign.SILENT
        await asyncio.sleep(8)
        assert not member.services.is_running
        await asyncio.sleep(4)
        assert member.services.is_running
        await member.acting.shutdown()

    run_simulation(main, seed=1)


def test_a_slave_that_is_told_once_that_its_master_is_missed_looks_again_by_itself() -> None:
    async def main(world: SimWorld) -> None:
        member = Member(1, world.clock, syncBrokerMemberGroupPeriod=600_000, brokerHeartbeatInterval=500)
        member.api.members = {0: MASTER, 1: SLAVE_1}
        member.api.signs[MASTER] = Sign.LIVES
        await member.acting.go_online()
        await member.see(0, 1)
        member.acting.start()
        member.api.members = {1: SLAVE_1}
        await member.acting.on_min_broker_id_changed(1, SLAVE_1, None)
        assert not member.services.is_running
        member.api.signs[MASTER] = Sign.GONE
        await asyncio.sleep(1)
        assert member.services.is_running
        await member.acting.shutdown()

    run_simulation(main, seed=1)


def test_a_slave_that_stood_still_is_not_sure_of_its_role_before_a_name_server_has_answered() -> None:
    """Its connections broke while it stood still, so the first question fails."""

    async def main(world: SimWorld) -> None:
        member = Member(1, world.clock, brokerNotActiveTimeoutMillis=10_000)
        await member.acting.go_online()
        await member.see(0, 1)
        await member.see(1)
        assert member.services.is_running
        await asyncio.sleep(20)  # nothing looks meanwhile
        member.api.members = None
        look = asyncio.ensure_future(member.acting.look())
        for _ in range(4):
            await asyncio.sleep(0.9)
            assert member.acting.doubt() is not None
        member.api.members = {0: MASTER, 1: SLAVE_1}
        await look
        assert not member.services.is_running
        assert member.acting.doubt() is None

    run_simulation(main, seed=1)


def test_a_slave_that_no_name_server_answers_leaves_the_group_to_its_master_that_is_active_again() -> None:
    async def main(world: SimWorld) -> None:
        member = Member(1, world.clock, brokerNotActiveTimeoutMillis=10_000)
        await member.acting.go_online()
        await member.see(0, 1)
        await member.see(1)
        member.acting.start()
        member.api.members = None
        for sign in (Sign.GONE, Sign.PREPARES, Sign.SILENT):
            member.api.signs[MASTER] = sign
            await asyncio.sleep(6)
            assert member.services.is_running, sign
        member.api.signs[MASTER] = Sign.LIVES
        await asyncio.sleep(2)
        assert not member.services.is_running
        assert (member.sync.master_address, member.ha.log[-1]) == (MASTER, MASTER_HA)
        member.api.members = {0: MASTER, 1: SLAVE_1}
        await asyncio.sleep(2)
        assert not member.services.is_running
        member.api.members, member.api.signs = {1: SLAVE_1}, {}
        await asyncio.sleep(2)
        assert member.services.is_running, "its master is gone once more"
        await member.acting.shutdown()

    run_simulation(main, seed=1)


@pytest.mark.parametrize("members", [{}, {1: SLAVE_1}])
def test_a_slave_that_stood_still_does_not_go_by_a_name_server_that_does_not_know_its_master_yet(
    members: dict[int, str],
) -> None:
    """The name server was just started; it knows who has registered since."""

    async def main(world: SimWorld) -> None:
        member = Member(1, world.clock, brokerNotActiveTimeoutMillis=10_000)
        await member.acting.go_online()
        await member.see(0, 1)
        await member.see(1)
        await asyncio.sleep(20)
        member.api.members, member.api.signs[MASTER] = members, Sign.LIVES
        assert member.acting.doubt() is not None
        await member.acting.look()
        assert not member.services.is_running
        assert member.sync.master_address == MASTER

    run_simulation(main, seed=1)


def test_a_slave_acts_while_name_servers_say_so_though_its_master_answers_it() -> None:
    async def main(world: SimWorld) -> None:
        member = Member(1, world.clock)
        await member.acting.go_online()
        await member.see(0, 1)
        await member.see(1)
        member.acting.start()
        member.api.signs[MASTER] = Sign.LIVES
        await asyncio.sleep(30)
        assert member.services.is_running
        await member.acting.shutdown()

    run_simulation(main, seed=1)


def test_a_slave_that_stood_still_goes_on_where_no_name_server_answers_for_long() -> None:
    async def main(world: SimWorld) -> None:
        member = Member(1, world.clock, brokerNotActiveTimeoutMillis=10_000)
        await member.acting.go_online()
        await member.see(0, 1)
        await member.see(1)
        await asyncio.sleep(20)
        member.api.members = None
        began_ms = world.clock.monotonic_ms()
        await member.acting.look()
        assert 9_000 <= world.clock.monotonic_ms() - began_ms <= 12_000
        assert member.services.is_running
        assert member.acting.doubt() is None

    run_simulation(main, seed=1)


async def test_a_slave_that_ends_while_its_master_is_asked_does_not_act() -> None:
    member = await slave()
    member.api.answers.clear()
    told = asyncio.create_task(member.acting.on_min_broker_id_changed(1, SLAVE_1, None))
    await asyncio.sleep(0)
    await member.acting.shutdown()
    member.api.answers.set()
    await told
    assert not member.services.is_running


async def test_a_copy_of_the_masters_tables_cannot_arrive_after_the_takeover() -> None:
    """The connection to the master is dropped before the services start: what is under way fails."""
    member = await slave()
    order: list[str] = []
    member.switch.log = order
    member.api.dropped = order
    await member.see(1)
    assert order == [MASTER, "start"]


async def test_a_slave_copies_what_the_one_that_acts_keeps_while_that_one_acts() -> None:
    member = Member(2)
    await member.see(0, 1, 2)
    await member.acting.copy_acting_slave()
    assert not member.metadata.copied
    await member.see(1, 2)
    await member.acting.copy_acting_slave()
    member.metadata.failure = RemotingTimeoutError("silent", address=SLAVE_1, timeout_ms=3_000)
    await member.acting.copy_acting_slave()
    assert member.metadata.copied == [SLAVE_1]
    member.metadata.failure = None
    assert member.metadata.forgotten == 1, "the master, that was there first"
    await member.see(0, 2)
    assert member.metadata.forgotten == 2, "its pop records are old when a slave acts the next time"
    await member.see(2)
    await member.acting.copy_acting_slave()
    assert member.acting.is_acting_master
    assert member.metadata.copied == [SLAVE_1]


async def following_slave(world: SimWorld) -> Member:
    """A slave that copies from slave 1, which acts; its tasks run."""
    member = Member(2, world.clock)
    await member.see(0, 1, 2)
    await member.see(1, 2)
    member.acting.start()
    return member


def test_after_a_copy_without_an_answer_the_next_one_comes_soon() -> None:
    """That it took long says nothing of how much there is to copy."""

    async def main(world: SimWorld) -> None:
        member = await following_slave(world)
        answered = asyncio.Event()
        member.metadata.copying = answered.wait
        while not member.metadata.asked_to_copy:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(1)
        await asyncio.sleep(10)
        answered.set()
        await asyncio.sleep(10)
        assert member.metadata.copied
        member.metadata.copying = lambda: asyncio.sleep(2)
        asked = member.metadata.asked_to_copy
        await asyncio.sleep(40)
        assert member.metadata.asked_to_copy == asked + 1, "it takes a small part of the time"
        await member.acting.shutdown()

    run_simulation(main, seed=1)


def test_a_slave_that_acts_and_cannot_be_copied_from_is_asked_seldom_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "maxq.broker.failover.pre_online")

    async def main(world: SimWorld) -> None:
        member = await following_slave(world)
        refusal = member.metadata.failure = BrokerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")
        await asyncio.sleep(300)
        assert 20 <= member.metadata.asked_to_copy <= 25
        assert caplog.text.count("not supported") == 1
        member.metadata.failure = None  # it was started anew, with a newer version
        await asyncio.sleep(30)
        member.metadata.failure = refusal
        await asyncio.sleep(60)
        assert caplog.text.count("not supported") == 2
        await member.see(0, 1, 2)
        await asyncio.sleep(20)
        asked = member.metadata.asked_to_copy
        await member.see(1, 2)
        await asyncio.sleep(4)
        assert member.metadata.asked_to_copy == asked + 1, "the master was there meanwhile"
        await member.acting.shutdown()

    run_simulation(main, seed=1)


async def test_a_larger_slave_follows_the_smaller_one() -> None:
    member = await slave(2)
    await member.see(1, 2)
    assert not member.services.is_running
    assert (member.sync.master_address, member.ha.log[-1]) == ("", ""), "it copies from no slave"
    assert member.api.asked == [MASTER]
    await member.see(2)
    assert member.services.is_running
    await member.see(1, 2)
    assert not member.services.is_running
    assert member.switch.log == ["stop", "start", "stop"]


@pytest.mark.parametrize("sign", [Sign.LIVES, Sign.SILENT])
async def test_a_slave_that_acts_is_not_replaced_because_a_name_server_loses_it(sign: Sign) -> None:
    """The name server was started anew, or its connection to the slave broke."""
    clock = SimClock()
    member = Member(2, clock, brokerNotActiveTimeoutMillis=10_000)
    await member.acting.go_online()
    await member.see(0, 1, 2)
    await member.see(1, 2)
    member.api.signs[SLAVE_1] = sign
    for ms, living in ((0, (2,)), (9_000, (2,)), (0, (1, 2)), (9_000, (2,)), (9_000, (2,))):
        clock.advance_ms(ms)
        await member.see(*living)
        assert (member.acting.min_broker_id, member.services.is_running) == (1, False)
    clock.advance_ms(2_000)
    await member.see(2)
    assert (member.acting.min_broker_id, member.services.is_running) == (2, True)


@pytest.mark.parametrize("last", [1, 2])
async def test_all_slaves_with_smaller_ids_are_asked_before_one_acts(last: int) -> None:
    """The master has ended, and a new name server hears of slave 3 first."""
    member = Member(3)
    await member.acting.go_online()
    await member.see(0, 1, 2, 3)
    member.api.signs = {ADDRESSES[last]: Sign.LIVES}
    await member.see(3)
    assert not member.services.is_running
    await member.acting.on_min_broker_id_changed(3, ADDRESSES[3], None)
    assert not member.services.is_running
    member.api.signs = {}
    await member.see(3)
    assert member.services.is_running


async def _second_of_three(**signs: Sign) -> Member:
    """Slave 2, whose master is gone and for whom slave 1 has acted, till name servers lose that; `signs` by name."""
    clock = SimClock()
    member = Member(2, clock)
    await member.acting.go_online()
    await member.see(0, 1, 2, 3)
    await member.see(1, 2, 3)
    member.api.signs = {ADDRESSES[int(name[-1])]: sign for name, sign in signs.items()}
    await member.see(2, 3)
    clock.advance_ms(11_000)
    return member


async def test_a_slave_that_is_to_act_takes_over_what_those_that_answer_have_kept_the_smallest_last() -> None:
    member = await _second_of_three(slave_1=Sign.LIVES, slave_3=Sign.LIVES)
    await member.see(2, 3)
    assert member.metadata.taken == [ADDRESSES[3], SLAVE_1]
    assert member.services.is_running and not member.metadata.dropped
    await member.see(1, 2, 3)
    member.api.signs = {SLAVE_1: Sign.SILENT, ADDRESSES[3]: Sign.GONE}
    await member.see(2, 3)
    assert member.metadata.taken == [ADDRESSES[3], SLAVE_1], "nobody else can tell"


@pytest.mark.parametrize("failure", [RemotingTimeoutError("x", address="", timeout_ms=1), OSError("disk")])
async def test_what_a_slave_has_kept_that_does_not_answer_in_the_end_keeps_none_from_acting(
    failure: MaxQError | OSError,
) -> None:
    member = await _second_of_three(slave_1=Sign.LIVES)
    member.metadata.failure = failure
    await member.see(2, 3)
    assert member.services.is_running


async def test_a_slave_does_not_act_while_another_does_not_leave_it_the_group() -> None:
    member = await _second_of_three(slave_1=Sign.LIVES)
    member.metadata.failure = BrokerError(ResponseCode.SERVICE_NOT_AVAILABLE, "not now")
    await member.see(2, 3)
    assert (member.services.is_running, member.acting.min_broker_id, member.metadata.dropped) == (False, 1, 1)
    member.metadata.failure = None
    await member.see(2, 3)
    assert member.services.is_running


@pytest.mark.parametrize(("other", "acts"), [(1, False), (3, True)])
async def test_of_two_slaves_that_ask_each_other_the_one_with_the_smaller_id_acts(other: int, acts: bool) -> None:
    member = await _second_of_three(slave_1=Sign.LIVES)

    async def ask() -> None:
        await member.acting.leave_to(other, ADDRESSES[other])

    async def is_asked() -> None:
        if acts:
            with pytest.raises(RequestRefusedError):
                await ask()
        else:
            await ask()

    member.metadata.on_take = is_asked
    await member.see(2, 3)
    assert (member.services.is_running, member.metadata.dropped) == (acts, int(not acts))


async def test_a_slave_that_acts_leaves_the_group_to_the_one_that_asks_unless_its_master_comes_back() -> None:
    member = await slave()
    await member.see(1, 2)
    member.sync.master_address = MASTER  # it has said where to copy from
    member.api.signs = {MASTER: Sign.PREPARES}
    with pytest.raises(RequestRefusedError, match="master"):
        await member.acting.leave_to(2, SLAVE_2)
    assert member.acting.is_acting_master
    member.api.signs = {}
    await member.acting.leave_to(2, SLAVE_2)
    assert not member.acting.is_acting_master
    await member.acting.leave_to(2, SLAVE_2)  # its answer was lost
    await member.see(1, 2)
    assert member.acting.is_acting_master, "name servers hear it again"


async def test_the_master_is_back_addresses_are_set_and_held_pulls_told() -> None:
    member = await slave()
    await member.see(1)
    before = member.notified
    await member.see(0, 1)
    assert not member.services.is_running
    assert member.sync.master_address == MASTER
    assert member.ha.log[-1] == MASTER_HA
    assert member.notified == before + 1


async def test_a_notice_with_the_ha_address_needs_no_question() -> None:
    member = await slave()
    await member.see(1)
    asked = len(member.api.asked)
    await member.acting.on_min_broker_id_changed(0, MASTER, "10.0.0.1:999")
    assert len(member.api.asked) == asked
    assert member.ha.log[-1] == "10.0.0.1:999"


async def test_a_master_that_does_not_answer_yet_is_asked_again() -> None:
    member = await slave()
    await member.see(1)
    member.api.silent.add(MASTER)
    await member.see(0, 1)
    assert member.ha.log[-1] == ""
    assert not member.services.is_running  # whichever broker is active, it is not this one
    member.api.silent.clear()
    await member.see(0, 1)
    assert member.ha.log[-1] == MASTER_HA


async def test_a_notice_that_names_no_ha_address_has_the_master_asked() -> None:
    member = await slave()
    await member.see(1)
    await member.acting.on_min_broker_id_changed(0, MASTER, "")
    assert member.ha.log[-1] == MASTER_HA


async def test_a_master_that_goes_again_before_it_has_answered_is_not_met() -> None:
    member = await slave()
    await member.see(1)
    member.api.silent.add(MASTER)
    await member.see(0, 1)
    await member.see(1)
    asked = len(member.api.asked)
    await member.see(1)
    assert len(member.api.asked) == asked
    assert (member.sync.master_address, member.ha.log[-1]) == ("", "")


async def test_changes_are_carried_out_in_the_order_they_were_seen() -> None:
    """The master is back, and gone again while it is still being asked where it replicates from."""
    member = await slave()
    await member.see(1)
    member.api.answers.clear()
    member.api.was_asked.clear()
    back = asyncio.create_task(member.acting.on_min_broker_id_changed(0, MASTER, None))
    await member.api.was_asked.wait()
    gone = asyncio.create_task(member.acting.on_min_broker_id_changed(1, SLAVE_1, None))
    await asyncio.sleep(0)
    member.api.answers.set()
    await asyncio.gather(back, gone)
    assert member.acting.is_acting_master
    assert (member.sync.master_address, member.ha.log[-1]) == ("", "")


@pytest.mark.parametrize(("broker_id", "acts"), [(0, True), (1, False)])
async def test_a_role_that_changes_while_the_broker_runs_is_followed(broker_id: int, acts: bool) -> None:
    member = Member(1 - broker_id)
    await member.acting.go_online()
    member.own.broker_id = broker_id
    member.acting.role_changed()
    assert member.services.is_running is acts


async def test_notices_mean_nothing_without_acting_mode_or_on_a_master() -> None:
    for broker_id, acting in ((0, "true"), (1, "false")):
        member = Member(broker_id, enableSlaveActingMaster=acting)
        await member.acting.go_online()
        state = member.services.is_running
        await member.acting.on_min_broker_id_changed(1, SLAVE_1, None)
        assert (member.services.is_running, member.ha.log) == (state, [])


async def test_a_name_server_without_an_answer_changes_nothing() -> None:
    member = await slave()
    member.api.members = None
    await member.acting.sync_member_group()
    assert not member.services.is_running
    assert member.sync.master_address == MASTER


async def test_the_flush_offset_of_a_master_is_learnt_once_where_the_setting_asks_for_it() -> None:
    member = await slave(syncMasterFlushOffsetWhenStartup="true")
    assert member.store.checkpoint.master_flushed_offset == 4096
    member.api.ha_info = ExchangeHAInfoHeader(MASTER_HA, 9999, MASTER)
    await member.see(1)
    await member.see(0, 1)
    assert member.store.checkpoint.master_flushed_offset == 4096
    assert (await slave()).store.checkpoint.master_flushed_offset == 0


async def test_a_master_named_with_its_ha_address_is_asked_for_the_flush_offset_alone() -> None:
    member = Member(1, syncMasterFlushOffsetWhenStartup="true")
    await member.acting.go_online()
    await member.acting.on_min_broker_id_changed(0, MASTER, "10.0.0.1:999")
    assert member.store.checkpoint.master_flushed_offset == 4096
    assert member.ha.log == ["10.0.0.1:999"]


# --- signs of life ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compatible", ["true", "false"])
async def test_every_name_server_hears_a_sign_of_life_though_one_is_silent(compatible: str) -> None:
    member = await slave(compatibleWithOldNameSrv=compatible)
    member.api.silent.add("ns1:9876")
    await member.acting.send_heartbeat()
    assert member.api.heartbeats == ["ns2:9876"]


async def test_a_sign_of_life_that_is_cancelled_before_it_begins_leaves_nothing_behind() -> None:
    member = await slave()
    giving = asyncio.create_task(member.acting.send_heartbeat())
    await asyncio.sleep(0)  # each name server has its task, and none has begun
    giving.cancel()
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always")
        await member.acting.shutdown()
        await asyncio.gather(giving, return_exceptions=True)
        gc.collect()
    said = [str(one.message) for one in left]  # also of what other tests left behind
    assert not [text for text in said if "ActingMasterService" in text]
    assert member.api.heartbeats == []


@pytest.mark.parametrize("compatible", ["true", "false"])
def test_a_name_server_that_hangs_holds_up_no_look_and_no_sign_of_life(compatible: str) -> None:
    async def main(world: SimWorld) -> None:
        member = Member(
            1, world.clock, brokerHeartbeatInterval=200, brokerNotActiveTimeoutMillis=1500, skipPreOnline="true",
            compatibleWithOldNameSrv=compatible,
        )  # fmt: skip
        member.api.hanging.add("ns1:9876")
        await member.acting.go_online()
        member.acting.start()
        for _ in range(200):
            await asyncio.sleep(0.05)
            assert member.acting.doubt() is None
        assert member.api.heartbeats.count("ns2:9876") >= 10 / (0.2 + 0.3)
        await member.acting.shutdown()

    run_simulation(main, seed=1)


async def test_a_name_server_that_was_started_anew_is_told_everything_at_once() -> None:
    member = await slave()
    await member.acting.send_heartbeat()
    assert member.registration.all_ == 0
    member.outdated.add("ns2:9876")
    await member.acting.send_heartbeat()
    assert member.registration.all_ == 1


def test_both_periods_are_kept_and_end_with_the_service() -> None:
    async def main(world: SimWorld) -> None:
        member = Member(1, world.clock, brokerHeartbeatInterval=500, syncBrokerMemberGroupPeriod=2000)
        await member.acting.go_online()
        await member.see(0, 1)
        member.acting.start()
        await asyncio.sleep(10.9)
        assert member.api.heartbeats.count("ns1:9876") == 21  # 0.5, 1.0, … 10.5
        assert member.api.fetches == 6  # 0, 2, 4, 6, 8, 10
        await member.acting.shutdown()
        await asyncio.sleep(10)
        assert member.api.fetches == 6

    run_simulation(main, seed=1)


async def test_shutdown_gives_up_the_services() -> None:
    member = Member(0)
    await member.acting.go_online()
    await member.acting.shutdown()
    assert member.switch.log == ["stop", "start", "stop"]


def test_without_acting_mode_nothing_is_sent() -> None:
    async def main(world: SimWorld) -> None:
        member = Member(1, world.clock, enableSlaveActingMaster="false")
        await member.acting.go_online()
        member.acting.start()
        await asyncio.sleep(60)
        assert (member.api.fetches, member.api.heartbeats) == (0, [])
        await member.acting.shutdown()

    run_simulation(main, seed=1)


def test_the_number_of_living_replicas_follows_the_name_server() -> None:
    async def main(world: SimWorld) -> None:
        member = Member(0, world.clock, totalReplicas=3, skipPreOnline="true")
        acting: ActingMasterService = member.acting
        await acting.go_online()
        assert acting.alive_replicas == 3
        await member.see(0, 2)
        assert acting.alive_replicas == 2

    run_simulation(main, seed=1)
