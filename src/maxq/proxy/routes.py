"""QueryRoute and QueryAssignment: where the queues of a topic are.

Source:
    proxy/grpc/v2/route/RouteActivity.java, proxy/service/route/{Local,Cluster}TopicRouteService.java.
"""

import ipaddress
from typing import Final

from maxq.auth.signature import ACCESS_KEY
from maxq.codes import RequestCode
from maxq.protocol.body.route import MASTER_ID, BrokerData, QueueData
from maxq.protocol.body.topic_config import PERM_READ, PERM_WRITE
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.proxy.brokers import Brokers, TopicView
from maxq.proxy.context import AccessRules, Context
from maxq.proxy.statuses import OK, CallRefusedError
from maxq.proxy.validation import check_endpoints, group_name, topic_name
from maxq.remoting.client import split_address

_ANY_QUEUE: Final = -1
_MIXED: Final = (pb.MessageType.NORMAL, pb.MessageType.FIFO, pb.MessageType.DELAY, pb.MessageType.TRANSACTION)
_TYPES: Final = {kind.name: (kind,) for kind in pb.MessageType} | {"MIXED": _MIXED}
_UNSPECIFIED: Final = (pb.MessageType.MESSAGE_TYPE_UNSPECIFIED,)


class Routes:
    """Answers QueryRoute and QueryAssignment: to which brokers and queues of a topic a client sends, and from which it
    receives."""

    def __init__(self, brokers: Brokers, rules: AccessRules | None) -> None:
        self._brokers = brokers
        self._rules = rules

    def query_route(self, context: Context, request: pb.QueryRouteRequest) -> None:
        """Tell all queues of a topic, and what may be sent to them."""
        check_endpoints(request.endpoints)
        request.DiscardUnknownFields()  # which would be told back with each queue
        view = self._view(context, topic_name(request.topic))
        types = _TYPES.get(view.message_type, _UNSPECIFIED)
        queues = []
        for data in view.queues:
            broker_data = view.brokers.get(data.broker_name)
            if broker_data is None:
                continue
            for broker_id in sorted(broker_data.broker_addrs):
                broker = self._broker(context, view, broker_data, broker_id, request.endpoints)
                queues += [
                    pb.MessageQueue(
                        topic=request.topic, id=number, permission=permission, broker=broker, accept_message_types=types
                    )
                    for number, permission in enumerate(_permissions(data))
                ]
        context.answer(pb.QueryRouteResponse(status=OK, message_queues=queues))

    def query_assignment(self, context: Context, request: pb.QueryAssignmentRequest) -> None:
        """Tell a push consumer of which queues to ask for messages: of a broker's queues in sum, one by one if the
        group consumes in order."""
        check_endpoints(request.endpoints)
        request.DiscardUnknownFields()  # which would be told back with each queue
        topic, group = topic_name(request.topic), group_name(request.group)
        view = self._view(context, topic)
        settings = self._brokers.group(group)
        assignments = []
        for data in view.queues:
            broker_data = view.brokers.get(data.broker_name)
            if broker_data is None or data.broker_name not in view.readable:
                continue
            broker = self._broker(context, view, broker_data, MASTER_ID, request.endpoints)
            is_fifo = settings is not None and settings.consume_message_orderly
            assignments += [
                pb.Assignment(
                    message_queue=pb.MessageQueue(
                        topic=request.topic, id=number, permission=_permission(data.perm), broker=broker
                    )
                )
                for number in (data.read_queue_ids if is_fifo else (_ANY_QUEUE,))
            ]
        if not assignments:
            raise CallRefusedError(pb.Code.FORBIDDEN, "no readable queue")
        context.answer(pb.QueryAssignmentResponse(status=OK, assignments=assignments))

    def _view(self, context: Context, topic: str) -> TopicView:
        if self._rules is not None:
            fields = {"topic": topic, ACCESS_KEY: context.user}
            asked = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
            why = self._rules.may(asked, context.call.connection.peer_ip)
            if why is not None:
                raise CallRefusedError(pb.Code.FORBIDDEN, why)
        view = self._brokers.topic(topic)
        if view is None:
            raise CallRefusedError(
                pb.Code.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {topic}"
            )
        return view

    def _broker(
        self, context: Context, view: TopicView, data: BrokerData, broker_id: int, asked: pb.Endpoints
    ) -> pb.Broker:
        """Return a broker for clients. A broker that is the only one, and all brokers behind a proxy, are told with the
        address that the client has used: it leads here, through whatever is in between."""
        broker = pb.Broker(name=data.broker_name, id=broker_id)
        is_proxy = not self._brokers.knows_clients
        if asked.addresses and (is_proxy or len(view.brokers) == 1):
            broker.endpoints.CopyFrom(asked)
            return broker
        arrived_at = context.call.connection.local_address if is_proxy else ""
        host, port = split_address(arrived_at) if arrived_at else self._brokers.grpc_address(data)
        broker.endpoints.scheme = _scheme(host)
        broker.endpoints.addresses.add(host=host, port=port)
        return broker


def _scheme(host: str) -> int:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return pb.AddressScheme.DOMAIN_NAME
    return pb.AddressScheme.IPv4 if version == 4 else pb.AddressScheme.IPv6


def _permission(perm: int) -> int:
    if perm & PERM_READ:
        return pb.Permission.READ_WRITE if perm & PERM_WRITE else pb.Permission.READ
    return pb.Permission.WRITE if perm & PERM_WRITE else pb.Permission.NONE


def _permissions(data: QueueData) -> list[int]:
    """Return the permission of each queue: those that are only read, only written, both, and none."""
    reads, writes = len(data.read_queue_ids), len(data.write_queue_ids)
    if not data.perm & PERM_READ:
        reads = 0
    if not data.perm & PERM_WRITE:
        writes = 0
    both = min(reads, writes)
    found: list[int] = [pb.Permission.READ] * (reads - both)
    found += [pb.Permission.WRITE] * (writes - both)
    found += [pb.Permission.READ_WRITE] * both
    if not data.perm & (PERM_READ | PERM_WRITE):
        found += [pb.Permission.NONE] * max(1, len(data.read_queue_ids), len(data.write_queue_ids))
    return found
