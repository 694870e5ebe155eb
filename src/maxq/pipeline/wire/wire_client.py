"""The cluster as driver and executors see it: routes, ends of queues, groups' offsets; blocking, with kept connections.

Questions about many queues go out together, one connection a broker, so that a trigger costs one round trip. A broker
that cannot be reached is left alone for a moment and another of its group is asked; who answered is told, for a slave
may lag.
"""

import logging
import re
import selectors
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Self, TypeVar, cast

from maxq.codes import RequestCode, ResponseCode
from maxq.config.loader import load
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import (
    BrokerError,
    NoRouteError,
    PipelineError,
    RemoteProtocolError,
    RemotingConnectError,
    RemotingError,
    RemotingSendError,
)
from maxq.pipeline.options.read_options import ConnectionOptions, QueueSelection
from maxq.pipeline.wire.connection import BlockingConnection
from maxq.protocol.body.heartbeat import ConsumerData, HeartbeatData
from maxq.protocol.body.route import MASTER_ID, ClusterInfo, TopicRouteData
from maxq.protocol.body.static_topic import NO_BROKER, global_queues
from maxq.protocol.body.topic_config import PERM_READ, TopicConfigAndQueueMapping, TopicList
from maxq.protocol.enums import ConsumeType
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PULL_FLAG_SUBSCRIPTION
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from maxq.remoting.tls.contexts import ClientTls
from maxq.runtime.files.system import SystemClock, SystemDisk

log: Final = logging.getLogger(__name__)

#: A group that every broker has and that access control does not restrict: readers without a group use it.
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
T = TypeVar("T")

#: Queues that nobody answered for, with the reason.
Failures = dict[MessageQueue, Exception]

_DELAYED: Final = "SCHEDULE_TOPIC_XXXX"
_SUSPECT_MS: Final = 5_000
_SLOW_MS: Final = 1_000  # a failure that took longer than this was a timeout
_SILENT_MS: Final = 15_000
_NAME_SERVER_SILENT_MS: Final = 250  # wait for an answer before the next name server is asked as well
_NAME_SERVER_CONNECT_MS: Final = 1_000  # wait for a connection while there is another name server
_OLD_ROUTE_MS: Final = 5_000  # age up to which an old route is used before silent name servers are asked again
_OLD_ROUTE_PATIENCE_MS: Final = 1_000  # how long silent name servers are waited for when an old route is used
_LONG_AGO: Final = -(2**62)
_MOST_PLACES: Final = 1_000_000  # most offsets of one question
_PAUSE_SECONDS: Final = 0.2  # before a question that nobody answered is asked again
_AT_ONCE: Final = 1_000  # requests on one connection before their answers are read


class Ask(NamedTuple):
    """A request to a broker about one queue."""

    queue: MessageQueue
    code: int
    ext: dict[str, str]


class BrokerAnswer(NamedTuple):
    """The answer to a question. `is_master` means that a master gave it; a slave's ends of queues may lag."""

    queue: MessageQueue
    command: RemotingCommand
    is_master: bool


#: A question, and the addresses to ask in turn, each with whether it is the master's.
_Candidates = tuple[Ask, list[tuple[str, bool]]]


class ReportedOffset(NamedTuple):
    """An offset, and whether the master reported it.

    Attributes:
        incarnation: a number that changes when the topic is deleted on the broker; 0: it never was, or is Java's.
    """

    offset: int
    is_master: bool
    incarnation: int = 0


class _Told(NamedTuple, Generic[T]):
    """A server's answer, and when it was asked (monotonic ms)."""

    asked_ms: int
    value: T


@dataclass(frozen=True)
class TopicRoute:
    """The queues of a topic and the addresses of its brokers.

    Attributes:
        queues: readable queue → name of the broker group that serves it (of a static topic: who leads it now).
        brokers: name → broker id → host:port.
    """

    queues: Mapping[MessageQueue, str]
    brokers: Mapping[str, Mapping[int, str]]


class WireClient:
    """Asks name servers and brokers; see the module's text. One thread uses it; close it at the end.

    Args:
        options: where the cluster is and how to reach it.
        prefer_slave: read from slaves where there are some.
        route_age_ms: a route older than this is asked for anew.
    """

    def __init__(self, options: ConnectionOptions, *, prefer_slave: bool = False, route_age_ms: int = 30_000) -> None:
        self.options = options
        self.clock = SystemClock()
        self._prefer_slave = prefer_slave
        self._route_age_ms = route_age_ms
        self._tls = _tls_context(options)
        self._name_servers = options.namesrv.split(";")
        self._name_servers_silent_until_ms = 0
        self._connections: dict[str, BlockingConnection] = {}
        # address → monotonic ms until which other brokers are asked first, because it has failed
        self._suspect_until_ms: dict[str, int] = {}
        # address → monotonic ms until which it is not asked, because it timed out
        self._silent_until_ms: dict[str, int] = {}
        self._routes: dict[str, _Told[TopicRoute | None]] = {}  # by topic; None: no name server knows it
        self._user_topics: _Told[list[str]] | None = None
        self._deletions: dict[tuple[str, str], _Told[bool]] = {}  # (topic, broker name) → was the topic deleted there?
        # topic → its attributes; None: the broker refuses to tell them
        self._topic_attributes: dict[str, Mapping[str, str] | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to all servers."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- connections -------------------------------------------------------------------------------------------------

    def connection(self, address: str) -> BlockingConnection:
        """Return the kept connection to a server, or make one. Raises RemotingConnectError."""
        found = self._connections.get(address)
        if found is None:
            try:
                found = self._connections[address] = BlockingConnection(address, self.options, self._tls)
            except RemotingConnectError:
                self.suspect(address)
                raise
        return found

    def lend(self, address: str) -> BlockingConnection:
        """Return a connection for exclusive use until it is given to `take_back` or closed, for a caller with requests
        under way while others ask questions. Raises RemotingConnectError."""
        self.connection(address)
        return self._connections.pop(address)

    def take_back(self, connection: BlockingConnection) -> None:
        """Take back a lent connection, on which no request is under way any more."""
        if self._connections.setdefault(connection.address, connection) is not connection:
            connection.close()

    def drop(self, address: str) -> None:
        """Close the connection to a server, because it is unusable."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def suspect(self, address: str) -> None:
        """Prefer other servers to this one for a while."""
        self._suspect_until_ms[address] = self.clock.monotonic_ms() + _SUSPECT_MS

    def candidates(self, queue: MessageQueue, *, to_read: bool = False) -> list[tuple[str, bool]]:
        """Return (address, is master) of the brokers that may serve a queue, the best first; empty if none is known.
        Messages may be read from slaves (`to_read`); everything else is asked of the master."""
        route = self.route(queue.topic)
        if route is None:
            return []
        addresses = route.brokers.get(route.queues.get(queue, queue.broker_name), {})
        now_ms = self.clock.monotonic_ms()

        def rank(broker_id: int) -> tuple[bool, bool, int]:
            is_suspect = self._suspect_until_ms.get(addresses[broker_id], 0) > now_ms
            return is_suspect, (broker_id == MASTER_ID) == (to_read and self._prefer_slave), broker_id

        return [(addresses[broker_id], broker_id == MASTER_ID) for broker_id in sorted(addresses, key=rank)]

    def ask(self, address: str, code: int, ext: dict[str, str], body: bytes | None = None) -> RemotingCommand:
        """Send one request to one server and return its answer, whatever the code.

        Raises:
            RemotingError, RemoteProtocolError: there is none.
        """
        connection = self.connection(address)
        try:
            return connection.receive_answer(connection.send(code, ext, body))
        except (RemotingError, RemoteProtocolError):
            self.drop(address)
            raise

    def _ask_name_server(self, code: int, ext: dict[str, str], patience_ms: int | None = None) -> RemotingCommand:
        """Return the answer of the first name server that answers SUCCESS, or the first other answer, by the rule of
        `RemotingClient.invoke_name_server`: the next one is asked when one fails, refuses or is silent for a moment.

        Raises:
            RemotingConnectError: none answers within rocketmq.requestTimeout, or `patience_ms` if that is less.
        """
        in_haste = patience_ms is not None
        limit_ms = min(self.options.request_timeout_ms, patience_ms or self.options.request_timeout_ms)
        deadline_ms = self.clock.monotonic_ms() + limit_ms
        left = list(self._name_servers)
        answers: list[RemotingCommand] = []
        failures: list[str] = []
        asked: dict[BlockingConnection, int] = {}  # connection → opaque of the request
        try:
            while left or asked:
                if left:
                    address = left.pop(0)
                    try:
                        connection, opaque = self._send_to_name_server(
                            address, code, ext, in_haste=in_haste or bool(left)
                        )
                    except RemotingError as error:
                        failures.append(str(error))
                        continue
                    asked[connection] = opaque
                wait_ms = deadline_ms - self.clock.monotonic_ms()
                if left or answers:
                    wait_ms = min(wait_ms, _NAME_SERVER_SILENT_MS)
                readable = _readable(asked, wait_ms)
                if not readable and not left:
                    break
                for connection in readable:
                    address, opaque = connection.address, asked.pop(connection)
                    try:
                        answer = connection.receive_answer(opaque)
                    except (RemotingError, RemoteProtocolError) as error:
                        self.drop(address)
                        failures.append(str(error))
                        continue
                    if answer.code == ResponseCode.SUCCESS:
                        self._name_servers.remove(address)
                        self._name_servers.insert(0, address)
                        return answer
                    answers.append(answer)
        finally:
            for connection in asked:
                self.drop(connection.address)  # its answer may never come
        if answers:
            return min(answers, key=lambda answer: answer.code == ResponseCode.SYSTEM_ERROR)
        failures += [f"<{connection.address}> did not answer" for connection in asked]
        raise RemotingConnectError(f"no name server answers ({self.options.namesrv}): {'; '.join(failures)}")

    def _send_to_name_server(
        self, address: str, code: int, ext: dict[str, str], *, in_haste: bool
    ) -> tuple[BlockingConnection, int]:
        """Ask on the kept connection, or on a new one if the server has closed it meanwhile.

        Args:
            in_haste: other servers can be asked, or known data suffices, so a slow connection is given up.

        Returns:
            The connection, and the request's opaque.
        """
        kept = self._connections.get(address)
        if kept is not None and not _readable([kept], 0):  # unrequested input can only be the end of the connection
            try:
                return kept, kept.send(code, ext)
            except RemotingSendError:
                pass
        self.drop(address)
        limit_ms = min(_NAME_SERVER_CONNECT_MS, self.options.request_timeout_ms) if in_haste else None
        connection = self._connections[address] = BlockingConnection(
            address, self.options, self._tls, connect_ms=limit_ms
        )
        return connection, connection.send(code, ext)

    # --- routes ------------------------------------------------------------------------------------------------------

    def forget_routes(self) -> None:
        """Make all routes be requested again at their next use. The old ones are valid while no name server answers."""
        self._routes = {topic: _Told(_LONG_AGO, told.value) for topic, told in self._routes.items()}
        if self._user_topics is not None:
            self._user_topics = _Told(_LONG_AGO, self._user_topics.value)

    def route(self, topic: str) -> TopicRoute | None:
        """Return the route of a topic; None if no name server knows it. Old routes are valid while no name server
        answers."""
        now_ms = self.clock.monotonic_ms()
        kept = self._routes.get(topic)
        if kept is not None and now_ms - kept.asked_ms < self._route_age_ms:
            return kept.value
        if kept is None:
            data = self.route_data(topic)
        elif (answer := self._asked_again(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})) is None:
            return kept.value
        else:
            data = _decoded_route(answer)
        route = None if data is None else _route_of(topic, data)
        self._routes[topic] = _Told(now_ms, route)
        return route

    def _asked_again(self, code: int, ext: dict[str, str]) -> RemotingCommand | None:
        """Ask the name servers again for data that is known already. None means that the known data must suffice. Name
        servers that did not answer are skipped for a while; their loss and their return are logged once each."""
        if self.clock.monotonic_ms() < self._name_servers_silent_until_ms:
            return None
        try:
            answer = self._ask_name_server(code, ext, _OLD_ROUTE_PATIENCE_MS)
        except RemotingError as error:
            if not self._name_servers_silent_until_ms:
                log.warning("name servers do not answer, the known queues and brokers are used: %s", error)
            self._name_servers_silent_until_ms = self.clock.monotonic_ms() + _OLD_ROUTE_MS
            return None
        if self._name_servers_silent_until_ms:
            log.warning("name servers answer again (%s)", self.options.namesrv)
            self._name_servers_silent_until_ms = 0
        return answer

    def route_data(self, topic: str) -> TopicRouteData | None:
        """Ask the name servers for a route; None if they do not know the topic."""
        return _decoded_route(self._ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))

    def cluster_info(self) -> ClusterInfo:
        """Ask a name server for all brokers that it knows."""
        answer = self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark)
        return ClusterInfo.decode(answer.body_bytes)

    def topics(self, pattern: str) -> list[str]:
        """Return the topics whose whole name matches the pattern. Topics of the system and retry topics are included
        only if the pattern is their exact name."""
        now_ms = self.clock.monotonic_ms()
        kept = self._user_topics
        if kept is None or now_ms - kept.asked_ms >= self._route_age_ms:
            ask = self._ask_name_server if kept is None else self._asked_again
            answer = ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
            hidden = answer and ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, {})
            if answer is not None and hidden is not None:
                kept = self._user_topics = _Told(now_ms, _topics_of_users(answer, hidden))
        assert kept is not None, "who is asked first answers or fails"
        matches = re.compile(pattern).fullmatch
        return [name for name in kept.value if matches(name)]

    def find_queues(self, selection: QueueSelection) -> dict[MessageQueue, str]:
        """Return the readable queues of `selection`, and their brokers. A topic without a route has none."""
        topics = selection.topics if selection.pattern is None else self.topics(selection.pattern)
        found: dict[MessageQueue, str] = {}
        for topic in topics:
            route = self.route(topic)
            for queue, broker in route.queues.items() if route else ():
                if selection.takes(topic, queue.broker_name, queue.queue_id):
                    found[queue] = broker
        return found

    # --- questions about queues --------------------------------------------------------------------------------------

    def ask_all(self, asks: Iterable[Ask]) -> tuple[list[BrokerAnswer], Failures]:
        """Ask about many queues at once.

        Returns:
            Answers, whatever their codes; queues that nobody answered for, with the reason.
        """
        answers: list[BrokerAnswer] = []
        failed: Failures = {}
        left: list[_Candidates] = [(ask, self._responsive_candidates(ask.queue, failed)) for ask in asks]
        while left:
            by_address: dict[tuple[str, bool], list[_Candidates]] = {}
            for ask, candidates in left:
                if candidates:
                    by_address.setdefault(candidates[0], []).append((ask, candidates[1:]))
                elif ask.queue not in failed:
                    failed[ask.queue] = NoRouteError(ResponseCode.TOPIC_NOT_EXIST, f"no route for {ask.queue}")
            left = []
            for (address, is_master), group in by_address.items():
                for at in range(0, len(group), _AT_ONCE):
                    part = group[at : at + _AT_ONCE]
                    found = self._ask_or_suspect(address, [ask for ask, _ in part])
                    if isinstance(found, Exception):
                        failed |= {ask.queue: found for ask, _ in part}
                        left += part
                        continue
                    for (ask, _), command in zip(part, found, strict=True):
                        answers.append(BrokerAnswer(ask.queue, command, is_master))
        for answer in answers:
            failed.pop(answer.queue, None)
        return answers, failed

    def _responsive_candidates(self, queue: MessageQueue, failed: Failures) -> list[tuple[str, bool]]:
        """Leave out candidates that did not answer a short while ago, because each trigger would wait for their
        time-outs again."""
        now_ms = self.clock.monotonic_ms()
        found = self.candidates(queue)
        answering = [one for one in found if self._silent_until_ms.get(one[0], 0) <= now_ms]
        if found and not answering:
            text = f"<{found[0][0]}> was silent lately; it is asked again in some seconds"
            failed[queue] = RemotingConnectError(text, address=found[0][0])
        return answering

    def _ask_or_suspect(
        self, address: str, asks: Sequence[Ask]
    ) -> list[RemotingCommand] | RemotingError | RemoteProtocolError:
        """Return an answer to each question, or the reason why there are none. A broker that does not answer is
        remembered."""
        began_ms = self.clock.monotonic_ms()
        try:
            return self._ask_together(address, asks)
        except (RemotingError, RemoteProtocolError) as error:
            self.suspect(address)
            if self.clock.monotonic_ms() - began_ms >= _SLOW_MS:
                self._silent_until_ms[address] = self.clock.monotonic_ms() + _SILENT_MS
            return error

    def _ask_together(self, address: str, asks: Sequence[Ask]) -> list[RemotingCommand]:
        for attempt in range(2):
            is_kept = address in self._connections
            connection = self.connection(address)
            try:
                opaques = [connection.send(ask.code, ask.ext) for ask in asks]
                found: dict[int, RemotingCommand] = {}
                left = {*opaques}
                while left:
                    answer = connection.receive()
                    found[answer.opaque] = answer
                    left.discard(answer.opaque)
                return [found[opaque] for opaque in opaques]
            except (RemotingError, RemoteProtocolError):
                self.drop(address)
                if not is_kept or attempt:  # a kept connection that was closed while it was idle is replaced once
                    raise
        raise AssertionError("the second attempt returns or raises")

    def _offsets(self, asks: Iterable[Ask]) -> tuple[dict[MessageQueue, ReportedOffset], Failures]:
        answers, failed = self.ask_all(asks)
        found: dict[MessageQueue, ReportedOffset] = {}
        for queue, command, is_master in answers:
            if command.code == ResponseCode.SUCCESS:
                offset = max(0, int(command.ext.get("offset", "0")))  # -1: the queue never had a message
                found[queue] = ReportedOffset(offset, is_master, int(command.ext.get("incarnation", "0")))
            else:
                failed[queue] = BrokerError(command.code, command.remark)
        return found, failed

    def max_offsets(self, queues: Iterable[MessageQueue]) -> tuple[dict[MessageQueue, ReportedOffset], Failures]:
        """Return the offset behind the newest message of each queue, and the queues for which no broker answered."""
        return self._offsets(Ask(queue, RequestCode.GET_MAX_OFFSET, _fields(queue)) for queue in queues)

    def incarnations(self, topic: str) -> dict[str, int]:
        """Return the incarnation of a topic on each broker that has it: a number that changes when the topic is deleted
        there. Masters that do not answer are left out."""
        route = self.route(topic)
        queues = [MessageQueue(topic, name, 0) for name in (route.brokers if route else ())]
        asks = [Ask(queue, RequestCode.GET_MAX_OFFSET, _fields(queue) | {"lo": "false"}) for queue in queues]
        return {
            queue.broker_name: int(command.ext.get("incarnation", "0"))
            for queue, command, is_master in self.ask_all(asks)[0]
            if is_master and command.code == ResponseCode.SUCCESS
        }

    def min_offsets(self, queues: Iterable[MessageQueue]) -> tuple[dict[MessageQueue, ReportedOffset], Failures]:
        """Return the offset of the oldest message of each queue."""
        return self._offsets(Ask(queue, RequestCode.GET_MIN_OFFSET, _fields(queue)) for queue in queues)

    def offsets_by_time(self, times: Mapping[MessageQueue, int]) -> tuple[dict[MessageQueue, ReportedOffset], Failures]:
        """Return the offset of the first message of each queue that was stored at or after a time (ms), or the queue's
        end if there is none."""
        return self._offsets(
            Ask(
                queue,
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                _fields(queue) | {"timestamp": str(time), "boundaryType": "LOWER"},
            )
            for queue, time in times.items()
        )

    def group_offsets(
        self, group: str, queues: Iterable[MessageQueue]
    ) -> tuple[dict[MessageQueue, int | None], Failures]:
        """Return the offsets that a consumer group has committed; None where it has none."""
        extra = {"consumerGroup": group, "setZeroIfNotFound": "false", "maxqOnlyLooks": "true"}
        answers, failed = self.ask_all(
            Ask(queue, RequestCode.QUERY_CONSUMER_OFFSET, _fields(queue) | extra) for queue in queues
        )
        found: dict[MessageQueue, int | None] = {}
        for queue, command, _ in answers:
            if command.code == ResponseCode.SUCCESS:
                found[queue] = int(command.ext["offset"])
            elif command.code == ResponseCode.QUERY_NOT_FOUND:
                found[queue] = None
            else:
                failed[queue] = BrokerError(command.code, command.remark)
        return found, failed

    def may_have_holes(self, queue: MessageQueue) -> bool:
        """Return whether a queue may have offsets without a message though nothing was lost. Queues of compaction
        topics may.

        Raises:
            PipelineError: no broker answers within rocketmq.brokerWait, so that nobody knows.
        """
        limit_ms = self.options.broker_wait_ms
        ends_ms = self.clock.monotonic_ms() + limit_ms
        while (attributes := self._attributes_of(queue)) is None and queue.topic not in self._topic_attributes:
            if self.clock.monotonic_ms() >= ends_ms:
                raise PipelineError(
                    f"{queue}: it has offsets without a message, and whether these were lost is not known: no broker "
                    f"said within {limit_ms} ms (rocketmq.brokerWait) whether it is of a compaction topic"
                )
            time.sleep(_PAUSE_SECONDS)
            self.forget_routes()
        return (attributes or {}).get("cleanup.policy") == "COMPACTION"

    def selects_messages(self, queue: MessageQueue) -> bool:
        """Return whether the broker's properties of a record of this queue hold for each of its messages. They do not
        in a BatchCQ topic, where a record has several messages, nor for delayed messages, whose queue has times in
        the place of tags."""
        attributes = None if queue.topic == _DELAYED else self._attributes_of(queue)
        return attributes is not None and attributes.get("queue.type") != "BatchCQ"

    def was_deleted(self, topic: str, broker_name: str) -> bool:
        """Return whether the master of a broker group that the topic's route does not name reports that it has no such
        topic."""
        now_ms = self.clock.monotonic_ms()
        told = self._deletions.get((topic, broker_name), _Told(_LONG_AGO, False))
        if now_ms - told.asked_ms >= self._route_age_ms:
            told = self._deletions[topic, broker_name] = _Told(now_ms, self._has_no_topic(topic, broker_name))
        return told.value

    def _has_no_topic(self, topic: str, broker_name: str) -> bool:
        try:
            data = self.cluster_info().broker_addr_table.get(broker_name)
            address = None if data is None else data.broker_addrs.get(MASTER_ID)
            if address is None or self._silent_until_ms.get(address, 0) > self.clock.monotonic_ms():
                return False
            answer = self.ask(address, RequestCode.GET_TOPIC_CONFIG, {"topic": topic, "lo": "true"})
        except (RemotingError, RemoteProtocolError, BrokerError):
            return False
        return answer.code == ResponseCode.TOPIC_NOT_EXIST

    def _attributes_of(self, queue: MessageQueue) -> Mapping[str, str] | None:
        """Return the attributes of a topic: empty at brokers before 5.0, which have none; None if a broker refuses, or
        none answers, in which case the next call asks again."""
        if queue.topic not in self._topic_attributes:
            ask = Ask(queue, RequestCode.GET_TOPIC_CONFIG, {"topic": queue.topic, "lo": "true"})
            found: Mapping[str, str] | None = None
            answers = self.ask_all([ask])[0]
            if not answers:
                return None
            for one in answers:
                if one.command.code == ResponseCode.SUCCESS:
                    found = TopicConfigAndQueueMapping.decode(one.command.body_bytes).attributes
                elif one.command.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    found = {}
            self._topic_attributes[queue.topic] = found
        return self._topic_attributes[queue.topic]

    def offsets_within(
        self, group: str, budgets: Mapping[MessageQueue, tuple[int, int]]
    ) -> tuple[dict[MessageQueue, tuple[int, int]], Failures]:
        """Ask how many messages fit into so many bytes of log.

        Args:
            group: who asks.
            budgets: queue → (offset, bytes).

        Returns:
            Queue → (offset behind the messages, their bytes), at least one message; that of a broker that does not
            tell places is guessed from the messages that it answers. Queues without a message there are left out.
        """
        extra = {
            "consumerGroup": group, "maxMsgNums": str(_MOST_PLACES), "sysFlag": str(PULL_FLAG_SUBSCRIPTION),
            "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
            "expressionType": "TAG", "maxqOmit": "records",
        }  # fmt: skip
        asks = [
            Ask(
                queue,
                RequestCode.PULL_MESSAGE,
                _fields(queue) | extra | {"queueOffset": str(at), "maxqMaxBytes": str(min(size, 0x7FFFFFFF))},
            )
            for queue, (at, size) in budgets.items()
        ]
        answers, failed = self.ask_all(asks)
        found: dict[MessageQueue, tuple[int, int]] = {}
        for queue, command, _ in answers:
            if command.code != ResponseCode.SUCCESS:
                continue
            (at, budget), following = budgets[queue], int(command.ext["nextBeginOffset"])
            if "maxqBytes" in command.ext:
                found[queue] = following, int(command.ext["maxqBytes"])
            else:
                average = max(1, command.body_length // max(1, following - at))
                count = max(1, budget // average)
                found[queue] = at + count, count * average
        return found, failed

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> Failures:
        """Set a group's offsets. Returns the queues where that failed, with the reason."""
        answers, failed = self.ask_all(
            Ask(
                queue,
                RequestCode.UPDATE_CONSUMER_OFFSET,
                _fields(queue) | {"consumerGroup": group, "commitOffset": str(offset)},
            )
            for queue, offset in offsets.items()
        )
        for queue, command, _ in answers:
            if command.code != ResponseCode.SUCCESS:
                failed[queue] = BrokerError(command.code, command.remark)
        return failed

    def introduce(self, group: str, queues: Iterable[MessageQueue]) -> None:
        """Make brokers create the group and its retry topic, by which tools find its progress, by a heartbeat and an
        unregistration.

        Brokers that cannot be reached are passed over.
        """
        client_id = f"maxq-pipeline@{group}"
        consumer = ConsumerData(group, consume_type=ConsumeType.CONSUME_ACTIVELY)
        body = HeartbeatData(client_id, [], [consumer]).encode()
        leave = {"clientID": client_id, "consumerGroup": group}
        for address in {pair[0] for queue in queues for pair in self.candidates(queue) if pair[1]}:
            try:
                self.ask(address, RequestCode.HEART_BEAT, {}, body)
                self.ask(address, RequestCode.UNREGISTER_CLIENT, leave)
            except RemotingError as error:
                log.warning("group %s could not be made known to %s: %s", group, address, error)


def _readable(connections: Iterable[BlockingConnection], patience_ms: int) -> list[BlockingConnection]:
    """Wait for connections that have data or have ended, and return them; others may follow."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
        return [key.data for key, _ in selector.select(max(patience_ms, 0) / 1000)]


def _fields(queue: MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id)}


def _decoded_route(answer: RemotingCommand) -> TopicRouteData | None:
    """Decode a route. None if the topic is not known."""
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark)
    return TopicRouteData.decode(answer.body_bytes)


def _topics_of_users(answer: RemotingCommand, hidden: RemotingCommand) -> list[str]:
    """Leave out the topics of the system and the retry topics."""
    if answer.code != ResponseCode.SUCCESS or hidden.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code or hidden.code, answer.remark or hidden.remark)
    names = {*TopicList.decode(answer.body_bytes).topic_list} - {*TopicList.decode(hidden.body_bytes).topic_list}
    return sorted(
        name for name in names if not is_system_topic(name) and not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    )


def _route_of(topic: str, data: TopicRouteData) -> TopicRoute:
    brokers: dict[str, Mapping[int, str]] = {one.broker_name: dict(one.broker_addrs) for one in data.broker_datas}
    mapped = global_queues(topic, data.topic_queue_mapping_by_broker or {})
    queues = {queue: broker for queue, broker in mapped.items() if broker != NO_BROKER}
    for one in data.ordinary_queue_datas:
        if one.perm & PERM_READ and one.broker_name in brokers:
            for queue_id in one.read_queue_ids:
                queues[MessageQueue(topic, one.broker_name, queue_id)] = one.broker_name
    return TopicRoute(queues, brokers)


def tls_config(options: ConnectionOptions) -> NettyClientConfig:
    """Make the TLS settings that the options name."""
    loaded = load([NettyClientConfig(use_tls=True)], dict(options.tls), source="option rocketmq.tls.…")
    return cast(NettyClientConfig, loaded.configs[0])


def _tls_context(options: ConnectionOptions) -> ssl.SSLContext | None:
    return ClientTls(tls_config(options), SystemDisk()).context() if options.use_tls else None
