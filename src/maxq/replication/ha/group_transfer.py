"""Senders that wait until enough slaves have their messages. Pure: offsets and times in, outcomes out.

A batch waits for its end offset and a number of acknowledgements, the master's own included. It is done when so many
slaves have acknowledged at least that offset: with k slaves needed, when the k-th largest acknowledgement has reached
it. Acknowledgements reach many batches at once; none waits for the one before it to time out.

Source:
    store/ha/GroupTransferService.java.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from maxq.config.settings import BrokerSettings
from maxq.runtime.refusals import Cause

# How many copies a send to this broker waits for (CommitLog.asyncPutMessage, calcNeedAckNums).
#
# `inSyncReplicas` counts the master. RocketMQ 5 takes 1 where nothing is given, so that its SYNC_MASTER waits for
# nobody; here a SYNC_MASTER without an explicit number waits for one slave, as RocketMQ 4's did.

#: What a SYNC_MASTER waits for if inSyncReplicas is not given: itself and one slave.
COPIES_OF_SYNC_MASTER = 2


class AckRule:
    """The rule that decides how many copies a send waits for. Settings are read for each call, because they may change
    at run time."""

    def __init__(self, settings: BrokerSettings, in_sync: Callable[[], int]) -> None:
        """`in_sync` returns the number of living brokers of the group that are in sync, the master included."""
        self._settings = settings
        self._in_sync = in_sync

    def needed_acks(self) -> int:
        """Return how many copies a send waits for, the master's included; 1 means that it waits for no slave."""
        store = self._settings.store
        if store.broker_role != "SYNC_MASTER":
            return 1
        wanted = store.in_sync_replicas or COPIES_OF_SYNC_MASTER
        if store.enable_auto_in_sync_replicas and self._settings.broker.enable_slave_acting_master:
            return max(min(wanted, self._in_sync()), store.min_in_sync_replicas)
        return wanted

    def refusal(self) -> str | None:
        """Return why nothing may be stored now, as the remark of an answer; None if messages may be stored. Only groups
        with acting masters refuse; others store and answer FLUSH_SLAVE_TIMEOUT."""
        store = self._settings.store
        if store.broker_role != "SYNC_MASTER" or not self._settings.broker.enable_slave_acting_master:
            return None
        needed = self.needed_acks()
        if needed <= 1:
            return None
        in_sync = self._in_sync()
        if needed <= in_sync:
            return None
        return (
            f"[{Cause.REPLICAS}]in-sync replicas not enough: {in_sync} of the needed {needed} copies are in sync, "
            "this broker included; "
            "start the slaves, or set inSyncReplicas or enableAutoInSyncReplicas"
        )

    def sentence(self) -> str:
        """Return the rule in force, for the log's start-up line."""
        role, sends = self.role_and_sends()
        return f"{role}: sends {sends}"

    def role_and_sends(self) -> tuple[str, str]:
        """Return the role with the setting that decides it, and what sends wait for."""
        store = self._settings.store
        role, number = store.broker_role, store.in_sync_replicas
        if role == "SLAVE":
            return role, "go to the master"
        if role != "SYNC_MASTER":
            return role, "wait for no slave"
        if not number:
            return f"{role}, inSyncReplicas is not given", "wait for one slave (RocketMQ 5 would wait for none)"
        if number == 1:
            return f"{role}, inSyncReplicas=1", "wait for no slave"
        slaves = "one slave" if number == 2 else f"{number - 1} slaves"
        auto = self._settings.broker.enable_slave_acting_master and store.enable_auto_in_sync_replicas
        fewer = f", for fewer (at least {store.min_in_sync_replicas} copies) while fewer are in sync" if auto else ""
        return f"{role}, inSyncReplicas={number}", f"wait for {slaves}{fewer}"


class _Waiting(NamedTuple):
    end_offset: int
    deadline_ms: int
    done: Callable[[bool], None]


class GroupTransfer:
    """The senders that wait for slaves, ordered by offset."""

    def __init__(self) -> None:
        # needed acknowledgements → waiters; their offsets and deadlines ascend
        self._lists: dict[int, deque[_Waiting]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lists.values()))

    def wait(self, end_offset: int, needed_acks: int, deadline_ms: int, done: Callable[[bool], None]) -> None:
        """Wait for slaves: `done(True)` is called when `needed_acks` copies (the master's included, so at least 2)
        exist, `done(False)` at the deadline."""
        waiting = self._lists.setdefault(needed_acks, deque())
        if waiting:  # keep the order: one with smaller values (slaveTimeout was lowered) gets those of the last
            end_offset = max(end_offset, waiting[-1].end_offset)
            deadline_ms = max(deadline_ms, waiting[-1].deadline_ms)
        waiting.append(_Waiting(end_offset, deadline_ms, done))

    def on_acknowledged(self, offsets: Sequence[int]) -> None:
        """Apply the slaves' acknowledged offsets, the largest first, and answer senders."""
        for needed, waiting in list(self._lists.items()):  # a copy, because a sender that is told may wait again
            reached = kth_offset(offsets, needed)
            while waiting and waiting[0].end_offset <= reached:
                waiting.popleft().done(True)

    def on_time(self, now_ms: int) -> None:
        """Answer the senders that have waited too long."""
        for waiting in self._lists.values():
            while waiting and waiting[0].deadline_ms <= now_ms:
                waiting.popleft().done(False)

    def first_end_offset(self) -> int | None:
        """Returns the smallest offset that a sender waits for; None if none waits."""
        return min((waiting[0].end_offset for waiting in self._lists.values() if waiting), default=None)

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next deadline, in ms; None if no sender waits."""
        return min((waiting[0].deadline_ms for waiting in self._lists.values() if waiting), default=None)

    def release(self) -> None:
        """Answer all senders, because no slave will acknowledge any more."""
        for waiting in self._lists.values():
            while waiting:
                waiting.popleft().done(False)


def kth_offset(offsets: Sequence[int], needed_acks: int) -> int:
    """Return the offset up to which `needed_acks` copies, the master's included, have the log; -1 if there are not so
    many slaves.

    Args:
        offsets: the slaves' acknowledged offsets, the largest first.
    """
    slaves = needed_acks - 1
    return offsets[slaves - 1] if 0 < slaves <= len(offsets) else -1
