"""State of a cluster as tables: topics, queues and their offsets, progress of consumer groups.

Free of Spark. A table is asked for anew whenever it is read.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa

from maxq.client.admin.admin import Admin
from maxq.client.blocking.loop_thread import LoopThread
from maxq.client.client_config import ClientConfig
from maxq.errors import NoRouteError
from maxq.machine import new_event_loop, system_environment
from maxq.pipeline.options.read_options import ConnectionOptions
from maxq.pipeline.records.record_batches import microsecond
from maxq.pipeline.wire.wire_client import tls_config
from maxq.protocol.body.offsets import TopicOffset
from maxq.protocol.body.static_topic import MOCK_BROKER_PREFIX
from maxq.protocol.message.message_queue import MessageQueue

Result = TypeVar("Result")

_TIME: Final = pa.timestamp("us", tz="UTC")
_SYSTEM_GROUPS: Final = "CID_RMQ_SYS_"
_PARALLEL: Final = 16  # topics asked for at a time

#: Table → columns with Arrow type and Spark type.
TABLES: Final[dict[str, dict[str, tuple[pa.DataType, str]]]] = {
    "topics": {
        "topic": (pa.string(), "string"),
        "brokerName": (pa.string(), "string"),
        "cluster": (pa.string(), "string"),
        "readQueues": (pa.int32(), "int"),
        "writeQueues": (pa.int32(), "int"),
        "perm": (pa.int32(), "int"),
        "isSystem": (pa.bool_(), "boolean"),
    },
    "offsets": {
        "topic": (pa.string(), "string"),
        "brokerName": (pa.string(), "string"),
        "queueId": (pa.int32(), "int"),
        "minOffset": (pa.int64(), "bigint"),
        "maxOffset": (pa.int64(), "bigint"),
        "lastStoreTimestamp": (_TIME, "timestamp"),
    },
    "groups": {
        "consumerGroup": (pa.string(), "string"),
        "topic": (pa.string(), "string"),
        "brokerName": (pa.string(), "string"),
        "queueId": (pa.int32(), "int"),
        "consumerOffset": (pa.int64(), "bigint"),
        "minOffset": (pa.int64(), "bigint"),
        "maxOffset": (pa.int64(), "bigint"),
        "lag": (pa.int64(), "bigint"),
    },
}


def cluster_table(connection: ConnectionOptions, table: str) -> pa.RecordBatch:
    """Ask for the rows of one of TABLES.

    Raises:
        RemotingError: a name server or broker can not be reached.
    """
    columns = TABLES[table]
    rows = run_apart(_ROWS_OF[table](connection))
    schema = pa.schema([pa.field(name, arrow) for name, (arrow, _) in columns.items()])
    values: list[list[object]] = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]
    return pa.record_batch(
        [pa.array(column, arrow) for column, (arrow, _) in zip(values, columns.values(), strict=True)], schema=schema
    )


def topic_names(connection: ConnectionOptions) -> list[str]:
    """Return the topics that are not the brokers' own, sorted; retry topics and dead letters are among them.

    Raises:
        RemotingError: a name server or broker can not be reached.
    """

    async def ask() -> list[str]:
        async with _cluster(connection) as cluster:
            return [name for name in await cluster.topics() if name not in cluster.system]

    return run_apart(ask())


def topic_queues(connection: ConnectionOptions, topics: Iterable[str]) -> list[tuple[str, str, int]]:
    """Return topic, broker's name and queue id of every queue that these topics can be read from, empty ones too.

    Raises:
        RemotingError: a name server or broker can not be reached.
    """

    async def ask() -> list[tuple[str, str, int]]:
        async with Admin(client_config(connection), system_environment(connection.namesrv)) as admin:
            gate = asyncio.Semaphore(_PARALLEL)

            async def of(topic: str) -> list[tuple[str, str, int]]:
                async with gate:
                    try:
                        route = await admin.topics.route(topic)
                    except NoRouteError:
                        return []
                return [(topic, data.broker_name, n) for data in route.queue_datas for n in data.read_queue_ids]

            found = await asyncio.gather(*(of(topic) for topic in sorted(set(topics))))
        return [queue for queues in found for queue in queues]

    return run_apart(ask())


def client_config(connection: ConnectionOptions) -> ClientConfig:
    """Make the settings of a client of the cluster: name servers, TLS, keys, timeouts."""
    return ClientConfig(
        namesrv_addr=connection.namesrv,
        use_tls=connection.use_tls,
        tls_config=tls_config(connection) if connection.use_tls else None,
        access_key=connection.access_key,
        secret_key=connection.secret_key,
        security_token=connection.security_token,
        mq_client_api_timeout=connection.request_timeout_ms,
    )


def run_apart(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a thread of its own, because the caller may have a running loop, as every notebook has."""
    thread = LoopThread(new_event_loop, name="maxq-cluster-tables")
    thread.start()
    try:
        return thread.run(work)
    finally:
        thread.stop()


@dataclass
class _Cluster:
    """A connected Admin, and the answers that all tables share.

    Attributes:
        masters: broker name → address.
        system: names of the brokers' own topics.
    """

    admin: Admin
    masters: dict[str, str]
    system: set[str]

    async def topics(self) -> list[str]:
        return await self.admin.topics.names()

    async def offsets(self, topics: list[str]) -> dict[MessageQueue, TopicOffset]:
        """Return the offsets of the physical queues of these topics; queues that are gone meanwhile are left out."""
        found: dict[MessageQueue, TopicOffset] = {}
        gate = asyncio.Semaphore(_PARALLEL)

        async def ask(topic: str) -> None:
            async with gate:
                try:
                    table = (await self.admin.topics.stats(topic)).offset_table
                except NoRouteError:
                    return
            found.update(
                (queue, at) for queue, at in table.items() if not queue.broker_name.startswith(MOCK_BROKER_PREFIX)
            )

        await asyncio.gather(*(ask(topic) for topic in topics))
        return dict(sorted(found.items()))


@asynccontextmanager
async def _cluster(connection: ConnectionOptions) -> AsyncIterator[_Cluster]:
    async with Admin(client_config(connection), system_environment(connection.namesrv)) as admin:
        info = await admin.cluster_info()
        brokers = info.broker_addr_table.items()
        masters = {name: address for name, data in brokers if (address := data.master_address) is not None}
        system: set[str] = set(info.cluster_addr_table) | set(info.broker_addr_table)
        for address in masters.values():
            system.update(await admin.topics.system_names(address))
        yield _Cluster(admin, masters, system)


async def _topics(connection: ConnectionOptions) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    async with _cluster(connection) as cluster:
        for topic in await cluster.topics():
            try:
                route = await cluster.admin.topics.route(topic)
            except NoRouteError:
                continue
            clusters = {data.broker_name: data.cluster for data in route.broker_datas}
            rows += [
                (
                    topic, queues.broker_name, clusters.get(queues.broker_name), queues.read_queue_nums,
                    queues.write_queue_nums, queues.perm, topic in cluster.system,
                )
                for queues in route.queue_datas
            ]  # fmt: skip
    return rows


async def _offsets(connection: ConnectionOptions) -> list[tuple[object, ...]]:
    async with _cluster(connection) as cluster:
        offsets = await cluster.offsets([name for name in await cluster.topics() if name not in cluster.system])
    return [
        (
            queue.topic, queue.broker_name, queue.queue_id, at.min_offset, at.max_offset,
            microsecond(at.last_update_timestamp) if at.last_update_timestamp > 0 else None,
        )
        for queue, at in offsets.items()
    ]  # fmt: skip


async def _groups(connection: ConnectionOptions) -> list[tuple[object, ...]]:
    committed: dict[tuple[str, MessageQueue], int] = {}
    async with _cluster(connection) as cluster:
        for name, address in cluster.masters.items():
            table = (await cluster.admin.offsets.all_committed(address)).offset_table
            for key, queues in table.items():
                topic, _, group = key.partition("@")
                if topic in cluster.system or group.startswith(_SYSTEM_GROUPS):
                    continue
                committed |= {(group, MessageQueue(topic, name, queue)): offset for queue, offset in queues.items()}
        offsets = await cluster.offsets(sorted({queue.topic for _, queue in committed}))
    return [
        (group, queue.topic, queue.broker_name, queue.queue_id, offset, at.min_offset, at.max_offset,
         at.max_offset - offset)
        for (group, queue), offset in sorted(committed.items())
        if (at := offsets.get(queue)) is not None
    ]  # fmt: skip


_ROWS_OF: Final = {"topics": _topics, "offsets": _offsets, "groups": _groups}
