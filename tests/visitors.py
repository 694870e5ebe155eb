"""Those who come and go, for the soaks: each round has names of its own for topics, groups, clients and users.

Producers; consumers that push, pull, pop and stall; transactions that are committed, rolled back, never decided, or
whose producer never returns; timers, some of them recalled; requests with and without a reply; batches that commit
together; static topics; users and their policies; clients that only say that they live; peeks, held pulls; peers that
ask for much and do not read; peers that begin a frame, a PROXY line or a TLS handshake and stay; readers of HTTP pages,
some of whom never ask; brokers that a name server is told of. All of them end, some by a cut line. Then the topics and
groups of the round are deleted.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final, Protocol

from maxq.auth.acl_client_rpc_hook import AclClientRPCHook
from maxq.auth.info import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from maxq.auth.signature import Credentials
from maxq.client.admin.admin import Admin
from maxq.client.client_config import (
    ClientConfig,
    ClientEnvironment,
    LitePullConsumerConfig,
    ProducerConfig,
    PushConsumerConfig,
    SimpleConsumerConfig,
)
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.consumer.simple_consumer import SimpleConsumer
from maxq.client.errors import RequestTimeoutError
from maxq.client.instance.request_reply import create_reply_message
from maxq.client.producer.producer import Producer
from maxq.client.producer.transaction_producer import TransactionProducer
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.client.results.local_transaction_state import LocalTransactionState
from maxq.codes import RequestCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import MaxQError
from maxq.protocol.body.heartbeat import ConsumerData, HeartbeatData, ProducerData
from maxq.protocol.body.subscription import SubscriptionGroupConfig, build_subscription_data
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PeekMessageRequestHeader, PullMessageRequestHeader
from maxq.protocol.json import json_dialect
from maxq.protocol.message.message import Message, MessageExt, encode_batch
from maxq.remoting.rpc_hooks import HookedRemotingClient
from tests.integration.namesrv.harness import registering

CLUSTER: Final = "DefaultCluster"
BROKER_NAME: Final = "broker-a"
CLIENTS: Final = 3  # of each kind in a round
TIMEOUT_MS: Final = 20_000  # the machine may be busy with other tests
MOST_STALLED: Final = 100
LARGE: Final = 256 << 10  # bytes of the messages that stalled readers ask for
SILENT_SECONDS: Final = 8  # after which the server closes who is silent or does not read
ROOT: Final = Credentials("root", "root-secret")
FIRST: Final = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
_HOLD, _SUBSCRIPTION = 2, 4

#: Of the broker that is visited: everything ends soon.
SETTINGS: Final = {
    "serverChannelMaxIdleTimeSeconds": str(SILENT_SECONDS),
    "transactionTimeOut": "500",
    "transactionCheckInterval": "500",
    "transactionCheckMax": "1",
    "transactionOpBatchInterval": "20",
    "waitTimeMillsInSendQueue": str(TIMEOUT_MS),
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "metricsExporterType": "PROM",
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}

#: What peers begin and never end.
BEGINNINGS: Final = (
    (1 << 20).to_bytes(4, "big") + b"part of a frame",
    b"PROXY TCP4 127.0.0.1 ",
    bytes.fromhex("16030103e8010003e40303"),
    b"",
)


class Place(Protocol):
    """Where the visitors go.

    Attributes:
        namesrv, broker, pages: host:port of the name server, the broker and its HTTP pages.
        rng: draws what differs between rounds.
    """

    namesrv: str
    broker: str
    pages: str
    rng: random.Random

    def environment(self, credentials: Credentials = ROOT) -> ClientEnvironment:
        """Of one more client process."""
        ...

    async def visit(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it on a machine of its own."""
        ...


class Local:
    """A body says by its first letter how its transaction ends; nobody knows the others when asked."""

    _STATES: Final = {
        "c": LocalTransactionState.COMMIT_MESSAGE, "r": LocalTransactionState.ROLLBACK_MESSAGE
    }  # fmt: skip

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState | None:
        return self._STATES.get(chr(message.body[0]))

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState | None:
        return None


class Stalled(asyncio.Protocol):
    """A peer that sends what it has to say and reads nothing."""

    def __init__(self, says: bytes) -> None:
        self._says = says
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.pause_reading()
        transport.write(self._says)


class Visitors:
    """Attributes:
    rounds, visits: done so far.
    failed: visits that failed, and why.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._rng = place.rng
        self._stalled: list[Stalled] = []
        self._common: dict[str, Any] = {"namesrv_addr": place.namesrv, "mq_client_api_timeout": TIMEOUT_MS}
        self.rounds = self.visits = 0
        self.failed: list[str] = []

    async def round(self) -> None:
        """Everybody comes and goes once."""
        self.rounds += 1
        await self._place.visit(self._round(f"Soak{self.rounds}"))

    async def _round(self, name: str) -> None:
        async with Admin(ClientConfig(**self._common), self._place.environment()) as admin:
            await admin.topics.create_in_cluster(CLUSTER, TopicConfig(name, 4, 4))
            await admin.groups.create_in_cluster(CLUSTER, SubscriptionGroupConfig(f"{name}G"))
            await admin.static_topics.create(f"{name}Static", 4, [BROKER_NAME])
            work = [self._produce(name, number) for number in range(CLIENTS)]
            work += [self._pop(name) for _ in range(CLIENTS)]
            work += [self._strange(name, number) for number in range(CLIENTS)]
            work += [self._stall(name) for _ in range(CLIENTS)]
            work += [self._begin(beginning) for beginning in BEGINNINGS]
            work += [self._push(name, orderly=orderly) for orderly in (False, True)]
            work += [self._pull(name), self._transact(name), self._leave_open(name), self._wait(name)]
            work += [self._ask(name), self._stage(name), self._read_pages(), self._register(name)]
            work.append(self._as_user(name, admin))
            self._rng.shuffle(work)
            await asyncio.gather(*(self._place.visit(self._try(one)) for one in work))
            for topic in (await admin.topics.all_configs(self._place.broker)).topic_config_table:
                if name in topic:
                    await admin.topics.delete(topic, CLUSTER)
            for group in (await admin.groups.all_configs(self._place.broker)).subscription_group_table:
                if name in group:
                    await admin.groups.delete(self._place.broker, group, clean_offset=True)

    async def _try(self, work: Coroutine[Any, Any, None]) -> None:
        """On a busy machine a visit may fail: one more who goes in the middle."""
        self.visits += 1
        try:
            await work
        except MaxQError as error:
            self.failed.append(f"{work.__qualname__}: {error}")

    def end(self) -> None:
        """Peers that stall and were not cut off go."""
        for peer in self._stalled:
            if peer.transport is not None:
                peer.transport.abort()
        self._stalled.clear()

    # --- clients -----------------------------------------------------------------------------------------------------

    def _producer(self, group: str, credentials: Credentials = ROOT) -> Producer:
        config = ProducerConfig(producer_group=group, instance_name=group, send_msg_timeout=TIMEOUT_MS, **self._common)
        return Producer(config, self._place.environment(credentials))

    async def _produce(self, name: str, number: int) -> None:
        async with self._producer(f"{name}P{number}") as producer:
            for body in (b"small", bytes(LARGE), b"small"):
                await producer.send(Message(name, body, {"TAGS": f"tag{number}", "KEYS": f"{name}-{number}"}))
            await producer.send(Message(f"{name}Static", b"small"))

    async def _push(self, name: str, *, orderly: bool) -> None:
        """Some messages are given back; one member in two goes by a cut line."""
        got = asyncio.Event()

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
            got.set()
            if self._rng.random() < 0.7:
                return None
            return ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if orderly else ConsumeResult.RECONSUME_LATER

        config = PushConsumerConfig(consumer_group=f"{name}Push{orderly}", consume_from_where=FIRST, **self._common)
        consumer = PushConsumer(config, self._place.environment(), listen, orderly=orderly)
        consumer.subscribe(name)
        async with consumer:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await got.wait()

    async def _pull(self, name: str) -> None:
        config = LitePullConsumerConfig(consumer_group=f"{name}Pull", consume_from_where=FIRST, **self._common)
        async with LitePullConsumer(config, self._place.environment()) as consumer:
            await consumer.subscribe(name)
            for _ in range(3):
                await consumer.poll(300)

    async def _pop(self, name: str) -> None:
        """Half of what comes is acknowledged, the rest is left behind."""
        config = SimpleConsumerConfig(
            consumer_group=f"{name}G", instance_name=f"{name}-{self._rng.random()}", **self._common
        )
        async with SimpleConsumer(config, self._place.environment()) as consumer:
            await consumer.subscribe(name)
            messages = await consumer.receive(8, invisible_ms=1_000, wait_ms=300)
            await consumer.ack_all(messages[: len(messages) // 2])

    def _transactions(self, group: str) -> TransactionProducer:
        config = ProducerConfig(producer_group=group, send_msg_timeout=TIMEOUT_MS, **self._common)
        return TransactionProducer(config, self._place.environment(), Local())

    async def _transact(self, name: str) -> None:
        async with self._transactions(f"{name}T") as producer:
            for text in ("commit", "rollback", "undecided"):
                await producer.send_message_in_transaction(Message(name, text.encode()))

    async def _leave_open(self, name: str) -> None:
        """A producer that never returns to say how its transaction ended."""
        async with self._transactions(f"{name}Gone") as producer:
            await producer.send_half(Message(name, b"half"))

    async def _wait(self, name: str) -> None:
        """Messages that are to come later; some are recalled."""
        async with self._producer(f"{name}Timed") as producer:
            for delay_ms, is_recalled in ((1_000, False), (60_000, True), (600_000, True)):
                sent = await producer.send(Message(name, b"later", {"TIMER_DELAY_MS": str(delay_ms)}))
                if is_recalled:
                    assert sent.recall_handle is not None, "the broker gives handles for messages that wait"
                    await producer.recall_message(name, sent.recall_handle)
            await producer.send(Message(name, b"later", {"DELAY": "1"}))

    async def _ask(self, name: str) -> None:
        """A request that is replied to, and one that nobody hears."""
        topic = f"{name}Asked"
        async with self._producer(f"{name}Replies") as replies, self._producer(f"{name}Asks") as producer:

            async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
                for message in messages:
                    if message.body == b"hello":
                        await replies.send(create_reply_message(message, b"hello yourself"))

            config = PushConsumerConfig(consumer_group=f"{name}Answers", consume_from_where=FIRST, **self._common)
            consumer = PushConsumer(config, self._place.environment(), listen)
            consumer.subscribe(topic)
            await producer.send(Message(topic, b"makes the topic"))
            async with consumer:
                with contextlib.suppress(RequestTimeoutError):  # if its queue changed hands meanwhile
                    await producer.request(Message(topic, b"hello"), timeout_ms=3_000)
                with contextlib.suppress(RequestTimeoutError):
                    await producer.request(Message(topic, b"anybody?"), timeout_ms=200)

    async def _stage(self, name: str) -> None:
        """A batch of a writer that goes on from round to round, and one that is never decided."""
        async with self._raw() as client:

            async def ask(code: RequestCode, ext: dict[str, str], body: bytes) -> RemotingCommand:
                answer = await client.invoke(self._place.broker, RemotingCommand(code, ext, body), TIMEOUT_MS)
                assert answer.code == 0, answer.remark
                return answer

            for sequence in ("0", "1"):
                ext = {
                    "topic": name, "queueId": "0", "attempt": name, "sequence": sequence, "count": "2", "plain": "true",
                    "bornTimestamp": "1", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
                }  # fmt: skip
                body = encode_batch([Message(name, b"staged", {"UNIQ_KEY": f"{n:032X}"}) for n in range(2)])
                staged = await ask(RequestCode.MAXQ_STAGE_MESSAGES, ext, body)
            runs = {"runs": [[name, 1, int(staged.ext["queueOffset"]), 1]]}
            batch = {"application": "soak", "batch": str(self.rounds)}
            decision = json_dialect.dumps({"brokers": {BROKER_NAME: runs}})
            await ask(RequestCode.MAXQ_DECIDE_STAGED, batch, decision)
            await ask(RequestCode.MAXQ_DELIVER_STAGED, batch, json_dialect.dumps(runs))

    async def _as_user(self, name: str, admin: Admin) -> None:
        """A user is made, may send to one topic, does, and is deleted with what it was allowed."""
        user, subject, broker = f"{name}User", f"User:{name}User", self._place.broker
        await admin.access.create_user(broker, UserInfo(user, "its-secret", "Normal"))
        entry = PolicyEntryInfo(f"Topic:{name}", ["Pub"], decision="Allow")
        await admin.access.create_acl(broker, AclInfo(subject, [PolicyInfo("Custom", [entry])]))
        try:
            async with self._producer(f"{name}ByUser", Credentials(user, "its-secret")) as producer:
                await producer.send(Message(name, b"small"))
        finally:
            await admin.access.delete_acl(broker, subject)
            await admin.access.delete_user(broker, user)

    # --- strangers ---------------------------------------------------------------------------------------------------

    async def _strange(self, name: str, number: int) -> None:
        """Heart-beats, peeks of made-up groups, a pull that is held, and the line is cut."""
        async with self._raw() as client:
            for at in range(CLIENTS):
                group = f"{name}H{number}-{at}"
                wanted = (f"tag{at}", "TAG") if at else ("a > 1", "SQL92")
                subscription = build_subscription_data(name, *wanted, sub_version=1)
                body = HeartbeatData(
                    f"{name}-{number}-{at}",
                    [ProducerData(group)],
                    [ConsumerData(group, subscription_data_set=[subscription])],
                )
                await client.invoke(
                    self._place.broker, RemotingCommand(RequestCode.HEART_BEAT, body=body.encode()), TIMEOUT_MS
                )
                peek = PeekMessageRequestHeader(name, -1, 4, group)
                await client.invoke(
                    self._place.broker, RemotingCommand(RequestCode.PEEK_MESSAGE, peek.encode()), TIMEOUT_MS
                )
            held = _pull(f"{name}H{number}-1", name, 3, 1 << 20, wait_ms=60_000, flag=_HOLD | _SUBSCRIPTION)
            with contextlib.suppress(Exception):  # whether it is held or answered, the line is cut soon
                await asyncio.wait_for(client.invoke(self._place.broker, held, TIMEOUT_MS), 0.2)

    async def _stall(self, name: str) -> None:
        """Asks for much and reads nothing. Some go by themselves; the others stay until the server cuts them off."""
        hook = AclClientRPCHook(ROOT)
        frames = []
        for at in range(40):
            request = _pull(f"{name}G", name, at % 4, 0, wait_ms=0, flag=_SUBSCRIPTION)
            request.opaque = at
            hook.do_before_request(self._place.broker, request)
            frames.append(request.encode())
        await self._stay(b"".join(frames))

    async def _begin(self, beginning: bytes) -> None:
        await self._stay(beginning)

    async def _stay(self, says: bytes) -> None:
        host, port = self._place.broker.split(":")
        loop = asyncio.get_running_loop()
        transport, peer = await loop.create_connection(lambda: Stalled(says), host, int(port))
        if self._rng.random() < 0.5:
            transport.abort()
            return
        self._stalled.append(peer)
        if len(self._stalled) > MOST_STALLED:
            oldest = self._stalled.pop(0).transport
            if oldest is not None:
                oldest.abort()

    async def _read_pages(self) -> None:
        host, port = self._place.pages.split(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(CLIENTS)]
        for path in ("/metrics", "/health", "/ready", "/nowhere"):
            await page(self._place.pages, path)
        for _, writer in silent:
            writer.transport.abort()

    async def _register(self, name: str) -> None:
        """Brokers that a name server is told of: one unregisters, the others' line is cut."""
        async with self._raw() as client:
            for at, cluster in enumerate((CLUSTER, CLUSTER, f"{name}Cluster")):
                request = registering(
                    f"{name}Elsewhere", f"{name}There", name=f"{name}B{at // 2}", broker_id=at,
                    addr=f"127.0.0.{at + 1}:{self.rounds % 60_000 + 1}",
                )  # fmt: skip
                request.ext["clusterName"] = cluster
                await client.invoke(self._place.namesrv, request, TIMEOUT_MS)

    @contextlib.asynccontextmanager
    async def _raw(self) -> AsyncIterator[HookedRemotingClient]:
        environment = self._place.environment()
        hook = AclClientRPCHook(ROOT)
        client = HookedRemotingClient(NettyClientConfig(), [hook], clock=environment.clock, rng=environment.rng)
        try:
            yield client
        finally:
            await client.close()


async def page(address: str, path: str) -> str:
    """What a server shows."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n".encode())
        return (await reader.read()).decode()
    finally:
        writer.close()
        await writer.wait_closed()


def _pull(group: str, topic: str, queue_id: int, offset: int, *, wait_ms: int, flag: int) -> RemotingCommand:
    header = PullMessageRequestHeader(group, topic, queue_id, offset, 32, flag, 0, wait_ms, 0, "*", "TAG")
    return RemotingCommand(RequestCode.PULL_MESSAGE, header.encode())
