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
from maxq.protocol.frame.header_fields import CommandHeader
from maxq.protocol.header import admin, client, namesrv, offset, pull, send
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
    12: Shape(offset.QueryMessageRequestHeader, None, offset.QueryMessageResponseHeader),
    14: Shape(offset.QueryConsumerOffsetRequestHeader, None, offset.QueryConsumerOffsetResponseHeader),
    15: Shape(offset.UpdateConsumerOffsetRequestHeader),
    17: Shape(admin.CreateTopicRequestHeader),
    18: Shape(None, topic_config.CreateTopicListRequestBody),
    21: Shape(
        admin.GetAllTopicConfigRequestHeader,
        None,
        admin.GetAllTopicConfigResponseHeader,
        topic_config.TopicConfigAndMappingSerializeWrapper,
    ),
    26: Shape(None, None, admin.GetBrokerConfigResponseHeader),
    28: Shape(None, None, None, route.KVTable),
    29: Shape(offset.SearchOffsetRequestHeader, None, offset.SearchOffsetResponseHeader),
    30: Shape(offset.GetMaxOffsetRequestHeader, None, offset.GetMaxOffsetResponseHeader),
    31: Shape(offset.GetMinOffsetRequestHeader, None, offset.GetMinOffsetResponseHeader),
    32: Shape(offset.GetEarliestMsgStoretimeRequestHeader, None, offset.GetEarliestMsgStoretimeResponseHeader),
    33: Shape(offset.ViewMessageRequestHeader),
    34: Shape(None, heartbeat.HeartbeatData),
    35: Shape(client.UnregisterClientRequestHeader),
    36: Shape(send.ConsumerSendMsgBackRequestHeader),
    37: Shape(send.EndTransactionRequestHeader),
    38: Shape(client.GetConsumerListByGroupRequestHeader, None, None, heartbeat.GetConsumerListByGroupResponseBody),
    39: Shape(send.CheckTransactionStateRequestHeader),
    40: Shape(client.NotifyConsumerIdsChangedRequestHeader),
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
        admin.GetAllSubscriptionGroupRequestHeader,
        None,
        admin.GetAllSubscriptionGroupResponseHeader,
        subscription.SubscriptionGroupWrapper,
    ),
    202: Shape(admin.GetTopicStatsInfoRequestHeader, None, None, offsets.TopicStatsTable),
    203: Shape(client.GetConsumerConnectionListRequestHeader, None, None, heartbeat.ConsumerConnection),
    204: Shape(client.GetProducerConnectionListRequestHeader, None, None, heartbeat.ProducerConnection),
    205: Shape(namesrv.WipeWritePermOfBrokerRequestHeader, None, namesrv.WipeWritePermOfBrokerResponseHeader),
    206: Shape(None, None, None, topic_config.TopicList),
    207: Shape(admin.DeleteSubscriptionGroupRequestHeader),
    208: Shape(client.GetConsumeStatsRequestHeader, None, None, offsets.ConsumeStats),
    215: Shape(admin.DeleteTopicRequestHeader),
    216: Shape(namesrv.DeleteTopicFromNamesrvRequestHeader),
    217: Shape(namesrv.RegisterTopicRequestHeader, route.TopicRouteData),
    219: Shape(namesrv.GetKVListByNamespaceRequestHeader, None, None, route.KVTable),
    220: Shape(offset.ResetOffsetRequestHeader, offsets.ResetOffsetBody),
    221: Shape(offset.GetConsumerStatusRequestHeader, None, None, offsets.GetConsumerStatusBody),
    222: Shape(offset.ResetOffsetRequestHeader, None, None, offsets.ResetOffsetBody),
    223: Shape(offset.GetConsumerStatusRequestHeader, None, None, offsets.GetConsumerStatusBody),
    224: Shape(namesrv.GetTopicsByClusterRequestHeader, None, None, topic_config.TopicList),
    300: Shape(client.QueryTopicConsumeByWhoRequestHeader, None, None, route.GroupList),
    303: Shape(offset.QueryConsumeTimeSpanRequestHeader, None, None, offsets.QueryConsumeTimeSpanBody),
    304: Shape(None, None, None, topic_config.TopicList),
    305: Shape(None, None, None, topic_config.TopicList),
    307: Shape(client.GetConsumerRunningInfoRequestHeader, None, None, consumer_info.ConsumerRunningInfo),
    308: Shape(offset.QueryCorrectionOffsetHeader, None, None, offsets.QueryCorrectionOffsetBody),
    309: Shape(
        client.ConsumeMessageDirectlyResultRequestHeader, None, None, consumer_info.ConsumeMessageDirectlyResult
    ),
    310: Shape(send.SendMessageRequestHeader, None, send.SendMessageResponseHeader),
    311: Shape(None, None, None, topic_config.TopicList),
    312: Shape(None, None, None, topic_config.TopicList),
    313: Shape(None, None, None, topic_config.TopicList),
    314: Shape(offset.CloneGroupOffsetRequestHeader),
    315: Shape(admin.ViewBrokerStatsDataRequestHeader, None, None, broker_stats.BrokerStatsData),
    317: Shape(client.GetConsumeStatsInBrokerHeader, None, None, offsets.ConsumeStatsList),
    320: Shape(send.SendMessageRequestHeader, None, send.SendMessageResponseHeader),
    321: Shape(offset.QueryConsumeQueueRequestHeader, None, None, broker_stats.QueryConsumeQueueResponseBody),
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
    343: Shape(client.QueryTopicsByConsumerRequestHeader, None, None, topic_config.TopicList),
    345: Shape(
        client.QuerySubscriptionByConsumerRequestHeader, None, None, subscription.QuerySubscriptionResponseBody
    ),
    351: Shape(admin.GetTopicConfigRequestHeader, None, None, topic_config.TopicConfigAndQueueMapping),
    400: Shape(
        None, consumer_info.QueryAssignmentRequestBody, None, consumer_info.QueryAssignmentResponseBody
    ),
    401: Shape(None, consumer_info.SetMessageRequestModeRequestBody),
    901: Shape(namesrv.GetBrokerMemberGroupRequestHeader, None, None, route.GetBrokerMemberGroupResponseBody),
    904: Shape(namesrv.BrokerHeartbeatRequestHeader),
    907: Shape(None, None, None, ha_runtime_info.HARuntimeInfo),
    200050: Shape(pull.PopMessageRequestHeader, None, pull.PopMessageResponseHeader),
    200051: Shape(pull.AckMessageRequestHeader),
    200052: Shape(pull.PeekMessageRequestHeader, None, pull.PopMessageResponseHeader),
    200053: Shape(pull.ChangeInvisibleTimeRequestHeader, None, pull.ChangeInvisibleTimeResponseHeader),
    200054: Shape(pull.NotificationRequestHeader, None, pull.NotificationResponseHeader),
}  # fmt: skip

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
