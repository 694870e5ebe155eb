"""Claims about the tables themselves."""

import re
from copy import copy
from dataclasses import FrozenInstanceError, replace
from functools import cache
from pathlib import Path

import pytest

import maxq
from maxq.config import (
    AuthConfig,
    BrokerConfig,
    MessageStoreConfig,
    NamesrvConfig,
    NettyClientConfig,
    NettyServerConfig,
)
from maxq.config.setting import settings_of

CLASSES = [BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig, NamesrvConfig, AuthConfig]
ROWS = [row for config in CLASSES for row in settings_of(config)]
JAVA = Path(__file__).parents[2] / "data" / "config" / "java-5.5.0.tsv"

# Where we differ from Java's default on purpose, and why.
OWN_DEFAULTS = {
    "bindAddress": "127.0.0.1 unless requests must be signed: docs/explanation/differences.md",
    "brokerName": "the host's name: asked for at start",
    "brokerIP1": "the host's address: asked for at start",
    "brokerIP2": "the host's address: asked for at start",
    "storePathRootDir": "in the user's home: asked for at start",
    "kvConfigPath": "in the user's home: asked for at start",
    "configStorePath": "in the user's home: asked for at start",
    "inSyncReplicas": "0: not given, and then a SYNC_MASTER waits for one slave",
    "haListenPort": "BrokerStartup sets 0, which means listenPort + 1",
    "listenPort": "BrokerStartup sets 10911",
    "sendMessageThreadPoolNums": "number of processors",
    "putMessageFutureThreadPoolNums": "number of processors",
    "pullMessageThreadPoolNums": "number of processors",
    "litePullMessageThreadPoolNums": "number of processors",
    "processReplyMessageThreadPoolNums": "number of processors",
    "queryMessageThreadPoolNums": "number of processors",
    "heartbeatThreadPoolNums": "number of processors",
    "endTransactionThreadPoolNums": "number of processors",
}


def java_rows() -> list[tuple[str, str, str, str]]:
    """(class, property, type, default) of RocketMQ 5.5.0, by reflection on its released jars."""
    lines = JAVA.read_text().splitlines()
    return [tuple(line.split("\t")) for line in lines if line and not line.startswith("#")]  # type: ignore[misc]


def test_every_property_of_rocketmq_is_there_with_its_type_and_default() -> None:
    ours = {(row.owner, row.name): row for row in ROWS}
    kinds = {"int": int, "long": int, "double": float, "boolean": bool, "String": str}
    for owner, name, java_type, default in java_rows():
        row = ours[owner, name]
        assert row.kind is kinds.get(java_type, str), name
        if name not in OWN_DEFAULTS:
            assert row.format(row.default) == ("" if default == "null" else default), name


def test_every_row_is_rocketmqs_or_says_that_it_is_ours() -> None:
    java = {(owner, name) for owner, name, _, _ in java_rows()}
    own = [row.name for row in ROWS if (row.owner, row.name) not in java]
    named = [name for name in own if not name.startswith(("tls.", "com.rocketmq."))]
    assert named == [
        "maxQueuesOfTopic", "enableTopicMessageTypeCheck", "bulkPullMaxBytes", "userQuotas",
        "indexTagEnable", "peerAddresses", "haFullCopy", "haRepairEnable", "scrubEnable", "scrubBytesPerSecond",
        "scrubInterval",
        "dLegerHeartBeatInterval", "mappedFileSizeDLedgerIndex", "maxUnsentBytes", "maxUnfinishedBytes",
        "proxyProtocolTrusted", "highestDescriptor",
            "aclEnable",
        "strictAdminAuthorization",
    ]  # fmt: skip


def test_defaults_pass_their_own_check() -> None:
    assert [row.name for row in ROWS if row.parse(row.format(row.default), "test") != row.default] == []


def test_names_are_unique_in_their_class() -> None:
    for config in CLASSES:
        names = [row.name for row in settings_of(config)]
        assert len(names) == len(set(names))


def test_rows_we_act_on_have_a_sentence() -> None:
    assert [row.name for row in ROWS if row.acted and not row.doc.endswith(".")] == []


def test_no_live_setting_names_a_file_a_command_or_an_address() -> None:
    """CVE-2023-33246 and CVE-2023-37582: live settings reached a shell, and a path that was then written to."""
    reaches = re.compile("path|dir|home|command|shell|file$|addr|host|ip[0-9]|port$|plugin|blacklist", re.IGNORECASE)
    live = [row for row in ROWS if row.live]
    assert [row.name for row in live if reaches.search(row.name)] == []
    texts = [row.name for row in live if row.kind is str and not row.choices and row.form is None]
    assert texts == []


def test_tables_compare_by_value_and_show_what_differs_from_the_default() -> None:
    given = NettyServerConfig(listen_port=5, tls_server_key_password="hush")
    assert given == NettyServerConfig(listen_port=5, tls_server_key_password="hush")
    assert given != NettyServerConfig()
    assert hash(given) == hash(NettyServerConfig(listen_port=5, tls_server_key_password="hush"))
    assert repr(given) == "NettyServerConfig(listen_port=5, tls_server_key_password=***)"


@cache
def code_outside_config() -> str:
    source = Path(maxq.__file__).parent
    files = [path for path in source.rglob("*.py") if path.parent.name != "config"]
    return "\n".join(
        path.read_text() for path in [*files, source / "config" / "host.py", source / "config" / "settings.py"]
    )


def test_rows_we_say_we_act_on_are_read() -> None:
    """A setting that nothing reads belongs in accepted_settings.tsv, so that its user is told."""
    # through the listing of all settings, and by having one choice, or several that come to the same
    read_by_name = {
        "configBlackList", "storeType", "authorizationStrategy", "authenticationProvider",
        "authenticationMetadataProvider", "authorizationProvider", "authorizationMetadataProvider",
    }  # fmt: skip
    words = set(re.findall(r"\w+", code_outside_config()))
    acted = [row for row in ROWS if row.acted and row.name not in read_by_name]
    assert [row.name for row in acted if row.attribute not in words] == []


def test_a_setting_that_is_only_accepted_is_no_attribute_and_says_why() -> None:
    silent = [row for row in ROWS if not row.acted]
    assert len(silent) > 250
    assert [row.name for row in silent if not row.doc] == []
    attributes = {name for config in CLASSES for name in vars(config())}
    assert [row.name for row in silent if re.sub(r"(?<!^)(?=[A-Z])", "_", row.name).lower() in attributes] == []


# Shown to tools that ask for them, as RocketMQ does.
SHOWN = {
    "ackThreadPoolQueueCapacity",
    "endTransactionPoolQueueCapacity",
    "cgColdReadThreshold",
    "globalColdReadThreshold",
}


def test_a_setting_that_is_only_accepted_is_at_most_shown() -> None:
    assert set(re.findall(r'accepted_value\("(\w+)"\)', code_outside_config())) == SHOWN


def test_a_setting_that_is_only_accepted_keeps_its_value() -> None:
    row = next(row for row in ROWS if row.name == "highSpeedMode")
    given = BrokerConfig(broker_name="b").with_values({row: True})
    assert row.value_in(given) is True is given.accepted_value("highSpeedMode")
    assert row.value_in(replace(given, broker_name="c")) is True
    assert given != BrokerConfig(broker_name="b") == given.with_values({row: False})
    assert repr(given) == "BrokerConfig(broker_name='b', highSpeedMode=True)" and hash(given) == hash(copy(given))


@pytest.mark.parametrize("config", CLASSES)
def test_settings_are_given_by_name_and_stay(config: type) -> None:
    assert {row.name: row.value_in(config()) for row in settings_of(config)} == {
        row.name: row.default for row in settings_of(config)
    }
    row = next(row for row in settings_of(config) if row.kind is bool and row.acted)
    other = config(**{row.attribute: not row.default})
    assert getattr(other, row.attribute) is not row.default
    assert replace(other, **{row.attribute: row.default}) == config() != other
    assert hash(other) == hash(copy(other))
    with pytest.raises(FrozenInstanceError):
        setattr(other, row.attribute, row.default)
    with pytest.raises(TypeError, match="has no setting no_such_thing"):
        config(no_such_thing=1)
