"""The metrics, health and readiness of a running broker, read as Prometheus reads them."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from maxq.broker.metrics.client_metrics import version_text
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.pop_extra_info import retry_topic_v1
from maxq.store.context.running_flags import DISK_FULL
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import SUBSCRIPTION, SUSPEND, RunningBroker, until
from tests.integration.broker.pop.pop_world import GROUP, popped

_PROM = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0, "metricsLabel": "zone:z1"}


async def http_get(port: int, path: str) -> tuple[int, str]:
    """Status and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split(" ")[1]), body


async def scrape(broker: RunningBroker) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and values by sample name."""
    status, body = await http_get(broker.controller.pages.port, "/metrics")
    assert status == 200
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


async def test_messages_in_and_out_with_java_s_names_and_labels(start_broker: Start) -> None:
    broker = await start_broker(**_PROM)
    broker.create_topic("orders", queues=1)
    for _ in range(3):
        assert (await broker.send("orders", b"x" * 100)).code == 0
    assert len(await broker.pull_messages("orders", group="billing")) == 3
    samples = await scrape(broker)
    own = {"cluster": "DefaultCluster", "node_id": "broker-a", "node_type": "broker", "zone": "z1",
           "otel_scope_name": "broker-meter", "is_system": "false", "topic": "orders"}  # fmt: skip
    assert samples["rocketmq_messages_in_total"] == [(own | {"message_type": "normal"}, 3.0)]
    assert samples["rocketmq_messages_out_total"] == [(own | {"consumer_group": "billing"}, 3.0)]
    ((_, put_bytes),) = samples["rocketmq_throughput_in_total"]
    assert put_bytes > 300
    buckets = {labels["le"]: value for labels, value in samples["rocketmq_message_size_bucket"]}
    assert buckets["1024.0"] == buckets["+Inf"] == 3.0
    assert samples["rocketmq_message_size_sum"][0][1] == put_bytes


async def test_pops_are_told_from_pulls_and_first_deliveries_from_retries(start_broker: Start) -> None:
    broker = await start_broker(**_PROM)
    broker.create_topic("T", queues=1)
    broker.create_topic(retry_topic_v1("T", GROUP), queues=1)
    for topic, count in (("T", 3), (retry_topic_v1("T", GROUP), 2)):
        for _ in range(count):
            assert (await broker.send(topic, b"x")).code == 0
    # the sends made a group of its name, whose retry topic it would be: only the broker itself sends there
    broker.controller.groups.delete_subscription_group_config(f"{GROUP}_T")
    assert len(await broker.pull_messages("T", group=GROUP)) == 3
    assert len(await popped(broker)) == 5
    for name in ("rocketmq_messages_out_total", "rocketmq_throughput_out_total"):
        samples = (await scrape(broker))[name]
        assert {labels["topic"] for labels, _ in samples} == {"T"}
        values = {labels.get("is_retry"): value for labels, value in samples}
        assert len(values) == len(samples) == 3
        assert values[None] == values["false"]  # the same three messages, pulled and popped
        if name == "rocketmq_messages_out_total":
            assert values == {None: 3.0, "false": 3.0, "true": 2.0}


async def test_each_request_is_in_the_latency_histogram(start_broker: Start) -> None:
    broker = await start_broker(**_PROM)
    broker.create_topic("orders", queues=1)
    await broker.send("orders", b"x")
    assert (await broker.pull("orders", 77)).code != 0
    counts = {
        (labels["request_code"], labels["response_code"]): value
        for labels, value in (await scrape(broker))["rocketmq_rpc_latency_milliseconds_count"]
    }
    assert counts["send_message_v2", "success"] == 1
    assert counts["pull_message", "pull_offset_moved"] == 1


async def test_a_pull_that_was_parked_counts_as_long_polling(start_broker: Start) -> None:
    broker = await start_broker(**_PROM)
    broker.create_topic("orders", queues=1)
    waiting = asyncio.ensure_future(broker.pull("orders", 0, sys_flag=SUBSCRIPTION | SUSPEND, wait_ms=10_000))
    await broker.until_held("orders")
    await broker.send("orders", b"x")
    assert (await waiting).code == 0
    counts = [
        (labels["request_code"], value)
        for labels, value in (await scrape(broker))["rocketmq_rpc_latency_milliseconds_count"]
        if labels["is_long_polling"] == "true"
    ]
    assert counts == [("pull_message", 1.0)]


async def test_lag_of_an_online_group(start_broker: Start) -> None:
    broker = await start_broker(**_PROM)
    broker.create_topic("orders", queues=1)
    await broker.heartbeat("billing", {"orders": "*"})
    for _ in range(5):
        await broker.send("orders", b"x")
    broker.controller.offsets.commit_offset("h", "billing", "orders", 0, 2)
    samples = await scrape(broker)
    for name, value in (
        ("rocketmq_consumer_lag_messages", 3.0),
        ("rocketmq_consumer_ready_messages", 3.0),
        ("rocketmq_consumer_inflight_messages", 0.0),
    ):
        ((labels, found),) = samples[name]
        assert (labels["topic"], labels["consumer_group"], labels["is_retry"], found) == (
            "orders", "billing", "false", value,
        )  # fmt: skip
    assert samples["rocketmq_consumer_lag_latency_milliseconds"][0][1] >= 0
    ((labels, connections),) = samples["rocketmq_consumer_connections"]
    assert (labels["consumer_group"], labels["consume_mode"], connections) == ("billing", "push", 1.0)


async def test_store_and_broker_numbers(start_broker: Start) -> None:
    broker = await start_broker(**_PROM)
    samples = await scrape(broker)
    ((labels, _),) = samples["rocketmq_storage_size_bytes"]
    assert (labels["storage_type"], labels["storage_medium"]) == ("local", "disk")
    assert samples["rocketmq_broker_permission"][0][1] == 6.0
    assert samples["maxq_ha_slaves"][0][1] == samples["maxq_ha_largest_gap_bytes"][0][1] == 0.0
    assert samples["rocketmq_topic_number"][0][1] == len(broker.controller.topics.topic_config_table)
    processors = {labels["processor"] for labels, _ in samples["rocketmq_processor_watermark"]}
    assert processors == {
        "send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull", "transaction",
        "consumer_manager", "admin", "reply",
    }  # fmt: skip


async def test_refusals_are_counted_by_cause(start_broker: Start) -> None:
    broker = await start_broker(**_PROM)
    broker.create_topic("orders", queues=1)
    broker.controller.store.flags.set(DISK_FULL, "the disk is 91% full, the limit is 90%; free some of it")
    reply = await broker.send("orders", b"x")
    assert reply.code == 14 and "[DISK_FULL]the disk is 91% full" in (reply.remark or "")
    assert ("DISK_FULL", 1.0) in [
        (labels["cause"], value) for labels, value in (await scrape(broker))["maxq_refusals_total"]
    ]


async def test_readiness_names_what_keeps_clients_away(start_broker: Start) -> None:
    broker = await start_broker(**_PROM)
    port = broker.controller.pages.port
    assert await http_get(port, "/ready") == (200, "ready\n")
    broker.controller.store.flags.set(DISK_FULL, "the disk is full")
    assert await http_get(port, "/ready") == (503, "[DISK_FULL]the disk is full\n")
    assert await http_get(port, "/health") == (200, "ok\n")


async def test_without_the_setting_nothing_is_served(broker: RunningBroker) -> None:
    assert broker.controller.pages.port == 0
    assert not [name for name in broker.controller.metrics.helps() if name.startswith("rocketmq_")]


async def test_groups_of_metrics_can_be_switched_off(start_broker: Start) -> None:
    broker = await start_broker(**_PROM, enableRequestMetrics="false", enableMessageStoreMetrics="false")
    names = broker.controller.metrics.helps()
    assert "rocketmq_messages_in_total" not in names and "rocketmq_storage_size_bytes" not in names
    assert "rocketmq_consumer_lag_messages" in names


def test_versions_have_java_s_names() -> None:
    assert [version_text(ordinal) for ordinal in (232, 399, 412, 413, 479, 513, 28)] == [
        "v4_1_0_snapshot", "v4_9_3", "v5_0_0_snapshot", "v5_0_0", "v5_3_3", "v5_5_0", "v28",
    ]  # fmt: skip


async def test_a_group_that_only_pops_has_a_lag_and_a_subscription_and_pop_is_counted(start_broker: Start) -> None:
    broker = await start_broker(
        **_PROM, timerPrecisionMs="100", reviveInterval="100", popCkStayBufferTime=100, popCkStayBufferTimeOut=100
    )
    broker.create_topic("T", 1)
    await broker.send("T", b"x", TAGS="A")
    assert len(await popped(broker, exp="A", invisible_time=600)) == 1
    names = await scrape(broker)
    assert {"consumer_group": GROUP, "topic": "T"}.items() <= names["rocketmq_consumer_lag_messages"][0][0].items()
    asked = RemotingCommand(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": GROUP, "topic": "T"})
    reply = await broker.invoke(asked)
    assert b'"subString":"A"' in reply.body_bytes
    connections = RemotingCommand(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": GROUP})
    assert (await broker.invoke(connections)).code == ResponseCode.CONSUMER_NOT_ONLINE  # as Java has it
    await until(lambda: broker.controller.store.max_offset(retry_topic_v1("T", GROUP), 0) == 1)
    names = await scrape(broker)

    def counted(name: str) -> list[tuple[str, ...]]:
        common = ("cluster", "node_id", "node_type", "otel_scope_name", "zone")
        return [tuple(text for label, text in labels.items() if label not in common) for labels, _ in names[name]]

    assert counted("rocketmq_pop_revive_in_message_total") == [(GROUP, "PUT_OK", "CK", "T")]
    assert [labels[2:] for labels in counted("rocketmq_pop_revive_out_message_total")] == [("CK", "T")]
    assert counted("rocketmq_pop_revive_retry_messages_total") == [(GROUP, "PUT_OK", "T")]
    assert names["rocketmq_pop_buffer_scan_time_consume_milliseconds_count"][0][1] > 0
