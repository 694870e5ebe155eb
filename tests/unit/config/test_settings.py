from pathlib import Path, PurePath

import pytest

from maxq.config import BrokerSettings, NamesrvSettings
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
