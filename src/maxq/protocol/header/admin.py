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
class DeleteTopicRequestHeader(CommandHeader):
    """215."""

    topic: str


@header
class GetAllTopicConfigRequestHeader(CommandHeader):
    """21. All absent: everything."""

    topic_seq: int | None = None
    data_version: str | None = None
    max_topic_num: int | None = None


@header
class GetAllTopicConfigResponseHeader(CommandHeader):
    """Answer to 21."""

    total_topic_num: int | None = None


@header
class GetTopicConfigRequestHeader(CommandHeader):
    """351."""

    topic: str


@header
class GetTopicStatsInfoRequestHeader(CommandHeader):
    """202."""

    topic: str


@header
class GetAllSubscriptionGroupRequestHeader(CommandHeader):
    """201. All absent: everything."""

    group_seq: int | None = None
    data_version: str | None = None
    max_group_num: int | None = None


@header
class GetAllSubscriptionGroupResponseHeader(CommandHeader):
    """Answer to 201."""

    total_group_num: int | None = None


@header
class GetSubscriptionGroupConfigRequestHeader(CommandHeader):
    """352."""

    group: str


@header
class DeleteSubscriptionGroupRequestHeader(CommandHeader):
    """207."""

    group_name: str
    clean_offset: bool = False


@header
class UpdateGroupForbiddenRequestHeader(CommandHeader):
    """353."""

    group: str
    topic: str
    readable: bool | None = None


@header
class ViewBrokerStatsDataRequestHeader(CommandHeader):
    """315."""

    stats_name: str
    stats_key: str


@header
class GetBrokerConfigResponseHeader(CommandHeader):
    """Answer to 26: `version` is a JSON DataVersion."""

    version: str


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


@header
class CheckRocksdbCqWriteProgressRequestHeader(CommandHeader):
    """354."""

    topic: str
    check_store_time: Long = 0
