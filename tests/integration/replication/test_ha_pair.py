"""A master's log arrives at its slaves, over real sockets."""

from pathlib import Path

from tests.integration.replication.pair import member, until


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
