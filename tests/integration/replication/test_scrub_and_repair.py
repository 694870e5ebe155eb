"""A bit flips in a slave's log: scrub finds it, the range comes again from the master, both logs are equal."""

import asyncio
import errno
import logging
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path, PurePath

import pytest

from maxq.broker.slave.role_service import RoleService
from maxq.codes import ResponseCode
from maxq.errors import LogRangeNotServedError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import decode_records
from maxq.replication.ha import log_maintenance
from maxq.replication.ha.log_fetch import fetch_log
from maxq.replication.ha.log_maintenance import LogMaintenance
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.message_store import MessageStore
from maxq.store.recovery.damage import DamagedRange
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.store_files import StoreFiles
from tests.integration.broker.harness import RunningBroker
from tests.integration.replication.pair import Member, member, until

FILE = 65_536


@asynccontextmanager
async def pair(tmp_path: Path, messages: int = 500) -> AsyncIterator[tuple[Member, Member]]:
    """A master with a log of several files, and a slave that has all of it."""
    async with member(tmp_path / "m", "ASYNC_MASTER") as master:
        end = master.put(messages)
        assert end > 3 * FILE
        async with member(
            tmp_path / "s", "SLAVE", scrub_enable=True, scrub_bytes_per_second=1 << 30, slave_timeout=1
        ) as slave:
            await copied(master, slave)
            yield master, slave


async def copied(master: Member, slave: Member) -> None:
    """The slave has the whole log, which was written from its first byte on."""
    piece = await fetch_log(master.address, 0, master.store.max_physical_offset)
    slave.store.append_from_master(0, memoryview(piece))
    slave.ha.update_master_ha_address(master.address)
    await until(lambda: slave.ha.is_client_connected)
    assert slave.log() == master.log()


def care_of(one: Member, fetch: Callable[[str, int, int], Awaitable[bytes]] = fetch_log) -> LogMaintenance:
    return LogMaintenance(
        one.store, SystemClock(), config=lambda: one.settings.store,
        master_address=lambda: one.ha.client.master_address, fetch=fetch,
    )  # fmt: skip


def record_at(one: Member, number: int) -> tuple[int, int]:
    """(physical offset, size) of the record number `number` of queue 0."""
    queue = one.store.queue("T", 0)
    assert queue is not None
    unit = queue.unit(number)
    assert unit is not None
    return unit[0], unit[1]


def flip(one: Member, physical_offset: int, mask: int = 0x10) -> None:
    file = one.store.commit_log.files.find(physical_offset)
    assert file is not None
    file.view[physical_offset - file.file_from_offset] ^= mask


def check_lines(root: Path) -> list[str]:
    return StoreCheck(StoreFiles(SystemDisk(), PurePath(root))).run().lines()


async def test_a_flipped_bit_is_found_by_file_and_position_and_both_logs_are_equal_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as (master, slave):
        offset, size = record_at(slave, 40)
        flip(slave, offset + 300)
        assert slave.log() != master.log()
        care = care_of(slave)
        assert await care.scrub.check_all() == []
        file = offset - offset % FILE
        assert f"commitlog/{file:020d}: {size} bytes at position {offset - file}" in caplog.text
        assert f"repaired: {size} bytes at physical offset {offset}" in caplog.text
        assert slave.log() == master.log()
        info = care.runtime_info()
        assert (info["scrubDamageFound"], info["scrubDamageLeft"], info["scrubPasses"]) == ("1", "0", "1")
        assert (info["repairedRanges"], info["repairedBytes"], info["refusedRepairs"]) == ("1", str(size), "0")
        assert int(info["scrubCheckedBytes"]) == slave.store.max_physical_offset
    assert check_lines(tmp_path / "s")[0].endswith("no faults")


async def test_a_whole_head_of_a_file_and_its_blank_end_are_repaired(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        for offset in (0, FILE - 700, FILE, 2 * FILE - 900):  # the log's first byte, and around a file's end
            file = slave.store.commit_log.files.find(offset)
            assert file is not None
            start = offset - file.file_from_offset
            file.view[start : min(start + 900, FILE)] = b"\xee" * (min(start + 900, FILE) - start)
        care = care_of(slave)
        assert await care.scrub.check_all() == []
        assert slave.log() == master.log()
        assert care.repair.repaired >= 3


async def test_the_services_find_and_repair_by_themselves_while_messages_come(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        slave.set(scrub_enable=False)
        care = care_of(slave)
        care.start()
        offset, _ = record_at(slave, 10)
        flip(slave, offset + 300)
        slave.set(scrub_enable=True)
        care.config_changed()
        while care.scrub.passes == 0:
            master.put(1)
            await asyncio.sleep(0)
        await until(lambda: slave.store.max_physical_offset == master.store.max_physical_offset)
        assert care.repair.repaired == 1
        assert slave.log() == master.log()
        await care.shutdown()


async def test_what_the_master_has_damaged_too_is_refused_named_once_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as (master, slave):
        offset, size = record_at(slave, 40)
        flip(slave, offset + 300)
        flip(master, offset + 310)
        before = slave.log()
        care = care_of(slave)
        for _ in range(2):
            (left,) = await care.scrub.check_all()
            assert (left.physical_offset, left.size) == (offset, size)
        assert slave.log() == before
        assert "has no valid record at physical offset" in care.repair.last_refusal
        assert [record.getMessage() for record in caplog.records if "not repaired" in record.getMessage()] == [
            f"not repaired: {left}; {care.repair.last_refusal}"
        ]
        assert (care.scrub.found, len(care.scrub.damages), care.repair.refused) == (1, 1, 2)
        flip(master, offset + 310)
        assert await care.scrub.check_all() == []
        assert slave.log() == master.log() and care.scrub.damages == {}


async def test_a_master_only_names_its_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with pair(tmp_path) as (master, _):
        master.set(scrub_enable=True, scrub_bytes_per_second=1 << 30)
        offset, _ = record_at(master, 40)
        flip(master, offset + 300)
        care = care_of(master)
        (left,) = await care.scrub.check_all()
        assert left.physical_offset == offset
        assert "its slaves have these bytes" in caplog.text


async def test_a_repair_that_is_switched_off_or_has_no_master_says_so(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, slave):
        offset, size = record_at(slave, 40)
        damage = DamagedRange(offset - offset % FILE, offset % FILE, size, "a test says so")
        care = care_of(slave)
        slave.set(ha_repair_enable=False)
        assert not await care.repair.repair(damage)
        assert care.repair.last_refusal == "haRepairEnable is false"
        slave.set(ha_repair_enable=True)
        slave.ha.update_master_ha_address("")
        assert not await care.repair.repair(damage)
        assert care.repair.last_refusal == "the master is not known"


async def test_a_range_that_the_master_deleted_is_refused(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        master.set(ha_send_heartbeat_interval=100)
        with master.store.commit_log.without_first() as first:
            first.destroy()
        offset, _ = record_at(slave, 5)
        flip(slave, offset + 300)
        care = care_of(slave)
        (left,) = await care.scrub.check_all()
        assert left.physical_offset == offset
        assert "has deleted that part" in care.repair.last_refusal
        assert slave.log()[FILE:] == master.log()
        with pytest.raises(LogRangeNotServedError, match="begins later"):
            await fetch_log(master.address, 0, 100)


async def test_bytes_that_verify_but_do_not_fit_the_range_are_not_written(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, slave):
        offset, size = record_at(slave, 40)
        flip(slave, offset + 300)

        async def elsewhere(address: str, start: int, end: int) -> bytes:
            return await fetch_log(address, start + size, end + size)

        before = slave.log()
        care = care_of(slave, elsewhere)
        (left,) = await care.scrub.check_all()
        assert left.physical_offset == offset and slave.log() == before
        assert "belongs to another physical offset" in care.repair.last_refusal


async def test_an_unreachable_master_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogRangeNotServedError, match=r"127.0.0.1:1 cannot be reached"):
        await fetch_log("127.0.0.1:1", 5, 10)


async def test_what_a_start_sealed_comes_back_with_its_place_in_the_queue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with member(tmp_path / "m", "ASYNC_MASTER") as master:
        master.put(500)
        async with member(tmp_path / "s", "SLAVE") as slave:
            await copied(master, slave)
            whole, (header, _), (body, _) = slave.log(), record_at(slave, 110), record_at(slave, 120)
        for offset in (header + 5, body + 300):
            path = tmp_path / "s" / "commitlog" / f"{offset - offset % FILE:020d}"
            data = bytearray(path.read_bytes())
            data[offset % FILE] ^= 0x20
            path.write_bytes(data)
        async with member(tmp_path / "s", "SLAVE", master.address, slave_timeout=1) as slave:
            assert len(slave.store.report.damages) == 2 and slave.log() != whole
            found = slave.store.get_message("G", "T", 0, 108, 32, None)
            care = care_of(slave)
            care.master_connected()
            await until(lambda: care.repair.repaired == 2)
            await care.shutdown()
            assert slave.log() == whole == master.log()
            again = slave.store.get_message("G", "T", 0, 108, 32, None)
            assert again.message_count > found.message_count or again.total_bytes > found.total_bytes
            queue = slave.store.queue("T", 0)
            assert queue is not None
            master_queue = master.store.queue("T", 0)
            assert master_queue is not None
            for number in (109, 110, 111, 119, 120, 121):
                assert queue.unit(number) == master_queue.unit(number)
            assert await care.repair.repair_sealed() == 0  # nothing is left to do
    assert [line for line in check_lines(tmp_path / "s") if "note" not in line][:-1] == []


@pytest.mark.parametrize("comes", ["room", "restart"])
async def test_what_came_back_while_queues_had_no_room_gets_its_places_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes: str
) -> None:
    """The range is no filler any more, so nobody asks for it again."""
    monkeypatch.setattr(log_maintenance, "_FIRST_RETRY_S", 0.05)
    is_full = True
    restore = MessageStore.restore_places

    def restored(store: MessageStore, physical_offset: int, size: int) -> int:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return restore(store, physical_offset, size)

    monkeypatch.setattr(MessageStore, "restore_places", restored)
    async with member(tmp_path / "m", "ASYNC_MASTER") as master:
        master.put(500)
        async with member(tmp_path / "s", "SLAVE") as slave:
            await copied(master, slave)
            wanted, (broken, _) = record_at(slave, 110), record_at(slave, 110)
        path = tmp_path / "s" / "commitlog" / f"{broken - broken % FILE:020d}"
        data = bytearray(path.read_bytes())
        data[broken % FILE + 5] ^= 0x20
        path.write_bytes(data)
        async with member(tmp_path / "s", "SLAVE", master.address, slave_timeout=1) as slave:
            care = care_of(slave)
            care.start()
            care.master_connected()
            await until(lambda: slave.log() == master.log())
            await asyncio.sleep(0.1)
            assert record_at(slave, 110) != wanted
            if comes == "room":
                is_full = False
                await until(lambda: record_at(slave, 110) == wanted)
            await care.shutdown()
        is_full = False
        async with member(tmp_path / "s", "SLAVE", master.address, slave_timeout=1) as slave:
            care = care_of(slave)
            care.load()
            assert record_at(slave, 110) == wanted
            await care.shutdown()


async def test_who_sends_first_gets_no_place_of_what_came_back_before_the_broker_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records were in the log again, and their places in no queue yet."""
    running, path = RunningBroker(tmp_path, {}), tmp_path / "commitlog" / f"{0:020d}"
    await running.start()
    running.create_topic("T", 1)
    for number in range(5):
        assert (await running.send("T", b"%d" % number)).code == ResponseCode.SUCCESS
    queue = running.controller.store.queue("T", 0)
    unit = None if queue is None else queue.unit(3)
    assert unit is not None
    start, end = unit[0], running.controller.store.max_physical_offset
    running.create_topic("Other", 1)
    await running.send("Other", b"behind")
    await running.stop()
    good = path.read_bytes()
    path.write_bytes(good[:start] + b"\xee" * (end - start) + good[end:])
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "inventory.json").unlink()
    running = RunningBroker(tmp_path, {})
    await running.start()
    await running.stop()
    path.write_bytes(good)
    listen, sent = RoleService.listen, list[RemotingCommand]()

    async def listen_later(role: RoleService) -> None:
        sent.append(await running.send("T", b"5"))
        await listen(role)

    monkeypatch.setattr(RoleService, "listen", listen_later)
    running = RunningBroker(tmp_path, {})
    await running.start()
    assert sent[0].ext["queueOffset"] == "5"
    found = running.controller.store.get_message("G", "T", 0, 0, 32, None)
    assert [one.body for one in decode_records(b"".join(found.buffers))] == [b"%d" % number for number in range(6)]
    await running.stop()


async def test_places_are_kept_in_every_range_that_came_back_while_queues_have_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refused(store: MessageStore, physical_offset: int, size: int) -> int:
        asked.append(physical_offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(MessageStore, "restore_places", refused)
    async with member(tmp_path / "m", "ASYNC_MASTER") as master:
        master.put(100)
        records = [record_at(master, number) for number in (3, 9)]
        ranges = [(offset, offset + size) for offset, size in records]
        master.store.filled_ranges.add(ranges)
        care_of(master).load()
    assert asked == [start for start, _ in ranges]


async def test_the_newest_part_is_asked_for_when_no_sender_waits_for_it_any_more(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, slave):
        slave.set(slave_timeout=500)
        asked_at: list[float] = []
        loop = asyncio.get_running_loop()

        async def fetch(address: str, start: int, end: int) -> bytes:
            asked_at.append(loop.time())
            slave.set(slave_timeout=60_000)
            return await fetch_log(address, start, end)

        care = care_of(slave, fetch)
        for number in (20, 50):
            flip(slave, record_at(slave, number)[0] + 300)
        began = loop.time()
        async with asyncio.timeout(60):  # the wait covers all that was there
            assert await care.scrub.check_all() == []
        first, _ = asked_at
        assert first - began >= 0.99


async def test_the_rate_of_a_scrub_is_kept(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, slave):
        size = slave.store.max_physical_offset
        slave.set(scrub_bytes_per_second=size * 4)
        care = care_of(slave)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await care.scrub.check_all()
        assert loop.time() - began >= 0.2


async def test_files_deleted_under_a_scrub_are_no_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with pair(tmp_path) as (_, slave):
        slave.set(scrub_bytes_per_second=FILE * 20)
        care = care_of(slave)
        scrub = asyncio.get_running_loop().create_task(care.scrub.check_all())
        await until(lambda: care.scrub.position > 0)
        for _ in range(2):
            with slave.store.commit_log.without_first() as first:
                first.destroy()
        assert await scrub == []
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert not [record for record in errors if record.name.startswith("maxq.")]
