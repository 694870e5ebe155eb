"""Bodies in which a running consumer describes itself, and bodies of rebalance by the broker.

Source:
    remoting/protocol/body/{ConsumerRunningInfo,ProcessQueueInfo,PopProcessQueueInfo,ConsumeStatus,
    ConsumeMessageDirectlyResult,QueryAssignmentRequestBody,QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,MessageRequestModeSerializeWrapper}.java,
    common/message/MessageQueueAssignment.java.
"""

from dataclasses import field
from typing import ClassVar

from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.enums import CMResult, MessageModel, MessageRequestMode
from maxq.protocol.json.json_body import JsonBody, json_body
from maxq.protocol.message.message_queue import MessageQueue


@json_body
class ProcessQueueInfo(JsonBody):
    """One queue a consumer holds. `droped` is Java's spelling."""

    WIRE: ClassVar[dict[str, str]] = {"cached_msg_size_in_mib": "cachedMsgSizeInMiB"}

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = 0
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


@json_body
class PopProcessQueueInfo(JsonBody):
    """State of one queue that a consumer pops, in its running info."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


@json_body
class ConsumeStatus(JsonBody):
    """Rates of one topic: ms a pull and a message, messages a second, failures in the last hour."""

    WIRE: ClassVar[dict[str, str]] = {
        "pull_rt": "pullRT", "pull_tps": "pullTPS", "consume_rt": "consumeRT", "consume_ok_tps": "consumeOKTPS",
        "consume_failed_tps": "consumeFailedTPS",
    }  # fmt: skip

    pull_rt: float = 0.0
    pull_tps: float = 0.0
    consume_rt: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: int = 0


@json_body
class ConsumerRunningInfo(JsonBody):
    """Body of the answer to request 307."""

    PROP_NAMESERVER_ADDR: ClassVar[str] = "PROP_NAMESERVER_ADDR"
    PROP_THREADPOOL_CORE_SIZE: ClassVar[str] = "PROP_THREADPOOL_CORE_SIZE"
    PROP_CONSUME_ORDERLY: ClassVar[str] = "PROP_CONSUMEORDERLY"
    PROP_CONSUME_TYPE: ClassVar[str] = "PROP_CONSUME_TYPE"
    PROP_CLIENT_VERSION: ClassVar[str] = "PROP_CLIENT_VERSION"
    PROP_CONSUMER_START_TIMESTAMP: ClassVar[str] = "PROP_CONSUMER_START_TIMESTAMP"

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


@json_body
class ConsumeMessageDirectlyResult(JsonBody):
    """Answer of 309; `spent_time_mills` in ms (Java's spelling)."""

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: int = 0


@json_body
class QueryAssignmentRequestBody(JsonBody):
    """Body of request 400."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = ""
    message_model: MessageModel = MessageModel.CLUSTERING


@json_body
class MessageQueueAssignment(JsonBody):
    """One queue of QueryAssignmentResponseBody."""

    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


@json_body
class QueryAssignmentResponseBody(JsonBody):
    """Body of the answer to request 400."""

    message_queue_assignments: list[MessageQueueAssignment] = field(default_factory=list)


@json_body
class SetMessageRequestModeRequestBody(JsonBody):
    """Body of request 401."""

    topic: str = ""
    consumer_group: str = ""
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: int = 0


@json_body
class MessageRequestModeSerializeWrapper(JsonBody):
    """Answer of 402 and `messageRequestMode.json`: topic → group → mode."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(default_factory=dict)
