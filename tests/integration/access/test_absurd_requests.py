"""Whoever may ask everything asks with fields and bodies that make no sense: each request is answered or refused on
purpose, by a master, a slave and a name server, and what was stored before is there."""

import re
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from maxq.codes import RequestCode as Code
from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.settings import NamesrvSettings
from maxq.errors import RemotingError
from maxq.namesrv.controller import NamesrvController
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.remoting.server import RemotingServer
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng
from tests.integration.access.test_adversary_walk import own_fields
from tests.integration.access.test_every_request import served
from tests.integration.broker.harness import RunningBroker

VALUES = [
    None, "", "-1", "2147483648", "9223372036854775808", "-9223372036854775808", "1e308", "x" * 256, "a\0b",
    "\u00e4\ud7ff\U0001f4a5", "../../../etc/passwd", "{}", "rmq_sys_wheel_timer", "%RETRY%",
    "7F00000100002A9F" + "F" * 16, "9 9 9 9 9 9 9 9",
]  # fmt: skip
BODIES = [
    b"", b"null", b"[]", b'{"a":' * 3000, b"[" * 3000, b"\xff\xfe" * 9, struct.pack(">i", -1) * 9,
    b'{"consumerGroup":"hg","mqSet":[null,1,{"topic":null}],"acks":[null,{"c":1}],"clientId":null}',
    b'{"clientID":1,"consumerDataSet":[null],"producerDataSet":{},"topicConfigList":[null,{"topicName":1}]}',
    b"flushDiskType=NOPE\n=\n",
]  # fmt: skip
#: The remark of an exception that nobody foresaw.
_UNFORESEEN = re.compile(r"[A-Z]\w*(Error|Exception|Group|Interrupt|Exit): ")
KEPT = 20


class Reads(dict[str, str]):
    """Header fields that tell which of them a processor asks for."""

    names: set[str]

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.names.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


class Asker:
    """Asks one server, and keeps what it did not foresee."""

    def __init__(self, server: RemotingServer, address: str) -> None:
        self.server, self.address = server, address
        self.client = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())
        self.unforeseen: dict[tuple[int, str], str] = {}
        now_ms = SystemClock().wall_ms()
        self.base = own_fields() | {
            "topic": "hers", "b": "hers", "originTopic": "hers", "group": "hg", "consumerGroup": "hg",
            "suspendTimeoutMillis": "0", "pollTime": "1", "bornTime": str(now_ms), "waitMs": "0",
        }  # fmt: skip

    async def ask(self, code: int, ext: Mapping[str, str], body: bytes, what: str) -> None:
        request = RemotingCommand(code, dict(ext), body)
        if code == Code.END_TRANSACTION and ext.get("commitOrRollback") not in ("8", "12"):
            await self.client.invoke_oneway(self.address, request)  # it says nothing, and is answered nothing
            return
        try:
            answer = await self.client.invoke(self.address, request, 30_000)
        except RemotingError as error:
            self.unforeseen[code, what] = str(error)
            return
        if answer.remark and _UNFORESEEN.match(answer.remark):
            self.unforeseen[code, what] = answer.remark

    async def fields_of(self, code: int) -> list[str]:
        """Names of the header fields that the processor of `code` reads."""
        processor, names = self.server.processor(code), set[str]()

        def noting(connection: object, request: RemotingCommand) -> object:
            request.ext = reads = Reads(request.ext)
            reads.names = names
            return processor(connection, request)  # type: ignore[arg-type]

        self.server.register(code, noting)  # type: ignore[arg-type]
        for ext in (self.base, dict.fromkeys(self.base, "0")):
            for body in (b"", b"{}"):
                await self.ask(code, ext, body, "as it should be")
        self.server.register(code, processor)
        return sorted(names - {"AccessKey", "Signature", "SecurityToken"})

    async def walk(self) -> None:
        """Every request, with each absurd value of each field, and each absurd body."""
        for code in sorted(served(self.server)):
            for name in await self.fields_of(code):
                for value in VALUES:
                    ext = {**self.base, name: value}
                    await self.ask(
                        code, {key: text for key, text in ext.items() if text is not None}, b"{}", f"{name}={value!r}"
                    )
            for body in BODIES:
                await self.ask(code, self.base, body, f"body {body[:40]!r}")

    async def close(self) -> None:
        await self.client.close()


def _namesrv(folder: Path) -> NamesrvController:
    given = {"bindAddress": "127.0.0.1", "listenPort": "0", "kvConfigPath": str(folder / "kv.json")}
    settings, _ = NamesrvSettings.from_properties(given, source="test")
    return NamesrvController(settings, disk=SystemDisk(), clock=SystemClock(), rng=SystemRng())


async def test_a_name_server_foresees_every_request(tmp_path: Path) -> None:
    namesrv = _namesrv(tmp_path)
    await namesrv.start()
    asker = Asker(namesrv._server, f"127.0.0.1:{namesrv.port}")
    await asker.walk()
    await asker.close()
    await namesrv.shutdown()
    assert asker.unforeseen == {}


@pytest.mark.parametrize("role", ["master", "slave"])
async def test_a_broker_foresees_every_request(tmp_path: Path, role: str) -> None:
    lmq = {"enableLmq": "true", "enableMultiDispatch": "true"}
    master = RunningBroker(tmp_path / "master", lmq)
    await master.start()
    slave = RunningBroker(
        tmp_path / "slave",
        {**lmq, "brokerRole": "SLAVE", "brokerId": "1",
         "haMasterAddress": f"127.0.0.1:{master.controller.address.ha_port}"},
    )  # fmt: skip
    if role == "slave":
        await slave.start()
    for topic in ("hers", "kept"):
        master.create_topic(topic, 1)
    for number in range(KEPT):
        assert (await master.send("kept", b"%d" % number)).code == 0
    asked = master if role == "master" else slave
    asker = Asker(asked.controller.server, asked.address)
    await asker.walk()
    await asker.close()
    assert [message.body for message in await master.pull_messages("kept")] == [b"%d" % n for n in range(KEPT)]
    if role == "slave":
        await slave.stop()
    await master.stop()
    assert asker.unforeseen == {}
    again = RunningBroker(tmp_path / "master", lmq)
    await again.start()
    assert again.controller.store.report.clean_exit
    assert again.controller.store.max_offset("kept", 0) == KEPT
    await again.stop()
