"""Arguments and results of registrations with RouteInfoManager."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.topic_config import TopicConfig, TopicQueueMappingInfo

#: Time in ms after which a broker that names none itself is forgotten without a heartbeat.
DEFAULT_BROKER_CHANNEL_EXPIRED_TIME_MS = 120_000


class BrokerAddrInfo(NamedTuple):
    """The key of one broker process in the table of living brokers."""

    cluster_name: str
    broker_addr: str


@dataclass(frozen=True)
class RegistrationRequest:
    """One REGISTER_BROKER request, decoded. `connection` is compared by identity and never used.

    Attributes:
        is_whole: has the broker no other topics than these? None: it is Java's, and does not say.
        digest: of all that the request said; empty: it is not compared with the next one's.
    """

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: int
    ha_server_addr: str
    connection: object
    topics: Mapping[str, TopicConfig]
    data_version: DataVersion
    zone_name: str | None = None
    timeout_ms: int | None = None
    enable_acting_master: bool | None = None  # None: a broker before 5.0, which does not know of it
    mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)
    filter_servers: Sequence[str] | None = None
    is_whole: bool | None = None
    digest: bytes = b""


class MinBrokerIdChange(NamedTuple):
    """NOTIFY_MIN_BROKER_ID_CHANGE (905), to be sent one-way to each of `targets`."""

    targets: tuple[str, ...]
    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None
    ha_broker_addr: str | None


class RegisterBrokerResult(NamedTuple):
    """The answer to a slave's registration about its master, and the brokers that must be notified of the
    registration."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    notice: MinBrokerIdChange | None = None


@dataclass
class BrokerLiveInfo:
    """One row of the table of living brokers. Times are of the monotonic clock.

    Attributes:
        digest: digest of the last registration; empty if it had none.
        revision: revision of the tables after it.
        result: its result.
    """

    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    connection: object
    ha_server_addr: str
    digest: bytes = b""
    revision: int = -1
    result: RegisterBrokerResult = field(default_factory=RegisterBrokerResult)

    def is_expired(self, now_ms: int) -> bool:
        return self.last_update_ms + self.timeout_ms < now_ms
