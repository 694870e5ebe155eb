"""DelayHook: turns a message with a delay level away to SCHEDULE_TOPIC_XXXX.

Where it was to go is kept in REAL_TOPIC and REAL_QID; a delay level outranks the properties of timer messages. Half
messages pass: their delay counts from the commit.

Source:
    broker/util/HookUtils.java handleScheduleMessage, checkIfTimerMessage, transformDelayLevelMessage.
"""

from collections.abc import Callable
from typing import Final

from maxq.broker.processors.refusal import Refusal
from maxq.broker.schedule_message.delay_levels import DelayLevels, delay_level_of, queue_id_of
from maxq.broker.tables.topic.topic_validator import SCHEDULE_TOPIC
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message_sys_flag import TRANSACTION_MASK, MessageSysFlag
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner

_TIMER_PROPERTIES: Final = (
    const.PROPERTY_TIMER_DELIVER_MS,
    const.PROPERTY_TIMER_DELAY_SEC,
    const.PROPERTY_TIMER_DELAY_MS,
)
_DELAYED_TYPES: Final = (0, MessageSysFlag.TRANSACTION_COMMIT)


class DelayHook:
    """The put hook for delay levels; it comes after that of the timer."""

    def __init__(self, levels: DelayLevels, on_delayed: Callable[[int], None]) -> None:
        """`on_delayed(level)` is called when a message of this level is about to be stored."""
        self._levels = levels
        self._on_delayed = on_delayed

    def __call__(self, message: MessageExtBrokerInner) -> Refusal | None:
        """Move a delayed message to its level's queue (see PutHooks). Never refuses."""
        level = delay_level_of(message.properties)
        if level > 0 and message.sys_flag & TRANSACTION_MASK in _DELAYED_TYPES and message.topic != SCHEDULE_TOPIC:
            self._turn_away(message, self._levels.capped(level))
        return None

    def deliver_soon(self, message: MessageExtBrokerInner) -> None:
        """Move any message to the queue of the level with the shortest delay."""
        self._turn_away(message, self._levels.not_shorter_than(0))

    def _turn_away(self, message: MessageExtBrokerInner, level: int) -> None:
        properties = message.properties
        for name in _TIMER_PROPERTIES:
            properties.pop(name, None)
        properties[const.PROPERTY_DELAY_TIME_LEVEL] = str(level)
        properties[const.PROPERTY_REAL_TOPIC] = message.topic
        properties[const.PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
        message.properties_data = None
        message.topic = SCHEDULE_TOPIC
        message.queue_id = queue_id_of(level)
        self._on_delayed(level)
