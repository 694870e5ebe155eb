"""Messages with a delay level: where they wait, when they come, what survives a restart."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from maxq.broker.controller import BrokerController
from maxq.broker.slave.replicated_config_files import ReplicatedConfigFiles
from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import Message, encode_batch
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until

SHORT = "1s 1s 2s 1h"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def delivered(controller: BrokerController, topic: str, queue_id: int = 0) -> list[bytes]:
    store = controller.store
    bodies = []
    for offset in range(store.max_offset(topic, queue_id)):
        ((physical_offset, _, _),) = store.queue_units(topic, queue_id, offset, 1)
        record = store.look_message_by_offset(physical_offset)
        assert record is not None
        bodies.append(bytes(record.body))
    return bodies


async def test_message_comes_when_its_level_is_over_and_not_before(start_broker: Start) -> None:
    broker = await start_broker(messageDelayLevel=SHORT)
    broker.create_topic("T")
    reply = await broker.invoke(broker.send_request("T", b"later", queue_id=2, DELAY="1", TAGS="A"))
    assert (reply.code, reply.ext["queueId"], reply.ext["queueOffset"]) == (0, "2", "0")
    store = broker.controller.store
    assert store.max_offset("T", 2) == 0
    ((physical_offset, _, due_ms),) = store.queue_units(SCHEDULE, 0, 0, 1)
    waiting = store.look_message_by_offset(physical_offset)
    assert waiting is not None
    assert due_ms == waiting.store_timestamp + 1000
    await until(lambda: store.max_offset("T", 2) == 1)
    (came,) = await broker.pull_messages("T", queue_id=2)
    assert 1000 <= came.store_timestamp - waiting.store_timestamp < 5000
    assert (came.body, came.tags, came.reconsume_times) == (b"later", "A", 0)
    assert came.properties == waiting.properties  # as Java stores it: DELAY, REAL_TOPIC and REAL_QID stay
    assert (came.born_timestamp, came.born_host, came.store_host) == (
        waiting.born_timestamp, waiting.born_host, waiting.store_host,
    )  # fmt: skip


@pytest.mark.parametrize(("asked", "stored"), [("4", 3), ("99", 3)])
async def test_level_above_the_last_is_the_last(start_broker: Start, asked: str, stored: int) -> None:
    broker = await start_broker(messageDelayLevel=SHORT)
    broker.create_topic("T")
    await broker.send("T", b"x", DELAY=asked)
    assert broker.controller.store.max_offset(SCHEDULE, stored) == 1


@pytest.mark.parametrize("level", ["0", "-1", "soon"])
async def test_no_level_is_no_delay(broker: RunningBroker, level: str) -> None:
    broker.create_topic("T")
    await broker.send("T", b"x", DELAY=level)
    assert broker.controller.store.max_offset("T", 0) == 1


async def test_order_of_a_level_is_kept_and_levels_do_not_wait_for_each_other(start_broker: Start) -> None:
    broker = await start_broker(messageDelayLevel=SHORT)
    broker.create_topic("T")
    await broker.send("T", b"slow", DELAY="3")
    for number in range(300):
        await broker.send("T", b"%d" % number, DELAY="1")
    await until(lambda: broker.controller.store.max_offset("T", 0) == 301)
    bodies = delivered(broker.controller, "T")
    assert bodies[0] == b"0", "sent after the slow one, and due a second before it"
    bodies.remove(b"slow")
    assert bodies == [b"%d" % number for number in range(300)]


async def test_what_waits_survives_a_restart_and_comes_once(start_broker: Start) -> None:
    first = await start_broker(messageDelayLevel=SHORT)
    first.create_topic("T")
    await first.send("T", b"before", DELAY="1")
    await until(lambda: first.controller.store.max_offset("T", 0) == 1)
    await first.send("T", b"after", DELAY="3")
    await first.send("T", b"much later", DELAY="4")
    await first.stop()
    table = json.loads((first.folder / "config" / "delayOffset.json").read_bytes())
    assert (table["offsetTable"]["1"], table["offsetTable"].get("3", 0)) == (1, 0)
    second = await start_broker(messageDelayLevel=SHORT)
    await until(lambda: second.controller.store.max_offset("T", 0) == 2)
    assert delivered(second.controller, "T") == [b"before", b"after"]
    info = json.loads((await second.invoke(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))).body_bytes)["table"]
    assert (info["scheduleMessageOffset_1"], info["scheduleMessageOffset_3"]) == ("1,1", "1,1")


async def test_slaves_are_told_how_far_delivery_is(start_broker: Start) -> None:
    broker = await start_broker(messageDelayLevel=SHORT)
    broker.create_topic("T")
    await broker.send("T", b"x", DELAY="1")
    await until(lambda: broker.controller.store.max_offset("T", 0) == 1)
    answer = await broker.invoke(RemotingCommand(RequestCode.GET_ALL_DELAY_OFFSET))
    table = json.loads(answer.body_bytes)
    assert table["offsetTable"] == {"1": 1}
    assert table["physicalOffset"] == broker.controller.store.max_physical_offset


async def test_sync_flush_delivers_too_and_writes_the_table_after_the_log(start_broker: Start) -> None:
    broker = await start_broker(messageDelayLevel=SHORT, flushDiskType="SYNC_FLUSH", flushDelayOffsetInterval=20)
    broker.create_topic("T")
    await broker.send("T", b"x", DELAY="1")
    store = broker.controller.store
    file = broker.folder / "config" / "delayOffset.json"
    await until(lambda: file.exists() and json.loads(file.read_bytes())["offsetTable"].get("1") == 1)
    assert json.loads(file.read_bytes())["physicalOffset"] <= store.flushed_offset
    assert delivered(broker.controller, "T") == [b"x"]


async def test_deliveries_after_the_last_write_of_the_file_are_not_repeated(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after kill -9: the log has them, the file does not."""
    first = await start_broker(messageDelayLevel=SHORT)
    first.create_topic("T")
    for number in range(20):
        await first.send("T", b"%d" % number, DELAY=str(1 + number % 2))
    await until(lambda: first.controller.store.max_offset("T", 0) == 20)
    await first.send("T", b"next", DELAY="1")
    monkeypatch.setattr(
        "maxq.broker.slave.replicated_config_files.ReplicatedConfigFiles.write_delay_offsets", lambda *_: True
    )
    await first.stop()
    assert not (first.folder / "config" / "delayOffset.json").exists()
    monkeypatch.undo()
    second = await start_broker(messageDelayLevel=SHORT)
    await until(lambda: second.controller.store.max_offset("T", 0) >= 21)
    assert len(delivered(second.controller, "T")) == 21
    assert sorted(set(delivered(second.controller, "T"))) == sorted(delivered(second.controller, "T"))


async def test_damaged_table_is_made_anew_from_the_log(start_broker: Start) -> None:
    first = await start_broker(messageDelayLevel=SHORT)
    first.create_topic("T")
    await first.send("T", b"one", DELAY="1")
    await until(lambda: first.controller.store.max_offset("T", 0) == 1)
    await first.send("T", b"two", DELAY="2")
    await first.stop()
    for name in ("delayOffset.json", "delayOffset.json.bak"):
        (first.folder / "config" / name).write_bytes(b"{ not json")
    second = await start_broker(messageDelayLevel=SHORT)
    await until(lambda: second.controller.store.max_offset("T", 0) == 2)
    assert delivered(second.controller, "T") == [b"one", b"two"]


@pytest.mark.parametrize("name", ["delayOffset.json", "delayOffset.json.bak"])
async def test_a_table_that_cannot_be_read_ends_the_broker_with_what_to_do(start_broker: Start, name: str) -> None:
    first = await start_broker(messageDelayLevel=SHORT)
    await first.stop()
    config = first.folder / "config"
    (config / "delayOffset.json").unlink(missing_ok=True)
    (config / name).mkdir()
    second, told = RunningBroker(first.folder, {"messageDelayLevel": SHORT}), list[str]()
    second.controller.set_failure_listener(lambda service, error: told.append(f"{service}: {error}"))
    await second.start()
    await until(lambda: told != [])
    assert f"config/{name}" in told[0] and "move it away: then the log is searched" in told[0]
    await second.stop()


async def test_offset_outside_its_queue_is_moved_into_it(start_broker: Start) -> None:
    first = await start_broker(messageDelayLevel=SHORT)
    first.create_topic("T")
    await first.stop()
    (first.folder / "config" / "delayOffset.json").write_text('{"offsetTable":{1:500,"2":-3}}')
    second = await start_broker(messageDelayLevel=SHORT)
    await second.send("T", b"x", DELAY="1")
    await second.send("T", b"y", DELAY="2")
    await until(lambda: second.controller.store.max_offset("T", 0) == 2)


async def test_message_that_comes_while_the_table_is_read_is_not_taken_for_delivered(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table says that more was delivered than the log has, as after a power loss of a Java broker."""
    first = await start_broker(messageDelayLevel=SHORT)
    first.create_topic("T")
    await first.stop()
    (first.folder / "config" / "delayOffset.json").write_text('{"offsetTable":{1:500}}')
    arrived, read = threading.Event(), ReplicatedConfigFiles.read_delay_offsets

    def slow_read(files: ReplicatedConfigFiles, backup: bool = False) -> bytes | None:
        assert arrived.wait(10)
        return read(files, backup)

    monkeypatch.setattr(ReplicatedConfigFiles, "read_delay_offsets", slow_read)
    second = await start_broker(messageDelayLevel=SHORT)
    await second.send("T", b"x", DELAY="1")
    arrived.set()
    await until(lambda: second.controller.store.max_offset("T", 0) == 1)


async def test_message_that_cannot_be_delivered_harms_only_itself(start_broker: Start) -> None:
    broker = await start_broker(messageDelayLevel=SHORT)
    broker.create_topic("T")
    controller = broker.controller
    await broker.send("T", b"a", DELAY="1")
    await broker.send("T", bytes(2000), DELAY="1")
    await broker.send("T", b"b", DELAY="1")
    settings = broker.settings
    settings.store = replace(settings.store, max_message_size=1000)
    controller.store.update_config(settings.store)
    await until(lambda: controller.store.max_offset("T", 0) == 2)
    assert delivered(controller, "T") == [b"a", b"b"]
    assert controller.delayed.service.given_up == 1


async def test_batch_with_a_delayed_message_is_refused(broker: RunningBroker) -> None:
    broker.create_topic("T")
    body = encode_batch([Message("T", b"1", {"DELAY": "3"})])
    reply = await broker.invoke(broker.send_request("T", body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True))
    assert reply.code == 13
    assert "DELAY=3" in (reply.remark or "")


@pytest.mark.parametrize(("levels", "level"), [(SHORT, 3), ("1s " * 19 + "3s", 20)])
async def test_levels_that_the_table_no_longer_has_are_delivered_when_they_are_due(
    start_broker: Start, levels: str, level: int
) -> None:
    first = await start_broker(messageDelayLevel=levels)
    first.create_topic("T")
    await first.send("T", b"the last level", DELAY=str(level))
    await first.stop()
    second = await start_broker(messageDelayLevel="1s")
    await until(lambda: second.controller.store.max_offset("T", 0) == 1)
    (came,) = await second.pull_messages("T")
    assert came.store_timestamp - came.born_timestamp >= 1000


async def test_table_may_have_more_levels_than_java_has(start_broker: Start) -> None:
    broker = await start_broker(messageDelayLevel=" ".join(["1s"] * 20))
    broker.create_topic("T")
    await broker.send("T", b"twentieth", DELAY="20")
    await until(lambda: broker.controller.store.max_offset("T", 0) == 1)


async def test_what_is_passed_over_is_written_down_before_it_is_too_much_to_be_told_from_the_log(
    start_broker: Start,
) -> None:
    """A start after a kill looks only so far behind a message that was not delivered for one that was."""
    first = await start_broker(messageDelayLevel="1s")
    first.create_topic("T")
    for _ in range(40):
        await first.send("T", bytes(3_000), DELAY="1")
    await first.stop()
    second = await start_broker(messageDelayLevel="1s", maxMessageSize=2048, flushDelayOffsetInterval=3_600_000)
    file = second.folder / "config" / "delayOffset.json"
    await until(lambda: file.exists() and json.loads(file.read_bytes())["offsetTable"].get("1", 0) >= 32)


async def test_delayed_messages_that_went_with_the_log_are_counted_in_the_log(
    start_broker: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker(messageDelayLevel=SHORT)
    broker.create_topic("T")
    await broker.send("T", b"came", DELAY="1")
    await until(lambda: broker.controller.store.max_offset("T", 0) == 1)
    for number in range(3):
        await broker.send("T", b"%d" % number, DELAY="4")
    await broker.send("T", bytes(600_000))
    await broker.send("T", bytes(600_000), DELAY="4")
    await broker.stop()
    table = json.loads((tmp_path / "store/config/delayOffset.json").read_text())
    (tmp_path / "store/commitlog" / f"{0:020d}").unlink()
    (tmp_path / "store/config/delayOffset.json").write_text(json.dumps({**table, "offsetTable": {"1": 1, "4": 0}}))
    broker = await start_broker(messageDelayLevel=SHORT)
    await until(lambda: broker.controller.delayed.service.is_running)
    await until(lambda: "delay level 4" in caplog.text)
    assert "up to 3 messages of delay level 4 (3600 s; queue offsets 0 to 2) are lost" in caplog.text
    assert "delay level 1 " not in caplog.text
