"""What probes and tools ask a broker's gRPC port."""

from typing import Any

import grpc.aio

from maxq.remoting.grpc.standard_services import health_file, message_classes, reflection_file
from tests.integration.proxy.conftest import StartWorld


async def test_a_load_balancer_asks_for_health_and_a_tool_for_the_services(start: StartWorld) -> None:
    world = await start(authenticationEnabled="true", authorizationEnabled="true")
    request, response = message_classes(health_file(), "HealthCheckRequest", "HealthCheckResponse")
    question, answer = message_classes(reflection_file("v1"), "ServerReflectionRequest", "ServerReflectionResponse")

    def encoded(message: Any) -> bytes:
        return bytes(message.SerializeToString())

    async with grpc.aio.insecure_channel(world.address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check", encoded, response.FromString)
        assert (await check(request(service="apache.rocketmq.v2.MessagingService"), timeout=20)).status == 1
        reflect = channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", encoded, answer.FromString
        )
        told = [one async for one in reflect(iter([question(list_services="")]), timeout=20)]
        assert [one.name for one in told[0].list_services_response.service][:2] == [
            "apache.rocketmq.v2.MessagingService", "grpc.health.v1.Health",
        ]  # fmt: skip
