"""Settings: tables of rows, properties files, live updates.

The names below are imported when they are first used: a command that only needs the client's settings must not build
the tables of a broker (a fifth of its start).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxq.config.auth_config import AuthConfig
    from maxq.config.broker_config import BrokerConfig
    from maxq.config.message_store_config import MessageStoreConfig
    from maxq.config.namesrv_config import NamesrvConfig
    from maxq.config.netty_client_config import NettyClientConfig
    from maxq.config.netty_server_config import NettyServerConfig
    from maxq.config.proxy_config import ProxyConfig
    from maxq.config.settings import BrokerSettings, NamesrvSettings

__all__ = [
    "AuthConfig",
    "BrokerConfig",
    "BrokerSettings",
    "MessageStoreConfig",
    "NamesrvConfig",
    "NamesrvSettings",
    "NettyClientConfig",
    "NettyServerConfig",
    "ProxyConfig",
]

_MODULES = {
    "AuthConfig": "auth_config",
    "BrokerConfig": "broker_config",
    "BrokerSettings": "settings",
    "MessageStoreConfig": "message_store_config",
    "NamesrvConfig": "namesrv_config",
    "NamesrvSettings": "settings",
    "NettyClientConfig": "netty_client_config",
    "NettyServerConfig": "netty_server_config",
    "ProxyConfig": "proxy_config",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
