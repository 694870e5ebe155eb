"""Bodies in which clients describe themselves to a broker, and in which the broker describes them to others.

Source:
    remoting/protocol/heartbeat/{HeartbeatData,ProducerData,ConsumerData}.java,
    remoting/protocol/body/{Connection,ConsumerConnection,ProducerConnection,ProducerTableInfo}.java.
"""

from dataclasses import field
from typing import ClassVar

from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.enums import ConsumeFromWhere, ConsumeType, MessageModel
from maxq.protocol.json.json_body import JsonBody, json_body


@json_body
class ProducerData(JsonBody):
    """A producer group that a client tells in its heartbeat."""

    group_name: str = ""


@json_body
class ConsumerData(JsonBody):
    """A consumer group of the client and its subscriptions."""

    group_name: str = ""
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


@json_body
class HeartbeatData(JsonBody):
    """Body of request 34. A fingerprint other than 0 makes it version 2; then `without_sub` leaves the subscriptions
    out."""

    WIRE: ClassVar[dict[str, str]] = {"client_id": "clientID"}

    client_id: str = ""
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


@json_body
class ConnectionInfo(JsonBody):
    """One client of a group. `language` is a LanguageCode name, `version` an MQVersion ordinal."""

    client_id: str | None = None
    client_addr: str | None = None
    language: str | None = None
    version: int = 0


@json_body
class ConsumerConnection(JsonBody):
    """Body of the answer to request 203."""

    connection_set: list[ConnectionInfo] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


@json_body
class ProducerConnection(JsonBody):
    """Body of the answer to request 204."""

    connection_set: list[ConnectionInfo] = field(default_factory=list)


@json_body
class ProducerInfo(JsonBody):
    """One producer of ProducerTableInfo; `last_update_timestamp` is wall time in ms."""

    WIRE: ClassVar[dict[str, str]] = {"remote_ip": "remoteIP"}

    client_id: str | None = None
    remote_ip: str | None = None
    language: str | None = None
    version: int = 0
    last_update_timestamp: int = 0


@json_body
class ProducerTableInfo(JsonBody):
    """Body of the answer to request 328: group → producers."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


@json_body
class GetConsumerListByGroupResponseBody(JsonBody):
    """Body of the answer to request 38."""

    consumer_id_list: list[str] = field(default_factory=list)
