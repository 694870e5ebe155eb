"""All request processors but those of sending, pulling and querying messages, put together; and the requests that are
not served."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from maxq.broker.bundles import Clients, Environment, Messages, Tables
from maxq.broker.processors.admin.admin_client import AdminClientProcessor
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
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.ha_runtime_info import HARuntimeInfo
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection, Processor

# UnsupportedProcessor: requests of features that are not there, answered so that a person understands it.
#
# Clients take code 3 as "this broker cannot do that"; the remark says what.

_FEATURES: Final[dict[str, Iterable[RequestCode]]] = {
    "lite topics": [
        RequestCode.POP_LITE_MESSAGE,
        RequestCode.LITE_SUBSCRIPTION_CTL,
        RequestCode.ACK_LITE_MESSAGE,
        RequestCode.GET_BROKER_LITE_INFO,
        RequestCode.GET_PARENT_TOPIC_INFO,
        RequestCode.GET_LITE_TOPIC_INFO,
        RequestCode.GET_LITE_CLIENT_INFO,
        RequestCode.GET_LITE_GROUP_INFO,
        RequestCode.TRIGGER_LITE_DISPATCH,
    ],
    "RocksDB storage": [RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON],
    "the controller mode": [
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
    ],
    "the broker container": [RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER],
}


class UnsupportedProcessor(RequestProcessor):
    """Answers unsupported requests with code 3 and the reason."""

    def __init__(self) -> None:
        self._feature_of = {int(code): feature for feature, codes in _FEATURES.items() for code in codes}

    def routes(self) -> Mapping[int, Processor]:
        return dict.fromkeys(self._feature_of, self.refuse)

    def refuse(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        name = RequestCode(request.code).name
        return request.reply(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f" request type {request.code} not supported: {name} belongs to {self._feature_of[request.code]}, "
            "which MaxQ does not have",
        )


def admin_processors(
    env: Environment,
    tables: Tables,
    clients: Clients,
    messages: Messages,
    *,
    ha_runtime_info: Callable[[], HARuntimeInfo],
    topic_route: TopicRouteSource,
) -> list[RequestProcessor]:
    """Make the processors of admin requests that no other part calls. Each code has one processor.

    Args:
        ha_runtime_info: says how replication stands.
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
        AdminStoreProcessor(env, clients, messages, ha_runtime_info),
        UnsupportedProcessor(),
    ]
