"""Settings whose default depends on the machine: filled in from facts that the caller found out.

Nothing here asks the machine itself, so that simulated brokers get simulated hosts.
"""

from dataclasses import dataclass, replace
from pathlib import PurePath

from maxq.config.settings import BrokerSettings, NamesrvSettings


@dataclass(frozen=True)
class Host:
    """What a server must know of its machine: its name, the address others reach it at, the user's home folder."""

    name: str
    address: str
    home: PurePath


def broker_on(settings: BrokerSettings, host: Host) -> BrokerSettings:
    """The same settings with no empty name, address, folder or port left.

    brokerName: the host's. brokerIP1: the host's address; brokerIP2: brokerIP1. storePathRootDir: `~/store`;
    storePathCommitLog: `commitlog` in it. haListenPort: listenPort + 1, if listenPort is fixed.
    """
    old_broker, old_store = settings.broker, settings.store
    address = old_broker.broker_ip1 or host.address
    broker = replace(
        old_broker,
        broker_name=old_broker.broker_name or host.name,
        broker_ip1=address,
        broker_ip2=old_broker.broker_ip2 or address,
    )
    root = old_store.store_path_root_dir or str(host.home / "store")
    ha_port = old_store.ha_listen_port
    if ha_port == 0 and broker.listen_port != 0:
        ha_port = broker.listen_port + 1
    store = replace(
        old_store,
        store_path_root_dir=root,
        store_path_commit_log=old_store.store_path_commit_log or str(PurePath(root) / "commitlog"),
        ha_listen_port=ha_port,
    )
    return BrokerSettings(broker, store, settings.server, settings.client, settings.auth)


def namesrv_on(settings: NamesrvSettings, host: Host) -> NamesrvSettings:
    """The same settings with no empty path left: files go to `~/namesrv`."""
    old = settings.namesrv
    folder = host.home / "namesrv"
    namesrv = replace(
        old,
        kv_config_path=old.kv_config_path or str(folder / "kvConfig.json"),
        config_store_path=old.config_store_path or str(folder / "namesrv.properties"),
    )
    return NamesrvSettings(namesrv, settings.server)
