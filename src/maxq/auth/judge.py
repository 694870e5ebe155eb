"""The parts that the two kinds of access control share: the interface of a judge, its outcomes, and the session of a
connection.

A judge decides about whole requests. Allowed requests are remembered in the session of the connection, so that the next
send, pull or ack of the same user to the same topic costs only the check of its signature: see Session.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from maxq.auth.policy import Need
from maxq.auth.signing_cy import SigningKey
from maxq.codes import RequestCode as Code
from maxq.protocol.frame.remoting_command import RemotingCommand

SENDS: Final[frozenset[int]] = frozenset({Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE})
#: Other requests that a connection repeats, and the header fields by which they are judged.
REPEATED: Final[dict[int, tuple[str, ...]]] = {
    Code.PULL_MESSAGE: ("consumerGroup", "topic"),
    Code.LITE_PULL_MESSAGE: ("consumerGroup", "topic"),
    Code.ACK_MESSAGE: ("consumerGroup", "topic"),
    Code.END_TRANSACTION: ("topic",),
    Code.CONSUMER_SEND_MSG_BACK: ("group",),
}

#: Header fields by which each request that is remembered was judged.
_FIELDS: Final[dict[int, tuple[str, ...]]] = {
    **{code: ("topic",) if code == Code.SEND_MESSAGE else ("b",) for code in SENDS},
    **REPEATED,
}

_MOST_REMEMBERED: Final = 10_000  # most permissions that one session remembers


class DenialCause(Enum):
    """Reasons for which requests are refused, for counters."""

    NO_CREDENTIALS = "noCredentials"
    UNKNOWN_USER = "unknownUser"
    DISABLED_USER = "disabledUser"
    WRONG_SIGNATURE = "wrongSignature"
    NO_PERMISSION = "noPermission"
    UNREADABLE = "unreadable"


class Refused(NamedTuple):
    """The refusal of a request by access control: its cause, and the text that is logged and answered."""

    cause: DenialCause
    user: str  # the access key that the request names, right or wrong
    remark: str  # remark of the answer to the client


class Signed(Protocol):
    """The signature fields of a request without a body, as the scanners keep them (protocol/frame_scanner_cy)."""

    @property
    def access_key(self) -> bytes: ...
    @property
    def signature(self) -> bytes: ...
    @property
    def signed_content(self) -> bytes: ...


class Session:
    """What one connection has been allowed, until the rules change.

    Names stand behind each other with a zero byte between them, so a request that has one inside a name is never
    remembered: it could be taken for another with other names.

    Attributes:
        source_ip: where it comes from.
        sends: access key, zero byte, topic → the key such sends are signed with; None: they need no signature.
        repeated: request code, access key and the fields of REPEATED, a zero byte after each → likewise.
        read: access key, zero byte, topic: who may read messages of the topic, also where the log is asked for them.
        verified: access keys whose signature was right once (stateful strategy).
        is_vouched: requests need no signature: who sent them has been checked by this process.
    """

    __slots__ = ("is_vouched", "read", "repeated", "rules", "sends", "source_ip", "verified")

    def __init__(self, source_ip: str, rules: object, *, is_vouched: bool = False) -> None:
        """`rules` is another object after each change of the rules."""
        self.is_vouched = is_vouched
        self.source_ip = source_ip
        self.rules = rules
        self.sends: dict[bytes, SigningKey | None] = {}
        self.repeated: dict[bytes, SigningKey | None] = {}
        self.read: set[bytes] = set()
        self.verified: set[str] = set()

    def remember(self, command: RemotingCommand, key: SigningKey | None) -> None:
        """Remember that this request was allowed, signed with `key` if a signature was required."""
        code, ext = command.code, command.ext
        fields = _FIELDS.get(code)
        if fields is None:
            return
        names = [ext.get(name, "").encode("utf-8", "replace") for name in ("AccessKey", *fields)]
        if any(b"\0" in name for name in names):
            return
        if code in SENDS:
            _remember(self.sends, b"\0".join(names), key)
        else:
            _remember(self.repeated, _name(code, names[0], names[1:]), key)

    def remember_read(self, access_key: str, topic: str) -> None:
        """Remember that requests signed with this key may read messages of `topic`."""
        if "\0" in access_key or "\0" in topic:
            return
        if len(self.read) >= _MOST_REMEMBERED:
            self.read.clear()
        self.read.add(f"{access_key}\0{topic}".encode("utf-8", "replace"))

    def may_read(self, signed: "Signed", topic: bytes) -> bool:
        """Return whether it is remembered that the signer may read `topic`."""
        return b"%b\0%b" % (signed.access_key, topic) in self.read

    def admits(self, code: int, signed: Signed, *fields: bytes) -> bool:
        """Return whether such a request was allowed before, and this one, which has no body, is signed by the same
        user.

        Args:
            fields: those of REPEATED.
        """
        name = _name(code, signed.access_key, fields)
        if name not in self.repeated:
            return False
        key = self.repeated[name]
        return key is None or key.matches(signed.signed_content, b"", signed.signature)


def _name(code: int, access_key: bytes, fields: Sequence[bytes]) -> bytes:
    return b"%d\0%b\0%b\0" % (code, access_key, b"\0".join(fields))


def _remember(table: dict[bytes, SigningKey | None], name: bytes, key: SigningKey | None) -> None:
    if len(table) >= _MOST_REMEMBERED:
        table.clear()
    table[name] = key


class Judge(Protocol):
    """Decides whether a request is allowed, by its signature and the rules of access control."""

    @property
    def rules(self) -> object:
        """Return the present rules, which are replaced by another object when they change."""
        ...

    def judge(self, command: RemotingCommand, session: Session) -> Refused | None:
        """Judge a request. Returns None to allow it, else the refusal."""
        ...

    def judge_again(self, command: RemotingCommand, session: Session, since: object) -> Refused | None:
        """Judge a request again that was allowed when the rules had version `since`. Its signature was valid then, and
        still is if the secret is the same. Returns None if it may continue."""
        ...

    def judge_sender(self, command: RemotingCommand, session: Session, since: object) -> Refused | None:
        """Return why the account that signed an allowed request no longer counts, when the rules then had version
        `since`: it must still exist, with the same secret. None if it does."""
        ...

    def judge_also(self, command: RemotingCommand, session: Session, need: Need) -> Refused | None:
        """Judge the further resource that an allowed request turned out to concern. Returns None if it may continue."""
        ...

    def is_super(self, command: RemotingCommand) -> bool:
        """Return whether this request, which was allowed, comes from a user to whom no rule applies."""
        ...

    def identify(self, access_key: str, content: bytes, signature: bytes, source_ip: str) -> Refused | None:
        """Return why somebody at this address is not who holds this access key and has signed `content` so (the base64
        text of the signature); None if they are."""
        ...
