"""ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151) and CHANGE_MESSAGE_INVISIBLETIME (200053).

An ack of a check point in memory sets a bit there and is written to the journal; the client gets its answer when that
record is as safe as the settings promise. Any other becomes an ack record of the revive topic.

Source:
    broker/processor/{AckMessageProcessor,ChangeInvisibleTimeProcessor}.java.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping

from maxq.broker.bundles import Environment, Messages
from maxq.broker.fast_path.ack_path import NOT_STORED_REMARK, unsafe_remark
from maxq.broker.pop.check_point_buffer import CheckPointBuffer, LiveCheckPoint
from maxq.broker.pop.order_info import LATEST_MS
from maxq.broker.pop.order_service import OrderService
from maxq.broker.pop.pop_checks import PopChecks
from maxq.broker.pop.pop_journal import NOT_NOTED
from maxq.broker.pop.revive_record_writer import ReviveRecordWriter
from maxq.broker.processors.support import RequestProcessor
from maxq.broker.stats import names
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.pop import AckMsg, BatchAck, PopCheckPoint, decode_batch_acks
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader
from maxq.protocol.message.pop_extra_info import POP_ORDER_REVIVE_QUEUE, ExtraInfo, parse_extra_info, real_topic
from maxq.remoting.connection import Processor
from maxq.remoting.server import Connection

log = logging.getLogger(__name__)


class AckMessageProcessor(RequestProcessor):
    """Handles acknowledgements of popped messages for one broker."""

    def __init__(
        self,
        env: Environment,
        messages: Messages,
        checks: PopChecks,
        buffer: CheckPointBuffer,
        orders: OrderService,
        records: ReviveRecordWriter,
        ready: Callable[[], Awaitable[None]],
        log_began_at: Callable[[], int],
    ) -> None:
        """
        Args:
            ready: returns when this broker knows which messages were popped; raises RequestRefusedError if that cannot
                be known.
            log_began_at: tells the physical end of the log when this broker became its group's active one.
        """
        self._ready = ready
        self._log_began_at = log_began_at
        self._own = env.own
        self._store = messages.store
        self._checks = checks
        self._buffer = buffer
        self._orders = orders
        self._records = records
        self._acknowledgement = messages.acknowledgement
        self._stats = env.stats
        self._clock = env.clock

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change_invisible_time,
        }

    # --- acks --------------------------------------------------------------------------------------------------------

    async def ack(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Acknowledge one popped message: answer ACK_MESSAGE."""
        await self._ready()
        header = AckMessageRequestHeader.decode(request.ext)
        self._checks.message(
            connection, header.topic, header.consumer_group, header.queue_id, header.offset, may_be_end=True
        )
        handle = parse_extra_info(header.extra_info)
        if handle.is_order:
            end = self._ack_in_order(
                connection, header.topic, header.consumer_group, header.queue_id, header.offset, handle.pop_time
            )
        else:
            ack = AckMsg(
                header.topic, header.consumer_group, header.queue_id, handle.start_offset, handle.pop_time,
                handle.broker_name, [header.offset],
            )  # fmt: skip
            end = await self._ack(ack, handle.revive_qid, handle.pop_time + handle.invisible_time)
        await self._safe(end)
        return request.reply()

    async def batch_ack(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Acknowledge many messages by check point. Unknown ones are skipped."""
        await self._ready()
        broker_name, acks = decode_batch_acks(request.body_bytes)
        if not acks:
            raise RequestRefusedError(ResponseCode.NO_MESSAGE, "the batch names no message")
        ends = [await self._ack_several(connection, broker_name, ack) for ack in acks]
        await self._safe(NOT_NOTED if NOT_NOTED in ends else max(ends))
        return request.reply()

    async def _ack_several(self, connection: Connection, broker_name: str, batch: BatchAck) -> int:
        topic = real_topic(batch.topic, batch.group, batch.retry)
        self._checks.retry_topic(topic, batch.group)
        low = self._store.min_offset(topic, batch.queue_id)
        high = self._store.max_offset(topic, batch.queue_id)
        if low < 0:
            log.warning("batch ack of %s-%d: there is no such queue", topic, batch.queue_id)
            return 0
        offsets = [batch.start_offset + bit for bit in batch.bits if low <= batch.start_offset + bit <= high]
        if not offsets:
            return 0
        if batch.revive_queue_id == POP_ORDER_REVIVE_QUEUE:
            ends = [
                self._ack_in_order(connection, topic, batch.group, batch.queue_id, offset, batch.pop_time)
                for offset in offsets
            ]
            return NOT_NOTED if NOT_NOTED in ends else max(ends)
        ack = AckMsg(
            topic, batch.group, batch.queue_id, batch.start_offset, batch.pop_time,
            broker_name or self._own.broker_name, offsets, is_batch=True,
        )  # fmt: skip
        return await self._ack(ack, batch.revive_queue_id, batch.pop_time + batch.invisible_time)

    async def _ack(self, ack: AckMsg, revive_qid: int, revive_time_ms: int) -> int:
        """Process one ack. Returns the physical offset that must be safe before the client is answered; 0: none;
        NOT_NOTED: the client cannot be answered.

        The check point of an ack that is repeated may have ended by the first one. The other record precedes this one
        in the log, because records that the store refused before are written first."""
        self._count(ack.group, ack.topic, len(ack.offsets))
        holders: dict[LiveCheckPoint, list[int]] = {}
        for offset in ack.offsets:
            live = self._buffer.holder(ack.key, offset)
            if live is not None:
                holders.setdefault(live, []).append(offset)
        ends = [self._buffer.ack(live, offsets).end_offset for live, offsets in holders.items()]
        held = {offset for offsets in holders.values() for offset in offsets}
        ack.offsets = [offset for offset in ack.offsets if offset not in held]
        if ack.offsets:
            ends.append(await self._ack_elsewhere(ack, revive_qid, revive_time_ms))
        return NOT_NOTED if NOT_NOTED in ends else max(ends)

    async def _ack_elsewhere(self, ack: AckMsg, revive_qid: int, revive_time_ms: int) -> int:
        """Process an ack, as `_ack` does, of a message whose check point is not in memory."""
        if self._buffer.noted_end() == NOT_NOTED:
            return NOT_NOTED
        result = await self._records.put_ack(ack, revive_qid, revive_time_ms)
        if not result.ok:
            why = result.remark or result.status.name
            log.error("an ack of %s@%s could not be stored: %s", ack.topic, ack.group, why)
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the ack could not be stored, so the message comes again: {why}"
            )
        return max(0, result.end_offset)

    def _ack_in_order(
        self, connection: Connection, topic: str, group: str, queue_id: int, offset: int, pop_time: int
    ) -> int:
        if not (
            self._orders.knows(topic, group, queue_id)
            or (self._is_from_before(topic, queue_id, offset) and self._is_stored_by(topic, queue_id, offset, pop_time))
        ):
            return self._buffer.noted_end()
        known, end = self._orders.ack(topic, group, queue_id, offset, pop_time, connection.remote_address)
        if not known:
            raise RequestRefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{topic}@{group}@{queue_id}, commit:{offset}: it was not given out, /"
                f"{connection.remote_address}",
            )
        self._count(group, topic, 1)
        return end

    def _was_there(self, topic: str, queue_id: int, offset: int, pop_time: int) -> bool:
        """Return whether the message is there and may be the one that was popped at `pop_time`, in ms. If not, the
        receipt is for a message of a deleted topic of the same name, or for one that a loss of power, or a change of
        master, has taken: another may have its place. A message that was stored later than `pop_time` may be the one if
        the clock was set back in between."""
        if self._is_stored_by(topic, queue_id, offset, pop_time):
            return True
        is_older = self._is_from_before(topic, queue_id, offset) or self._buffer.may_have_handed_over(pop_time)
        return is_older and self._store.deletions.known(topic) == 0

    def _is_stored_by(self, topic: str, queue_id: int, offset: int, pop_time: int) -> bool:
        return 0 <= self._store.store_time_at(topic, queue_id, offset) <= pop_time

    def _is_from_before(self, topic: str, queue_id: int, offset: int) -> bool:
        """Return whether the message was stored before this broker became its group's active one, so that another may
        have given it out, or this one in its last run."""
        units = self._store.queue_units(topic, queue_id, offset, 1)
        return bool(units) and units[0][0] < self._log_began_at()

    def _count(self, group: str, topic: str, acks: int) -> None:
        self._stats.add(names.GROUP_ACK_NUMS, f"{topic}@{group}", acks)
        self._stats.add(names.BROKER_ACK_NUMS, self._own.cluster, acks)

    async def _safe(self, end_offset: int) -> None:
        """Wait until the log up to `end_offset` is as safe as the settings promise. Raises RequestRefusedError if that
        takes too long, or if the journal did not take the record."""
        if end_offset == NOT_NOTED:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, NOT_STORED_REMARK)
        outcome = self._acknowledgement.outcome(end_offset) if end_offset > 0 else None
        code = ResponseCode.SUCCESS if outcome is None else await outcome
        if code is not ResponseCode.SUCCESS:
            raise RequestRefusedError(code, unsafe_remark(code))

    # --- invisible time ----------------------------------------------------------------------------------------------

    async def change_invisible_time(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle a change of the invisible time: make a new check point for one message, and acknowledge the old one. A
        receipt whose time is over, and whose check point is not in memory any more, is refused: its message may have
        been given again, and would come twice from now on. The same holds for a receipt from before an earlier change
        of the time, if the changed time is over, because the consumer may not have received the newer receipt."""
        await self._ready()
        header = ChangeInvisibleTimeRequestHeader.decode(request.ext)
        self._checks.message(
            connection, header.topic, header.consumer_group, header.queue_id, header.offset, may_be_end=False
        )
        handle = parse_extra_info(header.extra_info)
        if handle.is_order:
            return await self._change_in_order(request, header, handle)
        point = PopCheckPoint(
            header.topic, header.consumer_group, header.queue_id, header.offset, self._clock.wall_ms(),
            header.invisible_time, self._own.broker_name, [0], 1, suspend=header.suspend,
        )  # fmt: skip
        while self._buffer.is_known(point):
            point.pop_time += 1
        old = AckMsg(
            header.topic, header.consumer_group, header.queue_id, handle.start_offset, handle.pop_time,
            handle.broker_name, [header.offset],
        )  # fmt: skip
        if self._buffer.is_given_again(old.key, header.offset):
            raise RequestRefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the invisible time of message {header.offset} of {header.topic}-{header.queue_id} was changed before "
                f"by this receipt, and the new time is over: {header.consumer_group} gets the message again, and its "
                "time is not changed; ask for a longer time, or change it earlier",
            )
        live = self._buffer.holder(old.key, header.offset)
        if live is not None:
            self._count(old.group, old.topic, 1)
            end = self._buffer.replace(point, handle.revive_qid, live, header.offset, by=old.key).end_offset
        elif self._is_done(header, handle):  # one more check point would have the message delivered once more
            end = self._buffer.noted_end()
        else:
            until_ms = handle.pop_time + handle.invisible_time
            self._buffer.add_renewed(point, handle.revive_qid, by=old.key, until_ms=until_ms)
            self._count(old.group, old.topic, 1)
            try:
                end = await self._ack_elsewhere(old, handle.revive_qid, until_ms)
            except RequestRefusedError:
                self._buffer.take_away(point)
                raise
            if end == NOT_NOTED:  # not noted: the check point in the revive topic keeps holding the message
                self._buffer.take_away(point)
        self._stats.add(names.GROUP_CK_NUMS, f"{header.topic}@{header.consumer_group}")
        self._stats.add(names.BROKER_CK_NUMS, self._own.cluster)
        await self._safe(end)
        return _changed(request, point.pop_time, header.invisible_time, handle.revive_qid)

    def _is_done(self, header: ChangeInvisibleTimeRequestHeader, handle: ExtraInfo) -> bool:
        """Return whether a message whose check point is not in memory is acknowledged, or is not there any more. Raises
        RequestRefusedError if its invisible time is over, so that it may have been given again."""
        late_ms = self._clock.wall_ms() - handle.pop_time - handle.invisible_time
        if late_ms >= 0:
            raise RequestRefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the invisible time of message {header.offset} of {header.topic}-{header.queue_id} was over {late_ms} "
                f"ms ago: {header.consumer_group} gets the message again, and its time is not changed; ask for a "
                "longer time when it is popped, or change it earlier",
            )
        is_there = self._was_there(header.topic, header.queue_id, header.offset, handle.pop_time)
        return not is_there or self._buffer.has_ended(handle.pop_time)

    async def _change_in_order(
        self, request: RemotingCommand, header: ChangeInvisibleTimeRequestHeader, handle: ExtraInfo
    ) -> RemotingCommand:
        visible_ms = min(self._clock.wall_ms() + header.invisible_time, LATEST_MS)
        known, end = self._orders.change_visible_time(
            header.topic, header.consumer_group, header.queue_id, header.offset, handle.pop_time, visible_ms
        )
        if not known:
            raise RequestRefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"message {header.offset} of {header.topic}-{header.queue_id} is not held by this receipt: it was not "
                f"given out, or its invisible time was over and {header.consumer_group} was given the queue again; "
                "ask for a longer time when it is popped, or change it earlier",
            )
        await self._safe(end)
        return _changed(request, handle.pop_time, visible_ms - handle.pop_time, handle.revive_qid)


def _changed(request: RemotingCommand, pop_time: int, invisible_time: int, revive_qid: int) -> RemotingCommand:
    ext = {"popTime": str(pop_time), "invisibleTime": str(invisible_time), "reviveQid": str(revive_qid)}
    return request.reply(ResponseCode.SUCCESS, None, ext)
