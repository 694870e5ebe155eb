"""A master's log arrives at its slaves, over real sockets."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maxq.replication.ha.frames import HEAD, encode_name, encode_report, encode_request, joint_offset
from tests.integration.replication.pair import Member, member, until


async def test_a_slave_gets_what_is_there_and_what_comes_and_both_logs_are_equal(tmp_path: Path) -> None:
    async with member(tmp_path / "m", "ASYNC_MASTER") as master:
        master.put(50)
        async with member(tmp_path / "s", "SLAVE", master.address) as slave:
            await until(lambda: slave.store.max_physical_offset == master.store.max_physical_offset)
            end = master.put(1000)
            await until(lambda: slave.store.max_physical_offset == end)
            assert slave.log() == master.log()
            assert slave.store.max_offset("T", 1) == master.store.max_offset("T", 1)
            await until(lambda: master.ha.push2_slave_max_offset == end)
            info = master.ha.runtime_info()
            assert info.ha_connection_info[0].diff == 0
            assert info.in_sync_slave_nums == 1


async def test_a_slave_that_asks_an_empty_master_for_everything_lacks_nothing(tmp_path: Path) -> None:
    async with member(tmp_path / "m", "ASYNC_MASTER") as master:
        _, writer = await asyncio.open_connection("127.0.0.1", master.ha.port)
        writer.write(encode_report(1))
        await until(lambda: any(slave.slave_request_offset == 1 for slave in master.ha.connections))
        (shown,) = master.ha.runtime_info().ha_connection_info
        assert (shown.slave_ack_offset, shown.diff, shown.in_sync) == (0, 0, True)
        writer.close()


async def test_a_send_waits_for_one_slave_and_is_told_when_it_has_it(tmp_path: Path) -> None:
    async with member(tmp_path / "m", "SYNC_MASTER") as master:
        assert master.ha.needed_acks() == 2
        async with member(tmp_path / "s", "SLAVE", master.address) as slave:
            await until(lambda: slave.ha.is_client_connected)
            told: list[bool] = []
            assert master.ha.when(master.put(1), told.append)
            await until(lambda: told == [True])
            assert slave.store.max_physical_offset == master.store.max_physical_offset
            assert not master.ha.when(master.store.max_physical_offset, print)


async def test_slaves_are_counted_and_what_one_of_them_has_never_goes_back(tmp_path: Path) -> None:
    async with member(tmp_path / "m", "SYNC_MASTER") as master:
        end = master.put(10)
        async with member(tmp_path / "s", "SLAVE", master.address) as first:
            async with member(tmp_path / "t", "SLAVE", master.address) as second:
                await until(lambda: all(one.store.max_physical_offset == end for one in (first, second)))
                await until(lambda: master.ha.in_sync_replicas_num(end) == 3)
                assert master.ha.connection_count == 2
                await until(lambda: master.ha.push2_slave_max_offset == end)
            await until(lambda: master.ha.connection_count == 1)
        await until(lambda: master.ha.connection_count == 0)
        assert master.ha.in_sync_replicas_num(end) == 1
        assert master.ha.push2_slave_max_offset == end
        master.ha.notify_transfer_some(end - 1)
        assert master.ha.push2_slave_max_offset == end


async def test_two_connections_of_one_host_are_one_slave_until_the_older_one_reports_again(tmp_path: Path) -> None:
    async with member(tmp_path / "m", "SYNC_MASTER", in_sync_replicas=3, slave_timeout=60_000) as master:
        end = master.put(10)
        _, older = await asyncio.open_connection("127.0.0.1", master.ha.port)
        await _report_all(master, older, 0, end)
        told: list[bool] = []
        assert master.ha.when(end, told.append)
        _, newer = await asyncio.open_connection("127.0.0.1", master.ha.port)  # of another slave, or of the same one
        await until(lambda: master.ha.connection_count == 2)
        await _report_all(master, newer, 1, end)
        assert told == []
        older.write(encode_report(end))
        await until(lambda: told == [True])
        for writer in (older, newer):
            writer.close()


async def _report_all(master: Member, writer: asyncio.StreamWriter, number: int, end: int) -> None:
    """Say as slave `number` of `master` that everything has come."""
    await until(lambda: master.ha.connection_count > number)
    connection = master.ha.connections[number]
    writer.write(encode_report(1))
    await until(lambda: connection.next_offset == end)
    writer.write(encode_report(end))
    await until(lambda: connection.replicated_offset == end)


@pytest.mark.parametrize("asks", [encode_report, encode_request], ids=["earlier", "now"])
async def test_a_slave_of_an_earlier_version_gets_the_log_and_nothing_it_does_not_know(
    tmp_path: Path, asks: Callable[[int], bytes]
) -> None:
    """It begins as a slave of now but says so once, and knows transfers of the log and of filled ranges only."""
    async with member(tmp_path / "m", "ASYNC_MASTER") as master:
        end = master.put(10)
        for offset in (1, joint_offset(0)):
            reader, writer = await asyncio.open_connection("127.0.0.1", master.ha.port)
            writer.write(asks(offset))
            if asks is encode_request:
                name = encode_name("broker-a")
                assert await reader.readexactly(len(name)) == name
            place, size = HEAD.unpack(await reader.readexactly(HEAD.size))
            assert (place, size) == (offset, end - offset)
            assert await reader.readexactly(size) == master.log()[offset:]
            writer.close()


async def test_who_reports_what_no_slave_reports_is_shown_the_door(tmp_path: Path) -> None:
    async with member(tmp_path / "m", "ASYNC_MASTER") as master:
        reader, writer = await asyncio.open_connection("127.0.0.1", master.ha.port)
        await until(lambda: master.ha.connection_count == 1)
        writer.write(encode_report(-5))
        await until(lambda: master.ha.connection_count == 0)
        assert await reader.read() == b""
        writer.close()


async def test_a_slave_of_another_log_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with member(tmp_path / "m", "SYNC_MASTER") as master, member(tmp_path / "x", "ASYNC_MASTER") as other:
        other.put(20, b"another")
        theirs = other.log()
        master.put(20)
        slave_folder = tmp_path / "x"
        await other.ha.shutdown()
        other.store.close()
        async with member(slave_folder, "SLAVE", master.address) as slave:
            await until(lambda: slave.ha.client.refused > 0)
            assert "other bytes than this slave" in slave.ha.client.failure
            assert slave.log() == theirs
            assert master.ha.push2_slave_max_offset < len(theirs)


async def test_a_broker_becomes_slave_and_master_again(tmp_path: Path) -> None:
    async with member(tmp_path / "a", "ASYNC_MASTER") as first, member(tmp_path / "b", "ASYNC_MASTER") as second:
        end = first.put(30)
        second.set(broker_role="SLAVE")
        second.ha.change_to_slave(first.address)
        await until(lambda: second.store.max_physical_offset == end)
        await second.ha.change_to_master()
        second.set(broker_role="ASYNC_MASTER")
        assert second.put(5) > end
        first.set(broker_role="SLAVE")
        first.ha.change_to_slave(second.address)
        await until(lambda: first.store.max_physical_offset == second.store.max_physical_offset)
        assert first.log() == second.log()
        assert not second.ha.is_client_connected


async def test_flow_control_holds_a_slave_to_its_bytes_a_second(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": 200_000}
    async with (
        member(tmp_path / "m", "ASYNC_MASTER", **limits) as master,
        member(tmp_path / "s", "SLAVE", master.address) as slave,
    ):
        # once it has reported: one that comes later gets the last file only
        await until(lambda: any(one.next_offset >= 0 for one in master.ha.connections))
        loop = asyncio.get_running_loop()
        began, end = loop.time(), master.put(60, b"z" * 1000)
        assert end > 60_000  # 20 000 of them may go at once
        await until(lambda: slave.store.max_physical_offset == end)
        assert loop.time() - began > 0.19


async def test_a_slave_that_is_ahead_is_named_to_the_operator_and_counts_for_nobody(tmp_path: Path) -> None:
    async with member(tmp_path / "m", "SYNC_MASTER", slave_timeout=60_000) as master:
        end = master.put(10)
        _, writer = await asyncio.open_connection("127.0.0.1", master.ha.port)
        writer.write(encode_report(end + 1000))
        await until(lambda: master.ha.suspended != [])
        assert f"has {end + 1000} bytes of log, this master only {end}" in master.ha.suspended[0]
        assert master.ha.when(end, print)
        assert master.ha.push2_slave_max_offset == 0
        assert master.ha.in_sync_replicas_num(end) == 1
        writer.close()
