"""StaticTopicGate: stands before the processors of sends, pulls and offsets, for topics whose queues are global.

A request about a global queue becomes one about the physical queue behind it: here, with the processor that answers
such requests anyway, or at the broker that holds that part of the chain. Its answer is translated back. Requests about
other topics, and those marked `lo=false` (another broker has translated them already), pass as they are.

Source:
    rewriteRequestForStaticTopic and rewriteResponseForStaticTopic of broker/processor/{SendMessageProcessor,
    PullMessageProcessor,ConsumerManageProcessor,AdminBrokerProcessor}.java.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Final, cast

from maxq.access.guard import Guard
from maxq.auth.signature import unsigned
from maxq.broker.processors.pull.pull_read_rules import AHEAD_WAIT_MS
from maxq.broker.tables.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.tables.static_topic.one_by_one import OneByOne
from maxq.broker.tables.static_topic.other_brokers import OtherBrokers
from maxq.broker.tables.static_topic.pull_answers import STANDS_IN, global_pull_answer
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.broker.transaction.half_message import opens_transaction
from maxq.codes import LanguageCode, RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.offsets import ResetOffsetBody
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.body.static_topic import (
    GLOBAL_SCOPE,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    decided,
    item_after,
    item_at,
    mock_broker_name,
)
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PULL_FLAG_COMMIT_OFFSET, PULL_FLAG_SUSPEND
from maxq.protocol.json import json_dialect
from maxq.protocol.message.message_properties import decode_properties
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.connection import Connection, Processor
from maxq.remoting.server import RemotingServer

log = logging.getLogger(__name__)

_END: Final = 1 << 62
#: Requests that only a master accepts: it would not learn of a success that one of its slaves has answered.
_CHANGES: Final = (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)

Rewrite = Callable[[RemotingCommand], RemotingCommand]
Answer = RemotingCommand | Awaitable[RemotingCommand | None] | None


@dataclass(frozen=True, slots=True)
class GlobalQueue:
    """One global queue that this broker leads, and its chain."""

    detail: TopicQueueMappingDetail
    global_id: int
    items: Sequence[LogicQueueMappingItem]

    @property
    def topic(self) -> str:
        return self.detail.topic or ""

    @property
    def leader(self) -> LogicQueueMappingItem:
        return self.items[-1]

    def is_here(self, item: LogicQueueMappingItem) -> bool:
        """Return whether this broker holds an item."""
        return item.bname == self.detail.bname

    def item_at(self, logic_offset: int) -> LogicQueueMappingItem:
        """Return the item that holds a global offset."""
        found = item_at(self.items, logic_offset)
        if found is None:
            raise RequestRefusedError(
                ResponseCode.NOT_LEADER_FOR_QUEUE,
                f"{self.topic}-{self.global_id} is being remapped: where it begins here is not decided yet; ask again",
            )
        return found

    def place(self, logic_offset: int) -> tuple[LogicQueueMappingItem, int]:
        """Return the item in which a group is that is at a global offset, and the physical offset there. No group is in
        an item without messages behind which another one begins: it would have to be asked about its groups."""
        item = self.item_at(logic_offset)
        while item.is_empty and (following := item_after(self.items, item)) is not None:
            item, logic_offset = following, max(logic_offset, following.logic_offset)
        physical = item.to_physical(logic_offset)
        return item, min(physical, item.end_offset) if item.has_end else physical

    def parts(self) -> Sequence[LogicQueueMappingItem]:
        """Return the decided items that may hold messages: one at least."""
        self.item_at(0)
        known = decided(self.items)
        return [item for item in known if not item.is_empty] or known[-1:]


class _Rewriting:
    """A connection that translates late answers to global offsets."""

    def __init__(self, connection: Connection, rewrite: Rewrite) -> None:
        self._connection = connection
        self._rewrite = rewrite

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def __eq__(self, other: object) -> bool:
        return (other._connection if isinstance(other, _Rewriting) else other) is self._connection

    def __hash__(self) -> int:
        return hash(self._connection)

    def send(self, command: RemotingCommand) -> None:
        self._connection.send(self._rewrite(command))


class StaticTopicGate:
    """Translates requests about static topics. `place` wraps the processors. One per broker."""

    def __init__(
        self,
        mappings: TopicQueueMappingManager,
        others: OtherBrokers,
        offsets: ConsumerOffsetManager,
        guard: Guard | None,
        is_slave: Callable[[], bool],
    ) -> None:
        """
        Args:
            offsets: tells of operators' resets that wait for the group's next pull.
            guard: is asked again about a pull when another broker has answered; None: there is no access control.
            is_slave: is this broker one now? It may lack the end of what its master has.
        """
        self._mappings = mappings
        self._is_slave = is_slave
        self._others = others
        self._offsets = offsets
        self._guard = guard
        self._inner: dict[int, Processor] = {}
        self._changes = OneByOne()  # one change at a time of a group's offset in a global queue
        self._change = asyncio.Event()  # set and replaced by the next change of the mappings

    def place(self, server: RemotingServer) -> None:
        """Handle requests for queues of static topics before the processors that the server has for them now."""
        handlers: dict[int, tuple[str, Callable[[GlobalQueue, Connection, RemotingCommand], Answer]]] = {
            RequestCode.SEND_MESSAGE: ("topic queueId", self._send),
            RequestCode.SEND_MESSAGE_V2: ("b e", self._send),
            RequestCode.SEND_BATCH_MESSAGE: ("b e", self._send),
            RequestCode.MAXQ_STAGE_MESSAGES: ("topic queueId", self._stage),
            RequestCode.PULL_MESSAGE: ("topic queueId", self._pull),
            RequestCode.LITE_PULL_MESSAGE: ("topic queueId", self._pull),
            RequestCode.QUERY_CONSUMER_OFFSET: ("topic queueId", self._query_consumer_offset),
            RequestCode.UPDATE_CONSUMER_OFFSET: ("topic queueId", self._update_consumer_offset),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: ("topic queueId", self._search_offset),
            RequestCode.GET_MAX_OFFSET: ("topic queueId", self._max_offset),
            RequestCode.GET_MIN_OFFSET: ("topic queueId", self._min_offset),
            RequestCode.GET_EARLIEST_MSG_STORETIME: ("topic queueId", self._earliest_store_time),
        }
        for code, (names, handle) in handlers.items():
            topic_field, queue_field = names.split()
            inner = server.processor(code)
            self._inner[int(code)] = inner
            server.register(code, self._before(inner, topic_field, queue_field, handle))
        reset = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        self._inner[int(reset)] = server.processor(reset)
        server.register(reset, self._before_resets(server.processor(reset)))

    def mappings_changed(self) -> None:
        """Let readers that wait at the end of an older part ask again."""
        self._change.set()
        self._change = asyncio.Event()

    def _before(
        self,
        inner: Processor,
        topic_field: str,
        queue_field: str,
        handle: Callable[[GlobalQueue, Connection, RemotingCommand], Answer],
    ) -> Processor:
        mappings = self._mappings

        def process(connection: Connection, request: RemotingCommand) -> Answer:
            detail = mappings.table.get(request.ext.get(topic_field, ""))
            is_physical = request.ext.get("lo") == "false" and handle not in (self._send, self._stage)
            if is_physical and self._is_slave():
                return self._here(connection, request, {}, _by_a_stand_in)
            if detail is None or is_physical:
                return inner(connection, request)
            return handle(self._queue(detail, request, queue_field), connection, request)

        return process

    def _before_resets(self, inner: Processor) -> Processor:
        def process(connection: Connection, request: RemotingCommand) -> Answer:
            detail = self._mappings.table.get(request.ext.get("topic", ""))
            if detail is None or request.ext.get("lo") == "false" or self._is_slave():
                return inner(connection, request)
            return self._reset(detail, connection, request)

        return process

    def _queue(self, detail: TopicQueueMappingDetail, request: RemotingCommand, queue_field: str) -> GlobalQueue:
        global_id = HeaderFields(request.ext).required_int(queue_field)
        if global_id < 0:
            global_id = next(iter(_led(detail)), global_id)
        return _led_queue(detail, global_id)

    def _as_it_is(self, queue: GlobalQueue) -> GlobalQueue:
        """Return the present state of a queue after other work had its turn. Raises RequestRefusedError if it has moved
        on."""
        detail = self._mappings.table.get(queue.topic)
        return queue if detail is queue.detail else _led_queue(detail or queue.detail, queue.global_id)

    # --- sends and pulls ----------------------------------------------------------------------------------------------

    def _send(self, queue: GlobalQueue, connection: Connection, request: RemotingCommand) -> Answer:
        leader = queue.leader
        is_v1 = request.code == RequestCode.SEND_MESSAGE
        queue_field, properties_field = ("queueId", "properties") if is_v1 else ("e", "i")
        is_half = opens_transaction(decode_properties(request.ext.get(properties_field)))

        def rewrite(reply: RemotingCommand) -> RemotingCommand:
            if "queueOffset" not in reply.ext:
                return reply
            offset = int(reply.ext["queueOffset"])
            if not is_half:  # the offset of a half message stays physical: its transaction is ended by this number
                offset = leader.to_logic_within(offset)
            return replace(reply, ext={**reply.ext, "queueId": str(queue.global_id), "queueOffset": str(offset)})

        return self._here(connection, request, {queue_field: str(leader.queue_id)}, rewrite)

    def _stage(self, queue: GlobalQueue, connection: Connection, request: RemotingCommand) -> Answer:
        """Stage messages for the physical queue, which is stored with them: at delivery the global queue is found by
        it, wherever it is then."""
        return self._here(connection, request, {"queueId": str(queue.leader.queue_id)}, lambda reply: reply)

    def _pull(self, queue: GlobalQueue, connection: Connection, request: RemotingCommand) -> Answer:
        if self._is_reset(queue, request):
            return self._send_where_it_was_set(queue, connection, request)
        fields = HeaderFields(request.ext)
        asked = fields.required_long("queueOffset")
        item = queue.item_at(asked)
        physical = item.to_physical(asked)
        following = item_after(queue.items, item) if item.has_end and physical >= item.end_offset else None
        if following is not None:
            return _go_on(request, following)
        ext = {"queueId": str(item.queue_id), "queueOffset": str(physical)}
        if item.has_end:
            most = max(1, min(item.end_offset - physical, fields.required_int("maxMsgNums")))
            ext["maxMsgNums"] = str(most)

        is_slave = queue.is_here(item) and self._is_slave()

        def rewrite(reply: RemotingCommand) -> RemotingCommand:
            return global_pull_answer(_by_a_stand_in(reply) if is_slave else reply, queue.items, item, physical)

        if queue.is_here(item):
            commit = fields.opt_long("commitOffset")
            flags = fields.required_int("sysFlag")
            # an earlier part does not grow: messages that are not there are in a later part
            if item is not queue.leader:
                flags &= ~PULL_FLAG_SUSPEND
            is_first = not self._changes.is_busy(_changed(queue, request.ext.get("consumerGroup", "")))
            if commit and commit >= item.logic_offset and item is queue.leader and is_first:
                ext["commitOffset"] = str(item.to_physical(commit))
            else:
                # the offset belongs to another part, goes back, or must wait: the reader commits it in a request of its
                # own
                flags &= ~PULL_FLAG_COMMIT_OFFSET
            ext["sysFlag"] = str(flags)
            answer = self._here(connection, request, ext, rewrite)
            return answer if item is queue.leader else self._hold(request, answer)
        ext["sysFlag"] = str(fields.required_int("sysFlag") & ~(PULL_FLAG_COMMIT_OFFSET | PULL_FLAG_SUSPEND))

        def rewrite_other(reply: RemotingCommand) -> RemotingCommand:
            """Translate the answer of a broker of another group. It suggests a broker of that group; the reader must
            ask the master of this one."""
            reply = rewrite(reply)
            if "suggestWhichBrokerId" in reply.ext:
                reply = replace(reply, ext={**reply.ext, "suggestWhichBrokerId": str(MASTER_ID)})
            return reply

        return self._pull_elsewhere(connection, request, self._elsewhere(item, request, ext, rewrite_other))

    async def _pull_elsewhere(
        self, connection: Connection, request: RemotingCommand, answer: Awaitable[RemotingCommand]
    ) -> RemotingCommand:
        """Answer a reader, who may still read, with the answer of another broker, which is asked in this broker's
        name."""
        since = None if self._guard is None else self._guard.rules
        reply = await self._hold(request, answer)
        assert reply is not None, "another broker answers"
        refused = None if self._guard is None else self._guard.again(connection, request, since)
        return refused or reply

    async def _hold(self, request: RemotingCommand, answer: Answer) -> RemotingCommand | None:
        """Return the answer about an older part. If it has no more messages, and a reader that would wait cannot go on
        yet, because the next part has no place, or a slave lacks the end or has another log than its master, it waits
        here for a moment: it asks again at once."""
        change = self._change
        reply = await answer if inspect.isawaitable(answer) else answer
        may_wait = HeaderFields(request.ext).required_int("sysFlag") & PULL_FLAG_SUSPEND
        if may_wait and reply is not None and _sends_nowhere(request, reply):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(change.wait(), AHEAD_WAIT_MS / 1000)
        return reply

    # --- offsets ------------------------------------------------------------------------------------------------------

    async def _query_consumer_offset(
        self, queue: GlobalQueue, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        """Search from the leader back to the first part for the newest one in which the group has consumed. One in
        which there is nothing to consume holds up no group while its broker is away. It does not count, either, if the
        group has gone back from a later one: it may not have heard of that."""
        known = decided(queue.items)
        only = len(queue.items) == 1 and queue.leader.logic_offset == 0
        not_zero = {} if only else {"setZeroIfNotFound": "false"}
        remark: str | None = "Not found, maybe this group consumer boot first"
        silent: LogicQueueMappingItem | None = None
        has_gone_back = False
        for item in reversed(known):
            if has_gone_back and item.is_empty:
                continue
            answer = await self._ask_if_there(queue, item, connection, request, not_zero)
            if answer is None:
                silent = item
            elif answer.code == ResponseCode.SUCCESS:
                return _with_offset(answer, item.to_logic(int(answer.ext["offset"])))
            elif answer.code == ResponseCode.QUERY_NOT_FOUND:
                remark = answer.remark
                has_gone_back = has_gone_back or answer.ext.get("maxqWentBack") == "true"
            else:
                return answer
        if silent is not None and all(item.is_empty for item in known if item.gen < silent.gen):
            # no message lies before it, so the group may begin there
            return _with_offset(request.reply(), silent.logic_offset)
        return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)

    async def _update_consumer_offset(
        self, queue: GlobalQueue, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        """Commit in the part that holds the offset, and end what the group has committed in later ones: it has gone
        back. While an operator's reset waits for the next pull, commits are ignored."""
        fields = HeaderFields(request.ext)
        offset, group = fields.required_long("commitOffset"), fields.required_str("consumerGroup")
        async with self._changes.turn(_changed(queue, group)):
            queue = self._as_it_is(queue)
            item, physical = queue.place(offset)
            if self._is_reset(queue, request):
                return request.reply(ResponseCode.SUCCESS, "Offset has been previously reset")
            if fields.opt_bool("maxqIfNone") and len(queue.items) > 1:
                known = await self._committed(queue, connection, request)
                if known.code != ResponseCode.QUERY_NOT_FOUND:
                    return request.reply(known.code, known.remark)
            physical = max(physical, item.start_offset)  # a lower offset belongs to a part that has expired
            answer = await self._ask(queue, item, connection, request, {"commitOffset": str(physical)})
            if answer.code != ResponseCode.SUCCESS or fields.opt_bool("maxqIfAhead"):
                return answer
            return await self._take_back(queue, item, connection, request, answer)

    async def _take_back(
        self,
        queue: GlobalQueue,
        item: LogicQueueMappingItem,
        connection: Connection,
        request: RemotingCommand,
        answer: RemotingCommand,
    ) -> RemotingCommand:
        """End what a group has committed behind an item; returns the last answer. One without messages whose broker is
        away is passed over: the last one notes that the group has gone back, so that the other does not count."""
        later = [other for other in decided(queue.items) if other.gen > item.gen]
        for other in later:
            ext = {"commitOffset": "-1"}
            if other is not later[-1]:
                told = await self._ask_if_there(queue, other, connection, request, ext)
            else:
                ext |= {"maxqGoesBack": "true"} if any(passed.is_empty for passed in later) else {}
                told = await self._ask(queue, other, connection, request, ext)
            if told is not None and told.code != ResponseCode.SUCCESS:
                return told
            answer = told or answer
        return answer

    async def _committed(self, queue: GlobalQueue, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Return the answer to QUERY_CONSUMER_OFFSET about the group of another request."""
        ext = {**request.ext, "setZeroIfNotFound": "false", "maxqOnlyLooks": "true"}
        query = replace(request, code=int(RequestCode.QUERY_CONSUMER_OFFSET), ext=ext)
        return await self._query_consumer_offset(queue, connection, query)

    # --- resets -------------------------------------------------------------------------------------------------------

    async def _reset(
        self, detail: TopicQueueMappingDetail, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        """Reset a group in the global queues that this broker leads, or in one of them, if all parts of them would do
        it; answers with the global offsets. The brokers of other queues are asked by themselves."""
        queue_id = HeaderFields(request.ext).opt_int("queueId")
        if queue_id is not None and queue_id >= 0:
            queues = [self._queue(detail, request, "queueId")]
        else:
            queues = [GlobalQueue(detail, number, detail.hosted_queues[number]) for number in _led(detail)]
        table: dict[MessageQueue, int] = {}
        scope = mock_broker_name(detail.scope or GLOBAL_SCOPE)
        group = request.ext.get("group", "")
        for only_checks, queue in product((True, False), queues):
            async with self._changes.turn(_changed(queue, group)):
                answer = await self._reset_parts(self._as_it_is(queue), connection, request, only_checks=only_checks)
            if answer.code != ResponseCode.SUCCESS:
                return request.reply(answer.code, answer.remark)
            table[MessageQueue(queue.topic, scope, queue.global_id)] = int(answer.ext["offset"])
        body = ResetOffsetBody(table)
        if request.language == LanguageCode.CPP:
            return request.reply(body=json_dialect.dumps(body.to_json_for_cpp()))
        return request.reply(body=body.encode())

    async def _reset_parts(
        self, queue: GlobalQueue, connection: Connection, request: RemotingCommand, *, only_checks: bool
    ) -> RemotingCommand:
        """Reset a group in all parts of a queue, the leader's last, which then tells the members. Groups that pop find
        the offset in each part. Groups that pull continue in the first part in which the offset is not the end; they
        have no commits behind it. A part that ends before the offset, and whose broker is away, is left out, because
        commits there have no effect beside the new offset. (Groups that pop continue there when the broker is back.) So
        is a part that never had a message.

        Args:
            only_checks: ask the parts whether they would do it, and change nothing.

        Returns:
            The answer of the last part, with the global offset; the first refusal.

        Raises:
            RequestRefusedError: the broker of another part is away.
        """
        queue.item_at(0)
        if not queue.leader.is_decided:
            remark = f"{queue.topic}-{queue.global_id} is being remapped: where its last part begins is not decided yet"
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"{remark}; reset the offset again")
        fields = HeaderFields(request.ext)
        offset = fields.opt_long("offset")
        has_offset = offset is not None and offset >= 0 and (fields.opt_int("queueId") or 0) >= 0
        wanted, place = queue.place(offset) if has_offset and offset is not None else (None, 0)
        found: int | None = None
        answer = request.reply()
        for item in queue.items:
            ext = {"offset": "-1"}
            if only_checks:
                ext |= {"maxqOnlyChecks": "true"}
            if found is not None:
                ext |= {"maxqGoesBack": "true"}
            if wanted is not None:
                ext |= {"timestamp": "-1" if item.gen < wanted.gen else "0"}  # -1: at the end; 0: at the start
            if item is wanted:
                ext |= {"offset": str(place)}
            try:
                told = await self._ask_if_there(queue, item, connection, request, ext)
            except RequestRefusedError as error:
                self._as_it_is(queue)
                if found is None and await self._ends_before(queue, item, wanted, connection, request):
                    if only_checks:
                        log.warning("group %s is not reset in a part of %s-%d that ends before the place: %s",
                                    fields.opt_str("group"), queue.topic, queue.global_id, error)  # fmt: skip
                    continue
                raise RequestRefusedError(
                    error.response_code,
                    f"{error}. The group may have to go on in that part or behind it, and nothing else is known of "
                    f"queue {queue.global_id}: start the broker, and reset again",
                ) from error
            if told is None:
                continue
            answer = told
            if answer.code != ResponseCode.SUCCESS:
                return answer
            (physical,) = ResetOffsetBody.decode(answer.body_bytes).offset_table.values()
            is_end = item.has_end and physical >= item.end_offset and item is not wanted
            if found is None and (item is queue.leader or not is_end):
                found = item.to_logic(physical)
        assert found is not None, "the leader's part has no end"
        return _with_offset(answer, found)

    async def _ends_before(
        self,
        queue: GlobalQueue,
        item: LogicQueueMappingItem,
        wanted: LogicQueueMappingItem | None,
        connection: Connection,
        request: RemotingCommand,
    ) -> bool:
        """Return whether the place of a reset is behind a part whose broker is away. Of a reset to a time a later part
        tells it: a message there that is older than the time came after all of this part.

        Args:
            wanted: the part of the place; None: it is a time, or the end if that is negative.
        """
        if wanted is not None:
            return item.gen < wanted.gen
        time = HeaderFields(request.ext).required_long("timestamp")
        if time < 0:
            return item is not queue.leader
        ext = {"topic": queue.topic, "timestamp": str(time)}
        for later in queue.items:
            if later.gen <= item.gen:
                continue
            codes = RequestCode.GET_MIN_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            questions = [replace(request, code=int(code), ext=ext) for code in codes]
            try:
                answers = [await self._ask(queue, later, connection, question, {}) for question in questions]
            except RequestRefusedError:
                continue
            if all(answer.code == ResponseCode.SUCCESS for answer in answers):
                low, place = (int(answer.ext["offset"]) for answer in answers)
                if place > max(low, later.start_offset):
                    return True
        return False

    def _is_reset(self, queue: GlobalQueue, request: RemotingCommand) -> bool:
        """Return whether an operator's reset of the group waits for its next pull of a queue. A slave tells nobody."""
        if not self._offsets.any_reset or self._is_slave():
            return False
        group = request.ext.get("consumerGroup", "")
        return self._offsets.has_offset_reset(queue.topic, group, queue.leader.queue_id)

    async def _send_where_it_was_set(
        self, queue: GlobalQueue, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """End the reset that waits for a group, and answer its pull with the offset at which it must continue."""
        group = request.ext.get("consumerGroup", "")
        async with self._changes.turn(_changed(queue, group)):
            queue = self._as_it_is(queue)
            if self._is_reset(queue, request):
                answer = await self._committed(queue, connection, request)
                if answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
                    return answer
                waiting = await self._offsets.take_reset(
                    queue.topic, group, queue.leader.queue_id, can_be_told=lambda: not connection.is_closed
                )
                if answer.code == ResponseCode.SUCCESS:
                    place = int(answer.ext["offset"])
                else:  # the topic was deleted, and its offsets with it
                    place = queue.leader.to_logic(waiting or 0)
                return _go_to(request, place, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        pulled = self._pull(queue, connection, request)  # another member has heard of it meanwhile
        return await pulled if inspect.isawaitable(pulled) else pulled

    async def _search_offset(
        self, queue: GlobalQueue, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        """Search for the first part that has a message of that time or later; the leader's end if none has."""
        items = queue.parts()
        for item in items:
            answer = await self._ask(queue, item, connection, request, {})
            if answer.code != ResponseCode.SUCCESS:
                return answer
            physical = int(answer.ext["offset"])
            if item is items[-1] or (physical >= 0 and not (item.has_end and physical >= item.end_offset)):
                return _with_offset(answer, item.to_logic(physical))
        raise AssertionError("the last part has an answer")

    async def _max_offset(
        self, queue: GlobalQueue, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        item = queue.item_at(_END)
        answer = await self._ask(queue, item, connection, request, {})
        if answer.code != ResponseCode.SUCCESS:
            return answer
        return _with_offset(answer, item.to_logic(int(answer.ext["offset"])))

    async def _min_offset(
        self, queue: GlobalQueue, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        item = queue.parts()[0]
        answer = await self._ask(queue, item, connection, request, {})
        if answer.code != ResponseCode.SUCCESS:
            return answer
        return _with_offset(answer, item.to_logic_within(int(answer.ext["offset"])))

    async def _earliest_store_time(
        self, queue: GlobalQueue, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        return await self._ask(queue, queue.parts()[0], connection, request, {})

    # --- asking the processors ----------------------------------------------------------------------------------------

    def _here(self, connection: Connection, request: RemotingCommand, ext: dict[str, str], rewrite: Rewrite) -> Answer:
        """Process the request on this broker and rewrite its answer, which may come later."""
        physical = replace(request, ext={**request.ext, **ext, "lo": "false"})
        answer = self._inner[request.code](cast(Connection, _Rewriting(connection, rewrite)), physical)
        if answer is None:
            return None
        if inspect.isawaitable(answer):
            return _rewritten(answer, rewrite)
        assert isinstance(answer, RemotingCommand)
        return rewrite(answer)

    async def _elsewhere(
        self, item: LogicQueueMappingItem, request: RemotingCommand, ext: dict[str, str], rewrite: Rewrite
    ) -> RemotingCommand:
        topic = request.ext.get("topic", "")
        ext = {**unsigned(request.ext), **ext}
        answer = await self._others.ask(item.bname, topic, request.code, ext, or_slave=request.code not in _CHANGES)
        return rewrite(request.reply(answer.code, answer.remark, dict(answer.ext), answer.body))

    async def _ask(
        self,
        queue: GlobalQueue,
        item: LogicQueueMappingItem,
        connection: Connection,
        request: RemotingCommand,
        ext: dict[str, str],
    ) -> RemotingCommand:
        """Return the answer about an item, on any broker, unchanged. Raises RequestRefusedError if the queue has moved
        on when it comes."""
        ext = {**ext, "queueId": str(item.queue_id)}
        if not queue.is_here(item):
            answer = await self._elsewhere(item, request, ext, lambda reply: reply)
            self._as_it_is(queue)
            return answer
        found = self._here(connection, request, ext, lambda reply: reply)
        if inspect.isawaitable(found):
            found = await found
        assert isinstance(found, RemotingCommand), "questions about offsets are answered at once"
        return found

    async def _ask_if_there(
        self,
        queue: GlobalQueue,
        item: LogicQueueMappingItem,
        connection: Connection,
        request: RemotingCommand,
        ext: dict[str, str],
    ) -> RemotingCommand | None:
        """Return the answer about an item as `_ask` does; None if it never had a message, and its broker is away or
        does not do it."""
        try:
            answer = await self._ask(queue, item, connection, request, ext)
        except RequestRefusedError:
            self._as_it_is(queue)
            if item.is_empty:
                return None
            raise
        does = answer.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        return answer if does or not item.is_empty else None


def _go_on(request: RemotingCommand, item: LogicQueueMappingItem) -> RemotingCommand:
    """Make the answer for a reader that has read everything before this item."""
    code = ResponseCode.PULL_RETRY_IMMEDIATELY
    return _go_to(request, item.logic_offset, code, "this part of the queue has ended")


def _go_to(request: RemotingCommand, offset: int, code: int, remark: str) -> RemotingCommand:
    """Make the answer that sends a reader to a global offset."""
    place = str(offset)
    ext = {"nextBeginOffset": place, "minOffset": place, "maxOffset": place, "suggestWhichBrokerId": "0"}
    return request.reply(code, remark, ext)


def _sends_nowhere(request: RemotingCommand, reply: RemotingCommand) -> bool:
    """Return whether the answer to a pull has a reader ask for the same offset again."""
    if reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
        return reply.ext.get("nextBeginOffset") == request.ext["queueOffset"]
    return reply.code == ResponseCode.PULL_NOT_FOUND


def _by_a_stand_in(reply: RemotingCommand) -> RemotingCommand:
    return replace(reply, ext={**reply.ext, STANDS_IN: "true"})


def _changed(queue: GlobalQueue, group: str) -> tuple[str, str, int]:
    """Return the key of what changes the offset of a group in a global queue."""
    return queue.topic, group, queue.global_id


def _led_queue(detail: TopicQueueMappingDetail, global_id: int) -> GlobalQueue:
    """Return a global queue that this broker leads. Raises RequestRefusedError if it leads it not."""
    items = detail.hosted_queues.get(global_id, [])
    if not _leads(detail, items):
        raise RequestRefusedError(
            ResponseCode.NOT_LEADER_FOR_QUEUE,
            f"{detail.topic}-{global_id} does not exist in request process of current broker {detail.bname}",
        )
    return GlobalQueue(detail, global_id, items)


def _led(detail: TopicQueueMappingDetail) -> list[int]:
    """Return the numbers of the global queues that this broker leads, in order."""
    return [number for number, items in sorted(detail.hosted_queues.items()) if _leads(detail, items)]


def _leads(detail: TopicQueueMappingDetail, items: Sequence[LogicQueueMappingItem]) -> bool:
    return bool(items) and items[-1].bname == detail.bname


def _with_offset(answer: RemotingCommand, offset: int) -> RemotingCommand:
    return replace(answer, ext={**answer.ext, "offset": str(offset)})


async def _rewritten(answer: Awaitable[RemotingCommand | None], rewrite: Rewrite) -> RemotingCommand | None:
    reply = await answer
    return None if reply is None else rewrite(reply)
