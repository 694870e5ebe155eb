"""905, 906 and 908 of a broker."""

import asyncio
import inspect

import pytest

from maxq.broker.failover.group_processor import BrokerGroupProcessor
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.admin import ExchangeHAInfoHeader
from maxq.testing.sim_clock import SimClock
from tests.unit.broker.broker_world import FakeConnection, connection
from tests.unit.broker.failover.group_world import INIT_MAX_OFFSET, MASTER, MASTER_HA, SLAVE_1, Member

TOLD = ExchangeHAInfoHeader(MASTER_HA, 500, MASTER)


async def ask(member: Member, code: RequestCode, ext: dict[str, str] | None = None) -> RemotingCommand:
    processor = BrokerGroupProcessor(member.own, member.acting, member.link)
    answer = processor.routes()[code](connection(FakeConnection()), RemotingCommand(code, ext or {}))
    if inspect.isawaitable(answer):
        answer = await answer
    assert isinstance(answer, RemotingCommand)
    return answer


async def test_a_master_says_where_it_replicates_from_and_takes_no_orders() -> None:
    master = Member(0)
    answer = await ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO)
    assert answer.code == ResponseCode.SUCCESS
    assert ExchangeHAInfoHeader.decode(answer.ext) == ExchangeHAInfoHeader(MASTER_HA, INIT_MAX_OFFSET, MASTER)
    await ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO, TOLD.encode())
    assert (master.ha.log, master.sync.master_address) == ([], "")
    await master.acting.shutdown()
    refused = await ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO)
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE, "its slave may act at once"


async def test_a_master_says_whether_it_is_active() -> None:
    master = Member(0, None, totalReplicas=2)
    master.api.members, master.ha.copying = {1: SLAVE_1}, {"10.0.0.2"}
    for is_active in ("false", "true"):
        answer = await ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO)
        assert answer.ext["maxqIsActive"] == is_active
        await master.acting.go_online()


async def test_a_master_that_stood_still_does_not_say_that_it_is_active() -> None:
    clock = SimClock()
    master = Member(0, clock, brokerNotActiveTimeoutMillis=10_000)
    await master.acting.go_online()
    for ms, is_active in ((0, "true"), (20_000, "false")):
        clock.advance_ms(ms)
        answer = await ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO)
        assert answer.ext["maxqIsActive"] == is_active


FROM_SLAVE = {"maxqBrokerName": "broker-a", "maxqSlaveId": "1", "maxqSlaveAddress": SLAVE_1}


async def stands_back(master: Member) -> str:
    answer = await ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO, {**FROM_SLAVE, "maxqStandBack": "true"})
    return answer.ext["maxqStandsBack"]


async def test_a_master_stands_back_if_no_name_server_knows_it_and_comes_back_when_one_does() -> None:
    clock = SimClock()
    master = Member(0, clock, totalReplicas=2, skipPreOnline="true")
    await master.acting.go_online()
    await master.see(0, 1)
    assert (await stands_back(master), master.acting.doubt()) == ("false", None)
    clock.advance_ms(2_500)
    await master.see(1)
    assert await stands_back(master) == "true"
    for knows_it in (False, True):
        assert (master.switch.log[-1], master.acting.doubt() is None) == ("stop", False)
        if knows_it:
            await master.see(0, 1)
        await master.acting.look()
    assert (master.switch.log[-1], master.acting.doubt()) == ("start", None)


async def test_a_master_is_sure_of_its_role_while_all_its_slaves_return_its_stamps() -> None:
    clock = SimClock()
    master = Member(0, clock, totalReplicas=2, skipPreOnline="true", brokerNotActiveTimeoutMillis=60_000)
    await master.acting.go_online()
    for _ in range(10):
        stamp = (await ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO, FROM_SLAVE)).ext["maxqStamp"]
        clock.advance_ms(1_000)
        assert master.acting.doubt() is None
        await ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO, {**FROM_SLAVE, "maxqStamp": stamp})
    for useless in (stamp, "1" + stamp, "9" * 30, "1.x", "."):
        clock.advance_ms(1_000)
        await ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO, {**FROM_SLAVE, "maxqStamp": useless})
    assert master.acting.doubt() is not None


async def test_a_master_that_was_cut_off_begins_its_services_anew_whether_a_slave_has_acted_or_not() -> None:
    for has_acted in (False, True):
        clock = SimClock()
        master = Member(0, clock, totalReplicas=2, brokerNotActiveTimeoutMillis=60_000)
        master.api.members, master.ha.copying = {0: MASTER, 1: SLAVE_1}, {"10.0.0.2"}
        master.metadata.has_acted = has_acted
        await master.acting.go_online()
        clock.advance_ms(10_000)
        await master.see(0, 1)
        assert "asks first" in (master.acting.doubt() or "")
        await master.acting.look()
        assert (master.switch.log, master.acting.doubt()) == (["stop", "start"] * 2, None)


async def test_a_master_that_prepares_notes_which_slaves_ask_it() -> None:
    master = Member(0, None, totalReplicas=2)
    master.api.members = None
    preparing = asyncio.ensure_future(master.acting.go_online())
    await asyncio.sleep(0)
    await ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO)  # RocketMQ's
    ext = {"maxqBrokerName": "broker-b", "maxqSlaveId": "2", "maxqSlaveAddress": "10.0.0.9:10911"}
    answer = await ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO, ext)
    assert answer.ext == {}, "its master had this address, and is gone"
    ext = {"maxqBrokerName": "broker-a", "maxqSlaveId": "1", "maxqSlaveAddress": SLAVE_1}
    await ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO, ext)
    master.ha.copying = {"10.0.0.2"}
    await preparing
    assert master.metadata.taken == [SLAVE_1]


@pytest.mark.parametrize(("wanted", "offset"), [("true", 500), ("false", 0)])
async def test_a_slave_takes_what_its_master_tells(wanted: str, offset: int) -> None:
    slave = Member(1, None, syncMasterFlushOffsetWhenStartup=wanted)
    answer = await ask(slave, RequestCode.EXCHANGE_BROKER_HA_INFO, TOLD.encode())
    assert answer.ext == {}
    assert (slave.ha.log, slave.sync.master_address) == ([MASTER_HA], MASTER)
    assert slave.store.checkpoint.master_flushed_offset == offset


async def test_a_slave_that_is_told_less_keeps_what_it_knows() -> None:
    slave = Member(1, None, syncMasterFlushOffsetWhenStartup="true")
    slave.sync.master_address = MASTER
    await ask(slave, RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoHeader(MASTER_HA).encode())
    assert (slave.ha.log, slave.sync.master_address) == ([MASTER_HA], MASTER)
    assert slave.store.checkpoint.writes == 0


async def test_a_slave_has_no_ha_information_to_give_and_says_that_it_lives() -> None:
    slave = Member(1)
    assert (await ask(slave, RequestCode.EXCHANGE_BROKER_HA_INFO)).ext == {}
    answer = await ask(slave, RequestCode.EXCHANGE_BROKER_HA_INFO, {"maxqBrokerName": "broker-b"})
    assert answer.ext == {"maxqBrokerName": "broker-a"}
    assert slave.ha.log == []
    slave.ha.is_apart = True
    refused = await ask(slave, RequestCode.EXCHANGE_BROKER_HA_INFO, {"maxqBrokerName": "broker-a"})
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE, "it acts for nobody"
    slave.services.change(True)
    answer = await ask(slave, RequestCode.EXCHANGE_BROKER_HA_INFO, {"maxqBrokerName": "broker-a"})
    assert answer.code == ResponseCode.SUCCESS, "it has yet to leave the group to another"
    slave.ha.is_apart = False
    await slave.acting.shutdown()
    refused = await ask(slave, RequestCode.EXCHANGE_BROKER_HA_INFO)
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE, "the next slave may act at once"


async def test_a_notice_of_a_new_smallest_id_is_followed() -> None:
    slave = Member(1)
    await slave.acting.go_online()
    await slave.see(0, 1)
    ext = {"minBrokerId": "1", "minBrokerAddr": "10.0.0.2:10911", "offlineBrokerAddr": MASTER}
    await ask(slave, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext)
    assert slave.acting.is_acting_master
    for says_nothing in ({"brokerName": "broker-a"}, {"minBrokerId": "0"}):
        await ask(slave, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, says_nothing)
    assert slave.acting.is_acting_master
    back = {"minBrokerId": "0", "minBrokerAddr": MASTER, "haBrokerAddr": "10.0.0.1:999"}
    await ask(slave, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, back)
    assert not slave.acting.is_acting_master
    assert slave.ha.log[1:] == ["", "10.0.0.1:999"]


@pytest.mark.parametrize(("broker_id", "offset"), [(0, 0), (1, 77)])
async def test_the_flush_offset_of_a_slave_can_be_reset(broker_id: int, offset: int) -> None:
    member = Member(broker_id)
    await ask(member, RequestCode.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": "77"})
    assert member.store.checkpoint.master_flushed_offset == offset
    assert member.store.checkpoint.writes == (offset != 0)
