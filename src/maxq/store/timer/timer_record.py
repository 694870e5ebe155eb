"""TimerRecord: a message of the timer topic, and what the timer reads out of its properties.

Source:
    store/timer/TimerRequest.java, and TimerMessageStore.java where it reads TIMER_OUT_MS, TIMER_DEL_UNIQKEY and
    TIMER_ROLL_TIMES.
"""

from typing import Final

from maxq.lazy_dataclass import dataclass
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.store.timer.roll_window import PRECISIONS

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"


@dataclass(frozen=True, slots=True)
class TimerRecord:
    """A message of the timer topic.

    Attributes:
        out_ms: TIMER_OUT_MS, wall-clock time in ms at which the message is due. The broker that wrote it rounded it to
            its own timerPrecisionMs, which may differ from this broker's.
        real_topic: where it is delivered.
        delete_key: TIMER_DEL_UNIQKEY; it is a marker that recalls another message.
        rolls: how often it was put into the topic again.
    """

    physical_offset: int
    size: int
    out_ms: int
    real_topic: str
    unique_key: str
    delete_key: str | None
    rolls: int
    message: MessageExt

    @property
    def earliest_ms(self) -> int:
        """Return the time before which the message must not be delivered: the time that its sender asked for, if the
        message says that and `out_ms` was rounded down from it, else `out_ms`."""
        properties = self.message.properties
        asked_ms = None
        if const.PROPERTY_TIMER_DELAY_SEC not in properties and const.PROPERTY_TIMER_DELAY_MS not in properties:
            asked_ms = long_of(properties.get(const.PROPERTY_TIMER_DELIVER_MS))
        return asked_ms if asked_ms is not None and 0 < asked_ms - self.out_ms <= max(PRECISIONS) else self.out_ms

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Return the fields that identify the message in all its copies, however often it was put into the wheel. A
        marker has another identity than the message it recalls."""
        return self.real_topic, self.unique_key, str(self.out_ms), self.delete_key or ""


def delete_key(topic: str, unique_key: str) -> str:
    """Return the longer form of the text by which a marker names a message; the shorter form is the unique key
    alone."""
    return f"{topic}+{unique_key}"


def recalled_keys(marker: TimerRecord) -> list[str]:
    """Return the keys, in the form of `message_key`, of the messages that a marker may refer to."""
    key = marker.delete_key or ""
    longer = delete_key(marker.real_topic, key)
    return [longer, key] if key.startswith(delete_key(marker.real_topic, "")) else [longer]


def message_key(record: TimerRecord) -> str:
    """Return the key by which the marker of a recall names this timer message."""
    return delete_key(record.real_topic, record.unique_key)


def timer_record(message: MessageExt, physical_offset: int) -> TimerRecord | None:
    """Return the timer's data of a message; None if the message is not for the timer."""
    properties = message.properties
    out_ms = long_of(properties.get(const.PROPERTY_TIMER_OUT_MS))
    real_topic = properties.get(const.PROPERTY_REAL_TOPIC)
    if message.topic != TIMER_TOPIC or out_ms is None or not real_topic:
        return None
    return TimerRecord(
        physical_offset,
        message.store_size,
        out_ms,
        real_topic,
        message.uniq_key or f"{message.born_timestamp}-{message.body_crc}",
        properties.get(const.PROPERTY_TIMER_DEL_UNIQKEY),
        long_of(properties.get(const.PROPERTY_TIMER_ROLL_TIMES)) or 0,
        message,
    )


def long_of(text: str | None) -> int | None:
    """Return the number in the text of a property; None if the text is missing, no number, or beyond 64 bits."""
    if text is None:
        return None
    digits = text[1:] if text[:1] == "-" else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None
