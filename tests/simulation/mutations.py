"""Planted bugs of the store, the timer, compaction, ledgers, pop consumption, delayed messages, transactions, and of
what brokers promise: each loses or repeats something on a disk that fails or a machine that dies, or says what another
broker of the group may say otherwise, and the stories must notice.

    python -m tests.simulation.mutations --within 30 --jobs 2       # plant each, and say which seed notices it
    python -m tests.simulation.mutations --only ledger,timer        # those whose sentence has one of these words

A mutation is a sentence that says what is broken, a kind of story, a list of patches of the shipped classes, and a seed
that has noticed it; -1 if none is noted, for the stories have changed since one did. The command tries the seeds from 0
on and counts how many it takes; it ends with 1 if a mutation is not noticed. The tests try the noted seed first:
stories change, and then another of the first hundred does. They plant what stories of one process notice, and leave
those of whole servers, which take long, to the command.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from maxq.broker.failover.acting_master import ActingMasterService
from maxq.broker.failover.role_lease import RoleLease
from maxq.broker.failover.slave_to_master_sync import SlaveToMasterSync
from maxq.broker.fast_path.ack_path import AckPath
from maxq.broker.identity import authority
from maxq.broker.identity.authority import PROMISES, Promise
from maxq.broker.identity.registration import BrokerRegistration
from maxq.broker.pop import check_point_buffer, hand_back
from maxq.broker.pop.ack_message import AckMessageProcessor
from maxq.broker.pop.check_point_buffer import CheckPointBuffer, LiveCheckPoint
from maxq.broker.pop.order_service import OrderService
from maxq.broker.pop.pop_revive import PopReviveService
from maxq.broker.pop.pop_service import PopService
from maxq.broker.schedule_message.delayed_delivery import DelayedDelivery, Undelivered
from maxq.broker.schedule_message.store_schedule_queue import StoreScheduleQueue
from maxq.broker.slave.slave_synchronize import SlaveSynchronize
from maxq.broker.timer.prior_run_deliveries import PriorRunDeliveries
from maxq.broker.timer.recall_message import RecallMessageProcessor
from maxq.broker.timer.timer_checkpoints import TimerCheckpoints
from maxq.broker.transaction import transactional_message_check_service
from maxq.client.consumer.consume_concurrently import ConsumeMessageConcurrentlyService
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.producer.message_sender import MessageSender, _Failures
from maxq.codes import RequestCode
from maxq.errors import MessageIllegalError, RemotingConnectError, RemotingSendError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.replication.ha.group_transfer import GroupTransfer
from maxq.replication.ha.ha_client import HAClient
from maxq.runtime.blocking import TABLES
from maxq.runtime.files import system
from maxq.runtime.interfaces import FileInfo
from maxq.store.append.replica_append import ReplicaAppender
from maxq.store.compaction.compaction_log import CompactionLog
from maxq.store.compaction.compaction_store import CompactionStore
from maxq.store.compaction.replacement import Replacement
from maxq.store.compaction.segment import Segment
from maxq.store.dledger.ledger import FileLedger
from maxq.store.dledger.ledger_recovery import LedgerRecovery
from maxq.store.dledger.text_file import TextFile
from maxq.store.durability import consume_queue_flusher
from maxq.store.durability.flush import CommitLogFlusher
from maxq.store.files.mapped_file import MappedFile
from maxq.store.files.mapped_file_queue import is_offset_name
from maxq.store.index.index_file import IndexFile
from maxq.store.log.commit_log import CommitLog
from maxq.store.log.deletions import Deletions
from maxq.store.log.tails_cy import TopicWriteState
from maxq.store.queue.consume_queue_ext import ConsumeQueueExt
from maxq.store.queue.consume_queue_store import ConsumeQueueStore
from maxq.store.recovery.log_recovery import LogRecovery
from maxq.store.store_results import PutMessageResult
from maxq.store.timer import timer_message_store
from maxq.store.timer.delivered_copies import DeliveredCopies
from maxq.store.timer.timer_message_store import TimerMessageStore
from maxq.store.timer.timer_record import TimerRecord
from maxq.store.timer.timer_wheel import Slot, TimerWheel
from maxq.testing.sim_file import SimFile
from tests.simulation.campaign import WHOLE_SERVERS, be_quiet, tell

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


_verify = CompactionLog._verify


def _plan_everything(self: CompactionLog, flushed: int) -> list[Segment]:
    closed = self._segments[:-1]
    return closed if closed and closed[-1].last_offset > self.position else []


async def _taken_again_at_once(self: CompactionStore, found: CompactionLog, offset: int) -> None:
    found.copy_again(offset)


def _verified_from_the_first(self: CompactionLog, segment: Segment, log_has_from: int) -> bool:
    return _verify(self, segment, 0)


def _agrees(self: IndexFile, *, exactly: bool) -> bool:
    return True


def _nothing(*_: object) -> None:
    return None


def _only_say_batches(self: ConsumeQueueStore, state: TopicWriteState) -> None:
    state.has_batch_queues = True


def _no_topics(self: ConsumeQueueStore) -> list[str]:
    return []


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


class _AtOnce:
    """An Acknowledgement that waits for nothing."""

    def when(self, *_: object) -> bool:
        return False

    def outcome(self, *_: object) -> None:
        return None


_make_ack_path = AckPath.__init__


def _make_hasty_ack_path(self: AckPath, *given: Any) -> None:
    _make_ack_path(self, *given)
    self._acknowledgement = _AtOnce()  # type: ignore[assignment]


_cancel = RecallMessageProcessor.cancel


async def _cancel_at_once(self: RecallMessageProcessor, *asked: Any) -> RemotingCommand:
    with patch.object(self, "_acknowledgement", _AtOnce()):
        return await _cancel(self, *asked)


_safe = AckMessageProcessor._safe


async def _safe_at_once(self: AckMessageProcessor, end_offset: int) -> None:
    await _safe(self, min(end_offset, 0))


_HASTY_ACKS: Final = ((AckPath, "__init__", _make_hasty_ack_path), (AckMessageProcessor, "_safe", _safe_at_once))


def _needs_nothing(self: CheckPointBuffer) -> int:
    return -1


def _unguarded(*codes: RequestCode) -> tuple[tuple[Any, str, Any], ...]:
    """These requests are answered by who was the master, and tables before the slaves have them."""
    return ((authority, "PROMISES", {**PROMISES, **dict.fromkeys(map(int, codes), Promise.NOTHING)}),)


def _may_delete_what_is_not_noted(self: FileLedger, end_offset: int, *, is_full: bool) -> bool:
    return end_offset < self.committed_position and (is_full or self.index_at(end_offset) <= max(self._retain_from, 0))


def _ledger_is_not_written_again(self: LedgerRecovery) -> None:
    self._unsure_from = self._durable_position()


def _wait_for_nobody(
    self: GroupTransfer, end_offset: int, needed_acks: int, deadline_ms: int, done: Callable[[bool], None]
) -> None:
    done(True)


async def _at_once(*_: object) -> None:
    return None


def _never(self: object, *of: object) -> bool:
    return False


_leave = LitePullConsumer.shutdown


async def _leave_with_all_done(self: LitePullConsumer, *, is_finished: bool = True) -> None:
    await _leave(self)


_run_delivery = DelayedDelivery.run


async def _give_up_at_any_failure(self: DelayedDelivery) -> PutMessageResult | Undelivered:
    result = await _run_delivery(self)
    return result._replace(is_final=True) if isinstance(result, Undelivered) else result


async def _give_up_when_busy(self: DelayedDelivery, result: PutMessageResult) -> None:
    self.tries += 1
    if self.tries == 3:
        raise MessageIllegalError("the store was busy three times")


async def _save_once(self: PopService) -> None:
    orders = self._orders
    if orders.table.is_dirty:
        orders.table.is_dirty, orders.unsaved = False, -1
        await TABLES.run(orders.table.persist)
        orders.note_blocks()


def _keep_no_pending(self: ReplicaAppender) -> None:
    self._pending = 0


def _set_no_listener(self: CommitLog, name: str, value: object) -> None:
    if name != "on_sync_failed" or not hasattr(self, name):
        object.__setattr__(self, name, value)


#: A sync of a file that has failed is believed the next time.
_FORGETFUL_FILES: Final = (SimFile, "sync_failed", property(lambda file: False, lambda file, value: None))


async def _ask_one_name_server(self: RemotingClient, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
    """On to the next one at errors of the connection alone."""
    failure: Exception = RemotingConnectError("no name server address is set", address="")
    for address in [self.name_servers[self._name_server_index], *self.name_servers]:
        try:
            answer = await self.invoke(address, command, timeout_ms)
        except (RemotingConnectError, RemotingSendError) as error:
            failure = error
            continue
        self._prefer(address)
        return answer
    raise failure


_add_failure = _Failures.add


def _give_up_after_three(self: _Failures, error: Exception, broker_name: str | None) -> None:
    _add_failure(self, error, broker_name)
    self.is_final = self.is_final or len(self.tries) == 3


async def _find_no_holder(self: BrokerRegistration, name_server: str) -> str:
    return ""


def _may_always_take(self: SlaveSynchronize, address: str) -> bool:
    return True


async def _ask_anybody(self: SlaveSynchronize, question: Awaitable[Any]) -> Any:
    return await question


def _mark_none(self: CheckPointBuffer, live: LiveCheckPoint, bits: int) -> list[list[int]]:
    return []


def _take_any_old(self: CheckPointBuffer, before_ms: int, most: int) -> list[LiveCheckPoint]:
    return [live for live in self._live.values() if live.point.pop_time < before_ms and not live.has_twins]


def _take_nothing(self: SlaveToMasterSync) -> list[bytes]:
    return []


def _replace_anybody(self: ActingMasterService, *of: object) -> dict[int, str]:
    return {}


def _take_at_once(self: ActingMasterService) -> str | None:
    return None


def _all_of_it(told: bytes, queue_end: object) -> bytes:
    return told


def _drop_whatever_is_behind_gaps(self: CommitLog, entries: list[FileInfo]) -> None:
    numbered = [entry for entry in entries if is_offset_name(entry.name)]
    while len(numbered) > 1:
        before, last = numbered[-2:]
        if before.size and int(last.name) == int(before.name) + self.files.file_size:
            return
        numbered.pop()
        path = self.files.folder / last.name
        if last.size == self.files.file_size and any(self._context.disk.read(path)):
            return
        self._context.disk.delete(path)
        entries.remove(last)


_open_log = CommitLog.open_at


def _open_without_file(self: CommitLog, offset: int) -> None:
    self.files.truncate(offset)
    _open_log(self, offset)


def _begin_at_the_start(self: ConsumeQueueExt, last_address: int | None, unknown: int) -> None:
    self._begin = 0
    if self._files.last is not None:
        self._files.last.wrote_position = self._files.last.flushed_position = self._files.file_size


def _load_of_one_size(self: ConsumeQueueExt) -> None:
    files = self._files
    for entry in self._disk.list(self.folder):
        if is_offset_name(entry.name) and entry.size == files.file_size:
            if files.last is not None and files.last.end_offset != int(entry.name):
                files.files.clear()
            files.files.append(
                MappedFile(self._disk, files, int(entry.name), files.file_size, position=files.file_size)
            )


def _change_precision_anyway(self: TimerMessageStore, *, is_empty: bool) -> None:
    self.wheel.release()
    self._disk.delete(self._wheel_path)
    self.wheel = TimerWheel(self._disk, self._wheel_path, self.precision_ms)
    for unit in self.log.units(self.log.min_offset):
        if unit.due_ms >= self.read_time_ms:
            self.wheel.put(Slot(unit.due_ms, unit.position, unit.position, 1))


def _as_it_is(self: StoreScheduleQueue, unit: tuple[int, int, int]) -> tuple[int, int, int]:
    return unit


async def _find_no_copies(self: PriorRunDeliveries, start: int) -> DeliveredCopies:
    return DeliveredCopies()


MUTATIONS: Final = {
    "the timer's checkpoint does not wait for the log": Mutation(
        "timer", 6, ((TimerCheckpoints, "_may_write", _may_always),)
    ),
    "what goes round counts in both slots": Mutation(
        "timer", 1160, ((TimerMessageStore, "move", _put_what_goes_round),)
    ),
    "compaction takes what is not durable": Mutation("compaction", 27, ((CompactionLog, "plan", _plan_everything),)),
    "what the log has lost stays compacted": Mutation("compaction", 1302, ((CompactionStore, "_cut_lost", _nothing),)),
    "copies that were taken again count as compacted after a start": Mutation(
        "compaction", 7, ((CompactionStore, "_take_again", _taken_again_at_once),)
    ),
    "a damaged copy costs those behind it that the log has no more": Mutation(
        "compaction", 57, ((CompactionLog, "_verify", _verified_from_the_first),)
    ),
    "segments behind lost units count": Mutation("compaction", 25, ((Segment, "is_ended", True),)),
    "a torn header of an index file counts": Mutation(
        "store-faults", 0, ((IndexFile, "agrees_with_entries", _agrees),)
    ),
    "acks that nobody can read yet are taken for none": Mutation(
        "pop-faults", 111, ((PopReviveService, "_shown_until", _delivered_until),)
    ),
    "the journal forgets what is held in order": Mutation(
        "pop-faults", 38, ((OrderService, "note_blocks", _note_no_blocks),)
    ),
    "acks in the journal are passed over": Mutation("pop", 1, ((CheckPointBuffer, "_replay_ack", _nothing),)),
    "acks that the journal could not take are answered": Mutation(
        "pop-faults", 0, ((CheckPointBuffer, "acked", _acked_anyway),)
    ),
    "changes of invisible time give messages a second life": Mutation(
        "pop", 230067, ((AckMessageProcessor, "_is_done", lambda *_: False),)
    ),
    "acks are answered before disk and slave have them": Mutation("pop", 10, _HASTY_ACKS),
    "acks are answered before the majority has them": Mutation("promise-cluster", 2, _HASTY_ACKS),
    "a group that begins at the end begins there again": Mutation(
        "pop", 300010, ((CheckPointBuffer, "begin_in", _nothing),)
    ),
    "the journal is read from behind what is open": Mutation(
        "pop", 15, ((CheckPointBuffer, "oldest_needed", _needs_nothing),)
    ),
    "queues are locked by who may have been replaced": Mutation(
        "promise-pair", 4, _unguarded(RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
    ),
    "offsets are taken and told by who may have been replaced": Mutation(
        "promise-pair", 203, _unguarded(RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET)
    ),
    "a message that two hold is acknowledged for one of them alone": Mutation(
        "pop-twins", 3, ((CheckPointBuffer, "_mark_twins", _mark_none),)
    ),
    "what stands behind a check point that came late is not read at a start": Mutation(
        "pop-twins", 378, ((check_point_buffer, "_first_needed", lambda live: -1),)
    ),
    "what a slave passed on to another check point counts as acknowledged": Mutation(
        "pop-twins", 220, ((check_point_buffer, "_held", lambda rows: {}),)
    ),
    "the receipt from before a change of time names nothing": Mutation(
        "pop-twins", 29, ((CheckPointBuffer, "_renew", _nothing),)
    ),
    "an end in order hands over what two hold": Mutation("pop-twins", 12, ((LiveCheckPoint, "has_twins", False),)),
    "who has a message is handed over while the receipt from before a change counts": Mutation(
        "pop", 26, ((LiveCheckPoint, "stays_until_ms", 0),)
    ),
    "what no slave knows is handed over": Mutation("pop-twins", 0, ((CheckPointBuffer, "take_old", _take_any_old),)),
    "what a slave that acted was told is thrown away": Mutation(
        "promise-pair", 8, ((SlaveToMasterSync, "take_pops", _take_nothing),)
    ),
    "a slave acts beside one with a smaller id that a name server has lost": Mutation(
        "acting", -1, ((ActingMasterService, "_replaced", _replace_anybody),)
    ),
    # A slave that acts without a word beside a master that answers it is shown by
    # test_a_master_that_no_name_server_hears_ends_to_serve_before_a_slave_begins (servers/test_acting_groups.py).
    "who is cut off goes on to promise": Mutation("acting", 15, ((RoleLease, "_others", 0),)),
    "a master that comes back takes messages before it has asked its slaves": Mutation(
        "acting", -1, ((ActingMasterService, "preparation", _take_at_once),)
    ),
    # Of two slaves that acted in turn the master hears both. Slaves take over from one another, so that a story would
    # need two that cannot and a master that reaches both: test_of_two_slaves_that_acted_in_turn_both_are_taken_back_…
    # (tests/unit/broker/failover/test_authority.py) shows it.
    "what a slave gave away of the end that its master has lost counts for other messages": Mutation(
        "acting", 0, ((hand_back, "within", _all_of_it),)
    ),
    "recalls are answered before disk and slave have them": Mutation(
        "promise-pair", 1, ((RecallMessageProcessor, "cancel", _cancel_at_once),)
    ),
    "topics are answered before the slaves have them": Mutation(
        "promise-pair", 8, _unguarded(RequestCode.UPDATE_AND_CREATE_TOPIC)
    ),
    "a ledger that was not loaded notes that it is empty": Mutation(
        "ledger-faults", 15, ((FileLedger, "close", _note_at_any_end),)
    ),
    "a ledger that is emptied in part goes on": Mutation(
        "ledger-faults", 63, ((FileLedger, "_changing", _nothing_special),)
    ),
    "of a failed sync outside its group commits the flusher does not hear": Mutation(
        "ha-faults", 1, ((CommitLog, "__setattr__", _set_no_listener), _FORGETFUL_FILES)
    ),
    "the type of a topic's queues is looked at once": Mutation(
        "ha-batches",
        1,
        (
            (ConsumeQueueStore, "_take_kind", _nothing),
            (ConsumeQueueStore, "_make_batches", _only_say_batches),
            (ConsumeQueueStore, "mixed_topics", _no_topics),
        ),
    ),
    "a part of what the master sent stays behind the log's end": Mutation(
        "ha-faults", 3, ((ReplicaAppender, "drop_pending", _keep_no_pending),)
    ),
    "order infos that the disk refused are not written again": Mutation(
        "pop-faults", 14, ((PopService, "_save", _save_once),)
    ),
    "segments whose sync failed are not synced again": Mutation(
        "compaction", 3, ((CompactionLog, "give_back_unflushed", _nothing),)
    ),
    "a wait in the wheel may be of any length": Mutation(
        "delay", 0, ((timer_message_store, "LONGEST_WAIT_MS", 1 << 62),)
    ),
    "what was delivered before a death is not looked for": Mutation(
        "delay", 2, ((PriorRunDeliveries, "_found", _find_no_copies),)
    ),
    "a failed sync of the log counts": Mutation("ha-faults", 7, ((CommitLogFlusher, "_committed", _committed_always),)),
    "what lies behind the log's checkpoint is not written again at a start": Mutation(
        "store-faults", 0, ((LogRecovery, "_write_again", _nothing),)
    ),
    "retention takes a ledger's files of which the checkpoint does not know": Mutation(
        "ledger", 9, ((FileLedger, "may_delete", _may_delete_what_is_not_noted),)
    ),
    "on a full disk a ledger's checkpoint finds no room": Mutation("ledger", 0, ((TextFile, "keep_room", _nothing),)),
    "what lies behind a ledger's checkpoint is not written again at a start": Mutation(
        "ledger-faults", 85, ((LedgerRecovery, "_write_again", _ledger_is_not_written_again),)
    ),
    "a half message that cannot be written again stops all checks": Mutation(
        "transaction", 21, ((transactional_message_check_service, "is_its_own_fault", lambda refusal: False),)
    ),
    "a delayed message is given up for a failure of ours": Mutation(
        "delay", 0, ((DelayedDelivery, "run", _give_up_at_any_failure),)
    ),
    "a delayed message is given up while the store is busy": Mutation(
        "delay", 0, ((DelayedDelivery, "_wait", _give_up_when_busy),)
    ),
    "sends are answered before a slave has them": Mutation(
        "cluster-faults", 1, ((GroupTransfer, "wait", _wait_for_nobody),)
    ),
    "a slave takes the tables of a master whose log is another": Mutation(
        "cluster", 0, ((SlaveSynchronize, "_may_take", _may_always_take), (SlaveSynchronize, "_ask", _ask_anybody))
    ),
    "a failed sync of the master's log counts, in whole brokers": Mutation(
        "cluster-faults", 6, ((CommitLogFlusher, "_committed", _committed_always),)
    ),
    "what was sent to a topic before it was deleted is back after a start": Mutation(
        "store", 1, ((Deletions, "is_gone", lambda self, topic, physical_offset: False),)
    ),
    "a name server that hangs is asked again and again": Mutation(
        "failover", 0, ((RemotingClient, "invoke_name_server", _ask_one_name_server),)
    ),
    "a send is given up after three tries, which wait for no new route": Mutation(
        "failover",
        0,
        (
            (_Failures, "add", _give_up_after_three),
            (MessageSender, "_pause", _at_once),
            (MessageSender, "_ask_again", _at_once),
        ),
    ),
    "two brokers have one name and one id": Mutation(
        "cluster", 0, ((BrokerRegistration, "_holder_at", _find_no_holder),)
    ),
    "a slave takes the log of a master of another name": Mutation("cluster", 3, ((HAClient, "_hear_name", _nothing),)),
    "holes of a file on a full tmpfs are mapped": Mutation(
        "full-tmpfs", 2, ((system, "holes_lack_room", lambda fd, size: False),)
    ),
    "a lite consumer that is interrupted commits what it holds": Mutation(
        "client", 3, ((LitePullConsumer, "shutdown", _leave_with_all_done), (LitePullConsumer, "_has_failed", _never))
    ),
    "a consumer's shutdown does not wait for its listeners": Mutation(
        "client", 0, ((ConsumeMessageConcurrentlyService, "wait_for_calls", _at_once),)
    ),
    "files of the log that another file size leaves behind gaps are deleted": Mutation(
        "settings", 0, ((CommitLog, "_drop_made_ahead", _drop_whatever_is_behind_gaps),)
    ),
    "data files that another file size leaves behind gaps are deleted": Mutation(
        "ledger-settings", 1, ((CommitLog, "_drop_made_ahead", _drop_whatever_is_behind_gaps),)
    ),
    "a log that begins where it ends loses its file": Mutation(
        "store-faults", 1, ((CommitLog, "open_at", _open_without_file),)
    ),
    "the index of a store that had none counts as complete": Mutation(
        "settings", 25, ((consume_queue_flusher, "INDEX_LACKS_KEYS", 0),)
    ),
    "light queues end while multi-dispatch is off": Mutation(
        "settings",
        1,
        ((ConsumeQueueStore, "has_light_places", property(lambda self: self._context.config.enable_multi_dispatch)),),
    ),
    "addresses of lost extension units are given again": Mutation(
        "settings-ext", 34, ((ConsumeQueueExt, "_begin_behind_all", _begin_at_the_start),)
    ),
    "addresses in extension files of another size are given again": Mutation(
        "settings-ext",
        1,
        ((ConsumeQueueExt, "_begin_behind_all", _begin_at_the_start), (ConsumeQueueExt, "_load", _load_of_one_size)),
    ),
    "a wheel that messages wait in gets another precision": Mutation(
        "delay-settings", 0, ((TimerMessageStore, "_change_precision", _change_precision_anyway),)
    ),
    "a delayed message whose extension unit is lost is due at once": Mutation(
        "delay-settings", 20, ((StoreScheduleQueue, "_with_due_time", _as_it_is),)
    ),
    "files are replaced before that is written down": Mutation("compaction", 1, ((Replacement, "commit", _nothing),)),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The store with this bug."""
    with ExitStack() as stack:
        for owner, attribute, replacement_ in MUTATIONS[name].patches:
            creates = not hasattr(owner, attribute)
            stack.enter_context(patch.object(owner, attribute, replacement_, create=creates))
        yield


def first_noticed(name: str, seeds: Iterable[int] = range(SEEDS)) -> int:
    """The first of these seeds whose story notices it; −1: none."""
    with planted(name):
        return next((seed for seed in seeds if tell(seed, MUTATIONS[name].kind).failure), -1)


def likely_seeds(name: str) -> list[int]:
    """The noted seed, and the first ones."""
    return [MUTATIONS[name].seed, *range(SEEDS)]


def short_form() -> list[str]:
    """What stories of one process notice at a noted seed."""
    return [name for name, found in MUTATIONS.items() if found.seed >= 0 and found.kind not in WHOLE_SERVERS]


def main() -> int:
    parser = argparse.ArgumentParser(description="Plants bugs, and says which seed of which story notices each.")
    parser.add_argument("--within", type=int, default=SEEDS, help="seeds in which a planted bug must be noticed")
    parser.add_argument("--only", default="", help="words with commas between: bugs whose sentence or kind has one")
    parser.add_argument("--noted", action="store_true", help="try the noted seeds alone")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="processes")
    options = parser.parse_args()
    words = options.only.split(",")
    names = [name for name in MUTATIONS if any(word in f"{name} {MUTATIONS[name].kind}" for word in words)]
    names = [name for name in names if not options.noted or MUTATIONS[name].seed >= 0]
    missed = 0
    with multiprocessing.get_context("fork").Pool(options.jobs, be_quiet) as pool:
        looks = [
            pool.apply_async(first_noticed, (name, [MUTATIONS[name].seed] if options.noted else range(options.within)))
            for name in names
        ]
        for name, look in zip(names, looks, strict=True):
            seed = look.get()
            missed += seed < 0
            print(f"{'NOT NOTICED' if seed < 0 else f'seed {seed}':12} {MUTATIONS[name].kind:16} {name}", flush=True)
    print(f"{len(names)} planted bugs, {missed} not noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
