"""LockHandOver: the lock of a global queue moves with it, so that two clients never consume it in order at once.

A broker that leads a queue and knows no holder of its lock asks those that have led it, in the client's name, whether
the client may have it (LOCK_BATCH_MQ): the holder may be at work, and may not have heard of the move. Locks that they
grant are released again. One that cannot be asked has no say, as a broker that was restarted has forgotten all locks;
nor has one that does not answer before the client gives up. A broker that does not lead a queue grants its lock to
nobody else; the holder's stays until it is released or expires.

Java's brokers know nothing of this: the new leader grants the lock while its holder is at work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final

from maxq.broker.tables.client.rebalance_lock_manager import RebalanceLockManager
from maxq.broker.tables.static_topic.other_brokers import OtherBrokers
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.offsets import LockBatchRequestBody, LockBatchResponseBody
from maxq.protocol.body.static_topic import MOCK_BROKER_PREFIX, is_mock_broker
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.connection import Connection, Processor
from maxq.remoting.server import RemotingServer

_ASK_SECONDS: Final = 0.7  # Java's clients wait one second for a lock
_MARK = MOCK_BROKER_PREFIX.encode()

Answer = RemotingCommand | Awaitable[RemotingCommand | None] | None
_Handle = Callable[[Processor, Connection, RemotingCommand, LockBatchRequestBody], Answer]
Queues = dict[tuple[str, str], list[MessageQueue]]  # by broker name and topic


class LockHandOver:
    """Stands before the processor of locks. One per broker."""

    def __init__(self, mappings: TopicQueueMappingManager, others: OtherBrokers, locks: RebalanceLockManager) -> None:
        self._mappings = mappings
        self._others = others
        self._locks = locks

    def place(self, server: RemotingServer) -> None:
        """Handle requests to lock and unlock queues before the processors that the server has for them now."""
        for code, handle in ((RequestCode.LOCK_BATCH_MQ, self._lock), (RequestCode.UNLOCK_BATCH_MQ, self._unlock)):
            server.register(code, self._before(server.processor(code), handle))

    @staticmethod
    def _before(inner: Processor, handle: _Handle) -> Processor:
        def process(connection: Connection, request: RemotingCommand) -> Answer:
            if request.ext.get("lo") == "false" or _MARK not in request.body_bytes:
                return inner(connection, request)
            return handle(inner, connection, request, LockBatchRequestBody.decode(request.body_bytes))

        return process

    def _lock(
        self, inner: Processor, connection: Connection, request: RemotingCommand, wanted: LockBatchRequestBody
    ) -> Answer:
        queues, asked = [], []
        for queue in wanted.mq_set:
            former = self._former_leaders(queue)
            if former and self._locks.holder(wanted.consumer_group, queue) is None:
                asked.append(queue)
            elif former is not None:
                queues.append(queue)
        if asked:
            return self._take_over(inner, connection, request, wanted, queues, asked)
        return inner(connection, replace(request, body=replace(wanted, mq_set=queues).encode()))

    async def _take_over(
        self,
        inner: Processor,
        connection: Connection,
        request: RemotingCommand,
        wanted: LockBatchRequestBody,
        queues: list[MessageQueue],
        asked: list[MessageQueue],
    ) -> RemotingCommand | None:
        """Grant `queues`, and those of `asked` whose lock no other client holds at a former leader, unless they have
        moved on meanwhile."""
        places = self._places(asked)
        held = await asyncio.gather(*(self._held(place, some, wanted) for place, some in places.items()))
        elsewhere = set[MessageQueue]().union(*held)
        queues = [*queues, *(queue for queue in asked if queue not in elsewhere)]
        queues = [queue for queue in queues if self._former_leaders(queue) is not None]
        answer = inner(connection, replace(request, body=replace(wanted, mq_set=queues).encode()))
        return answer if isinstance(answer, RemotingCommand) or answer is None else await answer

    async def _held(
        self, place: tuple[str, str], queues: list[MessageQueue], wanted: LockBatchRequestBody
    ) -> set[MessageQueue]:
        """Return those of the queues whose lock another client holds at a broker."""
        until = asyncio.get_running_loop().time() + _ASK_SECONDS
        answer = await self._tell(place, RequestCode.LOCK_BATCH_MQ, queues, wanted, until)
        if answer is None:
            return set()
        granted = set(LockBatchResponseBody.decode(answer.body_bytes).lock_ok_mq_set)
        if granted:
            await self._tell(place, RequestCode.UNLOCK_BATCH_MQ, sorted(granted), wanted, until)
        return set(queues) - granted

    def _unlock(
        self, inner: Processor, connection: Connection, request: RemotingCommand, given: LockBatchRequestBody
    ) -> Answer:
        """Release locks, also those that the client has at former leaders only."""
        moved = [
            queue
            for queue in given.mq_set
            if self._former_leaders(queue) and self._locks.holder(given.consumer_group, queue) != given.client_id
        ]
        answer = inner(connection, request)
        return self._unlock_there(answer, moved, given) if moved else answer

    async def _unlock_there(
        self, answer: Answer, moved: list[MessageQueue], given: LockBatchRequestBody
    ) -> RemotingCommand | None:
        places = self._places(moved)
        unlock = RequestCode.UNLOCK_BATCH_MQ
        await asyncio.gather(*(self._tell(place, unlock, queues, given) for place, queues in places.items()))
        return answer if isinstance(answer, RemotingCommand) or answer is None else await answer

    async def _tell(
        self,
        place: tuple[str, str],
        code: RequestCode,
        queues: list[MessageQueue],
        body: LockBatchRequestBody,
        until: float | None = None,
    ) -> RemotingCommand | None:
        """Return the answer of a broker; None if it cannot be asked, or has not answered by `until` (see
        `OtherBrokers.ask`)."""
        broker_name, topic = place
        try:
            encoded = replace(body, mq_set=queues).encode()
            answer = await self._others.ask(broker_name, topic, code, {}, body=encoded, until=until)
        except RequestRefusedError:
            return None
        return answer if answer.code == ResponseCode.SUCCESS else None

    def _places(self, queues: Iterable[MessageQueue]) -> Queues:
        places: Queues = {}
        for queue in queues:
            for name in sorted(self._former_leaders(queue) or ()):
                places.setdefault((name, queue.topic), []).append(queue)
        return places

    def _former_leaders(self, queue: MessageQueue) -> set[str] | None:
        """Return the other brokers of a queue's chain; none if it is not a global one. None if this broker does not
        lead it."""
        detail = self._mappings.table.get(queue.topic) if is_mock_broker(queue.broker_name) else None
        if detail is None:
            return set()
        items = detail.hosted_queues.get(queue.queue_id)
        if not items or items[-1].bname != detail.bname:
            return None
        return {item.bname for item in items} - {detail.bname}
