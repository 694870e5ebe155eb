"""One seed, one story of a master and two slaves: they live, fail in all ways, come back; nothing promised is lost."""

import asyncio
import contextlib
from collections import Counter
from typing import ClassVar, Final

from maxq.config.message_store_config import MessageStoreConfig
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.ha.ha_faults import HaFaults
from tests.simulation.ha.ha_group import HaGroup, Rule, StoryOverError
from tests.simulation.store.store_world import HASH_SLOTS, INDEX_ENTRIES, LOG_FILE_SIZE, ROOT, check

#: A half-open connection is noticed after haHousekeepingInterval, the next attempt comes 5 s later.
CONVERGENCE_LIMIT_S: Final = 60.0


def draw_rule(rng: SimRng) -> Rule:
    """Settings of the group; small files, so that they roll over often."""
    role = rng.choice(("SYNC_MASTER", "SYNC_MASTER", "SYNC_MASTER", "ASYNC_MASTER"))
    asked = rng.choice((0, 2, 2, 3))  # 0: not given, which means one slave
    config = MessageStoreConfig(
        store_path_root_dir=str(ROOT),
        mapped_file_size_commit_log=LOG_FILE_SIZE,
        mapped_file_size_consume_queue=20 * rng.choice((5, 20, 50)),
        max_hash_slot_num=HASH_SLOTS,
        max_index_num=INDEX_ENTRIES,
        flush_disk_type=rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH", "ASYNC_FLUSH")),
        flush_interval_commit_log=rng.choice((20, 500)),
        flush_interval_consume_queue=rng.choice((20, 1000)),
        flush_commit_log_thorough_interval=rng.choice((50, 10_000)),
        flush_consume_queue_thorough_interval=rng.choice((50, 60_000)),
        file_reserved_time=100_000,
        slave_timeout=rng.choice((300, 3000)),
        in_sync_replicas=asked,
        ha_transfer_batch_size=rng.choice((100, 3000, 32_768)),
        ha_flow_control_enable=rng.chance(0.15),
        max_ha_transfer_byte_in_second=100_000,
        ha_full_copy=rng.chance(0.5),
    )
    needed = (asked or 2) if role == "SYNC_MASTER" else 1
    return Rule(role, needed, config)


class HaStory:
    """Attributes:
    marks: how often each kind of thing happened.
    history: what happened, for whoever reads a failure.
    """

    FAILS: ClassVar[bool] = False  # disks fail, too
    OTHER_SETTINGS: ClassVar[bool] = False  # nodes come back with other settings at times
    HAS_BATCHES: ClassVar[bool] = False  # topics have queues of batches, of which slaves hear late

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []

    def run(self) -> None:
        """Tell it. AssertionError and whatever the code under test raises are failures."""
        with contextlib.suppress(StoryOverError):
            run_simulation(self._main, seed=self.seed, time_limit_s=7200, step_limit=20_000_000)

    async def _main(self, world: SimWorld) -> None:
        rng = SimRng(self.seed).fork("story")
        rule = draw_rule(rng)
        config = rule.config
        self.history.append(
            f"{rule.role}, {rule.needed} copies, {config.flush_disk_type}, batch {config.ha_transfer_batch_size}, "
            f"slaveTimeout {config.slave_timeout}, full copy {config.ha_full_copy}"
        )
        self.marks[f"{rule.role} {config.flush_disk_type} {rule.needed} copies"] += 1
        group = HaGroup(
            world, rng.fork("group"), rule, self.marks, self.history, fails=self.FAILS,
            other_settings=self.OTHER_SETTINGS, has_batches=self.HAS_BATCHES,
        )  # fmt: skip
        await group.start(group.master)
        for node in group.slaves:
            await asyncio.sleep(rng.choice((0.0, 0.0, 1.0, 10.0)))
            await group.start(node)
        watch = asyncio.ensure_future(self._watch(group, rng.fork("watch")))
        tables = asyncio.ensure_future(group.spread_tables())
        faults = HaFaults(group, rng.fork("faults"), fails=self.FAILS)
        try:
            await self._live(group, faults, watch, rng)
        finally:
            watch.cancel()
            tables.cancel()
        await self._end(group)

    async def _live(self, group: HaGroup, faults: HaFaults, watch: "asyncio.Future[None]", rng: SimRng) -> None:
        for _ in range(rng.between(1, 12)):
            await asyncio.sleep(rng.choice((0.05, 0.5, 3.0)) * rng.uniform(0.5, 1.5))
            await faults.one()
            group.check()
            if watch.done():
                watch.result()
        await faults.settle()
        group.check()
        await group.let_operator_decide()
        await asyncio.sleep(rng.uniform(0.1, 3))
        await group.stop_sending()
        await group.converge(CONVERGENCE_LIMIT_S)
        if watch.done():
            watch.result()

    async def _watch(self, group: HaGroup, rng: SimRng) -> None:
        while True:
            await asyncio.sleep(rng.uniform(0.01, 0.4))
            group.check(whole=False)

    async def _end(self, group: HaGroup) -> None:
        group.check_equal()
        for node in group.nodes:
            await node.stop()
            found = check(node.machine.disk, node.config)
            assert not found.faults, "\n".join([f"the offline check of {node} finds:", *found.lines()])


class FaultyHaStory(HaStory):
    """The same on disks of which every call can fail."""

    FAILS = True


class HaSettingsStory(FaultyHaStory):
    """The same with brokers whose settings change from one start to the next."""

    OTHER_SETTINGS = True


class BatchHaStory(HaStory):
    """The same with topics that may have queues of batches, and another type each time they are made again. Slaves hear
    of it late, and may be made the master before."""

    HAS_BATCHES = True
