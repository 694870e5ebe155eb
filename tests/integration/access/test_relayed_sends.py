"""A DLedger leader with live followers, each a process with access control: a send that a follower gives to the leader
is judged by both, and nobody gains by posing as a follower."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from maxq.auth.signature import Credentials
from maxq.broker.dledger.send_relay import RELAYED
from maxq.codes import LanguageCode, ResponseCode
from maxq.codes import RequestCode as Code
from maxq.config.netty_client_config import NettyClientConfig
from maxq.protocol.body.route import ClusterInfo
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.message.message import Message, encode_batch
from maxq.protocol.message.message_properties import encode_properties
from maxq.remoting.client import RemotingClient
from maxq.runtime.files.system import SystemClock, SystemRng
from tests.integration.access.peer_world import DLEDGER, BrokerProcess
from tests.integration.access.test_strangers import HER_TOPIC, MALLORY, SECRET
from tests.integration.access.world import ACL_2, ROOT, WRONG, GuardedNamesrv, signed
from tests.interop.processes.servers import free_port_base

NO_PERMISSION = ResponseCode.NO_PERMISSION
MEMBERS = ("n0", "n1", "n2")


@dataclass
class Group:
    """Three members. `leader` and `follower`: addresses of two."""

    client: RemotingClient
    members: dict[str, BrokerProcess]
    leader: str = ""
    follower: str = ""

    async def ask(self, address: str, command: RemotingCommand, who: Credentials | None = ROOT) -> RemotingCommand:
        return await self.client.invoke(address, signed(command, who), 10_000)

    async def look_who_leads(self, namesrv: str) -> None:
        async with asyncio.timeout(60):
            while True:
                answer = await self.ask(namesrv, RemotingCommand(Code.GET_BROKER_CLUSTER_INFO))
                found = ClusterInfo.decode(answer.body_bytes).broker_addr_table.get("broker-a")
                if found is not None and 0 in found.broker_addrs and len(found.broker_addrs) == len(MEMBERS):
                    self.leader = found.broker_addrs[0]
                    self.follower = next(one for number, one in found.broker_addrs.items() if number)
                    if (await self.ask(self.leader, _send(HER_TOPIC))).code == 0:
                        return
                await asyncio.sleep(0.1)

    async def end(self, topic: str) -> int:
        """Of queue 0, at the leader."""
        ends = RemotingCommand(Code.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
        return int((await self.ask(self.leader, ends)).ext["offset"])


def _send(
    topic: str, *, code: int = Code.SEND_MESSAGE_V2, remark: str | None = None, **properties: str
) -> RemotingCommand:
    """As Java's producer encodes it: those are given to the leader."""
    is_batch = code == Code.SEND_BATCH_MESSAGE
    header = SendMessageRequestHeader(
        "PG", topic, "TBW102", 1, 0, 4 if "TRAN_MSG" in properties else 0, 1, flag=0,
        properties=encode_properties(properties), reconsume_times=0, batch=is_batch,
    )  # fmt: skip
    body = encode_batch([Message(topic, b"forged", {"UNIQ_KEY": "0" * 32})]) if is_batch else b"forged"
    ext = header.encode() if code == Code.SEND_MESSAGE else header.encode_v2()
    return RemotingCommand(code, ext, body, remark, language=int(LanguageCode.JAVA))


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    namesrv = GuardedNamesrv(tmp_path)
    await namesrv.controller.start()
    ports = [free_port_base(3) for _ in MEMBERS]
    peers = ";".join(f"{name}-127.0.0.1:{port + 1}" for name, port in zip(MEMBERS, ports, strict=True))
    client = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())
    made = Group(client, {})
    try:
        for name, port in zip(MEMBERS, ports, strict=True):
            more = {"dLegerPeers": peers, "dLegerSelfId": name, "namesrvAddr": namesrv.address, "listenPort": str(port)}
            member = BrokerProcess(tmp_path, DLEDGER, {**ACL_2, **more}, name)
            member.port, member.peer_port, member.address = port, port + 1, f"127.0.0.1:{port}"
            made.members[name] = member
        await asyncio.gather(*(member.start() for member in made.members.values()))
        await made.look_who_leads(namesrv.address)
        yield made
    finally:
        for member in made.members.values():
            with contextlib.suppress(AssertionError):  # one that did not start
                await member.stop()
        await client.close()
        await namesrv.controller.shutdown()


async def _allow(group: Group, address: str, *topics: str) -> None:
    body = b'{"password":"mallory-secret","userType":"Normal"}'
    await group.ask(address, RemotingCommand(Code.AUTH_CREATE_USER, {"username": "mallory1"}, body))
    for topic in topics:
        entry = f'{{"resource":"Topic:{topic}","actions":["Pub"],"decision":"Allow"}}'
        policies = f'{{"policies":[{{"policyType":"Custom","entries":[{entry}]}}]}}'.encode()
        made = await group.ask(address, RemotingCommand(Code.AUTH_CREATE_ACL, {"subject": "User:mallory1"}, policies))
        assert made.code == 0, made.remark


async def test_a_send_that_is_passed_on_needs_its_sender_s_permission_at_both_members(group: Group) -> None:
    """The follower lets Mallory send to both topics, the leader to hers. It has just started again: for some time
    clients may take it for the leader that it was."""
    for name in (SECRET, HER_TOPIC):
        assert (await group.ask(group.leader, _send(name))).code == 0
    await _allow(group, group.leader, HER_TOPIC)
    await _allow(group, group.follower, HER_TOPIC, SECRET)
    ends = {topic: await group.end(topic) for topic in (SECRET, HER_TOPIC)}
    process = next(member for member in group.members.values() if member.address == group.follower)
    await process.stop()
    await process.start()
    async with asyncio.timeout(20):
        while (await group.ask(group.follower, _send(HER_TOPIC), MALLORY)).code != 0:  # noqa: ASYNC110  # processes
            await asyncio.sleep(0.05)
    assert await group.end(HER_TOPIC) == ends[HER_TOPIC] + 1
    forged = [_send(SECRET, code=code) for code in (Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE)]
    forged += [_send(SECRET, TRAN_MSG="true", PGROUP="PG", UNIQ_KEY="U"), _send(SECRET, DELAY="1")]
    forged += [_send(HER_TOPIC, INNER_MULTI_DISPATCH=f"%LMQ%{SECRET}"), _send(SECRET, remark=RELAYED)]
    leader, follower = group.leader, group.follower
    told: Counter[tuple[str, int]] = Counter()
    for command in forged:
        for address, who in ((follower, MALLORY), (leader, MALLORY), (leader, None), (leader, WRONG)):
            answer = await group.ask(address, replace(command, ext=dict(command.ext)), who)
            told[address, answer.code] += 1
            is_refused = answer.code in (NO_PERMISSION, ResponseCode.SERVICE_NOT_AVAILABLE)
            assert is_refused if address == follower else answer.code == NO_PERMISSION, (command, address, who)
    assert told[follower, NO_PERMISSION], "some were passed on"
    assert {topic: await group.end(topic) for topic in ends} == {SECRET: ends[SECRET], HER_TOPIC: ends[HER_TOPIC] + 1}
