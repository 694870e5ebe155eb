"""`consumerStatus -s` shows where the threads and tasks of a member are."""

import asyncio
import threading
from collections.abc import Callable

from maxq.api import Admin, ConsumeFromWhere, Message, Producer, PushConsumer, async_admin, async_push_consumer

Name = Callable[[str], str]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def test_a_listener_that_hangs_in_a_thread_is_named_with_its_line(namesrv: str, name: Name) -> None:
    topic, group = name("T"), name("G")
    begun, is_over = threading.Event(), threading.Event()

    def waits_for_a_database(messages: object, context: object) -> None:
        begun.set()
        is_over.wait(60)

    with Producer(name("P"), namesrv) as producer:
        producer.send(Message(topic, b"hangs"))
    consumer = PushConsumer(group, namesrv, waits_for_a_database, consume_from_where=FIRST)
    consumer.subscribe(topic)
    with consumer, Admin(namesrv) as admin:
        try:
            assert begun.wait(30)
            (member,) = admin.groups.connections(group).connection_set
            assert member.client_id is not None
            assert admin.groups.running_info(group, member.client_id).jstack is None
            stacks = admin.groups.running_info(group, member.client_id, jstack=True).jstack
        finally:
            is_over.set()
    assert stacks is not None
    (thread,) = [part for part in stacks.split("\n\n") if "waits_for_a_database" in part]
    assert "is_over.wait(60)" in thread and __file__ in thread


async def test_a_listener_that_hangs_in_a_task_is_named_with_its_line(namesrv: str, name: Name) -> None:
    topic, group = name("T"), name("G")
    begun, is_over = asyncio.Event(), asyncio.Event()

    async def waits_for_an_answer(messages: object, context: object) -> None:
        begun.set()
        await is_over.wait()

    with Producer(name("P"), namesrv) as producer:
        await asyncio.to_thread(producer.send, Message(topic, b"hangs"))
    consumer = async_push_consumer(group, namesrv, waits_for_an_answer, consume_from_where=FIRST)
    consumer.subscribe(topic)
    async with consumer, async_admin(namesrv) as admin:
        try:
            await asyncio.wait_for(begun.wait(), 30)
            stacks = (await admin.groups.running_info(group, consumer.client_id, jstack=True)).jstack
        finally:
            is_over.set()
    assert stacks is not None
    (task,) = [part for part in stacks.split("\n\n") if "waits_for_an_answer" in part]
    assert "await is_over.wait()" in task
