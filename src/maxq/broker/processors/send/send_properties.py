"""Properties that a broker adds to a message, and those that it removes."""

from collections.abc import Callable

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.processors.admin.message_type import message_type
from maxq.config.broker_config import BrokerConfig
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message_properties import decode_properties


class BrokerProperties:
    """The properties that name the broker: region, trace switch, cluster."""

    def __init__(self, broker: BrokerAddress, config: Callable[[], BrokerConfig]) -> None:
        self._broker = broker
        self._config = config

    def for_reply(self) -> dict[str, str]:
        """Return the ext fields of every answer to a send; clients trace or not by TRACE_ON."""
        config = self._config()
        return {
            const.PROPERTY_MSG_REGION: config.region_id,
            const.PROPERTY_TRACE_SWITCH: "true" if config.trace_on else "false",
        }

    def add_to(self, properties: dict[str, str]) -> None:
        """Add these properties to those that are stored."""
        properties.update(self.for_reply())
        properties[const.PROPERTY_CLUSTER] = self._broker.cluster


def received_properties(text: str | None) -> dict[str, str]:
    """Return the properties of a request without POP_CK, which only the broker may set."""
    properties = decode_properties(text)
    properties.pop(const.PROPERTY_POP_CK, None)
    return properties


def queue_by_priority(properties: dict[str, str], write_queue_nums: int) -> int | None:
    """Return the queue of a priority message: its priority, at most the last queue; None if it is not a priority
    message.

    A message that is of another type too (by the order of TopicMessageType.java) is of that type, and its priority
    is taken from it.
    """
    priority = properties.get(const.PROPERTY_PRIORITY)
    if priority is None:
        return None
    if message_type(properties) != "PRIORITY" or not (priority.isascii() and priority.isdigit()):
        del properties[const.PROPERTY_PRIORITY]
        return None
    return min(int(priority[:10]), write_queue_nums - 1)
