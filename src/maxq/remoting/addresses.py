"""Names of sockets as text, and lists of addresses in settings."""

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

from maxq.errors import ConfigError
from maxq.protocol.message.message_id import host_and_port


def address_text(name: Any) -> str:
    """Return `host:port` of a socket's name. IPv6 is in brackets, IPv4 mapped into IPv6 is shown as IPv4."""
    if not isinstance(name, tuple) or len(name) < 2:
        return str(name or "")
    host = str(name[0])
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return host_and_port(host, name[1])


def address_list(setting: str, text: str) -> Callable[[str], bool]:
    """Return a function that tells whether an IP address is among the addresses and networks that `text` lists. An IPv4
    address within IPv6 counts as IPv4, and the zone of an address (`%eth0`) does not count.

    Args:
        setting: the name of the setting, for the error.

    Raises:
        ConfigError: `text` lists something else than addresses and networks.
    """
    try:
        networks = [ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise ConfigError(
            f"{setting}={text!r:.200}: {error}; give IP addresses and networks (10.0.0.0/8), separated by ,"
        ) from None

    def is_listed(address: str) -> bool:
        peer = ip_address(address.partition("%")[0])
        plain = getattr(peer, "ipv4_mapped", None) or peer
        return any(plain in network for network in networks)

    return is_listed
