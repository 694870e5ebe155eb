"""TLS on the same ports, and the binary header, against real servers."""

from collections.abc import Callable

from maxq.api import Message, async_admin, async_producer, async_push_consumer
from maxq.protocol.frame.remoting_command import SerializeType
from tests.integration.client.helpers import FROM_FIRST, Collector

Name = Callable[[str], str]


async def test_everything_works_over_tls(namesrv: str, name: Name) -> None:
    topic, got = name("T"), Collector()
    # A Java server's first handshake takes seconds on a busy machine, and there are two servers.
    async with async_producer(name("P"), namesrv, use_tls="insecure", send_msg_timeout=20_000) as producer:
        await producer.send_many([Message(topic, b"%d" % n * 500) for n in range(50)])
    consumer = async_push_consumer(name("G"), namesrv, got, use_tls="insecure", consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    async with consumer, async_admin(namesrv, use_tls="insecure") as admin:
        await got.wait_for(50)
        assert topic in await admin.topics.names()
    assert got.counts() == {b"%d" % n * 500: 1 for n in range(50)}


async def test_everything_works_with_binary_headers(namesrv: str, name: Name) -> None:
    topic, got = name("T"), Collector()
    binary = SerializeType.ROCKETMQ
    async with async_producer(name("P"), namesrv, serialize_type=binary) as producer:
        await producer.send(Message(topic, b"x", {"KEYS": "ключ"}))
        await producer.send_batch([Message(topic, b"y"), Message(topic, b"z")])
    consumer = async_push_consumer(name("G"), namesrv, got, serialize_type=binary, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    async with consumer:
        await got.wait_for(3)
    assert sorted(got.bodies) == [b"x", b"y", b"z"]
