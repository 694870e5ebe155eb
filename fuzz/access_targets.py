"""Targets of access control: files of rules, policies in requests, signatures of what the batch path takes."""

import json

from maxq.access.plain_acl_files import parse_yaml
from maxq.access.table_file import decode_tables
from maxq.auth.info import AclInfo
from maxq.auth.plain_acl import read_plain_acl
from maxq.auth.policy import Action, Need
from maxq.auth.resource import topic
from maxq.auth.signature import Credentials, sign, signed_content
from maxq.auth.tables import AccessTables
from maxq.protocol.frame import send_rows as columns
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType, decode_frame
from maxq.protocol.frame.send_rows import S_ACCESS_KEY, S_CONTENT, S_SIGNATURE, SIGNED_WIDTH
from maxq.protocol.frame.send_scanner_cy import SendScanner

_CREDENTIALS = Credentials("alice12", "alice-secret")
_ACL = {
    "subject": "User:alice",
    "policies": [
        {
            "policyType": "Custom",
            "entries": [
                {"resource": "Topic:T*", "actions": ["Pub"], "sourceIps": ["10.0.0.0/8"], "decision": "Allow"},
                {"resource": "*", "actions": ["All"], "decision": "Deny"},
            ],
        }
    ],
}


def plain_acl(data: bytes) -> bool:
    """Whatever a file of ACL 1.0 holds, it is rules or a ConfigError."""
    acl, _ = read_plain_acl([("file", parse_yaml(data, "file"))])
    for pattern in acl.white:
        pattern("10.0.0.1")
    return bool(acl.accounts or acl.white)


def plain_acl_seeds() -> list[bytes]:
    return [
        b"globalWhiteRemoteAddresses:\n- 10.10.103.*\n- 192.168.0.{1,2}\naccounts:\n- accessKey: RocketMQ\n"
        b"  secretKey: 12345678\n  whiteRemoteAddress:\n  admin: false\n  defaultTopicPerm: DENY\n"
        b"  topicPerms:\n  - topicA=DENY\n  - topicB=PUB|SUB\n  groupPerms:\n  - groupA=DENY\n",
        b"accounts: [{accessKey: admin12, secretKey: 'secret1', admin: true, groupPerms: [\"g=SUB\"]}]\n",
    ]


def table_file(data: bytes) -> bool:
    """Whatever auth.json holds, it is users and policies or a RemoteProtocolError; policies decide anything."""
    tables = AccessTables()
    decode_tables(data, tables)
    for acl in tables.acls.values():
        acl.refusal(Need(topic("T"), (Action.PUB,)), "10.0.0.1")
    return bool(tables.users)


def table_file_seeds() -> list[bytes]:
    user = {"username": "alice", "password": "secret", "userType": "Normal", "userStatus": "enable"}
    return [json.dumps({"users": [user], "acls": [_ACL]}).encode()]


def acl_body(data: bytes) -> bool:
    """A body of createAcl."""
    return bool(AclInfo.decode(data).acl("User:alice").policies)


def acl_body_seeds() -> list[bytes]:
    return [json.dumps(_ACL).encode()]


def signed_sends(data: bytes) -> bool:
    """What the batch path believes to be signed is what the general codec signs, of every frame that it takes."""
    buffer = bytearray(data)
    scanner = SendScanner(1 << 20, 64, 1 << 16)
    scanner.expect_signatures()
    scanner.scan(buffer, 0, len(buffer))
    for number in range(scanner.count):
        row = scanner.rows[number * columns.ROW_WIDTH : (number + 1) * columns.ROW_WIDTH]
        marks = scanner.signed_rows[number * SIGNED_WIDTH : (number + 1) * SIGNED_WIDTH]
        start = row[columns.R_FRAME]
        length = int.from_bytes(buffer[start : start + 4], "big")
        text = bytes(buffer[start + 4 : start + 4 + length])
        header = text[4 : 4 + int.from_bytes(text[1:4], "big")]
        if not header.isascii() or header.count(b"Signature") > 1 or header.count(b"AccessKey") > 1:
            continue  # not UTF-8, or a field twice: the two may differ, and then nothing is let through
        command = decode_frame(text)
        if len(command.ext) != _fields_of(header, text[0]):
            continue
        content = bytes(scanner.content[marks[S_CONTENT] : marks[S_CONTENT] + marks[S_CONTENT + 1]])
        assert content == signed_content(command.ext), (content, command.ext)
        for at, name in ((S_ACCESS_KEY, "AccessKey"), (S_SIGNATURE, "Signature")):
            assert bytes(buffer[marks[at] : marks[at] + marks[at + 1]]).decode() == command.ext.get(name, "")
    return scanner.count > 0


def _fields_of(header: bytes, kind: int) -> int:
    """How many fields stand in a header, those counted twice that stand there twice; -1 where not all are texts."""
    if kind == 0:
        objects: list[list[tuple[str, object]]] = []
        try:
            json.loads(header, object_pairs_hook=objects.append)
        except ValueError:  # Java's dialect
            return -1
        fields = objects[0]  # the innermost is read first
        return len(fields) if len(objects) == 2 and all(isinstance(value, str) for _, value in fields) else -1
    count, position = 0, 21
    while position < len(header):
        position += 2 + int.from_bytes(header[position : position + 2], "big")
        position += 4 + int.from_bytes(header[position : position + 4], "big")
        count += 1
    return count


def signed_send_seeds() -> list[bytes]:
    seeds = []
    for kind in SerializeType:
        ext = {
            "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "0",
            "i": "TAGS\x01a\x02UNIQ_KEY\x01AB\x02", "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        sign(ext, b"hello", _CREDENTIALS, _CREDENTIALS.signing_key())
        seeds.append(RemotingCommand(310, ext, b"hello", serialize_type=kind).encode() * 2)
    return seeds
