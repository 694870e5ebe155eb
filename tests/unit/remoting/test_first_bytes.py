"""What begins with which bytes."""

import pytest

from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.first_bytes import Opening, opening

FIRST = {
    b"PROXY TCP4 192.0.2.1 10.0.0.1 1 2\r\n": Opening.PROXY,
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x11": Opening.PROXY,
    b"\x16\x03\x01\0\xc8\x01": Opening.TLS,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": Opening.HTTP2,
    b"GET / HTTP/1.1\r\n": Opening.HTTP1,
    b"POST /x HTTP/1.1\r\n": Opening.HTTP1,
    b"OPTIONS * HTTP/1.1\r\n": Opening.HTTP1,
    RemotingCommand(10).encode(): Opening.FRAME,
    b"PRAGMA": Opening.UNKNOWN,
    b"hello": Opening.UNKNOWN,
}


@pytest.mark.parametrize("first", FIRST, ids=lambda first: FIRST[first].name)
def test_a_beginning_is_told_and_its_parts_are_never_taken_for_another(first: bytes) -> None:
    found = [opening(first[:size]) for size in range(len(first) + 1)]
    assert found[-1] is FIRST[first]
    assert set(found) <= {Opening.MORE, FIRST[first]}
    assert found[0] is Opening.MORE
