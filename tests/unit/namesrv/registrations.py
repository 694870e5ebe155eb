"""Registrations as tests write them."""

from collections.abc import Iterable, Mapping

from maxq.config import NamesrvConfig, NamesrvSettings
from maxq.namesrv.broker_registration import RegistrationRequest
from maxq.namesrv.route_info_manager import RouteInfoManager
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.topic_config import TopicConfig, TopicQueueMappingInfo

CLUSTER = "DefaultCluster"


def manager(**settings: object) -> RouteInfoManager:
    return RouteInfoManager(NamesrvSettings(NamesrvConfig(**settings)))  # type: ignore[arg-type]


def topic(name: str, *, queues: int = 4, perm: int = 6, flag: int = 0) -> TopicConfig:
    return TopicConfig(name, queues, queues, perm, topic_sys_flag=flag)


def registration(
    topics: Iterable[TopicConfig | str] = ("T", "U"),
    *,
    name: str = "broker-a",
    broker_id: int = 0,
    addr: str = "10.0.0.1:10911",
    cluster: str = CLUSTER,
    version: int = 1,
    state_version: int = 0,
    connection: object = None,
    timeout_ms: int | None = None,
    acting: bool | None = False,
    zone: str | None = None,
    mappings: Mapping[str, TopicQueueMappingInfo] | None = None,
    filter_servers: list[str] | None = None,
    is_whole: bool | None = None,
    digest: bytes = b"",
) -> RegistrationRequest:
    configs = [topic(item) if isinstance(item, str) else item for item in topics]
    return RegistrationRequest(
        cluster_name=cluster,
        broker_addr=addr,
        broker_name=name,
        broker_id=broker_id,
        ha_server_addr=addr + "+ha",
        connection=connection,
        topics={config.topic_name: config for config in configs},
        data_version=DataVersion(version, state_version, 1000 * version),
        zone_name=zone,
        timeout_ms=timeout_ms,
        enable_acting_master=acting,
        mappings=mappings or {},
        filter_servers=filter_servers,
        is_whole=is_whole,
        digest=digest,
    )


def perms(routes: RouteInfoManager, name: str) -> dict[str, int]:
    """Broker name → permission in the route of a topic."""
    route = routes.pickup_topic_route_data(name)
    return {} if route is None else {queue.broker_name: queue.perm for queue in route.queue_datas}


def addrs(routes: RouteInfoManager, name: str) -> dict[str, dict[int, str]]:
    """Broker name → id → address in the route of a topic."""
    route = routes.pickup_topic_route_data(name)
    return {} if route is None else {broker.broker_name: broker.broker_addrs for broker in route.broker_datas}
