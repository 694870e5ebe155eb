"""The process that answers requests in the story of sends (send_story.py): it has a consumer, and a producer for the
replies. It answers late at times, twice, or not at all, and is killed."""

import asyncio
from typing import TYPE_CHECKING, Final

from maxq.api import ConsumeContext, ConsumeFromWhere, async_producer, async_push_consumer
from maxq.client.instance.request_reply import create_reply_message
from maxq.errors import MaxQError
from maxq.protocol.message.message import MessageExt

if TYPE_CHECKING:
    from tests.simulation.servers.send_story import SendStory

ASKED: Final = "Asked"
_NUMBER_MARK: Final = b"reply to "


def reply_to(number: int) -> bytes:
    """Return the body of the reply to a request."""
    return _NUMBER_MARK + b"%d" % number


class Replier:
    """Answers requests of the topic ASKED."""

    def __init__(self, story: "SendStory") -> None:
        self._story = story
        self._rng = story.rng.fork("replies")

    async def run(self) -> None:
        """Answer, from one start of the process to the end of the story."""
        story, rng = self._story, self._rng
        namesrv = story.name_server_addresses
        late: set[asyncio.Task[None]] = set()
        async with async_producer("G-replying", namesrv, send_msg_timeout=1500) as producer:

            async def reply(message: MessageExt) -> None:
                try:
                    await producer.send(create_reply_message(message, reply_to(story.number_of(message))))
                except MaxQError:
                    story.marks["a reply could not be sent"] += 1

            async def reply_late(message: MessageExt) -> None:
                await asyncio.sleep(rng.uniform(0, 4))
                await reply(message)

            async def answer(messages: list[MessageExt], context: ConsumeContext) -> None:
                for message in messages:
                    if story.is_over or rng.chance(0.8):
                        await reply(message)
                    if not story.is_over and rng.chance(0.2):
                        task = asyncio.ensure_future(reply_late(message))
                        late.add(task)
                        task.add_done_callback(late.discard)

            first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            consumer = async_push_consumer("G-answering", namesrv, answer, consume_from_where=first)
            consumer.subscribe(ASKED)
            async with consumer:
                await asyncio.Event().wait()
