"""The recorded exchanges of Java clients, brokers and name servers, and which of our classes each one is."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from maxq.protocol.body import (
    broker_stats,
    consumer_info,
    data_version,
    ha_runtime_info,
    heartbeat,
    offsets,
    register_broker,
    route,
    subscription,
    topic_config,
)
from maxq.protocol.frame.header_fields import CommandHeader, Long, header
from maxq.protocol.header import namesrv, pull, query, send
from maxq.protocol.json.json_body import JsonBody
from tests.golden import WIRE

Header = type[CommandHeader] | None
Body = type[JsonBody] | None


@dataclass(frozen=True)
class Shape:
    """Classes of one request code: request header, request body, response header, response body."""

    request: Header = None
    body: Body = None
    response: Header = None
    answer: Body = None


def java_header(fields: str) -> type[CommandHeader]:
    """A header class for requests whose fields are read one by one, where they are served.

    Args:
        fields: names on the wire, each with its type (else text), and `?` or `=default` if it may be absent.
    """
    kinds = {"": str, "int": int, "long": Long, "bool": bool}
    annotations: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for word in fields.split():
        rest, _, default = word.partition("=")
        name, _, kind = rest.rstrip("?").partition(":")
        annotations[name] = kinds[kind]
        if rest.endswith("?"):
            annotations[name], defaults[name] = kinds[kind] | None, None
        elif default:
            defaults[name] = {"bool": default == "true", "": default}[kind] if kind in ("", "bool") else int(default)
    return header(type("JavaHeader", (CommandHeader,), {"__annotations__": annotations, **defaults}))


@dataclass(frozen=True)
class Exchange:
    """One line of a recording."""

    side: str
    file: str
    code: int
    to_client: bool
    label: str
    request: dict[str, Any]
    response: dict[str, Any] | None

    def frames(self) -> list[dict[str, Any]]:
        return [frame for frame in (self.request, self.response) if frame]


SHAPES: dict[int, Shape] = {
    10: Shape(send.SendMessageRequestHeader, None, send.SendMessageResponseHeader),
    11: Shape(pull.PullMessageRequestHeader, None, pull.PullMessageResponseHeader),
    12: Shape(
        query.QueryMessageRequestHeader,
        None,
        java_header("indexLastUpdateTimestamp:long indexLastUpdatePhyoffset:long"),
    ),
    14: Shape(java_header("consumerGroup topic queueId:int setZeroIfNotFound:bool?"), None, java_header("offset:long")),
    15: Shape(java_header("consumerGroup topic queueId:int? commitOffset:long?")),
    17: Shape(
        java_header(
            "topic defaultTopic readQueueNums:int writeQueueNums:int perm:int topicFilterType topicSysFlag:int? "
            "order:bool=false attributes? force:bool=false"
        )
    ),
    18: Shape(None, topic_config.CreateTopicListRequestBody),
    21: Shape(
        java_header("topicSeq:int? dataVersion? maxTopicNum:int?"),
        None,
        java_header("totalTopicNum:int?"),
        topic_config.TopicConfigAndMappingSerializeWrapper,
    ),
    26: Shape(None, None, java_header("version")),
    28: Shape(None, None, None, route.KVTable),
    29: Shape(
        java_header("topic queueId:int timestamp:long boundaryType=LOWER liteTopic?"), None, java_header("offset:long")
    ),
    30: Shape(java_header("topic queueId:int committed:bool=true"), None, java_header("offset:long")),
    31: Shape(java_header("topic queueId:int"), None, java_header("offset:long")),
    32: Shape(java_header("topic queueId:int"), None, java_header("timestamp:long")),
    33: Shape(query.ViewMessageRequestHeader),
    34: Shape(None, heartbeat.HeartbeatData),
    35: Shape(java_header("clientID producerGroup? consumerGroup?")),
    36: Shape(send.ConsumerSendMsgBackRequestHeader),
    37: Shape(send.EndTransactionRequestHeader),
    38: Shape(java_header("consumerGroup"), None, None, heartbeat.GetConsumerListByGroupResponseBody),
    39: Shape(send.CheckTransactionStateRequestHeader),
    40: Shape(java_header("consumerGroup")),
    41: Shape(None, offsets.LockBatchRequestBody, None, offsets.LockBatchResponseBody),
    42: Shape(None, offsets.UnlockBatchRequestBody),
    43: Shape(None, None, None, offsets.ConsumerOffsetSerializeWrapper),
    45: Shape(None, None, None, offsets.DelayOffsetSerializeWrapper),
    46: Shape(None, subscription.CheckClientRequestBody),
    100: Shape(namesrv.PutKVConfigRequestHeader),
    101: Shape(namesrv.GetKVConfigRequestHeader, None, namesrv.GetKVConfigResponseHeader),
    102: Shape(namesrv.DeleteKVConfigRequestHeader),
    103: Shape(
        namesrv.RegisterBrokerRequestHeader,
        register_broker.RegisterBrokerBody,
        namesrv.RegisterBrokerResponseHeader,
        route.KVTable,
    ),
    104: Shape(namesrv.UnRegisterBrokerRequestHeader),
    105: Shape(namesrv.GetRouteInfoRequestHeader, None, None, route.TopicRouteData),
    106: Shape(None, None, None, route.ClusterInfo),
    200: Shape(None, subscription.SubscriptionGroupConfig),
    201: Shape(
        java_header("groupSeq:int? dataVersion? maxGroupNum:int?"),
        None,
        java_header("totalGroupNum:int?"),
        subscription.SubscriptionGroupWrapper,
    ),
    202: Shape(java_header("topic"), None, None, offsets.TopicStatsTable),
    203: Shape(java_header("consumerGroup"), None, None, heartbeat.ConsumerConnection),
    204: Shape(java_header("producerGroup"), None, None, heartbeat.ProducerConnection),
    205: Shape(namesrv.WipeWritePermOfBrokerRequestHeader, None, namesrv.WipeWritePermOfBrokerResponseHeader),
    206: Shape(None, None, None, topic_config.TopicList),
    207: Shape(java_header("groupName cleanOffset:bool=false")),
    208: Shape(java_header("consumerGroup topic? topicList?"), None, None, offsets.ConsumeStats),
    215: Shape(java_header("topic")),
    216: Shape(namesrv.DeleteTopicFromNamesrvRequestHeader),
    217: Shape(namesrv.RegisterTopicRequestHeader, route.TopicRouteData),
    219: Shape(namesrv.GetKVListByNamespaceRequestHeader, None, None, route.KVTable),
    220: Shape(
        java_header("topic group timestamp:long isForce:bool queueId:int=-1 offset:long?"), offsets.ResetOffsetBody
    ),
    221: Shape(java_header("topic group clientAddr?"), None, None, offsets.GetConsumerStatusBody),
    222: Shape(
        java_header("topic group timestamp:long isForce:bool queueId:int=-1 offset:long?"),
        None,
        None,
        offsets.ResetOffsetBody,
    ),
    223: Shape(java_header("topic group clientAddr?"), None, None, offsets.GetConsumerStatusBody),
    224: Shape(namesrv.GetTopicsByClusterRequestHeader, None, None, topic_config.TopicList),
    300: Shape(java_header("topic"), None, None, route.GroupList),
    303: Shape(java_header("topic group"), None, None, offsets.QueryConsumeTimeSpanBody),
    304: Shape(None, None, None, topic_config.TopicList),
    305: Shape(None, None, None, topic_config.TopicList),
    307: Shape(
        java_header("consumerGroup clientId jstackEnable:bool=false"), None, None, consumer_info.ConsumerRunningInfo
    ),
    308: Shape(java_header("compareGroup topic filterGroups?"), None, None, offsets.QueryCorrectionOffsetBody),
    309: Shape(
        java_header("consumerGroup clientId? msgId? brokerName? topic? topicSysFlag:int? groupSysFlag:int?"),
        None,
        None,
        consumer_info.ConsumeMessageDirectlyResult,
    ),
    310: Shape(send.SendMessageRequestHeader, None, send.SendMessageResponseHeader),
    311: Shape(None, None, None, topic_config.TopicList),
    312: Shape(None, None, None, topic_config.TopicList),
    313: Shape(None, None, None, topic_config.TopicList),
    314: Shape(java_header("srcGroup destGroup topic? offline:bool=false")),
    315: Shape(java_header("statsName statsKey"), None, None, broker_stats.BrokerStatsData),
    317: Shape(java_header("isOrder:bool"), None, None, offsets.ConsumeStatsList),
    320: Shape(send.SendMessageRequestHeader, None, send.SendMessageResponseHeader),
    321: Shape(
        java_header("topic? queueId:int=0 index:long=0 count:int=0 consumerGroup?"),
        None,
        None,
        broker_stats.QueryConsumeQueueResponseBody,
    ),
    322: Shape(
        namesrv.QueryDataVersionRequestHeader,
        data_version.DataVersion,
        namesrv.QueryDataVersionResponseHeader,
        data_version.DataVersion,
    ),
    324: Shape(send.SendMessageRequestHeader, None, send.SendMessageResponseHeader),
    325: Shape(send.SendMessageRequestHeader, None, send.SendMessageResponseHeader),
    326: Shape(send.ReplyMessageRequestHeader),
    327: Shape(namesrv.AddWritePermOfBrokerRequestHeader, None, namesrv.AddWritePermOfBrokerResponseHeader),
    328: Shape(None, None, None, heartbeat.ProducerTableInfo),
    343: Shape(java_header("group"), None, None, topic_config.TopicList),
    345: Shape(java_header("group topic?"), None, None, subscription.QuerySubscriptionResponseBody),
    351: Shape(java_header("topic"), None, None, topic_config.TopicConfigAndQueueMapping),
    400: Shape(None, consumer_info.QueryAssignmentRequestBody, None, consumer_info.QueryAssignmentResponseBody),
    401: Shape(None, consumer_info.SetMessageRequestModeRequestBody),
    901: Shape(namesrv.GetBrokerMemberGroupRequestHeader, None, None, route.GetBrokerMemberGroupResponseBody),
    904: Shape(namesrv.BrokerHeartbeatRequestHeader),
    907: Shape(None, None, None, ha_runtime_info.HARuntimeInfo),
    200050: Shape(pull.PopMessageRequestHeader, None, pull.PopMessageResponseHeader),
    200051: Shape(pull.AckMessageRequestHeader),
    200052: Shape(pull.PeekMessageRequestHeader, None, pull.PopMessageResponseHeader),
    200053: Shape(pull.ChangeInvisibleTimeRequestHeader, None, pull.ChangeInvisibleTimeResponseHeader),
    200054: Shape(pull.NotificationRequestHeader, None, java_header("hasMsg:bool pollingFull:bool=false")),
}

#: Codes without header fields and JSON body, or whose body is no JSON of ours: properties text, timer tables of a later
#: issue, the unknown code.
PLAIN = {25, 60, 61, 306, 316, 318, 319, 9999}


@cache
def exchanges() -> tuple[Exchange, ...]:
    """Every recorded exchange; empty where the recordings are not on this machine."""
    return tuple(_read())


def _read() -> Iterator[Exchange]:
    for path in sorted(WIRE.glob("*/*/*.jsonl")):
        name = path.stem
        with path.open() as lines:
            for line in lines:
                row = json.loads(line)
                yield Exchange(
                    path.parts[-3], "/".join(path.parts[-3:]), int(name[:6]), name.endswith("-to-client"),
                    row["label"], row["request"], row["response"],
                )  # fmt: skip
