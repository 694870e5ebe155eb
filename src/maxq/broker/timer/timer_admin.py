"""TimerAdminProcessor: what is due when, where it lies, why it is late; and taking it back.

MaxQ's own codes, for `maxq timer`:

    30060  a page of waiting messages   ext beginMs, endMs, topic, maxNum, cursor (all optional)
    30061  one message                  ext key (UNIQ_KEY), topic (optional)
    30062  take one message back        ext key, topic (optional)

The answers are JSON objects: {"brokerName", "nowMs", "readTimeMs", "isDelivering", "pending", "unread", "closed",
"next", "entries": [see TimerEntry.to_json]}.

And 5001, which in Java changes between the wheel and RocksDB.

Source:
    broker/processor/AdminBrokerProcessor.java switchTimerEngine.
"""

from collections.abc import Mapping
from typing import Any, Final

from maxq.broker.bundles import Environment, Messages
from maxq.broker.processors.support import RequestProcessor
from maxq.broker.timer.recall_message import LATEST_MS, RecallMessageProcessor
from maxq.broker.timer.timer_service import TimerService
from maxq.broker.timer.timer_status import TimerStatus
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.protocol.message.message import decode_record
from maxq.protocol.message.recall_handle import RecallHandle
from maxq.remoting.connection import Connection, Processor
from maxq.runtime.blocking import TOOLS
from maxq.store.timer.roll_window import roll_window_ms
from maxq.store.timer.timer_listing import LATE, UNREAD, TimerEntry, TimerListing
from maxq.store.timer.timer_log import TimerLog
from maxq.store.timer.timer_record import TIMER_TOPIC, TimerRecord, timer_record

_MOST_ENTRIES: Final = 1_000
_FOUND_MOST: Final = 32
_ENGINE: Final = "E_T"
_WHEEL, _ROCKS_DB = "F", "R"


class TimerAdminProcessor(RequestProcessor):
    """Answers the requests of operators about the timer; see the module's text."""

    def __init__(
        self,
        env: Environment,
        messages: Messages,
        service: TimerService,
        status: TimerStatus,
        recall: RecallMessageProcessor,
    ) -> None:
        self._settings = env.settings
        self._store = messages.store
        self._service = service
        self._status = status
        self._recall = recall
        self._broker = env.own
        self._clock = env.clock

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.MAXQ_LIST_TIMER_MESSAGES: self.list_messages,
            RequestCode.MAXQ_INSPECT_TIMER_MESSAGE: self.inspect_message,
            RequestCode.MAXQ_CANCEL_TIMER_MESSAGE: self.cancel_message,
            RequestCode.SWITCH_TIMER_ENGINE: self.switch_timer_engine,
        }

    def list_messages(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer MAXQ_LIST_TIMER_MESSAGES (30060). Takes some milliseconds at most, however many messages wait."""
        listing = self._listing()
        fields = HeaderFields(request.ext)
        timer, now_ms = self._service.timer, self._clock.wall_ms()
        last_ms = now_ms + roll_window_ms(self._settings.store) + 2 * timer.precision_ms
        begin_ms, end_ms = fields.opt_long("beginMs"), fields.opt_long("endMs")
        page = listing.page(
            max(begin_ms or 0, min(timer.read_time_ms, now_ms)),
            last_ms if end_ms is None else min(end_ms, last_ms),
            now_ms,
            topic=fields.opt_str("topic") or "",
            limit=max(1, min(fields.opt_int("maxNum") or 100, _MOST_ENTRIES)),
            cursor=fields.opt_str("cursor") or "",
        )
        return self._answer(request, page.entries, page.next)

    async def inspect_message(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer MAXQ_INSPECT_TIMER_MESSAGE (30061). No entries mean that no such message waits."""
        return self._answer(request, await self._find(request), "")

    async def cancel_message(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer MAXQ_CANCEL_TIMER_MESSAGE (30062). An administrator may cancel even if recallMessageEnable is
        false."""
        records = [entry.record for entry in await self._find(request)]
        found = [record for record in records if record is not None and record.delete_key is None]
        if not found:
            raise RequestRefusedError(
                ResponseCode.QUERY_NOT_FOUND, f"no timer message {request.ext.get('key')} waits on this broker"
            )
        record = max(found, key=lambda one: one.physical_offset)
        if record.out_ms + self._service.timer.precision_ms <= self._clock.wall_ms():
            raise RequestRefusedError(ResponseCode.ILLEGAL_OPERATION, "it is due already: it cannot be taken back")
        handle = RecallHandle(record.real_topic, self._broker.broker_name, record.out_ms + 1, record.unique_key)
        return await self._recall.cancel(request, handle, connection.remote_host, "")

    def switch_timer_engine(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer SWITCH_TIMER_ENGINE (5001). There is one engine, the wheel."""
        engine = request.ext.get(_ENGINE, "")
        if engine == _WHEEL:
            return request.reply(ResponseCode.SUCCESS, "switch timer engine success")
        why = "timerRocksDBEnable must be configured true when broker start, and there is no RocksDB here"
        if engine != _ROCKS_DB:
            why = f"engine type {engine!r} is neither {_WHEEL} nor {_ROCKS_DB}"
        return request.reply(ResponseCode.INVALID_PARAMETER, why)

    # ---- what they share --------------------------------------------------------------------------------------------

    def _listing(self) -> TimerListing:
        if not self._service.is_loaded:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, "this broker has no timer: timerWheelEnable is false, or it is starting"
            )
        timer = self._service.timer
        return TimerListing(timer.wheel, timer.log, timer.topic.record_at, timer.live_slot, timer.moved.counts)

    async def _find(self, request: RemotingCommand) -> list[TimerEntry]:
        """Return the message with that unique key, which the index finds."""
        listing = self._listing()
        fields = HeaderFields(request.ext)
        key, topic = fields.required_str("key"), fields.opt_str("topic") or ""
        result = self._store.query_message(TIMER_TOPIC, key, _FOUND_MOST, 0, LATEST_MS)
        records: list[TimerRecord] = []
        for buffer in result.buffers:
            message = decode_record(buffer)
            record = timer_record(message, message.physical_offset)
            if record is not None and record.unique_key == key and topic in ("", record.real_topic):
                records.append(record)
        positions = await TOOLS.run(_positions, self._service.timer.log, records)
        entries = listing.entries_at(positions, self._clock.wall_ms())
        in_wheel = {entry.unit.physical_offset for entry in entries}
        return entries + [
            listing.unread_entry(record)
            for record in records
            if record.physical_offset not in in_wheel and self._service.timer.topic.is_unread(record)
        ]

    def _answer(self, request: RemotingCommand, entries: list[TimerEntry], cursor: str) -> RemotingCommand:
        timer = self._service.timer
        body: dict[str, Any] = {
            "brokerName": self._broker.broker_name,
            "nowMs": self._clock.wall_ms(),
            "readTimeMs": timer.read_time_ms,
            "isDelivering": self._service.is_dequeuing,
            "pending": timer.pending,
            "unread": timer.topic.unread,
            "closed": self._service.closed,
            "next": cursor,
            "entries": [entry.to_json(self._why(entry)) for entry in entries],
        }
        return request.reply(body=json_dialect.dumps(body))

    def _why(self, entry: TimerEntry) -> str:
        if entry.state == UNREAD:
            return self._status.why_unread()
        return self._status.why_late(entry.unit, entry.state == LATE)


def _positions(timer_log: TimerLog, records: list[TimerRecord]) -> list[int]:
    """Return the positions of the newest units of `records`. Blocks."""
    found = (timer_log.last_unit_of(record.physical_offset, record.size) for record in records)
    return [position for position in found if position is not None]
