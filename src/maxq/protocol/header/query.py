"""Headers of requests that find messages.

Source:
    remoting/protocol/header/.
"""

from maxq.protocol.frame.header_fields import CommandHeader, Long, header


@header
class QueryMessageRequestHeader(CommandHeader):
    """Fields of QUERY_MESSAGE (12). Times are in ms; `index_type` is K, U or T."""

    topic: str
    key: str
    max_num: int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    last_key: str | None = None


@header
class ViewMessageRequestHeader(CommandHeader):
    """Fields of VIEW_MESSAGE_BY_ID (33). `offset` is the physical offset."""

    offset: Long
    topic: str | None = None
