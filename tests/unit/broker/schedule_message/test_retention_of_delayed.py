"""What retention leaves for delay levels that are longer than fileReservedTime."""

from collections.abc import Awaitable, Callable
from pathlib import PurePath

import pytest

from maxq.broker.schedule_message.delay_levels import DelayLevels
from maxq.broker.schedule_message.schedule_message_service import ScheduleMessageService
from maxq.broker.slave.replicated_config_files import ReplicatedConfigFiles
from maxq.protocol.body.offsets import DelayOffsetSerializeWrapper
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.broker.bundles_of import messages, tables
from tests.unit.broker.timer.timer_world import TimerWorld, small_wheel

LEVEL = 2
DELAY_MS = 7_200_000


class _World(TimerWorld):
    """A store with delay levels of 1 s and 2 h, whose log is deleted after an hour, at any time of the day."""

    def open_levels(self, *, delivers: bool) -> None:
        self.files = ReplicatedConfigFiles(self.disk, PurePath("/store/config"))
        self.levels = ScheduleMessageService(
            self.env, tables(files=self.files), messages(store=self.store), DelayLevels("1s 2h"), self._put_delayed,
            lambda: None, lambda level, messages, size: None,
        )  # fmt: skip
        if delivers:
            self.levels.start()

    async def _put_delayed(self, message: MessageExtBrokerInner) -> PutMessageResult:
        if message.topic in self.failing:
            return PutMessageResult(self.failing[message.topic])
        return self.store.put_message(message)

    def send_late(self, body: str) -> None:
        properties = {"DELAY": str(LEVEL), "REAL_TOPIC": "T", "REAL_QID": "0"}
        message = MessageExtBrokerInner(
            "SCHEDULE_TOPIC_XXXX", LEVEL - 1, body.encode(), properties,
            born_timestamp=self.clock.wall_ms(), born_host=b"\x7f\0\0\1\0\0\x12\x34",
        )  # fmt: skip
        assert self.store.put_message(message).ok

    def fill_two_files(self) -> None:
        for _ in range(140):
            self.send("x" * 16_000, topic="Other")

    def master_says(self, offset: int) -> None:
        self.files.write_delay_offsets(DelayOffsetSerializeWrapper({LEVEL: offset}).encode())


def _run(story: Callable[[_World], Awaitable[None]], *, delivers: bool) -> None:
    async def main(sim: SimWorld) -> None:
        world = _World(
            sim, delete_when=";".join(f"{hour:02}" for hour in range(24)), clean_resource_interval=600_000,
            file_reserved_time=1, message_delay_level="1s 2h",
        )  # fmt: skip
        await world.open(dequeue=False)
        world.open_levels(delivers=delivers)
        await story(world)
        await world.levels.shutdown()
        await world.close()

    with small_wheel():
        run_simulation(main, seed=1, time_limit_s=86_400.0, step_limit=50_000_000)


def test_a_message_whose_level_is_longer_than_file_reserved_time_is_delivered() -> None:
    async def story(world: _World) -> None:
        world.send_late("late")
        world.fill_two_files()
        await world.sleep_ms(DELAY_MS - 10_000)
        assert world.store.min_physical_offset == 0
        await world.sleep_ms(1_000_000)
        assert world.bodies() == ["late"]
        assert world.store.min_physical_offset > 0

    _run(story, delivers=True)


def test_damaged_messages_in_front_of_one_that_waits_do_not_let_its_file_go() -> None:
    async def story(world: _World) -> None:
        for number in range(40):
            world.send_late(f"damaged {number}")
        world.send_late("late")
        world.fill_two_files()
        await world.sleep_ms(1000)
        queue = world.store.queue("SCHEDULE_TOPIC_XXXX", LEVEL - 1)
        assert queue is not None
        for offset in range(40):
            unit = queue.unit(offset)
            assert unit is not None
            queue.put_unit(offset, (unit[0], unit[1], DAMAGED_TAGS_CODE))
        await world.levels.shutdown()
        world.open_levels(delivers=True)  # it reads the queue anew
        await world.sleep_ms(DELAY_MS - 20_000)
        assert world.store.min_physical_offset == 0
        await world.sleep_ms(1_000_000)
        assert world.bodies() == ["late"]
        assert world.store.min_physical_offset > 0

    _run(story, delivers=True)


def test_a_message_that_fails_keeps_its_file_for_file_reserved_time_and_no_longer() -> None:
    async def story(world: _World) -> None:
        world.failing["T"] = PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
        world.send_late("never storable")
        world.fill_two_files()
        await world.sleep_ms(DELAY_MS + 3_500_000)
        assert world.store.min_physical_offset == 0
        await world.sleep_ms(1_300_000)
        assert world.store.min_physical_offset > 0

    _run(story, delivers=True)


def test_a_slave_keeps_what_its_master_has_not_delivered(caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: _World) -> None:
        world.send_late("late")
        world.fill_two_files()
        world.be("SLAVE")
        world.master_says(0)
        await world.sleep_ms(DELAY_MS + 4_000_000)
        assert world.store.min_physical_offset == 0
        lines = [line for line in caplog.messages if "delayed messages of level 2 wait in it" in line]
        assert 2 <= len(lines) <= 4  # once an hour
        world.master_says(1)
        await world.sleep_ms(1_000_000)
        assert world.store.min_physical_offset > 0

    _run(story, delivers=False)


def test_a_slave_that_knows_nothing_of_its_masters_deliveries_deletes_by_age() -> None:
    async def story(world: _World) -> None:
        world.send_late("late")
        world.fill_two_files()
        world.be("SLAVE")
        await world.sleep_ms(DELAY_MS)
        assert world.store.min_physical_offset > 0

    _run(story, delivers=False)
