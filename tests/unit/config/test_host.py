from dataclasses import replace
from pathlib import PurePath

import pytest

from maxq.config import BrokerSettings, MessageStoreConfig, NamesrvSettings
from maxq.config.host import Host, broker_on, namesrv_on, where_it_listens

HOST = Host("box", "10.1.2.3", PurePath("/home/u"))


def guarded() -> BrokerSettings:
    """Requests must be signed, so the server may be reached from elsewhere."""
    return BrokerSettings.from_properties({"authenticationEnabled": "true"}, source="--set")[0]


def test_empty_names_addresses_folders_and_ports_are_filled_from_the_host() -> None:
    settings = broker_on(guarded(), HOST)
    assert settings.broker.broker_name == "box"
    assert settings.broker.broker_ip1 == settings.broker.broker_ip2 == "10.1.2.3"
    assert settings.store.store_path_root_dir == "/home/u/store"
    assert settings.store.store_path_commit_log == "/home/u/store/commitlog"
    assert settings.store.ha_listen_port == 10912


def test_what_was_given_stays() -> None:
    given, _ = BrokerSettings.from_properties(
        {"brokerName": "a", "brokerIP1": "1.1.1.1", "storePathRootDir": "/s", "listenPort": "7", "haListenPort": "9"},
        source="--set",
    )
    settings = broker_on(given, HOST)
    assert (settings.broker.broker_name, settings.broker.broker_ip2) == ("a", "1.1.1.1")
    assert settings.store == MessageStoreConfig(
        store_path_root_dir="/s", store_path_commit_log="/s/commitlog", ha_listen_port=9
    )


def test_a_port_to_be_chosen_leaves_the_replication_port_open() -> None:
    given, _ = BrokerSettings.from_properties({"listenPort": "0"}, source="--set")
    assert broker_on(given, HOST).store.ha_listen_port == 0


def test_name_server_files_go_to_the_home() -> None:
    namesrv = namesrv_on(NamesrvSettings(), HOST).namesrv
    assert namesrv.kv_config_path == "/home/u/namesrv/kvConfig.json"
    assert namesrv.config_store_path == "/home/u/namesrv/namesrv.properties"


@pytest.mark.parametrize(
    ("given", "listens", "shown"),
    [
        ({}, "127.0.0.1", "127.0.0.1"),
        ({"authenticationEnabled": "true"}, "0.0.0.0", "10.1.2.3"),
        ({"aclEnable": "true"}, "0.0.0.0", "10.1.2.3"),
        ({"bindAddress": "0.0.0.0"}, "0.0.0.0", "10.1.2.3"),
        ({"bindAddress": "10.9.9.9", "aclEnable": "true"}, "10.9.9.9", "10.1.2.3"),
        ({"brokerIP1": "10.5.5.5"}, "127.0.0.1", "10.5.5.5"),
    ],
)
def test_without_access_control_only_this_machine_is_listened_to(
    given: dict[str, str], listens: str, shown: str
) -> None:
    settings = broker_on(BrokerSettings.from_properties(given, source="--set")[0], HOST)
    assert (settings.server.bind_address, settings.broker.broker_ip1) == (listens, shown)
    given = {name: value for name, value in given.items() if name != "brokerIP1"}
    namesrv = namesrv_on(NamesrvSettings.from_properties(given, source="--set")[0], HOST)
    assert namesrv.server.bind_address == listens


def test_the_lines_at_the_start_say_who_reaches_a_server_without_access_control() -> None:
    assert where_it_listens("0.0.0.0", True) == {}
    assert where_it_listens("127.0.0.1", False)["listens on"].startswith("127.0.0.1 only")
    assert "WITHOUT access control" in where_it_listens("0.0.0.0", False)["listens on"]


@pytest.mark.parametrize(("open_files", "highest"), [(0, 0), (300, 150), (1024, 512), (20_000, 19_488)])
def test_connections_leave_descriptors_to_files(open_files: int, highest: int) -> None:
    host = replace(HOST, open_files=open_files)
    assert broker_on(guarded(), host).server.highest_descriptor == highest
    assert namesrv_on(NamesrvSettings(), host).server.highest_descriptor == highest
    given, _ = BrokerSettings.from_properties({"highestDescriptor": "77"}, source="--set")
    assert broker_on(given, host).server.highest_descriptor == 77
