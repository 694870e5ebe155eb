"""Enums that travel in headers (by name) and JSON bodies (by name; C++ sends ordinals).

Source:
    remoting/protocol/heartbeat/{ConsumeType,MessageModel}.java, common/consumer/ConsumeFromWhere.java,
    common/TopicFilterType.java, common/BoundaryType.java, common/message/MessageRequestMode.java.
"""

from enum import IntEnum


class ConsumeType(IntEnum):
    """Whether a group's broker pushes or its members pull."""

    CONSUME_ACTIVELY = 0
    CONSUME_PASSIVELY = 1
    CONSUME_POP = 2


class MessageModel(IntEnum):
    """Whether each message goes to every member of a group, or to one member."""

    BROADCASTING = 0
    CLUSTERING = 1
    LITE_SELECTIVE = 2  # lite consumers of 5.5 say so in their heartbeats


class ConsumeFromWhere(IntEnum):
    """Where a group without offsets starts."""

    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


class TopicFilterType(IntEnum):
    """Whether a message has one tag or several."""

    SINGLE_TAG = 0
    MULTI_TAG = 1


class BoundaryType(IntEnum):
    """Which of the messages around a time is meant: the first at or after it, or the last at or before it."""

    LOWER = 0
    UPPER = 1

    @classmethod
    def parse(cls, text: str | None) -> "BoundaryType":
        """Parse a name in any case; LOWER if absent or unknown."""
        return cls.UPPER if text is not None and text.upper() == "UPPER" else cls.LOWER


class MessageRequestMode(IntEnum):
    """How members of a group ask for messages."""

    PULL = 0
    POP = 1


class CMResult(IntEnum):
    """Outcome of consuming one message directly (309)."""

    CR_SUCCESS = 0
    CR_LATER = 1
    CR_ROLLBACK = 2
    CR_COMMIT = 3
    CR_THROW_EXCEPTION = 4
    CR_RETURN_NULL = 5
