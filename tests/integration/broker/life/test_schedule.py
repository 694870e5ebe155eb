"""What a broker does from time to time, done now."""

import logging
from dataclasses import replace

import pytest

from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker


async def test_group_that_is_too_far_behind_is_switched_off_where_that_is_wanted(broker: RunningBroker) -> None:
    broker.create_topic("T")
    for i in range(20):
        await broker.send("T", bytes(1000), UNIQ_KEY=f"U{i}")
    await broker.pull("T", max_nums=1, group="slow")
    await broker.pull("T", 19, group="fast")
    broker.settings.broker = replace(broker.settings.broker, consumer_fallbehind_threshold=5_000)
    broker.controller.schedule.protect_broker()
    assert (await broker.pull("T", group="slow")).code == 0
    broker.settings.broker = replace(broker.settings.broker, disable_consume_if_consumer_read_slowly=True)
    await broker.pull("T", max_nums=1, group="slow")
    broker.controller.schedule.protect_broker()
    refused = await broker.pull("T", group="slow")
    assert (refused.code, refused.ext) == (16, {"forbiddenType": "2"})
    assert (await broker.pull("T", 19, group="fast")).code == 0


def said(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == logger]


async def test_water_marks_are_told_while_something_is_unfinished(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="maxq.broker.watermark")
    broker.controller.schedule.print_water_mark()
    assert said(caplog, "maxq.broker.watermark") == []
    broker.controller.fast_failure.sends.enter()
    broker.controller.schedule.print_water_mark()
    broker.controller.fast_failure.sends.leave()
    assert said(caplog, "maxq.broker.watermark") == ["[WATERMARK] unfinished: send 1 (peak 1); parked pulls 0"]


async def test_dispatch_that_keeps_up_is_not_told(broker: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="maxq.broker.assembly.schedule")
    broker.create_topic("T")
    await broker.send("T", b"x")
    broker.controller.schedule.print_dispatch_behind()
    assert said(caplog, "maxq.broker.assembly.schedule") == []


async def test_offsets_are_persisted_by_the_clock(start_broker: Start) -> None:
    broker = await start_broker()
    broker.create_topic("T")
    await broker.send("T", b"x")
    await broker.pull("T", sys_flag=5, commit_offset=1)
    broker.controller.offsets.request_persist()  # what the schedule does
    await broker.controller.offsets.persisted()
    assert '"T@G"' in (broker.folder / "config" / "consumerOffset.json").read_text()


async def test_rates_of_the_store_move_with_its_samples(broker: RunningBroker) -> None:
    broker.create_topic("T")
    schedule = broker.controller.schedule
    schedule.sample_store()
    for i in range(10):
        await broker.send("T", b"x", UNIQ_KEY=f"U{i}")
    schedule.sample_store()
    assert float(broker.controller.store.runtime_info()["putTps"].split()[0]) > 0
