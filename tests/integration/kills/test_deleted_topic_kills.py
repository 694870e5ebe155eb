"""Processes that are killed after a topic was deleted and made again: a DLedger group, and a pair."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from maxq.codes import RequestCode, ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import MaxQError
from maxq.machine import system_environment
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PullMessageRequestHeader
from maxq.protocol.message.message import decode_records
from maxq.remoting.client import RemotingClient
from tests.integration.processes.dledger_cluster import Cluster, Member
from tests.integration.processes.ha_torture_cluster import MASTER, SLAVE, BrokerProcess
from tests.integration.processes.maxq_process import Process
from tests.interop.processes.servers import free_port_base

OLD, NEW = 120, 30
TIMEOUT_MS = 10_000


class Client:
    """Requests by hand: what matters is what was answered."""

    def __init__(self) -> None:
        environment = system_environment()
        self._remote = RemotingClient(NettyClientConfig(), clock=environment.clock, rng=environment.rng)

    async def close(self) -> None:
        await self._remote.close()

    async def ask(self, address: str, code: RequestCode, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
        return await self._remote.invoke(address, RemotingCommand(code, ext, body or None), TIMEOUT_MS)

    async def must(self, address: str, code: RequestCode, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
        """The answer, which is success. A member that was just elected is waited for until its broker is master."""
        answers: list[RemotingCommand] = []

        async def is_answered() -> bool:
            answers.append(await self.ask(address, code, ext, body))
            return answers[-1].code != ResponseCode.SLAVE_NOT_AVAILABLE

        await until(is_answered)
        assert answers[-1].code == 0, answers[-1].remark
        return answers[-1]

    async def use(self, address: str, *, delete: bool, count: int, text: str) -> None:
        """Delete T if asked; make it, and send so many messages to its queue 0."""
        if delete:
            await self.must(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        made = {
            "topic": "T", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "order": "false",
        }  # fmt: skip
        await self.must(address, RequestCode.UPDATE_AND_CREATE_TOPIC, made)
        for number in range(count):
            sent = {
                "producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "2",
                "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "",
            }  # fmt: skip
            answer = await self.must(address, RequestCode.SEND_MESSAGE, sent, f"{text} {number}".encode())
            assert answer.ext["queueOffset"] == str(number)

    async def shown(self, address: str) -> list[bytes]:
        found: list[bytes] = []
        while True:
            header = PullMessageRequestHeader("G", "T", 0, len(found), 32, 4, 0, 0, 0, "*", "TAG")
            answer = await self.ask(address, RequestCode.PULL_MESSAGE, header.encode())
            messages = decode_records(answer.body_bytes) if answer.code == 0 else []
            if not messages:
                return found
            assert [message.queue_offset for message in messages] == [*range(len(found), len(found) + len(messages))]
            found += [message.body for message in messages]


def new() -> list[bytes]:
    return [b"new %d" % number for number in range(NEW)]


async def until(condition: Callable[[], object], limit_s: float = 60) -> None:
    async with asyncio.timeout(limit_s):
        while True:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.05)


async def test_a_group_of_three_whose_members_are_killed_shows_the_new_topic_only(tmp_path: Path) -> None:
    cluster, client = Cluster(tmp_path, has_links=False), Client()
    try:
        await cluster.start()

        async def leader() -> Member:
            found: list[Member] = []

            async def look() -> bool:
                member = await cluster.leader()
                found[:] = [member] if member is not None else []
                return bool(found)

            await until(look)
            return found[0]

        def address(member: Member) -> str:
            return f"{member.host}:{member.port}"

        first = await leader()
        await client.use(address(first), delete=False, count=OLD, text="old")
        await client.use(address(first), delete=True, count=NEW, text="new")
        await first.kill()
        second = await leader()

        async def is_right(member: Member) -> bool:
            try:
                return await client.shown(address(member)) == new()
            except MaxQError:
                return False

        await until(lambda: is_right(second))
        for member in cluster.members:
            await member.kill()
        for member in cluster.members:
            await member.start()
        last = await leader()
        await until(lambda: is_right(last))
        for _ in range(5):
            assert await is_right(last)
    finally:
        await client.close()
        await cluster.end()


async def test_a_pair_whose_processes_are_killed_joins_again_and_shows_the_new_topic_only(tmp_path: Path) -> None:
    port, client = free_port_base(10), Client()
    names = f"127.0.0.1:{port}"
    namesrv = Process("name server", ["namesrv", "-p", str(port)], tmp_path / "namesrv-ready")
    master = BrokerProcess("master", tmp_path / "m", port + 3, names, MASTER)
    slave = BrokerProcess("slave", tmp_path / "s", port + 8, names, SLAVE)
    master.configure({"brokerRole": "ASYNC_MASTER"})
    slave.configure({"haMasterAddress": f"127.0.0.1:{master.port + 1}", "slaveReadEnable": "true"})
    at_master, at_slave = f"127.0.0.1:{master.port}", f"127.0.0.1:{slave.port}"
    try:
        for process in (namesrv, master, slave):
            await process.start()
        await client.use(at_master, delete=False, count=OLD, text="old")

        async def slave_shows(count: int) -> bool:
            try:
                return len(await client.shown(at_slave)) == count
            except MaxQError:
                return False

        await until(lambda: slave_shows(OLD))
        await client.use(at_master, delete=True, count=NEW, text="new")
        await slave.kill()
        await master.kill()
        await master.start()
        assert await client.shown(at_master) == new()
        await slave.start()
        await until(lambda: slave_shows(NEW))
        assert await client.shown(at_slave) == new()
        first = (master.store / "commitlog").glob("0*")
        names_ = sorted(path.name for path in first)
        assert (master.store / "commitlog" / names_[0]).read_bytes()[:20_000] == (
            slave.store / "commitlog" / names_[0]
        ).read_bytes()[:20_000]
    finally:
        await client.close()
        for process in (slave, master, namesrv):
            await process.kill()
