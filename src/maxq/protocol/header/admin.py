"""Headers of topic, group and broker administration.

Source:
    remoting/protocol/header/.
"""

from maxq.protocol.frame.header_fields import CommandHeader, Long, header


@header
class CreateTopicRequestHeader(CommandHeader):
    """17, 513. `attributes`: `+name=value,-name`."""

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
    """323."""

    msg_id: str | None = None
    topic: str | None = None


@header
class NotifyMinBrokerIdChangeRequestHeader(CommandHeader):
    """905."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


@header
class ExchangeHAInfoHeader(CommandHeader):
    """906 and its answer."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@header
class ResetMasterFlushOffsetHeader(CommandHeader):
    """908."""

    master_flush_offset: Long
