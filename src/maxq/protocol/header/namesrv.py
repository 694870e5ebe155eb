"""Headers of the name server.

Source:
    remoting/protocol/header/namesrv/.
"""

from maxq.protocol.frame.header_fields import CommandHeader, Long, header

#: Ext fields of 105 and 103 about zones.
ZONE_MODE = "__ZONE_MODE"
ZONE_NAME = "__ZONE_NAME"


@header
class GetRouteInfoRequestHeader(CommandHeader):
    """105."""

    topic: str
    accept_standard_json_only: bool | None = None


@header
class RegisterBrokerRequestHeader(CommandHeader):
    """103. `body_crc32` 0 means unchecked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: int = 0


@header
class RegisterBrokerResponseHeader(CommandHeader):
    """Answer to 103."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@header
class UnRegisterBrokerRequestHeader(CommandHeader):
    """104."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@header
class QueryDataVersionRequestHeader(CommandHeader):
    """322."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@header
class QueryDataVersionResponseHeader(CommandHeader):
    """Answer to 322."""

    changed: bool


@header
class BrokerHeartbeatRequestHeader(CommandHeader):
    """904; the controller's fields are optional."""

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
    """901."""

    cluster_name: str
    broker_name: str


@header
class GetTopicsByClusterRequestHeader(CommandHeader):
    """224."""

    cluster: str


@header
class DeleteTopicFromNamesrvRequestHeader(CommandHeader):
    """216."""

    topic: str
    cluster_name: str | None = None


@header
class RegisterTopicRequestHeader(CommandHeader):
    """217."""

    topic: str


@header
class WipeWritePermOfBrokerRequestHeader(CommandHeader):
    """205."""

    broker_name: str


@header
class WipeWritePermOfBrokerResponseHeader(CommandHeader):
    """Answer to 205."""

    wipe_topic_count: int


@header
class AddWritePermOfBrokerRequestHeader(CommandHeader):
    """327."""

    broker_name: str


@header
class AddWritePermOfBrokerResponseHeader(CommandHeader):
    """Answer to 327."""

    add_topic_count: int


@header
class PutKVConfigRequestHeader(CommandHeader):
    """100."""

    namespace: str
    key: str
    value: str


@header
class GetKVConfigRequestHeader(CommandHeader):
    """101."""

    namespace: str
    key: str


@header
class GetKVConfigResponseHeader(CommandHeader):
    """Answer to 101."""

    value: str | None = None


@header
class DeleteKVConfigRequestHeader(CommandHeader):
    """102."""

    namespace: str
    key: str


@header
class GetKVListByNamespaceRequestHeader(CommandHeader):
    """219."""

    namespace: str
