"""A stranger who reaches a port between brokers tries all that can be said there: what may not follow from it."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RemoteProtocolError
from maxq.protocol.dledger.dledger_codec import request_code
from maxq.protocol.dledger.dledger_messages import (
    AppendRequest,
    DLedgerEntry,
    DLedgerRequestCode,
    EntryRun,
    GetRequest,
    HeartBeatRequest,
    MetadataReply,
    MetadataRequest,
    PullRequest,
    PushRequest,
    PushType,
    Request,
    TransferRequest,
    VoteRequest,
)
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.replication.ha.frames import encode_offer
from tests.integration.access.peer_world import DLEDGER, GROUP, HA, BrokerProcess, Stranger, body_of
from tests.integration.access.world import ROOT, signed

HUGE = (1 << 63) - 1
NO_SLAVE = ResponseCode.FLUSH_SLAVE_TIMEOUT


# --- the HA port ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    running = BrokerProcess(tmp_path, HA, {"brokerRole": "SYNC_MASTER", "haSendHeartbeatInterval": "200"})
    await running.start()
    yield running
    await running.stop()


async def test_who_acknowledges_what_it_was_not_sent_is_cut_off_and_counts_for_nothing(master: BrokerProcess) -> None:
    """Such a report would acknowledge all that is ever sent on the connection, whether anybody reads it or not."""
    async with Stranger.at(master.peer_port) as stranger:
        stranger.report(0)
        await stranger.frame()
        stranger.report(HUGE)
        assert (await master.send(b"x")).code == NO_SLAVE
        assert await stranger.is_cut()
    assert (await master.send(b"x")).code == NO_SLAVE


async def test_absurd_reports_and_offers_get_nothing(master: BrokerProcess) -> None:
    await master.send(b"x")
    for offset in (HUGE, 1 << 62, 1 << 40, 1 << 20):  # more than the master has
        async with Stranger.at(master.peer_port) as stranger:
            stranger.report(offset)
            assert await stranger.frame() == (offset, b"")  # a heart-beat
            stranger.report(offset)
            assert await stranger.frame() == (offset, b"")
    for offset in (-1, -(1 << 63), -(1 << 62), -(1 << 62) + 65536):  # no reports
        async with Stranger.at(master.peer_port) as stranger:
            stranger.report(offset)
            assert await stranger.is_cut()
    for first in ((), (0,), (1,), (0, 0)):  # offers of one that has not shown a record of the log
        async with Stranger.at(master.peer_port) as stranger:
            stranger.report(*first)
            await stranger.writer.drain()
            stranger.writer.write(encode_offer(9))
            assert await stranger.is_cut()
    async with Stranger.at(master.peer_port) as stranger:
        stranger.report(HUGE)
        await stranger.frame()
        stranger.report(HUGE)
        assert (await master.send(b"x")).code == NO_SLAVE


async def test_requests_of_clients_are_no_reports(master: BrokerProcess) -> None:
    """A frame of a client is taken for reports: it neither stores nor changes anything."""
    end = await master.log_end()
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.UPDATE_BROKER_CONFIG, RequestCode.DELETE_TOPIC_IN_BROKER):
        async with Stranger.at(master.peer_port) as stranger:
            stranger.writer.write(signed(RemotingCommand(code, {"topic": "T", "b": "T"}, b"x" * 100), ROOT).encode())
            stranger.writer.write_eof()
            assert await stranger.is_cut()
    assert await master.log_end() == end


# --- the port of a DLedger member -------------------------------------------------------------------------------------


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """The only member of its group, which has written its tables into the log: nothing but messages comes behind."""
    running = BrokerProcess(tmp_path, DLEDGER)
    await running.start()
    end = -1
    async with asyncio.timeout(20):
        while end != (end := await running.log_end()):  # noqa: ASYNC110  # another process
            await asyncio.sleep(1.5)
    yield running
    await running.stop()


@pytest.fixture
async def follower(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    """A member of three, the others of which are for the stranger to play."""
    running = BrokerProcess(tmp_path, DLEDGER)
    running.settings["dLegerPeers"] += ";n1-127.0.0.1:1;n2-127.0.0.1:2"
    await running.start()
    yield running
    await running.stop()


async def test_a_member_serves_no_request_of_clients_or_operators(leader: BrokerProcess) -> None:
    """Signed by root, with every code of RocketMQ, and those by which a bare group is read and appended to."""
    await leader.send(b"x", "T")
    end = await leader.log_end()
    own = {int(code) for code in DLedgerRequestCode}
    asks: tuple[Request, ...] = (
        AppendRequest(group=GROUP, remote_id="n0", body=b"forged"),
        GetRequest(group=GROUP, remote_id="n0", begin_index=0),
        PullRequest(group=GROUP, remote_id="n0", begin_index=0),
    )  # fmt: skip
    async with Stranger.at(leader.peer_port) as stranger:
        for code in sorted({int(code) for code in RequestCode} - own):
            fields = {"topic": "T", "b": "T", "group": "g", "consumerGroup": "g", "clusterName": "DefaultCluster"}
            for flag in (0, 1, 2):  # asked, marked as an answer, one-way
                command = RemotingCommand(code, dict(fields), b"brokerPermission=1", flag=flag, opaque=-9)
                stranger.writer.write(signed(command, ROOT).encode())
            answer = await stranger.ask(code, b"brokerPermission=1", fields)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, (code, answer)
        for ask in asks:
            answer = await stranger.ask(request_code(ask), body_of(ask))
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ask
            assert b"x" not in answer.body_bytes
    assert await leader.log_end() == end
    assert (await leader.send(b"x", "T")).code == 0


async def test_nobody_speaks_for_a_member_that_is_not_of_the_group_or_for_the_leader_itself(
    leader: BrokerProcess,
) -> None:
    end, term = await leader.log_end(), (await status(leader))["term"]
    async with Stranger.at(leader.peer_port) as stranger:
        for request in forged(random.Random(1), 400, members=("n0", "n9", "", None), term=lambda: HUGE >> 2):
            await stranger.say(request)
    assert (await status(leader))["term"] == term and (await status(leader))["role"] == "LEADER"
    assert await leader.log_end() == end
    assert (await leader.send(b"x")).code == 0


async def test_whatever_a_member_is_told_it_goes_on_and_starts_again(follower: BrokerProcess) -> None:
    """The stranger plays the other members: that is believed, and none of it ends the member or spoils its files."""
    chance = random.Random(2)
    async with Stranger.at(follower.peer_port) as stranger:
        term = 0

        def next_term() -> int:
            nonlocal term
            term += chance.choice((0, 0, 0, 0, 1))
            return chance.choice((term, term, term, term, term - 1, 0, -1))

        for request in forged(chance, 1500, members=("n1", "n1", "n1", "n2", "n0", "n9"), term=next_term):
            answer = await stranger.ask(request_code(request), body_of(request))
            assert answer.body, (request, answer.remark)  # nothing that is said to a member makes it fail
        for request in forged(chance, 300, members=("n1",), term=lambda: chance.choice((1 << 62, 1 << 61, HUGE, 5))):
            await stranger.ask(request_code(request), body_of(request))
    assert int((await status(follower))["term"]) <= 1 << 62, "no election could follow"
    failed = [line for line in follower.log_text().splitlines() if "failed" in line or "Traceback" in line]
    assert failed == []
    await follower.stop()
    await follower.start()
    assert (await status(follower))["role"] in ("CANDIDATE", "FOLLOWER")


async def status(broker: BrokerProcess) -> dict[str, str]:
    """What the member says of itself."""
    async with Stranger.at(broker.peer_port) as stranger:
        reply = await stranger.say(MetadataRequest(group=GROUP, remote_id="n0"))
    assert isinstance(reply, MetadataReply) and reply.status is not None, reply
    return reply.status


def forged(
    chance: random.Random, count: int, *, members: Sequence[str | None], term: Callable[[], int]
) -> Iterator[Request]:
    """Requests that come from `members`, if one believes it, most of them about entries near the beginning."""

    def number() -> int:
        return chance.choice((0, 1, 2, 3, 4, 5, 10, -1, 1 << 31, 1 << 40, 1 << 62, HUGE, -HUGE))

    def entry(index: int, pos: int) -> DLedgerEntry:
        body = bytes(chance.randrange(4)) + chance.choice((b"", b"x" * 60))
        return DLedgerEntry(
            size=48 + len(body), index=index, term=max(0, term()), pos=pos, channel=0, body=body,
        )  # fmt: skip

    def entries() -> tuple[DLedgerEntry, ...]:
        first = entry(chance.choice((0, 0, 1, 2, number())), chance.choice((0, 48, 96, number())))
        found = [first]
        for _ in range(chance.randrange(4)):
            last = found[-1]
            if last.index < HUGE and 0 <= last.pos < HUGE >> 1:
                found.append(entry(last.index + 1, last.pos + last.size))
        return tuple(found)

    for _ in range(count):
        member = chance.choice(members)
        group, remote = chance.choice((GROUP,) * 8 + ("other", None)), chance.choice(("n0",) * 8 + ("n1", None))
        base = {
            "group": group, "remote_id": remote, "local_id": member, "leader_id": member,
            "term": term(),
        }  # fmt: skip
        kind = chance.randrange(6)
        if kind == 0:
            flags = {name: chance.random() < 0.5 for name in ("is_pre_vote", "is_transfer", "is_founding")}
            yield VoteRequest(**base, ledger_end_index=number(), ledger_end_term=number(), **flags)
        elif kind == 1:
            yield HeartBeatRequest(**base, maxq=chance.choice((None, "", "1:other")))
        elif kind == 2:
            yield TransferRequest(
                **base, transfer_id=chance.choice(("n0", member)), transferee_id=chance.choice(("n0", "n1", member)),
                take_leadership_ledger_index=number(),
            )  # fmt: skip
        else:
            which = chance.choice(list(PushType))
            some = entries()
            if which is not PushType.APPEND:
                some = some[: chance.choice((0, 1, 1, 1))]
            run = None
            if which is PushType.APPEND and some and chance.random() < 0.5 and min(some[0].index, some[0].pos) >= 0:
                with contextlib.suppress(RemoteProtocolError):
                    run, some = EntryRun.of(b"".join(one.encode() for one in some)), ()
            yield PushRequest(**base, type=which, commit_index=number(), entries=some, run=run)
