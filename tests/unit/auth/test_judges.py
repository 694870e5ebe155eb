"""Both judges: whom they let through, why not, and what a session may remember."""

from typing import NamedTuple

import pytest

from maxq.auth.acl_client_rpc_hook import AclClientRPCHook
from maxq.auth.judge import DenialCause, Refused, Session
from maxq.auth.plain_acl import PlainAcl, read_plain_acl
from maxq.auth.plain_judge import PlainJudge
from maxq.auth.policy import Action, Decision, Policy, PolicyEntry, PolicyType
from maxq.auth.policy_judge import PolicyJudge, PolicyRules
from maxq.auth.resource import Resource, group, topic
from maxq.auth.signature import Credentials, signed_content
from maxq.auth.tables import AccessTables
from maxq.auth.user import User, UserStatus, UserType
from maxq.codes import RequestCode as Code
from maxq.errors import RequestRefusedError
from maxq.protocol.frame.remoting_command import RemotingCommand

ALICE = Credentials("alice", "alice-secret")


def request(code: int, credentials: Credentials | None, body: bytes = b"", **ext: str) -> RemotingCommand:
    command = RemotingCommand(code, dict(ext), body)
    if credentials is not None:
        AclClientRPCHook(credentials).do_before_request("", command)
    return command


def tables() -> AccessTables:
    found = AccessTables()
    found.create_user(User("root", "root-secret", UserType.SUPER))
    found.create_user(User("alice", "alice-secret"))
    found.create_user(User("dora", "dora-secret", user_status=UserStatus.DISABLE))
    entries = (
        PolicyEntry(topic("T"), (Action.PUB, Action.SUB), Decision.ALLOW),
        PolicyEntry(group("G"), (Action.SUB,), Decision.ALLOW, ("10.0.0.0/8",)),
    )
    found.update_acl("User:alice", (Policy(PolicyType.CUSTOM, entries),))
    return found


def cause(refused: Refused | None) -> DenialCause | None:
    return None if refused is None else refused.cause


class World:
    def __init__(self, **rules: object) -> None:
        self.tables = tables()
        self.judge = PolicyJudge(PolicyRules(**rules), self.tables)  # type: ignore[arg-type]
        self.session = Session("10.0.0.1", self.judge.rules)

    def ask(self, command: RemotingCommand) -> Refused | None:
        return self.judge.judge(command, self.session)


def test_who_does_not_sign_or_signs_wrongly_is_refused_with_java_s_words() -> None:
    world = World()
    refusals = [
        (request(310, None, b=topic("T").name), DenialCause.NO_CREDENTIALS, "username cannot be null."),
        (request(310, Credentials("eve", "x"), b="T"), DenialCause.UNKNOWN_USER, "User:eve is not found."),
        (request(310, Credentials("dora", "dora-secret"), b="T"), DenialCause.DISABLED_USER, "User:dora is disabled."),
        (request(310, Credentials("alice", "x"), b="T"), DenialCause.WRONG_SIGNATURE, "check signature failed."),
    ]
    for command, why, words in refusals:
        refused = world.ask(command)
        assert refused is not None and refused.cause is why and words in refused.remark
    changed = request(310, ALICE, b"body", b="T")
    changed.body = b"Body"
    assert cause(world.ask(changed)) is DenialCause.WRONG_SIGNATURE
    unsigned = request(310, ALICE, b="T")
    del unsigned.ext["Signature"]
    assert cause(world.ask(unsigned)) is DenialCause.WRONG_SIGNATURE
    assert world.session.sends == {}


def test_what_policies_do_not_allow_is_refused_with_java_s_words() -> None:
    world = World()
    assert world.ask(request(310, ALICE, b="T")) is None
    refused = world.ask(request(310, ALICE, b="U"))
    assert refused is not None
    assert refused.remark == "User:alice has no permission to access Topic:U (Pub) from 10.0.0.1, no matched policies."
    assert cause(world.ask(request(11, ALICE, topic="T", consumerGroup="G"))) is None
    world.session.source_ip = "11.0.0.1"
    assert cause(world.ask(request(11, ALICE, topic="T", consumerGroup="G"))) is DenialCause.NO_PERMISSION
    assert cause(world.ask(request(Code.HEART_BEAT, ALICE, b"[1"))) is DenialCause.UNREADABLE
    assert world.ask(request(Code.UPDATE_BROKER_CONFIG, Credentials("root", "root-secret"))) is None


def test_a_session_remembers_what_was_let_through_until_a_rule_changes() -> None:
    world = World()
    world.ask(request(310, ALICE, b="T"))
    world.ask(request(11, ALICE, topic="T", consumerGroup="G"))
    world.ask(request(310, ALICE, b="U"))
    assert set(world.session.sends) == {b"alice\0T"}
    assert set(world.session.repeated) == {b"11\0alice\0G\0T\0"}
    assert world.session.sends[b"alice\0T"] is not None
    before = world.judge.rules
    world.tables.delete_acl("User:alice", None, topic("T"))
    assert world.judge.rules is not before
    assert cause(world.ask(request(310, ALICE, b="T"))) is DenialCause.NO_PERMISSION


class Kept(NamedTuple):
    """What a scanner keeps of a request."""

    access_key: bytes
    signature: bytes
    signed_content: bytes


def kept(command: RemotingCommand) -> Kept:
    ext = command.ext
    return Kept(ext.get("AccessKey", "").encode(), ext.get("Signature", "").encode(), signed_content(ext))


@pytest.mark.parametrize(
    ("code", "ext", "fields"),
    [
        (Code.PULL_MESSAGE, {"topic": "T", "consumerGroup": "G"}, (b"G", b"T")),
        (Code.ACK_MESSAGE, {"topic": "T", "consumerGroup": "G"}, (b"G", b"T")),
        (Code.END_TRANSACTION, {"topic": "T"}, (b"T",)),
        (Code.END_TRANSACTION, {}, (b"",)),
        (Code.CONSUMER_SEND_MSG_BACK, {"group": "G"}, (b"G",)),
    ],
)
def test_a_session_admits_what_is_like_a_request_that_was_let_through_and_signed_by_the_same_user(
    code: Code, ext: dict[str, str], fields: tuple[bytes, ...]
) -> None:
    world = World()
    first, second = request(code, ALICE, **ext, n="1"), request(code, ALICE, **ext, n="2")
    assert not world.session.admits(code, kept(second), *fields)
    assert world.ask(first) is None
    assert world.session.admits(code, kept(second), *fields)
    for other in (
        request(code, Credentials("alice", "wrong"), **ext),
        request(code, Credentials("root", "root-secret"), **ext),
        request(code, None, **ext),
    ):
        assert not world.session.admits(code, kept(other), *fields)
    assert not world.session.admits(code, kept(second)._replace(signed_content=b"other"), *fields)
    assert not world.session.admits(code, kept(second), *fields[:-1], b"U")
    assert not world.session.admits(Code.LITE_PULL_MESSAGE, kept(second), *fields)


def test_a_new_password_counts_at_once() -> None:
    world = World()
    assert world.ask(request(310, ALICE, b="T")) is None
    world.tables.update_user("alice", "other-secret", None, None)
    assert cause(world.ask(request(310, ALICE, b="T"))) is DenialCause.WRONG_SIGNATURE
    assert world.ask(request(310, Credentials("alice", "other-secret"), b="T")) is None


def test_codes_on_the_white_lists_are_not_looked_at() -> None:
    world = World(authentication_whitelist=frozenset({28}), authorization_whitelist=frozenset({28}))
    assert world.ask(request(28, None)) is None
    assert cause(world.ask(request(26, None))) is DenialCause.NO_CREDENTIALS
    half = World(authentication_whitelist=frozenset({28}))
    assert cause(half.ask(request(28, None))) is DenialCause.NO_CREDENTIALS  # nobody to judge
    assert half.ask(request(28, Credentials("alice", "wrong"))) is None


def test_sends_on_a_white_list_teach_nothing_unless_all_are_on_it() -> None:
    both = {"authorization_whitelist": frozenset({310, 10, 320})}
    some = World(authentication_whitelist=frozenset({310}), **both)
    assert some.ask(request(310, None, b="T")) is None
    assert some.session.sends == {}
    every = World(authentication_whitelist=frozenset({310, 10, 320}), **both)
    assert every.ask(request(310, None, b="T")) is None
    assert every.session.sends == {b"\0T": None}


def test_the_stateful_strategy_checks_a_signature_once_a_connection() -> None:
    world = World(stateful=True)
    wrong = request(310, Credentials("alice", "wrong"), b="T")
    assert cause(world.ask(wrong)) is DenialCause.WRONG_SIGNATURE
    assert world.ask(request(310, ALICE, b="T")) is None
    assert world.ask(wrong) is None
    assert world.session.sends == {b"alice\0T": None}
    world.session = Session("10.0.0.1", world.judge.rules)
    assert cause(world.ask(wrong)) is DenialCause.WRONG_SIGNATURE


def test_only_super_users_are_super_and_only_where_they_are_checked() -> None:
    world = World(authentication_whitelist=frozenset({28}))
    root = Credentials("root", "root-secret")
    assert world.judge.is_super(request(26, root)) and not world.judge.is_super(request(26, ALICE))
    assert not world.judge.is_super(request(28, root))


def test_rules_of_the_tables() -> None:
    found = tables()
    for change, words in (
        (lambda: found.create_user(User("alice", "x")), "The user is existed"),
        (lambda: found.create_user(User(" ", "x")), "username can not be blank"),
        (lambda: found.create_user(User("new", " ")), "password can not be blank"),
        (lambda: found.update_user("nobody", "x", None, None), "The user is not exist"),
        (lambda: found.get_acl("nobody"), "The subject is null."),
        (lambda: found.get_acl("User:nobody"), "The subject is not exist."),
        (lambda: found.delete_acl("User:root", None, None), "The acl is not exist."),
    ):
        with pytest.raises(RequestRefusedError, match=words) as refused:
            change()
        assert refused.value.response_code == 16
    assert [user.username for user in found.list_users("a")] == ["alice", "dora"]
    assert [len(acl.policies[0].entries) for acl in found.list_acls("alice", "Topic:")] == [1]
    assert found.list_acls(None, "Topic:X") == []
    found.delete_user("alice")
    assert found.acls == {}
    assert Resource.parse("Topic:T") == topic("T")


# --- ACL 1.0 ----------------------------------------------------------------------------------------------------------


def plain(**account: object) -> PlainAcl:
    accounts = [
        {"accessKey": "alice12", "secretKey": "secret1", "topicPerms": ["T=PUB"], **account},
        {"accessKey": "admin12", "secretKey": "secret1", "admin": "true"},
    ]
    return read_plain_acl([("f", {"globalWhiteRemoteAddresses": ["10.9.9.9"], "accounts": accounts})])[0]


def test_acl_1_goes_from_white_lists_to_signature_to_permission() -> None:
    acl = plain(whiteRemoteAddress="10.8.8.8")
    judge = PlainJudge(lambda: acl, strict=True)
    alice = Credentials("alice12", "secret1")

    def ask(command: RemotingCommand, ip: str = "1.1.1.1") -> str:
        refused = judge.judge(command, Session(ip, acl))
        return "" if refused is None else refused.remark

    assert ask(request(310, None, b="X"), "10.9.9.9") == ""
    assert ask(request(310, None, b="T")) == "No accessKey is configured"
    assert ask(request(310, Credentials("eve1234", "secret1"), b="T")) == "No acl config for eve1234"
    assert ask(request(310, Credentials("alice12", "x"), b="X"), "10.8.8.8") == ""
    assert ask(request(310, Credentials("alice12", "x"), b="T")) == "Check signature failed for accessKey=alice12"
    assert ask(request(310, alice, b="T")) == ""
    assert ask(request(310, alice, b="X")) == "No default permission for topic:X (PUB)"
    assert ask(request(17, Credentials("admin12", "secret1"), topic="X")) == ""


def test_acl_1_takes_queries_whose_flag_is_signed_or_not() -> None:
    acl = plain(topicPerms=["T=SUB"])
    judge = PlainJudge(lambda: acl, strict=True)
    alice = Credentials("alice12", "secret1")
    signed = request(12, alice, topic="T", _UNIQUE_KEY_QUERY="true")
    later = request(12, alice, topic="T")
    later.ext["_UNIQUE_KEY_QUERY"] = "true"
    for command in (signed, later):
        assert judge.judge(command, Session("1.1.1.1", acl)) is None
