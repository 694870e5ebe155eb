"""The blocking connection: what it puts on the wire."""

import base64
import hashlib
import hmac
import socket

import pytest

from maxq.auth.signature import signed_content
from maxq.pipeline.options.read_options import ConnectionOptions
from maxq.pipeline.wire.connection import BlockingConnection
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame

#: Java sorts by UTF-16 code unit: the second one, a surrogate pair, comes before the first there.
FULLWIDTH, MATHEMATICAL = "\uff5a", "\U0001d49b"


def sent(options: ConnectionOptions, ext: dict[str, str], body: bytes | None = None) -> RemotingCommand:
    """What a server receives when this request is sent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = BlockingConnection(f"127.0.0.1:{server.getsockname()[1]}", options, None)
        peer, _ = server.accept()
        with peer, peer.makefile("rb") as stream:
            connection.send(11, ext, body)
            size = int.from_bytes(stream.read(4), "big")
            frame = stream.read(size)
        connection.close()
    return decode_frame(frame)


@pytest.mark.parametrize(
    ("ext", "signed"),
    [
        ({"topic": "T", "queueId": "0"}, "0T"),
        ({FULLWIDTH: "first", MATHEMATICAL: "second", "topic": "Straße"}, "Straßesecondfirst"),
    ],
    ids=["usual", "names that are not ASCII"],
)
def test_requests_are_signed_as_rocketmqs_acl_wants(ext: dict[str, str], signed: str) -> None:
    given = dict(ext)
    keys = ConnectionOptions("a:1", access_key="reader", secret_key="123456", security_token="a token")
    command = sent(keys, ext, b"body")
    content = f"readera token{signed}body".encode()
    assert content == signed_content(command.ext) + b"body"
    expected = hmac.new(b"123456", content, hashlib.sha1).digest()
    assert base64.b64decode(command.ext.pop("Signature")) == expected
    assert command.ext.pop("AccessKey") == "reader"
    assert command.ext.pop("SecurityToken") == "a token"
    assert command.ext.keys() == given.keys()
    assert ext == given


def test_requests_without_a_key_are_not_signed() -> None:
    assert sent(ConnectionOptions("a:1"), {"a": "b"}).ext == {"a": "b"}
