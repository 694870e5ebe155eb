"""TransactionProducer: a message and a local transaction that are done both or neither.

    half message sent → local transaction executed → its outcome told to the broker, which delivers or forgets

If the broker is not told the outcome, it asks any producer of the group for it later: `check_local_transaction`. So the
outcome of a local transaction must be stored where another process can read it, a database for example, and must not
change once it was reported.

The broker's answer to the outcome is waited for (Java sends it one-way and hopes): `end_error` of the result says
whether it could be told. A transaction whose end could not be told is asked for later and is not lost.

Source: apache/rocketmq client/producer/{TransactionMQProducer,TransactionListener}.java,
client/impl/producer/DefaultMQProducerImpl.java (sendMessageInTransaction, endTransaction, checkTransactionState).
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple, Protocol

from maxq.client.argument_checks import check_transaction_listener
from maxq.client.client_config import ClientEnvironment, ProducerConfig
from maxq.client.errors import MessageRefusedError
from maxq.client.failures import KnownErrors, error_in_a_line
from maxq.client.hooks import EndTransactionContext, EndTransactionHook, EndTransactionHooks
from maxq.client.instance.mq_client_manager import MQClientManager
from maxq.client.producer.producer import Producer
from maxq.client.results.local_transaction_state import LocalTransactionState as LocalTransactionState
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.client.validators import check_types
from maxq.errors import MaxQError
from maxq.protocol.body.static_topic import is_mock_broker
from maxq.protocol.header.send import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_id import decode_host, decode_message_id
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.remoting.connection import Connection

log = logging.getLogger(__name__)


#: What a listener's method returns; None counts as UNKNOW.
Answer = LocalTransactionState | None


class TransactionListener(Protocol):
    """The callbacks of an application for transactions. Methods may be coroutine functions. An exception counts as
    UNKNOW."""

    def execute_local_transaction(self, message: Message, arg: Any) -> Answer | Awaitable[Answer]:
        """Execute the local transaction of a half message that the broker has stored safely. `message` has its
        transaction id."""
        ...

    def check_local_transaction(self, message: MessageExt) -> Answer | Awaitable[Answer]:
        """Return how the local transaction of a message ended. Brokers may ask before `execute_local_transaction` has
        returned."""
        ...


class TransactionSendResult(NamedTuple):
    """The outcome of a message sent in a transaction.

    Attributes:
        send_result: where the half message was stored.
        local_transaction_state: what the listener returned.
        end_error: why the broker could not be told the state; it will ask.
    """

    send_result: SendResult
    local_transaction_state: LocalTransactionState
    end_error: Exception | None = None

    @property
    def send_status(self) -> SendStatus:
        """Return the status of the half message. Any status but SEND_OK means that it is not safe enough: it was rolled
        back and the local transaction was not executed."""
        return self.send_result.send_status

    @property
    def msg_id(self) -> str:
        """Return the id that the client gave the message."""
        return self.send_result.msg_id

    @property
    def transaction_id(self) -> str | None:
        """Return the id by which the listener knows the transaction."""
        return self.send_result.transaction_id

    @property
    def message_queue(self) -> MessageQueue:
        """Return the queue of the half message's topic and broker."""
        return self.send_result.message_queue

    @property
    def queue_offset(self) -> int:
        """Return the queue offset of the half message."""
        return self.send_result.queue_offset


class HalfMessage(NamedTuple):
    """A message that waits for its local transaction, and its place.

    Attributes:
        home: the queue at the broker that stored it. Another one may lead the queue of a static topic at the end.
    """

    message: Message
    result: SendResult
    home: MessageQueue


class TransactionProducer(Producer):
    """Sends messages for one producer group, also in transactions.

    Args:
        listener: executes local transactions and knows how they ended.
        executor: where methods of the listener that are plain functions run; None: on the event loop, for functions
            that do not block.
    """

    def __init__(
        self,
        config: ProducerConfig,
        environment: ClientEnvironment,
        listener: TransactionListener,
        *,
        executor: Executor | None = None,
        manager: MQClientManager | None = None,
    ) -> None:
        check_transaction_listener(listener)
        super().__init__(config, environment, manager=manager)
        self._listener = listener
        self._executor = executor
        self._known_errors = KnownErrors()
        self._end_hooks = EndTransactionHooks((*config.end_transaction_hooks, *self._trace_hooks()))

    def _trace_hooks(self) -> Sequence[EndTransactionHook]:
        if self._trace is None:
            return ()
        from maxq.client.trace.hooks import EndTransactionTraceHook  # few producers trace

        return (EndTransactionTraceHook(self._trace),)

    async def start(self) -> None:
        """Start as Producer.start does. From the first send on brokers may ask for the state of transactions."""
        await super().start()

    async def _start(self) -> None:
        await super()._start()
        self._running().instance.set_transaction_checker(self.group, self._on_check)

    async def shutdown(self) -> None:
        """Shut down as Producer.shutdown does. Brokers ask other members of the group for open transactions. Called
        within a check of the listener, it only starts the shutdown."""
        await super().shutdown()

    async def _shut_down(self) -> None:
        if self._instance is not None:
            self._instance.set_transaction_checker(self.group, None)
        await super()._shut_down()

    # --- sending ---

    async def send_message_in_transaction(
        self, message: Message, arg: Any = None, *, timeout_ms: int | None = None
    ) -> TransactionSendResult:
        """Send a message that is delivered if and only if the local transaction is committed.

        Args:
            arg: given to `execute_local_transaction`.
            timeout_ms: for sending the half message; None: send_msg_timeout.

        Raises:
            ClientError: an illegal message, a delayed one among them. Otherwise as `send`: no half message is known to
                be stored, and nothing was executed.
        """
        half = await self.send_half(message, timeout_ms=timeout_ms)
        if half.result.send_status is not SendStatus.SEND_OK:
            return await self.end(half, LocalTransactionState.ROLLBACK_MESSAGE)
        state, remark = await self._call(self._listener.execute_local_transaction, message, arg)
        return await self.end(half, state, remark)

    async def send_half(self, message: Message, *, timeout_ms: int | None = None) -> HalfMessage:
        """Do the first step of `send_message_in_transaction`; `end` is the last."""
        check_types(message)
        for name in _DELAYS:
            if message.properties.get(name, "0") != "0":
                raise MessageRefusedError(f"a message of a transaction cannot be delayed ({name})")
        sender = self._running()
        message.properties[const.PROPERTY_TRANSACTION_PREPARED] = "true"
        message.properties[const.PROPERTY_PRODUCER_GROUP] = self.group
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms(timeout_ms)
        # brokers ask about transactions over connections of known producers
        await self._introduce(sender.preparer.wire_topic(message.topic), deadline_ms)
        result = await self.send(message, timeout_ms=max(1, deadline_ms - self._clock.monotonic_ms()))
        if result.transaction_id is not None:
            message.properties[const.PROPERTY_TRANSACTION_ID] = result.transaction_id
        return HalfMessage(message, result, self._home_of(result))

    def _home_of(self, result: SendResult) -> MessageQueue:
        queue = result.message_queue
        if not is_mock_broker(queue.broker_name):
            return queue
        host, _ = decode_message_id(result.offset_msg_id)
        stored_at = "{}:{}".format(*decode_host(host))
        routes = self._running().instance.routes
        names = (name for name, address in routes.masters(queue.topic).items() if address == stored_at)
        return MessageQueue(queue.topic, next(names, routes.broker_of(queue)), queue.queue_id)

    async def end(
        self, half: HalfMessage, state: LocalTransactionState, remark: str | None = None
    ) -> TransactionSendResult:
        """Report the end of a local transaction to the broker. Never raises for a failure there, nor because the
        producer was shut down meanwhile: brokers will ask.

        Args:
            remark: for the broker's log: what the execution raised.
        """
        result = half.result
        _, physical_offset = decode_message_id(result.offset_msg_id)
        header = EndTransactionRequestHeader(
            producer_group=self.group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=physical_offset,
            commit_or_rollback=_FLAG_OF[state],
            msg_id=result.msg_id,
            topic=self._sender.preparer.wire_topic(half.message.topic),
            transaction_id=result.transaction_id,
        )
        try:
            await self._tell(half.home, header, remark, half.message, state)
        except MaxQError as error:
            log.warning("transaction %s ended as %s, but the broker was not told: %s", result.msg_id, state.name, error)
            return TransactionSendResult(result, state, error)
        return TransactionSendResult(result, state)

    async def _tell(
        self,
        queue: MessageQueue,
        header: EndTransactionRequestHeader,
        remark: str | None,
        message: Message,
        state: LocalTransactionState,
    ) -> None:
        """Send the end of a transaction to the present master of the half message's queue. It is not repeated if the
        connection breaks, because a message that is committed twice exists twice."""
        sender = self._running()
        ext = {**header.encode(), "bname": queue.broker_name}

        async def one_try(_: MessageQueue, queue: MessageQueue, timeout_ms: int) -> None:
            address = await sender.address_of(queue)
            self._call_hooks(message, state, address, header)
            is_oneway = header.commit_or_rollback == 0
            await sender.instance.api.end_transaction(address, ext, remark, oneway=is_oneway, timeout_ms=timeout_ms)

        await sender.over_tries(queue, one_try, self._config.send_msg_timeout, 0, queue=queue)

    def _call_hooks(
        self, message: Message, state: LocalTransactionState, address: str, header: EndTransactionRequestHeader
    ) -> None:
        if self._end_hooks:
            self._end_hooks.call(
                EndTransactionContext(
                    self.group, message, address, header.msg_id, header.transaction_id, state,
                    header.from_transaction_check,
                )
            )  # fmt: skip

    # --- being asked ---

    async def _on_check(
        self, message: MessageExt, header: CheckTransactionStateRequestHeader, broker_name: str, connection: Connection
    ) -> None:
        """Answer a broker that asks how a transaction ended, on the connection that it asked on."""
        with self._ending.calling():
            state, remark = await self._call(self._listener.check_local_transaction, message)
        answer = EndTransactionRequestHeader(
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=_FLAG_OF[state],
            msg_id=message.msg_id,
            topic=header.topic,
            from_transaction_check=True,
            transaction_id=header.transaction_id,
        )
        log.info("the broker asked about transaction %s, the answer is %s", header.transaction_id, state.name)
        sender = self._running()
        ext = {**answer.encode(), "bname": broker_name}
        self._call_hooks(message, state, connection.remote_address, answer)
        api = sender.instance.api
        api.remoting.send_oneway(connection, api.end_transaction_command(ext, remark))

    async def _call(
        self, method: Callable[..., Answer | Awaitable[Answer]], *args: Any
    ) -> tuple[LocalTransactionState, str | None]:
        """Return the state that a method of the listener returns, and the text of its exception."""
        try:
            answer: object
            if self._executor is not None and not inspect.iscoroutinefunction(method):
                answer = await asyncio.get_running_loop().run_in_executor(self._executor, method, *args)
            else:
                answer = method(*args)
            if inspect.isawaitable(answer):
                answer = await answer
            return checked_state(answer), None
        except Exception as error:
            name, line = method.__name__, error_in_a_line(error)
            log.warning("%s of group %s failed: %s", name, self.group, line, exc_info=self._known_errors.if_new(error))
            return LocalTransactionState.UNKNOW, f"{method.__name__} exception: {type(error).__name__}: {error}"


def checked_state(answer: object) -> LocalTransactionState:
    """Return the state that a listener returned. Raises TypeError if that is not a state."""
    if answer is None:
        return LocalTransactionState.UNKNOW
    if not isinstance(answer, LocalTransactionState):
        raise TypeError(f"a transaction listener returns a LocalTransactionState or None, not {answer!r:.80}")
    return answer


_FLAG_OF = {
    LocalTransactionState.COMMIT_MESSAGE: MessageSysFlag.TRANSACTION_COMMIT,
    LocalTransactionState.ROLLBACK_MESSAGE: MessageSysFlag.TRANSACTION_ROLLBACK,
    LocalTransactionState.UNKNOW: 0,
}
_DELAYS = (
    const.PROPERTY_DELAY_TIME_LEVEL,
    const.PROPERTY_TIMER_DELAY_SEC,
    const.PROPERTY_TIMER_DELAY_MS,
    const.PROPERTY_TIMER_DELIVER_MS,
)
