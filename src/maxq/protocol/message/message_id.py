"""Packed host addresses and the two kinds of message id.

    offset id   store host address (4 or 16 bytes) + int32 port + int64 physical offset, upper-case hex: 32 or 56 chars
    unique id   address (4 or 16) + pid (2) + loader hash (4) + ms since the first of the month (4) + counter (2), hex

Source:
    common/message/MessageDecoder.java createMessageId, MessageClientIDSetter.java.
"""

import struct
import sys
from array import array
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from maxq.errors import LocalProtocolError, RemoteProtocolError
from maxq.runtime.interfaces import Clock, Rng

_BACKWARD_STEP_MS: Final = 1_000_000  # if the clock went back by less than this, the difference counts as 0


def encode_host(host: str, port: int) -> bytes:
    """Encode a host as 8 bytes (IPv4) or 20 bytes (IPv6): address, then the port as int32.

    Raises:
        LocalProtocolError: `host` is not a literal address.
    """
    try:
        address = ip_address(host.partition("%")[0].strip("[]"))
    except ValueError:
        raise LocalProtocolError(f"{host!r} is not an IPv4 or IPv6 address") from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed + struct.pack(">i", port)


def decode_host(packed: bytes | memoryview) -> tuple[str, int]:
    """Decode a packed host into (address text, port).

    Raises:
        RemoteProtocolError: neither 8 nor 20 bytes.
    """
    size = len(packed)
    if size not in (8, 20):
        raise RemoteProtocolError(f"a packed host has 8 or 20 bytes, not {size}")
    address = bytes(packed[:-4])
    (port,) = struct.unpack(">i", packed[-4:])
    return str(IPv4Address(address) if size == 8 else IPv6Address(address)), port


def host_text(packed: bytes | memoryview) -> str:
    """Return `address:port` of a packed host."""
    return host_and_port(*decode_host(packed))


def host_and_port(host: str, port: int) -> str:
    """Return `host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def offset_message_id(host: bytes, physical_offset: int) -> str:
    """Return the broker's id of a message.

    Args:
        host: store host, 8 or 20 bytes.
        physical_offset: bytes from the start of the CommitLog.
    """
    return host.hex().upper() + format(physical_offset & 0xFFFFFFFFFFFFFFFF, "016X")


def offset_message_ids(host: bytes, physical_offsets: "array[int]") -> str:
    """Return the `offset_message_id` of each of these places (64-bit numbers), separated by commas: the answer to a
    batch. No Python object is made for any one of them."""
    places = array(physical_offsets.typecode, physical_offsets)
    if sys.byteorder == "little":
        places.byteswap()
    prefix = host.hex().upper()
    return prefix + places.tobytes().hex(",", 8).upper().replace(",", f",{prefix}")


def decode_message_id(message_id: str) -> tuple[bytes, int]:
    """Decode an offset message id into (packed store host, physical offset).

    Raises:
        RemoteProtocolError: not 32 or 56 hexadecimal characters.
    """
    if len(message_id) not in (32, 56):
        raise RemoteProtocolError(f"a message id has 32 or 56 characters, not {len(message_id)}")
    try:
        raw = bytes.fromhex(message_id)
    except ValueError:
        raw = b""
    if len(raw) * 2 != len(message_id):  # fromhex accepts blanks
        raise RemoteProtocolError(f"message id {message_id!r:.80} is not hexadecimal")
    return raw[:-8], int.from_bytes(raw[-8:], "big", signed=True)


class UniqIdGenerator:
    """Makes unique message ids (UNIQ_KEY) of this process."""

    def __init__(self, pid: int, ip: str, clock: Clock, rng: Rng) -> None:
        """`ip` is this machine's address as text; `rng` stands for Java's class loader hash."""
        address = encode_host(ip, 0)[:-4]
        self._prefix = (address + (pid & 0xFFFF).to_bytes(2, "big") + rng.bytes(4)).hex().upper()
        self._clock = clock
        self._counter = 0
        self._month_start = 0
        self._month_end = 0
        self._head = ""  # common beginning of the ids of the current millisecond
        self._head_ms = -1

    def next(self) -> str:
        """Return a new id: 32 characters with an IPv4 address, 56 with IPv6."""
        head, number = self.reserve(1)
        return f"{head}{number:04X}"

    def reserve(self, count: int) -> tuple[str, int]:
        """Return `count` new ids: what all of them begin with, and the number that is the end of the first, as four
        hexadecimal digits. Those of the others follow it; behind 65535 comes 0."""
        now = self._clock.wall_ms()
        if now != self._head_ms:
            self._set_head(now)
        first = (self._counter + 1) & 0xFFFF
        self._counter = (self._counter + count) & 0xFFFF
        return self._head, first

    def _set_head(self, now_ms: int) -> None:
        if now_ms >= self._month_end or now_ms < self._month_start - _BACKWARD_STEP_MS:
            self._set_month(now_ms)
        self._head = f"{self._prefix}{max(0, now_ms - self._month_start) & 0xFFFFFFFF:08X}"
        self._head_ms = now_ms

    def _set_month(self, now_ms: int) -> None:
        # Java takes the local month. Readers decode it only to an approximate time, and UTC gives every machine the
        # same ids for the same seed.
        first = datetime.fromtimestamp(now_ms / 1000, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
        self._month_start = int(first.timestamp()) * 1000
        self._month_end = int(following.timestamp()) * 1000
