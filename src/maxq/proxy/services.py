"""The table of calls: apache.rocketmq.v2.MessagingService.

Source:
    proxy/grpc/v2/GrpcMessagingApplication.java.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError

from maxq.codes import RequestCode
from maxq.config.proxy_config import ProxyConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.proxy.brokers import Brokers, NotKnownYet
from maxq.proxy.clients import Clients
from maxq.proxy.context import AccessRules, Context, user_of
from maxq.proxy.producer.plain_sends_cy import PlainSend, PlainSends
from maxq.proxy.producer.sending import Sending
from maxq.proxy.pulling import Pulling
from maxq.proxy.receipts import Receipts
from maxq.proxy.receiving import Receiving
from maxq.proxy.renewal import Renewal
from maxq.proxy.routes import Routes
from maxq.proxy.statuses import CallRefusedError, status_of_error
from maxq.proxy.telemetry import Telemetry
from maxq.proxy.transactions import Transactions
from maxq.proxy.validation import REQUEST_BYTES_MAX, check_fields, is_legal_topic
from maxq.remoting.endpoint import RemotingEndpoint
from maxq.remoting.grpc.calls import Call, GrpcStatus, Streaming, Unary
from maxq.remoting.grpc.health import HEALTH_SERVICE, Health
from maxq.remoting.grpc.reflection import Reflection
from maxq.runtime.interfaces import Clock

log: Final = logging.getLogger(__name__)

SERVICE: Final = "apache.rocketmq.v2.MessagingService"


class Services:
    """All calls of gRPC clients."""

    def __init__(
        self, brokers: Brokers, config: Callable[[], ProxyConfig], clock: Clock, rules: AccessRules | None
    ) -> None:
        """`rules`: None: no client needs to say who it is, and everybody may do everything."""
        self._rules = rules
        self._waiting: set[asyncio.Task[None]] = set()
        self.clients = Clients(brokers)
        self.renewal = Renewal(brokers, config, clock)
        self.renewal.when_looked.append(self.clients.expire)
        self.clients.when_gone.append(self.renewal.client_gone)
        self.clients.holds.append(self.renewal.holds)
        self.routes = Routes(brokers, rules)
        self.sending = Sending(brokers, config, clock)
        self.plain_sends = PlainSends(brokers, config, self.clients, is_legal_topic, self._answer_plain)
        self.receiving = Receiving(brokers, config, clock, self.renewal)
        self.receipts = Receipts(config, clock, self.renewal)
        self.pulling = Pulling(brokers, config)
        self.transactions = Transactions(self.clients)
        self.telemetry = Telemetry(brokers, self.clients, config, self._keep)
        self.health = Health([SERVICE])

    def methods(self) -> Mapping[str, Unary | Streaming]:
        """Return what serves each call, by its path."""
        unary: dict[str, tuple[Any, Any, Callable[[Context, Any], None]]] = {
            "QueryRoute": (pb.QueryRouteRequest, pb.QueryRouteResponse, self.routes.query_route),
            "Heartbeat": (pb.HeartbeatRequest, pb.HeartbeatResponse, self.telemetry.heartbeat),
            "SendMessage": (pb.SendMessageRequest, pb.SendMessageResponse, self.sending.send),
            "QueryAssignment": (pb.QueryAssignmentRequest, pb.QueryAssignmentResponse, self.routes.query_assignment),
            "ReceiveMessage": (pb.ReceiveMessageRequest, pb.ReceiveMessageResponse, self.receiving.receive),
            "AckMessage": (pb.AckMessageRequest, pb.AckMessageResponse, self.receipts.ack),
            "ForwardMessageToDeadLetterQueue": (
                pb.ForwardMessageToDeadLetterQueueRequest,
                pb.ForwardMessageToDeadLetterQueueResponse,
                self.receipts.forward,
            ),
            "PullMessage": (pb.PullMessageRequest, pb.PullMessageResponse, self.pulling.pull),
            "UpdateOffset": (pb.UpdateOffsetRequest, pb.UpdateOffsetResponse, self.pulling.update_offset),
            "GetOffset": (pb.GetOffsetRequest, pb.GetOffsetResponse, self.pulling.get_offset),
            "QueryOffset": (pb.QueryOffsetRequest, pb.QueryOffsetResponse, self.pulling.query_offset),
            "EndTransaction": (pb.EndTransactionRequest, pb.EndTransactionResponse, self.transactions.end),
            "NotifyClientTermination": (
                pb.NotifyClientTerminationRequest,
                pb.NotifyClientTerminationResponse,
                self.telemetry.terminate,
            ),
            "ChangeInvisibleDuration": (
                pb.ChangeInvisibleDurationRequest,
                pb.ChangeInvisibleDurationResponse,
                self.receipts.change_invisible_duration,
            ),
            "RecallMessage": (pb.RecallMessageRequest, pb.RecallMessageResponse, self.sending.recall),
        }
        table: dict[str, Any] = {
            _path(name): Unary(
                self._server(request, answer, serve, None if name == "SendMessage" else REQUEST_BYTES_MAX)
            )
            for name, (request, answer, serve) in unary.items()
        }
        table[_path("SendMessage")] = Unary(self._plain_or(table[_path("SendMessage")].handle))
        table[_path("Telemetry")] = Streaming(self._start_telemetry)
        table[_path("SyncLiteSubscription")] = Unary(_no_lite_topics)
        described = Reflection([*pb.FILES.file, self.health.file], [SERVICE, HEALTH_SERVICE])
        return {**table, **self.health.methods, **described.methods}

    def _server(
        self, request_type: Any, answer_type: Any, serve: Callable[[Context, Any], None], bytes_max: int | None
    ) -> Callable[[Call, bytes], None]:
        """Return what serves one method: `serve` gets the decoded request, and what it raises answers the call.
        Requests are refused that have more than `bytes_max` bytes; None: the server's limit is enough."""
        clients = self.clients
        decode = request_type.FromString

        async def handle_later(ready: Awaitable[None], call: Call, message: bytes) -> None:
            await ready
            if not call.is_over:
                handle(call, message)

        def handle(call: Call, message: bytes) -> None:
            if bytes_max is not None and len(message) > bytes_max:
                call.finish(GrpcStatus.RESOURCE_EXHAUSTED, f"a request of {len(message)} bytes, at most {bytes_max}")
                return
            try:
                user = "" if self._rules is None else user_of(call, self._rules)
                context = Context(call, answer_type, clients, user)
                if bytes_max is None:
                    check_fields(message)
                serve(context, decode(message))
            except NotKnownYet as wait:
                self._keep(handle_later(wait.ready, call, message))
            except CallRefusedError as error:
                _answer_refusal(call, answer_type, error)
            except DecodeError as error:
                call.finish(GrpcStatus.INTERNAL, f"the request cannot be decoded: {error}")
            except Exception as error:
                log.exception("a call of %s failed", call.path)
                _answer_refusal(call, answer_type, error)

        return handle

    def _plain_or(self, general: Callable[[Call, bytes], None]) -> Callable[[Call, bytes], None]:
        """Return what serves sends: plain ones on the compiled way, if no client needs to say who it is."""
        take = self.plain_sends.take

        def handle(call: Call, message: bytes) -> None:
            if not take(call, message):
                general(call, message)

        return general if self._rules is not None else handle

    def _answer_plain(self, sent: PlainSend, reply: RemotingCommand | None) -> None:
        context = Context(sent.call, pb.SendMessageResponse, self.clients, "")
        self.sending.answer_plain(context, sent, reply)

    def pass_ended(self) -> None:
        """Send what the calls of an arrival ask of brokers."""
        self.plain_sends.flush()

    def _keep(self, waits: Coroutine[Any, Any, None]) -> None:
        """Run a call that has to wait for something as a task."""
        task = asyncio.get_running_loop().create_task(waits)
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def _start_telemetry(self, call: Call) -> Callable[[bytes | None], None]:
        try:
            user = "" if self._rules is None else user_of(call, self._rules)
            return self.telemetry.start(Context(call, pb.TelemetryCommand, self.clients, user))
        except CallRefusedError as error:
            is_unknown = error.code == pb.Code.UNAUTHORIZED
            call.finish(GrpcStatus.UNAUTHENTICATED if is_unknown else GrpcStatus.INVALID_ARGUMENT, str(error))
            return _hear_nothing

    def answer_brokers(self, endpoint: RemotingEndpoint) -> None:
        """Register what answers the requests that brokers send to clients."""
        self.plain_sends.use(endpoint)
        endpoint.add_listener(self.clients)
        endpoint.register(RequestCode.CHECK_TRANSACTION_STATE, self.transactions.check)
        endpoint.register(RequestCode.GET_CONSUMER_RUNNING_INFO, self.telemetry.running_info)
        endpoint.register(RequestCode.CONSUME_MESSAGE_DIRECTLY, self.telemetry.consume_directly)
        for code in _NOTICES:
            endpoint.register(code, _unheard)

    def start(self) -> None:
        """Begin to renew receipts."""
        self.renewal.start()

    def end_waiting(self) -> None:
        """Answer the calls that wait for messages, and probes that nothing is served any more: the server ends."""
        self.health.stop_serving()
        self.receiving.end_waiting()

    def stop(self) -> None:
        """Let others have what clients were given with receipts that are renewed."""
        self.renewal.stop()


#: What brokers tell clients that keep queues and offsets themselves, which gRPC clients do not.
_NOTICES: Final = (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)


def _path(name: str) -> str:
    return f"/{SERVICE}/{name}"


def _answer_refusal(call: Call, answer_type: Any, error: Exception) -> None:
    call.send(answer_type(status=status_of_error(error)).SerializeToString())
    call.finish()


def _no_lite_topics(call: Call, message: bytes) -> None:
    call.finish(GrpcStatus.UNIMPLEMENTED, "this server has no lite topics")


def _hear_nothing(message: bytes | None) -> None:
    """Hear the commands of a stream that was refused."""


def _unheard(connection: object, request: object) -> None:
    """Hear of something that concerns clients of the remoting protocol only."""
