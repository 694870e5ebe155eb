"""The stages of sends that a broker follows."""

import asyncio
import json
from typing import Any

import pytest

from maxq.broker.stats.stage_times import ONE_IN, Stage, StageTimes
from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection
from maxq.testing.sim_clock import SimClock
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker


async def ask(broker: RunningBroker) -> dict[str, Any]:
    reply = await broker.invoke(RemotingCommand(RequestCode.MAXQ_WHY_SLOW))
    assert reply.code == 0, reply.remark
    found: dict[str, Any] = json.loads(reply.body_bytes)
    return found


def test_a_sample_adds_up_its_stages_and_counts_what_is_waited_for_side_by_side_once() -> None:
    clock = SimClock()
    times = StageTimes(clock)
    sample = times.begin(queue_ms=2)
    for stage, milliseconds in ((Stage.RECEIVE, 1), (Stage.APPEND, 3)):
        clock.advance_ms(milliseconds)
        sample.ended(stage)
    clock.advance_ms(10)
    sample.heard(Stage.FLUSH)
    clock.advance_ms(5)
    sample.heard(Stage.REPLICATE)
    sample.waited()
    clock.advance_ms(1)
    sample.ended(Stage.ANSWER)
    sample.finish(7)
    found = times.to_json()
    assert {stage["stage"]: stage["maxUs"] / 1000 for stage in found["stages"]} == {
        "queue": 2, "receive": 1, "append": 3, "flush": 10, "replicate": 15, "answer": 1,
    }  # fmt: skip
    assert found["total"]["maxUs"] == 22_000 and found["messages"] == 7
    assert found["slowest"][0]["replicateUs"] == 15_000


def test_only_the_newest_samples_are_kept() -> None:
    times = StageTimes(SimClock())
    for _ in range(3000):
        times.begin(0).finish(1)
    assert times.to_json()["samples"] == 1024


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_one_arrival_in_so_many_is_followed(start_broker: Start, flush: str) -> None:
    broker = await start_broker(flushDiskType=flush)
    broker.create_topic("orders", queues=1)
    assert (await ask(broker))["samples"] == 0
    for number in range(2 * ONE_IN + 2):
        assert (await broker.send("orders", b"x", UNIQ_KEY=f"k{number}")).code == 0
    found = await ask(broker)
    assert found["samples"] == found["messages"] == 2
    stages = {stage["stage"]: stage for stage in found["stages"]}
    assert stages["append"]["maxUs"] > 0 and stages["answer"]["maxUs"] > 0
    assert (stages["flush"]["maxUs"] > 0) == (flush == "SYNC_FLUSH")
    assert stages["replicate"]["maxUs"] == 0


async def test_refusals_stand_beside_the_stages(broker: RunningBroker) -> None:
    broker.controller.fast_failure.refused.count("OVERLOAD", "[OVERLOAD]busy")
    assert (await ask(broker))["refused"] == {"OVERLOAD": 1}


async def test_what_held_the_loop_is_told_by_request(start_broker: Start) -> None:
    broker = await start_broker(metricsExporterType="PROM", metricsPromExporterPort=0)
    broker.create_topic("orders", queues=1)
    assert (await ask(broker))["holds"] == []
    server = broker.controller.server
    clock = SimClock()
    server.holds.now, server.holds.limit_ns = clock.monotonic_ns, 50_000_000

    def long_one(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        clock.advance_ms(120)
        return request.reply()

    async def long_two(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        await asyncio.sleep(0)
        clock.advance_ms(70)
        return request.reply()

    server.register(RequestCode.GET_TOPIC_STATS_INFO, long_one)
    server.register(RequestCode.GET_CONSUME_STATS, long_two)
    for code in (RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_CONSUME_STATS, RequestCode.GET_CONSUME_STATS):
        assert (await broker.invoke(RemotingCommand(code))).code == 0
    assert (await broker.send("orders", b"x")).code == 0
    holds = (await ask(broker))["holds"]
    assert [(hold["cause"], hold["count"], hold["longestMs"]) for hold in holds] == [
        ("get_topic_stats_info (202)", 1, 120), ("get_consume_stats (208)", 2, 70),
    ]  # fmt: skip
    text = "".join(str(piece) for piece in broker.controller.metrics.lines())
    assert 'maxq_loop_holds_total{cause="get_consume_stats (208)"' in text
    server.holds.by_cause.clear()
