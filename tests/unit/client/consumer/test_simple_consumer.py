"""A simple consumer at a broker that refuses it."""

import contextlib

import pytest

from maxq.client.client_config import SimpleConsumerConfig
from maxq.client.consumer.simple_consumer import SimpleConsumer
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError
from maxq.protocol.frame.remoting_command import RemotingCommand
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate


def test_one_topic_of_several_that_is_refused_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def pop(request: RemotingCommand) -> RemotingCommand:
        if request.ext["topic"] == "U":
            return request.reply(ResponseCode.NO_PERMISSION, "alice may not read U")
        return request.reply(ResponseCode.POLLING_TIMEOUT)

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        for topic in ("T", "U"):
            cluster.route(topic)
        cluster.broker.scripts[RequestCode.POP_MESSAGE] = pop
        config = SimpleConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G")
        consumer = SimpleConsumer(config, cluster.environment())
        for topic in ("T", "U"):
            await consumer.subscribe(topic)
        async with consumer:
            for _ in range(50):
                with contextlib.suppress(BrokerError):
                    assert await consumer.receive(wait_ms=0) == []

    simulate(story)
    said = [record.getMessage() for record in caplog.records if "could not be asked" in record.getMessage()]
    assert len(said) == 1 and "alice may not read U" in said[0]
