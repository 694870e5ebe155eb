"""Planted bugs of the store, the timer, compaction, ledgers, pop consumption, and of what brokers promise: each loses
or repeats something on a disk that fails or a machine that dies, or says what another broker of the group may say
otherwise, and the stories must notice.

A mutation is a kind of story, a list of patches of the shipped classes, and a seed that has noticed it, which is tried
first: stories change, and then another of the first hundred does.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from maxq.broker import authority
from maxq.broker.authority import PROMISES, Promise
from maxq.broker.pop.check_point_buffer import CheckPointBuffer, LiveCheckPoint
from maxq.broker.pop.order_service import OrderService
from maxq.broker.pop.pop_revive import PopReviveService
from maxq.broker.timer.timer_checkpoints import TimerCheckpoints
from maxq.codes import RequestCode
from maxq.store.compaction.compaction_log import CompactionLog
from maxq.store.compaction.compaction_store import CompactionStore
from maxq.store.compaction.replacement import Replacement
from maxq.store.compaction.segment import Segment
from maxq.store.dledger.ledger import FileLedger
from maxq.store.flush import CommitLogFlusher
from maxq.store.index_file import IndexFile
from maxq.store.timer.timer_message_store import TimerMessageStore
from maxq.store.timer.timer_record import TimerRecord
from tests.simulation.campaign import tell

SEEDS: Final = 100


class Mutation(NamedTuple):
    """See the module."""

    kind: str
    seed: int
    patches: tuple[tuple[Any, str, Any], ...]  # owner, attribute, what stands there instead


async def _may_always(self: TimerCheckpoints, checkpoint: object, mark: object) -> bool:
    return True


_move = TimerMessageStore.move


def _put_what_goes_round(self: TimerMessageStore, record: TimerRecord, not_before_ms: int) -> bool:
    return _move(self, record, not_before_ms) if not_before_ms else self.put(record)


def _plan_everything(self: CompactionLog, flushed: int) -> list[Segment]:
    closed = self._segments[:-1]
    return closed if closed and closed[-1].last_offset > self.position else []


def _agrees(self: IndexFile, *, exactly: bool) -> bool:
    return True


def _nothing(*_: object) -> None:
    return None


_committed = CommitLogFlusher._committed


def _committed_always(self: CommitLogFlusher, error: BaseException | None, end: int, timestamp: int) -> None:
    _committed(self, None, end, timestamp)


async def _delivered_until(self: PopReviveService) -> int:
    return self._delivered_until()


def _note_no_blocks(self: OrderService) -> None:
    self.unsaved = -1


def _note_at_any_end(self: FileLedger) -> bool:
    is_noted = self.notes.write_all()
    self.release()
    return is_noted


def _nothing_special(self: FileLedger) -> nullcontext[None]:
    return nullcontext()


_acked = CheckPointBuffer.acked


def _acked_anyway(self: CheckPointBuffer, bits: dict[LiveCheckPoint, int]) -> int:
    return max(_acked(self, bits), 0)


def _needs_nothing(self: CheckPointBuffer) -> int:
    return -1


def _unguarded(*codes: RequestCode) -> tuple[tuple[Any, str, Any], ...]:
    """These requests are answered by who was the master, and tables before the slaves have them."""
    return ((authority, "PROMISES", {**PROMISES, **dict.fromkeys(map(int, codes), Promise.NOTHING)}),)


MUTATIONS: Final = {
    "the timer's checkpoint does not wait for the log": Mutation(
        "timer", 7, ((TimerCheckpoints, "_may_write", _may_always),)
    ),
    "what goes round counts in both slots": Mutation(
        "timer", 1160, ((TimerMessageStore, "move", _put_what_goes_round),)
    ),
    "compaction takes what is not durable": Mutation("compaction", 6, ((CompactionLog, "plan", _plan_everything),)),
    "what the log has lost stays compacted": Mutation("compaction", 146, ((CompactionStore, "_cut_lost", _nothing),)),
    "segments behind lost units count": Mutation("compaction", 245, ((Segment, "is_ended", True),)),
    "a torn header of an index file counts": Mutation(
        "store-faults", 187, ((IndexFile, "agrees_with_entries", _agrees),)
    ),
    "acks that nobody can read yet are taken for none": Mutation(
        "pop-faults", 147, ((PopReviveService, "_shown_until", _delivered_until),)
    ),
    "the journal forgets what is held in order": Mutation(
        "pop-faults", 17, ((OrderService, "note_blocks", _note_no_blocks),)
    ),
    "acks in the journal are passed over": Mutation("pop", 1, ((CheckPointBuffer, "_replay_ack", _nothing),)),
    "acks that the journal could not take are answered": Mutation(
        "pop-faults", 12, ((CheckPointBuffer, "acked", _acked_anyway),)
    ),
    "the journal is read from behind what is open": Mutation(
        "pop", 9, ((CheckPointBuffer, "oldest_needed", _needs_nothing),)
    ),
    "queues are locked by who may have been replaced": Mutation(
        "promise-pair", 4, _unguarded(RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
    ),
    "offsets are taken and told by who may have been replaced": Mutation(
        "promise-pair", 4, _unguarded(RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET)
    ),
    "topics are answered before the slaves have them": Mutation(
        "promise-pair", 5, _unguarded(RequestCode.UPDATE_AND_CREATE_TOPIC)
    ),
    "a ledger that was not loaded notes that it is empty": Mutation(
        "ledger-faults", 1198, ((FileLedger, "close", _note_at_any_end),)
    ),
    "a ledger that is emptied in part goes on": Mutation(
        "ledger-faults", 1357, ((FileLedger, "_changing", _nothing_special),)
    ),
    "a failed sync of the log counts": Mutation("ha-faults", 6, ((CommitLogFlusher, "_committed", _committed_always),)),
    "files are replaced before that is written down": Mutation("compaction", 4, ((Replacement, "commit", _nothing),)),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The store with this bug."""
    with ExitStack() as stack:
        for owner, attribute, replacement_ in MUTATIONS[name].patches:
            stack.enter_context(patch.object(owner, attribute, replacement_))
        yield


def first_noticed(name: str) -> int:
    """The seed whose story notices it; −1: none."""
    mutation = MUTATIONS[name]
    seeds: list[int] = [mutation.seed, *range(SEEDS)]
    with planted(name):
        for seed in seeds:
            if tell(seed, mutation.kind).failure:
                return seed
    return -1
