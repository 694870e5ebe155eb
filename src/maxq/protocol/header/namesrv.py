"""Headers of the name server.

Source:
    remoting/protocol/header/namesrv/.
"""

from maxq.protocol.frame.header_fields import CommandHeader, Long, header

#: Ext fields about zones in requests 105 and 103.
ZONE_MODE = "__ZONE_MODE"
ZONE_NAME = "__ZONE_NAME"


@header
class GetRouteInfoRequestHeader(CommandHeader):
    """Fields of GET_ROUTEINFO_BY_TOPIC (105)."""

    topic: str
    accept_standard_json_only: bool | None = None


@header
class RegisterBrokerRequestHeader(CommandHeader):
    """Fields of REGISTER_BROKER (103). A `body_crc32` of 0 is not checked. `maxq_whole` tells whether the broker has no
    other topics than these; Java's do not say."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: int = 0
    maxq_whole: bool | None = None


@header
class RegisterBrokerResponseHeader(CommandHeader):
    """Fields of the answer to REGISTER_BROKER (103)."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@header
class UnRegisterBrokerRequestHeader(CommandHeader):
    """Fields of UNREGISTER_BROKER (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@header
class QueryDataVersionRequestHeader(CommandHeader):
    """Fields of QUERY_DATA_VERSION (322)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@header
class QueryDataVersionResponseHeader(CommandHeader):
    """Fields of the answer to QUERY_DATA_VERSION (322)."""

    changed: bool


@header
class BrokerHeartbeatRequestHeader(CommandHeader):
    """Fields of BROKER_HEARTBEAT (904); those for the controller are optional."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: int | None = None


@header
class GetBrokerMemberGroupRequestHeader(CommandHeader):
    """Fields of GET_BROKER_MEMBER_GROUP (901)."""

    cluster_name: str
    broker_name: str


@header
class GetTopicsByClusterRequestHeader(CommandHeader):
    """Fields of GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


@header
class DeleteTopicFromNamesrvRequestHeader(CommandHeader):
    """Fields of DELETE_TOPIC_IN_NAMESRV (216)."""

    topic: str
    cluster_name: str | None = None


@header
class RegisterTopicRequestHeader(CommandHeader):
    """Fields of REGISTER_TOPIC_IN_NAMESRV (217)."""

    topic: str


@header
class WipeWritePermOfBrokerRequestHeader(CommandHeader):
    """Fields of WIPE_WRITE_PERM_OF_BROKER (205)."""

    broker_name: str


@header
class WipeWritePermOfBrokerResponseHeader(CommandHeader):
    """Fields of the answer to WIPE_WRITE_PERM_OF_BROKER (205)."""

    wipe_topic_count: int


@header
class AddWritePermOfBrokerRequestHeader(CommandHeader):
    """Fields of ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


@header
class AddWritePermOfBrokerResponseHeader(CommandHeader):
    """Fields of the answer to ADD_WRITE_PERM_OF_BROKER (327)."""

    add_topic_count: int


@header
class PutKVConfigRequestHeader(CommandHeader):
    """Fields of PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


@header
class GetKVConfigRequestHeader(CommandHeader):
    """Fields of GET_KV_CONFIG (101)."""

    namespace: str
    key: str


@header
class GetKVConfigResponseHeader(CommandHeader):
    """Fields of the answer to GET_KV_CONFIG (101)."""

    value: str | None = None


@header
class DeleteKVConfigRequestHeader(CommandHeader):
    """Fields of DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


@header
class GetKVListByNamespaceRequestHeader(CommandHeader):
    """Fields of GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str
