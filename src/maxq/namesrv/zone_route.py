"""Routes for clients that stay in their zone.

Source:
    apache/rocketmq namesrv/route/ZoneRouteRPCHook.java.
"""

from maxq.protocol.body.route import TopicRouteData


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
