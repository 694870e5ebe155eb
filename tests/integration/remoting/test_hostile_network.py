"""Between a client and a server stands one who owns the network (frame_adversary.py): nothing that was acknowledged is
lost, no request gets the answer to another, and the server goes on. Behind TLS nothing is done twice, either."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from benches.load.request import Target

from maxq.codes import RequestCode as Code
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import RemotingError
from maxq.protocol.body.route import TopicRouteData
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PullMessageRequestHeader
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.message.message import decode_records
from maxq.remoting.client import RemotingClient
from maxq.remoting.tls.contexts import ClientTls
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng
from maxq.testing.server_process import StandaloneProcess
from tests.integration.remoting.frame_adversary import FrameAdversary

TOPICS = 6  # S1 has one queue and one message, S2 two of each …
SENT_TO = "Sent"
ASKS = 80  # of each who asks
MOST_KIB = 48 << 10  # by which the server may grow
_TIMEOUT_MS = 1_500
_SUBSCRIPTION = 4


def remoting_client(tls: bool) -> RemotingClient:
    config = NettyClientConfig(use_tls=tls, tls_client_auth_server=False)
    channel = ClientTls(config, SystemDisk()) if tls else None
    return RemotingClient(config, clock=SystemClock(), rng=SystemRng(), tls=channel)


def send_request(topic: str, queue_id: int, body: bytes) -> RemotingCommand:
    header = SendMessageRequestHeader("PG", topic, "TBW102", 4, queue_id, 0, 1, flag=0, properties="")
    return RemotingCommand(Code.SEND_MESSAGE_V2, header.encode_v2(), body)


def pull_request(topic: str, queue_id: int, offset: int) -> RemotingCommand:
    header = PullMessageRequestHeader("G", topic, queue_id, offset, 32, _SUBSCRIPTION, 0, 0, 0, "*", "TAG")
    return RemotingCommand(Code.PULL_MESSAGE, header.encode())


@dataclass
class Place:
    """A server, and the ways to it through an adversary and without."""

    server: StandaloneProcess
    client: RemotingClient
    namesrv: FrameAdversary
    broker: FrameAdversary
    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)  # (queue, offset) → body
    answered: Counter[str] = field(default_factory=Counter)

    @property
    def direct(self) -> str:
        return self.server.broker_address

    def memory_kib(self) -> int:
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0])

    async def straight(self, command: RemotingCommand) -> RemotingCommand:
        answer = await self.client.invoke(self.direct, command, 30_000)
        assert answer.code == 0, answer.remark
        return answer

    async def make_topics(self) -> None:
        for name, count in [(f"S{number}", number) for number in range(1, TOPICS)] + [(SENT_TO, 4)]:
            ext = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": str(count), "writeQueueNums": str(count),
                   "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
            await self.straight(RemotingCommand(Code.UPDATE_AND_CREATE_TOPIC, ext))
            for _ in range(count if name != SENT_TO else 0):
                await self.straight(send_request(name, 0, name.encode()))

    # --- through the adversary; whatever fails is no answer ---

    async def send(self, number: int) -> None:
        body = b"%d of %d" % (len(self.acknowledged), number) + b"." * (number * 997)
        queue_id = number % 4
        for turn in range(ASKS):
            answer = await self._ask(self.broker, send_request(SENT_TO, queue_id, b"%d|" % turn + body), "send")
            if answer is not None and answer.code == 0:
                place = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
                assert place not in self.acknowledged, f"two messages were told {place}"
                self.acknowledged[place] = b"%d|" % turn + body

    async def look(self, number: int) -> None:
        """What is asked tells by its answer what it was."""
        for turn in range(ASKS):
            count = 1 + (number + turn) % (TOPICS - 1)
            name = f"S{count}"
            ends = RemotingCommand(Code.GET_MAX_OFFSET, {"topic": name, "queueId": "0"})
            if (answer := await self._ask(self.broker, ends, "end")) is not None:
                assert answer.ext["offset"] == str(count), f"the end of {name}: {answer}"
            if (answer := await self._ask(self.broker, pull_request(name, 0, 0), "pull")) is not None:
                assert [record.topic for record in decode_records(answer.body_bytes)] == [name] * count
            route = RemotingCommand(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": name})
            if (answer := await self._ask(self.namesrv, route, "route")) is not None:
                assert TopicRouteData.decode(answer.body_bytes).queue_datas[0].write_queue_nums == count

    async def _ask(self, way: FrameAdversary, command: RemotingCommand, what: str) -> RemotingCommand | None:
        try:
            answer = await self.client.invoke(f"127.0.0.1:{way.port}", command, _TIMEOUT_MS)
        except RemotingError:
            return None
        self.answered[what] += 1
        return answer

    # --- afterwards ---

    async def stored(self) -> dict[tuple[int, int], bytes]:
        found: dict[tuple[int, int], bytes] = {}
        for queue_id in range(4):
            ends = RemotingCommand(Code.GET_MAX_OFFSET, {"topic": SENT_TO, "queueId": str(queue_id)})
            end, offset = int((await self.straight(ends)).ext["offset"]), 0
            while offset < end:
                for record in decode_records((await self.straight(pull_request(SENT_TO, queue_id, offset))).body_bytes):
                    found[queue_id, record.queue_offset] = record.body
                    offset = record.queue_offset + 1
        return found


@contextlib.asynccontextmanager
async def placed(folder: Path, seed: int, *, tls: bool) -> AsyncIterator[Place]:
    settings = {"tls.test.mode.enable": "true", "mappedFileSizeCommitLog": str(1 << 24)}
    server = StandaloneProcess(settings, folder=folder)
    await asyncio.to_thread(server.start)
    rng = random.Random(seed)
    name_server_port = int(server.namesrv_address.rpartition(":")[2])
    ways = [FrameAdversary(port, rng, tls=tls) for port in (name_server_port, Target.at(server.broker_address).port)]
    client = remoting_client(tls)
    try:
        for way in ways:
            await way.start()
        yield Place(server, client, *ways)
    finally:
        await client.close()
        for way in ways:
            await way.stop()
        code = await asyncio.to_thread(server.stop)
    assert code == 0, f"the server ended with {code}: {server.log.read_text()[-2000:]}"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_an_adversary_on_the_network_loses_and_mixes_up_nothing(tmp_path: Path, tls: bool) -> None:
    async with placed(tmp_path, seed=19, tls=tls) as place:
        await place.make_topics()
        before_kib = place.memory_kib()
        await asyncio.gather(*(place.send(number) for number in range(6)), *(place.look(number) for number in range(4)))
        stored = await place.stored()
        lost = {where: body for where, body in place.acknowledged.items() if stored.get(where) != body}
        assert lost == {}
        assert place.acknowledged and min(place.answered[what] for what in ("send", "end", "pull", "route")) > 20
        if tls:
            assert max(Counter(stored.values()).values()) == 1, "a message was taken twice"
        assert place.memory_kib() < before_kib + MOST_KIB
        assert 0 not in place.broker.meant.values(), "each fate was met"
        said = place.server.log.read_text()
        assert "Traceback" not in said, said[-3000:]
