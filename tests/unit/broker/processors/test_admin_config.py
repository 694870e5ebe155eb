"""Settings shown and changed, and what the broker tells of itself."""

from pathlib import PurePath

import pytest

from maxq.broker.stats.names import TOPIC_PUT_NUMS
from maxq.config.properties import parse_properties
from tests.unit.broker.broker_world import BrokerWorld, parsed


async def test_all_settings_are_shown_by_rocketmq_s_names() -> None:
    answer = await BrokerWorld().call(26)
    shown = parse_properties(answer.body_bytes)
    assert shown["brokerName"] == "broker-w"
    assert shown["brokerPermission"] == "6"
    assert shown["fileReservedTime"] == "72"
    assert {"liteTtlCheckInterval", "listenPort", "flushDiskType"} <= set(shown)
    assert answer.ext["version"].startswith('{"counter":0,"stateVersion":0,"timestamp":')


async def test_a_live_setting_changes_at_once_and_is_written_back() -> None:
    path = "/etc/broker.conf"
    world = BrokerWorld({"brokerConfigPath": path})
    world.disk.make_dirs(PurePath("/etc"))
    world.disk.write(PurePath(path), b"# mine\nbrokerName=broker-w\nlongPollingEnable=true\n")
    assert (await world.call(25, None, b"longPollingEnable=false\ndefaultTopicQueueNums=4\n")).code == 0
    assert world.settings.broker.long_polling_enable is False
    text = world.disk.read(PurePath(path)).decode()
    assert text == "# mine\nbrokerName=broker-w\nlongPollingEnable=false\ndefaultTopicQueueNums=4\n"
    assert (await world.call(26)).ext["version"].startswith('{"counter":1,')


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        (b"brokerName=other\n", 16, "brokerName can not change while the server runs"),
        (b"rocketmqHome=/tmp/x\n", 16, "rocketmqHome"),
        (b"brokerConfigPath=/tmp/x\n", 16, "configBlackList"),
        (b"noSuchSetting=1\n", 16, "unknown setting noSuchSetting"),
        (b"defaultTopicQueueNums=0\n", 1, "defaultTopicQueueNums='0' is not allowed"),
    ],
)
async def test_anything_else_is_refused_by_name_and_nothing_changes(text: bytes, code: int, remark: str) -> None:
    world = BrokerWorld()
    answer = await world.call(25, None, b"longPollingEnable=false\n" + text)
    assert answer.code == code
    assert remark in (answer.remark or "")
    assert world.settings.broker.long_polling_enable is True


async def test_a_broker_without_a_settings_file_says_that_a_change_ends_with_it() -> None:
    world = BrokerWorld()
    remark = "in effect until this broker ends: it was started without a settings file"
    answer = await world.call(25, None, b"longPollingEnable=false\n")
    assert (answer.code, answer.remark) == (0, remark)
    assert (await world.call(25, None, b"longPollingEnable=false\n")).remark is None, "nothing is changed"


async def test_no_body_changes_nothing() -> None:
    assert (await BrokerWorld().call(25)).code == 0


async def test_another_permission_is_registered_under_a_new_version() -> None:
    world = BrokerWorld()
    version = world.topics.data_version
    await world.call(25, None, b"brokerPermission=4\n")
    assert world.registrations == 1
    assert world.topics.data_version.counter == version.counter + 1
    await world.call(25, None, b"brokerPermission=4\nlongPollingEnable=false\n")
    assert world.registrations == 1


async def test_a_file_that_cannot_be_written_is_said() -> None:
    world = BrokerWorld({"brokerConfigPath": "/etc/broker.conf"})

    def refuse(path: PurePath, data: bytes) -> None:
        raise OSError("read-only file system")

    world.disk.replace = refuse  # type: ignore[method-assign]
    answer = await world.call(25, None, b"longPollingEnable=false\n")
    assert answer.code == 1
    assert "read-only file system" in (answer.remark or "")
    assert world.settings.broker.long_polling_enable is False


async def test_runtime_info_is_a_table() -> None:
    world = BrokerWorld()
    world.runtime = {"bootTimestamp": "1", "putTps": "0.0 0.0 0.0"}
    assert parsed(await world.call(28)) == {"table": world.runtime}


async def test_statistics_are_shown_by_minute_hour_and_day_and_unknown_ones_are_code_1() -> None:
    world = BrokerWorld()
    world.stats.add(TOPIC_PUT_NUMS, "T", 13)
    await world.stats.sample()
    shown = parsed(await world.call(315, {"statsName": TOPIC_PUT_NUMS, "statsKey": "T"}))
    assert shown["statsMinute"]["sum"] == 13
    assert set(shown) == {"statsMinute", "statsHour", "statsDay"}
    assert set(shown["statsDay"]) == {"avgpt", "sum", "tps"}
    unknown = await world.call(315, {"statsName": TOPIC_PUT_NUMS, "statsKey": "U"})
    assert (unknown.code, unknown.remark) == (1, "The stats <TOPIC_PUT_NUMS> <U> not exist")
