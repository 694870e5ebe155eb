"""AssignedQueue: one queue that a lite pull consumer reads.

Source: apache/rocketmq client/impl/consumer/AssignedMessageQueue.java.
"""

import asyncio
from dataclasses import dataclass

from maxq.client.consumer.held.process_queue import ProcessQueue
from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.message.message_queue import MessageQueue


@dataclass(slots=True, eq=False)
class AssignedQueue:
    """One queue that is read. Offsets are queue offsets; -1 means unknown."""

    queue: MessageQueue
    process_queue: ProcessQueue
    pull_offset: int  # where the next pull starts
    consume_offset: int = -1  # everything before it was given out and is done
    paused: bool = False
    task: asyncio.Task[None] | None = None
    subscription: SubscriptionData | None = None  # subscription of the pulls under way; None: all messages
    keeps_records: bool = False  # whether the pulls under way keep records (FetchQueue.keeps_records)
    generation: int = 0  # changes with every seek; pulls that began before it are thrown away
