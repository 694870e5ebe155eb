"""MessageSender: from a prepared message to a stored one. Choice of queue, the request, retries.

A message is prepared once (message_preparer.py) and may then be tried on several brokers; the timeout is for all tries
together. What a failed try leads to:

| the try ended by | then |
|---|---|
| no connection; a route without a master; name servers that do not answer | tried again until the timeout |
| a refusal of one that is not the master, or cannot write just now (_MOVING_CODES) | the same |
| a connection that broke: the message may be stored | the same, but raised if `retries` is 0 |
| another refusal of RETRY_RESPONSE_CODES | tried again, `retries` times |
| anything else | raised |

Before a broker that failed is asked again there is a pause, of 10 ms at first and 100 ms at most, unless the name
servers tell of another master by then. A message that is stored by two tries is there twice, with one UNIQ_KEY.

Source: apache/rocketmq client/impl/producer/DefaultMQProducerImpl.java (sendDefaultImpl, sendKernelImpl),
client/impl/MQClientAPIImpl.java (processSendResponse).
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from copy import copy
from typing import Any, Final, Protocol, TypeVar

from maxq.client.client_config import ProducerConfig
from maxq.client.errors import NoMasterError, SendFailedError
from maxq.client.hooks import CommunicationMode, SendHooks, SendMessageContext
from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.instance.topic_publish_info import TopicPublishInfo
from maxq.client.producer.fast_sends_cy import (
    OPAQUE_MARK,
    TEXT_MARK,
    TIME_MARK,
    FastSends,
    PendingSend,
    SendAnswers,
    ThreadSends,
    is_compiled,
)
from maxq.client.producer.latency_fault import LatencyFaultTolerance
from maxq.client.producer.message_preparer import MessagePreparer, PreparedMessage, property_text
from maxq.client.results.send_result import STATUS_OF_CODE, SendResult, SendStatus
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import (
    BrokerError,
    ClientError,
    MaxQError,
    NoRouteError,
    RemoteProtocolError,
    RemotingConnectError,
    RemotingError,
    RemotingSendError,
    RemotingTimeoutError,
    UntrustedServerError,
)
from maxq.protocol.body.static_topic import NO_BROKER, is_mock_broker
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from maxq.protocol.message.message_id import UniqIdGenerator
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.answer_paths import add_answer_path
from maxq.runtime.refusals import Cause, cause_of
from maxq.runtime.reused_memory import ReusedMemory

Result = TypeVar("Result")

#: Answers after which another try may help (DefaultMQProducer.retryResponseCodes).
RETRY_RESPONSE_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
        ResponseCode.NOT_LEADER_FOR_QUEUE,  # the queue of a static topic has moved
    }
)

#: Answers of a broker that is not, not yet, or no longer the one to ask: nothing was stored.
_MOVING_CODES = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SLAVE_NOT_AVAILABLE,  # only masters accept such a request; for a send it is a status
        ResponseCode.GO_AWAY,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
    }
)
#: Codes after which the same name server will soon be able to answer.
_NOT_NOW_CODES = _MOVING_CODES | {ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY}
#: How SYSTEM_BUSY of a broker begins whose DLedger group may have stored the message: no quorum was in time.
_NO_QUORUM_IN_TIME = "[PC_SYNCHRONIZED]"
_PAUSE_MS = (10, 100)  # before a broker that failed is asked again: the first time, and at most
_ROUTE_WAIT_MS = 300  # longest wait of one try for a new route


class OfMessage(Protocol):
    """Interface of objects that know the id of a message that is being sent."""

    @property
    def msg_id(self) -> str: ...


class OfTopic(Protocol):
    """Interface of an object that belongs to a topic: a prepared message, or a queue."""

    @property
    def topic(self) -> str: ...


Subject = TypeVar("Subject", bound=OfTopic)
#: Makes one try on one queue, within the given milliseconds.
Try = Callable[[Subject, MessageQueue, int], Coroutine[Any, Any, Result]]


#: Errors that explain more than a route that did not come in time.
_KEPT_BYTES: Final = 16 << 20  # bytes that bodies of `send_arrow` have used, and others will
_REASONS: Final = (RemotingConnectError, RemotingSendError, NoRouteError, NoMasterError)


class _Failures:
    """The errors of the attempts of one send.

    Attributes:
        tries: (broker name, error), in order.
        newest: the last error, which may be one of the name servers.
        at: addresses that failed; None among them: the master of a group was unknown.
        unknown: the first error of an attempt that may have stored the message.
        is_final: another try would not help, or is not allowed.
    """

    def __init__(self, retries: int) -> None:
        self.tries: list[tuple[str, Exception]] = []
        self.newest: MaxQError = ClientError("nothing was tried")
        self.at: set[str | None] = set()
        self.unknown: MaxQError | None = None
        self.is_final = False
        self._retries = retries
        self._pause_ms, self._longest_ms = _PAUSE_MS

    def add(self, error: MaxQError, broker_name: str | None) -> None:
        """Note how an attempt failed. `broker_name` is None if no broker was asked yet."""
        is_late = isinstance(error, RemotingTimeoutError) and broker_name is None
        is_explained = isinstance(self.newest, _REASONS) and not (self.tries and isinstance(self.newest, NoMasterError))
        if not (is_late and is_explained):  # keep the error that explains why no time was left
            self.newest = error
        self.at.add(getattr(error, "address", None) or None)
        if broker_name is not None:
            self.tries.append((broker_name, error))
            if error.may_be_stored and self.unknown is None:
                self.unknown = error
        if isinstance(error, UntrustedServerError) and broker_name is None:
            self.is_final = True
        elif isinstance(error, (RemotingConnectError, NoMasterError)):
            self.is_final = False
        elif isinstance(error, NoRouteError):
            self.is_final = broker_name is None and cause_of(error.remark) != Cause.NO_BROKER
        elif isinstance(error, RemotingError):
            self.is_final = broker_name is not None and self._retries == 0
        elif not isinstance(error, BrokerError):
            self.is_final = True
        elif broker_name is None:
            self.is_final = error.code not in _NOT_NOW_CODES
        elif error.code not in _MOVING_CODES:
            self._retries -= 1
            self.is_final = self._retries < 0 or error.code not in RETRY_RESPONSE_CODES

    def pause_ms(self) -> int:
        """Return how long to wait before a broker that failed is asked again, in ms."""
        pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, self._longest_ms)
        return pause_ms


class MessageSender:
    """Sends prepared messages for one producer group through one client instance.

    Args:
        group: producer group as it travels.

    Attributes:
        preparer: turns a message into the prepared form that `send` needs.
        fast: sends ordinary messages; None: all messages need the slow path, because of hooks, signatures, or the like.
        for_threads: the same for other threads than the loop's, once they were asked for.
        table_memory: for the bodies of requests of `send_arrow`.
    """

    def __init__(self, instance: MQClientInstance, config: ProducerConfig, group: str) -> None:
        self.instance = instance
        self._config = config
        self._group = group
        self._clock = instance.environment.clock
        self._remoting = instance.remoting
        self._serialize_type = config.serialize_type
        self.faults = LatencyFaultTolerance(enabled=config.send_latency_enable)
        self._hooks = SendHooks(config.send_message_hooks, config.check_forbidden_hooks)
        self._has_hooks = bool(self._hooks)
        self.preparer = MessagePreparer(
            config, ids=instance.ids, clock=instance.environment.clock, keeps_messages=self._has_hooks
        )
        self._default_topic_queue_nums = str(config.default_topic_queue_nums)
        self._unit_mode = "true" if config.unit_mode else "false"
        is_special = self._has_hooks or self._remoting.changes_requests or self.faults.enabled
        is_special = is_special or config.retry_another_broker_when_not_store_ok
        self.fast: FastSends | None = None
        self.for_threads: ThreadSends | None = None
        self.table_memory = ReusedMemory(_KEPT_BYTES)
        if not is_special and self._serialize_type is SerializeType.JSON:
            self.fast = FastSends(self, instance, config, asyncio.get_running_loop(), instance.ids)
            add_answer_path(self._remoting, "sends", SendAnswers().take)

    def close(self) -> None:
        """Stop the timers that look for sends whose time is over. Call it when the producer is shut down."""
        self.table_memory = ReusedMemory(_KEPT_BYTES)
        for sends in (self.fast, self.for_threads):
            if sends is not None:
                sends.close()

    def serve_threads(self) -> None:
        """Let threads besides the loop's post messages, where that is safe. TLS is spoken on the loop."""
        loop = asyncio.get_running_loop()
        if self._config.use_tls or self.instance.environment.use_tls:
            return
        if self.fast is not None and is_compiled() and type(loop).__module__.partition(".")[0] == "uvloop":
            instance, environment = self.instance, self.instance.environment
            ids = UniqIdGenerator(environment.pid, environment.host_ip, environment.clock, environment.rng)
            self.for_threads = ThreadSends(self, instance, self._config, loop, ids)

    # --- queues ---

    async def publish_info(self, topic: str) -> TopicPublishInfo:
        """Return the publish queues of a topic (name on the wire)."""
        info = self.instance.routes.known_publish_info(topic)
        if info is not None and info.queues:
            return info
        config = self._config
        return await self.instance.routes.publish_info(topic, config.create_topic_key, config.default_topic_queue_nums)

    def select_queue(self, info: TopicPublishInfo, last_broker_name: str | None = None) -> MessageQueue:
        """Return the next queue in turn that is not on the broker which just failed. With fault latency it is on an
        available broker, else on a reachable one, if there is one."""
        broker_of = self.instance.routes.broker_of
        if self.faults.enabled:
            now_ms = self._clock.monotonic_ms()
            queue = info.select_one(
                lambda q: q.broker_name != last_broker_name and self.faults.is_available(broker_of(q), now_ms)
            ) or info.select_one(lambda q: q.broker_name != last_broker_name and self.faults.is_reachable(broker_of(q)))
        elif last_broker_name is not None:
            queue = info.select_one(lambda q: q.broker_name != last_broker_name)
        else:
            queue = None
        queue = queue or info.select_one()
        if queue is not None and is_mock_broker(queue.broker_name) and broker_of(queue) == NO_BROKER:
            queue = info.select_one(lambda q: broker_of(q) != NO_BROKER) or queue
        assert queue is not None, "publish_info never gives an empty list"
        return queue

    # --- one try ---

    def request(self, prepared: PreparedMessage, queue: MessageQueue) -> RemotingCommand:
        """Make the send request of a message for one queue."""
        ext = {
            "a": self._group,
            "b": prepared.topic,
            "c": self._config.create_topic_key,
            "d": self._default_topic_queue_nums,
            "e": str(queue.queue_id),
            "f": str(int(prepared.sys_flag)),
            "g": str(prepared.born_timestamp),
            "h": str(prepared.flag),
            "i": prepared.properties,
            "j": prepared.reconsume_times,
            "k": self._unit_mode,
            "m": "true" if prepared.is_batch else "false",
            "n": self.instance.routes.broker_of(queue),
        }
        if prepared.max_reconsume_times is not None:
            ext["l"] = prepared.max_reconsume_times
        code = RequestCode.SEND_MESSAGE_V2
        if prepared.is_batch:
            code = RequestCode.SEND_BATCH_MESSAGE
        elif prepared.is_reply:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        return RemotingCommand(code, ext, prepared.body, serialize_type=self._serialize_type)

    def header_with_marks(self, queue: MessageQueue, *, is_batch: bool = False) -> bytes:
        """Return the header of a request for one queue in JSON, with the three marks of fast_sends_cy in place of what
        differs between messages."""
        command = self.request(PreparedMessage(queue.topic, "", b"", 0, TEXT_MARK, 0, 0, is_batch), queue)
        command.ext["g"], command.opaque = TIME_MARK, OPAQUE_MARK
        return command.encode_head(0)[8:]

    def address(self, queue: MessageQueue) -> str | None:
        """Return the address to send to for a queue; None if no route names a master of its broker group."""
        address = self.instance.find_broker_address_in_publish(self.instance.routes.broker_of(queue))
        return None if address is None else self.instance.api.address(address)

    async def address_of(self, queue: MessageQueue) -> str:
        """Return the address to send to for a queue, and ask the name servers once more if it is not known.

        Raises:
            NoMasterError: still unknown.
        """
        address = self.address(queue)
        if address is None:
            await self.instance.routes.update_route(queue.topic)
            address = self.address(queue)
        if address is None:
            broker_name = self.instance.routes.broker_of(queue)
            raise NoMasterError(
                f"broker {broker_name} has no master in the route of topic {queue.topic}: one may be starting, or an "
                "election may be under way; try again"
            )
        return address

    def send_kernel(
        self, prepared: PreparedMessage, queue: MessageQueue, timeout_ms: int
    ) -> Coroutine[Any, Any, SendResult]:
        """Make one attempt on one queue, note the latency in the fault table, and call the hooks.

        Raises:
            RemotingError, BrokerError, ClientError
        """
        send = self._send_with_hooks if self._has_hooks else self._send_one
        return send(prepared, queue, timeout_ms)

    async def _send_with_hooks(self, prepared: PreparedMessage, queue: MessageQueue, timeout_ms: int) -> SendResult:
        context = self._before(prepared, queue, await self.address_of(queue), CommunicationMode.SYNC)
        try:
            context.send_result = result = await self._send_one(prepared, queue, timeout_ms)
        except Exception as error:
            context.exception = error
            raise
        finally:
            self._hooks.after(context)
        return result

    def _before(
        self, prepared: PreparedMessage, queue: MessageQueue, address: str, mode: CommunicationMode
    ) -> SendMessageContext:
        config = self._config
        context = SendMessageContext(
            self._group, config.namespace, prepared.messages, queue, address, mode, config.unit_mode
        )
        self._hooks.before(context)
        if not prepared.is_batch:
            prepared.properties = property_text(prepared.messages[0])
        return context

    async def _send_one(self, prepared: PreparedMessage, queue: MessageQueue, timeout_ms: int) -> SendResult:
        started_ms = self._clock.monotonic_ms()
        try:
            address = self.address(queue) or await self.address_of(queue)
            response = await self._remoting.invoke(address, self.request(prepared, queue), timeout_ms)
            result = self.result(prepared, queue, response, address)
        except RemotingError:
            self._note(queue, started_ms, isolation=True, reachable=not self._config.start_detector_enable)
            raise
        except BrokerError:
            self._note(queue, started_ms, isolation=True, reachable=False)
            raise
        if self.faults.enabled:
            self._note(queue, started_ms, isolation=False, reachable=True)
        return result

    def _note(self, queue: MessageQueue, started_ms: int, *, isolation: bool, reachable: bool) -> None:
        now_ms = self._clock.monotonic_ms()
        broker_name = self.instance.routes.broker_of(queue)
        self.faults.update(broker_name, now_ms - started_ms, now_ms, isolation=isolation, reachable=reachable)

    def result(self, prepared: OfMessage, queue: MessageQueue, response: RemotingCommand, address: str) -> SendResult:
        """Make the SendResult of a broker's answer.

        Raises:
            BrokerError: the message is not stored, or the broker does not know (`may_be_stored`).
            RemoteProtocolError: the answer lacks its fields.
        """
        status = STATUS_OF_CODE.get(response.code)
        if status is None:
            raise _refusal(response, address)
        ext = response.ext
        try:
            queue_id = int(ext["queueId"])
            queue_offset = int(ext["queueOffset"])
            offset_msg_id = ext["msgId"]
        except (KeyError, ValueError):
            raise RemoteProtocolError(f"send answer of {address} without msgId, queueId or queueOffset") from None
        return SendResult(
            status,
            prepared.msg_id or offset_msg_id,
            queue if queue_id == queue.queue_id else MessageQueue(queue.topic, queue.broker_name, queue_id),
            queue_offset,
            offset_msg_id,
            ext.get("transactionId"),
            ext.get("MSG_REGION") or "DefaultRegion",
            ext.get("TRACE_ON") != "false",
            ext.get("recallHandle"),
        )

    # --- all tries ---

    def send(
        self,
        prepared: PreparedMessage,
        timeout_ms: int,
        retries: int,
        *,
        queue: MessageQueue | None = None,
        choose: Callable[[TopicPublishInfo], MessageQueue] | None = None,
    ) -> Coroutine[Any, Any, SendResult]:
        """Send, and retry by the table in the module's docstring.

        Args:
            timeout_ms: for everything together.
            retries: further tries after refusals that another broker may not repeat.
            queue: this queue and no other.
            choose: picks the queue (ordered sends), once.

        Raises:
            NoRouteError: nobody knows the topic.
            SendFailedError: all tries failed. Of a send to one queue: what its last try failed with.
            RemotingTimeoutError: the time was up while a try was under way.
            BrokerError: refused, and another try would not help.
        """
        if self._config.retry_another_broker_when_not_store_ok and queue is None and choose is None:
            return self._send_until_ok(prepared, timeout_ms, retries)
        return self.over_tries(prepared, self.send_kernel, timeout_ms, retries, queue=queue, choose=choose)

    async def go_on(self, pending: PendingSend, retries: int, *, queue: MessageQueue | None = None) -> SendResult:
        """Go on with a message of `fast` whose first try failed. Arguments and errors are those of `send`."""
        text: str = json.loads(b'"%s"' % pending.text)
        prepared = PreparedMessage(
            pending.topic, pending.msg_id, bytes(pending.body), 0, text, 0, pending.born_ms, pending.is_batch
        )
        failed = pending.target.queue, pending.error
        return await self.over_tries(
            prepared, self.send_kernel, pending.timeout_ms, retries, queue=queue, deadline_ms=pending.deadline_ms,
            failed=failed,
        )  # fmt: skip

    async def _send_until_ok(self, prepared: PreparedMessage, timeout_ms: int, retries: int) -> SendResult:
        """Send a message. If it is stored, but not as safely as it should be, send it to another broker as well."""
        not_ok: list[SendResult] = []

        async def one_try(prepared: PreparedMessage, queue: MessageQueue, timeout_ms: int) -> SendResult:
            result = await self.send_kernel(prepared, queue, timeout_ms)
            if result.send_status is SendStatus.SEND_OK or len(not_ok) >= retries:
                return result
            not_ok.append(result)
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"stored, but {result.send_status.name}")

        try:
            return await self.over_tries(prepared, one_try, timeout_ms, retries)
        except (RemotingError, BrokerError, ClientError):
            if not_ok:
                return not_ok[-1]
            raise

    async def send_oneway(self, prepared: PreparedMessage, timeout_ms: int, queue: MessageQueue | None = None) -> None:
        """Send without an answer. The call waits only for a connection."""
        await self.over_tries(prepared, self._oneway_kernel, timeout_ms, 0, queue=queue)

    async def _oneway_kernel(self, prepared: PreparedMessage, queue: MessageQueue, timeout_ms: int) -> None:
        address = await self.address_of(queue)
        context = None
        if self._has_hooks:
            context = self._before(prepared, queue, address, CommunicationMode.ONEWAY)
        try:
            await self._remoting.invoke_oneway(address, self.request(prepared, queue), timeout_ms)
        except Exception as error:
            if context is not None:
                context.exception = error
            raise
        finally:
            if context is not None:
                self._hooks.after(context)

    async def over_tries(
        self,
        prepared: Subject,
        one_try: "Try[Subject, Result]",
        timeout_ms: int,
        retries: int,
        *,
        queue: MessageQueue | None = None,
        choose: Callable[[TopicPublishInfo], MessageQueue] | None = None,
        deadline_ms: int | None = None,
        failed: tuple[MessageQueue, Exception | None] | None = None,
    ) -> Result:
        """Return the first success of `one_try(prepared, queue, milliseconds left)`, on queues of the topic's brokers
        or on one. The other arguments and errors are those of `send`.

        Args:
            deadline_ms: when the time is over (monotonic); None: `timeout_ms` from now.
            failed: the queue of a try that was made before, and its error; None: that queue is to be tried again.
        """
        if deadline_ms is None:
            deadline_ms = self._clock.monotonic_ms() + timeout_ms
        failures: _Failures | None = None
        target: MessageQueue | None = None
        while True:
            name = None
            try:
                if failed is not None and (first_error := failed[1]) is not None:
                    target, failed = failed[0], None
                    name = target.broker_name
                    raise first_error
                info = self.instance.routes.known_publish_info(prepared.topic)
                if info is None or not info.queues:
                    info = await self._ask_for(prepared.topic, deadline_ms)
                if queue is None and choose is not None:
                    queue = choose(info)
                if failed is not None:
                    target, failed = failed[0], None
                else:
                    target = queue or self.select_queue(info, None if target is None else target.broker_name)
                if failures is not None and self.address(target) in failures.at:
                    await self._pause(failures, deadline_ms)
                name = target.broker_name
                left_ms = deadline_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    break
                return await one_try(prepared, target, left_ms)
            except (RemotingError, BrokerError, ClientError) as error:
                failures = failures or _Failures(retries)
                failures.add(error, name)
                is_over = self._clock.monotonic_ms() >= deadline_ms or not self.instance.started_at_ms
                is_moved = getattr(error, "refresh_route", False) or getattr(error, "code", None) in _MOVING_CODES
                if failures.is_final or is_over:
                    if is_moved:
                        self.instance.refresh_route_soon(prepared.topic)  # so that the next send finds the new route
                    break
                if is_moved:
                    await self._ask_again(prepared.topic, deadline_ms)
                if name is None:
                    await self._pause(failures, deadline_ms)
        raise self._outcome(prepared, failures, timeout_ms, is_one_queue=queue is not None)

    async def _ask_for(self, topic: str, deadline_ms: int) -> TopicPublishInfo:
        """Ask for the unknown publish queues of a topic."""
        try:
            async with asyncio.timeout(self._left_seconds(deadline_ms)):
                return await self.publish_info(topic)
        except TimeoutError:
            asked = ", ".join(self._remoting.name_servers)
            raise RemotingTimeoutError(
                f"the route of topic {topic} did not come in time from {asked}; see whether a name server runs there, "
                "or raise send_msg_timeout"
            ) from None

    async def _ask_again(self, topic: str, deadline_ms: int) -> None:
        """Ask for the route after a failure that makes it doubtful, and wait for it for a short time."""
        with contextlib.suppress(RemotingError, BrokerError, TimeoutError):
            async with asyncio.timeout(min(_ROUTE_WAIT_MS / 1000, self._left_seconds(deadline_ms))):
                await self.instance.routes.update_route(topic)

    async def _pause(self, failures: _Failures, deadline_ms: int) -> None:
        pause_ms = min(failures.pause_ms(), max(deadline_ms - self._clock.monotonic_ms(), 0))
        await self.instance.brokers.wait_for_change(pause_ms)

    def _left_seconds(self, deadline_ms: int) -> float:
        return max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000

    def _outcome(
        self, prepared: OfTopic, failures: _Failures | None, timeout_ms: int, *, is_one_queue: bool
    ) -> MaxQError:
        """Make the error that is raised after the last attempt. It says whether one of them may have stored the
        message."""
        error = self._last_error(prepared, failures, timeout_ms, is_one_queue=is_one_queue)
        unknown = None if failures is None else failures.unknown
        if unknown is not None and not error.may_be_stored:
            error.add_note(f"a try before may have stored the message: {unknown}")
        error.may_be_stored = unknown is not None
        return error

    def _last_error(
        self, prepared: OfTopic, failures: _Failures | None, timeout_ms: int, *, is_one_queue: bool
    ) -> MaxQError:
        text = f"sending to topic {prepared.topic} took longer than {timeout_ms} ms (send_msg_timeout)"
        if failures is None:
            return RemotingTimeoutError(text, timeout_ms=timeout_ms)
        newest, tries = failures.newest, failures.tries
        is_refused = isinstance(newest, BrokerError) and newest.code not in RETRY_RESPONSE_CODES
        if isinstance(newest, RemotingError):
            newest = newest.told_as(f"sending to topic {prepared.topic} failed for {timeout_ms} ms: {newest}")
        else:
            newest = _own(newest)
        if not tries or is_refused or isinstance(newest, NoRouteError):
            return newest
        if isinstance(newest, RemotingTimeoutError):
            others = [error for _, error in reversed(tries) if not isinstance(error, RemotingTimeoutError)]
            if not others:
                return newest
            timeout = RemotingTimeoutError(f"{text}; a try before failed: {others[0]}", timeout_ms=timeout_ms)
            timeout.__cause__ = others[0]
            return timeout
        if is_one_queue:
            return newest
        brokers = ", ".join(dict.fromkeys(name for name, _ in tries))
        failed = SendFailedError(
            f"sending to topic {prepared.topic} failed {len(tries)} times (brokers {brokers}): {tries[-1][1]}", tries
        )
        failed.__cause__ = newest
        return failed

    async def probe_faulty(self) -> None:
        """Ask brokers that failed for an offset of one of their queues. An answer makes them reachable."""

        async def probe(broker_name: str) -> None:
            address = self.instance.find_broker_address_in_publish(broker_name)
            if address is None:
                self.faults.remove(broker_name)
                return
            queue = MessageQueue(self._config.create_topic_key, broker_name, 0)
            try:
                await self.instance.api.max_offset(address, queue)
            except BrokerError:
                pass  # any answer shows that the broker can be reached
            except RemotingError:
                return
            self.faults.on_probe(broker_name, reached=True)

        due = self.faults.due_probes(self._clock.monotonic_ms(), 2_000)
        await asyncio.gather(*(probe(name) for name in due))


def _refusal(response: RemotingCommand, address: str) -> BrokerError:
    """Make the error of a broker's answer that it has not stored a message, or does not know whether its group has."""
    error = BrokerError(response.code, response.remark, address=address)
    is_late = response.code == ResponseCode.SYSTEM_BUSY and error.remark.startswith(_NO_QUORUM_IN_TIME)
    error.may_be_stored = is_late or response.code == ResponseCode.SYSTEM_ERROR
    return error


def _own(error: MaxQError) -> MaxQError:
    """Return a copy of an error. Sends that asked for one route together share its failure, and each adds its own
    earlier tries."""
    own = copy(error)
    own.__cause__ = error.__cause__
    return own.with_traceback(error.__traceback__)
