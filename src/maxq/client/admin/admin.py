"""Admin: what operators ask name servers and brokers. Its parts: topics, static_topics, groups, offsets, messages,
dead_letters, brokers, timers, transactions, traces, name_servers, controllers, lite_topics,
access.

It keeps no heartbeat and no timers: a command connects, asks, and is done.

Source: apache/rocketmq tools/admin/DefaultMQAdminExtImpl.java, client/impl/MQAdminImpl.java.
"""

import importlib
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from maxq.client.admin.context import AdminContext
from maxq.client.client_config import ClientConfig, ClientEnvironment
from maxq.client.instance.client_api import MQClientAPI
from maxq.client.instance.mq_client_manager import remoting_of
from maxq.protocol.body.route import ClusterInfo

if TYPE_CHECKING:
    from maxq.client.admin.access import AccessAdmin
    from maxq.client.admin.brokers import BrokerAdmin
    from maxq.client.admin.controllers import ControllerAdmin
    from maxq.client.admin.dead_letters import DeadLetterAdmin
    from maxq.client.admin.groups import GroupAdmin
    from maxq.client.admin.lite_topics import LiteTopicAdmin
    from maxq.client.admin.messages import MessageAdmin
    from maxq.client.admin.name_servers import NameServerAdmin
    from maxq.client.admin.offsets import OffsetAdmin
    from maxq.client.admin.operations import OperationsAdmin
    from maxq.client.admin.static_topics import StaticTopicAdmin
    from maxq.client.admin.timers import TimerAdmin
    from maxq.client.admin.topics import TopicAdmin
    from maxq.client.admin.traces import TraceAdmin
    from maxq.client.admin.transactions import TransactionAdmin

#: Part → (class, what it is made of). Its module has its name and is imported when it is first used, so that a command
#: starts with what it needs.
_PARTS: Final = {
    "access": ("AccessAdmin", ("_context",)),
    "brokers": ("BrokerAdmin", ("_context",)),
    "controllers": ("ControllerAdmin", ("_context",)),
    "dead_letters": ("DeadLetterAdmin", ("_context", "messages", "offsets", "topics")),
    "groups": ("GroupAdmin", ("_context",)),
    "lite_topics": ("LiteTopicAdmin", ("_context",)),
    "messages": ("MessageAdmin", ("_context",)),
    "name_servers": ("NameServerAdmin", ("_context",)),
    "offsets": ("OffsetAdmin", ("_context",)),
    "operations": ("OperationsAdmin", ("_context",)),
    "static_topics": ("StaticTopicAdmin", ("_context",)),
    "timers": ("TimerAdmin", ("_context",)),
    "topics": ("TopicAdmin", ("_context",)),
    "traces": ("TraceAdmin", ("messages",)),
    "transactions": ("TransactionAdmin", ("_context", "messages")),
}


class Admin:
    """Use: `async with Admin(config, environment) as admin: await admin.topics.list()`.

    Args:
        config: `namesrv_addr` at least; `mq_client_api_timeout` is the timeout of each call in ms.
        environment: the clock, disk, chance and address that the client uses.
    """

    access: "AccessAdmin"
    brokers: "BrokerAdmin"
    controllers: "ControllerAdmin"
    dead_letters: "DeadLetterAdmin"
    groups: "GroupAdmin"
    lite_topics: "LiteTopicAdmin"
    messages: "MessageAdmin"
    name_servers: "NameServerAdmin"
    offsets: "OffsetAdmin"
    operations: "OperationsAdmin"
    static_topics: "StaticTopicAdmin"
    timers: "TimerAdmin"
    topics: "TopicAdmin"
    traces: "TraceAdmin"
    transactions: "TransactionAdmin"

    def __init__(self, config: ClientConfig, environment: ClientEnvironment) -> None:
        name_servers = config.name_servers()
        self._remoting = remoting_of(config, environment)
        self._remoting.update_name_servers(name_servers)
        api = MQClientAPI(
            self._remoting,
            vip_channel_enabled=config.vip_channel_enabled,
            serialize_type=config.serialize_type,
            timeout_ms=config.mq_client_api_timeout,
        )
        self._context = AdminContext(api, name_servers, environment.clock)
        self.api = api

    def __getattr__(self, name: str) -> Any:
        """Make a part of the admin client that was not used yet."""
        if name not in _PARTS:
            raise AttributeError(f"{type(self).__name__} has no part {name!r}; there are {', '.join(_PARTS)}")
        kind, needs = _PARTS[name]
        make = getattr(importlib.import_module(f"maxq.client.admin.{name}"), kind)
        part = make(*(getattr(self, need) for need in needs))
        setattr(self, name, part)
        return part

    async def cluster_info(self) -> ClusterInfo:
        """Return all clusters and brokers that the name servers know."""
        return await self._context.cluster_info()

    async def close(self) -> None:
        """Close the connections to all servers."""
        await self._remoting.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
