"""All request processors but those of sending, pulling and querying messages, put together."""

from collections.abc import Callable

from maxq.broker.bundles import Clients, Environment, Messages, Tables
from maxq.broker.processors.admin.admin_client import AdminClientProcessor
from maxq.broker.processors.admin.admin_config import AdminConfigProcessor
from maxq.broker.processors.admin.admin_consume_stats import AdminConsumeStatsProcessor
from maxq.broker.processors.admin.admin_group import AdminGroupProcessor
from maxq.broker.processors.admin.admin_offset import AdminOffsetProcessor
from maxq.broker.processors.admin.admin_static_topic import AdminStaticTopicProcessor
from maxq.broker.processors.admin.admin_store import AdminStoreProcessor
from maxq.broker.processors.admin.admin_timer import AdminTimerProcessor
from maxq.broker.processors.admin.admin_topic import AdminTopicProcessor
from maxq.broker.processors.clients.client_manage import ClientManageProcessor
from maxq.broker.processors.clients.consumer_manage import ConsumerManageProcessor
from maxq.broker.processors.clients.query_assignment import QueryAssignmentProcessor, TopicRouteSource
from maxq.broker.processors.clients.reset_offset import ResetOffsetProcessor
from maxq.broker.processors.support import RequestProcessor
from maxq.broker.processors.unsupported import UnsupportedProcessor
from maxq.protocol.body.ha_runtime_info import HARuntimeInfo


def admin_processors(
    env: Environment,
    tables: Tables,
    clients: Clients,
    messages: Messages,
    *,
    runtime_info: Callable[[], dict[str, str]],
    ha_runtime_info: Callable[[], HARuntimeInfo],
    topic_route: TopicRouteSource,
    register_all: Callable[[], None],
) -> list[RequestProcessor]:
    """One of each kind. No code is answered by two of them.

    Args:
        ha_runtime_info: says how replication stands.
        register_all: registers the broker anew at all name servers.
    """
    return [
        ClientManageProcessor(env, tables, clients),
        ConsumerManageProcessor(env, tables, clients, messages),
        QueryAssignmentProcessor(env, tables, clients, topic_route),
        AdminTopicProcessor(env, tables, messages),
        AdminStaticTopicProcessor(env, tables, messages),
        AdminGroupProcessor(env, tables),
        AdminOffsetProcessor(tables, clients, messages),
        AdminTimerProcessor(env, tables, messages),
        AdminConsumeStatsProcessor(env, tables, clients, messages),
        ResetOffsetProcessor(env, tables, clients, messages),
        AdminClientProcessor(env, tables, clients, messages),
        AdminConfigProcessor(env, tables, runtime_info, register_all),
        AdminStoreProcessor(env, clients, messages, ha_runtime_info),
        UnsupportedProcessor(),
    ]
