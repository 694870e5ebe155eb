"""Deliveries within the process, and what is sent to gRPC clients, where one of several fails."""

import asyncio
from typing import Any

import pytest

from maxq.proxy.loopback import Deliveries
from maxq.remoting.grpc.server import GrpcServer


class End:
    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.delivered = 0
        self.aborted = ""
        self.remote_address = "192.0.2.1:1"

    def deliver(self) -> None:
        self.delivered += 1
        if self.fails:
            raise KeyError("broken")

    flush = deliver

    def abort(self, reason: str) -> None:
        self.aborted = reason


@pytest.mark.parametrize("at_once", [True, False])
async def test_an_end_that_fails_leaves_the_others_as_they_are(at_once: bool, caplog: pytest.LogCaptureFixture) -> None:
    ends: list[Any] = [End(True), End(False)]
    deliveries = Deliveries()
    for end in ends:
        deliveries.add(end)
    if at_once:
        deliveries.run()
    await asyncio.sleep(0)
    assert [end.delivered for end in ends] == [1, 1]
    assert [record.getMessage() for record in caplog.records] == ["a delivery within the process failed"]


async def test_a_client_that_cannot_be_sent_to_is_disconnected_and_others_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clients: list[Any] = [End(True), End(False)]
    server = GrpcServer({})
    for client in clients:
        server.wrote(client)
    await asyncio.sleep(0)
    assert [client.delivered for client in clients] == [1, 1]
    assert clients[0].aborted
    assert not clients[1].aborted
    assert len(caplog.records) == 1
