"""Attributes of topics and subscription groups: `+key=value,-key` changes against a table of known keys.

Stored attributes carry no sign. A change is a map whose keys do:
`{"+message.type": "FIFO", "-lite.topic.expiration": ""}`.

Source:
    common/attribute/{AttributeParser,AttributeUtil}.java, common/{TopicAttributes,SubscriptionGroupAttributes}.java.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from maxq.errors import InvalidAttributeError
from maxq.lazy_dataclass import dataclass

MESSAGE_TYPE: Final = "message.type"
QUEUE_TYPE: Final = "queue.type"
BATCH_CQ: Final = "BatchCQ"
CLEANUP_POLICY: Final = "cleanup.policy"
RESERVE_TIME: Final = "reserve.time"
#: MaxQ's own attributes. Limits per second: for a topic, of messages sent to it; for a group, of messages delivered to
#: it.
QUOTA_BYTES: Final = "quota.bytes"
QUOTA_MESSAGES: Final = "quota.messages"
#: MaxQ's own: how long, and how much in each queue, the messages of a topic are kept at most.
RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
#: MaxQ's own: where each queue of a topic begins since the topic was purged, `queueId:offset` separated by blanks.
PURGED: Final = "purged.offsets"

_LONG_MAX: Final = (1 << 63) - 1
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}")
_PLACES: Final = re.compile(r"[0-9]{1,5}:[0-9]{1,18}( [0-9]{1,5}:[0-9]{1,18})*")


@dataclass(frozen=True, slots=True)
class Attribute:
    """One known attribute. `verify` returns the fault of a value, None if it is valid."""

    name: str
    verify: Callable[[str], str | None]
    changeable: bool = True  # may it be set, altered or removed once the topic or group exists?


def parse_attributes(text: str | None) -> dict[str, str]:
    """`+key1=value1,-key2` → `{"+key1": "value1", "-key2": ""}`.

    Raises:
        InvalidAttributeError: a part that neither adds nor removes, or a key given twice.
    """
    changes: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part:
            continue
        key, equals, value = part.partition("=")
        if equals and not key.startswith("+"):
            raise InvalidAttributeError(f"add/alter attribute format is wrong: {key}; write +key=value")
        if not equals and not key.startswith("-"):
            raise InvalidAttributeError(f"delete attribute format is wrong: {key}; write -key")
        if key in changes:
            raise InvalidAttributeError(f"key duplication: {key}")
        changes[key] = value
    return changes


def alter_attributes(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Apply `changes` (signed keys) to attributes. `current` is None while the topic or group is created.

    Raises:
        InvalidAttributeError: unknown key, bad value, removal of an attribute that is not set, change of a fixed
            attribute.
    """
    result = dict(current or {})
    seen: set[str] = set()
    for signed_key, value in changes.items():
        sign, key = signed_key[:1], signed_key[1:]
        if not key or "+" in key or "-" in key:
            raise InvalidAttributeError(f"kv string format wrong. key: {signed_key!r}")
        if key in seen:
            raise InvalidAttributeError(f"alter duplication key. key: {key}")
        seen.add(key)
        if sign not in "+-":
            raise InvalidAttributeError(f"wrong format key: {signed_key}; it begins with + or -")
        if sign == "-" and current is None:
            raise InvalidAttributeError(f"only add attribute is supported while creating topic. key: {key}")
        attribute = known.get(key)
        if attribute is None:
            raise InvalidAttributeError(f"unsupported key: {key}")
        if sign == "-":
            _remove(result, attribute)
        else:
            _put(result, attribute, value, creating=current is None)
    return result


def _remove(attributes: dict[str, str], attribute: Attribute) -> None:
    if attribute.name not in attributes:
        raise InvalidAttributeError(f"attempt to delete a nonexistent key: {attribute.name}")
    if not attribute.changeable:
        raise InvalidAttributeError(f"attempt to update an unchangeable attribute. key: {attribute.name}")
    del attributes[attribute.name]


def _put(attributes: dict[str, str], attribute: Attribute, value: str, *, creating: bool) -> None:
    if not creating and not attribute.changeable and attributes.get(attribute.name) != value:
        raise InvalidAttributeError(f"attempt to update an unchangeable attribute. key: {attribute.name}")
    wrong = attribute.verify(value)
    if wrong is not None:
        raise InvalidAttributeError(f"{attribute.name}={value}: {wrong}")
    attributes[attribute.name] = value


def _one_of(*names: str) -> Callable[[str], str | None]:
    return lambda value: None if value in names else f"value is not in set: [{', '.join(names)}]"


def _in_range(low: int, high: int) -> Callable[[str], str | None]:
    def verify(value: str) -> str | None:
        if not _WHOLE.fullmatch(value):
            return f"value is not a whole number in range({low}, {high})"
        number = int(value)
        return None if low <= number <= high else f"value is not in range({low}, {high})"

    return verify


def _boolean(value: str) -> str | None:
    return None if value.lower() in ("true", "false") else "boolean attribute format is wrong; write true or false"


def _places(value: str) -> str | None:
    if _PLACES.fullmatch(value):
        return None
    return "queue offsets have the form queueId:offset, separated by blanks; purgeTopic writes them"


def _any(value: str) -> str | None:
    return None


def _never(why: str) -> Callable[[str], str | None]:
    return lambda value: why


def _table(*attributes: Attribute) -> dict[str, Attribute]:
    return {attribute.name: attribute for attribute in attributes}


TOPIC_ATTRIBUTES: Final = _table(
    Attribute(
        MESSAGE_TYPE,
        _one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", "PRIORITY"),
    ),
    Attribute(QUEUE_TYPE, _one_of("SimpleCQ", "BatchCQ"), changeable=False),
    Attribute(CLEANUP_POLICY, _one_of("DELETE", "COMPACTION"), changeable=False),
    Attribute(RESERVE_TIME, _never("needs a tiered store; the store keeps files for fileReservedTime hours")),
    Attribute("lite.topic.expiration", _in_range(-1, 43200)),
    Attribute(QUOTA_BYTES, _in_range(1, _LONG_MAX)),
    Attribute(QUOTA_MESSAGES, _in_range(1, _LONG_MAX)),
    Attribute(RETENTION_MS, _in_range(1000, _LONG_MAX)),
    Attribute(RETENTION_BYTES, _in_range(1, _LONG_MAX)),
    Attribute(PURGED, _places),
)

SUBSCRIPTION_GROUP_ATTRIBUTES: Final = _table(
    Attribute("priority.factor", _in_range(0, 100)),
    Attribute("lite.bind.topic", _any),
    Attribute("lite.sub.model", _one_of("Shared", "Exclusive")),
    Attribute("lite.sub.reset.offset.exclusive", _boolean),
    Attribute("lite.sub.reset.offset.unsubscribe", _boolean),
    Attribute("lite.sub.client.quota", _in_range(-1, _LONG_MAX)),
    Attribute("lite.sub.client.max.event.cnt", _in_range(10, _LONG_MAX)),
    Attribute("lite.sub.wildcard", _any),
    Attribute(QUOTA_BYTES, _in_range(1, _LONG_MAX)),
    Attribute(QUOTA_MESSAGES, _in_range(1, _LONG_MAX)),
)
