import asyncio
from pathlib import PurePath
from typing import Any

import pytest

from maxq.runtime.blocking import run_blocking
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_machine import MachineDiedError, SimMachine
from maxq.testing.simulation import SimWorld, run_simulation

A, B = "10.0.0.1", "10.0.0.2"


def machine(world: SimWorld, address: str) -> SimMachine:
    made = SimMachine(world.loop, address, world.rng.fork(address))
    made.boot()
    return made


class Ticker:
    """Counts, every second."""

    def __init__(self) -> None:
        self.count = 0
        self.ended_by = ""

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                self.count += 1
        finally:
            self.ended_by = "finally"


class Peer(asyncio.Protocol):
    """Notes how its connection ends."""

    def __init__(self) -> None:
        self.received = b""
        self.lost: Any = "open"
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc


async def connected(world: SimWorld, a: SimMachine, b: SimMachine) -> tuple[Peer, Peer]:
    accepted: list[Peer] = []

    def accept() -> Peer:
        accepted.append(Peer())
        return accepted[-1]

    async def listen() -> None:
        await world.loop.create_server(accept, port=7)

    async def connect() -> Peer:
        return (await world.loop.create_connection(Peer, b.address, 7))[1]  # type: ignore[no-any-return]

    await b.call(listen)
    peer = await a.call(connect)
    await asyncio.sleep(1)
    return peer, accepted[0]


def test_what_a_killed_process_had_begun_never_goes_on_and_others_do() -> None:
    async def main(world: SimWorld) -> None:
        a, b = machine(world, A), machine(world, B)
        tickers = Ticker(), Ticker()
        a.spawn(tickers[0].run())
        b.spawn(tickers[1].run())
        await asyncio.sleep(2.5)
        a.kill()
        await asyncio.sleep(5)
        assert [ticker.count for ticker in tickers] == [2, 7]
        assert tickers[0].ended_by == ""
        assert not a.is_up and b.is_up

    run_simulation(main, seed=1)


def test_a_paused_process_does_what_came_due_afterwards_in_order_without_what_was_cancelled() -> None:
    async def main(world: SimWorld) -> None:
        a = machine(world, A)
        seen: list[str] = []
        timers: list[asyncio.TimerHandle] = []

        def first() -> None:
            seen.append("first")
            timers[1].cancel()

        with a.entered():
            timers.append(world.loop.call_later(1, first))
            timers.append(world.loop.call_later(2, seen.append, "cancelled"))
            timers.append(world.loop.call_later(3, seen.append, "third"))
        await asyncio.gather(a.pause(10), asyncio.sleep(9))
        await asyncio.sleep(0.1)
        assert seen == ["first", "third"]

    run_simulation(main, seed=1)


def test_a_loss_of_power_within_a_disk_operation_ends_one_machine_and_keeps_what_was_flushed() -> None:
    async def main(world: SimWorld) -> None:
        a, b = machine(world, A), machine(world, B)
        ticker = Ticker()
        b.spawn(ticker.run())

        async def write() -> None:
            for number in range(100):
                a.disk.write(PurePath("f"), b"%d" % number)
                await asyncio.sleep(0.1)

        a.disk.cut_power_after(33)
        with pytest.raises(MachineDiedError):
            await a.call(write)
        a.boot()
        assert a.disk.exists(PurePath("f"))
        assert ticker.count < 10
        await asyncio.sleep(5)
        assert ticker.count >= 5

    run_simulation(main, seed=1)


def test_the_end_does_not_wait_for_blocking_work_that_a_loss_of_power_met() -> None:
    """`run_blocking` waits for the end of its work even when it is cancelled."""
    clock = SimClock()

    async def main(world: SimWorld) -> None:
        a = machine(world, A)
        a.disk.cut_power_after(0)
        with pytest.raises(MachineDiedError):
            await a.call(lambda: run_blocking(a.disk.write, PurePath("f"), b"never"))

    before = clock.monotonic_ms()
    run_simulation(main, seed=1, clock=clock)
    assert clock.monotonic_ms() - before < 100


def test_a_kill_within_a_disk_operation_keeps_all_that_was_written() -> None:
    async def main(world: SimWorld) -> None:
        a = machine(world, A)
        written: list[int] = []

        async def write() -> None:
            region = a.disk.map(PurePath("m"), 4096)
            for number in range(100):
                region.view[number] = 7
                written.append(number)
                region.flush(0, 1)

        a.disk.cut_power_after(20, process_only=True)
        with pytest.raises(MachineDiedError):
            await a.call(write)
        a.boot()
        assert a.disk.read(PurePath("m")).count(7) == len(written) > 3

    run_simulation(main, seed=1)


def test_peers_of_a_killed_process_learn_it_and_peers_of_a_dead_machine_only_when_it_is_back() -> None:
    async def main(world: SimWorld) -> None:
        for power in (False, True):
            a, b = machine(world, A), machine(world, B)
            peer, _ = await connected(world, a, b)
            if power:
                b.power_off()
            else:
                b.kill()
            peer.transport.write(b"anybody there?")
            await asyncio.sleep(60)
            if power:
                assert peer.lost == "open"
                b.boot()
                await asyncio.sleep(30)
            assert peer.lost is None or isinstance(peer.lost, ConnectionResetError)
            a.kill()
            b.kill()

    run_simulation(main, seed=1)


def test_a_paused_process_is_written_to_until_the_window_is_full_and_reads_it_all_later() -> None:
    async def main(world: SimWorld) -> None:
        a, b = machine(world, A), machine(world, B)
        peer, accepted = await connected(world, a, b)
        pause = asyncio.ensure_future(b.pause(30))
        await asyncio.sleep(0)
        peer.transport.write(bytes(600_000))
        await asyncio.sleep(20)
        assert accepted.received == b""
        assert peer.transport.get_write_buffer_size() == 600_000 - world.network.window
        await pause
        await asyncio.sleep(5)
        assert len(accepted.received) == 600_000

    run_simulation(main, seed=1)


def test_wall_clocks_jump_one_by_one() -> None:
    async def main(world: SimWorld) -> None:
        a, b = machine(world, A), machine(world, B)
        before = b.clock.wall_ms()
        a.clock.jump_wall_ms(-5000)
        assert (a.clock.wall_ms(), b.clock.wall_ms()) == (before - 5000, before)
        assert a.clock.monotonic_ms() == b.clock.monotonic_ms()

    run_simulation(main, seed=1)


def test_a_lost_disk_comes_back_empty() -> None:
    async def main(world: SimWorld) -> None:
        a = machine(world, A)
        a.disk.put("f", b"x")
        a.kill()
        a.lose_disk()
        a.boot()
        assert a.disk.paths() == []

    run_simulation(main, seed=1)


def test_the_loop_and_its_chance_are_the_same_for_all_machines() -> None:
    def story(seed: int) -> list[float]:
        async def main(world: SimWorld) -> list[float]:
            a, b = machine(world, A), machine(world, B)
            times: list[float] = []
            peer, accepted = await connected(world, a, b)
            for n in range(20):
                peer.transport.write(bytes(n))
                await asyncio.sleep(0.01)
                times.append(len(accepted.received))
            return times

        return run_simulation(main, seed=seed)

    assert story(3) == story(3)


def test_a_connection_that_is_reset_before_a_paused_process_accepts_it_is_made_and_lost() -> None:
    class Life(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            told.append("made")

        def connection_lost(self, exc: Exception | None) -> None:
            told.append(exc)

    told: list[object] = []

    async def main(world: SimWorld) -> None:
        a, b = machine(world, A), machine(world, B)
        with b.entered():
            await world.loop.create_server(Life, "0.0.0.0", 9876)
        b.process.pause()
        with a.entered():
            transport, _ = await world.loop.create_connection(asyncio.Protocol, B, 9876)
        transport.abort()
        await asyncio.sleep(1)
        assert told == []
        world.loop.reschedule(b.process.resume())
        await asyncio.sleep(0.1)
        made, lost = told
        assert made == "made"
        assert isinstance(lost, ConnectionResetError)

    run_simulation(main, seed=1)
