"""The blocking Admin: the parts of maxq.client.admin with methods that wait.

Source: see maxq.client.admin.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from maxq.client.admin.admin import Admin as AsyncAdmin
from maxq.client.admin.brokers import BrokerAdmin
from maxq.client.admin.groups import GroupAdmin
from maxq.client.admin.messages import MessageAdmin
from maxq.client.admin.name_servers import NameServerAdmin
from maxq.client.admin.offsets import OffsetAdmin
from maxq.client.admin.static_topics import StaticTopicAdmin
from maxq.client.admin.topics import TopicAdmin
from maxq.client.admin.traces import TraceAdmin
from maxq.client.blocking.loop_thread import LoopFactory, LoopThread
from maxq.client.blocking.sync import Blocking
from maxq.client.client_config import ClientConfig, ClientSeams
from maxq.protocol.message.message import MessageExt

Params = ParamSpec("Params")
Result = TypeVar("Result")
Owner = TypeVar("Owner")


class _Method(Generic[Owner, Params, Result]):
    """A blocking method made from a coroutine method of one of Admin's parts."""

    def __init__(self, method: Callable[Concatenate[Owner, Params], Coroutine[Any, Any, Result]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, part: None, owner: type) -> Self: ...
    @overload
    def __get__(self, part: "_Part[Owner]", owner: type) -> Callable[Params, Result]: ...
    def __get__(self, part: "_Part[Owner] | None", owner: type) -> "Self | Callable[Params, Result]":
        if part is None:
            return self
        bound = part

        def call(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            return bound.thread.run(self._method(bound.wrapped, *args, **kwargs))

        return call


class _Part(Generic[Owner]):
    """A part of the blocking Admin: the asynchronous part and the thread it runs on."""

    def __init__(self, thread: LoopThread, wrapped: Owner) -> None:
        self.thread = thread
        self.wrapped = wrapped


class BlockingTopics(_Part[TopicAdmin]):
    """Blocking `admin.topics`."""

    create = _Method(TopicAdmin.create)
    create_in_cluster = _Method(TopicAdmin.create_in_cluster)
    create_list = _Method(TopicAdmin.create_list)
    delete = _Method(TopicAdmin.delete)
    config = _Method(TopicAdmin.config)
    all_configs = _Method(TopicAdmin.all_configs)
    names = _Method(TopicAdmin.names)
    names_of_cluster = _Method(TopicAdmin.names_of_cluster)
    route = _Method(TopicAdmin.route)
    clusters = _Method(TopicAdmin.clusters)
    stats = _Method(TopicAdmin.stats)
    consumed_by = _Method(TopicAdmin.consumed_by)
    consumed_by_group = _Method(TopicAdmin.consumed_by_group)


class BlockingStaticTopics(_Part[StaticTopicAdmin]):
    """Blocking `admin.static_topics`."""

    create = _Method(StaticTopicAdmin.create)
    remap = _Method(StaticTopicAdmin.remap)


class BlockingGroups(_Part[GroupAdmin]):
    """Blocking `admin.groups`."""

    create = _Method(GroupAdmin.create)
    create_in_cluster = _Method(GroupAdmin.create_in_cluster)
    delete = _Method(GroupAdmin.delete)
    config = _Method(GroupAdmin.config)
    all_configs = _Method(GroupAdmin.all_configs)
    names = _Method(GroupAdmin.names)
    connections = _Method(GroupAdmin.connections)
    producer_connections = _Method(GroupAdmin.producer_connections)
    running_info = _Method(GroupAdmin.running_info)
    consume_stats = _Method(GroupAdmin.consume_stats)
    is_online = _Method(GroupAdmin.is_online)


class BlockingOffsets(_Part[OffsetAdmin]):
    """Blocking `admin.offsets`."""

    queues = _Method(OffsetAdmin.queues)
    max = _Method(OffsetAdmin.max)
    min = _Method(OffsetAdmin.min)
    search = _Method(OffsetAdmin.search)
    committed = _Method(OffsetAdmin.committed)
    commit = _Method(OffsetAdmin.commit)
    reset_by_time = _Method(OffsetAdmin.reset_by_time)
    reset_queue = _Method(OffsetAdmin.reset_queue)
    clone = _Method(OffsetAdmin.clone)


class BlockingMessages(_Part[MessageAdmin]):
    """Blocking `admin.messages`."""

    view = _Method(MessageAdmin.view)
    query_by_key = _Method(MessageAdmin.query_by_key)
    query_by_unique_key = _Method(MessageAdmin.query_by_unique_key)
    view_by_queue_offset = _Method(MessageAdmin.view_by_queue_offset)
    pull = _Method(MessageAdmin.pull)
    consume_directly = _Method(MessageAdmin.consume_directly)
    track = _Method(MessageAdmin.track)

    def scan(self, topic: str, *, begin_ms: int | None = None, end_ms: int | None = None) -> Iterator[MessageExt]:
        """All messages of a topic, queue after queue."""
        messages = self.wrapped.scan(topic, begin_ms=begin_ms, end_ms=end_ms)
        while (message := self.thread.run(_next(messages))) is not None:
            yield message


async def _next(messages: AsyncIterator[MessageExt]) -> MessageExt | None:
    return await anext(messages, None)


class BlockingBrokers(_Part[BrokerAdmin]):
    """Blocking `admin.brokers`."""

    cluster_info = _Method(BrokerAdmin.cluster_info)
    runtime_info = _Method(BrokerAdmin.runtime_info)
    config = _Method(BrokerAdmin.config)
    update_config = _Method(BrokerAdmin.update_config)
    stats = _Method(BrokerAdmin.stats)
    consume_stats = _Method(BrokerAdmin.consume_stats)
    ha_status = _Method(BrokerAdmin.ha_status)
    clean_expired_consume_queue = _Method(BrokerAdmin.clean_expired_consume_queue)
    clean_unused_topic = _Method(BrokerAdmin.clean_unused_topic)
    delete_expired_commit_log = _Method(BrokerAdmin.delete_expired_commit_log)
    reset_master_flush_offset = _Method(BrokerAdmin.reset_master_flush_offset)
    cold_data_flow_control = _Method(BrokerAdmin.cold_data_flow_control)
    update_cold_data_flow_control = _Method(BrokerAdmin.update_cold_data_flow_control)
    remove_cold_data_flow_control = _Method(BrokerAdmin.remove_cold_data_flow_control)


class BlockingTraces(_Part[TraceAdmin]):
    """Blocking `admin.traces`."""

    of_message = _Method(TraceAdmin.of_message)


class BlockingNameServers(_Part[NameServerAdmin]):
    """Blocking `admin.name_servers`."""

    put_kv = _Method(NameServerAdmin.put_kv)
    get_kv = _Method(NameServerAdmin.get_kv)
    delete_kv = _Method(NameServerAdmin.delete_kv)
    list_kv = _Method(NameServerAdmin.list_kv)
    config = _Method(NameServerAdmin.config)
    wipe_write_perm = _Method(NameServerAdmin.wipe_write_perm)
    add_write_perm = _Method(NameServerAdmin.add_write_perm)


class Admin(Blocking):
    """Blocking `maxq.client.admin.Admin`: the same parts with the same methods. Use as a context manager."""

    def __init__(self, config: ClientConfig, seams: ClientSeams, *, loop_factory: LoopFactory | None = None) -> None:
        super().__init__(loop_factory)
        self._thread.start()
        self._client = self._thread.run(_make_admin(config, seams))
        self.topics = BlockingTopics(self._thread, self._client.topics)
        self.static_topics = BlockingStaticTopics(self._thread, self._client.static_topics)
        self.groups = BlockingGroups(self._thread, self._client.groups)
        self.offsets = BlockingOffsets(self._thread, self._client.offsets)
        self.messages = BlockingMessages(self._thread, self._client.messages)
        self.brokers = BlockingBrokers(self._thread, self._client.brokers)
        self.traces = BlockingTraces(self._thread, self._client.traces)
        self.name_servers = BlockingNameServers(self._thread, self._client.name_servers)

    def run(self, work: Callable[[AsyncAdmin], Coroutine[Any, Any, Result]]) -> Result:
        """Run `work(asynchronous admin)`: for what has no blocking method."""
        return self._thread.run(work(self._client))

    def close(self) -> None:
        """Close all connections and end the thread."""
        self._stop(self._client.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _make_admin(config: ClientConfig, seams: ClientSeams) -> AsyncAdmin:
    return AsyncAdmin(config, seams)
