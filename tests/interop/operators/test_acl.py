"""Access control between Java and us: clients of 5.5.0 and 4.9.8 that sign, mqadmin's commands, a Java broker."""

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from maxq.auth.info import UserInfo
from maxq.client.admin.access import custom_acl
from maxq.client.admin.admin import Admin
from maxq.client.client_config import ClientConfig, LitePullConsumerConfig, ProducerConfig
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.producer.producer import Producer
from maxq.errors import MaxQError
from maxq.machine import system_environment
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message
from tests.interop.processes import peers
from tests.interop.processes.mqadmin_session import MqAdminSession
from tests.interop.processes.servers import (
    SMALL_HEAP,
    JavaBroker,
    JavaNamesrv,
    MaxqBroker,
    MaxqNamesrv,
    free_port_base,
    java_command,
    stopping,
)

pytestmark = pytest.mark.interop

SOURCE = Path(__file__).parents[1] / "processes" / "java_acl" / "AclClient.java"
AUTH = "org.apache.rocketmq.auth"
ROOT = ("root", "root-secret")
ALICE = ("alice12", "alice-secret")
ACL_2 = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationProvider": f"{AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationProvider": f"{AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner12","secretKey":"inner-secret"}',
}
ACL_1 = """
accounts:
- {accessKey: inner12, secretKey: inner-secret, admin: true}
- {accessKey: root123, secretKey: root-secret, admin: true}
- accessKey: alice12
  secretKey: alice-secret
  topicPerms: [T=PUB|SUB]
  groupPerms: [G=SUB]
"""


class GuardedBroker(MaxqBroker):
    """Ours; a name server that asks for signatures tells whether it is registered."""

    credentials = ROOT

    def _is_registered(self, namesrv: str) -> bool:
        async def ask() -> bool:
            async with admin(namesrv, self.credentials) as there:
                return self.address in str(await there.cluster_info())

        try:
            return asyncio.run(ask())
        except MaxQError:
            return False


class GuardedNamesrv(MaxqNamesrv):
    """Ours, with the settings of a file."""

    def start_with(self, settings: dict[str, str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        conf = self.folder / "namesrv.conf"
        own = {"listenPort": str(self.port), "kvConfigPath": str(self.folder / "kv.json"), **settings}
        conf.write_text("".join(f"{key}={value}\n" for key, value in own.items()))
        self.launch([sys.executable, "-m", "maxq", "namesrv", "-c", str(conf)])


def admin(namesrv: str, credentials: tuple[str, str]) -> Admin:
    config = ClientConfig(namesrv_addr=namesrv, access_key=credentials[0], secret_key=credentials[1])
    return Admin(config, system_environment(namesrv))


def java_client(version: str, folder: Path, namesrv: str, topic: str, group: str, *credentials: str) -> list[str]:
    """Facts that AclClient tells."""
    jars = peers.rocketmq_jars() if version == peers.ROCKETMQ_VERSION else peers.tools_jars(version)
    classes = peers.peers_folder() / f"acl-{version}"
    if (
        not (classes / "AclClient.class").exists()
        or (classes / "AclClient.class").stat().st_mtime < SOURCE.stat().st_mtime
    ):
        classes.mkdir(parents=True, exist_ok=True)
        subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(SOURCE)], check=True)
    folder.mkdir(parents=True, exist_ok=True)
    heap = (*SMALL_HEAP, "-Drocketmq.client.logUseSlf4j=false", f"-Drocketmq.client.logRoot={folder}/logs")
    command = java_command(f"{classes}:{jars}/*", folder, heap, "AclClient", namesrv, topic, group, *credentials, "10")
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    facts = [line[2:] for line in done.stdout.splitlines() if line.startswith("@@")]
    assert facts, done.stderr[-3000:]
    return facts


async def make_alice(namesrv: str, servers: list[str]) -> None:
    """She may send to T and read it as G, on each of these servers. Root makes topics, on the last of them: nobody else
    may ask for the route of TBW102, from which clients would have them made."""
    async with admin(namesrv, ROOT) as there:
        for topic in ("T", "U"):
            await there.topics.create(servers[-1], TopicConfig(topic, 4, 4))
        for address in servers:
            await there.access.create_user(address, UserInfo(*ALICE))
            for resources, actions in ((["Topic:T"], ["Pub", "Sub"]), (["Group:G"], ["Sub"])):
                await there.access.create_acl(address, custom_acl(f"User:{ALICE[0]}", resources, actions, [], "Allow"))


@pytest.fixture(scope="module")
def scratch_acl(tmp_path_factory: pytest.TempPathFactory, jars: Path) -> Path:
    return tmp_path_factory.mktemp("acl")


@pytest.fixture(scope="module")
def ours(scratch_acl: Path) -> Iterator[tuple[GuardedNamesrv, GuardedBroker]]:
    """Name server and broker of ours with ACL 2.0, alice on both."""
    namesrv = GuardedNamesrv(scratch_acl / "ns", free_port_base())
    broker = GuardedBroker(scratch_acl / "broker", free_port_base())
    with stopping(broker, namesrv):
        namesrv.start_with({**ACL_2, "bindAddress": "127.0.0.1"})
        broker.start(namesrv.address, {**ACL_2, "bindAddress": "127.0.0.1"})
        asyncio.run(make_alice(namesrv.address, [namesrv.address, broker.address]))
        yield namesrv, broker


@pytest.mark.parametrize("version", ["5.5.0", "4.9.8"])
def test_java_clients_that_sign_send_and_consume(
    ours: tuple[GuardedNamesrv, GuardedBroker], scratch_acl: Path, version: str
) -> None:
    namesrv, _ = ours
    facts = java_client(version, scratch_acl / f"c{version}", namesrv.address, "T", "G", *ALICE)
    assert facts[0] == "sent 10", facts
    assert re.fullmatch(r"received \d\d", facts[1]), facts  # the second release reads on where the first ended


def test_a_java_client_with_a_wrong_secret_or_without_permission_is_refused(
    ours: tuple[GuardedNamesrv, GuardedBroker], scratch_acl: Path
) -> None:
    namesrv, _ = ours
    # The name server refuses first, of which a Java client says that there is no route.
    facts = java_client("5.5.0", scratch_acl / "w", namesrv.address, "T", "G", ALICE[0], "wrong-secret")
    assert facts[-1] == "sent 0" and "No route info of this topic: T" in facts[0], facts
    facts = java_client("5.5.0", scratch_acl / "u", namesrv.address, "U", "G", *ALICE)
    assert facts[-1] == "sent 0" and "No route info of this topic: U" in facts[0], facts


@contextlib.contextmanager
def with_plain_acl(folder: Path) -> Iterator[tuple[MaxqNamesrv, GuardedBroker]]:
    """Our servers, the broker with ACL 1.0."""
    namesrv = MaxqNamesrv(folder / "ns", free_port_base())
    broker = GuardedBroker(folder / "broker", free_port_base())
    (broker.folder / "conf").mkdir(parents=True)
    (broker.folder / "conf" / "plain_acl.yml").write_text(ACL_1)
    with stopping(broker, namesrv):
        namesrv.start()
        broker.start(
            namesrv.address,
            {
                "aclEnable": "true", "bindAddress": "127.0.0.1",
                "innerClientAuthenticationCredentials": ACL_2["innerClientAuthenticationCredentials"],
            },
        )  # fmt: skip
        yield namesrv, broker


@pytest.mark.parametrize("version", ["5.5.0", "4.9.8"])
def test_java_clients_that_sign_are_judged_by_plain_acl(scratch_acl: Path, version: str) -> None:
    folder = scratch_acl / f"plain-{version}"
    with with_plain_acl(folder) as (namesrv, _):
        assert java_client(version, folder / "c", namesrv.address, "T", "G", *ALICE) == ["sent 10", "received 10"]
        facts = java_client(version, folder / "u", namesrv.address, "U", "G", *ALICE)
        assert facts[-1] == "sent 0" and "No default permission for topic:U" in facts[0], facts


#: A command of ACL 1.0 of mqadmin 4.9.8, and what it says to an administrator of our broker.
PLAIN_SCRIPT = [
    (("updateAclConfig", "-a", "bob1234", "-s", "bob-secret", "-t", "U=PUB|SUB", "-g", "G=SUB"), "success"),
    (("updateAclConfig", "-a", "bob1234", "-s", "x"), "CODE: 209"),
    (("updateAclConfig", "-a", "alice12", "-s", "alice-secret", "-t", "T=DENY", "-i", "DENY"), "success"),
    (("updateGlobalWhiteAddr", "-g", "10.10.103.*,192.168.0.*"), "success"),
    (("updateGlobalWhiteAddr", "-g", "10.10"), "CODE: 211"),
    (("clusterAclConfigVersion",), "plain_acl.yml"),
    (("deleteAccessConfig", "-a", "bob1234"), "success"),
    (("deleteAccessConfig", "-a", "bob1234"), "CODE: 210"),
]


def test_mqadmin_of_4_9_8_changes_the_accounts_of_our_broker(scratch_acl: Path) -> None:
    folder = scratch_acl / "plain-mqadmin"
    with with_plain_acl(folder) as (namesrv, broker):
        file = broker.folder / "conf" / "plain_acl.yml"
        for key, secret, allowed in (("alice12", "alice-secret", False), ("root123", "root-secret", True)):
            home = folder / f"mqadmin-{key}"
            (home / "conf").mkdir(parents=True)
            (home / "conf" / "tools.yml").write_text(f"accessKey: {key}\nsecretKey: {secret}\n")
            with MqAdminSession("4.9.8", home, namesrv.address) as session:
                for command, words in PLAIN_SCRIPT:
                    text = session.run(*command, "-b", broker.address)
                    if allowed:
                        assert words in text, (command, text)
                    elif command[0] != "clusterAclConfigVersion":  # every account may ask for versions
                        assert "Need admin permission" in text and "alice12 is not" in text, (command, text)
                    if command[0] == "updateAclConfig" and allowed and words == "success":
                        accounts = {one["accessKey"]: one for one in yaml.safe_load(file.read_text())["accounts"]}
                        assert accounts[command[2]]["topicPerms"] == [command[6]]
        after = yaml.safe_load(file.read_text())
        assert [one["accessKey"] for one in after["accounts"]] == ["inner12", "root123", "alice12"]
        assert after["globalWhiteRemoteAddresses"] == ["10.10.103.*", "192.168.0.*"]
        facts = java_client("4.9.8", folder / "c", namesrv.address, "T", "G", *ALICE)
        assert facts[-1] == "sent 0" and "No default permission for topic:T" in facts[0], facts


SCRIPT = [
    ("createUser", "-u", "bob", "-p", "bob-secret", "-t", "Normal"),
    ("createUser", "-u", "bob", "-p", "again"),
    ("getUser", "-u", "bob"),
    ("updateUser", "-u", "bob", "-p", "other-secret"),
    ("updateUser", "-u", "bob", "-s", "disable"),
    ("listUser", "-f", "b"),
    ("createAcl", "-s", "User:bob", "-r", "Topic:T*,Group:G", "-a", "Pub,Sub", "-d", "Allow", "-i", "10.0.0.0/8"),
    ("updateAcl", "-s", "User:bob", "-r", "Group:G", "-a", "Sub", "-d", "Deny"),
    ("createAcl", "-s", "User:nobody", "-r", "Topic:T", "-a", "Pub", "-d", "Allow"),
    ("createAcl", "-s", "User:bob", "-r", "Topic:T", "-a", "Pub", "-d", "Allow", "-i", "nowhere"),
    ("getAcl", "-s", "User:bob"),
    ("listAcl", "-s", "bob", "-r", "Topic"),
    ("deleteAcl", "-s", "User:bob", "-r", "Group:G"),
    ("getAcl", "-s", "User:bob"),
    ("deleteAcl", "-s", "User:bob"),
    ("deleteUser", "-u", "bob"),
    ("getUser", "-u", "bob"),
]


def said_by(folder: Path, broker: str, namesrv: str) -> list[str]:
    """What mqadmin 5.5.0 says, signed by root; without addresses and stack traces."""
    home = folder / "mqadmin"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "tools.yml").write_text(f"accessKey: {ROOT[0]}\nsecretKey: {ROOT[1]}\n")
    said = []
    with MqAdminSession("5.5.0", home, namesrv) as session:
        for command in SCRIPT:
            text = session.run(*command, "-b", broker)
            lines = [line for line in text.replace(broker, "BROKER").splitlines() if not line.startswith("\tat ")]
            # Of an exception the remark counts; ours may go on where Java's ends.
            remarks = re.findall(r"CODE: \d+ *DESC: [^\n]*", "\n".join(lines))
            said.append(remarks[0].strip() if remarks else "\n".join(line.rstrip() for line in lines))
    return said


def test_mqadmin_says_the_same_of_our_broker_as_of_java_s(
    ours: tuple[GuardedNamesrv, GuardedBroker], scratch_acl: Path, jars: Path
) -> None:
    namesrv, broker = ours
    our_words = said_by(scratch_acl / "ours", broker.address, namesrv.address)
    java_namesrv = JavaNamesrv(scratch_acl / "jns", free_port_base())
    java_broker = JavaBroker(scratch_acl / "jb", free_port_base())
    with stopping(java_broker, java_namesrv):
        java_namesrv.start(jars)
        java_broker.start(jars, java_namesrv.address, ACL_2)
        java_words = said_by(scratch_acl / "java", java_broker.address, java_namesrv.address)
        asyncio.run(our_client_signs(java_namesrv.address, java_broker.address))
    for command, our, java in zip(SCRIPT, our_words, java_words, strict=True):
        assert our.startswith(java.rstrip(". ")) or sorted(our.split()) == sorted(java.split()), (command, our, java)
    assert "create user to BROKER success." in our_words[0]
    assert "alice" not in our_words[5]


async def our_client_signs(namesrv: str, broker: str) -> None:
    """Producer, consumer and admin of ours against a Java broker with access control."""
    async with admin(namesrv, ROOT) as there:
        for topic in ("T", "U"):
            await there.topics.create(broker, TopicConfig(topic, 4, 4))
        await there.access.create_user(broker, UserInfo("carol", "carol-secret"))
        for resource in ("Topic:T", "Group:G"):
            entry = custom_acl("User:carol", [resource], ["Pub", "Sub"], [], "Allow")
            await there.access.create_acl(broker, entry)
        found = await there.access.get_acl(broker, "User:carol")
        assert found is not None and [e.resource for e in found.policies[0].entries] == ["Topic:T", "Group:G"]
    keys = {"access_key": "carol", "secret_key": "carol-secret"}
    sending = ProducerConfig(namesrv_addr=namesrv, producer_group="P", retry_times_when_send_failed=0, **keys)
    async with Producer(sending, system_environment(namesrv)) as producer:
        for number in range(5):
            await producer.send(Message("T", f"{number}".encode()))
        with pytest.raises(MaxQError, match="Topic:U"):
            await producer.send(Message("U", b"x"))
    reading = LitePullConsumerConfig(
        namesrv_addr=namesrv, consumer_group="G", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **keys
    )
    got: set[bytes] = set()
    async with LitePullConsumer(reading, system_environment(namesrv)) as consumer, asyncio.timeout(60):
        await consumer.subscribe("T")
        while len(got) < 5:
            got |= {message.body for message in await consumer.poll(1000)}
    wrong = ProducerConfig(namesrv_addr=namesrv, producer_group="P", access_key="carol", secret_key="x")
    async with Producer(wrong, system_environment(namesrv)) as producer:
        with pytest.raises(MaxQError, match="signature"):
            await producer.send(Message("T", b"x"))
