"""A name server and brokers in memory, in virtual time: they do what clients need and, where a test says so, misbehave.

Everything runs in one simulation (maxq.testing): hosts 10.0.0.1 (name server), 10.0.1.x (brokers), 10.0.9.9 (client).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath
from typing import Any, TypeVar

from maxq.client.client_config import ClientEnvironment
from maxq.codes import RequestCode, ResponseCode
from maxq.config.netty_server_config import NettyServerConfig
from maxq.protocol.body.heartbeat import GetConsumerListByGroupResponseBody, HeartbeatData
from maxq.protocol.body.offsets import LockBatchRequestBody, LockBatchResponseBody
from maxq.protocol.body.route import BrokerData, QueueData, TopicRouteData
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import (
    Message,
    MessageExt,
    decode_batch,
    decode_properties,
    encode_host,
    encode_record,
    offset_message_id,
)
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.server import Connection, RemotingServer
from maxq.testing.simulation import SimWorld, run_simulation

NAME_SERVER = "10.0.0.1"
NAMESRV_ADDR = f"{NAME_SERVER}:9876"
CLIENT_HOST = "10.0.9.9"
PORT = 10911

Script = Callable[[RemotingCommand], "RemotingCommand | Awaitable[RemotingCommand | None] | None"]
Result = TypeVar("Result")


class MockNameServer:
    """Answers routes. `remark` begins what it says of a topic that it does not know."""

    def __init__(self, world: SimWorld) -> None:
        self._world = world
        self.remark = "No topic route info"
        self.routes: dict[str, TopicRouteData] = {}
        self.seen: list[RemotingCommand] = []
        self.server = RemotingServer(NettyServerConfig(), clock=world.clock)

    async def start(self) -> None:
        self.server = RemotingServer(NettyServerConfig(), clock=self._world.clock)
        self.server.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route)
        with self._world.network.on_host(NAME_SERVER):
            await self.server.start(NAME_SERVER, 9876)

    def _route(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.seen.append(request)
        route = self.routes.get(request.ext["topic"])
        if route is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"{self.remark}: {request.ext['topic']}")
        return request.reply(body=route.encode())


class MockBroker:
    """One broker process. `seen` holds every request; `scripts[code]` answers in place of the normal handler; while it
    `is_paused` nothing is answered."""

    def __init__(self, world: SimWorld, name: str, broker_id: int, host: str) -> None:
        self.world = world
        self.name = name
        self.broker_id = broker_id
        self.host = host
        self.address = f"{host}:{PORT}"
        self.seen: list[tuple[int, RemotingCommand]] = []  # (virtual ms since start, request)
        self.scripts: dict[int, Script] = {}
        self.log: list[MessageExt] = []
        self.queues: dict[MessageQueue, list[MessageExt]] = defaultdict(list)
        self.committed: dict[tuple[str, MessageQueue], int] = {}
        self.locks: dict[MessageQueue, str] = {}
        self.members: dict[str, dict[str, Connection]] = defaultdict(dict)  # group → client id → connection
        self.heartbeats: list[HeartbeatData] = []
        self.suggest_which_broker_id = 0
        self.is_paused = False
        self._arrival = asyncio.Event()
        self.server = self._make_server()

    def _make_server(self) -> RemotingServer:
        server = RemotingServer(NettyServerConfig(), clock=self.world.clock)
        server.register_default(self._process)
        return server

    async def start(self) -> None:
        self.server = self._make_server()
        with self.world.network.on_host(self.host):
            await self.server.start(self.host, PORT)

    async def stop(self) -> None:
        self.members.clear()
        await self.server.shutdown()

    # --- what tests look at ---

    def requests(self, code: int) -> list[RemotingCommand]:
        return [request for _, request in self.seen if request.code == code]

    def times(self, code: int) -> list[int]:
        return [at for at, request in self.seen if request.code == code]

    def put(self, topic: str, body: bytes, queue_id: int = 0, **fields: Any) -> MessageExt:
        """Store a message directly."""
        queue = MessageQueue(topic, self.name, queue_id)
        message = MessageExt(topic, body, **fields)
        message.queue_id = queue_id
        message.queue_offset = len(self.queues[queue])
        message.physical_offset = 1000 * len(self.log)
        message.store_host = encode_host(self.host, PORT)
        message.born_host = encode_host(CLIENT_HOST, 1)
        message.store_timestamp = self.world.clock.wall_ms()
        self.log.append(message)
        self.queues[queue].append(message)
        self._arrival.set()
        self._arrival = asyncio.Event()
        return message

    async def ask_client(self, client_id: str, group: str, command: RemotingCommand) -> RemotingCommand:
        return await self.members[group][client_id].invoke(command, 5_000)

    # --- handlers ---

    async def _process(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        self.seen.append((self.world.clock.monotonic_ms() - 1_000_000, request))
        if self.is_paused:
            return None
        script = self.scripts.get(request.code)
        if script is not None:
            answer = script(request)
            if isinstance(answer, RemotingCommand) or answer is None:
                return answer
            return await answer
        handler = _HANDLERS.get(request.code)
        if handler is None:
            return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")
        answer = handler(self, connection, request)
        return await answer if asyncio.iscoroutine(answer) else answer  # type: ignore[no-any-return]

    def _send(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        ext = request.ext
        if ext.get("m") == "true":
            messages = decode_batch(request.body_bytes, ext["b"])
        else:
            messages = [Message(ext["b"], request.body_bytes, decode_properties(ext.get("i")), int(ext["h"]))]
        stored = [
            self.put(
                message.topic, message.body, int(ext["e"]), properties=message.properties, sys_flag=int(ext["f"]),
                reconsume_times=int(ext.get("j", "0")),
            )
            for message in messages
        ]  # fmt: skip
        ids = ",".join(offset_message_id(m.store_host, m.physical_offset) for m in stored)
        first = stored[0]
        return request.reply(ext={"msgId": ids, "queueId": str(first.queue_id), "queueOffset": str(first.queue_offset)})

    async def serve_pull(self, request: RemotingCommand) -> RemotingCommand:
        """The answer without a script."""
        ext = request.ext
        queue = MessageQueue(ext["topic"], self.name, int(ext["queueId"]))
        offset = int(ext["queueOffset"])
        if int(ext["sysFlag"]) & 1:
            self.committed[ext["consumerGroup"], queue] = int(ext["commitOffset"])
        if offset == len(self.queues[queue]) and int(ext["sysFlag"]) & 2:
            arrival = self._arrival
            deadline = self.world.loop.time() + int(ext["suspendTimeoutMillis"]) / 1000
            while offset == len(self.queues[queue]) and self.world.loop.time() < deadline:
                try:
                    await asyncio.wait_for(arrival.wait(), deadline - self.world.loop.time())
                except TimeoutError:
                    break
                arrival = self._arrival
        return self.pull_answer(request, queue, offset, int(ext["maxMsgNums"]))

    def pull_answer(
        self, request: RemotingCommand, queue: MessageQueue, offset: int, max_nums: int = 32
    ) -> RemotingCommand:
        held = self.queues[queue]
        found = held[offset : offset + max_nums]
        if offset > len(held):
            code, next_offset = ResponseCode.PULL_OFFSET_MOVED, len(held)
        else:
            code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
            next_offset = offset + len(found)
        return request.reply(
            code,
            ext={
                "nextBeginOffset": str(next_offset),
                "minOffset": "0",
                "maxOffset": str(len(held)),
                "suggestWhichBrokerId": str(self.suggest_which_broker_id),
            },
            body=b"".join(encode_record(message) for message in found) or None,
        )

    def _heartbeat(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        data = HeartbeatData.decode(request.body_bytes)
        self.heartbeats.append(data)
        for consumer in data.consumer_data_set:
            self.members[consumer.group_name][data.client_id] = connection
        return request.reply()

    def _unregister(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        group = request.ext.get("consumerGroup")
        if group:
            self.members[group].pop(request.ext["clientID"], None)
        return request.reply()

    def _consumer_ids(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        members = self.members.get(request.ext["consumerGroup"])
        if not members:
            return request.reply(ResponseCode.SYSTEM_ERROR, "no consumer for this group")
        return request.reply(body=GetConsumerListByGroupResponseBody(list(members)).encode())

    def query_offset(self, request: RemotingCommand) -> RemotingCommand:
        offset = self.committed.get((request.ext["consumerGroup"], self._queue(request)))
        if offset is None:
            return request.reply(ResponseCode.QUERY_NOT_FOUND, "Not found")
        return request.reply(ext={"offset": str(offset)})

    def update_offset(self, request: RemotingCommand) -> RemotingCommand:
        key, offset = (request.ext["consumerGroup"], self._queue(request)), int(request.ext["commitOffset"])
        stored = self.committed.get(key, -1)
        is_refused = stored >= 0 if request.ext.get("maxqIfNone") == "true" else stored >= offset
        if request.ext.get("maxqIfAhead") != "true" or not is_refused:
            self.committed[key] = offset
        return request.reply()

    def max_offset(self, request: RemotingCommand) -> RemotingCommand:
        return request.reply(ext={"offset": str(len(self.queues[self._queue(request)]))})

    def _min_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return request.reply(ext={"offset": "0"})

    def _search_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        when = int(request.ext["timestamp"])
        held = self.queues[self._queue(request)]
        return request.reply(ext={"offset": str(sum(m.store_timestamp < when for m in held))})

    def _lock(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        body = LockBatchRequestBody.decode(request.body_bytes)
        ours = [queue for queue in body.mq_set if self.locks.setdefault(queue, body.client_id) == body.client_id]
        return request.reply(body=LockBatchResponseBody(ours).encode())

    def _unlock(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        body = LockBatchRequestBody.decode(request.body_bytes)
        for queue in body.mq_set:
            if self.locks.get(queue) == body.client_id:
                del self.locks[queue]
        return request.reply()

    def _send_back(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        (message,) = [m for m in self.log if m.physical_offset == int(request.ext["offset"])]
        retry = f"%RETRY%{request.ext['group']}"
        properties = {**message.properties, "RETRY_TOPIC": message.topic}
        self.put(retry, message.body, properties=properties, reconsume_times=message.reconsume_times + 1)
        return request.reply()

    def _queue(self, request: RemotingCommand) -> MessageQueue:
        return MessageQueue(request.ext["topic"], self.name, int(request.ext["queueId"]))


_HANDLERS: dict[int, Callable[[MockBroker, Connection, RemotingCommand], Any]] = {
    RequestCode.SEND_MESSAGE_V2: MockBroker._send,
    RequestCode.SEND_BATCH_MESSAGE: MockBroker._send,
    RequestCode.PULL_MESSAGE: lambda broker, connection, request: broker.serve_pull(request),
    RequestCode.LITE_PULL_MESSAGE: lambda broker, connection, request: broker.serve_pull(request),
    RequestCode.HEART_BEAT: MockBroker._heartbeat,
    RequestCode.UNREGISTER_CLIENT: MockBroker._unregister,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: MockBroker._consumer_ids,
    RequestCode.QUERY_CONSUMER_OFFSET: lambda broker, connection, request: broker.query_offset(request),
    RequestCode.UPDATE_CONSUMER_OFFSET: lambda broker, connection, request: broker.update_offset(request),
    RequestCode.GET_MAX_OFFSET: lambda broker, connection, request: broker.max_offset(request),
    RequestCode.GET_MIN_OFFSET: MockBroker._min_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: MockBroker._search_offset,
    RequestCode.LOCK_BATCH_MQ: MockBroker._lock,
    RequestCode.UNLOCK_BATCH_MQ: MockBroker._unlock,
    RequestCode.CONSUMER_SEND_MSG_BACK: MockBroker._send_back,
}


class MockCluster:
    """A name server and brokers, started, with the routes of some topics."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.names = MockNameServer(world)
        self.brokers: dict[tuple[str, int], MockBroker] = {}

    async def start(self, *groups: str, slaves: int = 0) -> None:
        """Start the name server and a master, and `slaves` slaves, for each broker name."""
        await self.names.start()
        for number, name in enumerate(groups or ("broker-a",)):
            for broker_id in range(1 + slaves):
                broker = MockBroker(self.world, name, broker_id, f"10.0.1.{10 * number + broker_id + 1}")
                self.brokers[name, broker_id] = broker
                await broker.start()

    @property
    def broker(self) -> MockBroker:
        """The first master."""
        return next(iter(self.brokers.values()))

    def master(self, name: str) -> MockBroker:
        return self.brokers[name, 0]

    def route(self, topic: str, queues: int = 1, perm: int = 6, brokers: list[str] | None = None) -> TopicRouteData:
        """Let the name server know a topic."""
        names = sorted({name for name, _ in self.brokers}) if brokers is None else brokers
        route = TopicRouteData(
            queue_datas=[QueueData(name, queues, queues, perm) for name in names],
            broker_datas=[
                BrokerData("DefaultCluster", name, {i: b.address for (n, i), b in self.brokers.items() if n == name})
                for name in names
            ],
        )
        self.names.routes[topic] = route
        return route

    def environment(self) -> ClientEnvironment:
        return ClientEnvironment(
            self.world.clock, self.world.rng, self.world.disk, CLIENT_HOST, 4711, PurePosixPath("/home/user")
        )


def simulate(story: Callable[[MockCluster], Awaitable[Result]], *, seed: int = 1) -> Result:
    """Run a story in virtual time; its code runs on the client's host."""

    async def main(world: SimWorld) -> Result:
        with world.network.on_host(CLIENT_HOST):
            return await story(MockCluster(world))

    return run_simulation(main, seed=seed)


async def until(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    """Let virtual time pass until `condition()` is true."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        assert loop.time() < end, f"after {seconds} virtual seconds still not: {what}"
        await asyncio.sleep(0.001)
