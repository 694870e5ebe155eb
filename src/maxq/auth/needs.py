"""What a request needs under ACL 2.0: resources, and the actions of which one must be allowed on each.

Sends, pulls, heartbeats and the like have rules of their own; for the others a table names the header fields that hold
topics and groups, or says that the whole cluster is meant. `_OPEN` are the requests that RocketMQ lets every user make
whose signature is right. Some of these change things (create a group, change settings): `strict` asks for an update of
the cluster there. What is in none of the tables needs an update of the cluster, whatever it is.

Source:
    auth/authorization/builder/DefaultAuthorizationContextBuilder.java (as of 5.5.0: retry topics are judged by the
    topic alone); the annotations RocketMQAction and RocketMQResource of the request headers; broker-api.md §21,
    changes-5.5.md §11.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from maxq.auth.policy import Action, Need
from maxq.auth.resource import cluster, group, is_retry_topic, topic
from maxq.codes import RequestCode as Code
from maxq.errors import RemoteProtocolError
from maxq.protocol import json_dialect
from maxq.protocol.body.heartbeat import HeartbeatData
from maxq.protocol.body.offsets import LockBatchRequestBody

_PUB: Final = (Action.PUB,)
_SUB: Final = (Action.SUB,)
_GET: Final = (Action.GET,)
_UPDATE: Final = (Action.UPDATE,)
_SUB_OR_GET: Final = (Action.SUB, Action.GET)
_SUB_OR_UPDATE: Final = (Action.SUB, Action.UPDATE)


class _Fields(NamedTuple):
    """Header fields that name resources. A separator: the field holds several names."""

    actions: tuple[Action, ...]
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    topic_lists: tuple[tuple[str, str], ...] = ()  # field, separator
    group_lists: tuple[tuple[str, str], ...] = ()


_CONSUMER: Final = ("consumerGroup",)
_TOPIC: Final = ("topic",)
_GROUP: Final = ("group",)

_BY_FIELDS: Final[dict[int, _Fields]] = {
    Code.RECALL_MESSAGE: _Fields(_PUB, _TOPIC),
    Code.END_TRANSACTION: _Fields(_PUB, _TOPIC),
    Code.CONSUMER_SEND_MSG_BACK: _Fields(_SUB, groups=_GROUP),
    Code.QUERY_MESSAGE: _Fields(_SUB_OR_GET, _TOPIC),
    Code.UNREGISTER_CLIENT: _Fields(_SUB, groups=_CONSUMER),
    Code.GET_CONSUMER_LIST_BY_GROUP: _Fields(_SUB_OR_GET, groups=_CONSUMER),
    Code.POP_MESSAGE: _Fields(_SUB, _TOPIC, _CONSUMER),
    Code.ACK_MESSAGE: _Fields(_SUB, _TOPIC, _CONSUMER),
    Code.PEEK_MESSAGE: _Fields(_SUB, _TOPIC, _CONSUMER),
    Code.CHANGE_MESSAGE_INVISIBLETIME: _Fields(_SUB, _TOPIC, _CONSUMER),
    Code.NOTIFICATION: _Fields(_SUB, _TOPIC, _CONSUMER),
    Code.POLLING_INFO: _Fields(_GET, _TOPIC, _CONSUMER),
    Code.CONSUME_MESSAGE_DIRECTLY: _Fields(_SUB, _TOPIC, _CONSUMER),
    Code.UPDATE_AND_CREATE_TOPIC: _Fields((Action.CREATE,), _TOPIC),
    Code.DELETE_TOPIC_IN_BROKER: _Fields((Action.DELETE,), _TOPIC),
    Code.DELETE_SUBSCRIPTIONGROUP: _Fields((Action.DELETE,), groups=("groupName",)),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _Fields(_GET, _TOPIC),
    Code.GET_MAX_OFFSET: _Fields(_GET, _TOPIC),
    Code.GET_MIN_OFFSET: _Fields(_GET, _TOPIC),
    Code.GET_EARLIEST_MSG_STORETIME: _Fields(_GET, _TOPIC),
    Code.VIEW_MESSAGE_BY_ID: _Fields(_GET, _TOPIC),
    Code.GET_TOPIC_STATS_INFO: _Fields(_GET, _TOPIC),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _Fields(_GET, _TOPIC),
    Code.GET_TOPIC_CONFIG: _Fields(_GET, _TOPIC),
    Code.GET_CONSUMER_CONNECTION_LIST: _Fields(_GET, groups=_CONSUMER),
    Code.GET_CONSUMER_RUNNING_INFO: _Fields(_GET, groups=_CONSUMER),
    Code.QUERY_TOPICS_BY_CONSUMER: _Fields(_GET, groups=_GROUP),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _Fields(_GET, groups=_GROUP),
    Code.GET_CONSUME_STATS: _Fields(_GET, _TOPIC, _CONSUMER, topic_lists=(("topicList", ";"),)),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _Fields(_GET, _TOPIC, _GROUP),
    Code.QUERY_CONSUME_TIME_SPAN: _Fields(_GET, _TOPIC, _GROUP),
    Code.QUERY_CORRECTION_OFFSET: _Fields(_GET, _TOPIC, ("compareGroup",), group_lists=(("filterGroups", ","),)),
    Code.QUERY_CONSUME_QUEUE: _Fields(_GET, _TOPIC, _CONSUMER),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _Fields(_GET, _TOPIC, _GROUP),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _Fields(_UPDATE, _TOPIC, _GROUP),
    Code.CLONE_GROUP_OFFSET: _Fields(_UPDATE, _TOPIC, ("destGroup",)),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _Fields(_UPDATE, _TOPIC, _GROUP),
    Code.RESUME_CHECK_HALF_MESSAGE: _Fields(_UPDATE, _TOPIC),
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _Fields(_GET, _TOPIC),
    Code.NOTIFY_UNSUBSCRIBE_LITE: _Fields(_SUB, groups=_CONSUMER),
    # MaxQ's own: the application of a batch that commits together counts as a topic
    Code.MAXQ_STAGE_MESSAGES: _Fields(_PUB, _TOPIC),
    Code.MAXQ_STAGED_DECISION: _Fields(_PUB, ("application",)),
    Code.MAXQ_DECIDE_STAGED: _Fields(_PUB, ("application",)),
    Code.MAXQ_DELIVER_STAGED: _Fields(_PUB, ("application",)),
    Code.MAXQ_CLAIM_STAGED: _Fields(_PUB, ("application",)),
}

#: Requests that mean the cluster; `clusterName` of the header where there is one, else the server's own.
_CLUSTER_GET: Final[frozenset[int]] = frozenset(
    {
        Code.GET_KV_CONFIG, Code.GET_KVLIST_BY_NAMESPACE, Code.QUERY_DATA_VERSION, Code.GET_PRODUCER_CONNECTION_LIST,
        Code.VIEW_BROKER_STATS_DATA, Code.GET_BROKER_CONSUME_STATS, Code.GET_ALL_PRODUCER_INFO,
        Code.EXPORT_ROCKSDB_CONFIG_TO_JSON, Code.GET_BROKER_MEMBER_GROUP, Code.AUTH_GET_USER, Code.AUTH_LIST_USER,
        Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL, Code.MAXQ_LIST_TIMER_MESSAGES, Code.MAXQ_INSPECT_TIMER_MESSAGE,
        Code.GET_BROKER_LITE_INFO, Code.GET_PARENT_TOPIC_INFO, Code.GET_LITE_TOPIC_INFO, Code.GET_LITE_CLIENT_INFO,
        Code.GET_LITE_GROUP_INFO,
    }
)  # fmt: skip
_CLUSTER_UPDATE: Final[frozenset[int]] = frozenset(
    {
        Code.PUT_KV_CONFIG, Code.DELETE_KV_CONFIG, Code.REGISTER_BROKER, Code.UNREGISTER_BROKER,
        Code.WIPE_WRITE_PERM_OF_BROKER, Code.DELETE_TOPIC_IN_NAMESRV, Code.REGISTER_TOPIC_IN_NAMESRV,
        Code.ADD_WRITE_PERM_OF_BROKER, Code.ADD_BROKER, Code.REMOVE_BROKER, Code.BROKER_HEARTBEAT,
        Code.NOTIFY_MIN_BROKER_ID_CHANGE, Code.EXCHANGE_BROKER_HA_INFO, Code.GET_BROKER_HA_STATUS,
        Code.MAXQ_HAND_BACK_POPS,
        Code.RESET_MASTER_FLUSH_OFFSET, Code.NOTIFY_BROKER_ROLE_CHANGED, Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER,
        Code.AUTH_DELETE_USER, Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL,
    }
)  # fmt: skip

#: What RocketMQ lets every user do: reads, and what clients do for themselves …
_OPEN: Final[frozenset[int]] = frozenset(
    {
        Code.GET_ALL_TOPIC_CONFIG, Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO, Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET, Code.CHECK_CLIENT_CONFIG, Code.GET_TIMER_CHECK_POINT, Code.GET_TIMER_METRICS,
        Code.GET_BROKER_CLUSTER_INFO, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.GET_TOPICS_BY_CLUSTER, Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.GET_UNIT_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        Code.GET_NAMESRV_CONFIG, Code.QUERY_ASSIGNMENT,
        Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.GET_COLD_DATA_FLOW_CTR_INFO, Code.GET_BROKER_EPOCH_CACHE,
        Code.CONTROLLER_GET_SYNC_STATE_DATA, Code.MAXQ_AWAIT_TABLE_CHANGE,
    }
)  # fmt: skip
#: … and what changes a server, or consumes, which `strict` does not.
_OPEN_UNLESS_STRICT: Final[frozenset[int]] = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.UPDATE_BROKER_CONFIG, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.CLEAN_UNUSED_TOPIC,
        Code.UPDATE_NAMESRV_CONFIG, Code.DELETE_EXPIRED_COMMITLOG, Code.SET_MESSAGE_REQUEST_MODE,
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, Code.SET_COMMITLOG_READ_MODE,
        Code.UPDATE_AND_CREATE_STATIC_TOPIC, Code.LITE_PULL_MESSAGE, Code.BATCH_ACK_MESSAGE, Code.POP_LITE_MESSAGE,
        Code.LITE_SUBSCRIPTION_CTL, Code.ACK_LITE_MESSAGE, Code.TRIGGER_LITE_DISPATCH, Code.POP_ROLLBACK,
    }
)  # fmt: skip


def needs_of(
    code: int, ext: Mapping[str, str], body: bytes, *, cluster_name: str = "", strict: bool = True
) -> list[Need]:
    """All of them must be met.

    Args:
        ext: header fields.
        cluster_name: of the server that is asked.
        strict: ask for more than RocketMQ where it lets every user change a server.

    Raises:
        RemoteProtocolError: the body cannot be read.
    """
    if code in _SENDS:
        return [_send(ext.get("b" if code != Code.SEND_MESSAGE else "topic", ""))]
    if code in _REPLIES:
        name = ext.get("b" if code == Code.SEND_REPLY_MESSAGE_V2 else "topic", "")
        return [_send(name)] if strict and name != cluster_name + _REPLY_TOPIC_SUFFIX else []
    if code == Code.PULL_MESSAGE or (strict and code == Code.LITE_PULL_MESSAGE):
        return _topic_and_group(ext, _SUB)
    if code == Code.QUERY_CONSUMER_OFFSET:
        return _topic_and_group(ext, _SUB_OR_GET)
    if code == Code.UPDATE_CONSUMER_OFFSET:
        return _topic_and_group(ext, _SUB_OR_UPDATE)
    if code == Code.GET_ROUTEINFO_BY_TOPIC:
        return [_route(ext.get("topic", ""))]
    if code == Code.HEART_BEAT:
        return _heartbeat(body)
    if code in (Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ):
        return _lock(body)
    fields = _BY_FIELDS.get(code)
    if fields is not None:
        return _by_fields(fields, ext)
    if code in _OPEN or (code in _OPEN_UNLESS_STRICT and not strict):
        return []
    if code == Code.BATCH_ACK_MESSAGE:
        return _batch_ack(body)
    if code in (Code.POP_LITE_MESSAGE, Code.LITE_SUBSCRIPTION_CTL, Code.ACK_LITE_MESSAGE):
        return _topic_and_group(ext, _SUB)
    if code == Code.UPDATE_AND_CREATE_STATIC_TOPIC:
        return [Need(topic(ext.get("topic", "")), (Action.CREATE,))]
    actions = _GET if code in _CLUSTER_GET else _UPDATE
    named = ext.get("clusterName") or ext.get("brokerClusterName") if code in _NAMES_CLUSTER else None
    return [Need(cluster(named or cluster_name), actions)]


def need_of_message(topic_name: str, *actions: Action) -> Need:
    """To do something with a message of this topic, whatever the request called it."""
    return Need(group(topic_name) if is_retry_topic(topic_name) else topic(topic_name), actions)


_SENDS: Final = (Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE)
_REPLIES: Final = (Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2)
#: Behind the cluster's name: where replies are stored, which are pushed to the client that asked.
_REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
_NAMES_CLUSTER: Final = frozenset(
    {
        Code.REGISTER_BROKER, Code.UNREGISTER_BROKER, Code.DELETE_TOPIC_IN_NAMESRV, Code.QUERY_DATA_VERSION,
        Code.GET_BROKER_MEMBER_GROUP, Code.BROKER_HEARTBEAT, Code.REMOVE_BROKER,
    }
)  # fmt: skip


def _send(name: str) -> Need:
    return Need(group(name), _SUB) if is_retry_topic(name) else Need(topic(name), _PUB)


def _route(name: str) -> Need:
    if is_retry_topic(name):
        return Need(group(name), _SUB_OR_GET)
    return Need(topic(name), (Action.PUB, Action.SUB, Action.GET))


def _topic_and_group(ext: Mapping[str, str], actions: tuple[Action, ...]) -> list[Need]:
    """The group that asks, and the topic; a retry topic is what its own group may read."""
    return _needs([ext.get("topic", "")], [ext.get("consumerGroup", "")], actions)


def _needs(topics: Iterable[str], groups: Iterable[str], actions: tuple[Action, ...]) -> list[Need]:
    """One need a resource, topics first."""
    resources = [group(name) if is_retry_topic(name) else topic(name) for name in topics]
    return [Need(resource, actions) for resource in dict.fromkeys([*resources, *map(group, groups)])]


def _by_fields(fields: _Fields, ext: Mapping[str, str]) -> list[Need]:
    """Of the fields that the request carries."""
    names = [ext[name] for name in fields.topics if ext.get(name)]
    groups = [ext[name] for name in fields.groups if ext.get(name)]
    for field, separator in fields.topic_lists:
        names += [name for name in ext.get(field, "").split(separator) if name]
    for field, separator in fields.group_lists:
        groups += [name for name in ext.get(field, "").split(separator) if name]
    return _needs(names, groups, fields.actions)


def _heartbeat(body: bytes) -> list[Need]:
    """Producer groups are judged when one of their members is to be asked about a message."""
    consumers = HeartbeatData.decode(body).consumer_data_set
    return _needs(
        [subscription.topic for consumer in consumers for subscription in consumer.subscription_data_set],
        [consumer.group_name for consumer in consumers],
        _SUB,
    )


def _lock(body: bytes) -> list[Need]:
    request = LockBatchRequestBody.decode(body)
    return _needs([queue.topic for queue in request.mq_set], [request.consumer_group], _SUB)


def _batch_ack(body: bytes) -> list[Need]:
    """Its rows name group and topic by one letter each."""
    value: Any = json_dialect.loads(body)
    acks = value.get("acks") if isinstance(value, dict) else None
    if not isinstance(acks, list) or not all(isinstance(ack, dict) for ack in acks):
        raise RemoteProtocolError("a batch of acks has a list of objects named acks")
    return _needs([str(ack.get("t", "")) for ack in acks], [str(ack.get("c", "")) for ack in acks], _SUB)
