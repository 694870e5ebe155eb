"""ACL 1.0 on a running broker: files that change, accounts changed by request."""

import json
from pathlib import Path

import pytest
import yaml

from maxq.auth.signature import Credentials
from maxq.errors import ConfigError
from tests.integration.access.test_every_request import BODY, NAMES, all_codes
from tests.integration.access.world import GuardedBroker, signed, until
from tests.unit.auth.test_needs import OPEN

ADMIN = Credentials("admin12", "admin-secret")
BOB = Credentials("bob1234", "bob-secret")
FILE = """
globalWhiteRemoteAddresses: []
accounts:
- accessKey: admin12
  secretKey: admin-secret
  admin: true
- accessKey: bob1234
  secretKey: bob-secret
  topicPerms: [T=PUB]
  groupPerms: [G=SUB]
"""
#: What an account without permissions may ask: what only reads, names no message and is not passed on to a client.
READS = OPEN | {
    29, 30, 31, 32, 33, 52, 101, 105, 202, 203, 204, 208, 219, 300, 303, 308, 315, 317, 321, 322, 328, 343,
    345, 351, 354, 355, 901, 200074, 200075, 200076, 200077, 200078,
}  # fmt: skip


@pytest.fixture
async def broker(tmp_path: Path):  # type: ignore[no-untyped-def]
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(FILE)
    running = GuardedBroker(tmp_path / "store", {"aclEnable": "true", "rocketmqHome": str(home)})
    await running.start()
    for name in ("T", "U"):
        running.create_topic(name)
    yield running
    await running.stop()


def main_file(broker: GuardedBroker) -> Path:
    return Path(broker.settings.broker.rocketmq_home) / "conf" / "plain_acl.yml"


async def send(broker: GuardedBroker, topic: str, credentials: Credentials | None = BOB) -> int:
    return (await broker.invoke(signed(broker.send_request(topic, b"x", UNIQ_KEY="K1"), credentials))).code


async def test_accounts_may_what_the_file_says(broker: GuardedBroker) -> None:
    assert [await send(broker, "T") for _ in range(3)] == [0, 0, 0]
    assert await send(broker, "U") == 16
    assert await send(broker, "T", None) == 16
    assert await send(broker, "T", Credentials("bob1234", "x")) == 16
    assert await send(broker, "U", ADMIN) == 0
    assert (await broker.ask(25, BOB, b"fileReservedTime=1")).code == 16
    assert (await broker.ask(25, ADMIN, b"fileReservedTime=71")).code == 0


async def test_every_request_without_with_wrong_and_with_insufficient_credentials(broker: GuardedBroker) -> None:
    """With ACL 1.0 an account's signature is enough for what only reads, and no more for whatever changes a server."""
    carol = Credentials("carol12", "carol-secret")
    assert (await broker.ask(50, ADMIN, None, accessKey="carol12", secretKey="carol-secret", admin="false")).code == 0
    codes = all_codes(broker.controller.server)
    for credentials, words in (
        (None, "No accessKey is configured"),
        (Credentials("eve4567", "eve-secret"), "No acl config for eve4567"),
        (Credentials("carol12", "not-hers"), "Check signature failed for accessKey=carol12"),
    ):
        for code in [*codes, 9, 999_999]:
            answer = await broker.ask(code, credentials, BODY, **NAMES)
            assert (answer.code, words in (answer.remark or "")) == (16, True), (code, answer.remark)
    passed = {code for code in codes if (await broker.ask(code, carol, BODY, **NAMES)).code != 16}
    assert sorted(passed) == sorted(READS)
    assert await send(broker, "T", ADMIN) == 0
    seen = [(await broker.ask(33, who, None, offset="0")).code for who in (carol, ADMIN)]
    assert seen == [16, 0]  # 33 shows messages: it takes SUB on the topic of the message


async def test_a_file_that_changes_counts_and_one_that_breaks_does_not(
    broker: GuardedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    path, access = main_file(broker), broker.controller.access
    assert await send(broker, "T") == 0 and access.plain is not None
    before = access.plain.acl
    path.write_text(FILE.replace("T=PUB", "U=PUB"))
    await until(lambda: access.plain is not None and access.plain.acl is not before)
    assert (await send(broker, "T"), await send(broker, "U")) == (16, 0)
    more = path.parent / "acl" / "team" / "b.yaml"
    more.parent.mkdir(parents=True)
    more.write_text("accounts: [{accessKey: carol12, secretKey: carol-secret, defaultTopicPerm: PUB}]")
    await until(lambda: access.plain is not None and "carol12" in access.plain.acl.accounts)
    assert await send(broker, "T", Credentials("carol12", "carol-secret")) == 0
    now = access.plain.acl
    path.write_text("accounts: [")
    await until(lambda: "cannot be used, the old rules stay" in caplog.text)
    assert access.plain.acl is now and await send(broker, "U") == 0


async def test_accounts_are_changed_by_request_of_administrators(broker: GuardedBroker) -> None:
    account = {"accessKey": "carol12", "secretKey": "carol-secret", "topicPerms": "T=PUB,U=PUB|SUB", "admin": "false"}
    assert (await broker.ask(50, BOB, None, **account)).code == 16
    assert (await broker.ask(50, ADMIN, None, **account)).code == 0
    carol = Credentials("carol12", "carol-secret")
    assert (await send(broker, "T", carol), await send(broker, "U", carol)) == (0, 0)
    assert (await broker.ask(50, ADMIN, None, accessKey="carol12", topicPerms="T=DENY", admin="false")).code == 0
    assert await send(broker, "T", carol) == 16
    assert main_file(broker).stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(main_file(broker).read_text())["dataVersion"][0]["counter"] == 2
    answer = await broker.ask(52, BOB)
    assert json.loads(answer.ext["version"])["counter"] == 2
    assert json.loads(answer.ext["allAclFileVersion"])[str(main_file(broker))]["counter"] == 2
    assert (await broker.ask(51, ADMIN, None, accessKey="carol12")).code == 0
    assert await send(broker, "U", carol) == 16
    assert (await broker.ask(51, ADMIN, None, accessKey="carol12")).code == 210


async def test_bad_accounts_and_paths_of_others_are_refused(broker: GuardedBroker, tmp_path: Path) -> None:
    before = main_file(broker).read_text()
    for wrong in ({"secretKey": "x"}, {"secretKey": "carol-secret", "topicPerms": "T=ALL"}):
        answer = await broker.ask(50, ADMIN, None, accessKey="carol12", **wrong)
        assert answer.code == 209 and "carol-secret" not in (answer.remark or "")
    victim = tmp_path / "victim.yml"
    victim.write_text("a: b")
    for path in (str(victim), "/etc/passwd", str(main_file(broker).parent / "acl" / ".." / ".." / "x.yml")):
        answer = await broker.ask(53, ADMIN, None, globalWhiteAddrs="1.1.1.1", aclFileFullPath=path)
        assert answer.code == 211 and "not one of the files of access control" in (answer.remark or "")
    assert (await broker.ask(53, ADMIN, None, globalWhiteAddrs="1.1.1")).code == 211
    assert (await broker.ask(54, ADMIN)).code == 3
    assert (main_file(broker).read_text(), victim.read_text()) == (before, "a: b")


async def test_the_global_white_list_is_changed_by_request(broker: GuardedBroker) -> None:
    assert await send(broker, "U", None) == 16
    assert (await broker.ask(53, ADMIN, None, globalWhiteAddrs="127.0.0.*,10.0.0.1")).code == 0
    assert await send(broker, "U", None) == await send(broker, "U", None) == 0


async def test_accounts_move_to_acl_2(broker: GuardedBroker, tmp_path: Path) -> None:
    moved = GuardedBroker(
        tmp_path / "moved",
        {
            "authenticationEnabled": "true", "authorizationEnabled": "true", "migrateAuthFromV1Enabled": "true",
            "rocketmqHome": broker.settings.broker.rocketmq_home,
        },
    )  # fmt: skip
    await moved.start()
    moved.create_topic("T")
    moved.create_topic("U")
    assert (await send(moved, "T"), await send(moved, "U"), await send(moved, "U", ADMIN)) == (0, 16, 0)
    await moved.stop()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "neither"),
        ("accounts: [", "is not YAML in line"),
        ("a: &a [*a, hush]\naccounts: *a", "is not YAML in line 1"),
        ("!!python/object/apply:os.system [id]", "is a mapping"),
        ("accounts: [{accessKey: 12345678, secretKey: hush}]", "longer than 6"),
        ("{" * 2000, "is not YAML"),
    ],
)
async def test_a_file_that_cannot_be_used_keeps_the_broker_from_starting(
    tmp_path: Path, text: str | None, words: str
) -> None:
    (tmp_path / "conf").mkdir()
    if text is not None:
        (tmp_path / "conf" / "plain_acl.yml").write_text(text)
    broker = GuardedBroker(tmp_path / "store", {"aclEnable": "true", "rocketmqHome": str(tmp_path)})
    with pytest.raises(ConfigError) as refused:
        await broker.start()
    assert words in str(refused.value) and "hush" not in str(refused.value)
    await broker.client.close()
