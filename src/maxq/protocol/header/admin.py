"""Headers of topic, group and broker administration.

Source:
    remoting/protocol/header/.
"""

from maxq.protocol.frame.header_fields import CommandHeader, Long, header


@header
class CreateTopicRequestHeader(CommandHeader):
    """Fields of UPDATE_AND_CREATE_TOPIC (17) and UPDATE_AND_CREATE_STATIC_TOPIC (513).

    `attributes` is written `+name=value,-name`.
    """

    topic: str
    default_topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str
    topic_sys_flag: int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


@header
class ResumeCheckHalfMessageRequestHeader(CommandHeader):
    """Fields of RESUME_CHECK_HALF_MESSAGE (323)."""

    msg_id: str | None = None
    topic: str | None = None


@header
class NotifyMinBrokerIdChangeRequestHeader(CommandHeader):
    """Fields of NOTIFY_MIN_BROKER_ID_CHANGE (905)."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


@header
class ExchangeHAInfoHeader(CommandHeader):
    """Fields of EXCHANGE_BROKER_HA_INFO (906) and of its answer."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@header
class ResetMasterFlushOffsetHeader(CommandHeader):
    """Fields of RESET_MASTER_FLUSH_OFFSET (908)."""

    master_flush_offset: Long
