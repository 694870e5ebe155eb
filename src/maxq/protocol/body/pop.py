"""Bodies of pop consumption: check points and acks as they are stored, and the batch of acks that a client sends.

    PopCheckPoint   what a group was given of one queue: n messages at startOffset + d[i], not to be seen by others
                    until popTime + invisibleTime; bit i of bitMap: the i-th is acknowledged
    AckMsg          one of them was acknowledged; BatchAckMsg: several were

Source:
    store/pop/{PopCheckPoint,AckMsg,BatchAckMsg}.java,
    remoting/protocol/body/{BatchAck,BatchAckMessageRequestBody}.java.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from maxq.errors import RemoteProtocolError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.json import json_dialect

CK_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"

_MOST_MESSAGES: Final = 127  # Java keeps the number in a byte
#: Messages that one batch of acks may name. A pop gets 32, and each costs the broker some µs.
MOST_ACKED: Final = 8_192
_MOST_BITS: Final = 1 << 20
_LONG_END: Final = 1 << 63


@dataclass(slots=True)
class PopCheckPoint:
    """One check point. Times are in ms.

    Attributes:
        num: messages; 0 in one that only stands for an ack without a check point.
        diffs: of each message, its distance from start_offset; empty in old records: neighbours.
        revive_offset: where the record is in its revive queue; known when it was read.
        re_put_times: how often it was written again because its messages could not be read.
        suspend: messages that come back are not counted as tried once more.
        logged_at: the log ended at this physical offset when its record was made; -1: the record does not say.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    invisible_time: int
    broker_name: str
    diffs: list[int] = field(default_factory=list)
    num: int = 0
    bit_map: int = 0
    revive_offset: int = 0
    re_put_times: int = 0
    suspend: bool = False
    logged_at: int = -1

    @property
    def revive_time(self) -> int:
        """Time in ms at which its messages become visible again."""
        return self.pop_time + self.invisible_time

    @property
    def key(self) -> tuple[str, str, int, int, int, str]:
        """The key by which acknowledgements name this check point."""
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_time, self.broker_name

    @property
    def unique_key(self) -> str:
        """Return the property UNIQ_KEY of the record that stores this check point."""
        return (
            f"{self.topic}@{self.queue_id}@{self.start_offset}@{self.group}@{self.pop_time}@{self.broker_name}@{CK_TAG}"
        )

    def index_of(self, queue_offset: int) -> int:
        """Returns the position of a message among its messages; -1 if it is not one of them."""
        distance = queue_offset - self.start_offset
        diffs = self.diffs
        if not diffs:
            return distance if 0 <= distance < self.num else -1
        if 0 <= distance < len(diffs) and diffs[distance] == distance:  # neighbours, mostly
            return distance
        try:
            return diffs.index(distance)
        except ValueError:
            return -1

    def is_open(self, queue_offset: int) -> bool:
        """Returns whether this message of its messages is not acknowledged."""
        return not self.bit_map >> self.index_of(queue_offset) & 1

    def open_offsets(self) -> list[int]:
        """Queue offsets of the messages that are not acknowledged."""
        distances = self.diffs or range(self.num)
        return [
            self.start_offset + distance for index, distance in enumerate(distances) if not self.bit_map >> index & 1
        ]

    def leave_open(self, offsets: Iterable[int]) -> None:
        """Mark all messages as done except those at these queue offsets."""
        self.bit_map = (1 << self.num) - 1
        for offset in offsets:
            self.bit_map &= ~(1 << self.index_of(offset))

    def encode(self) -> bytes:
        """The body of its record, as 5.5 writes it."""
        members: dict[str, Any] = {
            "bm": self.bit_map - (self.bit_map >> 31 << 32), "bn": self.broker_name, "c": self.group, "d": self.diffs,
            "it": self.invisible_time,
            "n": self.num, "pt": self.pop_time, "q": self.queue_id, "reviveTime": self.revive_time,
            "ro": self.revive_offset, "so": self.start_offset, "sp": self.suspend, "t": self.topic,
        }  # fmt: skip
        if self.re_put_times:
            members["rp"] = str(self.re_put_times)
        return json_dialect.dumps(dict(sorted(members.items())))

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> "PopCheckPoint":
        """Decode a record's body. Raises RemoteProtocolError if it is not one."""
        row = _Row(data, "a check point")
        diffs = row.numbers("d")
        num = row.number("n")
        if not 0 <= num <= _MOST_MESSAGES or (diffs and len(diffs) != num):
            raise RemoteProtocolError(f"a check point of {num} messages has {len(diffs)} distances")
        again = row.text("rp") or "0"
        return cls(
            row.needed("t"), row.needed("c"), row.number("q"), row.number("so"), row.number("pt"), row.number("it"),
            row.text("bn") or "", diffs, num, row.number("bm") & 0xFFFFFFFF, row.number("ro"),
            int(again) if again.isascii() and again.isdigit() and len(again) < 10 else _MOST_MESSAGES,
            row.flag("sp"),
        )  # fmt: skip


@dataclass(slots=True)
class AckMsg:
    """One ack, or several of one check point.

    Attributes:
        offsets: queue offsets that are acknowledged.
        is_batch: its record is that of a batch, however many they are.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str
    offsets: list[int]
    is_batch: bool = False

    @property
    def key(self) -> tuple[str, str, int, int, int, str]:
        """The key of the check point whose messages are acknowledged."""
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_time, self.broker_name

    @property
    def unique_key(self) -> str:
        """Return the property UNIQ_KEY of the record that stores this acknowledgement."""
        offset = -1 if self.is_batch else self.offsets[0]
        return f"{self.topic}@{self.queue_id}@{offset}@{self.group}@{self.pop_time}@{self.broker_name}@{ACK_TAG}"

    @property
    def tag(self) -> str:
        return BATCH_ACK_TAG if self.is_batch else ACK_TAG

    def encode(self) -> bytes:
        """Return the body of the record that stores this acknowledgement."""
        members: dict[str, Any] = {"ao": -1 if self.is_batch else self.offsets[0]}
        if self.is_batch:
            members["aol"] = self.offsets
        members |= {
            "bn": self.broker_name, "c": self.group, "pt": self.pop_time, "q": self.queue_id, "so": self.start_offset,
            "t": self.topic,
        }  # fmt: skip
        return json_dialect.dumps(members)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, *, is_batch: bool) -> "AckMsg":
        """Decode a record's body. Raises RemoteProtocolError if it is not one."""
        row = _Row(data, "an ack")
        return cls(
            row.needed("t", "topic"), row.needed("c", "consumerGroup"), row.number("q", "queueId"),
            row.number("so", "startOffset"), row.number("pt", "popTime"), row.text("bn", "brokerName") or "",
            row.numbers("aol", "ackOffsetList") if is_batch else [row.number("ao", "ackOffset")], is_batch,
        )  # fmt: skip


@dataclass(slots=True)
class BatchAck:
    """Acks of one check point, as a client sends them.

    Attributes:
        topic: the consumer's; `retry` says which topic is meant.
        bits: distances from start_offset.
    """

    topic: str
    group: str
    retry: str
    start_offset: int
    queue_id: int
    revive_queue_id: int
    pop_time: int
    invisible_time: int
    bits: list[int]

    def to_json(self) -> dict[str, Any]:
        return {
            "b": encode_bit_set(self.bits), "c": self.group, "it": self.invisible_time, "pt": self.pop_time,
            "q": self.queue_id, "r": self.retry, "rq": self.revive_queue_id, "so": self.start_offset, "t": self.topic,
        }  # fmt: skip


def encode_batch_acks(broker_name: str, acks: Iterable[BatchAck]) -> bytes:
    """Return the body of a request BATCH_ACK_MESSAGE."""
    return json_dialect.dumps({"acks": [ack.to_json() for ack in acks], "brokerName": broker_name})


def decode_batch_acks(data: bytes | bytearray | memoryview) -> tuple[str, list[BatchAck]]:
    """Returns the broker's name and the acks. Raises RemoteProtocolError for anything else."""
    value = json_dialect.loads(data) if len(data) else {}
    if not isinstance(value, dict):
        raise RemoteProtocolError("a batch of acks is a JSON object")
    entries = value.get("acks") or []
    if not isinstance(entries, list):
        raise RemoteProtocolError("the acks of a batch are a list")
    acks: list[BatchAck] = []
    left = MOST_ACKED
    for entry in entries:
        acks.append(_batch_ack(entry))
        left -= len(acks[-1].bits)
        if left < 0:
            raise RemoteProtocolError(
                f"a batch acknowledges more than {MOST_ACKED} messages; send it in parts, one for each answer of a pop"
            )
    return str(value.get("brokerName") or ""), acks


def _batch_ack(entry: Any) -> BatchAck:
    row = _Row(entry, "a batch ack")
    return BatchAck(
        row.needed("t", "topic"), row.needed("c", "consumerGroup"), row.text("r", "retry") or "0",
        row.number("so", "startOffset"), row.number("q", "queueId"), row.number("rq", "reviveQueueId"),
        row.number("pt", "popTime"), row.number("it", "invisibleTime"), decode_bit_set(row.text("b", "bitSet") or ""),
    )  # fmt: skip


def encode_bit_set(bits: Iterable[int]) -> str:
    """Returns bits as Java writes a BitSet: base64 of its little-endian bytes."""
    value = 0
    for bit in bits:
        value |= 1 << bit
    return base64.b64encode(value.to_bytes((value.bit_length() + 7) // 8, "little")).decode()


def decode_bit_set(text: str) -> list[int]:
    """Returns the bits that are set. Raises RemoteProtocolError if the text is not base64 or means too many."""
    if len(text) > _MOST_BITS // 6:
        raise RemoteProtocolError(f"a bit set of {len(text)} characters is too long")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RemoteProtocolError(f"a bit set is base64, not {text!r:.40}") from None
    if (count := int.from_bytes(data).bit_count()) > MOST_ACKED:
        raise RemoteProtocolError(
            f"a bit set names {count} messages, the limit is {MOST_ACKED}; send one for each answer of a pop"
        )
    return [at * 8 + bit for at, byte in enumerate(data) if byte for bit in range(8) if byte >> bit & 1]


class _Row:
    """Reads members of a JSON object, numbers also when they are texts."""

    def __init__(self, data: Any, what: str) -> None:
        value = json_dialect.loads(data) if isinstance(data, bytes | bytearray | memoryview) else data
        if not isinstance(value, dict):
            raise RemoteProtocolError(f"{what} is a JSON object, not {type(value).__name__}")
        self._value: Mapping[str, Any] = value
        self._what = what

    def _get(self, names: tuple[str, ...]) -> Any:
        return next((self._value[name] for name in names if self._value.get(name) is not None), None)

    def text(self, *names: str) -> str | None:
        value = self._get(names)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise RemoteProtocolError(f"{self._what}: {names[0]} is a text, not {value!r:.40}")

    def needed(self, *names: str) -> str:
        value = self.text(*names)
        if not value:
            raise RemoteProtocolError(f"{self._what} has no {names[-1]}")
        return value

    def number(self, *names: str) -> int:
        value = self._get(names)
        return 0 if value is None else self._number(value, names[0])

    def _number(self, value: Any, name: str) -> int:
        if isinstance(value, str) and value.lstrip("-").isascii() and value.lstrip("-").isdigit() and len(value) <= 20:
            value = int(value) if value.count("-") <= 1 else value
        if isinstance(value, int) and not isinstance(value, bool) and -_LONG_END <= value < _LONG_END:
            return value
        raise RemoteProtocolError(f"{self._what}: {name} is a number, not {value!r:.40}")

    def numbers(self, *names: str) -> list[int]:
        value = self._get(names)
        if value is None:
            return []
        if not isinstance(value, list):
            raise RemoteProtocolError(f"{self._what}: {names[0]} is a list, not {value!r:.40}")
        return [self._number(member, names[0]) for member in value]

    def flag(self, name: str) -> bool:
        value = self._get((name,))
        return value is True or value == "true"
