"""Names of sockets as text."""

from typing import Any

from maxq.protocol.message_id import host_and_port


def address_text(name: Any) -> str:
    """`host:port` of a socket name; IPv6 in brackets, IPv4 mapped into IPv6 as IPv4."""
    if not isinstance(name, tuple) or len(name) < 2:
        return str(name or "")
    host = str(name[0])
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return host_and_port(host, name[1])
