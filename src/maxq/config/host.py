"""Settings whose default depends on the machine: filled in from facts that the caller found out.

Nothing here asks the machine itself, so that simulated brokers get simulated hosts.
"""

from dataclasses import replace
from pathlib import PurePath
from typing import Final

from maxq.config.auth_config import AuthConfig
from maxq.config.netty_server_config import NettyServerConfig
from maxq.config.settings import BrokerSettings, NamesrvSettings, ProxySettings
from maxq.lazy_dataclass import dataclass

LOOPBACK: Final = "127.0.0.1"
EVERYWHERE: Final = "0.0.0.0"
#: File descriptors that mappings leave to other files and sockets, at most (runtime/files/system.py).
_LEFT_TO_FILES: Final = 512


@dataclass(frozen=True)
class Host:
    """The facts about a server's machine that its settings need: its name, the address by which others reach it, the
    user's home folder, the environment's ROCKETMQ_HOME, and how many files and connections the process may open (0:
    any number)."""

    name: str
    address: str
    home: PurePath
    rocketmq_home: str = ""
    open_files: int = 0


def broker_on(settings: BrokerSettings, host: Host) -> BrokerSettings:
    """Return the settings without an empty name, address, folder or port.

    brokerName: the host's. bindAddress: see `listening`. highestDescriptor: what the process may open, less some for
    files. brokerIP1: the address listened on if only this machine reaches it, else the host's; brokerIP2: brokerIP1.
    storePathRootDir: `~/store`; storePathCommitLog: `commitlog` in it. haListenPort: listenPort + 1, if listenPort is
    fixed.
    """
    old_broker, old_store = settings.broker, settings.store
    server = listening(settings.server, has_access_control(old_broker.acl_enable, settings.auth))
    address = old_broker.broker_ip1 or (server.bind_address if is_loopback(server.bind_address) else host.address)
    broker = replace(
        old_broker,
        rocketmq_home=old_broker.rocketmq_home or host.rocketmq_home,
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
    return BrokerSettings(
        broker, store, _leaving_descriptors(server, host), settings.client, settings.auth, settings.proxy
    )


def namesrv_on(settings: NamesrvSettings, host: Host) -> NamesrvSettings:
    """Return the settings without an empty path: files go to `~/namesrv`."""
    old = settings.namesrv
    folder = host.home / "namesrv"
    namesrv = replace(
        old,
        kv_config_path=old.kv_config_path or str(folder / "kvConfig.json"),
        config_store_path=old.config_store_path or str(folder / "namesrv.properties"),
        rocketmq_home=old.rocketmq_home or host.rocketmq_home,
    )
    server = listening(settings.server, has_access_control(old.acl_enable, settings.auth))
    return NamesrvSettings(namesrv, _leaving_descriptors(server, host), settings.client, settings.auth)


def proxy_on(settings: ProxySettings, host: Host) -> ProxySettings:
    """Return the settings with an address on which to listen, and a number of descriptors."""
    server = _leaving_descriptors(listening(settings.server, False), host)
    return ProxySettings(settings.cluster, settings.proxy, server, settings.client)


def has_access_control(acl_enable: bool, auth: AuthConfig) -> bool:
    """Return whether requests must be signed."""
    return acl_enable or auth.authentication_enabled


def listening(server: NettyServerConfig, is_guarded: bool) -> NettyServerConfig:
    """Return the settings with an address on which to listen: the given one, else every address of the machine if
    requests must be signed, else this machine only."""
    return replace(server, bind_address=server.bind_address or (EVERYWHERE if is_guarded else LOOPBACK))


def _leaving_descriptors(server: NettyServerConfig, host: Host) -> NettyServerConfig:
    """Return the settings with a number of descriptors that is left to files."""
    return replace(server, highest_descriptor=server.highest_descriptor or left_to_connections(host.open_files))


def left_to_connections(open_files: int) -> int:
    """Return the highest descriptor of a connection in a process that may open `open_files` files; 0: any."""
    return open_files - min(_LEFT_TO_FILES, open_files // 2)


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches the address."""
    return address in ("localhost", "::1", "[::1]") or address.startswith("127.")


def where_it_listens(address: str, is_guarded: bool) -> dict[str, str]:
    """Return the sentence, for a server's ready line, about who can reach it without access control; empty with access
    control."""
    if is_guarded:
        return {}
    if is_loopback(address):
        return {
            "listens on": f"{address} only, because requests need not be signed",
            "to reach it from other machines": "set authenticationEnabled or aclEnable, or else bindAddress",
        }
    return {"listens on": f"{address} WITHOUT access control: anyone who can reach it may do everything"}
