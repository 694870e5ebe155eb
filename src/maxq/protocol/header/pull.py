"""Headers of pulling and popping.

Source:
    remoting/protocol/header/{PullMessage,PopMessage,AckMessage,ChangeInvisibleTime,Notification,PeekMessage,
    PollingInfo}RequestHeader.java and their answers.
"""

from maxq.protocol.frame.header_fields import CommandHeader, Long, header

#: Bits of a pull's sysFlag (PullSysFlag.java).
PULL_FLAG_COMMIT_OFFSET = 0x1
PULL_FLAG_SUSPEND = 0x2
PULL_FLAG_SUBSCRIPTION = 0x4
PULL_FLAG_CLASS_FILTER = 0x8
PULL_FLAG_LITE = 0x10


@header
class PullMessageRequestHeader(CommandHeader):
    """Fields of PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361). Times are in ms.

    Attributes:
        maxq_max_bytes: an extension of MaxQ's: the reader takes an answer of so many bytes and as many messages as
            maxMsgNums says, whatever the limits of ordinary pulls are. Java's brokers ignore it.
        maxq_omit: what the reader does not want of each record: `body`, `body,properties`, or `records` (only the
            places are told). Records without them are records still, of less bytes.
        lo: `false`: of a physical queue that is part of a static topic; another broker asks for its reader.
    """

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: Long
    max_msg_nums: int
    sys_flag: int
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    proxy_froward_client_id: str | None = None
    lite_topic: str | None = None
    maxq_max_bytes: int | None = None
    maxq_omit: str | None = None
    lo: str | None = None


@header
class PullMessageResponseHeader(CommandHeader):
    """Fields of the answer to PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361).

    Attributes:
        maxq_count: messages from the asked offset to next_begin_offset that match; only in answers to maxq_max_bytes.
        maxq_bytes: what they take in the log.
    """

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None
    maxq_count: int | None = None
    maxq_bytes: Long | None = None


@header
class PopMessageRequestHeader(CommandHeader):
    """Fields of POP_MESSAGE (200050). Times are in ms."""

    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int
    invisible_time: Long
    poll_time: Long
    born_time: Long
    init_mode: int
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


@header
class PopMessageResponseHeader(CommandHeader):
    """Fields of the answer to POP_MESSAGE (200050) and PEEK_MESSAGE (200052)."""

    pop_time: Long
    invisible_time: Long
    revive_qid: int
    rest_num: Long
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@header
class AckMessageRequestHeader(CommandHeader):
    """Fields of ACK_MESSAGE (200051)."""

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: Long
    lite_topic: str | None = None


@header
class ChangeInvisibleTimeRequestHeader(CommandHeader):
    """Fields of CHANGE_MESSAGE_INVISIBLETIME (200053)."""

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: Long
    invisible_time: Long
    lite_topic: str | None = None
    suspend: bool = False


@header
class ChangeInvisibleTimeResponseHeader(CommandHeader):
    """Fields of the answer to CHANGE_MESSAGE_INVISIBLETIME (200053)."""

    pop_time: Long
    invisible_time: Long
    revive_qid: int


@header
class NotificationRequestHeader(CommandHeader):
    """Fields of NOTIFICATION (200054)."""

    consumer_group: str
    topic: str
    queue_id: int
    poll_time: Long
    born_time: Long
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


@header
class PeekMessageRequestHeader(CommandHeader):
    """Fields of PEEK_MESSAGE (200052)."""

    topic: str
    queue_id: int
    max_msg_nums: int
    consumer_group: str


@header
class PollingInfoRequestHeader(CommandHeader):
    """Fields of POLLING_INFO (200055)."""

    consumer_group: str
    topic: str
    queue_id: int
