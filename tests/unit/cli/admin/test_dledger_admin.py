"""`maxq admin dledgerStatus` and `dledgerTransfer`: groups as brokers name them, every member asked itself."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from maxq.cli.admin.dledger import dledger_status, dledger_transfer
from maxq.client.admin.admin import Admin
from maxq.config.netty_server_config import NettyServerConfig
from maxq.errors import ConfigError, DLedgerError
from maxq.protocol.dledger.dledger_codec import decode_request, encode_reply
from maxq.protocol.dledger.dledger_messages import (
    DLedgerRequestCode,
    DLedgerResponseCode,
    MetadataReply,
    TransferReply,
    TransferRequest,
)
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.server import Connection, RemotingServer
from maxq.runtime.files.system import SystemClock
from tests.json_output import check_output


class Member:
    """Answers METADATA and LEADERSHIP_TRANSFER as one that leads, or follows n0."""

    def __init__(self, name: str, end: int, *, is_java: bool = False) -> None:
        self.server = RemotingServer(NettyServerConfig(), clock=SystemClock())
        self.server.register(DLedgerRequestCode.METADATA, self._metadata)
        self.server.register(DLedgerRequestCode.LEADERSHIP_TRANSFER, self._transfer)
        role = "LEADER" if name == "n0" else "FOLLOWER"
        facts = {"role": role, "term": "4", "leaderId": "n0", "ledgerBeginIndex": "0", "ledgerEndIndex": str(end)}
        self._status = None if is_java else {**facts, "durableIndex": str(end), "committedIndex": "9"}
        self.asked: list[TransferRequest] = []

    def _metadata(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        reply = MetadataReply(group="g", leader_id="n0", peers={}, status=self._status)
        return command.reply(200, body=encode_reply(reply))

    def _transfer(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        request = decode_request(command.code, command.body)
        assert isinstance(request, TransferRequest)
        self.asked.append(request)
        code = (
            DLedgerResponseCode.FALL_BEHIND_TOO_MUCH if request.transferee_id == "n2" else DLedgerResponseCode.SUCCESS
        )
        return command.reply(200, body=encode_reply(TransferReply(code=code)))


@pytest.fixture
async def members() -> AsyncIterator[dict[str, Member]]:
    found = {"n0": Member("n0", 12), "n1": Member("n1", 10), "n2": Member("n2", 0, is_java=True)}
    for member in found.values():
        await member.server.start("127.0.0.1", 0)
    yield found
    for member in found.values():
        await member.server.shutdown()


def admin_of(members: dict[str, Member], *, is_member: bool = True) -> Admin:
    peers = ";".join(f"{name}-127.0.0.1:{member.server.port}" for name, member in members.items())

    async def config(address: str) -> dict[str, str]:
        enabled = {"enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerPeers": peers}
        return enabled if is_member else {"enableDLegerCommitLog": "false"}

    async def addresses(cluster: str) -> list[str]:
        return ["broker1:10911", "broker2:10911"]

    return cast(Admin, SimpleNamespace(brokers=SimpleNamespace(config=config, addresses_of_cluster=addresses)))


async def test_every_member_says_its_role_and_how_far_it_is(members: dict[str, Member]) -> None:
    report = await dledger_status(admin_of(members), cluster="C")
    rows = {row[1]: dict(zip(report.columns, row, strict=True)) for row in report.rows}
    assert (rows["n0"]["role"], rows["n0"]["term"], rows["n0"]["end"], rows["n0"]["behind"]) == ("LEADER", 4, 12, 0)
    assert (rows["n1"]["role"], rows["n1"]["committed"], rows["n1"]["behind"]) == ("FOLLOWER", 9, 2)
    assert (rows["n2"]["role"], rows["n2"]["leader"], rows["n2"]["behind"]) == ("", "n0", None)  # Java's tells no more
    assert not report.failures
    check_output("admin dledgerStatus", report.objects())


async def test_a_member_that_does_not_answer_is_named(members: dict[str, Member]) -> None:
    await members["n1"].server.shutdown()
    report = await dledger_status(admin_of(members), broker="broker1:10911")
    assert [row[1] for row in report.rows] == ["n0", "n2"]
    assert [name.partition(" ")[0] for name in report.failures] == ["n1"]


async def test_the_leader_is_asked_to_hand_over_in_the_groups_term(members: dict[str, Member]) -> None:
    await dledger_transfer(admin_of(members), broker="broker1:10911", to="n1")
    (request,) = members["n0"].asked
    assert (request.transfer_id, request.transferee_id, request.term, request.remote_id) == ("n0", "n1", 4, "n0")


async def test_what_cannot_be_is_refused_by_name(members: dict[str, Member]) -> None:
    with pytest.raises(DLedgerError, match="FALL_BEHIND_TOO_MUCH"):
        await dledger_transfer(admin_of(members), broker="broker1:10911", to="n2")
    with pytest.raises(ConfigError, match="n0, n1, n2"):
        await dledger_transfer(admin_of(members), broker="broker1:10911", to="n7")
    with pytest.raises(DLedgerError, match="no DLedger group"):
        await dledger_status(admin_of(members, is_member=False), broker="broker1:10911")
