"""A broker with access control as a process of its own, and strangers that reach its port for other brokers: the HA
port (haListenPort), or that of a DLedger member."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from maxq.codes import RequestCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.protocol.body.route import KVTable
from maxq.protocol.dledger.dledger_codec import decode_reply, encode_request, request_code
from maxq.protocol.dledger.dledger_messages import MetadataRequest, Reply, Request
from maxq.protocol.frame.remoting_command import LONGEST_HEADER, RemotingCommand, decode_frame
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.remoting.client import RemotingClient
from maxq.runtime.files.system import SystemClock, SystemRng
from tests.integration.access.world import ACL_2, ROOT, signed
from tests.integration.processes.maxq_process import StoredProcess
from tests.interop.processes.servers import free_port_base

HA, DLEDGER = "haListenPort", "DLedger"
GROUP = "group"
_REPORT = struct.Struct(">q")
_HEAD = struct.Struct(">qi")


class BrokerProcess(StoredProcess):
    """A broker with ACL 2.0.

    Attributes:
        peer_port: where other brokers connect.
    """

    def __init__(self, folder: Path, kind: str, more: Mapping[str, str] | None = None, name: str = "broker") -> None:
        super().__init__(name, [], folder / f"{name}-ready")
        self.kind = kind
        ports = free_port_base(3)
        self.port, self.peer_port = ports, ports + 1
        self.address = f"127.0.0.1:{ports}"
        self.store = folder / f"{name}-store"
        self.settings = {
            **ACL_2, "brokerName": "broker-a", "brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1",
            "listenPort": str(ports), "haListenPort": str(ports + 1), "storePathRootDir": str(self.store),
            "mappedFileSizeCommitLog": str(1 << 20), "mappedFileSizeConsumeQueue": "20000", "maxHashSlotNum": "1000",
            "maxIndexNum": "4000", "slaveTimeout": "1500",
        }  # fmt: skip
        if kind == DLEDGER:
            self.settings |= {
                "enableDLegerCommitLog": "true", "dLegerGroup": GROUP, "dLegerSelfId": "n0",
                "dLegerPeers": f"n0-127.0.0.1:{ports + 1}",
            }  # fmt: skip
        self.settings |= more or {}
        self._conf = folder / f"{name}.conf"
        self.arguments = ["broker", "--verbose", "-c", str(self._conf)]
        self._client: RemotingClient | None = None

    async def start(self) -> None:
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        await super().start()
        self._client = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())
        if self.kind == DLEDGER and ";" not in self.settings["dLegerPeers"]:
            try:
                await self.until_master()
            except BaseException:
                await self.kill()
                raise

    async def until_master(self) -> None:
        """Wait until it takes messages."""
        async with asyncio.timeout(30):
            while (await self.send(b"is it master?")).code != 0:  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.close()
        await super().stop()

    async def ask(self, command: RemotingCommand) -> RemotingCommand:
        """A request of root's to the port for clients."""
        assert self._client is not None, "it was started"
        return await self._client.invoke(self.address, signed(command, ROOT), 10_000)

    async def send(self, body: bytes, topic: str = "T") -> RemotingCommand:
        now_ms = SystemClock().wall_ms()
        header = SendMessageRequestHeader("PG", topic, "TBW102", 4, 0, 0, now_ms, 0, "", 0, False, False)
        return await self.ask(RemotingCommand(RequestCode.SEND_MESSAGE_V2, header.encode_v2(), body))

    async def runtime_info(self) -> dict[str, str]:
        answer = await self.ask(RemotingCommand(28))
        assert answer.code == 0, answer.remark
        return KVTable.decode(answer.body_bytes).table

    async def log_end(self) -> int:
        return int((await self.runtime_info())["commitLogMaxOffset"])


# --- strangers --------------------------------------------------------------------------------------------------------


class Stranger:
    """One connection to a port for brokers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._opaque = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def at(cls, port: int, source: str = "127.0.0.1") -> "AsyncIterator[Stranger]":
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        try:
            yield cls(reader, writer)
        finally:
            writer.transport.abort()

    async def is_cut(self) -> bool:
        """Does the server close the connection, whatever it sends before?"""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(10):
                while await self.reader.read(1 << 16):
                    pass
        return True

    # --- the HA port ---

    def report(self, *offsets: int) -> None:
        self.writer.write(b"".join(map(_REPORT.pack, offsets)))

    async def frame(self) -> tuple[int, bytes]:
        """Offset and bytes of the next transfer."""
        async with asyncio.timeout(20):
            offset, size = _HEAD.unpack(await self.reader.readexactly(_HEAD.size))
            return offset, await self.reader.readexactly(size)

    # --- the port of a DLedger member ---

    async def ask(self, code: int, body: bytes | None = None, ext: Mapping[str, str] | None = None) -> RemotingCommand:
        self._opaque += 1
        self.writer.write(RemotingCommand(code, dict(ext or {}), body, opaque=self._opaque).encode())
        async with asyncio.timeout(10):
            while True:
                size = struct.unpack(">I", await self.reader.readexactly(4))[0]
                answer = decode_frame(await self.reader.readexactly(size), LONGEST_HEADER)
                if answer.opaque == self._opaque:
                    return answer

    async def say(self, request: Request) -> Reply:
        code = request_code(request)
        answer = await self.ask(code, body_of(request))
        return decode_reply(code, answer.body)


def body_of(request: Request) -> bytes:
    body = encode_request(request)
    return b"".join(body) if isinstance(body, list) else body or b""


async def is_served(kind: str, port: int, source: str) -> bool:
    """Does the port answer what a broker of the group would say there?"""
    try:
        async with Stranger.at(port, source) as stranger:
            if kind == HA:
                stranger.report(0)
                await stranger.frame()
            else:
                await stranger.say(MetadataRequest(group=GROUP, remote_id="n0"))
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return True
