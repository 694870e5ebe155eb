"""Every request code of broker and name server without, with wrong and with insufficient credentials."""

import logging

import pytest

from maxq.auth.needs import NEEDS
from maxq.codes import RequestCode as Code
from maxq.protocol.frame.body_limits import BY_FRAME, body_limits
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.remoting.server import RemotingServer
from tests.integration.access.world import ALICE, EVE, INNER, ROOT, WRONG, GuardedBroker, GuardedNamesrv, signed
from tests.unit.auth.test_needs import OPEN

#: Fields that make a request name what it is about, whatever its header.
NAMES = {
    "topic": "T", "b": "T", "group": "G", "consumerGroup": "G", "groupName": "G", "destGroup": "G", "compareGroup": "G",
    "application": "A", "producerGroup": "P", "clusterName": "C", "subject": "User:alice", "username": "alice",
}  # fmt: skip
BODY = b'{"consumerGroup":"G","mqSet":[],"acks":[{"c":"G","t":"T"}],"consumerDataSet":[{"groupName":"G"}]}'
SAID = {
    None: "username cannot be null.",
    EVE: "User:eve is not found.",
    WRONG: "check signature failed.",
}


def served(server: RemotingServer) -> set[int]:
    """The request codes that have a processor."""
    return set(server._processors)


def all_codes(server: RemotingServer) -> list[int]:
    """Those that have a name, and those that are served: a code that is new cannot be forgotten."""
    return sorted(served(server).union(Code))


async def refusals(ask, codes: list[int], credentials) -> dict[int, str | None]:  # type: ignore[no-untyped-def]
    """Code → remark, of those refused with 16."""
    found = {}
    for code in codes:
        answer = await ask(code, credentials)
        if answer.code == 16:
            found[code] = answer.remark
    return found


async def test_a_broker_refuses_everything_to_who_is_not_known(broker: GuardedBroker) -> None:
    await broker.make_alice()
    codes = [*all_codes(broker.controller.server), 9, 999_999]

    async def ask(code: int, credentials) -> RemotingCommand:  # type: ignore[no-untyped-def]
        return await broker.ask(code, credentials, BODY, **NAMES)

    for credentials, words in SAID.items():
        found = await refusals(ask, codes, credentials)
        assert sorted(found) == sorted(codes)
        assert [remark for remark in found.values() if words not in (remark or "")] == []


async def test_a_broker_refuses_a_user_without_policies_all_but_what_rocketmq_leaves_open(
    broker: GuardedBroker,
) -> None:
    await broker.make_alice()
    codes = all_codes(broker.controller.server)

    async def ask(code: int, credentials) -> RemotingCommand:  # type: ignore[no-untyped-def]
        return await broker.ask(code, credentials, BODY, **NAMES)

    found = await refusals(ask, codes, ALICE)
    # 50 to 54 belong to ACL 1.0 and are not served here; they are guarded all the same.
    assert sorted(set(codes) - set(found)) == sorted(OPEN)
    assert all("User:alice has no permission to access" in (remark or "") for remark in found.values())


async def test_a_name_server_refuses_likewise(namesrv: GuardedNamesrv, client: RemotingClient) -> None:
    async def ask(code: int, credentials, body: bytes = BODY, **ext: str) -> RemotingCommand:  # type: ignore[no-untyped-def]
        command = RemotingCommand(code, {**NAMES, **ext}, body)
        return await client.invoke(namesrv.address, signed(command, credentials), 5000)

    made = await ask(3001, ROOT, b'{"password":"alice-secret"}')
    assert made.code == 0, made.remark
    codes = all_codes(namesrv.controller._server)
    for credentials, words in SAID.items():
        found = await refusals(ask, codes, credentials)
        assert sorted(found) == codes
        assert [remark for remark in found.values() if words not in (remark or "")] == []
    found = await refusals(ask, codes, ALICE)
    assert sorted(set(codes) - set(found)) == sorted(OPEN)
    assert (await ask(105, INNER)).code == 17  # of its own: nobody has that topic


#: Served where aclEnable is true.
OF_ACL_1 = {50, 51, 52, 53, 54}


def test_what_is_served_is_what_the_table_knows(broker: GuardedBroker, namesrv: GuardedNamesrv) -> None:
    """A code that has no row in needs.py is refused, and a row that nobody serves says nothing."""
    both = served(broker.controller.server) | served(namesrv.controller._server)
    assert sorted(both | OF_ACL_1) == sorted(NEEDS)


def test_the_body_of_what_is_served_has_a_limit(broker: GuardedBroker, namesrv: GuardedNamesrv) -> None:
    """A code that carries a body of any size says so by its place in the table."""
    both = served(broker.controller.server) | served(namesrv.controller._server) | OF_ACL_1
    assert both <= set(body_limits()) | BY_FRAME
    assert not BY_FRAME & set(body_limits())


async def test_who_names_nothing_gets_nothing(broker: GuardedBroker) -> None:
    """Needs come from fields that a request may leave out: it is then refused by whoever looks for them."""
    await broker.make_alice()
    for name in ("T", "U"):
        broker.create_topic(name)
        stored = await broker.invoke(signed(broker.send_request(name, b"secret", UNIQ_KEY="K1"), ROOT))
        assert stored.code == 0
    some = {
        "offset": "0", "queueId": "0", "queueOffset": "0", "begin": "0", "end": "9", "beginTimestamp": "0",
        "endTimestamp": "9", "timestamp": "0", "maxNum": "9", "maxMsgNums": "9", "key": "K1",
        "msgId": stored.ext["msgId"],
    }  # fmt: skip
    found = {
        code: (answer.code, answer.remark)
        for code in all_codes(broker.controller.server)
        for ext in ({}, some)
        if code not in OPEN and (answer := await broker.ask(code, ALICE, b"", **ext)).code == 0
    }
    assert sorted(found) == [Code.HEART_BEAT]  # of a client with no groups


async def test_a_message_is_shown_by_its_own_topic_whatever_the_request_calls_it(broker: GuardedBroker) -> None:
    await broker.make_alice()
    await broker.allow_alice("Topic:T", "Get")
    for name in ("T", "U"):
        broker.create_topic(name)
        await broker.invoke(signed(broker.send_request(name, b"x", UNIQ_KEY="K1"), ROOT))
    second = (await broker.ask(33, ROOT, topic="T", offset="0")).body_bytes
    offsets = {"T": "0", "U": str(int.from_bytes(second[:4], "big"))}
    assert (await broker.ask(33, ALICE, topic="T", offset=offsets["T"])).code == 0
    assert (await broker.ask(33, ALICE, offset=offsets["T"])).code == 0
    for named in ({"topic": "T"}, {}):
        refused = await broker.ask(33, ALICE, **named, offset=offsets["U"])
        assert refused.code == 16 and "Topic:U" in (refused.remark or "")
    assert (await broker.ask(33, ROOT, offset=offsets["U"])).code == 0


async def test_one_way_requests_are_refused_in_silence(broker: GuardedBroker) -> None:
    await broker.make_alice()
    broker.create_topic("T")
    command = signed(broker.send_request("T", b"x", UNIQ_KEY="K1"), None)
    await broker.client.invoke_oneway(broker.address, command)
    assert (await broker.ask(28)).code == 0  # on the same connection, so the other was worked off
    guard = broker.controller.access.guard
    assert guard is not None and sum(guard.audit.refused.values()) == 1
    assert broker.controller.store.max_physical_offset == 0


async def test_refusals_are_counted_by_cause(broker: GuardedBroker) -> None:
    await broker.make_alice()
    for credentials in (None, EVE, WRONG, WRONG, ALICE):
        await broker.ask(310, credentials, b"x", b="T")
    info = broker.controller.access.runtime_info()
    assert info == {
        "accessRefused_noCredentials": "1", "accessRefused_unknownUser": "1", "accessRefused_disabledUser": "0",
        "accessRefused_wrongSignature": "2", "accessRefused_noPermission": "1", "accessRefused_unreadable": "0",
    }  # fmt: skip


async def test_a_request_that_changes_something_is_one_line_which_says_what_became_of_it(
    broker: GuardedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.make_alice()
    await broker.allow_alice("Topic:own", "Update")
    broker.create_topic("theirs")
    half = broker.send_request("theirs", b"half", sys_flag=4, UNIQ_KEY="U1", TRAN_MSG="true", PGROUP="PG")
    msg_id = (await broker.invoke(signed(half, ROOT))).ext["msgId"]
    caplog.set_level(logging.INFO, "maxq.audit")
    caplog.clear()
    refused = await broker.ask(323, ALICE, topic="own", msgId=msg_id)  # may update `own`; the message is of another
    assert refused.code == 16
    failed = await broker.ask(323, ROOT, topic="own", msgId="no id")
    assert failed.code == 1
    assert (await broker.ask(323, ROOT, topic="own", msgId=msg_id)).code == 0
    lines = [record.getMessage() for record in caplog.records if record.name == "maxq.audit"]
    assert [line.split(" RESUME_CHECK_HALF_MESSAGE ")[0] for line in lines] == ["refused 323", "failed 323", "done 323"]
    assert f"code 1: {failed.remark!r}" in lines[1]
