"""GET_ROUTEINFO_BY_TOPIC (105), which every client and broker asks all the time.

Source:
    apache/rocketmq namesrv/processor/ClientRequestProcessor.java.
"""

from maxq.codes import ResponseCode
from maxq.config import NamesrvSettings
from maxq.namesrv.kv_config_manager import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigManager
from maxq.namesrv.route_info_manager import RouteInfoManager
from maxq.namesrv.zone_route import filter_by_zone
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.namesrv import ZONE_MODE, ZONE_NAME, GetRouteInfoRequestHeader
from maxq.runtime.interfaces import Clock
from maxq.runtime.refusals import Cause

_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


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
        """The route of a topic; 17 if there is none, on which clients fall back to the topic TBW102."""
        if not self._is_ready():
            return request.reply(ResponseCode.SYSTEM_ERROR, "name server not ready")
        topic = GetRouteInfoRequestHeader.decode(request.ext).topic
        route = self._routes.pickup_topic_route_data(topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {topic}{_FAQ}"
            if not self._routes.has_brokers:  # it has just been started: who asks may ask again in a moment
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
