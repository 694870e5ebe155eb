"""What the first bytes of a connection to a server begin."""

from enum import Enum
from typing import Final

from maxq.remoting.proxy_protocol import looks_like_proxy_header

TLS_RECORD: Final = 0x16
_HTTP2: Final = b"PRI"  # what else its preface has, it examines itself
_METHODS: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PATCH ", b"TRACE ")


class Opening(Enum):
    """What begins. The first bytes of a frame of remoting are its length, of which the first is 0 or 1."""

    UNKNOWN = "unknown"
    MORE = "more"  # so few bytes say nothing yet
    PROXY = "a header of a load balancer"
    TLS = "TLS"
    HTTP2 = "HTTP/2"
    HTTP1 = "HTTP/1"
    FRAME = "a frame of remoting"


def opening(start: bytes | bytearray) -> Opening:
    """Return what a connection begins that begins with these bytes."""
    if not start:
        return Opening.MORE
    if start[0] == TLS_RECORD:
        return Opening.TLS
    if start[0] < 2:
        return Opening.FRAME
    if start.startswith(_HTTP2):
        return Opening.HTTP2
    if looks_like_proxy_header(start[:16]):
        return Opening.PROXY if len(start) >= 3 else Opening.MORE
    if len(start) < 8 and any(word.startswith(bytes(start)) for word in (*_METHODS, _HTTP2)):
        return Opening.MORE
    if start.startswith(_METHODS):
        return Opening.HTTP1
    return Opening.UNKNOWN
