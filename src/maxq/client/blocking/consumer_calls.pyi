"""Written by `python -m tests.unit.client.blocking.blocking_stubs`; see consumer_calls.py."""

from abc import ABCMeta
from collections.abc import Callable, Collection, Iterable, Sequence

from maxq.client.blocking.face import Face
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.consumer.simple_consumer import SimpleConsumer
from maxq.client.message_selector import MessageSelector
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue

class PushConsumerCalls(Face[PushConsumer], metaclass=ABCMeta):
    """Methods that the blocking PushConsumer has from the asynchronous one; each returns when its call is done."""
    def assigned_queues(self) -> list[MessageQueue]:
        """Return the queues that this member holds, sorted, with those it pops from (queue id -1: all of a broker)."""
    def wait_for_assignment(
        self, is_enough: Callable[[Collection[MessageQueue]], bool] = ..., *, timeout_ms: int | None = None
    ) -> Collection[MessageQueue]:
        """Wait until this consumer holds queues.

        Args:
            is_enough: called with the queues that are held, at once and after each rebalance; True ends the wait. By
                default any queue is enough.
            timeout_ms: how long to wait; None: for ever.

        Returns:
            The queues that are held.

        Raises:
            NotRunningError: the consumer does not run, or was shut down meanwhile.
            TimeoutError: it was not enough in time. It names the reason if servers refuse this member, or do not
                answer.
        """
    def subscribe(self, topic: str, expression: str | MessageSelector = "*", expression_type: str = "TAG") -> None:
        """Receive messages of a topic.

        Args:
            expression: `*`, or tags separated by `||`; with another `expression_type` (SQL92) that language's text; or
                a MessageSelector.

        Raises:
            ClientError: illegal topic.
            LocalProtocolError: an expression without a tag.
            FilterExpressionError: an SQL92 expression that is wrong.
        """
    def unsubscribe(self, topic: str) -> None:
        """Stop receiving messages of a topic."""
    def suspend(self) -> None:
        """Stop pulling. Messages that were pulled are still consumed."""
    def resume(self) -> None:
        """Start to pull again after `suspend` has stopped it."""

class LitePullConsumerCalls(Face[LitePullConsumer], metaclass=ABCMeta):
    """Methods that the blocking LitePullConsumer has from the asynchronous one; each returns when its call is done."""
    def committed(self, queue: MessageQueue) -> int:
        """Return the group's committed queue offset of a queue, -1 if there is none."""
    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read `queue` from `offset` on.

        Raises:
            ClientError: the queue is not ours, or the offset is outside of it; names the range.
        """
    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Read `queue` from its oldest message on."""
    def seek_to_end(self, queue: MessageQueue) -> None:
        """Read only messages that arrive in `queue` after this call."""
    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at or after a time, in ms since 1970."""
    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of a topic, sorted. Raises NoRouteError if there is no such topic."""
    def assignment(self) -> set[MessageQueue]:
        """Return the queues that this consumer reads."""
    def wait_for_assignment(
        self, is_enough: Callable[[Collection[MessageQueue]], bool] = ..., *, timeout_ms: int | None = None
    ) -> Collection[MessageQueue]:
        """Wait until this consumer holds queues.

        Args:
            is_enough: called with the queues that are held, at once and after each rebalance; True ends the wait. By
                default any queue is enough.
            timeout_ms: how long to wait; None: for ever.

        Returns:
            The queues that are held.

        Raises:
            NotRunningError: the consumer does not run, or was shut down meanwhile.
            TimeoutError: it was not enough in time. It names the reason if servers refuse this member, or do not
                answer.
        """
    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Give out no messages of these queues until they are resumed."""
    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Let `poll` return messages of these queues again, after `pause`."""
    def subscribe(self, topic: str, expression: str | MessageSelector = "*", expression_type: str = "TAG") -> None:
        """Share a topic's queues with the other members of the group.

        Args:
            expression: as PushConsumer.subscribe takes it.

        Raises:
            ClientError: illegal topic, or queues were assigned before.
            FilterExpressionError: an SQL92 expression that is wrong.
            BrokerError: the consumer runs, and its broker does not select by SQL92.
        """
    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic, and give up its queues."""
    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues.

        Raises:
            ClientError: topics were subscribed before.
        """

class SimpleConsumerCalls(Face[SimpleConsumer], metaclass=ABCMeta):
    """Methods that the blocking SimpleConsumer has from the asynchronous one; each returns when its call is done."""
    def receive(
        self, max_messages: int = 32, invisible_ms: int | None = None, *, wait_ms: int | None = None
    ) -> list[MessageExt]:
        """Return some messages, which are invisible to all other consumers for `invisible_ms`.

        Args:
            max_messages: at most so many, 32 or fewer.
            invisible_ms: None: invisible_duration of the settings.
            wait_ms: how long to wait for some; None: await_duration of the settings.

        Returns:
            Messages of one topic and broker; empty if nothing came in time.

        Raises:
            ClientError: nothing is subscribed, or no broker of it is known.
            BrokerError: every broker says that this user may not read the topic or the group (code 16).
            RemotingError, BrokerError: with a `wait_ms` of 0: no broker could be asked; what the last one said.
        """
    def ack(self, message: MessageExt) -> None:
        """Acknowledge a message, so that it is not delivered again.

        Raises:
            RemotingError, BrokerError: it may come again.
            WrongArgumentError: it is not a message that `receive` returned.
        """
    def ack_all(self, messages: Sequence[MessageExt]) -> None:
        """Acknowledge many messages, in one request for each broker. Raises as `ack`."""
    def change_invisible_duration(self, message: MessageExt, invisible_ms: int, *, suspend: bool = False) -> None:
        """Keep a message invisible to others for `invisible_ms` from now (0: it is delivered again at once). It gets a
        new receipt handle.

        Args:
            suspend: it is not counted as a try when it comes again.

        Raises:
            BrokerError: with code 13 its invisible time has ended, and another member may have it; otherwise it is
                unknown until when it is invisible.
            RemotingError: nobody knows until when it is invisible.
            WrongArgumentError: it is not a message that `receive` returned.
        """
    def subscribe(self, topic: str, expression: str | MessageSelector = "*", expression_type: str = "TAG") -> None:
        """Receive messages of a topic.

        Args:
            expression: as PushConsumer.subscribe takes it.

        Raises:
            ClientError: illegal topic.
            FilterExpressionError: an SQL92 expression that is wrong.
            BrokerError: the consumer runs, and its broker does not select by SQL92.
        """
    def unsubscribe(self, topic: str) -> None:
        """Stop receiving messages of a topic."""
