"""Message traces: what clients said of one message.

Source: apache/rocketmq client/trace/TraceView.java, tools/command/message/QueryMsgTraceByIdSubCommand.java.
"""

from dataclasses import dataclass

from maxq.client.admin.messages import MessageAdmin
from maxq.protocol.message.message_id import decode_host
from maxq.protocol.message.message_trace import TRACE_TOPIC, TraceRecord, TraceType, decode_traces

_FOR_EVER = 0x7FFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class TraceView:
    """One trace record, and the address of the client that wrote it."""

    record: TraceRecord
    client_host: str

    @property
    def status(self) -> str:
        """The status as mqadmin prints it."""
        return "success" if self.record.success is not False else "failed"


class TraceAdmin:
    """Reads message traces; the attribute `traces` of an Admin."""

    def __init__(self, messages: MessageAdmin) -> None:
        self._messages = messages

    async def of_message(
        self,
        msg_id: str,
        *,
        trace_topic: str = TRACE_TOPIC,
        max_num: int = 64,
        begin_ms: int = 0,
        end_ms: int = _FOR_EVER,
    ) -> list[TraceView]:
        """Find the trace records of a message (12 on the trace topic), in the order of time, also if it was sent in a
        batch.

        Args:
            msg_id: the client's id, as a send gives it.
            max_num: look into so many trace messages.
            begin_ms, end_ms: of their store times.

        Raises:
            NoRouteError: there is no such trace topic.
        """
        found = await self._messages.query_by_key(
            trace_topic, msg_id, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms
        )
        views = [
            TraceView(record, decode_host(message.born_host)[0])
            for message in found
            for record in decode_traces(message.body)[0]
            if msg_id in record.msg_ids or msg_id == record.msg_id
        ]
        return sorted(views, key=_order)


_ORDER = {kind: number for number, kind in enumerate(TraceType)}


def _order(view: TraceView) -> tuple[int, int]:
    return view.record.timestamp or 0, _ORDER[view.record.trace_type]
