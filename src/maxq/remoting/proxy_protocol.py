"""HAProxy's PROXY protocol, versions 1 (text) and 2 (binary): who is really behind a load balancer.

Source:
    haproxy.org proxy-protocol.txt; remoting/netty/NettyRemotingServer.java HandshakeHandler.
"""

import struct
from dataclasses import field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from maxq.errors import RemoteProtocolError
from maxq.lazy_dataclass import dataclass

_V1: Final = b"PROXY"
_V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_V1_LONGEST: Final = 107
_V2_LONGEST: Final = 4096  # addresses and TLVs; a balancer sends some hundred bytes


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A PROXY header, which takes `size` bytes at the start of a connection. Addresses are (text, port); None where the
    balancer does not name them."""

    size: int
    source: tuple[str, int] | None = None
    destination: tuple[str, int] | None = None
    tlvs: dict[int, str] = field(default_factory=dict)  # type → ASCII text

    def attributes(self) -> dict[str, str]:
        """Return the header's facts under RocketMQ's names."""
        result: dict[str, str] = {}
        if self.source is not None:
            result["proxy_protocol_addr"], result["proxy_protocol_port"] = self.source[0], str(self.source[1])
        if self.destination is not None:
            result["proxy_protocol_server_addr"] = self.destination[0]
            result["proxy_protocol_server_port"] = str(self.destination[1])
        for kind, text in self.tlvs.items():
            result[f"proxy_protocol_tlv_0x{kind:02x}"] = text
        return result


def looks_like_proxy_header(start: bytes | bytearray) -> bool:
    """Return whether a connection that begins with these bytes may begin with a PROXY header."""
    return bool(start) and (start[: len(_V1)] == _V1[: len(start)] or start[: len(_V2)] == _V2[: len(start)])


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """Parse the PROXY header at the start of `data`. None if it has not arrived completely.

    Raises:
        RemoteProtocolError: it begins like a header and is not one.
    """
    if data[:1] == b"P":
        return _parse_v1(data)
    return _parse_v2(data)


def _parse_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _V1_LONGEST)
    if end < 0:
        if len(data) >= _V1_LONGEST:
            raise RemoteProtocolError(f"a PROXY v1 line without end in {_V1_LONGEST} bytes")
        return None
    words = data[:end].decode("ascii", "replace").split(" ")
    if words[:2] == ["PROXY", "UNKNOWN"]:
        return ProxyHeader(end + 2)
    if len(words) != 6 or words[0] != "PROXY" or words[1] not in ("TCP4", "TCP6"):
        raise RemoteProtocolError(f"not a PROXY v1 line: {data[:end]!r:.120}")
    return ProxyHeader(end + 2, _address(words[2], words[4]), _address(words[3], words[5]))


def _address(host: str, port: str) -> tuple[str, int]:
    try:
        address = str(ip_address(host))
    except ValueError:
        raise RemoteProtocolError(f"the address {host!r:.60} of a PROXY v1 line is not an IP address") from None
    if not (port.isascii() and port.isdigit() and int(port[:6]) < 65536):
        raise RemoteProtocolError(f"the port {port!r:.60} of a PROXY v1 line is not a number from 0 to 65535")
    return address, int(port)


def _parse_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < 16:
        return None
    if not data.startswith(_V2) or data[12] >> 4 != 2:
        raise RemoteProtocolError(f"not a PROXY v2 header: {data[:16].hex()}")
    command, family = data[12] & 15, data[13]
    (length,) = struct.unpack_from(">H", data, 14)
    if length > _V2_LONGEST:
        raise RemoteProtocolError(f"a PROXY v2 header of {length} bytes, the limit is {_V2_LONGEST}")
    if len(data) < 16 + length:
        return None
    payload = data[16 : 16 + length]
    source, destination, used = _v2_addresses(payload, family) if command == 1 else (None, None, 0)
    tlvs = _v2_tlvs(payload[used:]) if command == 1 else {}
    return ProxyHeader(16 + length, source, destination, tlvs)


_Address = tuple[str, int] | None


def _v2_addresses(payload: bytes, family: int) -> tuple[_Address, _Address, int]:
    """Return source, destination, and how many bytes they take."""
    if family >> 4 == 1 and len(payload) >= 12:
        ports = struct.unpack_from(">HH", payload, 8)
        return (str(IPv4Address(payload[:4])), ports[0]), (str(IPv4Address(payload[4:8])), ports[1]), 12
    if family >> 4 == 2 and len(payload) >= 36:
        ports = struct.unpack_from(">HH", payload, 32)
        return (str(IPv6Address(payload[:16])), ports[0]), (str(IPv6Address(payload[16:32])), ports[1]), 36
    if family >> 4 in (1, 2):
        raise RemoteProtocolError(f"a PROXY v2 header of {len(payload)} bytes has no room for its addresses")
    return None, None, len(payload)


def _v2_tlvs(data: bytes) -> dict[int, str]:
    """Parse type (1), length (2), value. Java keeps those whose value is ASCII text."""
    tlvs: dict[int, str] = {}
    position = 0
    while position + 3 <= len(data):
        kind = data[position]
        (length,) = struct.unpack_from(">H", data, position + 1)
        position += 3
        if position + length > len(data):
            raise RemoteProtocolError(f"a PROXY v2 value of {length} bytes passes the end of the header")
        value = data[position : position + length]
        position += length
        if value.isascii():
            tlvs[kind] = value.decode("ascii")
    return tlvs
