"""Settings: tables of rows, properties files, live updates."""

from maxq.config.auth_config import AuthConfig
from maxq.config.broker_config import BrokerConfig
from maxq.config.message_store_config import MessageStoreConfig
from maxq.config.namesrv_config import NamesrvConfig
from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.netty_server_config import NettyServerConfig
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
]
