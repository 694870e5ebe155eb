"""The settings of one running server: several frozen objects that change together, or not at all.

Parts read `settings.broker.fileReservedTime…` through the holder each time they need a live value; the objects
themselves never change. A live update is checked whole before anything moves. A setting that is not marked `live`
cannot be changed while the server runs, whoever asks. Settings that name a file, a command or an address are never live
(CVE-2023-33246, CVE-2023-37582).
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple, Protocol, Self

from maxq.config.auth_config import AuthConfig
from maxq.config.broker_config import BrokerConfig
from maxq.config.loader import load, texts, unknown
from maxq.config.message_store_config import MessageStoreConfig
from maxq.config.namesrv_config import NamesrvConfig
from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.netty_server_config import NettyServerConfig
from maxq.config.properties import decode_text, edit_properties
from maxq.config.proxy_config import ClusterProxyConfig, ProxyConfig
from maxq.config.setting import Setting, settings_of
from maxq.errors import ConfigUpdateRefusedError

log = logging.getLogger(__name__)

DEFAULT_BROKER_PORT = 10911
DEFAULT_NAMESRV_PORT = 9876
DEFAULT_GRPC_PORT = 8081


class Change(NamedTuple):
    """One setting that a live update changed, as texts."""

    name: str
    old: str
    new: str


class FileAccess(Protocol):
    """The two methods of runtime's Disk that keeping a settings file needs."""

    def read(self, path: PurePath) -> bytes: ...

    def replace(self, path: PurePath, data: bytes) -> None: ...


class Settings:
    """Base of the classes that hold settings objects. Subclasses name their objects as attributes and list them in
    `_parts`."""

    _parts: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.counter = 0  # live updates made so far; the data version of GET_BROKER_CONFIG
        self._listeners: list[Callable[[list[Change]], None]] = []

    def configs(self) -> tuple[Any, ...]:
        """Return the settings objects, in the order in which a shared name is resolved (the last wins)."""
        return tuple(getattr(self, part) for part in self._parts)

    def snapshot(self, *, secrets: bool = False) -> dict[str, str]:
        """Return all settings by RocketMQ's name, sorted, as texts."""
        return texts(self.configs(), secrets=secrets)

    def on_change(self, listener: Callable[[list[Change]], None]) -> None:
        """Call `listener` with the changed settings after each live update that changed any."""
        self._listeners.append(listener)

    def update(self, mapping: Mapping[str, str], *, source: str = "live update") -> list[Change]:
        """Change live settings; all of `mapping`, or nothing.

        A setting that is not live may be named with the value it already has: tools send whole lists. A number or
        switch that Java acts on and MaxQ does not is taken and kept, so that scripts of operators go on, with a warning
        in the log.

        Raises:
            ConfigUpdateRefusedError: names every unknown, black-listed or not live setting.
            ConfigError: a value is out of bounds.
        """
        changes = self.check(mapping, source=source)
        loaded = load(self.configs(), {change.name: change.new for change in changes}, source=source)
        for warning in loaded.warnings:
            log.warning("%s", warning)
        for part, config in zip(self._parts, loaded.configs, strict=True):
            setattr(self, part, config)
        if changes:
            self.counter += 1
            for listener in self._listeners:
                listener(changes)
        return changes

    def check(self, mapping: Mapping[str, str], *, source: str = "live update") -> list[Change]:
        """Return what `update` would change, or raise its error; nothing changes. A caller can so write the file
        first."""
        rows = self._rows()
        now = self.snapshot(secrets=True)
        black_list = self._black_list()
        changes, refused, reasons = [], [], []
        for name, text in mapping.items():
            if name not in rows:
                reason = unknown(name, [type(config) for config in self.configs()], source)
            else:
                # several classes may have a setting of this name: each must accept the value
                new = [row.format(row.parse(text, source)) for row in rows[name]][-1]
                if new == now[name]:
                    continue
                reason = self._refusal(rows[name], black_list, source)
                if not reason:
                    changes.append(Change(name, now[name], new))
            if reason:
                refused.append(name)
                reasons.append(reason)
        if refused:
            raise ConfigUpdateRefusedError("; ".join(reasons) + "; nothing was changed", tuple(refused))
        return changes

    def changeable(self, mapping: Mapping[str, str]) -> dict[str, str]:
        """Return what `mapping` says of settings that a running server may change."""
        rows, black_list = self._rows(), self._black_list()
        return {
            name: text
            for name, text in mapping.items()
            if name in rows and not self._refusal(rows[name], black_list, "")
        }

    def _rows(self) -> dict[str, list[Setting]]:
        """Return the settings by name; several classes may have one of the same name."""
        rows: dict[str, list[Setting]] = {}
        for config in self.configs():
            for row in settings_of(type(config)):
                rows.setdefault(row.name, []).append(row)
        return rows

    def _black_list(self) -> set[str]:
        return {name.strip() for name in self.snapshot().get("configBlackList", "").split(";") if name.strip()}

    @staticmethod
    def _refusal(rows: list[Setting], black_list: set[str], source: str) -> str:
        name = rows[0].name
        if name in black_list:
            return f"{source}: {name} is in configBlackList, it can not be updated by command"
        if not any(row.acted for row in rows):
            if rows[0].kind is not str:
                return ""
            # it may be a path or an address, on which a Java server would act if it were started with this file
            return f"{source}: {name} is accepted for compatibility only, MaxQ does not act on it; set it in its file"
        if not all(row.live for row in rows if row.acted):
            return f"{source}: {name} can not change while the server runs; set it in its file and restart"
        return ""


class BrokerSettings(Settings):
    """The settings with which a broker is started: broker, store, server, client, auth, proxy (its gRPC server)."""

    _parts = ("broker", "server", "client", "store", "auth", "proxy")

    def __init__(
        self,
        broker: BrokerConfig | None = None,
        store: MessageStoreConfig | None = None,
        server: NettyServerConfig | None = None,
        client: NettyClientConfig | None = None,
        auth: AuthConfig | None = None,
        proxy: ProxyConfig | None = None,
    ) -> None:
        super().__init__()
        self.broker = broker or BrokerConfig()
        self.store = store or MessageStoreConfig()
        self.server = server or NettyServerConfig(listen_port=self.broker.listen_port)
        self.client = client or NettyClientConfig()
        self.auth = auth or AuthConfig()
        self.proxy = proxy or ProxyConfig()

    @classmethod
    def from_properties(cls, mapping: Mapping[str, str], *, source: str) -> tuple[Self, tuple[str, ...]]:
        """Make settings from a properties mapping, and warnings; raises ConfigError as `load` does.

        To lay one source over another (file, then --set), use `overlay` on the result.
        """
        return cls().overlay(mapping, source=source)

    def overlay(self, mapping: Mapping[str, str], *, source: str) -> tuple[Self, tuple[str, ...]]:
        """Return new settings with `mapping` on top of these, for use before a server starts."""
        loaded = load(self.configs(), mapping, source=source)
        broker, server, client, store, auth, proxy = loaded.configs
        return type(self)(broker, store, server, client, auth, proxy), loaded.warnings


class NamesrvSettings(Settings):
    """The settings with which a name server is started: namesrv, server, client, auth."""

    _parts = ("namesrv", "server", "client", "auth")

    def __init__(
        self,
        namesrv: NamesrvConfig | None = None,
        server: NettyServerConfig | None = None,
        client: NettyClientConfig | None = None,
        auth: AuthConfig | None = None,
    ) -> None:
        super().__init__()
        self.namesrv = namesrv or NamesrvConfig()
        self.server = server or NettyServerConfig(listen_port=DEFAULT_NAMESRV_PORT)
        self.client = client or NettyClientConfig()
        self.auth = auth or AuthConfig()

    @classmethod
    def from_properties(cls, mapping: Mapping[str, str], *, source: str) -> tuple[Self, tuple[str, ...]]:
        """Make settings from a properties mapping, and warnings; raises ConfigError as `load` does."""
        return cls().overlay(mapping, source=source)

    def overlay(self, mapping: Mapping[str, str], *, source: str) -> tuple[Self, tuple[str, ...]]:
        """Return new settings with `mapping` on top of these, for use before a server starts."""
        loaded = load(self.configs(), mapping, source=source)
        namesrv, server, client, auth = loaded.configs
        return type(self)(namesrv, server, client, auth), loaded.warnings


def persist(files: FileAccess, path: PurePath, changes: list[Change]) -> None:
    """Write the new values into the settings file, leaving its other lines alone.

    Raises:
        OSError: the disk refuses.
        ConfigError: the file is no longer UTF-8 text.
    """
    try:
        text = decode_text(files.read(path), f"file {path}")
    except FileNotFoundError:
        text = ""
    files.replace(path, edit_properties(text, {change.name: change.new for change in changes}).encode())


class ProxySettings(Settings):
    """The settings with which a proxy is started that runs by itself: cluster, proxy, server, client."""

    _parts = ("cluster", "proxy", "server", "client")

    def __init__(
        self,
        cluster: ClusterProxyConfig | None = None,
        proxy: ProxyConfig | None = None,
        server: NettyServerConfig | None = None,
        client: NettyClientConfig | None = None,
    ) -> None:
        super().__init__()
        self.cluster = cluster or ClusterProxyConfig()
        self.proxy = proxy or ProxyConfig(grpc_server_port=DEFAULT_GRPC_PORT)
        self.server = server or NettyServerConfig()
        self.client = client or NettyClientConfig()

    @classmethod
    def from_properties(cls, mapping: Mapping[str, str], *, source: str) -> tuple[Self, tuple[str, ...]]:
        """Make settings from a properties mapping, and warnings; raises ConfigError as `load` does."""
        return cls().overlay(mapping, source=source)

    def overlay(self, mapping: Mapping[str, str], *, source: str) -> tuple[Self, tuple[str, ...]]:
        """Return new settings with `mapping` on top of these, for use before a server starts."""
        loaded = load(self.configs(), mapping, source=source)
        cluster, proxy, server, client = loaded.configs
        return type(self)(cluster, proxy, server, client), loaded.warnings
