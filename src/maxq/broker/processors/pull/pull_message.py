"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): read on from an offset, or wait for messages.

A pull is one or more passes over the same steps: check, read, answer. The first may park it (longpolling/);
messages or the safety net bring it back as a replay, which may leave it parked; the last pass answers in any case.
Message bytes leave as views of the mapped log. A reader that is far behind reads pages that are not in memory: those
are brought in by the executor before the loop writes them to the socket.

Source:
    broker/processor/{PullMessageProcessor,DefaultPullMessageResultHandler}.java.
"""

import logging
from typing import NamedTuple

from maxq.broker.bundles import Clients, Environment, Limits, Messages, Tables
from maxq.broker.fast_path.pull_plans import PullPlans
from maxq.broker.longpolling.pull_request_hold_service import HeldPull, PullRequestHoldService
from maxq.broker.processors.pull.deferred_replies import DeferredReplies
from maxq.broker.processors.pull.pull_checks import CheckedPull, PullChecks
from maxq.broker.processors.pull.pull_read_rules import AHEAD_WAIT_MS
from maxq.broker.processors.refusal import Refusal
from maxq.broker.stats import names
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PULL_FLAG_COMMIT_OFFSET, PULL_FLAG_SUSPEND, PullMessageRequestHeader
from maxq.protocol.offset_runs import written_runs
from maxq.remoting.server import Connection, RemotingServer
from maxq.store.read.gather_cy import OMIT_BODY, OMIT_BODY_AND_PROPERTIES, OMIT_NOTHING
from maxq.store.store_results import OMIT_RECORDS, BulkRead, GetMessageResult, GetMessageStatus

log = logging.getLogger(__name__)

_SHORT_POLLING_FLOOR_MS = 1
_QUOTA_WAIT_MS = 1000  # longest wait, in ms, of a pull that may not be held and whose group is above its quota
_ROUNDS = 10  # reads of one parked pull for one arrival
_MAX_BYTES = 128 << 20  # most bytes of a pull that states no limit
_OMITTED = {"body": OMIT_BODY, "body,properties": OMIT_BODY_AND_PROPERTIES, "records": OMIT_RECORDS}

_CODES: dict[GetMessageStatus, ResponseCode] = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
#: 21 when the reader expected something there, 19 when it starts on an empty queue.
_EMPTY_QUEUE = (GetMessageStatus.NO_MESSAGE_IN_QUEUE, GetMessageStatus.NO_MATCHED_LOGIC_QUEUE)
#: Answers after which the next pull of its kind may be answered from what is remembered of this one.
_LEARNED = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND)
#: A parked pull whose replay ends like this may go on waiting.
_NOTHING_YET = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)


class _Outcome(NamedTuple):
    """The result of a read, and the answer made from it."""

    result: GetMessageResult
    code: ResponseCode
    remark: str
    suggested_id: int  # id of the broker to ask next
    is_ahead: bool = False  # the reader is ahead of this slave's copy of the queue: a short wait may help


class PullMessageProcessor:
    """Answers pulls. `hold_service` parks those without new messages.

    Attributes:
        rules: decides which readers are served here, and which are sent to another broker.
    """

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        clients: Clients,
        messages: Messages,
        limits: Limits,
        plans: PullPlans,
        hold_service: PullRequestHoldService,
    ) -> None:
        self._settings = env.settings
        self._store = messages.store
        self._checks = PullChecks(env, tables, clients.subscriptions)
        self._offsets = tables.offsets
        self._hold_service = hold_service
        self._stats = env.stats
        self._clock = env.clock
        self._quotas = limits.quotas
        self.rules = plans.rules
        self._later = DeferredReplies(env, limits, self._first_pass)
        self._plans = plans
        self._rpc_latency = env.rpc_latency

    def register(self, server: RemotingServer) -> None:
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            server.register(code, self)

    def __call__(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Process a pull for the first time. Returns None if it was parked or waits for the disk."""
        return self._first_pass(connection, request, was_read=False)

    def _first_pass(self, connection: Connection, request: RemotingCommand, was_read: bool) -> RemotingCommand | None:
        if (refusal := self.rules.refusal()) is not None:
            return refusal.reply_to(request)
        header = PullMessageRequestHeader.decode(request.ext)
        pull = self._checks.check(connection, request.code, header)
        if isinstance(pull, Refusal):
            return pull.reply_to(request)
        if self._quotas.pull_wait_ms(header.consumer_group, request):
            self._wait_for_quota(connection, request, header)
            return None
        if self._is_reset(header):
            self._tell_of_reset(connection, request, pull)
            return None
        outcome = self._read(pull, header.queue_offset, may_wait=not was_read)
        if outcome.result.must_read_first:
            self._later.when_read(connection, request, outcome.result)
            return None
        if header.sys_flag & PULL_FLAG_COMMIT_OFFSET and self._may_commit(header, outcome):
            self._offsets.commit_offset(
                connection.remote_address, header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        if outcome.code in _LEARNED and header.maxq_max_bytes is None:
            self._plans.remember(header, pull.topic, pull.group, pull.subscription, pull.wanted)
        if (outcome.code == ResponseCode.PULL_NOT_FOUND or outcome.is_ahead) and self._park(
            connection, request, header, at_most_ms=AHEAD_WAIT_MS if outcome.is_ahead else None
        ):
            return None
        return self._answer(connection, request, pull, outcome, was_read)

    def _may_commit(self, header: PullMessageRequestHeader, outcome: _Outcome) -> bool:
        """Return whether the offset that a pull commits counts. One behind the end of a master's queue does not:
        messages that come later are new to the group."""
        if outcome.code == ResponseCode.PULL_OFFSET_MOVED:
            return False
        if self.rules.is_slave or header.commit_offset <= header.queue_offset:
            return True
        return header.commit_offset <= self._store.taken_offset(header.topic, header.queue_id)

    def replay(self, held: HeldPull, last: bool) -> bool:
        """Try again to answer a parked pull; returns True if it was answered. An accepted pull is not refused because
        this slave may no longer serve reads: its master is back, and the answer sends the reader there."""
        connection, (request, header) = held.connection, held.asked()
        pull = self._checks.check(connection, request.code, header)
        if isinstance(pull, Refusal):
            connection.send(pull.reply_to(request))
            return True
        if self._quotas.pull_wait_ms(header.consumer_group, request):
            self._wait_for_quota(connection, request, header)
            return True
        if self._is_reset(header):
            self._tell_of_reset(connection, request, pull)
            return True
        outcome = self._read(pull, held.offset)
        for _ in range(_ROUNDS):  # one read may not see all that one arrival brought
            if last or outcome.code not in _NOTHING_YET:
                break
            # Messages that the filter rejects are behind it now.
            held.offset = max(held.offset, outcome.result.next_begin_offset)
            if held.offset >= outcome.result.max_offset:
                return False
            outcome = self._read(pull, held.offset)
        if outcome.code == ResponseCode.PULL_NOT_FOUND and held.offset > held.first_offset:
            # Nothing for this reader, but its client's offset moves on.
            code, remark = ResponseCode.PULL_RETRY_IMMEDIATELY, GetMessageStatus.NO_MATCHED_MESSAGE.name
            outcome = outcome._replace(code=code, remark=remark)
        reply = self._answer(connection, request, pull, outcome)
        if reply is not None:
            connection.send(reply)
            if self._rpc_latency is not None:
                waited_ms = self._clock.monotonic_ms() - held.began_ms
                self._rpc_latency.answered(request, reply, waited_ms, long_polling=True)
        return True

    # ---- reading ----------------------------------------------------------------------------------------------

    def _read(self, pull: CheckedPull, offset: int, may_wait: bool = False) -> _Outcome:
        header = pull.header
        topic, queue_id, group = header.topic, header.queue_id, header.consumer_group
        if self.rules.is_apart:
            return self._elsewhere(pull, offset)
        most = _MAX_BYTES if header.max_msg_bytes is None else header.max_msg_bytes
        result = self._store.get_message(
            group,
            topic,
            queue_id,
            offset,
            header.max_msg_nums,
            pull.subscription,
            max_bytes=most,
            wanted=pull.wanted,
            may_wait=may_wait,
            bulk=self._bulk(header),
        )
        if result.filtered_count:
            self._stats.add(names.GROUP_FILTERED_NUMS, f"{topic}@{group}", result.filtered_count)
        code = _response_code(result, offset)
        direction = self.rules.direct(code, pull.group, result.suggest_pulling_from_slave)
        is_ahead = offset > result.max_offset and self.rules.may_wait_for_copy(code)
        return _Outcome(result, direction.code, result.status.name, direction.broker_id, is_ahead)

    def _bulk(self, header: PullMessageRequestHeader) -> BulkRead | None:
        """Return the options of a bulk reader. If bodies are requested, they are limited by bulkPullMaxBytes."""
        most = self._settings.broker.bulk_pull_max_bytes
        if header.maxq_max_bytes is None or header.maxq_max_bytes <= 0 or not most:
            return None
        omit = _OMITTED.get(header.maxq_omit or "", OMIT_NOTHING)
        return BulkRead(header.maxq_max_bytes if omit == OMIT_RECORDS else min(header.maxq_max_bytes, most), omit)

    def _is_reset(self, header: PullMessageRequestHeader) -> bool:
        """Return whether the group is to be told that an operator has reset its offset of the queue. Only a master
        reports it, and only once; for the parts of a static topic the leader of the global queue does."""
        return (
            self._offsets.any_reset
            and self._settings.broker.use_server_side_reset_offset
            and not (self.rules.is_slave or self.rules.is_apart or header.lo == "false")
            and self._offsets.has_offset_reset(header.topic, header.consumer_group, header.queue_id)
        )

    def _tell_of_reset(self, connection: Connection, request: RemotingCommand, pull: CheckedPull) -> None:
        """Answer a pull with the offset to which an operator has reset the group; if another pull is told before, read
        for this one."""
        header = pull.header

        async def moved() -> RemotingCommand | None:
            offset = await self._offsets.take_reset(
                header.topic, header.consumer_group, header.queue_id, can_be_told=lambda: not connection.is_closed
            )
            if offset is None:
                return None
            result = self._without_messages(pull, GetMessageStatus.OFFSET_OVERFLOW_BADLY, offset)
            suggested_id = self.rules.suggest(pull.group, is_behind=False)
            outcome = _Outcome(result, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", suggested_id)
            return self._answer(connection, request, pull, outcome)

        self._later.after(connection, request, moved)

    def _elsewhere(self, pull: CheckedPull, offset: int) -> _Outcome:
        """Return the answer of a slave whose log is another than its master's."""
        result = self._without_messages(pull, GetMessageStatus.NO_MATCHED_MESSAGE, offset)
        remark = "the log of this slave differs from its master's, which has other messages there: read from the master"
        is_waiting = not self.rules.master_is_there()
        return _Outcome(result, ResponseCode.PULL_RETRY_IMMEDIATELY, remark, MASTER_ID, is_waiting)

    def _without_messages(self, pull: CheckedPull, status: GetMessageStatus, offset: int) -> GetMessageResult:
        """Return a result that has no messages and tells the group to go on at `offset`."""
        topic, queue_id = pull.header.topic, pull.header.queue_id
        return GetMessageResult(
            status,
            next_begin_offset=offset,
            min_offset=self._store.min_offset(topic, queue_id),
            max_offset=self._store.max_offset(topic, queue_id),
        )

    def _park(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        *,
        at_most_ms: int | None,
    ) -> bool:
        """Park a pull. Returns True if it waits now; otherwise the client gets an empty answer and asks again."""
        broker = self._settings.broker
        if not header.sys_flag & PULL_FLAG_SUSPEND or request.is_oneway:
            return False
        if self._hold_service.held_count >= broker.pull_thread_pool_queue_capacity:
            return False
        wait_ms = header.suspend_timeout_millis if broker.long_polling_enable else broker.short_polling_time_mills
        if at_most_ms is not None:
            wait_ms = min(wait_ms, at_most_ms)
        self._hold_service.hold(
            HeldPull(
                connection,
                request,
                header,
                (header.topic, header.queue_id),
                header.queue_offset,
                header.queue_offset,
                self._clock.monotonic_ms() + max(wait_ms, _SHORT_POLLING_FLOOR_MS),
                self.replay,
                self._clock.monotonic_ms(),
            )
        )
        return True

    # ---- answering --------------------------------------------------------------------------------------------

    def _answer(
        self,
        connection: Connection,
        request: RemotingCommand,
        pull: CheckedPull,
        outcome: _Outcome,
        was_read: bool = False,
    ) -> RemotingCommand | None:
        """Return the reply; None if its bytes must be read from the disk first and it is sent later."""
        header, result = pull.header, outcome.result
        self._offsets.commit_pull_offset(
            connection.remote_address, header.consumer_group, header.topic, header.queue_id, result.next_begin_offset
        )
        ext = {
            "suggestWhichBrokerId": str(outcome.suggested_id),
            "nextBeginOffset": str(result.next_begin_offset),
            "minOffset": str(result.min_offset),
            "maxOffset": str(result.max_offset),
            "topicSysFlag": str(pull.topic.topic_sys_flag),
            "groupSysFlag": str(pull.group.group_sys_flag),
        }
        is_bulk = self._bulk(header) is not None
        incarnation = self._store.deletions.known(header.topic) if is_bulk else None
        if incarnation is not None:
            ext["maxqIncarnation"] = str(incarnation)
        if is_bulk and result.passed_over:
            ext["maxqPassedOver"] = written_runs(result.passed_over)
        if outcome.code != ResponseCode.SUCCESS:
            return request.reply(outcome.code, outcome.remark, ext)
        if is_bulk:
            ext["maxqCount"], ext["maxqBytes"] = str(result.message_count), str(result.total_bytes)
        self._count(pull, result, was_read or bool(result.cold))
        self._quotas.delivered(header.consumer_group, request, result.message_count, result.total_bytes)
        reply = request.reply(outcome.code, outcome.remark, ext, result.buffers)
        if not result.cold:
            return reply
        self._later.send_when_read(connection, request, reply, (result,))
        return None

    def _count(self, pull: CheckedPull, result: GetMessageResult, from_disk: bool) -> None:
        header = pull.header
        counter = self._stats.get_counter(header.consumer_group, header.topic, header.queue_id)
        latency_ms = self._clock.monotonic_ms() - pull.began_ms
        if latency_ms > self._stats.longest_get_ms:
            self._stats.longest_get_ms = latency_ms
        counter.add(result.message_count, result.total_bytes, latency_ms, from_disk)
        counter.fall_behind_bytes = max(0, self._store.max_physical_offset - result.last_physical_offset)

    def _wait_for_quota(
        self, connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> None:
        suspends = header.sys_flag & PULL_FLAG_SUSPEND and header.suspend_timeout_millis > 0
        most_ms = header.suspend_timeout_millis if suspends else _QUOTA_WAIT_MS
        self._later.when_allowed(
            connection, request, header.consumer_group, most_ms, lambda: self._not_now(request, header)
        )

    def _not_now(self, request: RemotingCommand, header: PullMessageRequestHeader) -> RemotingCommand:
        offset, topic, queue_id = str(header.queue_offset), header.topic, header.queue_id
        ext = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": offset,
            "minOffset": str(self._store.min_offset(topic, queue_id)),
            "maxOffset": str(self._store.max_offset(topic, queue_id)),
        }
        remark = self._quotas.pull_remark(header.consumer_group, request)
        return request.reply(ResponseCode.PULL_NOT_FOUND, remark, ext)

    async def drain(self) -> None:
        """Wait for the pulls that wait for the disk; those that wait for a quota are not answered."""
        await self._later.drain()


def _response_code(result: GetMessageResult, offset: int) -> ResponseCode:
    """Returns the response code for the outcome of a read (composeResponseHeader)."""
    if result.status in _EMPTY_QUEUE:
        return ResponseCode.PULL_OFFSET_MOVED if offset != 0 else ResponseCode.PULL_NOT_FOUND
    return _CODES[result.status]
