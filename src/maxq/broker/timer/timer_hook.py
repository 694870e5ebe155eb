"""TimerHook: turns a message with a delivery time away to the timer's topic.

TIMER_DELAY_SEC, TIMER_DELAY_MS and TIMER_DELIVER_MS are looked at in this order. The moment is taken down to the slot
of the wheel that is over just then or at most a precision later, so nothing is delivered early. A message that is
already due is stored at once. One that is due later than timerMaxDelaySec from now is refused, even with a number that
Java's arithmetic would wrap.

Source:
    broker/util/HookUtils.java handleScheduleMessage, checkIfTimerMessage, transformTimerMessage.
"""

from collections.abc import Callable
from typing import Final, Protocol

from maxq.broker.processors.refusal import Refusal
from maxq.broker.processors.send.put_hooks import lacks_room
from maxq.broker.schedule_message.delay_levels import delay_level_of
from maxq.broker.tables.topic.topic_validator import TIMER_TOPIC
from maxq.codes import ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message_sys_flag import TRANSACTION_MASK, MessageSysFlag
from maxq.runtime.interfaces import Clock, Rng
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.timer.roll_window import precision_of

_TIMED_TYPES: Final = (0, MessageSysFlag.TRANSACTION_COMMIT)
_MOMENTS: Final = (
    (const.PROPERTY_TIMER_DELAY_SEC, 1000, True),
    (const.PROPERTY_TIMER_DELAY_MS, 1, True),
    (const.PROPERTY_TIMER_DELIVER_MS, 1, False),
)
_MOST_DIGITS: Final = 19  # most digits of a Java long


class Wheel(Protocol):
    """The part of the wheel that the hook uses."""

    def slot_count(self, due_ms: int) -> int:
        """Return the number of messages that wait in one slot."""
        ...


class TimerHook:
    """The put hook for timer messages; it comes before that of the delay levels."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock,
        rng: Rng,
        wheel: Callable[[], Wheel | None],
        on_timed: Callable[[], None],
    ) -> None:
        """
        Args:
            wheel: None while it is not loaded.
            on_timed: a timer message is about to be stored.
        """
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._wheel = wheel
        self._on_timed = on_timed

    def __call__(self, message: MessageExtBrokerInner) -> Refusal | None:
        """Put a timer message into the timer's topic (see PutHooks)."""
        properties = message.properties
        if message.topic == TIMER_TOPIC or const.PROPERTY_TIMER_OUT_MS in properties:
            return None
        if message.sys_flag & TRANSACTION_MASK not in _TIMED_TYPES or delay_level_of(properties) > 0:
            return None
        deliver_ms = self._time_of(message)
        if deliver_ms is None or isinstance(deliver_ms, Refusal):
            return deliver_ms
        precision = precision_of(self._settings.store)
        due_ms = (deliver_ms - 1) // precision * precision
        refusal = self._congestion(due_ms)
        if refusal is None:
            self._redirect(message, due_ms)
            refusal = lacks_room(message)
        return refusal

    def judge_half(self, half: MessageExtBrokerInner) -> Refusal | None:
        """Refuse a half message that could not be stored when its transaction is committed, because the reason could
        not be reported then."""
        if delay_level_of(half.properties) > 0 or const.PROPERTY_TIMER_OUT_MS in half.properties:
            return None
        deliver_ms = self._time_of(half)
        if deliver_ms is None or isinstance(deliver_ms, Refusal):
            return deliver_ms
        half.properties[const.PROPERTY_TIMER_OUT_MS] = str(deliver_ms)
        refusal = lacks_room(half)
        del half.properties[const.PROPERTY_TIMER_OUT_MS]
        return refusal

    def _time_of(self, message: MessageExtBrokerInner) -> int | Refusal | None:
        """Return when a message is to be delivered (wall clock, ms); None for one that is due, or has no time."""
        properties = message.properties
        recalls = const.PROPERTY_TIMER_DEL_UNIQKEY in properties
        found = next((moment for moment in _MOMENTS if moment[0] in properties), None)
        if found is None:
            if not recalls:
                return None
            return _illegal(
                f"it recalls a message ({const.PROPERTY_TIMER_DEL_UNIQKEY}) but does not say when that is due: set "
                f"{const.PROPERTY_TIMER_DELIVER_MS} to the time of the message to be recalled"
            )
        name, unit_ms, is_delay = found
        store = self._settings.store
        if not store.timer_wheel_enable:
            return Refusal(
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false: the message was not stored; set "
                "timerWheelEnable, or use a delay level",
            )
        number = _long(properties[name])
        if number is None:
            return _illegal(f"{name} is {properties[name]!r}, not a number of milliseconds or seconds")
        now = self._clock.wall_ms()
        deliver_ms = number * unit_ms + (now if is_delay else 0)
        if deliver_ms <= now:
            return _illegal(f"the recalled message was due {now - deliver_ms} ms ago ({name})") if recalls else None
        latest_ms = now + store.timer_max_delay_sec * 1000
        if deliver_ms <= latest_ms:
            return deliver_ms
        if message.sys_flag & TRANSACTION_MASK == MessageSysFlag.TRANSACTION_COMMIT:
            return latest_ms  # a half message was accepted before the setting was lowered: deliver it at the limit
        return _illegal(
            f"the delay time should not be bigger than the max delay {store.timer_max_delay_sec * 1000}ms "
            f"(timerMaxDelaySec); this message is due in {deliver_ms - now} ms ({name}) and was not stored: set an "
            "earlier time or raise the setting"
        )

    def _congestion(self, due_ms: int) -> Refusal | None:
        """Refuse some messages for a slot that holds more than timerCongestNumEachSlot, and all for one that holds
        twice as many."""
        wheel = self._wheel()
        if wheel is None:
            return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the timer is not loaded yet: send again in a moment")
        limit = self._settings.store.timer_congest_num_each_slot
        count = wheel.slot_count(due_ms)
        if count <= limit or (count < 2 * limit and self._rng.below(max(limit, 1)) >= count - limit):
            return None
        return Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"timer message is under flow control, max num limit is {2 * limit} or the current value is greater than "
            f"{limit} and less than {2 * limit}, trigger random flow control: {count} messages are due at the same "
            "time; spread them, or raise timerCongestNumEachSlot",
        )

    def _redirect(self, message: MessageExtBrokerInner, due_ms: int) -> None:
        properties = message.properties
        properties[const.PROPERTY_TIMER_OUT_MS] = str(due_ms)
        properties[const.PROPERTY_REAL_TOPIC] = message.topic
        properties[const.PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
        message.properties_data = None
        message.topic = TIMER_TOPIC
        message.queue_id = 0
        self._on_timed()


def _long(text: str) -> int | None:
    """Parse a number as Java's Long.parseLong does; None where that throws."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits.lstrip("0")) > _MOST_DIGITS:
        return None
    value = int(text)
    return value if -(1 << 63) <= value < 1 << 63 else None


def _illegal(why: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal: {why}")
