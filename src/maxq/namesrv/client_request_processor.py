"""GET_ROUTEINFO_BY_TOPIC (105), which every client and broker asks all the time.

Source:
    apache/rocketmq namesrv/processor/ClientRequestProcessor.java.
"""

from maxq.codes import ResponseCode
from maxq.config import NamesrvSettings
from maxq.namesrv.kv_config_manager import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigManager
from maxq.namesrv.route_info_manager import RouteInfoManager
from maxq.protocol.body.route import TopicRouteData
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.namesrv import ZONE_MODE, ZONE_NAME, GetRouteInfoRequestHeader
from maxq.runtime.interfaces import Clock
from maxq.runtime.refusals import Cause

_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


# Routes for clients that stay in their zone.
#
# Source:
#     apache/rocketmq namesrv/route/ZoneRouteRPCHook.java.


def filter_by_zone(route: TopicRouteData, zone_name: str) -> TopicRouteData:
    """Drop the broker groups of other zones, with their queues and filter servers.

    A group without master stays whatever its zone: its slaves may be the only ones left to read from.
    """
    zone = zone_name.lower()
    away = [b for b in route.broker_datas if b.master_address is not None and (b.zone_name or "").lower() != zone]
    names = {broker.broker_name for broker in away}
    addrs = {addr for broker in away for addr in broker.broker_addrs.values()}
    route.broker_datas = [broker for broker in route.broker_datas if broker.broker_name not in names]
    route.queue_datas = [queue for queue in route.queue_datas if queue.broker_name not in names]
    route.filter_server_table = {
        addr: servers for addr, servers in route.filter_server_table.items() if addr not in addrs
    }
    return route


class ClientRequestProcessor:
    """Answers routes as compact JSON with quoted keys, which clients of every age and language read."""

    def __init__(
        self, settings: NamesrvSettings, routes: RouteInfoManager, kv_configs: KVConfigManager, clock: Clock
    ) -> None:
        self._settings = settings
        self._routes = routes
        self._kv_configs = kv_configs
        self._clock = clock
        self._started_ms = clock.monotonic_ms()

    def process(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Answer with the route of a topic; code 17 if there is none, upon which clients use the topic TBW102."""
        if not self._is_ready():
            return request.reply(ResponseCode.SYSTEM_ERROR, "name server not ready")
        topic = GetRouteInfoRequestHeader.decode(request.ext).topic
        route = self._routes.pickup_topic_route_data(topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {topic}{_FAQ}"
            # the name server has just been started: the client may ask again in a moment
            if not self._routes.has_brokers:
                remark = f"[{Cause.NO_BROKER}]{remark}"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self._settings.namesrv.order_message_enable:
            route.order_topic_conf = self._kv_configs.get(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
        zone = request.ext.get(ZONE_NAME, "").strip()
        if zone and request.ext.get(ZONE_MODE, "").lower() == "true":
            route = filter_by_zone(route, zone)
        return request.reply(body=route.encode())

    def _is_ready(self) -> bool:
        settings = self._settings.namesrv
        if not settings.need_wait_for_service:
            return True
        return self._clock.monotonic_ms() - self._started_ms >= settings.wait_seconds_for_service * 1000
