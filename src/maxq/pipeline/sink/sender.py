"""Blocking, pipelined sending: several requests under way at each broker; what fails goes again, elsewhere if it may.

A request is done when its broker said SUCCESS: stored, and as safe on disk and replicas as its settings promise.
Everything else that may pass (a connection that breaks, a busy broker, a slave that lags, a topic that moves) is tried
again until `rocketmq.brokerWait` is over; what never will (a message that is illegal) ends the task at once. After an
error a message may be there twice.

Requests for a certain queue go one at a time, so that the order of its messages is the order of the rows whatever goes
wrong; all others take queues in turn.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import sleep
from typing import Final

from maxq.client.instance.topic_publish_info import publish_queues
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import MaxQError, NoRouteError, PipelineError, RemoteProtocolError, RemotingError
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.wire.wire_client import WireClient
from maxq.protocol.body.route import MASTER_ID, TopicRouteData
from maxq.protocol.body.static_topic import global_queues
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message_queue import MessageQueue

#: The topic whose route tells where a topic can be made that is not there yet, and with how many queues.
AUTO_CREATE_TOPIC: Final = "TBW102"
DEFAULT_QUEUES: Final = 4

#: Codes of refusals after which a broker may accept the same request later.
RETRIABLE_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
#: The same, with codes that only say that a topic, or a queue of a static topic, moves.
_RETRIABLE_IN_TOPIC: Final = RETRIABLE_CODES | {
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.NO_PERMISSION,
    ResponseCode.NOT_LEADER_FOR_QUEUE,
}
_MAX_REQUESTS_IN_FLIGHT: Final = 256  # most requests at one broker, however small
_PAUSE_S: Final = 0.05
_AVOID_MS: Final = 5_000
_LONGEST_PAUSE_S: Final = 1.0


@dataclass
class Outgoing:
    """A request that must be acknowledged.

    Attributes:
        queue: the only one it may go to; None: any of its topic's.
        header: its header fields, once its queue is known.
        answered: told the name of the broker that answered, and the answer.
        failing_since_ms: monotonic; None: it has not failed, or not yet.
    """

    code: int
    topic: str
    queue: MessageQueue | None
    body: bytes | memoryview
    header: Callable[[MessageQueue], dict[str, str]]
    answered: Callable[[str, RemotingCommand], None]
    failing_since_ms: int | None = None
    failures: int = 0


@dataclass
class _InFlight:
    """The requests that one broker has not answered yet.

    Attributes:
        requests: opaque → (request, queue it went to), in the order of sending.
        body_bytes: of these requests together.
    """

    broker_name: str
    requests: dict[int, tuple[Outgoing, MessageQueue]] = field(default_factory=dict)
    body_bytes: int = 0


class PublishRoutes:
    """The queues that take messages, and their brokers' addresses."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._queues: dict[str, Sequence[MessageQueue]] = {}  # by topic
        self._addresses: dict[MessageQueue, str] = {}  # queue → address of its master
        self._leaders: dict[MessageQueue, str] = {}  # global queues of static topics → broker name of the leader

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues of a topic that accept messages. For a topic that does not exist yet they are the queues
        that it will have, where brokers create topics automatically.

        Raises:
            PipelineError: nothing can be sent to it.
        """
        found = self._queues.get(topic)
        if found is None:
            found = self._queues[topic] = self._refresh_route(topic)
        return found

    def address(self, queue: MessageQueue) -> str:
        """Return the address of the master that serves a queue.

        Raises:
            MaxQError: there is none now, or no name server answers.
        """
        if queue not in self._addresses:
            self._refresh_route(queue.topic)
        if queue not in self._addresses:
            raise NoRouteError(ResponseCode.TOPIC_NOT_EXIST, f"broker {self.broker_name(queue)} has no master")
        return self._addresses[queue]

    def broker_name(self, queue: MessageQueue) -> str:
        """Return the name of the broker that serves a queue: of a global queue of a static topic, the one that led it
        last."""
        return self._leaders.get(queue, queue.broker_name)

    def forget_addresses(self) -> None:
        """Forget the addresses of masters, which may have changed. Queues are kept, so that keys stay where they are
        while this task runs."""
        self._addresses.clear()

    def _refresh_route(self, topic: str) -> Sequence[MessageQueue]:
        route = self._client.route_data(topic)
        queues: Sequence[MessageQueue] = publish_queues(topic, route) if route is not None else ()
        if route is None:
            route = self._client.route_data(AUTO_CREATE_TOPIC)
            if route is not None:
                for data in route.queue_datas:
                    data.write_queue_nums = min(data.write_queue_nums, DEFAULT_QUEUES)
                queues = publish_queues(topic, route)
        if route is None or not queues:
            raise PipelineError(
                f"topic {topic} takes no messages: no broker has it for writing, and none makes topics of itself "
                "(autoCreateTopicEnable); create it with `maxq admin updateTopic`"
            )
        self._remember(topic, route, queues)
        return queues

    def _remember(self, topic: str, route: TopicRouteData, queues: Sequence[MessageQueue]) -> None:
        masters = {one.broker_name: one.broker_addrs.get(MASTER_ID) for one in route.broker_datas}
        static = global_queues(topic, route.topic_queue_mapping_by_broker or {})
        self._leaders |= static
        for queue in queues:
            address = masters.get(self.broker_name(queue))
            if address is not None:
                self._addresses[queue] = address


class Sender:
    """Sends requests to brokers; see the module's text. One thread uses it; close it at the end."""

    def __init__(self, options: WriteOptions, routes: PublishRoutes) -> None:
        self._options = options
        self._routes = routes
        # not shared, because all answers on its connections must be answers to requests of this sender
        self._client = WireClient(options.connection)
        self._clock = self._client.clock
        self._in_flight: dict[str, _InFlight] = {}  # by address of the broker
        self._unsent: deque[Outgoing] = deque()  # in the order of sending, retries first
        # queues for which a request is under way: the next one for the same queue waits
        self._ordered_in_flight: set[MessageQueue] = set()
        self._avoided_until_ms: dict[str, int] = {}  # by broker name; monotonic
        self._queues_taken = 0  # counts up, so that requests for any queue take the queues in turn
        self._max_bytes_in_flight = options.requests_in_flight * options.batch_bytes  # most bytes at one broker

    def close(self) -> None:
        """Close all connections, and drop what is under way."""
        self._client.close()

    def send(self, request: Outgoing) -> None:
        """Send a request. Waits while too much is under way.

        Raises:
            PipelineError: a request, this or an earlier one, was refused for good, or too long.
        """
        self._unsent.append(request)
        self._send_unsent()

    def finish(self) -> None:
        """Wait until every request was acknowledged. Raises PipelineError."""
        while True:
            self._send_unsent()
            address = next((address for address, in_flight in self._in_flight.items() if in_flight.requests), None)
            if address is None:
                return
            self._receive(address)

    # --- one request after the other ---

    def _send_unsent(self) -> None:
        while self._unsent:
            request = self._unsent[0]
            queue = request.queue or self._next_queue(request)
            try:
                address = self._routes.address(queue)
            except MaxQError as error:
                self._note_failure(request, queue, str(error))
                continue
            if request.queue in self._ordered_in_flight:
                self._receive(next(a for a, in_flight in self._in_flight.items() if _is_under_way(in_flight, queue)))
            elif self._is_full(address, len(request.body)):
                self._receive(address)
            else:
                self._transmit(self._unsent.popleft(), queue, address)

    def _is_full(self, address: str, size: int) -> bool:
        in_flight = self._in_flight.get(address)
        if in_flight is None or not in_flight.requests:
            return False
        are_too_many = len(in_flight.requests) >= _MAX_REQUESTS_IN_FLIGHT
        return are_too_many or in_flight.body_bytes + size > self._max_bytes_in_flight

    def _next_queue(self, request: Outgoing) -> MessageQueue:
        queues = self._routes.queues(request.topic)
        now_ms = self._clock.monotonic_ms()
        for _ in queues:
            self._queues_taken += 1
            queue = queues[self._queues_taken % len(queues)]
            if self._avoided_until_ms.get(self._routes.broker_name(queue), 0) <= now_ms:
                return queue
        self._queues_taken += 1
        return queues[self._queues_taken % len(queues)]

    def _transmit(self, request: Outgoing, queue: MessageQueue, address: str) -> None:
        try:
            opaque = self._client.connection(address).send(request.code, request.header(queue), request.body)
        except RemotingError as error:
            self._unsent.appendleft(request)
            self._on_broken(address, error, request, queue)
            return
        in_flight = self._in_flight.setdefault(address, _InFlight(self._routes.broker_name(queue)))
        in_flight.requests[opaque] = request, queue
        in_flight.body_bytes += len(request.body)
        if request.queue is not None:
            self._ordered_in_flight.add(request.queue)

    # --- answers ---

    def _receive(self, address: str) -> None:
        """Read one answer from a broker's connection, and handle it."""
        in_flight = self._in_flight[address]
        try:
            answer = self._client.connection(address).receive()
            request, queue = in_flight.requests.pop(answer.opaque)
        except KeyError:
            error = RemoteProtocolError(f"<{address}> answered a request that was not sent")
            self._on_broken(address, error, *next(iter(in_flight.requests.values())))
            return
        except (RemotingError, RemoteProtocolError) as failure:
            self._on_broken(address, failure, *next(iter(in_flight.requests.values())))
            return
        in_flight.body_bytes -= len(request.body)
        if request.queue is not None:  # a retry for any queue may overtake a request that is meant for this one
            self._ordered_in_flight.discard(request.queue)
        if answer.code == ResponseCode.SUCCESS:
            request.answered(in_flight.broker_name, answer)
        elif answer.code in _RETRIABLE_IN_TOPIC:
            self._unsent.appendleft(request)
            why = f"<{address}> answered {_code(answer.code)}: {answer.remark}"
            self._note_failure(request, queue, why)
        else:
            raise PipelineError(
                f"<{address}> refuses messages for {queue.topic}, queue {queue.queue_id}: {_code(answer.code)}: "
                f"{answer.remark}"
            )

    def _on_broken(self, address: str, error: Exception, cause: Outgoing, queue: MessageQueue) -> None:
        """Send everything that was under way at a broker again, in its order, before all other requests."""
        self._client.drop(address)
        in_flight = self._in_flight.pop(address, None)
        for request, _ in reversed(in_flight.requests.values() if in_flight is not None else ()):
            if request.queue is not None:
                self._ordered_in_flight.discard(request.queue)
            self._unsent.appendleft(request)
        self._note_failure(cause, queue, str(error))

    def _note_failure(self, request: Outgoing, queue: MessageQueue, why: str) -> None:
        """Avoid the broker of a failed request, if there are others, and wait before the next attempt, longer each
        time."""
        now_ms = self._clock.monotonic_ms()
        request.failures += 1
        if request.failing_since_ms is None:
            request.failing_since_ms = now_ms
        limit_ms = self._options.connection.broker_wait_ms
        if now_ms - request.failing_since_ms >= limit_ms:
            raise PipelineError(
                f"messages for topic {request.topic} could not be sent for {limit_ms} ms (rocketmq.brokerWait): {why}"
            )
        self._avoided_until_ms[self._routes.broker_name(queue)] = now_ms + _AVOID_MS
        self._routes.forget_addresses()
        if request.failures > 1:
            sleep(min(_PAUSE_S * request.failures, _LONGEST_PAUSE_S))


def _is_under_way(in_flight: _InFlight, queue: MessageQueue) -> bool:
    return any(queue == where for _, where in in_flight.requests.values())


def _code(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return f"code {code}"


def send_header(
    options: WriteOptions, queue: MessageQueue, born_ms: int, *, batch: bool, properties: str = ""
) -> dict[str, str]:
    """Make the header fields of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""
    return {
        "a": options.producer_group, "b": queue.topic, "c": AUTO_CREATE_TOPIC, "d": str(DEFAULT_QUEUES),
        "e": str(queue.queue_id), "f": "0", "g": str(born_ms), "h": "0", "i": properties, "j": "0", "k": "false",
        "m": "true" if batch else "false", "n": queue.broker_name,
    }  # fmt: skip


def send_code(*, batch: bool) -> int:
    """Return the code of the request by which messages are sent."""
    return RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
