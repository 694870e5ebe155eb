"""A running broker and a raw client for it: requests by code and header, as any client would send them."""

import asyncio
import contextlib
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from maxq.broker.controller import BrokerController
from maxq.codes import RequestCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.heartbeat import ConsumerData, HeartbeatData, ProducerData
from maxq.protocol.body.subscription import build_subscription_data
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import MessageModel
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PullMessageRequestHeader
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.message.message import MessageExt, decode_records
from maxq.protocol.message.message_properties import encode_properties
from maxq.remoting.client import Connection, Processor, RemotingClient
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng
from maxq.runtime.interfaces import Disk
from tests.watched_loop import watch

TIMEOUT_MS = 60_000
SUSPEND = 2
SUBSCRIPTION = 4


def small_store(folder: Path) -> dict[str, str]:
    """Settings of a store whose files are small enough for a test, on a machine that may be busy with others."""
    return {
        "storePathRootDir": str(folder),
        "storePathCommitLog": str(folder / "commitlog"),
        "mappedFileSizeCommitLog": str(1 << 20),
        "mappedFileSizeConsumeQueue": str(20 * 1000),
        "maxHashSlotNum": "1000",
        "maxIndexNum": "5000",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
        "brokerName": "broker-a",
        # A machine that stands still for a second is no reason to refuse what a test sends.
        "osPageCacheBusyTimeOutMills": "60000",
        "waitTimeMillsInSendQueue": "60000",
    }


def copy_as_killed(folder: Path, to: Path) -> None:
    """What a kill -9 would leave of a broker that runs on `folder`.

    Its lock is left out. If meanwhile a file took another's name the copy would be of no one moment, and is made again:
    the threads that write go on, the broker's loop does not.
    """
    for _ in range(100):
        with contextlib.suppress(OSError):  # shutil.Error is one: a file was listed and is gone
            before = _files_by_name(folder)
            shutil.copytree(folder, to, ignore=shutil.ignore_patterns("lock"))
            if _files_by_name(folder) == before:
                return
        shutil.rmtree(to, ignore_errors=True)
    raise AssertionError(f"{folder} is never still")


def _files_by_name(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_ino for path in folder.rglob("*")}


class RunningBroker:
    """`controller` is the broker, `client` a RemotingClient for it."""

    def __init__(self, folder: Path, settings: dict[str, str], disk: Disk | None = None) -> None:
        self.folder = folder
        self.settings, _ = BrokerSettings.from_properties(small_store(folder) | settings, source="test")
        self._clock, self._rng = SystemClock(), SystemRng()
        self.controller = BrokerController(self.settings, disk=disk or SystemDisk(), clock=self._clock, rng=self._rng)
        self.client = RemotingClient(NettyClientConfig(), clock=self._clock, rng=self._rng)

    async def start(self) -> None:
        """From now on its loop is watched."""
        watch(self.controller.server.holds)
        await self.controller.start()

    async def stop(self) -> None:
        """End it. AssertionError if something kept its loop from everything else for too long."""
        await self.client.close()
        await self.controller.shutdown()
        held = {cause: hold.longest_ns // 1_000_000 for cause, hold in self.controller.server.holds.by_cause.items()}
        assert not held, f"held the loop, ms by request code or name: {held}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.controller.port}"

    async def invoke(self, command: RemotingCommand) -> RemotingCommand:
        return await self.client.invoke(self.address, command, TIMEOUT_MS)

    def create_topic(self, name: str, queues: int = 4, perm: int = 6, **more: object) -> None:
        """Make a topic as an administrator would."""
        self.controller.topics.update_topic_config(
            TopicConfig(name, queues, queues, perm, **more)  # type: ignore[arg-type]
        )

    # ---- sending ----------------------------------------------------------------------------------------------

    def send_request(
        self,
        topic: str,
        body: bytes,
        *,
        code: int = RequestCode.SEND_MESSAGE_V2,
        queue_id: int = 0,
        batch: bool = False,
        sys_flag: int = 0,
        group: str = "PG",
        **properties: str,
    ) -> RemotingCommand:
        """A send; properties such as TAGS="TagA"."""
        header = SendMessageRequestHeader(
            group, topic, "TBW102", 4, queue_id, sys_flag, self._clock.wall_ms(), 0, encode_properties(properties),
            0, False, batch,
        )  # fmt: skip
        ext = header.encode() if code == RequestCode.SEND_MESSAGE else header.encode_v2()
        return RemotingCommand(code, ext, body)

    async def send(self, topic: str, body: bytes, **more: object) -> RemotingCommand:
        return await self.invoke(self.send_request(topic, body, **more))  # type: ignore[arg-type]

    # ---- consuming --------------------------------------------------------------------------------------------

    async def pull(
        self,
        topic: str,
        offset: int = 0,
        *,
        queue_id: int = 0,
        group: str = "G",
        tags: str | None = "*",
        sys_flag: int = SUBSCRIPTION,
        wait_ms: int = 0,
        max_nums: int = 32,
        sub_version: int = 0,
        commit_offset: int = 0,
        expression_type: str = "TAG",
        code: int = RequestCode.PULL_MESSAGE,
        lo: str | None = None,
    ) -> RemotingCommand:
        header = PullMessageRequestHeader(
            group, topic, queue_id, offset, max_nums, sys_flag, commit_offset, wait_ms, sub_version, tags,
            expression_type, lo=lo,
        )  # fmt: skip
        return await self.invoke(RemotingCommand(code, header.encode()))

    async def pull_messages(self, topic: str, offset: int = 0, **more: object) -> list[MessageExt]:
        return messages_of(await self.pull(topic, offset, **more))  # type: ignore[arg-type]

    async def heartbeat(
        self,
        group: str,
        subscriptions: dict[str, str],
        *,
        sub_version: int = 1,
        model: MessageModel = MessageModel.CLUSTERING,
        client_id: str = "client-1",
        producer: str = "PG",
        expression_type: str = "TAG",
    ) -> RemotingCommand:
        consumers = []
        if subscriptions:
            data = [
                build_subscription_data(
                    t, e, "TAG" if t.startswith("%RETRY%") else expression_type, sub_version=sub_version
                )
                for t, e in subscriptions.items()
            ]
            consumers = [ConsumerData(group, message_model=model, subscription_data_set=data)]
        body = HeartbeatData(client_id, [ProducerData(producer)], consumers)
        return await self.invoke(RemotingCommand(RequestCode.HEART_BEAT, body=body.encode()))

    async def until_held(self, topic: str, queue_id: int = 0, count: int = 1) -> None:
        """Wait until so many pulls are parked on the queue."""
        await until(lambda: self.controller.hold_service.held_on(topic, queue_id) >= count)


class Asked:
    """Counts the requests of these codes that their processor sees: what the batch path answers does not come there."""

    def __init__(self, broker: RunningBroker, *codes: int) -> None:
        self.count = 0
        server = broker.controller.server
        for code in codes:
            server.register(code, self._counted(server.processor(code)))

    def _counted(self, processor: Processor) -> Processor:
        def counted(connection: Connection, request: RemotingCommand) -> Any:
            self.count += 1
            return processor(connection, request)

        return counted


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for something that no event announces."""
    async with asyncio.timeout(30):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await asyncio.sleep(0.002)


def messages_of(reply: RemotingCommand) -> list[MessageExt]:
    return decode_records(reply.body_bytes)
