"""Texts of pop consumption: receipt handles (extra info, POP_CK), offset lists of a pop's answer, retry topics.

    extra info        ckQueueOffset popTime invisibleTime reviveQid retry broker queueId [msgQueueOffset]
    startOffsetInfo   retry queueId offset            joined by `;`
    msgOffsetInfo     retry queueId o1,o2,…           joined by `;`
    orderCountInfo    retry queueId count  or  retry qo<queueId>%<offset> count

`retry` is 0 for the topic itself, 1 and 2 for its retry topics in the older and the newer spelling. The texts come from
the network: any text gives a value or RemoteProtocolError.

Source:
    remoting/protocol/header/ExtraInfoUtil.java, common/KeyBuilder.java.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from maxq.errors import RemoteProtocolError

POP_ORDER_REVIVE_QUEUE: Final = 999
"""reviveQid of messages that were popped in order."""

NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"

_RETRY_PREFIX: Final = "%RETRY%"
_LONG_END: Final = 1 << 63
_PARTS_LEAST: Final = 6
_MOST_NAME: Final = 1_000  # most characters of a broker's name; it is part of records that must fit into a message


class ExtraInfo(NamedTuple):
    """A receipt handle. Times in ms.

    Attributes:
        start_offset: queue offset at which the check point begins.
        queue_id, queue_offset: of the message; None in texts of old brokers and clients.
    """

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_qid: int
    retry: str
    broker_name: str
    queue_id: int | None = None
    queue_offset: int | None = None

    @property
    def is_order(self) -> bool:
        return self.revive_qid == POP_ORDER_REVIVE_QUEUE

    def __str__(self) -> str:
        return " ".join(map(str, (part for part in self if part is not None)))


def parse_extra_info(text: str) -> ExtraInfo:
    """Decode a receipt handle. Raises RemoteProtocolError if it is not one."""
    parts = text.split(" ")
    if len(parts) < _PARTS_LEAST:
        raise RemoteProtocolError(f"extraInfo {text!r:.200} has {len(parts)} parts, at least {_PARTS_LEAST} are needed")
    numbers = [_number(part, text) for part in (*parts[:4], *parts[6:8])]
    if parts[4] not in (NORMAL, RETRY_V1, RETRY_V2):
        raise RemoteProtocolError(f"extraInfo {text!r:.200}: the fifth part is 0, 1 or 2")
    if len(parts[5]) > _MOST_NAME:
        raise RemoteProtocolError(
            f"extraInfo {text!r:.200}: the broker's name has {len(parts[5])} characters, "
            f"at most {_MOST_NAME} are allowed"
        )
    return ExtraInfo(
        numbers[0],
        numbers[1],
        numbers[2],
        numbers[3],
        parts[4],
        parts[5],
        numbers[4] if len(numbers) > 4 else None,
        numbers[5] if len(numbers) > 5 else None,
    )


def offsets_text(offsets: Iterable[int]) -> str:
    """Return the third part of the property msgOffsetInfo: the queue offsets of the popped messages."""
    return ",".join(map(str, offsets))


def parse_start_offset_info(text: str) -> dict[str, int]:
    """Parse offsets by `retry@queueId`. Raises RemoteProtocolError if the text has another form, or names a queue
    twice."""
    return {key: _number(value, text) for key, value in _entries(text)}


def parse_msg_offset_info(text: str) -> dict[str, list[int]]:
    """Parse lists of offsets by `retry@queueId`; raises as parse_start_offset_info does."""
    return {key: [_number(part, text) for part in value.split(",")] for key, value in _entries(text)}


def parse_order_count_info(text: str) -> dict[str, int]:
    """Parse numbers of deliveries by `retry@queueId` and `retry@qo<queueId>%<offset>`; raises as
    parse_start_offset_info does."""
    return {key: _number(value, text) for key, value in _entries(text)}


def queue_offset_key(queue_id: int, queue_offset: int) -> str:
    """Return the key by which orderCountInfo names one message."""
    return f"qo{queue_id}%{queue_offset}"


def _entries(text: str) -> Iterable[tuple[str, str]]:
    seen: set[str] = set()
    for entry in text.split(";") if text else ():
        parts = entry.split(" ")
        if len(parts) != 3:
            raise RemoteProtocolError(f"{text!r:.200}: {entry!r:.80} has {len(parts)} parts, not 3")
        key = f"{parts[0]}@{parts[1]}"
        if key in seen:
            raise RemoteProtocolError(f"{text!r:.200}: {key} is there twice")
        seen.add(key)
        yield key, parts[2]


def _number(text: str, whole: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isascii() and digits.isdigit() and len(digits) <= 19:
        value = int(text)
        if -_LONG_END <= value < _LONG_END:
            return value
    raise RemoteProtocolError(f"{whole!r:.200}: {text!r:.40} is no number")


# --- retry topics ----------------------------------------------------------------------------------------------------


def retry_topic_v1(topic: str, group: str) -> str:
    """Return the retry topic of `group` for messages of `topic`, in the default spelling."""
    return f"{_RETRY_PREFIX}{group}_{topic}"


def retry_topic_v2(topic: str, group: str) -> str:
    """Return the retry topic in the spelling of enableRetryTopicV2, from which topic and group can be derived."""
    return f"{_RETRY_PREFIX}{group}+{topic}"


def retry_mark(topic: str) -> str:
    """Return the `retry` part for a stored topic."""
    if not topic.startswith(_RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def real_topic(topic: str, group: str, retry: str) -> str:
    """Return the topic that is read, from the consumer's topic and the mark. Raises RemoteProtocolError for another
    mark."""
    if retry == NORMAL:
        return topic
    if retry == RETRY_V1:
        return retry_topic_v1(topic, group)
    if retry == RETRY_V2:
        return retry_topic_v2(topic, group)
    raise RemoteProtocolError(f"retry mark {retry!r:.40}: 0, 1 or 2 is meant")


def normal_topic(topic: str, group: str) -> str:
    """Return the topic to which a retry topic of `group` belongs; any other topic is returned unchanged."""
    if not topic.startswith(_RETRY_PREFIX):
        return topic
    own = f"{_RETRY_PREFIX}{group}"
    return topic[len(own) + 1 :] if topic.startswith((f"{own}+", f"{own}_")) else topic
