"""Dead letters: messages that a group could not handle, in its topic `%DLQ%group`: list, read, send again.

They are read from the first one on, by an operator's group that is a member of nothing. How far they were sent again is
kept as that group's offset in the dead-letter topic, so that a second run goes on where the first one ended.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from maxq.client.admin.context import AdminContext
from maxq.client.admin.messages import TOOLS_GROUP, MessageAdmin
from maxq.client.admin.offsets import OffsetAdmin
from maxq.client.admin.topics import TopicAdmin
from maxq.errors import ClientError, MaxQError, NoRouteError
from maxq.protocol.body.topic_config import PERM_READ
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import DLQ_PREFIX, retry_topic

_PAGE: Final = 32
#: Properties that brokers and clients set on a message's way; a message that is sent again gets its own.
NOT_SENT_AGAIN: Final = frozenset(
    {
        const.PROPERTY_DELAY_TIME_LEVEL, const.PROPERTY_REAL_TOPIC, const.PROPERTY_REAL_QUEUE_ID,
        const.PROPERTY_WAIT_STORE_MSG_OK, const.PROPERTY_MIN_OFFSET, const.PROPERTY_MAX_OFFSET,
        const.PROPERTY_CONSUME_START_TIMESTAMP, const.PROPERTY_TRANSACTION_PREPARED, const.PROPERTY_RECONSUME_TIME,
        const.PROPERTY_MAX_RECONSUME_TIMES, const.PROPERTY_CLUSTER, const.PROPERTY_MSG_REGION,
        const.PROPERTY_TRACE_SWITCH, const.PROPERTY_CRC32, const.PROPERTY_INNER_NUM, const.PROPERTY_INNER_BASE,
        const.PROPERTY_TIMER_DELAY_SEC, const.PROPERTY_TIMER_DELAY_MS, const.PROPERTY_TIMER_DELIVER_MS,
        const.PROPERTY_TIMER_OUT_MS, const.PROPERTY_TIMER_ENQUEUE_MS, const.PROPERTY_TIMER_DEQUEUE_MS,
        const.PROPERTY_TIMER_ROLL_TIMES, const.PROPERTY_TIMER_DEL_UNIQKEY, const.PROPERTY_POP_CK,
        const.PROPERTY_POP_CK_OFFSET, const.PROPERTY_FIRST_POP_TIME,
    }
)  # fmt: skip

#: Sends messages and returns their offset message ids; raises unless all were sent.
Send = Callable[[list[Message]], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """Number of one group's dead letters on all brokers. `last_ms` is the store time of the newest."""

    group: str
    count: int
    sent_again: int
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSelection:
    """Selects dead letters by key, message id or store time (ms since 1970)."""

    begin_ms: int | None = None
    end_ms: int | None = None
    key: str | None = None
    msg_id: str | None = None  # offset id, unique key, or the id it had in its own topic

    @property
    def is_everything(self) -> bool:
        return self == DeadLetterSelection()

    def takes(self, message: MessageExt) -> bool:
        """Return whether a message is selected; the times, which `scan` checks, are left out."""
        if self.key is not None and self.key not in (message.keys or "").split(const.KEY_SEPARATOR):
            return False
        ids = (message.offset_msg_id, message.uniq_key, origin_msg_id(message))
        return self.msg_id is None or self.msg_id in ids


class DeadLetterAdmin:
    """Lists dead letters and sends them again; the attribute `dead_letters` of an Admin."""

    def __init__(self, context: AdminContext, messages: MessageAdmin, offsets: OffsetAdmin, topics: TopicAdmin) -> None:
        self._context = context
        self._messages = messages
        self._offsets = offsets
        self._topics = topics

    async def groups(self) -> list[DeadLetterCount]:
        """Return every group that has a dead-letter topic, by name."""
        names = [topic for topic in await self._topics.names() if topic.startswith(DLQ_PREFIX)]
        return [await self.count(topic.removeprefix(DLQ_PREFIX)) for topic in sorted(names)]

    async def count(self, group: str) -> DeadLetterCount:
        """Return how many dead letters a group has. NoRouteError: none, and never had any."""
        topic = DLQ_PREFIX + group
        table = (await self._topics.stats(topic)).offset_table
        sent_again = 0
        for queue, place in table.items():
            committed = await self._offsets.committed(TOOLS_GROUP, queue) or 0
            sent_again += max(0, min(committed, place.max_offset) - place.min_offset)
        return DeadLetterCount(
            group,
            sum(place.max_offset - place.min_offset for place in table.values()),
            sent_again,
            max((place.last_update_timestamp for place in table.values()), default=0),
        )

    async def scan(self, group: str, selection: DeadLetterSelection) -> AsyncGenerator[MessageExt, None]:
        """Yield a group's dead letters, queue after queue, from the first one on.

        Raises:
            ClientError: its topic cannot be read.
        """
        await self._check_readable(group)
        messages = self._messages.scan(
            DLQ_PREFIX + group, begin_ms=selection.begin_ms, end_ms=selection.end_ms, group=TOOLS_GROUP
        )
        async for message in messages:
            if selection.takes(message):
                yield message

    async def redrive(
        self, group: str, selection: DeadLetterSelection, send: Send, *, topic: str | None = None, again: bool = False
    ) -> int:
        """Send dead letters again: to the group's retry topic, where only that group gets them.

        Args:
            selection: if it selects everything, the messages that were not sent again before, and the progress is
                stored; if it selects a part, that part, each time.
            send: sends messages; an exception from it ends the work.
            topic: topic to send to; empty: each message goes to the topic that it came from, where every group gets it.
            again: send also the messages that were sent again before.

        Returns:
            How many were sent.

        Raises:
            ClientError: the topic cannot be read, or what was sent became a dead letter at once.
        """
        if not selection.is_everything:
            return await self._redrive_part(group, selection, send, topic)
        await self._check_readable(group)
        count = 0
        for queue in await self._offsets.queues(DLQ_PREFIX + group):
            count += await self._redrive_queue(group, queue, send, topic, again=again)
        return count

    async def _redrive_part(self, group: str, selection: DeadLetterSelection, send: Send, topic: str | None) -> int:
        count, page = 0, []
        async for message in self.scan(group, selection):
            page.append(message)
            if len(page) == _PAGE:
                count += await self._send(group, page, send, topic)
                page = []
        return count + await self._send(group, page, send, topic)

    async def _redrive_queue(
        self, group: str, queue: MessageQueue, send: Send, topic: str | None, *, again: bool
    ) -> int:
        offset = await self._offsets.min(queue)
        if not again:
            offset = max(offset, await self._offsets.committed(TOOLS_GROUP, queue) or 0)
        end, count = await self._offsets.max(queue), 0
        while offset < end:
            result = await self._messages.pull(queue, offset, max_nums=min(_PAGE, end - offset))
            page = [message for message in result.messages if message.queue_offset < end]
            count += await self._send(group, page, send, topic)
            if result.next_begin_offset <= offset:
                break
            offset = min(result.next_begin_offset, end)
            await self._offsets.commit(TOOLS_GROUP, queue, offset)
        return count

    async def _send(self, group: str, letters: list[MessageExt], send: Send, topic: str | None) -> int:
        if not letters:
            return 0
        ids = await send([sent_again(letter, group, topic) for letter in letters])
        if topic is None:
            await self._check_not_dead_again(group, ids[0])
        return len(letters)

    async def _check_not_dead_again(self, group: str, offset_msg_id: str) -> None:
        try:
            stored = await self._messages.view_by_offset_id(offset_msg_id)
        except MaxQError:  # the topic exists; the command continues although its queues could not be read
            return
        if stored.topic == DLQ_PREFIX + group:
            raise ClientError(
                f"group {group} consumes in order now, and its broker makes a dead letter of each message in "
                f"{retry_topic(group)}: stop its members for a minute, or send to the topics the messages came from "
                "(--to origin)"
            )

    async def _check_readable(self, group: str) -> None:
        topic = DLQ_PREFIX + group
        try:
            route = await self._context.route(topic)
        except NoRouteError:
            raise ClientError(
                f"group {group} has no dead letters: no name server knows {topic}, which the first one makes "
                "(`maxq dlq list` names the groups that have some)"
            ) from None
        for data in route.queue_datas:
            if not data.perm & PERM_READ:
                raise ClientError(
                    f"{topic} cannot be read on {data.broker_name}: its perm is {data.perm} (old brokers make it so); "
                    f"allow it with updateTopicPerm -t {topic} -p 6"
                )


def origin_topic(letter: MessageExt) -> str:
    """Return the original topic of the letter; empty if the letter does not name it."""
    return letter.properties.get(const.PROPERTY_RETRY_TOPIC, "")


def origin_msg_id(letter: MessageExt) -> str:
    """Return the message id of the letter in its original topic."""
    return letter.properties.get(const.PROPERTY_ORIGIN_MESSAGE_ID, "")


def sent_again(letter: MessageExt, group: str, topic: str | None) -> Message:
    """Make the message that is sent again for a dead letter, with its unique key and reconsumeTimes 0.

    Args:
        topic: None: the retry topic of `group`; empty: the topic it came from.

    Raises:
        ClientError: it does not say where it came from.
    """
    properties = {name: value for name, value in letter.properties.items() if name not in NOT_SENT_AGAIN}
    if topic is not None:
        properties.pop(const.PROPERTY_RETRY_TOPIC, None)
        topic = topic or origin_topic(letter)
        if not topic:
            raise ClientError(f"dead letter {letter.offset_msg_id} does not say its topic; name one with --topic")
    return Message(retry_topic(group) if topic is None else topic, letter.body, properties, letter.flag)
