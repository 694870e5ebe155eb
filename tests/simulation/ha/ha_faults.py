"""What can happen to a group of brokers, one fault at a time; several overlap."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from maxq.testing.sim_machine import MachineDiedError
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from tests.simulation.disk_faults import FaultMix
from tests.simulation.ha.ha_group import HaGroup
from tests.simulation.ha.ha_ledger import HaSent
from tests.simulation.ha.ha_node import HaNode

_NOTICED_S: Final = 1.0  # mostly, a failed sync shows within that
_LATEST_SYNC_S: Final = 70.0  # queues, the latest, are synced within a minute
_LONGEST_FLUSH_S: Final = 12.0  # the log is synced within that
_NEWEST: Final = 12  # messages

Fault = Callable[[HaNode], Awaitable[None]]


class HaFaults:
    """Draws faults and lets them happen. A fault that lasts runs beside the next ones."""

    def __init__(self, group: HaGroup, rng: SimRng, *, fails: bool = False) -> None:
        """`fails`: calls to disks fail, too, in about half of the faults."""
        self._fails = fails
        self._has_seen_failures = False
        self._group = group
        self._rng = rng
        self._network = group.world.network
        self._lasting: list[asyncio.Task[None]] = []
        self._kinds: list[tuple[int, str, Fault]] = [
            (6, "reset", self._reset),
            (6, "partition", self._partition),
            (4, "half-open", self._half_open),
            (5, "slow link", self._slow_link),
            (5, "kill", self._kill),
            (4, "kill within a disk operation", self._kill_in_operation),
            (5, "power loss", self._power_loss),
            (5, "power loss within a disk operation", self._power_loss_in_operation),
            (2, "power loss while starting", self._power_loss_in_start),
            (3, "clean restart", self._clean_restart),
            (5, "pause", self._pause),
            (4, "wall clock jump", self._clock_jump),
            (3, "disk full", self._disk_full),
            (3, "slow disk", self._slow_disk),
            (1, "slave's disk lost", self._slave_disk_lost),
            (1, "master's disk lost", self._master_disk_lost),
        ]
        if fails:
            self._kinds += [(60, "disk fails", self._disk_fails), (15, "repair fails", self._repair_fails)]

    async def one(self) -> None:
        """One more."""
        await self._replace_failed()
        name, fault = self._rng.choice([(name, fault) for weight, name, fault in self._kinds for _ in range(weight)])
        node = self._rng.choice(self._group.nodes)
        if not node.is_up:
            return
        self._group.note(f"{name}: {node}{' (master)' if node is self._group.master else ''}")
        self._group.marks[f"fault: {name}"] += 1
        await fault(node)

    async def settle(self) -> None:
        """What lasts comes to its end, the network is whole again, everybody runs."""
        for task in self._lasting:
            await task
        self._network.heal()
        self._network.default_link = LinkSettings()
        for pair in [(a, b) for a in self._group.nodes for b in self._group.nodes if a is not b]:
            self._network.set_link(pair[0].machine.address, pair[1].machine.address, LinkSettings())
        group = self._group
        for node in [group.master, *group.slaves]:
            node.machine.disk.cut_power_after(-1)
            for _ in range(3):
                if not node.is_up:
                    node.machine.disk.cut_power_after(-1)
                    await group.start(node)
        if self._has_seen_failures:
            await asyncio.sleep(_LATEST_SYNC_S)
            await self._replace_failed()

    def _last(self, coroutine: Awaitable[None]) -> None:
        self._lasting.append(asyncio.ensure_future(coroutine))

    def _while(self) -> float:
        """Seconds: mostly short, sometimes longer than every timeout."""
        return self._rng.choice((0.1, 0.5, 2.0, 7.0, 30.0)) * self._rng.uniform(0.3, 1.3)

    def _other(self, node: HaNode) -> HaNode:
        return self._rng.choice([other for other in self._group.nodes if other is not node])

    # -- network --

    async def _reset(self, node: HaNode) -> None:
        self._network.reset(node.machine.address, self._other(node).machine.address)

    async def _partition(self, node: HaNode) -> None:
        other = self._other(node)
        self._network.partition(node.machine.address, other.machine.address, both_ways=self._rng.chance(0.6))
        self._last(self._heal_later(node, other))

    async def _heal_later(self, node: HaNode, other: HaNode) -> None:
        await asyncio.sleep(self._while())
        self._network.heal(node.machine.address, other.machine.address)

    async def _half_open(self, node: HaNode) -> None:
        """One end is gone, the other does not know: nothing passes for a while, then it is told as it writes."""
        other = self._other(node)
        here, there = node.machine.address, other.machine.address
        self._network.partition(here, there)
        for transport in self._network.connections(here, there):
            transport.reset()
        self._last(self._heal_later(node, other))

    async def _slow_link(self, node: HaNode) -> None:
        other = self._other(node)
        link = LinkSettings(
            delay_ms=(1, self._rng.choice((5, 100, 2000))),
            chunk_bytes=(1, self._rng.choice((20, 1000))),
            whole=0.1,
            loss=self._rng.choice((0.0, 0.05)),
            bytes_per_second=self._rng.choice((0, 300, 5000, 50_000)),
        )
        here, there = node.machine.address, other.machine.address
        self._network.set_link(here, there, link, both_ways=self._rng.chance(0.5))

        async def end() -> None:
            await asyncio.sleep(self._while())
            self._network.set_link(here, there, self._network.default_link)

        self._last(end())

    # -- processes and machines --

    async def _back_later(self, node: HaNode) -> None:
        await asyncio.sleep(self._while())
        if not node.machine.is_up:
            await self._group.start(node)

    async def _kill(self, node: HaNode) -> None:
        node.machine.kill()
        self._group.check_union()
        await self._back_later(node)

    async def _power_loss(self, node: HaNode) -> None:
        node.machine.power_off()
        await self._back_later(node)

    async def _in_operation(self, node: HaNode, *, process_only: bool) -> None:
        disk = node.machine.disk
        disk.cut_power_after(self._rng.below(60), process_only=process_only)
        await asyncio.sleep(self._while())
        disk.cut_power_after(-1)
        if not node.machine.is_up:
            self._group.note(f"  {node} died in {disk.lost_at}")
            await self._back_later(node)

    async def _kill_in_operation(self, node: HaNode) -> None:
        await self._in_operation(node, process_only=True)

    async def _power_loss_in_operation(self, node: HaNode) -> None:
        await self._in_operation(node, process_only=False)

    async def _power_loss_in_start(self, node: HaNode) -> None:
        node.machine.power_off()
        await self._group.start_losing_power(node, self._rng.below(40))
        await self._back_later(node)

    async def _clean_restart(self, node: HaNode) -> None:
        await node.stop()
        await self._back_later(node)

    async def _pause(self, node: HaNode) -> None:
        seconds = self._while()
        self._last(node.machine.pause(seconds))

    async def _clock_jump(self, node: HaNode) -> None:
        node.machine.clock.jump_wall_ms(self._rng.choice((-3_600_000, -700, 300, 40_000, 7_200_000)))

    # -- disks --

    async def _disk_full(self, node: HaNode) -> None:
        disk = node.machine.disk
        usage = disk.usage(node.root)
        disk.other_bytes = usage.free - self._rng.below(40_000)

        async def end() -> None:
            await asyncio.sleep(self._while())
            disk.other_bytes = 0
            node.machine.disk.other_bytes = 0

        self._last(end())

    async def _disk_fails(self, node: HaNode) -> None:
        """Calls to its disk fail for a while. A broker whose log fails to sync is ended a moment later, others at
        times; it is started again on the same machine or after a loss of power, perhaps first on the disk as it is."""
        rng, group = self._rng, self._group
        spared: tuple[str, ...] = rng.choice(((), (), ("consumequeue", "index", "checkpoint")))
        mix = FaultMix(rng.fork(f"disk {group.now_ms}"), spared)
        node.let_disk_fail(mix)
        await self._until_failed(node, self._while())
        if node.has_failed or rng.chance(0.3):
            await self._end_failed(node)
            if rng.chance(0.5):
                await group.start(node)
                await self._until_failed(node, rng.choice((0.05, 1.0)))
        node.let_disk_fail(None)
        await self._until_failed(node, _NOTICED_S)
        if node.has_failed:
            await self._end_failed(node)
        if not node.machine.is_up:
            await group.start(node)
            if rng.chance(0.4):  # what the start has called durable is put to the test
                await asyncio.sleep(rng.choice((0.05, 1.0)))
                group.marks["power lost after a start behind a failure"] += 1
                node.machine.power_off()
                await group.start(node)
        self._has_seen_failures |= bool(mix.seen)
        group.marks.update(f"failed: {kind}" for kind in mix.seen)
        group.note(f"  {dict(mix.seen)}")

    async def _repair_fails(self, node: HaNode) -> None:
        """A bit of a slave's log has changed in memory, a scrub finds it, and the sync of what is fetched again fails.
        What has come since the last sync is in the same file. Then the slave loses its power."""
        group, rng = self._group, self._rng
        await self._until_unsafe(node)
        if not node.is_up:
            return
        durable = [one for one in group.ledger.messages[-_NEWEST:] if one.body_size and self._is_durable(node, one)]
        if node is group.master or node.frozen_end is not None or not durable:
            return
        sent = durable[-1]
        node.change_a_bit(sent, rng)
        node.fails_repairs = True
        group.marks["a bit of a slave's log changed"] += 1
        with contextlib.suppress(MachineDiedError):
            await node.scrub()
        await self._until_failed(node, rng.choice((0.1, 3.0, _LONGEST_FLUSH_S, _LONGEST_FLUSH_S)))
        group.marks["power lost after a repair" + (" that failed" if node.has_failed else "")] += 1
        node.fails_repairs = False
        node.machine.power_off()
        if not node.is_on_platters(sent):  # it was written back; the system of the next process has only that
            node.lose_disk()
        await group.start(node)
        node.changed.clear()

    async def _until_unsafe(self, node: HaNode) -> None:
        """The end of a file of its log is not durable yet, and the log goes on in the next one; or that does not come
        soon."""
        store, end = node.store, self._group.world.loop.time() + _LONGEST_FLUSH_S
        assert store is not None, "it is up"
        size = store.commit_log.files.file_size
        while node.is_up and self._group.world.loop.time() < end:
            if store.flushed_offset // size < store.max_physical_offset // size:
                return
            await asyncio.sleep(0.01)

    @staticmethod
    def _is_durable(node: HaNode, sent: HaSent) -> bool:
        assert node.store is not None, "it is up"
        return sent.physical_offset + len(sent.record) <= node.store.flushed_offset and node.has(sent)

    async def _replace_failed(self) -> None:
        """What a disk did long ago may show only with a later sync: who has failed by that begins anew."""
        for node in self._group.nodes if self._fails else ():
            if node.is_up and node.has_failed:
                await self._end_failed(node)
                await self._group.start(node)

    async def _until_failed(self, node: HaNode, seconds: float) -> None:
        end = self._group.world.loop.time() + seconds
        while node.is_up and not node.has_failed and self._group.world.loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def _end_failed(self, node: HaNode) -> None:
        self._group.note(f"  {node} ends: {node.failed}")
        self._group.marks["stopped itself" if node.has_failed else "ended while its disk failed"] += 1
        if self._rng.chance(0.4):
            self._group.marks["power lost after a failure"] += 1
            node.machine.power_off()
        else:
            node.machine.kill()
        await asyncio.sleep(self._rng.choice((0.0, 0.5, 6.0)))

    async def _slow_disk(self, node: HaNode) -> None:
        process = node.machine.process
        process.slowness = self._rng.choice((20, 300))

        async def end() -> None:
            await asyncio.sleep(self._while())
            process.slowness = 1

        self._last(end())

    async def _slave_disk_lost(self, node: HaNode) -> None:
        if node is self._group.master:
            return
        node.machine.kill()
        node.lose_disk()
        self._group.marks["slave begins empty"] += 1
        await self._back_later(node)

    async def _master_disk_lost(self, node: HaNode) -> None:
        if node is not self._group.master:
            return
        node.machine.power_off()
        await self._group.promote_the_longest(keep_old=False)
