"""ConsumeMessageService: what the three ways to call a push consumer's listener have in common.

`ConsumeMessageConcurrentlyService` makes many calls at a time, `ConsumeMessageOrderlyService` one a queue, and
`ConsumeMessagePopService` pops what it calls the listener with.

Source: apache/rocketmq client/impl/consumer/ConsumeMessageService.java.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from maxq.client.client_config import PushConsumerConfig
from maxq.client.consumer.consumer_stats import ConsumerStats
from maxq.client.consumer.listener_caller import ListenerCaller
from maxq.client.failures import Failures
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.received_cy import mark_started
from maxq.runtime.background import CANCELLED_WAIT_S, end_tasks
from maxq.runtime.interfaces import Clock


class ConsumeMessageService(ABC):
    """Calls the listener of one push consumer.

    Args:
        caller: makes single calls.
        config: the consumer's settings.
        stats: counts the outcomes of calls.
        failures: is told of programming errors after which the service continues.
    """

    def __init__(
        self,
        caller: ListenerCaller,
        config: PushConsumerConfig,
        stats: ConsumerStats,
        clock: Clock,
        failures: Failures,
    ) -> None:
        self._caller = caller
        self._config = config
        self._stats = stats
        self._clock = clock
        self._failures = failures

    @abstractmethod
    def stop(self) -> None:
        """Start no more calls of the listener; those under way go on."""

    @abstractmethod
    async def wait_for_calls(self) -> None:
        """Wait until the calls under way have ended, and their results were processed."""

    @abstractmethod
    async def shutdown(self) -> None:
        """End the tasks of the service; coroutine listeners that still run are cancelled. Calls that do not end are
        abandoned."""

    async def _end(self, tasks: "Collection[asyncio.Task[None]]") -> None:
        what = f"the tasks that call the listener of group {self._config.consumer_group}"
        await end_tasks(tasks, what, CANCELLED_WAIT_S)

    def _mark_started(self, messages: Sequence[MessageExt]) -> None:
        """Prepare messages for a call: set their original topic and the start time of the call."""
        self._caller.show_own_topics(messages)
        mark_started(messages, str(self._clock.wall_ms()))
