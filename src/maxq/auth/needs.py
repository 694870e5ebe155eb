"""NEEDS: the table of what each request may touch, from which ACL 2.0 and ACL 1.0 judge.

A row says what a request needs by what is written in it (header fields, body), and which actions are asked for on the
topic of a record that it turns out to mean in the log. `in_rocketmq` is False where RocketMQ asks for nothing: every
user whose signature is right may do that there. `strict` judges those rows, too. A code without a row is refused,
except to users whom no rule binds; every code that a broker or a name server serves has one.

The topics in which brokers keep what they work on (delayed, half and staged messages, check points of pops, half
messages that were given up) hold messages of all topics: sending to them or reading them needs the right to update the
cluster, whatever a policy says about their names.

A message can name light queues that it is put into as well (INNER_MULTI_DISPATCH): to send it needs what a send to each
of them needs. RocketMQ does not look at these names.

Source:
    auth/authorization/builder/DefaultAuthorizationContextBuilder.java (as of 5.5.0: retry topics are judged by the
    topic alone); the annotations RocketMQAction and RocketMQResource of the request headers.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from maxq.auth.policy import Action, Need
from maxq.auth.resource import RETRY_PREFIX, cluster, group, is_retry_topic, topic
from maxq.codes import RequestCode as Code
from maxq.protocol.body.heartbeat import HeartbeatData
from maxq.protocol.body.offsets import LockBatchRequestBody
from maxq.protocol.body.pop import decode_batch_acks
from maxq.protocol.message.message_const import PROPERTY_INNER_MULTI_DISPATCH
from maxq.protocol.message.message_properties import decode_properties

_PUB: Final = (Action.PUB,)
_SUB: Final = (Action.SUB,)
_GET: Final = (Action.GET,)
_CREATE: Final = (Action.CREATE,)
_UPDATE: Final = (Action.UPDATE,)
_DELETE: Final = (Action.DELETE,)
_SUB_OR_GET: Final = (Action.SUB, Action.GET)
_SUB_OR_UPDATE: Final = (Action.SUB, Action.UPDATE)

#: The topic that stores replies is named after the cluster, with this suffix; replies are pushed to the client that
#: asked.
_REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
_BROKERS_OWN_PREFIXES: Final = ("rmq_sys_", "RMQ_SYS_TRANS_", "RMQ_SYS_ROCKSDB_TRANS_")
_BROKERS_OWN: Final = frozenset({"SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_MAX_TIME_TOPIC"})  # RocketMQ's names
_NAMES_LIGHT_QUEUES: Final = re.compile(PROPERTY_INNER_MULTI_DISPATCH.encode() + rb"\x01([^\x02]*)")


class _Asked(NamedTuple):
    """A request, and the cluster of the server that received it."""

    ext: Mapping[str, str]
    body: bytes
    cluster: str


class Rule(NamedTuple):
    """How to derive what a request needs, as words for the manual and as a function."""

    words: str
    needs: Callable[[_Asked], list[Need]]


class Row(NamedTuple):
    """What one request may touch.

    Attributes:
        by_request: the needs that follow from the fields and body of the request; all of them must be met.
        of_record: one of these actions is needed on the topic of each record that the request turns out to concern;
            empty: it concerns no record.
        in_rocketmq: whether RocketMQ requires a permission, too.
    """

    by_request: Rule
    of_record: tuple[Action, ...] = ()
    in_rocketmq: bool = True


def needs_of(
    code: int, ext: Mapping[str, str], body: bytes, *, cluster_name: str = "", strict: bool = True
) -> list[Need] | None:
    """Return all needs of a request, each of which must be met. None means that the table has no such code, so the
    request is refused.

    Args:
        ext: header fields.
        cluster_name: of the server that is asked.
        strict: ask for more than RocketMQ where it lets every user change a server.

    Raises:
        RemoteProtocolError: the body cannot be read.
    """
    row = NEEDS.get(code)
    if row is None:
        return None
    if not strict and not row.in_rocketmq:
        return []
    return row.by_request.needs(_Asked(ext, body, cluster_name))


def need_of_record(code: int, sent_to: str) -> Need:
    """Return what a request of this code needs when it turns out to concern a record that was sent to this topic."""
    return Need(group(sent_to) if is_retry_topic(sent_to) else topic(sent_to), NEEDS[code].of_record)


# --- rules ------------------------------------------------------------------------------------------------------------


def _nothing(asked: _Asked) -> list[Need]:
    """Require no permission: any request with a valid signature is allowed."""
    return []


def _fields(
    actions: tuple[Action, ...],
    topics: tuple[str, ...] = (),
    groups: tuple[str, ...] = (),
    lists: Mapping[str, str] | None = None,
) -> Rule:
    """Require the resources that header fields name, as far as the request carries the fields.

    Args:
        lists: field → separator, of the fields among `topics` and `groups` that hold several names.
    """
    separators = lists or {}

    def names(ext: Mapping[str, str], fields: tuple[str, ...]) -> list[str]:
        found = []
        for field in fields:
            text = ext.get(field, "")
            found += text.split(separators[field]) if field in separators else [text]
        return [name for name in found if name]

    kinds = {"topic": topics, "group": groups}
    named = [f"{kind}{'s' * (field in separators)} `{field}`" for kind, fields in kinds.items() for field in fields]
    return Rule(
        f"{_any_of(actions)} on {' and '.join(named)}",
        lambda asked: _needs(asked, names(asked.ext, topics), names(asked.ext, groups), actions),
    )


def _any_of(actions: tuple[Action, ...]) -> str:
    return " or ".join(action.value for action in actions)


def _topic_and_group(actions: tuple[Action, ...]) -> Rule:
    """Require the topic and the group that asks, also where the request leaves them out."""
    return Rule(
        f"{_any_of(actions)} on topic `topic` and group `consumerGroup`, also where they are left out",
        lambda asked: _needs(asked, [asked.ext.get("topic", "")], [asked.ext.get("consumerGroup", "")], actions),
    )


def _popped(asked: _Asked) -> list[Need]:
    """Require the popped topic and the popping group; a retry topic of that group for a topic, in either spelling,
    stands for both. The older spelling may name another group's retry topic, which the processors check."""
    name, of = asked.ext.get("topic", ""), asked.ext.get("consumerGroup", "")
    own = f"{RETRY_PREFIX}{of}"
    if of and name.startswith((f"{own}+", f"{own}_")):
        name = name[len(own) + 1 :]
    return _needs(asked, [name] if name else [], [of] if of else [], _SUB)


def _send(field: str, properties: str) -> Rule:
    """Require what a send needs to the topic that the header field `field` names.

    Args:
        properties: the header field with the properties of the message.
    """

    def rule(asked: _Asked) -> list[Need]:
        return [_need_to_send(asked, asked.ext.get(field, "")), *_light_queues(asked, asked.ext.get(properties, ""))]

    return Rule(
        f"Pub on topic `{field}` and on the light queues of the message; of a retry topic Sub on its group", rule
    )


def _reply(field: str, properties: str) -> Rule:
    """Require what a send needs, except for the topic in which the cluster's replies wait for requesters."""
    send = _send(field, properties)

    def rule(asked: _Asked) -> list[Need]:
        needs = send.needs(asked)
        return needs[1:] if asked.ext.get(field, "") == asked.cluster + _REPLY_TOPIC_SUFFIX else needs

    return Rule(f"{send.words}; nothing where it is the cluster's topic of replies", rule)


def _stage(asked: _Asked) -> list[Need]:
    """Require the topic, also where the request leaves it out, and the light queues that messages of the body name."""
    named = set(_NAMES_LIGHT_QUEUES.findall(asked.body))
    queues = sorted({name for names in named for name in names.decode("utf-8", "replace").split(",")})
    return _needs(asked, [asked.ext.get("topic", ""), *filter(None, queues)], [], _PUB)


def _light_queues(asked: _Asked, properties: str) -> list[Need]:
    """Require the queues into which a message with these properties is put besides that of its topic."""
    if PROPERTY_INNER_MULTI_DISPATCH not in properties:
        return []
    names = decode_properties(properties).get(PROPERTY_INNER_MULTI_DISPATCH, "").split(",")
    return [_need_to_send(asked, name) for name in dict.fromkeys(names) if name]


def _route(asked: _Asked) -> list[Need]:
    name = asked.ext.get("topic", "")
    if is_retry_topic(name):
        return [Need(group(name), _SUB_OR_GET)]
    return [Need(topic(name), (Action.PUB, Action.SUB, Action.GET))]


def _cluster(actions: tuple[Action, ...]) -> Rule:
    """Require these actions on the cluster of the server that is asked."""
    return Rule(f"{_any_of(actions)} on the cluster", lambda asked: [Need(cluster(asked.cluster), actions)])


def _named_cluster(actions: tuple[Action, ...]) -> Rule:
    """Require these actions on the cluster that the header names; the server's own where it names none."""

    def rule(asked: _Asked) -> list[Need]:
        named = asked.ext.get("clusterName") or asked.ext.get("brokerClusterName") or asked.cluster
        return [Need(cluster(named), actions)]

    return Rule(f"{_any_of(actions)} on the cluster that the header names", rule)


def _heartbeat(asked: _Asked) -> list[Need]:
    """Require what a heartbeat needs. Producer groups are judged when one of their members is to be asked about a
    message."""
    consumers = HeartbeatData.decode(asked.body).consumer_data_set
    return _needs(
        asked,
        [subscription.topic for consumer in consumers for subscription in consumer.subscription_data_set],
        [consumer.group_name for consumer in consumers],
        _SUB,
    )


def _lock(asked: _Asked) -> list[Need]:
    request = LockBatchRequestBody.decode(asked.body)
    return _needs(asked, [queue.topic for queue in request.mq_set], [request.consumer_group], _SUB)


def _batch_ack(asked: _Asked) -> list[Need]:
    """Require what the rows need: each names group and topic, and is read as the processor of acks reads it."""
    _, acks = decode_batch_acks(asked.body)
    return _needs(asked, [ack.topic for ack in acks], [ack.group for ack in acks], _SUB)


def _need_to_send(asked: _Asked, name: str) -> Need:
    if is_retry_topic(name):
        return Need(group(name), _SUB)
    return _need_of_topic(asked, name, _PUB)


def _needs(asked: _Asked, topics: Iterable[str], groups: Iterable[str], actions: tuple[Action, ...]) -> list[Need]:
    """Return one need for each resource, topics first; a retry topic is needed with the permissions that its own group
    has."""
    of_topics = [
        Need(group(name), actions) if is_retry_topic(name) else _need_of_topic(asked, name, actions) for name in topics
    ]
    return list(dict.fromkeys([*of_topics, *(Need(group(name), actions) for name in groups)]))


def _need_of_topic(asked: _Asked, name: str, actions: tuple[Action, ...]) -> Need:
    is_brokers_own = name in _BROKERS_OWN or name.startswith(_BROKERS_OWN_PREFIXES)
    if is_brokers_own and (Action.PUB in actions or Action.SUB in actions):
        return Need(cluster(asked.cluster), _UPDATE)
    return Need(topic(name), actions)


# --- the table --------------------------------------------------------------------------------------------------------

_TOPIC: Final = ("topic",)
_GROUP: Final = ("group",)
_CONSUMER: Final = ("consumerGroup",)
_APPLICATION: Final = ("application",)

_NOTHING: Final = Rule("nothing", _nothing)
_POPPED: Final = Rule("Sub on topic `topic` and group `consumerGroup`", _popped)
_STAGE: Final = Rule("Pub on topic `topic`, also where it is left out, and on the light queues of the messages", _stage)
_ROUTE: Final = Rule("Pub, Sub or Get on topic `topic`; of a retry topic Sub or Get on its group", _route)
_HEARTBEAT: Final = Rule("Sub on the topics and consumer groups of the body", _heartbeat)
_LOCK: Final = Rule("Sub on the topics and the group of the body", _lock)
_BATCH_ACK: Final = Rule("Sub on the topics and groups of the body", _batch_ack)

#: The one place that says what a request may touch; see the module.
NEEDS: Final[Mapping[int, Row]] = {
    # clients: sending
    Code.SEND_MESSAGE: Row(_send("topic", "properties")),
    Code.SEND_MESSAGE_V2: Row(_send("b", "i")),
    Code.SEND_BATCH_MESSAGE: Row(_send("b", "i")),
    Code.SEND_REPLY_MESSAGE: Row(_reply("topic", "properties"), in_rocketmq=False),
    Code.SEND_REPLY_MESSAGE_V2: Row(_reply("b", "i"), in_rocketmq=False),
    Code.RECALL_MESSAGE: Row(_fields(_PUB, _TOPIC)),
    Code.END_TRANSACTION: Row(_fields(_PUB, _TOPIC), _PUB),
    Code.HEART_BEAT: Row(_HEARTBEAT, _PUB),
    Code.UNREGISTER_CLIENT: Row(_fields(_SUB, (), _CONSUMER)),
    Code.CHECK_CLIENT_CONFIG: Row(_NOTHING),
    Code.GET_ROUTEINFO_BY_TOPIC: Row(_ROUTE),
    # clients: consuming
    Code.PULL_MESSAGE: Row(_topic_and_group(_SUB)),
    Code.LITE_PULL_MESSAGE: Row(_topic_and_group(_SUB), in_rocketmq=False),
    Code.CONSUMER_SEND_MSG_BACK: Row(_fields(_SUB, (), _GROUP), _SUB),
    Code.QUERY_CONSUMER_OFFSET: Row(_topic_and_group(_SUB_OR_GET)),
    Code.UPDATE_CONSUMER_OFFSET: Row(_topic_and_group(_SUB_OR_UPDATE)),
    Code.GET_CONSUMER_LIST_BY_GROUP: Row(_fields(_SUB_OR_GET, (), _CONSUMER)),
    Code.LOCK_BATCH_MQ: Row(_LOCK),
    Code.UNLOCK_BATCH_MQ: Row(_LOCK),
    Code.QUERY_ASSIGNMENT: Row(_NOTHING),
    Code.POP_MESSAGE: Row(_fields(_SUB, _TOPIC, _CONSUMER)),
    Code.PEEK_MESSAGE: Row(_fields(_SUB, _TOPIC, _CONSUMER)),
    Code.NOTIFICATION: Row(_fields(_SUB, _TOPIC, _CONSUMER)),
    Code.ACK_MESSAGE: Row(_POPPED),
    Code.CHANGE_MESSAGE_INVISIBLETIME: Row(_POPPED),
    Code.BATCH_ACK_MESSAGE: Row(_BATCH_ACK, in_rocketmq=False),
    Code.POP_ROLLBACK: Row(_cluster(_UPDATE), in_rocketmq=False),
    Code.POLLING_INFO: Row(_fields(_GET, _TOPIC, _CONSUMER)),
    Code.POP_LITE_MESSAGE: Row(_topic_and_group(_SUB), in_rocketmq=False),
    Code.LITE_SUBSCRIPTION_CTL: Row(_topic_and_group(_SUB), in_rocketmq=False),
    Code.ACK_LITE_MESSAGE: Row(_topic_and_group(_SUB), in_rocketmq=False),
    Code.TRIGGER_LITE_DISPATCH: Row(_cluster(_UPDATE), in_rocketmq=False),
    # messages that were stored
    Code.QUERY_MESSAGE: Row(_fields(_SUB_OR_GET, _TOPIC), _SUB_OR_GET),
    Code.VIEW_MESSAGE_BY_ID: Row(_fields(_GET, _TOPIC), _SUB_OR_GET),
    Code.CONSUME_MESSAGE_DIRECTLY: Row(_fields(_SUB, _TOPIC, _CONSUMER), _SUB_OR_GET),
    Code.RESUME_CHECK_HALF_MESSAGE: Row(_fields(_UPDATE, _TOPIC), _UPDATE),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: Row(_fields(_GET, _TOPIC)),
    Code.GET_MAX_OFFSET: Row(_fields(_GET, _TOPIC)),
    Code.GET_MIN_OFFSET: Row(_fields(_GET, _TOPIC)),
    Code.GET_EARLIEST_MSG_STORETIME: Row(_fields(_GET, _TOPIC)),
    Code.GET_TOPIC_STATS_INFO: Row(_fields(_GET, _TOPIC)),
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: Row(_fields(_GET, _TOPIC)),
    Code.QUERY_CONSUME_QUEUE: Row(_fields(_GET, _TOPIC, _CONSUMER)),
    # topics and groups
    Code.UPDATE_AND_CREATE_TOPIC: Row(_fields(_CREATE, _TOPIC)),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: Row(_cluster(_UPDATE), in_rocketmq=False),
    # this command names queues of other brokers, which this broker then asks on its own authority
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: Row(_cluster(_UPDATE), in_rocketmq=False),
    Code.DELETE_TOPIC_IN_BROKER: Row(_fields(_DELETE, _TOPIC)),
    Code.MAXQ_PURGE_TOPIC: Row(_cluster(_UPDATE)),
    Code.GET_TOPIC_CONFIG: Row(_fields(_GET, _TOPIC)),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: Row(_fields(_GET, _TOPIC)),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Row(_cluster(_UPDATE), in_rocketmq=False),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Row(_cluster(_UPDATE), in_rocketmq=False),
    Code.DELETE_SUBSCRIPTIONGROUP: Row(_fields(_DELETE, (), ("groupName",))),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: Row(_fields(_GET, (), _GROUP)),
    Code.GET_CONSUMER_CONNECTION_LIST: Row(_fields(_GET, (), _CONSUMER)),
    Code.GET_CONSUMER_RUNNING_INFO: Row(_fields(_GET, (), _CONSUMER)),
    Code.GET_CONSUME_STATS: Row(_fields(_GET, ("topic", "topicList"), _CONSUMER, {"topicList": ";"})),
    Code.QUERY_TOPICS_BY_CONSUMER: Row(_fields(_GET, (), _GROUP)),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: Row(_fields(_GET, _TOPIC, _GROUP)),
    Code.QUERY_CONSUME_TIME_SPAN: Row(_fields(_GET, _TOPIC, _GROUP)),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Row(_fields(_GET, _TOPIC, _GROUP)),
    Code.QUERY_CORRECTION_OFFSET: Row(_fields(_GET, _TOPIC, ("compareGroup", "filterGroups"), {"filterGroups": ","})),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: Row(_fields(_UPDATE, _TOPIC, _GROUP)),
    Code.CLONE_GROUP_OFFSET: Row(_fields(_UPDATE, _TOPIC, ("srcGroup", "destGroup"))),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: Row(_fields(_UPDATE, _TOPIC, _GROUP)),
    Code.SET_MESSAGE_REQUEST_MODE: Row(_cluster(_UPDATE), in_rocketmq=False),
    # a server as a whole: what every user may see …
    Code.GET_ALL_TOPIC_CONFIG: Row(_NOTHING),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Row(_NOTHING),
    Code.GET_ALL_CONSUMER_OFFSET: Row(_NOTHING),
    Code.GET_ALL_DELAY_OFFSET: Row(_NOTHING),
    Code.GET_ALL_MESSAGE_REQUEST_MODE: Row(_NOTHING),
    Code.GET_BROKER_CONFIG: Row(_NOTHING),
    Code.GET_NAMESRV_CONFIG: Row(_NOTHING),
    Code.GET_BROKER_RUNTIME_INFO: Row(_NOTHING),
    Code.GET_TIMER_CHECK_POINT: Row(_NOTHING),
    Code.GET_TIMER_METRICS: Row(_NOTHING),
    Code.GET_BROKER_CLUSTER_INFO: Row(_NOTHING),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Row(_NOTHING),
    Code.GET_TOPICS_BY_CLUSTER: Row(_NOTHING),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: Row(_NOTHING),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Row(_NOTHING),
    Code.GET_UNIT_TOPIC_LIST: Row(_NOTHING),
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: Row(_NOTHING),
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Row(_NOTHING),
    Code.GET_COLD_DATA_FLOW_CTR_INFO: Row(_NOTHING),
    Code.GET_BROKER_EPOCH_CACHE: Row(_NOTHING),
    Code.CONTROLLER_GET_SYNC_STATE_DATA: Row(_NOTHING),
    # … what needs the cluster …
    Code.GET_KV_CONFIG: Row(_cluster(_GET)),
    Code.GET_KVLIST_BY_NAMESPACE: Row(_cluster(_GET)),
    Code.QUERY_DATA_VERSION: Row(_named_cluster(_GET)),
    Code.GET_PRODUCER_CONNECTION_LIST: Row(_cluster(_GET)),
    Code.VIEW_BROKER_STATS_DATA: Row(_cluster(_GET)),
    Code.GET_BROKER_CONSUME_STATS: Row(_cluster(_GET)),
    Code.GET_ALL_PRODUCER_INFO: Row(_cluster(_GET)),
    Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: Row(_cluster(_GET)),
    Code.GET_BROKER_MEMBER_GROUP: Row(_named_cluster(_GET)),
    Code.AUTH_GET_USER: Row(_cluster(_GET)),
    Code.AUTH_LIST_USER: Row(_cluster(_GET)),
    Code.AUTH_GET_ACL: Row(_cluster(_GET)),
    Code.AUTH_LIST_ACL: Row(_cluster(_GET)),
    Code.MAXQ_LIST_TIMER_MESSAGES: Row(_cluster(_GET)),
    Code.MAXQ_INSPECT_TIMER_MESSAGE: Row(_cluster(_GET)),
    Code.GET_BROKER_LITE_INFO: Row(_cluster(_GET)),
    Code.GET_PARENT_TOPIC_INFO: Row(_cluster(_GET)),
    Code.GET_LITE_TOPIC_INFO: Row(_cluster(_GET)),
    Code.GET_LITE_CLIENT_INFO: Row(_cluster(_GET)),
    Code.GET_LITE_GROUP_INFO: Row(_cluster(_GET)),
    # … and what changes it
    Code.UPDATE_BROKER_CONFIG: Row(_cluster(_UPDATE), in_rocketmq=False),
    Code.UPDATE_NAMESRV_CONFIG: Row(_cluster(_UPDATE), in_rocketmq=False),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: Row(_cluster(_UPDATE), in_rocketmq=False),
    Code.CLEAN_UNUSED_TOPIC: Row(_cluster(_UPDATE), in_rocketmq=False),
    Code.DELETE_EXPIRED_COMMITLOG: Row(_cluster(_UPDATE), in_rocketmq=False),
    Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: Row(_cluster(_UPDATE), in_rocketmq=False),
    Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: Row(_cluster(_UPDATE), in_rocketmq=False),
    Code.SET_COMMITLOG_READ_MODE: Row(_cluster(_UPDATE), in_rocketmq=False),
    Code.PUT_KV_CONFIG: Row(_cluster(_UPDATE)),
    Code.DELETE_KV_CONFIG: Row(_cluster(_UPDATE)),
    Code.REGISTER_BROKER: Row(_named_cluster(_UPDATE)),
    Code.UNREGISTER_BROKER: Row(_named_cluster(_UPDATE)),
    Code.WIPE_WRITE_PERM_OF_BROKER: Row(_cluster(_UPDATE)),
    Code.ADD_WRITE_PERM_OF_BROKER: Row(_cluster(_UPDATE)),
    Code.DELETE_TOPIC_IN_NAMESRV: Row(_named_cluster(_UPDATE)),
    Code.REGISTER_TOPIC_IN_NAMESRV: Row(_cluster(_UPDATE)),
    Code.ADD_BROKER: Row(_cluster(_UPDATE)),
    Code.REMOVE_BROKER: Row(_named_cluster(_UPDATE)),
    Code.BROKER_HEARTBEAT: Row(_named_cluster(_UPDATE)),
    Code.NOTIFY_MIN_BROKER_ID_CHANGE: Row(_cluster(_UPDATE)),
    Code.EXCHANGE_BROKER_HA_INFO: Row(_cluster(_UPDATE)),
    Code.GET_BROKER_HA_STATUS: Row(_cluster(_UPDATE)),
    Code.RESET_MASTER_FLUSH_OFFSET: Row(_cluster(_UPDATE)),
    Code.NOTIFY_BROKER_ROLE_CHANGED: Row(_cluster(_UPDATE)),
    Code.MAXQ_HAND_BACK_POPS: Row(_cluster(_UPDATE)),
    Code.MAXQ_COPY_POPS: Row(_cluster(_UPDATE)),
    # whoever asks counts as a copy of the tables, so it needs the right to change them
    Code.MAXQ_AWAIT_TABLE_CHANGE: Row(_cluster(_UPDATE)),
    Code.AUTH_CREATE_USER: Row(_cluster(_UPDATE)),
    Code.AUTH_UPDATE_USER: Row(_cluster(_UPDATE)),
    Code.AUTH_DELETE_USER: Row(_cluster(_UPDATE)),
    Code.AUTH_CREATE_ACL: Row(_cluster(_UPDATE)),
    Code.AUTH_UPDATE_ACL: Row(_cluster(_UPDATE)),
    Code.AUTH_DELETE_ACL: Row(_cluster(_UPDATE)),
    Code.MAXQ_WHY_SLOW: Row(_cluster(_UPDATE)),
    Code.MAXQ_CANCEL_TIMER_MESSAGE: Row(_cluster(_UPDATE)),
    Code.CONTROLLER_ELECT_MASTER: Row(_cluster(_UPDATE)),
    Code.CONTROLLER_GET_METADATA_INFO: Row(_cluster(_UPDATE)),
    Code.UPDATE_CONTROLLER_CONFIG: Row(_cluster(_UPDATE)),
    Code.GET_CONTROLLER_CONFIG: Row(_cluster(_UPDATE)),
    Code.CLEAN_BROKER_DATA: Row(_cluster(_UPDATE)),
    Code.SWITCH_TIMER_ENGINE: Row(_cluster(_UPDATE)),
    # accounts of ACL 1.0
    Code.UPDATE_AND_CREATE_ACL_CONFIG: Row(_cluster(_UPDATE)),
    Code.DELETE_ACL_CONFIG: Row(_cluster(_UPDATE)),
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Row(_cluster(_UPDATE)),
    Code.GET_BROKER_CLUSTER_ACL_INFO: Row(_cluster(_UPDATE)),
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: Row(_cluster(_UPDATE)),
    # MaxQ's own: the application of a batch that commits together counts as a topic
    Code.MAXQ_STAGE_MESSAGES: Row(_STAGE),
    Code.MAXQ_STAGED_DECISION: Row(_fields(_PUB, _APPLICATION)),
    Code.MAXQ_DECIDE_STAGED: Row(_fields(_PUB, _APPLICATION)),
    Code.MAXQ_DELIVER_STAGED: Row(_fields(_PUB, _APPLICATION)),
    Code.MAXQ_CLAIM_STAGED: Row(_fields(_PUB, _APPLICATION)),
}
