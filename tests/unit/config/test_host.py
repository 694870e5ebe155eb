from pathlib import PurePath

from maxq.config import BrokerSettings, MessageStoreConfig, NamesrvSettings
from maxq.config.host import Host, broker_on, namesrv_on

HOST = Host("box", "10.1.2.3", PurePath("/home/u"))


def test_empty_names_addresses_folders_and_ports_are_filled_from_the_host() -> None:
    settings = broker_on(BrokerSettings(), HOST)
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
