from pathlib import Path, PurePath

import pytest

from maxq.config import BrokerSettings, NamesrvSettings
from maxq.config.auth_config import AuthConfig
from maxq.config.broker_config import BrokerConfig
from maxq.config.message_store_config import MessageStoreConfig
from maxq.config.namesrv_config import NamesrvConfig
from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.netty_server_config import NettyServerConfig
from maxq.config.setting import Setting, settings_of
from maxq.config.settings import Change, persist
from maxq.errors import ConfigError, ConfigUpdateRefusedError


def test_update_moves_live_settings_and_tells_listeners() -> None:
    settings = BrokerSettings()
    heard: list[list[Change]] = []
    settings.on_change(heard.append)
    before = settings.store
    changes = settings.update({"fileReservedTime": "48", "brokerPermission": "4"})
    assert changes == [Change("fileReservedTime", "72", "48"), Change("brokerPermission", "6", "4")]
    assert (settings.store.file_reserved_time, settings.broker.broker_permission) == (48, 4)
    assert before.file_reserved_time == 72  # snapshots that others hold do not move
    assert heard == [changes]
    assert settings.counter == 1


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("brokerName", "b", "can not change while the server runs"),
        ("rocketmqHome", "/tmp/x;sh", "can not change while the server runs"),
        ("authenticationEnabled", "true", "can not change while the server runs"),
        ("aclEnable", "true", "can not change while the server runs"),
        ("storePathRootDir", "/etc", "can not change while the server runs"),
        ("brokerConfigPath", "/etc/passwd", "configBlackList"),
        ("configBlackList", "", "configBlackList"),
        ("noSuchThing", "1", "unknown setting noSuchThing"),
        ("messageStorePlugIn", "x.Y", "does not act on it"),
    ],
)
def test_update_refuses_by_name_and_then_changes_nothing(name: str, value: str, reason: str) -> None:
    settings = BrokerSettings()
    before = settings.snapshot()
    with pytest.raises(ConfigUpdateRefusedError, match=reason) as refused:
        settings.update({"fileReservedTime": "48", name: value})
    assert refused.value.refused == (name,)
    assert refused.value.response_code == 16
    assert settings.snapshot() == before
    assert settings.counter == 0


def test_update_refuses_a_value_out_of_bounds_and_then_changes_nothing() -> None:
    settings = BrokerSettings()
    before = settings.snapshot()
    with pytest.raises(ConfigError, match=r"diskMaxUsedSpaceRatio='200'.*from 1 to 100 %"):
        settings.update({"fileReservedTime": "48", "diskMaxUsedSpaceRatio": "200"})
    assert settings.snapshot() == before


CLASSES = (BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig, NamesrvConfig, AuthConfig)


@pytest.mark.parametrize("row", [
    row for config in CLASSES for row in settings_of(config) if row.acted and row.kind in (int, float)
], ids=lambda row: f"{row.owner}.{row.name}")  # fmt: skip
def test_every_number_has_a_range_that_is_refused_beyond_at_start_and_at_run_time(row: Setting) -> None:
    assert row.low is not None and row.high is not None and row.low <= row.default <= row.high
    assert (row.low >= -(2**31) and row.high <= 2**50) or row.name == "startAcceptSendRequestTimeStamp"
    if row.unsupported:
        return
    kinds = BrokerSettings if row.owner not in ("NamesrvConfig",) else NamesrvSettings
    for beyond in (row.high + 1, row.low - 1, 10**19, -(10**19)):
        text = str(int(beyond))
        for take in (
            lambda text=text: kinds.from_properties({row.name: text}, source="broker.conf"),
            lambda text=text: kinds().update({row.name: text}),
        ):
            with pytest.raises(ConfigError) as refused:
                take()
            if not isinstance(refused.value, ConfigUpdateRefusedError):  # it is not live: no value of it is taken
                assert row.name in str(refused.value) and (row.kind is float or repr(text) in str(refused.value))
                assert f"from {row.low} to {row.high}" in str(refused.value)


def test_update_takes_back_its_own_listing() -> None:
    settings = BrokerSettings()
    assert settings.update(settings.snapshot(secrets=True)) == []
    assert settings.counter == 0


def test_the_black_list_of_the_file_counts_too() -> None:
    settings, _ = NamesrvSettings.from_properties({"configBlackList": "orderMessageEnable"}, source="file")
    with pytest.raises(ConfigUpdateRefusedError, match="orderMessageEnable is in configBlackList"):
        settings.update({"orderMessageEnable": "true"})


def test_persist_writes_only_the_changed_lines(tmp_path: Path) -> None:
    class Files:
        def read(self, path: PurePath) -> bytes:
            return Path(path).read_bytes()

        def replace(self, path: PurePath, data: bytes) -> None:
            Path(path).write_bytes(data)

    path = tmp_path / "broker.conf"
    persist(Files(), path, [Change("a", "1", "2")])
    assert path.read_text() == "a=2\n"
    path.write_text("# mine\na=2\nb=3")
    persist(Files(), path, [Change("a", "2", "4")])
    assert path.read_text() == "# mine\na=4\nb=3"


def test_what_java_acts_on_and_maxq_does_not_is_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    settings = BrokerSettings()
    changes = settings.update({"sendMessageThreadPoolNums": "3"}, source="live")
    assert [(change.name, change.new) for change in changes] == [("sendMessageThreadPoolNums", "3")]
    assert settings.snapshot()["sendMessageThreadPoolNums"] == "3"
    assert "live: sendMessageThreadPoolNums is accepted for compatibility, MaxQ does not act on it" in caplog.text
