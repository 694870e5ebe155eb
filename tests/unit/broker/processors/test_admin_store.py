"""The store cleaned and looked into; requests of features that are not built yet."""

import pytest

from maxq.protocol.body.ha_runtime_info import HAConnectionRuntimeInfo
from maxq.protocol.message.java_hash import java_hash
from tests.unit.broker.broker_world import BrokerWorld, FakeConnection, parsed


async def test_cleaning_is_started() -> None:
    world = BrokerWorld()
    assert (await world.call(306)).code == 0
    assert (await world.call(329)).code == 0
    assert [name for name, _ in world.store.calls] == ["clean_expired_consume_queues", "request"]


UNITS = {"topic": "T", "queueId": "0", "index": "1", "count": "2"}


async def test_units_of_a_queue_are_shown_from_an_index_on() -> None:
    world = BrokerWorld()
    world.store.fill("T", 0, [1000] * 5)
    value = parsed(await world.call(321, UNITS))
    assert (value["minQueueIndex"], value["maxQueueIndex"]) == (0, 5)
    assert value["queueData"] == [
        {"eval": False, "physicOffset": 100, "physicSize": 100, "tagsCode": 2},
        {"eval": False, "physicOffset": 200, "physicSize": 100, "tagsCode": 1},
    ]


async def test_units_are_held_against_the_subscription_of_a_group() -> None:
    world = BrokerWorld()
    world.store.fill("T", 0, [1000] * 5)
    offline = parsed(await world.call(321, {**UNITS, "consumerGroup": "G"}))
    assert offline["filterData"] == "G@T is not online!"
    await world.heartbeat(FakeConnection(), "c1")
    info = world.consumers.get_consumer_group_info("G")
    assert info is not None
    info.subscription_table["T"].tags_set = {"\x01"}
    info.subscription_table["T"].sub_string = "\x01"
    info.subscription_table["T"].code_set = {java_hash("\x01")}
    value = parsed(await world.call(321, {**UNITS, "consumerGroup": "G"}))
    assert [row["eval"] for row in value["queueData"]] == [False, True]
    world.notifier.close()


async def test_an_empty_queue_and_an_index_outside_are_named() -> None:
    world = BrokerWorld()
    missing = await world.call(321, UNITS)
    assert (missing.code, missing.remark) == (1, "0@T is not exist!")
    world.store.fill("T", 0, [1000])
    outside = await world.call(321, UNITS)
    assert (outside.code, outside.remark) == (0, "Index 1 of 0@T is not exist!")


async def test_how_replication_stands_is_told_in_javas_form() -> None:
    world = BrokerWorld()
    world.ha_status.master = True
    world.ha_status.master_commit_log_max_offset = 16910
    world.ha_status.in_sync_slave_nums = 1
    world.ha_status.ha_connection_info.append(
        HAConnectionRuntimeInfo(
            addr="10.0.0.2:40000",
            slave_ack_offset=16900,
            diff=10,
            in_sync=True,
            transferred_byte_in_second=512,
            transfer_from_where=16910,
        )
    )
    assert parsed(await world.call(907)) == {
        "haClientRuntimeInfo": {
            "lastReadTimestamp": 0, "lastWriteTimestamp": 0, "masterFlushOffset": 0, "maxOffset": 0,
            "transferredByteInSecond": 0,
        },
        "haConnectionInfo": [
            {"addr": "10.0.0.2:40000", "diff": 10, "inSync": True, "slaveAckOffset": 16900,
             "transferFromWhere": 16910, "transferredByteInSecond": 512},
        ],
        "inSyncSlaveNums": 1,
        "master": True,
        "masterCommitLogMaxOffset": 16910,
    }  # fmt: skip


async def test_thresholds_of_cold_reads_are_kept_and_shown() -> None:
    world = BrokerWorld()
    assert (await world.call(2001, None, b"G=1048576\nH=5\n")).code == 0
    refused = await world.call(2001, None, b"I=1\nG=much\n")
    assert refused.code == 29
    assert (await world.call(2002, None, b"H")).code == 0
    info = parsed(await world.call(2003))
    assert info["configTable"] == {"G": 1048576}
    assert (info["runtimeTable"], info["cgColdReadThreshold"]) == ({}, 3145728)


@pytest.mark.parametrize(("mode", "code"), [("0", 0), ("1", 0), ("2", 29), ("x", 29)])
async def test_the_read_mode_is_0_or_1(mode: str, code: int) -> None:
    assert (await BrokerWorld().call(2004, {"READ_AHEAD_MODE": mode})).code == code


LATER = [
    354, 355, 902, 903, 1007, 1008,
    200070, 200071, 200072, *range(200074, 200080),
]  # fmt: skip


@pytest.mark.parametrize("code", LATER)
async def test_features_of_later_releases_are_refused_by_name(code: int) -> None:
    answer = await BrokerWorld().call(code)
    assert answer.code == 3
    assert f"request type {code} not supported" in (answer.remark or "")
    assert "which MaxQ does not have" in (answer.remark or "")


def test_every_code_of_the_administration_has_a_handler() -> None:
    handled = set(BrokerWorld().handlers)
    needed = {
        14, 15, 17, 18, 21, 25, 26, 28, 29, 30, 31, 32, 34, 35, 38, 41, 42, 43, 45, 46, 60, 61, 200, 201, 202, 203, 204,
        207, 208, 215, 222, 223, 225, 300, 303, 305, 306, 307, 308, 309, 314, 315, 316, 317, 321, 328, 329, 343, 345,
        351, 352, 353, 400, 401, 402, 907, 2001, 2002, 2003, 2004,
    }  # fmt: skip
    assert needed <= handled
