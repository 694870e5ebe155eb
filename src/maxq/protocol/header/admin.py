"""Headers of topic, group and broker administration.

Source:
    remoting/protocol/header/; broker-api.md §1.2, §1.3.
"""

from dataclasses import dataclass

from maxq.protocol.header_fields import CommandHeader, Long


@dataclass(slots=True)
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


@dataclass(slots=True)
class DeleteTopicRequestHeader(CommandHeader):
    """215."""

    topic: str


@dataclass(slots=True)
class GetAllTopicConfigRequestHeader(CommandHeader):
    """21. All absent: everything."""

    topic_seq: int | None = None
    data_version: str | None = None
    max_topic_num: int | None = None


@dataclass(slots=True)
class GetAllTopicConfigResponseHeader(CommandHeader):
    """Answer to 21."""

    total_topic_num: int | None = None


@dataclass(slots=True)
class GetTopicConfigRequestHeader(CommandHeader):
    """351."""

    topic: str


@dataclass(slots=True)
class GetTopicStatsInfoRequestHeader(CommandHeader):
    """202."""

    topic: str


@dataclass(slots=True)
class GetAllSubscriptionGroupRequestHeader(CommandHeader):
    """201. All absent: everything."""

    group_seq: int | None = None
    data_version: str | None = None
    max_group_num: int | None = None


@dataclass(slots=True)
class GetAllSubscriptionGroupResponseHeader(CommandHeader):
    """Answer to 201."""

    total_group_num: int | None = None


@dataclass(slots=True)
class GetSubscriptionGroupConfigRequestHeader(CommandHeader):
    """352."""

    group: str


@dataclass(slots=True)
class DeleteSubscriptionGroupRequestHeader(CommandHeader):
    """207."""

    group_name: str
    clean_offset: bool = False


@dataclass(slots=True)
class UpdateGroupForbiddenRequestHeader(CommandHeader):
    """353."""

    group: str
    topic: str
    readable: bool | None = None


@dataclass(slots=True)
class ViewBrokerStatsDataRequestHeader(CommandHeader):
    """315."""

    stats_name: str
    stats_key: str


@dataclass(slots=True)
class GetBrokerConfigResponseHeader(CommandHeader):
    """Answer to 26: `version` is a JSON DataVersion."""

    version: str


@dataclass(slots=True)
class ResumeCheckHalfMessageRequestHeader(CommandHeader):
    """323."""

    msg_id: str | None = None
    topic: str | None = None


@dataclass(slots=True)
class NotifyMinBrokerIdChangeRequestHeader(CommandHeader):
    """905."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


@dataclass(slots=True)
class ExchangeHAInfoHeader(CommandHeader):
    """906 and its answer."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@dataclass(slots=True)
class ResetMasterFlushOffsetHeader(CommandHeader):
    """908."""

    master_flush_offset: Long


@dataclass(slots=True)
class CheckRocksdbCqWriteProgressRequestHeader(CommandHeader):
    """354."""

    topic: str
    check_store_time: Long = 0
