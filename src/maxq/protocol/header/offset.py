"""Headers about offsets, and finding messages.

Source:
    remoting/protocol/header/.
"""


from maxq.protocol.enums import BoundaryType
from maxq.protocol.frame.header_fields import CommandHeader, Long, header

#: Ext field of 12 that asks by unique key.
UNIQUE_MSG_QUERY_FLAG = "_UNIQUE_KEY_QUERY"


@header
class QueryConsumerOffsetRequestHeader(CommandHeader):
    """14."""

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None


@header
class QueryConsumerOffsetResponseHeader(CommandHeader):
    """Answer to 14."""

    offset: Long


@header
class UpdateConsumerOffsetRequestHeader(CommandHeader):
    """15. A missing queue id or offset has an answer of its own (29), so these are not required here."""

    consumer_group: str
    topic: str
    queue_id: int | None = None
    commit_offset: Long | None = None


@header
class GetMaxOffsetRequestHeader(CommandHeader):
    """30."""

    topic: str
    queue_id: int
    committed: bool = True


@header
class GetMaxOffsetResponseHeader(CommandHeader):
    """Answer to 30."""

    offset: Long


@header
class GetMinOffsetRequestHeader(CommandHeader):
    """31."""

    topic: str
    queue_id: int


@header
class GetMinOffsetResponseHeader(CommandHeader):
    """Answer to 31."""

    offset: Long


@header
class SearchOffsetRequestHeader(CommandHeader):
    """29. `timestamp` in ms."""

    topic: str
    queue_id: int
    timestamp: Long
    boundary_type: BoundaryType = BoundaryType.LOWER
    lite_topic: str | None = None


@header
class SearchOffsetResponseHeader(CommandHeader):
    """Answer to 29."""

    offset: Long


@header
class GetEarliestMsgStoretimeRequestHeader(CommandHeader):
    """32."""

    topic: str
    queue_id: int


@header
class GetEarliestMsgStoretimeResponseHeader(CommandHeader):
    """Answer to 32. `timestamp` in ms."""

    timestamp: Long


@header
class QueryMessageRequestHeader(CommandHeader):
    """12. Times in ms; `index_type` K, U or T."""

    topic: str
    key: str
    max_num: int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    last_key: str | None = None


@header
class QueryMessageResponseHeader(CommandHeader):
    """Answer to 12. `Phyoffset` is Java's spelling."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


@header
class ViewMessageRequestHeader(CommandHeader):
    """33. `offset` is the physical offset."""

    offset: Long
    topic: str | None = None


@header
class QueryConsumeQueueRequestHeader(CommandHeader):
    """321."""

    topic: str | None = None
    queue_id: int = 0
    index: Long = 0
    count: int = 0
    consumer_group: str | None = None


@header
class QueryCorrectionOffsetHeader(CommandHeader):
    """308."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


@header
class QueryConsumeTimeSpanRequestHeader(CommandHeader):
    """303."""

    topic: str
    group: str


@header
class ResetOffsetRequestHeader(CommandHeader):
    """220, 222. `timestamp` in ms, -1 for the end; `queue_id` -1 for all queues."""

    topic: str
    group: str
    timestamp: Long
    is_force: bool
    queue_id: int = -1
    offset: Long | None = None


@header
class GetConsumerStatusRequestHeader(CommandHeader):
    """221, 223."""

    topic: str
    group: str
    client_addr: str | None = None


@header
class CloneGroupOffsetRequestHeader(CommandHeader):
    """314."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
