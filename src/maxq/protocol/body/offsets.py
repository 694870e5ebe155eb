"""Offsets, locks and resets.

Source:
    remoting/protocol/body/{ConsumerOffsetSerializeWrapper,LockBatchRequestBody,LockBatchResponseBody,
    UnlockBatchRequestBody,ResetOffsetBody,ResetOffsetBodyForC,GetConsumerStatusBody,QueryCorrectionOffsetBody}.java,
    remoting/protocol/admin/{TopicOffset,TopicStatsTable,OffsetWrapper,ConsumeStats}.java.
"""

from dataclasses import field
from typing import Any, ClassVar

import orjson

from maxq.errors import RemoteProtocolError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.json.json_body import JsonBody, json_body, read_int
from maxq.protocol.message.message_queue import MessageQueue


@json_body
class ConsumerOffsetSerializeWrapper(JsonBody):
    """Answer of 43 and `consumerOffset.json`: `topic@group` → queue id → offset."""

    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)
    data_version: DataVersion | None = None


@json_body
class DelayOffsetSerializeWrapper(JsonBody):
    """Answer of 45 and `delayOffset.json`: level → offset.

    `physical_offset` and `postponed` are ours; Java passes over them. Deliveries below that place of the log are in the
    table, so only later records must be examined to find later deliveries. `postponed`: level → queue offsets below the
    level's that were not delivered.
    """

    offset_table: dict[int, int] = field(default_factory=dict)
    data_version: DataVersion | None = None
    physical_offset: int | None = None
    postponed: dict[int, list[int]] | None = None


@json_body
class LockBatchRequestBody(JsonBody):
    """Body of requests 41 and 42."""

    consumer_group: str = ""
    client_id: str = ""
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = field(default_factory=list)


@json_body
class UnlockBatchRequestBody(LockBatchRequestBody):
    """Body of request 42."""


@json_body
class LockBatchResponseBody(JsonBody):
    """Body of the answer to request 41: the queues the client owns now."""

    WIRE: ClassVar[dict[str, str]] = {"lock_ok_mq_set": "lockOKMQSet"}

    lock_ok_mq_set: list[MessageQueue] = field(default_factory=list)


@json_body
class ResetOffsetBody(JsonBody):
    """Answer of 222, body of 220. C++ clients read and write the table as a list (`to_json_for_cpp`)."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Any) -> "ResetOffsetBody":
        table = value.get("offsetTable") if isinstance(value, dict) else None
        if not isinstance(table, list):
            return super().from_json(value)
        try:
            return cls({MessageQueue.from_json(row): read_int(row["offset"]) for row in table})
        except (KeyError, TypeError, ValueError, OverflowError):
            raise RemoteProtocolError("a row of ResetOffsetBody.offsetTable without a numeric offset") from None

    def to_json_for_cpp(self) -> dict[str, Any]:
        """Return the form of a list, for C++ clients."""
        rows = [
            {"brokerName": queue.broker_name, "offset": offset, "queueId": queue.queue_id, "topic": queue.topic}
            for queue, offset in self.offset_table.items()
        ]
        return {"offsetTable": rows}


@json_body
class GetConsumerStatusBody(JsonBody):
    """Answer of 221 (`message_queue_table`) and 223 (`consumer_table`: client id → queue → offset)."""

    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


@json_body
class QueryCorrectionOffsetBody(JsonBody):
    """Body of the answer to request 308: queue id → offset."""

    correction_offsets: dict[int, int] = field(default_factory=dict)


@json_body
class TopicOffset(JsonBody):
    """One queue of TopicStatsTable; `last_update_timestamp` in ms."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


@json_body
class TopicStatsTable(JsonBody):
    """Body of the answer to request 202."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


@json_body
class OffsetWrapper(JsonBody):
    """One queue of ConsumeStats; `last_timestamp` is the store time of the last consumed message in ms."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


@json_body
class ConsumeStats(JsonBody):
    """Body of the answer to request 208."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0

    @property
    def total_diff(self) -> int:
        """Return the number of messages behind, over all queues."""
        return sum(wrapper.broker_offset - wrapper.consumer_offset for wrapper in self.offset_table.values())

    @staticmethod
    def encode_row(queue: MessageQueue, offsets: OffsetWrapper) -> bytes:
        """Encode one row of the table, for `filled`: the same bytes as the general encoder writes, which takes 100 µs
        for a queue."""
        return b'%b:{"brokerOffset":%d,"consumerOffset":%d,"lastTimestamp":%d,"pullOffset":%d}' % (
            orjson.dumps(queue.to_json()),
            offsets.broker_offset,
            offsets.consumer_offset,
            offsets.last_timestamp,
            offsets.pull_offset,
        )

    def encode(self) -> bytes:
        """Encode the body: the same bytes as the general JSON encoder makes."""
        rows = [self.encode_row(queue, offsets) for queue, offsets in self.offset_table.items()]
        return b'{"consumeTps":%b,"offsetTable":{%b}}' % (orjson.dumps(self.consume_tps), b",".join(rows))

    @property
    def inflight_total_diff(self) -> int:
        """Return the number of messages pulled and not yet consumed, over all queues."""
        return sum(wrapper.pull_offset - wrapper.consumer_offset for wrapper in self.offset_table.values())


@json_body
class ConsumeStatsList(JsonBody):
    """Body of the answer to request 317: a list of {group: [ConsumeStats]}."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0

    @staticmethod
    def begin_row(group: str) -> bytes:
        """Return the beginning of an item of the list. Encoded ConsumeStats of the group follow, with commas between
        them, and `]}`."""
        return b"{%b:[" % orjson.dumps(group)


@json_body
class QueueTimeSpan(JsonBody):
    """One queue of QueryConsumeTimeSpanBody; all in ms."""

    message_queue: MessageQueue | None = None
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


@json_body
class QueryConsumeTimeSpanBody(JsonBody):
    """Body of the answer to request 303."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)
