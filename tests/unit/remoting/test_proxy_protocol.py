"""The PROXY protocol: parser, and connections that begin with it."""

import asyncio
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.errors import RemoteProtocolError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.proxy_protocol import ProxyHeader, looks_like_proxy_header, parse_proxy_header
from maxq.remoting.server import Connection, RemotingServer
from tests.unit.remoting.peers import ECHO, connected, serving

V2 = b"\r\n\r\n\0\r\nQUIT\n"
TCP4 = bytes([192, 0, 2, 1, 10, 0, 0, 1]) + struct.pack(">HH", 56324, 10911)
TCP6 = bytes(15) + b"\x01" + bytes(15) + b"\x02" + struct.pack(">HH", 1, 2)


def v2(payload: bytes, command: int = 0x21, family: int = 0x11) -> bytes:
    return V2 + bytes([command, family]) + struct.pack(">H", len(payload)) + payload


@pytest.mark.parametrize(
    ("data", "source", "destination"),
    [
        (b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 10911\r\n", ("192.0.2.1", 56324), ("10.0.0.1", 10911)),
        (b"PROXY TCP6 2001:db8::1 ::1 56324 10911\r\n", ("2001:db8::1", 56324), ("::1", 10911)),
        (b"PROXY UNKNOWN\r\n", None, None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None, None),
        (v2(TCP4), ("192.0.2.1", 56324), ("10.0.0.1", 10911)),
        (v2(TCP6, family=0x21), ("::1", 1), ("::2", 2)),
        (v2(b"", command=0x20, family=0), None, None),
        (v2(bytes(216), family=0x31), None, None),
    ],
)
def test_headers_of_both_versions_are_read(
    data: bytes, source: tuple[str, int] | None, destination: tuple[str, int] | None
) -> None:
    for behind in (b"", b"\0\0\0\x87\0"):
        assert parse_proxy_header(data + behind) == ProxyHeader(len(data), source, destination)
    for length in range(1, len(data)):
        assert looks_like_proxy_header(data[:length])
        assert parse_proxy_header(data[:length]) is None


def test_text_values_become_attributes() -> None:
    tlvs = b"\x02\0\x05hello" + b"\xe0\0\x02\xff\xfe" + b"\xea\0\x01x"
    header = parse_proxy_header(v2(TCP4 + tlvs))
    assert header is not None and header.attributes() == {
        "proxy_protocol_addr": "192.0.2.1",
        "proxy_protocol_port": "56324",
        "proxy_protocol_server_addr": "10.0.0.1",
        "proxy_protocol_server_port": "10911",
        "proxy_protocol_tlv_0x02": "hello",
        "proxy_protocol_tlv_0xea": "x",
    }


@pytest.mark.parametrize(
    "data",
    [b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", b"PROXY TCP4 x 1.2.3.4 1 2\r\n", b"PROXY TCP4 1.2.3.4 1.2.3.4 1 70000\r\n",
     b"PROXY SCTP 1.2.3.4 1.2.3.4 1 2\r\n", b"P" * 107, b"PROXYTCP4\r\n", v2(TCP4, command=0x11), v2(TCP4[:8]),
     v2(TCP6[:20], family=0x21), v2(TCP4 + b"\x02\0\xff"), V2 + b"\x21\x11\xff\xff", b"\r\n\r\n" + b"x" * 20],
)  # fmt: skip
def test_what_begins_like_a_header_and_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_proxy_header(data)


@given(st.binary(max_size=120), st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", V2, V2 + b"\x21\x11\0\x20"]))
def test_any_bytes_are_a_header_incomplete_or_the_protocol_error(data: bytes, start: bytes) -> None:
    try:
        header = parse_proxy_header(start + data)
    except RemoteProtocolError:
        return
    assert header is None or 0 < header.size <= len(start + data)


def test_frames_do_not_look_like_a_header() -> None:
    assert not looks_like_proxy_header(RemotingCommand(ECHO, body=bytes(1 << 23)).encode()[:16])
    assert not looks_like_proxy_header(b"\x16\x03\x01") and not looks_like_proxy_header(b"")


@pytest.mark.parametrize("header", [b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 10911\r\n", v2(TCP4)])
@pytest.mark.parametrize("split", [True, False])
async def test_a_connection_behind_a_balancer_shows_the_real_client(header: bytes, split: bool) -> None:
    def who(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(0, connection.remote_address, {"born": connection.remote_host.hex()})

    balancers = "10.0.0.0/8, 127.0.0.1"
    prepare: Callable[[RemotingServer], None] = lambda server: server.register(9, who)  # noqa: E731
    async with serving(prepare, proxy_protocol_trusted=balancers) as server, connected(server.port) as peer:
        if split:
            for i in range(len(header)):
                peer.send(header[i : i + 1])
                await peer.writer.drain()
        else:
            peer.send(header)
        answer = await peer.ask(RemotingCommand(9))
        assert (answer.remark, answer.ext["born"]) == ("192.0.2.1:56324", "c00002010000dc04")
        (connection,) = server.connections
        assert connection.attributes["proxy_protocol_server_port"] == "10911"


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("first", [b"PROXY UNKNOWN\r\n", b"PROXY TCP4 10.0.0.9 10.0.0.1 56324 10911\r\n", v2(TCP4)])
async def test_a_second_line_is_the_client_s_and_ends_the_connection(first: bytes, together: bool) -> None:
    """What follows the balancer's own line comes from whom it speaks for, even one within a network that is listed."""
    forged = b"PROXY TCP4 192.0.2.77 10.0.0.1 56324 10911\r\n" + RemotingCommand(ECHO).encode()
    async with serving(proxy_protocol_trusted="0.0.0.0/0") as server, connected(server.port) as peer:
        peer.send(first + forged if together else first)
        if not together:
            await peer.writer.drain()
            while not any(connection.is_introduced for connection in server.connections):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            peer.send(forged)
        assert await asyncio.wait_for(peer.reader.read(), 20) == b""


@pytest.mark.parametrize("trusted", ["", "10.0.0.0/8,::1", "127.0.0.2"])
@pytest.mark.parametrize("header", [b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 10911\r\n", b"PROXY UNKNOWN\r\n", v2(TCP4)])
async def test_nobody_but_a_listed_balancer_says_who_is_behind_it(
    trusted: str, header: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(proxy_protocol_trusted=trusted) as server, connected(server.port) as peer:
        peer.send(header + RemotingCommand(ECHO).encode())
        assert await peer.reader.read() == b""
    assert "a PROXY line from 127.0.0.1, which proxyProtocolTrusted does not list" in caplog.text
