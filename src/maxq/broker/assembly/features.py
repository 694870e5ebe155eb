"""Features: the parts of a broker that each deal with one kind of message (delayed, timed, transactional …), and what
starts and ends with them.

A feature is made with the broker. Its put hook, and its service that only one broker of a group runs, are put into
their lists by the controller; what is left is here.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from maxq.broker.pop.pop_messages import PopMessages
from maxq.broker.schedule_message.delayed_messages import DelayedMessages
from maxq.broker.tables.static_topic.static_topics import StaticTopics
from maxq.broker.timer.timed_messages import TimedMessages
from maxq.broker.transaction.transactions import Transactions
from maxq.broker.two_phase.two_phase_batches import TwoPhaseBatches
from maxq.lazy_dataclass import dataclass
from maxq.remoting.server import RemotingServer

log = logging.getLogger(__name__)


class Feature(Protocol):
    """One feature of a broker: its processors and services."""

    def register(self, server: RemotingServer) -> None:
        """Register the processors of its request codes."""

    async def load(self) -> None:
        """Read the feature's files after the store was loaded. Raises OSError or MaxQError if that fails."""

    def start(self) -> None:
        """Start the services of every broker of a group. Services of the active broker alone are started by
        MasterOnlyServices."""

    async def shutdown(self) -> None:
        """Stop all services and write the files. Requests have ended, the store is still open, and the services of the
        active broker were told to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The features of one broker that have services and files of their own: transactions, timed and delayed messages,
    …"""

    transactions: Transactions
    timed: TimedMessages
    delayed: DelayedMessages
    staged: TwoPhaseBatches
    popping: PopMessages
    static_topics: StaticTopics

    @property
    def in_order(self) -> Sequence[Feature]:
        """Return all features in the order in which they are registered, loaded and started."""
        return self.transactions, self.timed, self.delayed, self.staged, self.popping, self.static_topics

    async def load(self) -> None:
        for feature in self.in_order:
            await feature.load()

    def start(self) -> None:
        for feature in self.in_order:
            feature.start()

    async def shutdown(self) -> None:
        """Stop the features in the reverse order. A failure is logged: the other features, and the store, are closed
        all the same."""
        for feature in reversed(self.in_order):
            try:
                await feature.shutdown()
            except Exception:
                log.exception("%s did not end properly", type(feature).__name__)
