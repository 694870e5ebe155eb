"""A name server on a free port, and a peer that speaks raw frames to it."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from maxq.codes import RequestCode
from maxq.config import NamesrvConfig, NamesrvSettings, NettyClientConfig, NettyServerConfig
from maxq.namesrv.controller import NamesrvController
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.register_broker import RegisterBrokerBody
from maxq.protocol.body.topic_config import TopicConfig, TopicConfigAndMappingSerializeWrapper
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.protocol.header.namesrv import RegisterBrokerRequestHeader
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng
from tests.watched_loop import watch

_PATIENCE_S = 30


class Peer:
    """One connection; requests get numbered, answers come back in any order but are asked for one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._opaque = 0

    @classmethod
    async def connect(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, command: RemotingCommand) -> RemotingCommand:
        self._opaque += 1
        command.opaque = self._opaque
        answer = await self.ask_bytes(command.encode())
        assert answer.opaque == command.opaque
        return answer

    async def ask_bytes(self, frame: bytes) -> RemotingCommand:
        self.writer.write(frame)
        return await self.receive()

    async def receive(self) -> RemotingCommand:
        (length,) = struct.unpack(">i", await asyncio.wait_for(self.reader.readexactly(4), _PATIENCE_S))
        return decode_frame(await asyncio.wait_for(self.reader.readexactly(length), _PATIENCE_S))

    async def at_end(self) -> bool:
        """The server closed the connection (waits for it)."""
        return await asyncio.wait_for(self.reader.read(), _PATIENCE_S) == b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


@contextlib.asynccontextmanager
async def name_server(
    folder: Path,
    *,
    server: NettyServerConfig | None = None,
    client: NettyClientConfig | None = None,
    **settings: object,
) -> AsyncIterator[NamesrvController]:
    """A running name server; files go to `folder`. AssertionError if something kept its loop for too long."""
    namesrv = NamesrvConfig(
        **{  # type: ignore[arg-type]
            "kv_config_path": str(folder / "kvConfig.json"),
            "config_store_path": str(folder / "namesrv.conf"),
            **settings,
        }
    )
    holder = NamesrvSettings(namesrv, server or NettyServerConfig(bind_address="127.0.0.1"), client)
    controller = NamesrvController(holder, disk=SystemDisk(), clock=SystemClock(), rng=SystemRng())
    watch(controller._server.holds)
    await controller.start()
    try:
        yield controller
    finally:
        await controller.shutdown()
    held = {cause: hold.longest_ns // 1_000_000 for cause, hold in controller._server.holds.by_cause.items()}
    assert not held, f"held the loop, ms by request code or name: {held}"


def registering(
    *topics: str,
    name: str = "broker-a",
    addr: str = "10.0.0.1:10911",
    broker_id: int = 0,
    version: int = 1,
    compressed: bool = False,
    timeout_ms: int | None = None,
    acting: bool | None = False,
    perm: int = 6,
    cluster: str = "DefaultCluster",
) -> RemotingCommand:
    """A REGISTER_BROKER request."""
    table = {topic: TopicConfig(topic, 4, 4, perm) for topic in topics}
    wrapper = TopicConfigAndMappingSerializeWrapper(table, DataVersion(version, 0, 1000 * version))
    header = RegisterBrokerRequestHeader(
        broker_name=name,
        broker_addr=addr,
        cluster_name=cluster,
        ha_server_addr=addr + "1",
        broker_id=broker_id,
        heartbeat_timeout_millis=timeout_ms,
        enable_acting_master=acting,
        compressed=compressed,
    )
    body = RegisterBrokerBody(wrapper).encode_body(compressed=compressed, broker_version=479)
    return RemotingCommand(RequestCode.REGISTER_BROKER, header.encode(), body)


def asking_route(topic: str, **ext: str) -> RemotingCommand:
    """A GET_ROUTEINFO_BY_TOPIC request."""
    return RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **ext})


async def until(peer: Peer, topic: str, fits: Callable[[RemotingCommand], bool], seconds: float = _PATIENCE_S) -> None:
    """Ask for the route until the answer fits."""
    async with asyncio.timeout(seconds):
        while not fits(await peer.ask(asking_route(topic))):  # noqa: ASYNC110  # what is waited for is remote
            await asyncio.sleep(0.01)
