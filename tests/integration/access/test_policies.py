"""ACL 2.0 on a running broker: batch paths, changes that count at once, users and policies by request, files."""

import asyncio
import json
from pathlib import Path

import pytest

from maxq.auth.signature import Credentials
from maxq.broker.controller import BrokerController
from maxq.errors import ConfigError
from maxq.protocol.frame.remoting_command import RemotingCommand
from tests.integration.access.world import ACL_2, ALICE, INNER, ROOT, WRONG, GuardedBroker, SeenByGuard, signed


@pytest.fixture
async def alice(broker: GuardedBroker) -> GuardedBroker:
    """She may send to T and read it as G."""
    await broker.make_alice()
    await broker.allow_alice("Topic:T", "Pub", "Sub")
    await broker.allow_alice("Group:G", "Sub")
    broker.create_topic("T")
    broker.create_topic("U")
    return broker


async def send(broker: GuardedBroker, topic: str, credentials: Credentials | None = ALICE, body: bytes = b"x") -> int:
    command = signed(broker.send_request(topic, body, UNIQ_KEY="K1"), credentials)
    return (await broker.invoke(command)).code


async def test_sends_of_one_who_may_take_the_batch_path_after_the_first(alice: GuardedBroker) -> None:
    seen = SeenByGuard(alice)
    assert [await send(alice, "T") for _ in range(5)] == [0] * 5
    assert seen.codes == [310]


async def test_on_the_batch_path_every_send_is_judged(alice: GuardedBroker) -> None:
    assert await send(alice, "T") == 0
    before = alice.controller.store.max_physical_offset
    tampered = signed(alice.send_request("T", b"x", UNIQ_KEY="K1"), ALICE)
    tampered.body = b"y"
    answers = await asyncio.gather(
        send(alice, "T", WRONG), send(alice, "T", None), send(alice, "U"), alice.invoke(tampered),
    )  # fmt: skip
    assert [*answers[:3], answers[3].code] == [16] * 4
    assert alice.controller.store.max_physical_offset == before


async def test_a_policy_that_goes_counts_for_connections_that_are_there(alice: GuardedBroker) -> None:
    assert await send(alice, "T") == await send(alice, "T") == 0
    assert (await alice.ask(3008, ROOT, subject="User:alice", resource="Topic:T")).code == 0
    assert await send(alice, "T") == 16
    await alice.allow_alice("Topic:*", "Pub")
    assert await send(alice, "T") == await send(alice, "U") == 0
    assert (await alice.ask(3002, ROOT, b'{"userStatus":"disable"}', username="alice")).code == 0
    assert await send(alice, "T") == 16


async def test_pulls_of_one_who_may_take_the_batch_path_after_they_are_known(alice: GuardedBroker) -> None:
    for _ in range(3):
        await send(alice, "T")

    def pull(credentials: Credentials | None, topic: str = "T", group: str = "G") -> RemotingCommand:
        ext = {
            "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
            "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "1000", "subscription": "*", "subVersion": "0",
        }  # fmt: skip
        return signed(RemotingCommand(11, ext), credentials)

    seen = SeenByGuard(alice)
    assert [(await alice.invoke(pull(ALICE))).code for _ in range(4)] == [0] * 4
    assert seen.codes == [11]
    for refused in (pull(WRONG), pull(None), pull(ALICE, "U"), pull(ALICE, "T", "H")):
        assert (await alice.invoke(refused)).code == 16


async def test_without_access_control_signatures_do_not_keep_sends_from_the_batch_path(tmp_path: Path) -> None:
    broker = GuardedBroker(tmp_path, {})
    await broker.start()
    broker.create_topic("T")
    assert broker.controller.server.guard is None
    assert await send(broker, "T", WRONG) == 0
    await broker.stop()


# --- users and policies -----------------------------------------------------------------------------------------------


async def test_users_and_policies_are_there_after_a_restart_and_only_their_owner_reads_the_file(tmp_path: Path) -> None:
    broker = GuardedBroker(tmp_path)
    await broker.start()
    await broker.make_alice()
    await broker.allow_alice("Topic:T", "Pub")
    await broker.stop()
    assert (tmp_path / "config" / "auth.json").stat().st_mode & 0o777 == 0o600
    again = GuardedBroker(tmp_path, {**ACL_2, "initAuthenticationUser": '{"username":"root","password":"changed"}'})
    await again.start()
    again.create_topic("T")
    assert await send(again, "T") == 0
    acl = json.loads((await again.ask(3009, ROOT, subject="User:alice")).body_bytes)  # the old password still counts
    assert acl == {
        "policies": [
            {"entries": [{"actions": ["Pub"], "decision": "Allow", "resource": "Topic:T"}], "policyType": "Custom"}
        ],
        "subject": "User:alice",
    }
    await again.stop()


async def test_passwords_are_told_to_super_users_only(broker: GuardedBroker) -> None:
    await broker.make_alice()
    await broker.allow_alice("Cluster:DefaultCluster", "Get")
    told = json.loads((await broker.ask(3005, ROOT)).body_bytes)
    assert {user["username"]: user["password"] for user in told} == {
        "alice": "alice-secret", "inner": "inner-secret", "root": "root-secret",
    }  # fmt: skip
    hidden = await broker.ask(3005, ALICE)
    assert hidden.code == 0 and b"secret" not in hidden.body_bytes
    assert b"secret" not in (await broker.ask(3004, ALICE, username="root")).body_bytes


async def test_only_super_users_make_and_change_super_users(broker: GuardedBroker) -> None:
    await broker.make_alice()
    await broker.allow_alice("Cluster:DefaultCluster", "Update")
    boss = b'{"password":"x","userType":"Super"}'
    answer = await broker.ask(3001, ALICE, boss, username="boss")
    assert (answer.code, answer.remark) == (1, "The super user can only be create by super user")
    assert (await broker.ask(3002, ALICE, b'{"userType":"Super"}', username="alice")).code == 1
    assert (await broker.ask(3002, ALICE, b'{"password":"x"}', username="root")).code == 16
    assert (await broker.ask(3003, ALICE, username="root")).code == 16
    assert (await broker.ask(3001, ALICE, b'{"password":"x"}', username="bob")).code == 0
    assert (await broker.ask(3001, ROOT, boss, username="boss")).code == 0


@pytest.mark.parametrize(
    ("code", "ext", "body", "answer"),
    [
        (3001, {}, b"{}", (29, "The username is blank")),
        (3001, {"username": "u"}, b"{}", (16, "password can not be blank")),
        (3001, {"username": "root"}, b'{"password":"x"}', (16, "The user is existed")),
        (3001, {"username": "u"}, b'{"password":"x","userType":"Boss"}', (29, "'Boss' is neither Super nor Normal")),
        (3001, {"username": "u"}, b"[", (29, "")),
        (3002, {"username": "u"}, b"{}", (16, "The user is not exist")),
        (3003, {"username": "u"}, b"", (0, "")),
        (3004, {"username": "u"}, b"", (0, "")),
        (3006, {"subject": "User:root"}, b"{}", (1, "The body of acl is null")),
        (3006, {"subject": "User:u"}, b'{"policies":[{"entries":[]}]}', (16, "The policy entries is empty.")),
        (
            3006,
            {"subject": "User:root"},
            b'{"policies":[{"entries":[{"resource":"x"}]}]}',
            (29, "The resource is null"),
        ),
        (3008, {"subject": "User:root", "resource": "nonsense"}, b"", (29, "nothing was deleted")),
        (3008, {"subject": "User:root"}, b"", (16, "The acl is not exist.")),
        (3009, {}, b"", (16, "The subject is null.")),
        (3010, {"subjectFilter": "nobody"}, b"", (0, "")),
    ],
)
async def test_what_cannot_be_done_is_said(
    broker: GuardedBroker, code: int, ext: dict[str, str], body: bytes, answer: tuple[int, str]
) -> None:
    said = await broker.ask(code, ROOT, body, **ext)
    assert said.code == answer[0], said.remark
    assert answer[1] in (said.remark or "")
    assert said.body_bytes == b""


async def test_settings_tell_no_secret_and_cannot_switch_access_control_off(broker: GuardedBroker) -> None:
    told = (await broker.ask(26)).body_bytes
    assert b"root-secret" not in told and b"inner-secret" not in told
    assert b"initAuthenticationUser=***" in told
    changes = ("authenticationEnabled=false", "strictAdminAuthorization=false", "authConfigPath=/x", "bindAddress=::")
    for line in changes:
        assert (await broker.ask(25, ROOT, line.encode())).code == 16


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"authorizationEnabled": "true"}, "authorizationEnabled needs authenticationEnabled"),
        ({**ACL_2, "aclEnable": "true"}, "exclude each other"),
        ({"aclEnable": "true"}, "rocketmqHome"),
        ({"authenticationEnabled": "true", "initAuthenticationUser": "hush"}, "no JSON object"),
        ({"authenticationEnabled": "true", "initAuthenticationUser": '{"username":"hush"}'}, "must be {"),
        ({"innerClientAuthenticationCredentials": '{"accessKey":"hush"}'}, "must be {"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_without_secrets(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        GuardedBroker(tmp_path, settings)
    assert words in str(refused.value) and "hush" not in str(refused.value)


def test_class_names_of_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="authenticationProvider"):
        GuardedBroker(tmp_path, {"authenticationProvider": "com.example.Mine"})
    java = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    assert isinstance(GuardedBroker(tmp_path, {"authenticationMetadataProvider": java}).controller, BrokerController)


async def test_a_damaged_file_of_users_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    broker = GuardedBroker(tmp_path)
    await broker.start()
    await broker.make_alice()
    await broker.stop()
    (tmp_path / "config" / "auth.json").write_text('{"users":[{"username":"a"}]')
    damaged = GuardedBroker(tmp_path)
    with pytest.raises(ConfigError, match=r"auth\.json"):
        await damaged.start()
    await damaged.client.close()


async def test_what_a_broker_asks_others_is_signed(tmp_path: Path) -> None:
    """A slave has its master's tables, and a master that has access control gives them to who signs."""
    master = GuardedBroker(tmp_path / "m", {**ACL_2, "brokerRole": "ASYNC_MASTER"})
    await master.start()
    master.create_topic("FromMaster")
    slave = GuardedBroker(tmp_path / "s", {**ACL_2, "brokerRole": "SLAVE", "brokerId": "1"})
    await slave.start()
    synchronize = slave.controller.slave_synchronize
    synchronize.set_master_address(master.address)
    async with asyncio.timeout(10):
        while "FromMaster" not in slave.controller.topics.topic_config_table:
            await synchronize.sync_all()
    assert INNER.access_key in slave.controller.access.tables.users
    await slave.stop()
    await master.stop()
