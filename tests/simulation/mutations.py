"""Planted bugs of the timer and of compaction: each loses or repeats something on a disk that fails or a machine that
dies, and the stories must notice.

A mutation is a kind of story, a list of patches of the shipped classes, and a seed that has noticed it, which is tried
first: stories change, and then another of the first hundred does.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from maxq.broker.timer.timer_checkpoints import TimerCheckpoints
from maxq.store.compaction import compaction_log, replacement
from maxq.store.compaction.compaction_log import CompactionLog
from maxq.store.compaction.compaction_store import CompactionStore
from maxq.store.compaction.replacement import Replacement
from maxq.store.compaction.segment import Segment
from maxq.store.mapped_file import MappedFile
from maxq.store.timer import timer_log
from maxq.store.timer.timer_log import TimerLog
from maxq.store.timer.timer_message_store import TimerMessageStore
from maxq.store.timer.timer_record import TimerRecord
from tests.simulation.campaign import tell

SEEDS: Final = 100


class Mutation(NamedTuple):
    """See the module."""

    kind: str
    seed: int
    patches: tuple[tuple[Any, str, Any], ...]  # owner, attribute, what stands there instead


def _take_failed_syncs_for_good(self: TimerLog, file: MappedFile, start: int, data: bytes) -> None:
    with suppress(OSError):
        file.region.flush(start, start + len(data))


def _sync_what_the_last_process_left(file: MappedFile, start: int, end: int) -> None:
    file.region.flush(start, end)


async def _may_always(self: TimerCheckpoints, checkpoint: object, mark: object) -> bool:
    return True


_move = TimerMessageStore.move


def _put_what_goes_round(self: TimerMessageStore, record: TimerRecord, not_before_ms: int) -> bool:
    return _move(self, record, not_before_ms) if not_before_ms else self.put(record)


def _plan_everything(self: CompactionLog, flushed: int) -> list[Segment]:
    closed = self._segments[:-1]
    return closed if closed and closed[-1].last_offset > self.position else []


def _nothing(*_: object) -> None:
    return None


_flush = Segment.flush


def _flush_or_not(self: Segment) -> None:
    with suppress(OSError):
        _flush(self)


MUTATIONS: Final = {
    "a failed sync of the timer log counts": Mutation("timer", 0, ((TimerLog, "_sync", _take_failed_syncs_for_good),)),
    "a start syncs the timer log without writing it again": Mutation(
        "timer", 0, ((timer_log, "_write_again", _sync_what_the_last_process_left),)
    ),
    "the timer's checkpoint does not wait for the log": Mutation(
        "timer", 0, ((TimerCheckpoints, "_may_write", _may_always),)
    ),
    "what goes round counts in both slots": Mutation("timer", 0, ((TimerMessageStore, "move", _put_what_goes_round),)),
    "compaction takes what is not durable": Mutation("compaction", 0, ((CompactionLog, "plan", _plan_everything),)),
    "what the log has lost stays compacted": Mutation("compaction", 0, ((CompactionStore, "_cut_lost", _nothing),)),
    "segments behind lost units count": Mutation("compaction", 0, ((Segment, "is_ended", True),)),
    "a replacement that counts is forgotten, its folder used again": Mutation(
        "compaction",
        0,
        (
            (CompactionLog, "is_replacing", False),
            (compaction_log, "folder_of", lambda position: "compacting"),
            (replacement, "folder_of", lambda position: "compacting"),
            (replacement, "_crc", lambda disk, path: 0),
        ),
    ),
    "files are replaced before that is written down": Mutation("compaction", 0, ((Replacement, "commit", _nothing),)),
    "segments whose flush failed count": Mutation("compaction", 0, ((Segment, "flush", _flush_or_not),)),
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
    with planted(name):
        for seed in (mutation.seed, *range(SEEDS)):
            if tell(seed, mutation.kind).failure:
                return seed
    return -1
