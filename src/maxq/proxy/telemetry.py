"""Telemetry, Heartbeat and NotifyClientTermination: what clients and servers tell each other.

A client says what it is (settings), is told what to keep to, and is asked over the same stream: about transactions, for
its threads, to consume one message. What brokers ask a client comes on the client's own connection to them.

Source:
    proxy/grpc/v2/client/ClientActivity.java, proxy/grpc/v2/common/GrpcClientSettingsManager.java,
    proxy/service/relay/*.java.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final

from maxq.codes import RequestCode, ResponseCode
from maxq.config.proxy_config import ProxyConfig
from maxq.errors import MaxQError
from maxq.protocol.body.consumer_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from maxq.protocol.body.heartbeat import ConsumerData, HeartbeatData, ProducerData
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.enums import CMResult, ConsumeFromWhere, ConsumeType, MessageModel
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.protocol.message.message import decode_record
from maxq.proxy.brokers import Brokers, NotKnownYet
from maxq.proxy.clients import Client, Clients
from maxq.proxy.context import Context
from maxq.proxy.message_codec import grpc_message
from maxq.proxy.receiving import subscription_of
from maxq.proxy.renewal import backoff_policy
from maxq.proxy.statuses import OK, CallRefusedError, status_of_reply
from maxq.proxy.validation import REQUEST_BYTES_MAX, duration, group_name, topic_name
from maxq.remoting.connection import Connection
from maxq.remoting.grpc.calls import GrpcStatus

log: Final = logging.getLogger(__name__)

_CONSUMERS: Final = {
    pb.ClientType.SIMPLE_CONSUMER: ConsumeType.CONSUME_ACTIVELY,
    pb.ClientType.PULL_CONSUMER: ConsumeType.CONSUME_ACTIVELY,
    pb.ClientType.PUSH_CONSUMER: ConsumeType.CONSUME_PASSIVELY,
}
_CONSUMED: Final = {
    pb.Code.OK: CMResult.CR_SUCCESS,
    pb.Code.FAILED_TO_CONSUME_MESSAGE: CMResult.CR_LATER,
    pb.Code.MESSAGE_CORRUPTED: CMResult.CR_RETURN_NULL,
}
_MOST_SUBSCRIPTIONS: Final = 1024  # of one client, or topics that it sends to


#: Runs what has to wait as a task.
Keep = Callable[[Coroutine[Any, Any, None]], None]


class Telemetry:
    """Serves the streams of commands, and heart-beats."""

    def __init__(self, brokers: Brokers, clients: Clients, config: Callable[[], ProxyConfig], keep: Keep) -> None:
        self._brokers = brokers
        self._clients = clients
        self._config = config
        self._keep = keep
        self._nonces = 0
        self._asked: dict[tuple[Client, str], asyncio.Future[pb.TelemetryCommand]] = {}

    # --- settings ----------------------------------------------------------------------------------------------------

    def start(self, context: Context) -> Callable[[bytes | None], None]:
        """Begin a client's stream; returns what hears each of its commands, and None for their end."""
        call = context.call
        entered: list[Client] = []

        def ended() -> None:
            for client in entered:
                self._clients.telemetry_ended(client, call)

        def received(message: bytes | None) -> None:
            if message is None:
                call.finish()
                ended()
                return
            is_asked = any(asked in entered for asked, _ in self._asked)  # what answers, threads say, may be large
            if len(message) > REQUEST_BYTES_MAX and not is_asked:
                text = f"a command of {len(message)} bytes, at most {REQUEST_BYTES_MAX}"
                call.finish(GrpcStatus.RESOURCE_EXHAUSTED, text)
                ended()
                return
            command = pb.TelemetryCommand.FromString(message)
            kind = command.WhichOneof("command")
            if kind == "settings":
                client = context.client
                client.telemetry = call
                entered[:] = [client]
                self._take_settings(client, command.settings)
            elif kind in ("thread_stack_trace", "verify_message_result"):
                for client in entered:
                    self._answered(client, getattr(command, kind).nonce, command)

        call.on_end = ended

        async def received_later(ready: Awaitable[None], message: bytes | None) -> None:
            await ready
            if not call.is_over:
                guarded(message)

        def guarded(message: bytes | None) -> None:
            try:
                received(message)
            except NotKnownYet as wait:
                self._keep(received_later(wait.ready, message))
            except CallRefusedError as error:
                is_of_client = pb.Code.BAD_REQUEST <= error.code < pb.Code.INTERNAL_ERROR
                kind = GrpcStatus.INVALID_ARGUMENT if is_of_client else GrpcStatus.INTERNAL
                call.finish(kind, f"process client telemetryCommand failed. {error}")
                ended()
            except Exception as error:
                if type(error).__name__ != "DecodeError":
                    log.exception("a telemetry command of %s failed", context.client_id)
                call.finish(GrpcStatus.INTERNAL, f"process client telemetryCommand failed. {error}")
                ended()

        return guarded

    def _take_settings(self, client: Client, settings: pb.Settings) -> None:
        """Take over what a client says of itself, and tell it what to keep to."""
        kind = settings.WhichOneof("pub_sub")
        if kind is None:
            raise CallRefusedError(pb.Code.BAD_REQUEST, "there is no publishing or subscription data in settings")
        if kind == "publishing":
            topics = settings.publishing.topics
            _refuse_many(len(topics))
            beat = HeartbeatData(client.client_id, _producers(topics))
        else:
            _refuse_many(len(settings.subscription.subscriptions))
            group = group_name(settings.subscription.group)
            beat = self._consumer(client, group, settings)
        self._beat(client, beat, None)
        client.settings = settings
        told = pb.TelemetryCommand(status=OK, settings=self._settings_for(settings))
        client.tell(told)

    def _settings_for(self, given: pb.Settings) -> pb.Settings:
        """Return a client's settings with what this server says in them."""
        config = self._config()
        settings = pb.Settings()
        settings.CopyFrom(given)
        settings.metric.on = False
        if settings.HasField("publishing"):
            settings.publishing.validate_message_type = config.grpc_topic_message_type_check
            settings.publishing.max_body_size = self._brokers.max_message_size
            backoff = pb.ExponentialBackoff(
                initial=duration(config.grpc_client_producer_backoff_initial_millis),
                max=duration(config.grpc_client_producer_backoff_max_millis),
                multiplier=config.grpc_client_producer_backoff_multiplier,
            )
            policy = pb.RetryPolicy(max_attempts=config.grpc_client_producer_max_attempts, exponential_backoff=backoff)
        else:
            group = self._brokers.group(group_name(settings.subscription.group)) or SubscriptionGroupConfig()
            subscription = settings.subscription
            subscription.receive_batch_size = config.grpc_client_consumer_long_polling_batch_size
            subscription.long_polling_timeout.CopyFrom(
                duration(config.grpc_client_consumer_max_long_polling_timeout_millis)
            )
            subscription.fifo = group.consume_message_orderly
            policy = backoff_policy(group.group_retry_policy, group.retry_max_times + 1)
        settings.backoff_policy.CopyFrom(policy)
        return settings

    # --- heart-beats -------------------------------------------------------------------------------------------------

    def heartbeat(self, context: Context, request: pb.HeartbeatRequest) -> None:
        """Register a client again with the brokers that it uses."""
        client = context.known_client
        settings = None if client is None else client.settings
        if client is None or settings is None:
            raise CallRefusedError(pb.Code.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
        client.used_at = asyncio.get_running_loop().time()
        kind = settings.client_type
        if kind == pb.ClientType.PRODUCER:
            beat = HeartbeatData(client.client_id, _producers(settings.publishing.topics))
        elif kind in _CONSUMERS:
            beat = self._consumer(client, group_name(request.group), settings)
        else:
            raise CallRefusedError(pb.Code.UNRECOGNIZED_CLIENT_TYPE, _client_type_name(kind))
        self._beat(client, beat, context)

    def _consumer(self, client: Client, group: str, settings: pb.Settings) -> HeartbeatData:
        """Return the heart-beat of a consumer."""
        subscriptions = []
        for entry in settings.subscription.subscriptions:
            topic = topic_name(entry.topic)
            subscriptions.append(subscription_of(topic, entry.expression))
        kind = _CONSUMERS.get(pb.ClientType(settings.client_type)) if settings.client_type in _CONSUMERS else None
        if kind is None:
            raise CallRefusedError(pb.Code.UNRECOGNIZED_CLIENT_TYPE, _client_type_name(settings.client_type))
        data = ConsumerData(
            group, kind, MessageModel.CLUSTERING, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, subscriptions
        )
        return HeartbeatData(client.client_id, consumer_data_set=[data])

    def _beat(self, client: Client, beat: HeartbeatData, context: Context | None) -> None:
        """Send a heart-beat to all brokers of the topics that a client uses; the first answer is the call's."""
        if not self._brokers.knows_clients:
            self._brokers.keep_producers([producer.group_name for producer in beat.producer_data_set])
            if context is not None:
                context.answer(pb.HeartbeatResponse(status=OK))
            return
        topics = [data.topic for consumer in beat.consumer_data_set for data in consumer.subscription_data_set]
        topics += [producer.group_name for producer in beat.producer_data_set]
        views = [view for view in map(self._brokers.topic, topics) if view is not None]
        names = {name for view in views for name in view.brokers} | set(client.broker_names)
        body = beat.encode()
        answer = None if context is None else context.guarded(self._beaten, context)
        for name in sorted(names):
            client.ask(name, RemotingCommand(RequestCode.HEART_BEAT, {}, body), answer or _ignore)
            answer = None
        if answer is not None and context is not None:  # there is no broker that would want to know
            context.answer(pb.HeartbeatResponse(status=OK))

    @staticmethod
    def _beaten(context: Context, reply: RemotingCommand | None) -> None:
        context.answer(pb.HeartbeatResponse(status=status_of_reply(reply)))

    def terminate(self, context: Context, request: pb.NotifyClientTerminationRequest) -> None:
        """Forget a client that ends."""
        client = context.known_client
        if client is None or client.settings is None:
            raise CallRefusedError(pb.Code.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
        if client.settings.client_type in _CONSUMERS:
            group_name(request.group)
        self._clients.remove(client)
        context.answer(pb.NotifyClientTerminationResponse(status=OK))

    # --- what brokers ask clients ------------------------------------------------------------------------------------

    async def running_info(self, link: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer an administrator who asks for a consumer's state, with its threads if they are wanted."""
        client = Clients.behind(link)
        info = ConsumerRunningInfo()
        if client is not None and request.ext.get("jstackEnable") == "true":
            nonce = self._next_nonce()
            ask = pb.TelemetryCommand(print_thread_stack_trace_command=pb.PrintThreadStackTraceCommand(nonce=nonce))
            answer = await self._ask(client, nonce, ask)
            info.jstack = answer.thread_stack_trace.thread_stack_trace
        return request.reply(body=info.encode())

    async def consume_directly(self, link: Connection, request: RemotingCommand) -> RemotingCommand:
        """Have a consumer consume one message, for an administrator."""
        client = Clients.behind(link)
        if client is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, "the gRPC client has gone")
        message = decode_record(request.body_bytes, inflate=True)
        nonce = self._next_nonce()
        verify = pb.VerifyMessageCommand(nonce=nonce, message=grpc_message(message))
        answer = await self._ask(client, nonce, pb.TelemetryCommand(verify_message_command=verify))
        outcome = _CONSUMED.get(pb.Code(answer.status.code)) if answer.status.code in _CONSUMED else None
        result = ConsumeMessageDirectlyResult(consume_result=outcome, remark="from gRPC client")
        return request.reply(body=result.encode())

    def _next_nonce(self) -> str:
        self._nonces += 1
        return str(self._nonces)

    async def _ask(self, client: Client, nonce: str, command: pb.TelemetryCommand) -> pb.TelemetryCommand:
        """Ask a client over telemetry, and wait for its answer.

        Raises:
            AskedClientError: it has no stream, or does not answer in time.
        """
        future: asyncio.Future[pb.TelemetryCommand] = asyncio.get_running_loop().create_future()
        self._asked[client, nonce] = future
        try:
            if not client.tell(command):
                raise AskedClientError(f"{client.client_id} has no telemetry stream now")
            async with asyncio.timeout(self._config().grpc_proxy_relay_request_timeout_in_seconds):
                return await future
        except TimeoutError:
            raise AskedClientError(f"{client.client_id} did not answer in time") from None
        finally:
            del self._asked[client, nonce]

    def _answered(self, client: Client, nonce: str, command: pb.TelemetryCommand) -> None:
        future = self._asked.get((client, nonce))
        if future is not None and not future.done():
            future.set_result(command)


class AskedClientError(MaxQError):
    """Raised when a gRPC client does not answer what it was asked for an administrator."""


def _producers(topics: Iterable[pb.Resource]) -> list[ProducerData]:
    """Return the producer groups of a client: the topics that it sends to, by which it is asked about transactions."""
    return [ProducerData(topic_name(topic)) for topic in topics]


def _refuse_many(count: int) -> None:
    if count > _MOST_SUBSCRIPTIONS:
        raise CallRefusedError(
            pb.Code.BAD_REQUEST, f"{count} topics in the settings of one client, at most {_MOST_SUBSCRIPTIONS}"
        )


def _client_type_name(kind: int) -> str:
    return next((known.name for known in pb.ClientType if known == kind), str(kind))


def _ignore(reply: Any) -> None:
    """Hear of the answer to a heart-beat of which the client did not ask."""
