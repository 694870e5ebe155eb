"""TLS settings of server and client, and the contexts made from them.

Files are watched: a new context is made when one of them changed and they go together. A key and a certificate that do
not, or a file that cannot be read, are a change half done: the old context stays until they change again. Connections
that exist keep the context they began with.

Source:
    remoting/netty/{TlsHelper,TlsSystemConfig}.java, srvutil/FileWatchService.java.
"""

import importlib
import logging
import ssl
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, TypeVar, cast

from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.netty_server_config import NettyServerConfig
from maxq.config.setting import settings_of
from maxq.errors import ConfigError
from maxq.runtime.interfaces import SmallFiles

log: Final = logging.getLogger("maxq.remoting")

_Config = TypeVar("_Config", NettyServerConfig, NettyClientConfig)
_CERTIFICATE_REQUIRED: Final = "TLSV13_ALERT_CERTIFICATE_REQUIRED"  # OpenSSL's name of the alert


class ServerTls:
    """The certificate and settings with which a server answers TLS."""

    def __init__(self, config: NettyServerConfig, disk: SmallFiles, *, protocols: Sequence[str] = ()) -> None:
        """Read the configured files. Raises ConfigError if they cannot be used; names the setting and the file.

        Args:
            protocols: what is spoken within TLS, as clients ask for it (ALPN); none: that is not negotiated.
        """
        self._protocols = list(protocols)
        self._config = config = with_tls_file(config, disk)
        self._watch = _Watch(
            disk, config.tls_server_key_path, config.tls_server_cert_path, config.tls_server_trust_cert_path
        )
        self._context: ssl.SSLContext | None = None
        if not config.tls_test_mode_enable and config.tls_server_mode != "disabled" and self._has_key:
            self._context = self._make()

    @property
    def _has_key(self) -> bool:
        return bool(self._config.tls_server_key_path and self._config.tls_server_cert_path)

    @property
    def plain_allowed(self) -> bool:
        """Return False if every client must use TLS."""
        return self._config.tls_server_mode != "enforcing"

    def context(self) -> ssl.SSLContext | None:
        """Return the context for a new connection; None if there is no TLS. Test mode's certificate is made when the
        first client asks for it, because few ever do."""
        if self._config.tls_server_mode == "disabled":
            return None
        self.reload_if_changed()
        if self._context is None:
            if not self._config.tls_test_mode_enable and not self._has_key:
                return None
            self._context = self._make()
        return self._context

    def reload_if_changed(self) -> None:
        """Use new files. Files that cannot be used are logged, and the old context stays."""
        if self._context is None or self._config.tls_test_mode_enable or not self._watch.changed():
            return
        try:
            self._context = self._make()
            log.info("TLS files changed, the new ones are used from now on")
        except ConfigError as error:
            log.error("TLS files changed and cannot be used, the old ones stay until they change again: %s", error)

    def _make(self) -> ssl.SSLContext:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self._protocols:
            context.set_alpn_protocols(self._protocols)
        if config.tls_test_mode_enable:
            _load_test_certificate(context)
            return context
        _load_key(context, config.tls_server_key_path, config.tls_server_cert_path, config.tls_server_key_password)
        modes = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
        wanted = modes[config.tls_server_need_client_auth]
        if wanted != ssl.CERT_NONE and config.tls_server_auth_client:
            context.verify_mode = wanted
            if config.tls_server_trust_cert_path:
                _load_trust(context, config.tls_server_trust_cert_path)
        return context


class ClientTls:
    """The settings with which a client begins TLS."""

    def __init__(self, config: NettyClientConfig, disk: SmallFiles) -> None:
        """Read the configured files. Raises ConfigError if they cannot be used."""
        self._config = config = with_tls_file(config, disk)
        if not config.tls_client_auth_server:
            log.warning(
                "TLS does not check the server's certificate (tls.client.authServer=false): a machine in between can "
                "read and change everything"
            )
        self._watch = _Watch(
            disk, config.tls_client_key_path, config.tls_client_cert_path, config.tls_client_trust_cert_path
        )
        self._context = self._make()

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        if self._watch.changed():
            self._context = self._make()
        return self._context

    def _make(self) -> ssl.SSLContext:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = config.tls_client_auth_server and config.tls_client_check_name
        if not config.tls_client_auth_server:
            context.verify_mode = ssl.CERT_NONE
        elif config.tls_client_trust_cert_path:
            _load_trust(context, config.tls_client_trust_cert_path)
        else:
            context.load_default_certs()
        if config.tls_client_key_path and config.tls_client_cert_path:
            _load_key(context, config.tls_client_key_path, config.tls_client_cert_path, config.tls_client_key_password)
        return context


def tls_settings(wanted: str | bool) -> NettyClientConfig:
    """Return the settings that a client's `use_tls`, `--tls` or MAXQ_TLS means.

    Args:
        wanted: False, "", "off": no TLS. True, "verify": servers are checked against the authorities that the system
            trusts. A path: against those in this file, PEM. A path that ends in ".properties": as its lines
            tls.client.… say, which may name a certificate of the client's. "insecure": any server is trusted.
    """
    if not wanted or wanted == "off":
        return NettyClientConfig()
    if wanted is True or wanted == "verify":
        return NettyClientConfig(use_tls=True)
    if wanted == "insecure":
        return NettyClientConfig(use_tls=True, tls_client_auth_server=False)
    if wanted.endswith(".properties"):
        return NettyClientConfig(use_tls=True, tls_config_file=wanted)
    return NettyClientConfig(use_tls=True, tls_client_trust_cert_path=wanted)


def failure_text(error: Exception) -> str:
    """Return why a connection with TLS ended, with the remedy where one is known."""
    if isinstance(error, ssl.SSLError) and error.reason == _CERTIFICATE_REQUIRED:
        return (
            "the server takes only clients that have a certificate (TLS): set tls.client.certPath and "
            "tls.client.keyPath, in the file of --tls FILE.properties, /etc/rocketmq/tls.properties, or tls_config"
        )
    if not isinstance(error, ssl.SSLCertVerificationError):
        return str(error)
    return (
        f"the server's certificate is refused by TLS: {error.verify_message}; name the authority that signed it "
        "(tls.client.trustCertPath, --tls FILE), or connect to a name or address that it is for"
    )


def with_tls_file(config: _Config, disk: SmallFiles) -> _Config:
    """Return `config` with the settings of its `tls.config.file`; lines of the other side are ignored. The file of the
    default name may be missing.

    Raises:
        ConfigError: the file that was named is missing, cannot be read, or has a bad value.
    """
    path = config.tls_config_file
    if not path:
        return config
    from maxq.config.loader import load  # few have such a file
    from maxq.config.properties import parse_properties

    try:
        data = disk.read(PurePath(path))
    except FileNotFoundError:
        if path == type(config)().tls_config_file:
            return config
        raise ConfigError(f"tls.config.file {path} is missing") from None
    except OSError as error:
        raise ConfigError(f"tls.config.file {path} cannot be read: {error}") from None
    names = {row.name for row in settings_of(type(config))}
    lines = {name: text for name, text in parse_properties(data, source=path).items() if name in names}
    (changed,) = load([config], lines, source=f"file {path}").configs
    return cast(_Config, changed)


def _load_key(context: ssl.SSLContext, key_path: str, cert_path: str, password: str) -> None:
    try:
        context.load_cert_chain(cert_path, key_path, password or None)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"TLS key {key_path} with certificate {cert_path} cannot be used: {error}") from None


def _load_trust(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"trusted certificates {path} cannot be used: {error}") from None


def _load_test_certificate(context: ssl.SSLContext) -> None:
    # Imported when the first TLS client comes: `cryptography` would double the start-up time of every broker.
    importlib.import_module("maxq.remoting.tls.self_signed").load_test_certificate(context)


class _Watch:
    """Watches times and sizes of key, certificate and trusted certificates."""

    def __init__(self, disk: SmallFiles, key: str, certificate: str, trust: str) -> None:
        self._disk = disk
        self._paths = (key, certificate, trust)
        self._seen = self._fingerprint()

    def changed(self) -> bool:
        """Return whether they differ from those at the last call."""
        before, self._seen = self._seen, self._fingerprint()
        return self._seen != before

    def _fingerprint(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._facts(path) for path in self._paths)

    def _facts(self, path: str) -> tuple[int, int]:
        if not path:
            return 0, 0
        try:
            facts = self._disk.stat(PurePath(path))
        except OSError:
            return -1, -1
        return facts.modified_ms, facts.size
