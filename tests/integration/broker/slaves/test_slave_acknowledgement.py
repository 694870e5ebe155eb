"""What the answer to a send promises when the group has a slave (HA-09): brokers of one process on real sockets."""

import asyncio

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import SendMessageResponseHeader
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until
from tests.integration.broker.transactions.transaction_world import COMMIT, TransactionClient, half_of
from tests.integration.broker.waiting.test_timer import recall

SLAVE_TIMEOUT_MS = 200


async def start_master(start_broker: Start, namesrv: str, **settings: object) -> RunningBroker:
    given = {"brokerRole": "SYNC_MASTER", "slaveTimeout": SLAVE_TIMEOUT_MS, **settings}
    master = await start_broker("master", namesrvAddr=namesrv, **given)
    master.create_topic("T", queues=1)
    return master


async def start_slave(start_broker: Start, namesrv: str, broker_id: int = 1) -> RunningBroker:
    slave = await start_broker(f"slave-{broker_id}", namesrvAddr=namesrv, brokerRole="SLAVE", brokerId=broker_id)
    await until(lambda: slave.controller.ha_service.is_client_connected)
    return slave


async def test_a_topic_is_promised_when_a_slave_has_it_whose_log_has_joined(start_broker: Start, namesrv: str) -> None:
    """Also while that slave does not ask for changes: its master was away a moment ago."""
    master = await start_master(start_broker, namesrv)
    slave = await start_slave(start_broker, namesrv)
    ha = master.controller.ha_service
    await until(lambda: ha.table_copies == 1)
    first = ha.connections
    ext = {"topic": "Promised", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
           "topicFilterType": "SINGLE_TAG"}  # fmt: skip
    made = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
    await slave.controller.slave_synchronize.stop()
    await master.controller.server.close_all("the test")
    await until(lambda: ha.table_copies == 1 and ha.connections != first)  # linked anew
    refused = await master.invoke(made)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert not slave.controller.topics.contains_topic("Promised")


#: A send without the property takes the fast path, one with it the slow path.
WAYS: list[dict[str, str]] = [{}, {"DELAY": "0"}]


@pytest.mark.parametrize("properties", WAYS)
async def test_an_acknowledged_send_is_on_the_slave(
    start_broker: Start, namesrv: str, properties: dict[str, str]
) -> None:
    master = await start_master(start_broker, namesrv, slaveTimeout=5000)
    slave = await start_slave(start_broker, namesrv)
    for i in range(20):
        assert (await master.send("T", b"m%d" % i, **properties)).code == ResponseCode.SUCCESS
        assert slave.controller.store.max_physical_offset == master.controller.store.max_physical_offset
    assert slave.controller.store.max_offset("T", 0) == 20


@pytest.mark.parametrize("properties", WAYS)
async def test_without_a_slave_the_send_is_stored_and_told_that_no_slave_has_it(
    start_broker: Start, namesrv: str, properties: dict[str, str]
) -> None:
    master = await start_master(start_broker, namesrv)
    answer = await master.send("T", b"alone", **properties)
    assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert answer.ext["queueOffset"] == "0" and answer.ext["msgId"]
    assert [message.body for message in await master.pull_messages("T")] == [b"alone"]


async def test_without_a_slave_no_recall_and_no_end_of_a_transaction_is_promised(
    start_broker: Start, namesrv: str
) -> None:
    master = await start_master(start_broker, namesrv, recallMessageEnable="true", timerPrecisionMs="100")
    client = TransactionClient(master)
    timed = await master.send("T", b"timed", TIMER_DELAY_MS="60000", UNIQ_KEY="timed")
    handle = SendMessageResponseHeader.decode(timed.ext).recall_handle or ""
    recalled = await recall(master, handle)
    half = await master.send("T", b"half", sys_flag=4, TRAN_MSG="true", PGROUP="PG")
    assert half.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    half.code = 0
    ended = await client.end(half_of(half), COMMIT)
    assert (recalled.code, ended.code) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT)
    assert "delivered all the same" in (recalled.remark or "") and "asked again" in (ended.remark or "")


async def test_two_slaves_are_waited_for_if_three_copies_are_asked_for(start_broker: Start, namesrv: str) -> None:
    master = await start_master(start_broker, namesrv, inSyncReplicas=3, totalReplicas=3)
    first = await start_slave(start_broker, namesrv)
    assert (await master.send("T", b"one")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    # Both are 127.0.0.1 here, which counts once: two connections of a host may be one slave's.
    stores = [broker.controller.store for broker in (first, master)]
    await until(lambda: stores[0].max_physical_offset == stores[1].max_physical_offset)


@pytest.mark.parametrize("settings", [{"brokerRole": "ASYNC_MASTER"}, {"inSyncReplicas": 1}])
async def test_nobody_is_waited_for_by_an_async_master_or_if_one_copy_is_enough(
    start_broker: Start, namesrv: str, settings: dict[str, object]
) -> None:
    master = await start_master(start_broker, namesrv, **{"slaveTimeout": 60_000, **settings})
    assert (await master.send("T", b"x")).code == ResponseCode.SUCCESS


async def test_a_sender_that_does_not_want_to_wait_does_not(start_broker: Start, namesrv: str) -> None:
    master = await start_master(start_broker, namesrv, slaveTimeout=60_000)
    assert (await master.send("T", b"x", WAIT="false")).code == ResponseCode.SUCCESS


async def test_a_slave_that_comes_while_a_send_waits_lets_it_go(start_broker: Start, namesrv: str) -> None:
    master = await start_master(start_broker, namesrv, slaveTimeout=60_000)
    waiting = asyncio.create_task(master.send("T", b"x"))
    await until(lambda: master.controller.store.max_physical_offset > 0)
    await start_slave(start_broker, namesrv)
    assert (await waiting).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("properties", WAYS)
async def test_a_master_that_ends_answers_who_waits_for_slaves(
    start_broker: Start, namesrv: str, properties: dict[str, str]
) -> None:
    master = await start_master(start_broker, namesrv)
    waiting = asyncio.create_task(master.send("T", b"x", **properties))
    await until(lambda: master.controller.store.max_physical_offset > 0)
    await master.controller.shutdown()
    assert (await waiting).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
