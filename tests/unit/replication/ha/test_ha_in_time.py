"""The two ends of the link in virtual time: first reports, heartbeats, silence, reconnecting, a moving master."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from maxq.config.broker_config import BrokerConfig
from maxq.config.settings import BrokerSettings
from maxq.errors import LogRangeNotServedError
from maxq.replication.ha import ha_connection
from maxq.replication.ha.frames import FILLED_OFFSET, HEAD, encode_report
from maxq.replication.ha.full_copy import FullCopy
from maxq.replication.ha.ha_client import FirstOffset
from maxq.replication.ha.ha_service import HAService
from maxq.replication.ha.log_fetch import fetch_log
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_network import LinkSettings
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.store.stores import message, small_config

MASTER, OTHER, SLAVE = "10.0.0.1", "10.0.0.3", "10.0.0.2"
PORT = 10912


class Brokers:
    """HAServices on simulated hosts."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.running: list[HAService] = []

    async def start(
        self,
        host: str,
        role: str,
        master: str = "",
        first_offset: FirstOffset | None = None,
        *,
        acting_master: bool = False,
        name: str = "broker-a",
        replicas: int = 1,
        port: int = PORT,
    ) -> tuple[HAService, MessageStore]:
        """`acting_master` is enableSlaveActingMaster, `name` brokerName, `replicas` totalReplicas."""
        world = self.world
        config = small_config(Path("/store"), broker_role=role, ha_master_address=master, total_replicas=replicas)
        disk = SimDisk(world.rng.fork(f"disk {host}"), world.clock)
        store = MessageStore(
            config, disk=disk, clock=world.clock, broker=StoreIdentity(), memory_bytes=1 << 30, populate_ahead=0
        )
        store.load()
        broker = BrokerConfig(broker_name=name, enable_slave_acting_master=acting_master)
        settings = BrokerSettings(broker, config)
        service = HAService(settings, store, world.clock, first_offset=first_offset)
        with world.network.on_host(host):
            await asyncio.create_task(service.start(host, port))
        self.running.append(service)
        return service, store

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> float:
        """Seconds until `condition` held."""
        began = self.world.loop.time()
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.01)
        return self.world.loop.time() - began


def simulated(story: Callable[[Brokers], Awaitable[None]]) -> None:
    async def main(world: SimWorld) -> None:
        brokers = Brokers(world)
        await story(brokers)
        for service in brokers.running:
            await service.shutdown()

    run_simulation(main, seed=5)


def put(store: MessageStore) -> int:
    assert store.put_message(message("T", 0, b"x" * 100)).ok
    return store.max_physical_offset


def test_the_first_report_comes_at_once() -> None:
    async def story(brokers: Brokers) -> None:
        master, _ = await brokers.start(MASTER, "ASYNC_MASTER")
        await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        took = await brokers.until(lambda: any(one.slave_request_offset >= 0 for one in master.connections))
        assert took < 0.2

    simulated(story)


@pytest.mark.parametrize("piece", [1, 3, 8, 15])
def test_a_slave_of_another_name_takes_nothing_however_its_request_is_cut_on_its_way(piece: int) -> None:
    async def story(brokers: Brokers) -> None:
        brokers.world.network.default_link = LinkSettings(delay_ms=(5, 20), chunk_bytes=(piece, piece), whole=0.0)
        _, store = await brokers.start(MASTER, "ASYNC_MASTER")
        put(store)
        everything = FullCopy(lambda: True, lambda: asyncio.sleep(0, 0))
        slave, copy = await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}", everything, name="broker-b")
        await asyncio.sleep(30)
        assert copy.max_physical_offset == 0
        assert "the master calls itself broker-a, this slave is broker-b" in slave.client.failure

    simulated(story)


async def first_of_log(world: SimWorld, request: bytes) -> tuple[float, bytes]:
    """What a master sends first to a slave that sends this, and after how many seconds."""
    began = world.loop.time()
    with world.network.on_host(SLAVE):
        reader, writer = await asyncio.open_connection(MASTER, PORT)
    writer.write(request)
    head = await reader.readexactly(HEAD.size)
    writer.close()
    return world.loop.time() - began, head


def test_a_slave_that_says_its_first_report_once_gets_the_log_all_the_same() -> None:
    """Java's at once; one of MaxQ before it was told names when its second half could have come."""

    async def story(brokers: Brokers) -> None:
        _, store = await brokers.start(MASTER, "ASYNC_MASTER")
        end = put(store)
        put(store)
        took, head = await first_of_log(brokers.world, encode_report(end))
        assert took < 0.2
        assert HEAD.unpack(head)[0] == end
        took, head = await first_of_log(brokers.world, encode_report(1))
        assert took < 5
        assert HEAD.unpack(head)[0] == 1

    simulated(story)


def test_heartbeats_keep_an_idle_link_for_ever() -> None:
    async def story(brokers: Brokers) -> None:
        master, _ = await brokers.start(MASTER, "ASYNC_MASTER")
        slave, _ = await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        await brokers.until(lambda: slave.is_client_connected)
        await asyncio.sleep(300)
        assert slave.client.connects == 1
        assert master.connection_count == 1

    simulated(story)


def test_both_ends_close_a_link_that_is_silent_for_twenty_seconds_and_the_slave_comes_back() -> None:
    async def story(brokers: Brokers) -> None:
        master, store = await brokers.start(MASTER, "ASYNC_MASTER")
        slave, copy = await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        await brokers.until(lambda: slave.is_client_connected and master.connection_count == 1)
        brokers.world.network.partition(MASTER, SLAVE)
        end = put(store)
        took = await brokers.until(lambda: not slave.is_client_connected and not master.connections)
        assert 14 < took < 26
        brokers.world.network.heal()
        await brokers.until(lambda: copy.max_physical_offset == end, 300)

    simulated(story)


def test_a_slave_tries_again_every_second_until_there_is_a_master() -> None:
    async def story(brokers: Brokers) -> None:
        slave, copy = await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        await asyncio.sleep(12)
        assert slave.client.connects == 0
        assert "cannot connect to the master's HA port" in slave.client.failure
        _, store = await brokers.start(MASTER, "ASYNC_MASTER")
        end = put(store)
        assert await brokers.until(lambda: copy.max_physical_offset == end) < 1.5

    simulated(story)


def test_one_that_sends_a_piece_of_its_log_too_slowly_or_nothing_is_given_up() -> None:
    """A slave that offers what its master lost, and then does not give it, would hold up all others that have it."""

    async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD.pack(100, 1 << 20))
        while not writer.is_closing():
            writer.write(bytes(100))
            await asyncio.sleep(5)

    async def until_gone(reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(100):
                pass

    async def endless_fillers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD.pack(FILLED_OFFSET, 1_000_000) + bytes(10))
        await until_gone(reader)

    async def too_many_fillers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD.pack(FILLED_OFFSET, 0x7FFFFFFF) + bytes(10))
        await until_gone(reader)

    async def story(brokers: Brokers) -> None:
        for number, serves in enumerate((dribble, endless_fillers, too_many_fillers)):
            with brokers.world.network.on_host(MASTER):
                server = await asyncio.create_task(asyncio.start_server(serves, MASTER, PORT + number))
            began = brokers.world.loop.time()
            with pytest.raises(LogRangeNotServedError):
                await fetch_log(f"{MASTER}:{PORT + number}", 100, 100 + (1 << 20))
            assert brokers.world.loop.time() - began < 100
            server.close()

    simulated(story)


class CountedAttempts:
    """A first offset that is asked for before each attempt to connect."""

    def __init__(self) -> None:
        self.count = 0

    async def choose(self) -> int:
        self.count += 1
        return 0

    def nothing_there(self, reported: int) -> bool:
        return False


def test_attempts_become_seldom_down_to_one_a_second() -> None:
    async def story(brokers: Brokers) -> None:
        attempts = CountedAttempts()
        await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}", attempts)
        await asyncio.sleep(1)
        assert 3 <= attempts.count <= 5
        await asyncio.sleep(11)
        assert 13 <= attempts.count <= 17

    simulated(story)


def test_a_slave_whose_log_does_not_join_asks_again_every_five_seconds() -> None:
    async def story(brokers: Brokers) -> None:
        _, theirs = await brokers.start(OTHER, "ASYNC_MASTER")
        end = put(theirs)
        await asyncio.sleep(1)  # so that the store times differ
        _, store = await brokers.start(MASTER, "ASYNC_MASTER")
        put(store)
        slave, copy = await brokers.start(SLAVE, "SLAVE")
        slave.update_master_ha_address(f"{OTHER}:{PORT}")
        await brokers.until(lambda: copy.max_physical_offset == end)
        slave.update_master_ha_address(f"{MASTER}:{PORT}")
        await brokers.until(lambda: slave.client.refused == 1)
        assert slave.is_apart
        assert 9.9 < await brokers.until(lambda: slave.client.refused == 3) < 11
        assert copy.max_physical_offset == end
        slave.update_master_ha_address(f"{OTHER}:{PORT}")
        await brokers.until(lambda: slave.joins_master)
        assert not slave.is_apart

    simulated(story)


@pytest.mark.parametrize("says_name", [True, False])
def test_a_slave_keeps_in_mind_that_its_log_is_another_until_a_master_of_its_group_has_that_log(
    monkeypatch: pytest.MonkeyPatch, *, says_name: bool
) -> None:
    """A master that does not say its name, as Java's, may be one of another group that got the address."""

    async def story(brokers: Brokers) -> None:
        _, theirs = await brokers.start(OTHER, "ASYNC_MASTER")
        end = put(theirs)
        await asyncio.sleep(1)
        _, store = await brokers.start(MASTER, "ASYNC_MASTER")
        put(store)
        if not says_name:
            monkeypatch.setattr(ha_connection, "encode_name", lambda name: b"")
        slave, copy = await brokers.start(SLAVE, "SLAVE")
        noted: list[tuple[bool, bool]] = []
        slave.set_apart(False, lambda is_apart, is_sure: noted.append((is_apart, is_sure)))
        slave.update_master_ha_address(f"{OTHER}:{PORT}")
        await brokers.until(lambda: copy.max_physical_offset == end)
        slave.update_master_ha_address(f"{MASTER}:{PORT}")
        await brokers.until(lambda: slave.client.refused == 1)
        assert noted == [(True, says_name)]
        for address in ("", f"{MASTER}:{PORT}", ""):
            slave.update_master_ha_address(address)
            assert slave.is_apart
        slave.update_master_ha_address(f"{OTHER}:{PORT + 1}")  # nobody listens there
        assert slave.is_apart is says_name
        slave.update_master_ha_address(f"{OTHER}:{PORT}")
        await brokers.until(lambda: slave.joins_master)
        assert not slave.is_apart
        assert noted == [(True, says_name), (False, False)]

    simulated(story)


def test_a_slave_that_is_sent_nothing_finds_out_by_a_mark_that_its_log_is_another() -> None:
    async def story(brokers: Brokers) -> None:
        first, theirs = await brokers.start(OTHER, "ASYNC_MASTER")
        for _ in range(3):
            end = put(theirs)
        await asyncio.sleep(1)
        second, store = await brokers.start(MASTER, "ASYNC_MASTER")
        put(store)
        slave, copy = await brokers.start(SLAVE, "SLAVE")
        slave.update_master_ha_address(f"{OTHER}:{PORT}")
        await brokers.until(lambda: copy.max_physical_offset == end)
        await brokers.until(lambda: slave.joins_master)
        slave.hear_master_mark(second.log_mark())
        assert not slave.is_apart, "the link has compared the logs"
        slave.update_master_ha_address(f"{MASTER}:{PORT}")
        await brokers.until(lambda: bool(second.suspended))
        slave.hear_master_mark(first.log_mark())
        assert not slave.is_apart
        slave.hear_master_mark(second.log_mark())
        assert slave.is_apart

    simulated(story)


def test_a_slave_that_had_more_finds_out_that_its_log_is_another_when_its_masters_log_has_grown_past_it() -> None:
    """Within one turn of the loop: no mark of the master's log ends where the slave could compare it."""

    async def story(brokers: Brokers) -> None:
        _, theirs = await brokers.start(OTHER, "ASYNC_MASTER")
        end = [put(theirs) for _ in range(3)][-1]
        await asyncio.sleep(1)
        master, store = await brokers.start(MASTER, "ASYNC_MASTER")
        slave, copy = await brokers.start(SLAVE, "SLAVE")
        slave.update_master_ha_address(f"{OTHER}:{PORT}")
        await brokers.until(lambda: copy.max_physical_offset == end)
        slave.update_master_ha_address(f"{MASTER}:{PORT}")
        await brokers.until(lambda: bool(master.suspended))
        while put(store) <= end:
            assert not slave.is_apart
        assert await brokers.until(lambda: slave.is_apart) < 1
        assert slave.client.refused == 1

    simulated(story)


def test_the_log_of_another_group_says_nothing_of_that_of_the_own_one() -> None:
    async def story(brokers: Brokers) -> None:
        _, store = await brokers.start(MASTER, "ASYNC_MASTER")
        end = put(store)
        _, theirs = await brokers.start(OTHER, "ASYNC_MASTER", name="broker-b")
        put(theirs)
        slave, copy = await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        await brokers.until(lambda: copy.max_physical_offset == end)
        slave.client.set_master_address(f"{OTHER}:{PORT}")
        await brokers.until(lambda: slave.client.refused == 2)
        assert not slave.is_apart

    simulated(story)


def test_a_slave_follows_its_master_to_another_address_at_once() -> None:
    async def story(brokers: Brokers) -> None:
        first, _ = await brokers.start(MASTER, "ASYNC_MASTER")
        second, _ = await brokers.start(OTHER, "ASYNC_MASTER")
        slave, _ = await brokers.start(SLAVE, "SLAVE")
        slave.update_master_ha_address(f"{MASTER}:{PORT}")
        await brokers.until(lambda: first.connection_count == 1)
        slave.update_master_ha_address(f"{OTHER}:{PORT}")
        assert await brokers.until(lambda: second.connection_count == 1 and not first.connections) < 1
        slave.update_master_ha_address("")
        await brokers.until(lambda: not second.connections)
        await asyncio.sleep(30)

    simulated(story)


def test_a_given_master_address_is_never_replaced_by_another() -> None:
    async def story(brokers: Brokers) -> None:
        master, _ = await brokers.start(MASTER, "ASYNC_MASTER")
        slave, _ = await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        slave.update_master_ha_address(f"{OTHER}:{PORT}")
        await brokers.until(lambda: master.connection_count == 1)
        assert slave.client.master_address == f"{MASTER}:{PORT}"

    simulated(story)


def test_senders_are_told_after_the_timeout_that_no_slave_has_it() -> None:
    async def story(brokers: Brokers) -> None:
        master, store = await brokers.start(MASTER, "SYNC_MASTER")
        told: list[bool] = []
        began = brokers.world.loop.time()
        assert master.when(put(store), told.append)
        await brokers.until(lambda: bool(told))
        assert told == [False]
        assert 2.99 < brokers.world.loop.time() - began < 3.1

    simulated(story)


def test_nobody_waits_for_slaves_of_a_master_that_becomes_a_slave_or_ends() -> None:
    async def story(brokers: Brokers) -> None:
        told: list[bool] = []
        for host in (MASTER, OTHER):
            master, store = await brokers.start(host, "SYNC_MASTER")
            assert master.when(put(store), told.append)
            if host == MASTER:
                master.change_to_slave("")
                assert told == [False]
            else:
                await master.shutdown()
                assert told == [False, False]

    simulated(story)


def test_a_slave_that_began_with_the_last_file_has_no_copy_of_what_is_before_it() -> None:
    async def story(brokers: Brokers) -> None:
        master, store = await brokers.start(MASTER, "SYNC_MASTER")
        told: list[bool] = []
        first = put(store)
        assert master.when(first, told.append)
        while store.max_physical_offset < store.commit_log.files.file_size + first:
            put(store)
        _, copy = await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        await brokers.until(lambda: master.push2_slave_max_offset == store.max_physical_offset)
        assert copy.min_physical_offset >= first
        assert told == []
        await brokers.until(lambda: bool(told))
        assert told == [False]
        told.clear()
        assert master.when(put(store), told.append)
        await brokers.until(lambda: bool(told))
        assert told == [True]  # what comes now it has

    simulated(story)


def test_waiting_for_a_link_ends_when_it_is_there_or_at_the_timeout() -> None:
    async def story(brokers: Brokers) -> None:
        master, _ = await brokers.start(MASTER, "ASYNC_MASTER")
        assert not await master.wait_until_transfer(SLAVE, 500)
        waiting = asyncio.create_task(master.wait_until_transfer(SLAVE, 10_000))
        for_another = asyncio.create_task(master.wait_until_transfer(OTHER, 10_000))
        slave, _ = await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        assert await slave.wait_until_transfer(MASTER, 10_000)
        assert await waiting
        assert await slave.wait_until_transfer(MASTER, 0)
        assert await master.wait_until_transfer(SLAVE, 0)
        assert not await for_another
        assert not await master.wait_until_transfer(OTHER, 500), "that one does not copy"

    simulated(story)


@pytest.mark.parametrize("waits_first", [True, False])
def test_a_slave_that_has_more_than_its_master_is_not_waited_for(*, waits_first: bool) -> None:
    """It gets nothing, however long the master waits."""

    async def story(brokers: Brokers) -> None:
        _, theirs = await brokers.start(OTHER, "ASYNC_MASTER")
        end = [put(theirs) for _ in range(3)][-1]
        master, _ = await brokers.start(MASTER, "ASYNC_MASTER")
        slave, copy = await brokers.start(SLAVE, "SLAVE", f"{OTHER}:{PORT}")
        await brokers.until(lambda: copy.max_physical_offset == end)
        waiting = asyncio.create_task(master.wait_until_transfer(SLAVE, 10_000)) if waits_first else None
        slave.client.set_master_address(f"{MASTER}:{PORT}")
        if waiting is None:
            await brokers.until(lambda: bool(master.suspended))
            waiting = asyncio.create_task(master.wait_until_transfer(SLAVE, 10_000))
        async with asyncio.timeout(5):
            assert not await waiting

    simulated(story)


def test_who_is_connected_and_has_asked_for_nothing_does_not_copy() -> None:
    async def story(brokers: Brokers) -> None:
        master, _ = await brokers.start(MASTER, "ASYNC_MASTER")
        with brokers.world.network.on_host(SLAVE):
            _, writer = await asyncio.open_connection(MASTER, PORT)
        await brokers.until(lambda: master.connection_count == 1)
        assert not await master.wait_until_transfer(SLAVE, 500)
        writer.close()

    simulated(story)


def test_in_sync_is_who_lives_and_copies_and_a_master_with_too_few_refuses() -> None:
    async def story(brokers: Brokers) -> None:
        master, _ = await brokers.start(MASTER, "SYNC_MASTER", acting_master=True)
        alive = 2
        master.alive_replicas = lambda: alive
        assert "1 of the needed 2" in (master.refusal() or ""), "alive, but it copies nothing"
        await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        await brokers.until(lambda: master.refusal() is None)
        alive = 1
        assert "1 of the needed 2" in (master.refusal() or ""), "the name server calls it dead"

    simulated(story)


def test_a_link_that_worked_is_made_again_at_once() -> None:
    async def story(brokers: Brokers) -> None:
        await brokers.start(MASTER, "ASYNC_MASTER")
        slave, _ = await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        for _ in range(5):
            heard = slave.client.client.received.total
            await brokers.until(lambda: slave.client.client.received.total > heard)  # noqa: B023
            brokers.world.network.reset(SLAVE, MASTER)
            await brokers.until(lambda: not slave.is_client_connected)
            assert await brokers.until(lambda: slave.is_client_connected) < 0.3

    simulated(story)


def test_what_slaves_of_one_host_know_is_what_each_of_them_has() -> None:
    async def story(brokers: Brokers) -> None:
        master, store = await brokers.start(MASTER, "ASYNC_MASTER", acting_master=True, replicas=3)
        first = put(store)
        one, _ = await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        _, other = await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}", port=PORT + 1)
        await brokers.until(lambda: master.known_to_slaves() == first and master.connection_count == 2)
        await asyncio.sleep(10)
        await one.shutdown()
        await brokers.until(lambda: master.connection_count == 1)
        end = put(store)
        await brokers.until(lambda: other.max_physical_offset == end)
        await asyncio.sleep(10)
        assert master.known_to_slaves() == first
        brokers.world.network.reset(SLAVE, MASTER)
        await asyncio.sleep(10)
        assert master.known_to_slaves() == first
        await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        await brokers.until(lambda: master.known_to_slaves() == end)

    simulated(story)


def test_a_slave_whose_next_connection_ended_before_its_silent_one_is_one_slave() -> None:
    """It was taken for two, one of which never came back."""

    async def story(brokers: Brokers) -> None:
        master, store = await brokers.start(MASTER, "ASYNC_MASTER", acting_master=True, replicas=2)
        first = put(store)
        silent = await _copied(brokers, master)
        await asyncio.sleep(5)
        newer = await _copied(brokers, master)
        newer.close()
        await brokers.until(lambda: master.connection_count == 0)
        assert master.known_to_slaves() == first
        end = put(store)
        await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        await brokers.until(lambda: master.known_to_slaves() == end)
        silent.close()

    simulated(story)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_slave_that_died_is_not_back_when_another_of_its_host_is(is_late: bool) -> None:
    """`is_late`: the connection that the other one had before ends last."""

    async def story(brokers: Brokers) -> None:
        master, store = await brokers.start(MASTER, "ASYNC_MASTER", acting_master=True, replicas=3)
        first = put(store)
        died = await _copied(brokers, master)
        before = await _copied(brokers, master)
        died.write(encode_report(first))  # there are two
        await brokers.until(lambda: all(connection.is_distinct for connection in master.connections))
        end = put(store)
        ended = [died, before] if is_late else [before, died]
        if not is_late:
            before.close()
            await brokers.until(lambda: master.connection_count == 1)
        again = await _copied(brokers, master)
        assert master.known_to_slaves() == first
        for writer in ended:
            writer.close()
        await brokers.until(lambda: master.connection_count == 1)
        assert master.connections[0].replicated_offset == end
        assert master.known_to_slaves() == first
        await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        await brokers.until(lambda: len(_copying(master)) == 2)
        assert master.known_to_slaves() == first, "it may be the other one's next connection"
        again.write(encode_report(end))
        await brokers.until(lambda: master.known_to_slaves() == end)
        again.close()

    simulated(story)


def test_nor_when_the_other_one_comes_again_before_its_silent_connection_ends() -> None:
    """The one that died has come back when there are two again."""

    async def story(brokers: Brokers) -> None:
        master, store = await brokers.start(MASTER, "ASYNC_MASTER", acting_master=True, replicas=3)
        first = put(store)
        died = await _copied(brokers, master)
        before = await _copied(brokers, master)
        died.write(encode_report(first))  # there are two
        await brokers.until(lambda: all(connection.is_distinct for connection in master.connections))
        died.close()
        await brokers.until(lambda: master.connection_count == 1)
        end = put(store)
        before.write(encode_report(end))
        await brokers.until(lambda: master.connections[0].replicated_offset == end)
        again = await _copied(brokers, master)
        assert master.known_to_slaves() == first
        before.close()
        await brokers.until(lambda: master.connection_count == 1)
        assert master.known_to_slaves() == first
        back = await _copied(brokers, master)
        again.write(encode_report(end))
        await brokers.until(lambda: master.known_to_slaves() == end)
        for writer in (again, back):
            writer.close()

    simulated(story)


def test_one_that_died_before_its_neighbour_reported_again_is_not_that_neighbour() -> None:
    async def story(brokers: Brokers) -> None:
        master, store = await brokers.start(MASTER, "ASYNC_MASTER", acting_master=True, replicas=3)
        first = put(store)
        neighbour = await _copied(brokers, master)
        died = await _copied(brokers, master)
        died.close()
        await brokers.until(lambda: master.connection_count == 1)
        end = put(store)
        neighbour.write(encode_report(end))
        await brokers.until(lambda: _copying(master) == [end])
        assert master.known_to_slaves() == first
        neighbour.close()

    simulated(story)


def _copying(master: HAService) -> list[int]:
    """How far the slaves have the log that are connected and have begun to copy it."""
    return [one.replicated_offset for one in master.connections if one.replicated_offset >= 0]


async def _copied(brokers: Brokers, master: HAService) -> asyncio.StreamWriter:
    """A connection of a slave that has all there is, and says so."""
    count = master.connection_count
    with brokers.world.network.on_host(SLAVE):
        _, writer = await asyncio.open_connection(MASTER, PORT)
    await brokers.until(lambda: master.connection_count > count)
    connection = master.connections[-1]
    writer.write(encode_report(1))
    await brokers.until(lambda: connection.next_offset > 1)
    writer.write(encode_report(connection.next_offset))
    await brokers.until(lambda: connection.replicated_offset == connection.next_offset)
    return writer


def test_what_slaves_know_is_what_all_have_that_came_also_those_that_are_away() -> None:
    async def story(brokers: Brokers) -> None:
        lone, _ = await brokers.start("10.0.0.4", "ASYNC_MASTER")
        assert lone.known_to_slaves() is None, "no slave acts for it"
        master, store = await brokers.start(MASTER, "ASYNC_MASTER", acting_master=True, replicas=3)
        first = put(store)
        assert master.known_to_slaves() == -1
        slave, copy = await brokers.start(SLAVE, "SLAVE", f"{MASTER}:{PORT}")
        await brokers.until(lambda: copy.max_physical_offset == first)
        await brokers.until(lambda: master.known_to_slaves() == first)
        await slave.shutdown()
        await brokers.until(lambda: master.connection_count == 0)
        _, other = await brokers.start(OTHER, "SLAVE", f"{MASTER}:{PORT}")
        end = put(store)
        await brokers.until(lambda: other.max_physical_offset == end and master.known_to_slaves() is not None)
        await asyncio.sleep(10)
        assert master.known_to_slaves() == first

    simulated(story)
