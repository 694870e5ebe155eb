"""Headers of transaction checks and of broker groups.

Source:
    remoting/protocol/header/.
"""

from maxq.protocol.frame.header_fields import CommandHeader, Long, header


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
