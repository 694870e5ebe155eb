"""Pops in order: one delivery at a time of each queue, attempts, and what a kill leaves."""

import asyncio
import errno
import shutil
from pathlib import Path, PurePath

import pytest

from maxq.broker.pop import pop_service
from maxq.broker.pop.order_info import FILE_NAME as ORDER_FILE
from maxq.broker.pop.pop_service import PopService
from maxq.client.results.pop_result import PopStatus
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.runtime.files.system import SystemDisk
from maxq.store.context.running_flags import DISK_FULL
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until
from tests.integration.broker.pop.pop_world import GROUP, LONG_MS, ack, bodies, change_time, pop, popped
from tests.integration.broker.pop.test_pop_recovery import kill


async def _filled(broker: RunningBroker, count: int = 6) -> None:
    broker.create_topic("T", 1)
    await broker.controller.topics.persisted()
    for number in range(count):
        await broker.send("T", b"%d" % number)


async def _ordered(broker: RunningBroker, attempt: str, **more: object) -> list[bytes]:
    return [message.body for message in await popped(broker, order=True, attempt_id=attempt, **more)]


async def test_a_queue_with_open_messages_is_blocked_but_for_the_same_attempt(broker: RunningBroker) -> None:
    await _filled(broker)
    first = await popped(broker, order=True, attempt_id="a", max_msg_nums=2)
    assert bodies(first) == [b"0", b"1"]
    assert await _ordered(broker, "b") == []
    assert await _ordered(broker, "a", max_msg_nums=2) == [b"0", b"1"]
    again = await popped(broker, order=True, attempt_id="a", max_msg_nums=2)
    assert [message.reconsume_times for message in again] == [0, 0]  # the same attempt is not a new try
    assert (await ack(broker, first[0])).code == 0  # of a delivery before: ignored
    assert broker.controller.offsets.query_offset(GROUP, "T", 0) == 0
    for message in again:
        assert (await ack(broker, message)).code == 0
    assert broker.controller.offsets.query_offset(GROUP, "T", 0) == 2
    assert await _ordered(broker, "b", max_msg_nums=2) == [b"2", b"3"]


async def test_an_ack_in_the_middle_moves_the_offset_to_the_first_hole(broker: RunningBroker) -> None:
    await _filled(broker)
    given = await popped(broker, order=True, attempt_id="a", max_msg_nums=3)
    await ack(broker, given[0])
    await ack(broker, given[2])
    assert broker.controller.offsets.query_offset(GROUP, "T", 0) == 1
    given[0].properties["POP_CK"] = given[0].properties["POP_CK"].rpartition(" ")[0] + " 5"
    assert (await ack(broker, given[0])).code == ResponseCode.MESSAGE_ILLEGAL


async def test_what_was_not_acknowledged_comes_again_in_order_and_counted(broker: RunningBroker) -> None:
    await _filled(broker, 3)
    first = await popped(broker, order=True, attempt_id="a", max_msg_nums=2, invisible_time=200)
    again = (await pop(broker, order=True, attempt_id="b", poll_time=20_000)).messages
    assert [message.body for message in again] == [b"0", b"1", b"2"]
    assert [message.reconsume_times for message in again] == [1, 1, 0]
    assert (await change_time(broker, first[0], LONG_MS)).code == ResponseCode.MESSAGE_ILLEGAL
    await ack(broker, again[0])
    assert (await change_time(broker, again[0], LONG_MS)).code == ResponseCode.SUCCESS  # nothing is left to change


async def test_an_ack_wakes_who_waits(broker: RunningBroker) -> None:
    await _filled(broker, 2)
    (message,) = await popped(broker, order=True, attempt_id="a", max_msg_nums=1)
    waiting = asyncio.ensure_future(pop(broker, order=True, attempt_id="b", poll_time=10_000))
    await until(lambda: broker.controller.popping.polling.total == 1)
    await ack(broker, message)
    assert bodies((await waiting).messages) == [b"1"]


async def test_a_changed_time_blocks_until_then(broker: RunningBroker) -> None:
    await _filled(broker, 1)
    (message,) = await popped(broker, order=True, attempt_id="a", invisible_time=LONG_MS)
    reply = await change_time(broker, message, 1_000)
    assert reply.ext["popTime"] == message.properties["POP_CK"].split()[1]
    assert await _ordered(broker, "b") == []
    assert bodies((await pop(broker, order=True, attempt_id="b", poll_time=20_000)).messages) == [b"0"]


async def test_order_survives_a_kill_and_a_stop(start_broker: Start, tmp_path: Path) -> None:
    broker = await start_broker()
    await _filled(broker)
    given = await popped(broker, order=True, attempt_id="a", max_msg_nums=3)
    await ack(broker, given[0])
    successor = await start_broker(kill(broker, tmp_path / "killed"))
    assert await _ordered(successor, "b") == []
    assert await _ordered(successor, "a", max_msg_nums=3) == [b"1", b"2", b"3"]
    await broker.stop()
    text = (tmp_path / "store" / "config" / "consumerOrderInfo.json").read_text()
    assert '"T@G"' in text and '"popTime"' in text
    after_stop = await start_broker()
    assert await _ordered(after_stop, "b") == []
    assert (await ack(after_stop, given[1])).code == 0
    assert (await ack(after_stop, given[2])).code == 0
    assert (await pop(after_stop, order=True, attempt_id="b")).status is PopStatus.FOUND


async def test_an_ack_in_order_is_not_promised_while_the_log_takes_nothing(broker: RunningBroker) -> None:
    await _filled(broker)
    given = await popped(broker, order=True, attempt_id="a", max_msg_nums=2)
    broker.controller.store.flags.set(DISK_FULL, "the disk is full")
    for reply in (await ack(broker, given[0]), await ack(broker, given[0]), await change_time(broker, given[1], 9_000)):
        assert reply.code == ResponseCode.SYSTEM_ERROR and "comes again" in (reply.remark or "")
    broker.controller.store.flags.clear(DISK_FULL)
    assert (await ack(broker, given[0])).code == ResponseCode.SUCCESS


class FullOnce(SystemDisk):
    """Has no room for the next file of deliveries in order."""

    is_full = False

    def replace(self, path: PurePath, data: bytes, *, private: bool = False) -> None:
        if self.is_full and path.name == ORDER_FILE:
            self.is_full = False
            raise OSError(errno.ENOSPC, "no space", str(path))
        super().replace(path, data, private=private)


async def test_deliveries_in_order_survive_a_full_disk_and_a_kill(
    start_broker: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be written is written later, and the journal is needed until then."""
    monkeypatch.setattr(pop_service, "_SAVE_MS", 100)
    disk = FullOnce()
    broker = await start_broker(disk=disk, reviveInterval="50")
    await _filled(broker)
    disk.is_full = True
    given = await popped(broker, order=True, attempt_id="a", max_msg_nums=2)
    assert (await ack(broker, given[0])).code == ResponseCode.SUCCESS
    await until(lambda: not disk.is_full)
    monkeypatch.setattr(pop_service, "_SAVE_MS", 1 << 40)  # no other try before the kill
    file = broker.folder / "config" / ORDER_FILE
    service, turns = broker.controller.popping.service, list[int]()

    def commit_journal() -> None:
        PopService._commit_journal(service)
        turns.append(1)

    monkeypatch.setattr(service, "_commit_journal", commit_journal)
    await until(lambda: len(turns) > 4)
    assert not file.exists()
    broker.controller.offsets.persist()
    successor = await start_broker(kill(broker, tmp_path / "killed"))
    assert await _ordered(successor, "b", max_msg_nums=6) == []  # one message is still out
    assert (await ack(successor, given[1])).code == ResponseCode.SUCCESS
    assert await _ordered(successor, "b", max_msg_nums=1) == [b"2"]


async def test_no_time_that_a_consumer_asks_for_keeps_a_broker_from_starting(
    start_broker: Start, tmp_path: Path
) -> None:
    """It lay beyond 64 bits, which no start reads: the journal's records were passed over, and the file was refused."""
    broker = await start_broker()
    await _filled(broker)
    given = await popped(broker, order=True, attempt_id="a", max_msg_nums=3)
    changed = await change_time(broker, given[0], (1 << 63) - 1)
    assert changed.code == ResponseCode.SUCCESS and int(changed.ext["invisibleTime"]) < 1 << 63
    assert (await ack(broker, given[2])).code == ResponseCode.SUCCESS
    killed = await start_broker(kill(broker, tmp_path / "killed"))
    table = killed.controller.popping.service._orders.table
    await until(lambda: getattr(table.get("T", GROUP, 0), "committed", 0) == 0b100)
    for _ in range(2):  # the file and its backup
        table.is_dirty = True
        await killed.controller.popping.service._save()
    await killed.stop()
    again = await start_broker("killed")
    assert await _ordered(again, "b") == []
    info = again.controller.popping.service._orders.table.get("T", GROUP, 0)
    assert info is not None and info.committed == 0b100


async def test_a_change_of_time_of_a_message_that_was_not_given_out_is_not_kept(broker: RunningBroker) -> None:
    await _filled(broker)
    (given,) = await popped(broker, order=True, attempt_id="a", max_msg_nums=1)
    given.properties["POP_CK"] = given.properties["POP_CK"].rpartition(" ")[0] + " 5"
    assert (await change_time(broker, given, 1_000)).code == ResponseCode.MESSAGE_ILLEGAL
    info = broker.controller.popping.service._orders.table.get("T", GROUP, 0)
    assert info is not None and info.next_visible == {}


async def test_a_topic_that_is_made_again_is_not_blocked_by_what_was_given_of_the_old_one(
    broker: RunningBroker,
) -> None:
    await _filled(broker, 2)
    assert await _ordered(broker, "a") == [b"0", b"1"]
    deleted = await broker.invoke(RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}))
    assert deleted.code == ResponseCode.SUCCESS
    await _filled(broker, 1)
    assert [message.reconsume_times for message in await popped(broker, order=True, attempt_id="b")] == [0]


@pytest.mark.parametrize("sent_before", [0, 2])
async def test_a_late_ack_of_a_deleted_topic_passes_over_no_message_of_the_new_one(
    broker: RunningBroker, sent_before: int
) -> None:
    """It was taken for that of a delivery of which nothing is known any more; the first message was never given."""
    await _filled(broker, 2)
    (old,) = await popped(broker, order=True, attempt_id="a", max_msg_nums=1)
    deleted = await broker.invoke(RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}))
    assert deleted.code == ResponseCode.SUCCESS
    await asyncio.sleep(0.01)
    await _filled(broker, sent_before)
    await ack(broker, old)
    for number in range(sent_before, 2):
        await broker.send("T", b"%d" % number)
    assert await _ordered(broker, "b") == [b"0", b"1"]


@pytest.mark.parametrize("has_tables", [False, True])
async def test_a_receipt_of_a_message_that_was_lost_acknowledges_none_that_has_its_place_since(
    start_broker: Start, tmp_path: Path, has_tables: bool
) -> None:
    """What a loss of power leaves is the log that was flushed, and tables that may be newer. The other message was not
    given to anybody, or was taken for the one that the order file tells of."""
    broker = await start_broker()
    await _filled(broker, 0)
    left = tmp_path / kill(broker, tmp_path / "left")
    await broker.send("T", b"lost")
    (lost,) = await popped(broker, order=True, attempt_id="a")
    await broker.stop()
    if has_tables:
        shutil.rmtree(left / "config")
        shutil.copytree(broker.folder / "config", left / "config")
    successor = await start_broker("left")
    await successor.send("T", b"new")
    await ack(successor, lost)
    assert await _ordered(successor, "b") == [b"new"]
