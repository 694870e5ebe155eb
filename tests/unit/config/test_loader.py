import pytest

from maxq.config import BrokerConfig, BrokerSettings, MessageStoreConfig, NettyServerConfig
from maxq.config.loader import load, texts
from maxq.errors import ConfigError


def test_values_reach_their_class_and_the_rest_keeps_its_default() -> None:
    broker, store = load(
        [BrokerConfig(), MessageStoreConfig()],
        {"brokerIP1": "10.0.0.1", "fileReservedTime": "48", "checkCRCOnRecover": "FALSE"},
        source="file b.conf",
    ).configs
    assert (broker.broker_ip1, store.file_reserved_time, store.check_crc_on_recover) == ("10.0.0.1", 48, False)
    assert broker.default_topic_queue_nums == 8


def test_a_name_that_several_classes_have_goes_to_each() -> None:
    settings, _ = BrokerSettings.from_properties({"listenPort": "20911"}, source="--set")
    assert settings.broker.listen_port == settings.server.listen_port == 20911


def test_values_hold_over_the_bases_they_are_laid_on() -> None:
    first, _ = BrokerSettings.from_properties({"brokerName": "a", "brokerId": "3"}, source="file b.conf")
    second, _ = first.overlay({"brokerName": "b"}, source="--set")
    assert (second.broker.broker_name, second.broker.broker_id) == ("b", 3)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("fileReservedTime", "soon", "is not allowed: it must be an integer from 0 to 10000000 h"),
        ("listenPort", "70000", "an integer from 0 to 65535"),
        ("brokerPermission", "8", "an integer from 0 to 7"),
        ("flushDiskType", "sync", "one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("autoCreateTopicEnable", "yes", "true or false"),
        ("deleteWhen", "24", "hours from 00 to 23"),
        ("messageDelayLevel", "1s 5x", "delays such as"),
        ("namesrvAddr", "127.0.0.1", "host:port"),
        ("brokerName", "a b", "at most 127 letters"),
        ("storeType", "defaultRocksDB", "only default"),
        ("maxMessageSize", "99999999999999999999999", "an integer from"),
        ("maxMessageSize", "", "an integer from"),
        ("maxMessageSize", "1_000_000", "an integer from"),
        ("timerRocksDBRollMaxTps", "nan", "a number"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_file_name_value_and_bound(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerSettings.from_properties({name: value}, source="file b.conf")
    assert f"file b.conf: {name}='{value}'" in str(refused.value)
    assert words in str(refused.value)


def test_a_secret_is_neither_in_the_error_nor_in_the_listing() -> None:
    settings, _ = BrokerSettings.from_properties({"tls.server.keyPassword": "hush"}, source="file b.conf")
    assert settings.snapshot()["tls.server.keyPassword"] == "***"
    assert settings.snapshot(secrets=True)["tls.server.keyPassword"] == "hush"


@pytest.mark.parametrize("name", ["enableControllerMode"])
def test_what_would_be_dangerous_to_ignore_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}=true is not supported"):
        BrokerSettings.from_properties({name: "true"}, source="file b.conf")
    BrokerSettings.from_properties({name: "false"}, source="file b.conf")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("flushDisktype", "; did you mean flushDiskType?"),
        ("brokerip1", "; did you mean brokerIP1?"),
        ("autoCreatTopicEnable", "; did you mean autoCreateTopicEnable?"),
        ("zzz", ""),
    ],
)
def test_an_unknown_name_is_warned_about_with_the_nearest_that_exists(name: str, hint: str) -> None:
    _, warnings = BrokerSettings.from_properties({name: "1"}, source="file b.conf")
    assert warnings == (f"file b.conf: unknown setting {name}{hint}",)


def test_a_setting_that_nobody_acts_on_is_warned_about_unless_it_has_its_default() -> None:
    _, warnings = BrokerSettings.from_properties(
        {"sendMessageThreadPoolNums": "16", "transientStorePoolEnable": "false"}, source="file b.conf"
    )
    assert warnings == (
        "file b.conf: sendMessageThreadPoolNums is accepted for compatibility, MaxQ does not act on it",
    )


def test_a_listing_is_sorted_and_loads_back() -> None:
    listing = texts([BrokerConfig(broker_name="a"), NettyServerConfig(listen_port=5)])
    assert list(listing) == sorted(listing)
    again = load([BrokerConfig(), NettyServerConfig()], listing, source="again")
    assert again.warnings == ()
    assert again.configs[0].broker_name == "a"
