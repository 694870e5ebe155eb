"""TwoPhaseService: the ledger of this broker, written and read; deciding and delivering staged batches.

Only the master of a group does this. All it knows comes from its ledger: it reads the entries when this broker becomes
its group's active one, and from then on adds each entry that it writes.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from maxq.broker.bundles import Environment, Messages
from maxq.broker.processors.send.put_outcome import put_refusal
from maxq.broker.tables.topic.topic_validator import STAGED_LEDGER_TOPIC
from maxq.broker.two_phase.batch_delivery import StagedDelivery
from maxq.broker.two_phase.batch_ledger import (
    APPLICATION,
    CLAIM,
    DECISION,
    DELIVERY,
    DONE,
    MOST_APPLICATIONS,
    SNAPSHOT,
    STEP,
    Application,
    BatchDelivery,
    BatchLedger,
    read_runs,
)
from maxq.broker.two_phase.staged_record import Staged
from maxq.codes import ResponseCode
from maxq.errors import RequestRefusedError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.message import message_const as const
from maxq.protocol.message.java_hash import java_hash
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.runtime.passed_over import PassedOver
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.store_results import PutMessageResult

log = logging.getLogger(__name__)

T = TypeVar("T")

_TURN_MS: Final = 3_000  # an answer "not yet" is sent after this time: the client waits some ten seconds
_UNITS: Final = 1_000
_SNAPSHOT_TAGS: Final = java_hash(SNAPSHOT)
_KINDS: Final = {java_hash(kind): kind for kind in (CLAIM, DECISION, DELIVERY, STEP, DONE)}  # by tags code
# tags codes of entries that repeat what earlier entries say
_COPIES_TAGS: Final = (_SNAPSHOT_TAGS, java_hash(APPLICATION))
_ENTRIES_BETWEEN_SNAPSHOTS: Final = 1_000


@dataclass(frozen=True)
class Delivered:
    """Progress of a delivery.

    Attributes:
        before: it was done already when it was asked for.
        lost: messages that could not be delivered, however often it is asked for.
    """

    done: bool
    lost: int = 0
    before: bool = False


class TwoPhaseService:
    """The two-phase batches of one broker; a MasterOnlyService: `start` and `stop` make it read the ledger again."""

    def __init__(self, env: Environment, messages: Messages, delivery: StagedDelivery) -> None:
        self._settings = env.settings
        self._clock = env.clock
        self._store = messages.store
        self._acknowledgement = messages.acknowledgement
        self._delivery = delivery
        self._passed_over = PassedOver(log)
        self._own_name = env.own.broker_name
        self._ledger = BatchLedger(self._own_name)
        self._is_current = False
        self._snapshot_at = -1  # physical offset at which the last one begins; -1: there is none
        self._snapshot_ms = 0
        self._entries = 0  # entries since the last snapshot
        # by application: held while one of its requests is handled
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._reading = asyncio.Lock()

    def start(self) -> None:
        """Re-read the ledger: an earlier master may have written entries."""
        self._is_current = False

    def stop(self) -> None:
        self._is_current = False

    # --- requests ---

    async def application(self, name: str) -> Application:
        """Return the state of an application's batches; a new one if nothing is known of it.

        Raises:
            RequestRefusedError: all that was known of it is damaged; or this broker is a slave.
        """
        await self._read()
        known = self._ledger.application(name)
        if known.is_unknown:
            _refuse_if_damaged(name, known)
        return known

    async def claim(self, name: str, coordinator: str) -> str:
        """Note durably which broker decides for an application, unless one is noted.

        Returns:
            The one that is noted.

        Raises:
            RequestRefusedError: this broker stores nothing now.
        """

        async def work() -> str:
            if not self._ledger.application(name).coordinator:
                self._append({"kind": CLAIM, "application": name, "coordinator": coordinator})
            noted = self._ledger.applications[name].coordinator
            await self._be_safe(self._store.appended_offset, on_disk=True)
            return noted

        return await self._alone(name, work)

    async def decide(self, name: str, batch: int, decision: dict[str, Any]) -> dict[str, Any]:
        """Decide durably which requests a batch consists of, unless that was decided before.

        Returns:
            The decision that holds, which is the first one.

        Raises:
            RequestRefusedError: a later batch was decided before; an entry that may be this one is damaged; or this
                broker stores nothing now.
        """

        async def work() -> dict[str, Any]:
            known = self._ledger.application(name)
            if known.batch is not None and known.batch > batch:
                raise RequestRefusedError(
                    ResponseCode.INVALID_PARAMETER,
                    f"batch {batch} of application {name} comes after its batch {known.batch}: a stream that begins "
                    "again (another checkpoint) needs another applicationId",
                )
            if known.batch != batch:
                _refuse_if_damaged(name, known)
                self._append({"kind": DECISION, "application": name, "batch": batch, "decision": decision})
                known = self._ledger.applications[name]
            await self._be_safe(known.decision_end, on_disk=True)
            return known.decision

        return await self._alone(name, work)

    async def deliver(
        self, name: str, batch: int, runs: Any, check: Callable[[Staged], None] = lambda staged: None
    ) -> Delivered:
        """Deliver this broker's part of a decided batch, or continue a delivery. Returns after some seconds at most;
        call again until it is done.

        Args:
            check: raises RequestRefusedError if who asks may not send what a staged request holds.

        Raises:
            RequestRefusedError: this broker stores nothing now, or `check` refuses; the progress is recorded, so the
                request can be repeated. Or an entry that may be of this delivery is damaged, or this broker delivers
                other requests as this batch.
        """

        async def work() -> Delivered:
            application = self._ledger.application(name)
            known = application.delivery
            if known is None or known.batch < batch or not known.done:
                _refuse_if_damaged(name, application)
            if known is None or known.batch < batch:
                entry = {"kind": DELIVERY, "application": name, "batch": batch, "runs": runs}
                read_runs(runs)
                self._append(entry)
                known = self._ledger.applications[name].delivery
            assert known is not None, "there is one now"
            if known.batch == batch and known.runs != read_runs(runs):
                raise RequestRefusedError(
                    ResponseCode.INVALID_PARAMETER,
                    f"this broker has {'delivered' if known.done else 'begun to deliver'} other rows as batch {batch} "
                    f"of application {name}: the coordinator has lost that decision, as it may with asynchronous "
                    "replication, and has decided again. Look for the batch's rows in the topic, and go on with "
                    "another applicationId",
                )
            if known.batch > batch or known.done:
                await self._be_safe(self._store.appended_offset)
                return Delivered(True, known.lost if known.batch == batch else 0, before=True)
            return await self._go_on(name, known, check)

        return await self._alone(name, work)

    # --- delivery ---

    async def _go_on(self, name: str, delivery: BatchDelivery, check: Callable[[Staged], None]) -> Delivered:
        """Continue a delivery. A Delivery is changed only by the entries that are written."""
        end_ms = self._clock.monotonic_ms() + _TURN_MS
        piece, messages, lost, count = delivery.piece, delivery.messages, delivery.lost, delivery.count
        is_certain = delivery.step_end < 0
        while piece < count:
            if self._clock.monotonic_ms() >= end_ms:
                return Delivered(False)
            staged = await self._delivery.read(delivery.piece_at(piece))
            if staged is None:
                log.error("application %s: staged request %s is lost", name, delivery.piece_at(piece))
                # the lost record held at least one message
                piece, messages, lost, is_certain = piece + 1, None, lost + 1, True
                continue
            if not is_certain:
                await self._be_safe(self._store.appended_offset)  # a record that is not committed cannot be read yet
                messages, is_certain = self._delivery.missing(staged, messages, delivery.step_end), True
            if messages is None or messages:
                self._refuse_if_anew(name, delivery)
                check(staged)
                config = self._delivery.destination(staged)
                at = {"application": name, "batch": delivery.batch, "piece": piece, "messages": messages}
                self._append({"kind": STEP, **at, "lost": lost})
                lost += self._delivery.deliver(staged, messages, config)
                await self._be_safe(self._store.appended_offset)
            piece, messages = piece + 1, None
            await asyncio.sleep(0)
        self._refuse_if_anew(name, delivery)
        done = self._append({"kind": DONE, "application": name, "batch": delivery.batch, "lost": lost})
        await self._be_safe(done.end_offset)
        return Delivered(True, lost)

    # --- the ledger ---

    async def _alone(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run one operation at a time for each application, after the ledger was read."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            await self._read()
            return await work()

    def _refuse_if_slave(self) -> None:
        if self._settings.store.broker_role == "SLAVE":
            remark = "this broker is a SLAVE: staged messages are its master's to deliver"
            raise RequestRefusedError(ResponseCode.SLAVE_NOT_AVAILABLE, remark)

    def _refuse_if_anew(self, name: str, delivery: BatchDelivery) -> None:
        """Refuse if this broker has lost its role meanwhile and got it back, because another ledger counts then."""
        known = self._ledger.applications.get(name)
        if known is None or known.delivery is not delivery:
            raise RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker's role has just changed")

    def _append(self, entry: dict[str, Any]) -> PutMessageResult:
        """Write an entry and apply it. Raises RequestRefusedError."""
        self._refuse_if_slave()
        remark = self._acknowledgement.refusal()
        if remark is not None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
        if not self._is_current:
            raise RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker's role has just changed")
        known = self._ledger.applications
        if entry["kind"] != SNAPSHOT and entry["application"] not in known and len(known) >= MOST_APPLICATIONS:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"this broker knows {len(known)} applications that stage batches, which is the limit; use an "
                "applicationId again: one that is not heard of for 30 days makes room",
            )
        body = json.dumps(entry, separators=(",", ":")).encode()
        message = MessageExtBrokerInner(
            STAGED_LEDGER_TOPIC, 0, body, {const.PROPERTY_TAGS: entry["kind"]}, born_timestamp=self._clock.wall_ms()
        )
        result = self._store.put_message(message)
        if not result.ok:
            refusal = put_refusal(result, self._settings.store)
            raise RequestRefusedError(refusal.code, refusal.remark)
        self._take(entry, result.end_offset, result.store_timestamp)
        return result

    def _take(self, entry: dict[str, Any], end_offset: int, store_ms: int) -> None:
        self._ledger.take(entry, end_offset, store_ms)
        self._entries += 1
        if entry["kind"] == SNAPSHOT:
            self._snapshot_at, self._snapshot_ms, self._entries = entry["offset"], store_ms, 0

    async def _be_safe(self, end_offset: int, *, on_disk: bool = False) -> None:
        """Wait until the entry is as durable as the settings promise; with `on_disk`, on the disk also under
        ASYNC_FLUSH."""
        outcome = self._acknowledgement.outcome(end_offset)
        if outcome is not None and (code := await outcome) != ResponseCode.SUCCESS:
            raise RequestRefusedError(code, "stored, but disk or replicas did not say so in time; ask again")
        if on_disk and self._store.flushed_offset < end_offset:
            await self._store.flush()
            if self._store.flushed_offset < end_offset:
                raise RequestRefusedError(ResponseCode.FLUSH_DISK_TIMEOUT, "stored, but the disk failed")

    async def _read(self) -> None:
        """Read the records of the ledger up to the end of the log.

        Raises:
            RequestRefusedError: this broker is a slave, or the store takes no messages.
        """
        self._refuse_if_slave()
        async with self._reading:
            if self._is_current:
                return
            end = self._store.max_physical_offset
            while self._store.confirm_offset < end:
                if self._store.admission.refusal() is not None:
                    raise RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, self._store.admission.remark())
                await self._store.flush()
            self._ledger, self._entries, self._snapshot_at = BatchLedger(self._own_name), 0, -1
            first, copies = self._first_entry()
            for place, (physical_offset, _, tags) in enumerate(self._units(first), first):
                message = None if tags == DAMAGED_TAGS_CODE else self._entry(physical_offset)
                if message is None:
                    if tags in _COPIES_TAGS or any(place in some for some in copies):
                        self._ledger.lose_copy(physical_offset)
                    else:
                        self._ledger.skip(physical_offset, _KINDS.get(tags, ""))
                    continue
                with self._passed_over("the entry of staged batches at physical offset %d", physical_offset):
                    end_offset = physical_offset + message.store_size
                    self._take(json.loads(message.body), end_offset, message.store_timestamp)
            if copies:  # the next snapshot replaces the damaged one
                self._entries = max(self._entries, _ENTRIES_BETWEEN_SNAPSHOTS)
            self._is_current = True

    def _entry(self, physical_offset: int) -> MessageExt | None:
        """Return the record of an entry; None if it is damaged."""
        record = self._store.select_one_message(physical_offset)
        with self._passed_over("the damaged entry of staged batches at physical offset %d", physical_offset):
            return None if record is None else decode_record(record, check_crc=True)
        return None

    def _units(self, first: int) -> list[tuple[int, int, int]]:
        end = self._store.max_offset(STAGED_LEDGER_TOPIC, 0)
        return self._store.queue_units(STAGED_LEDGER_TOPIC, 0, first, max(0, end - first))

    def _first_entry(self) -> tuple[int, list[range]]:
        """Return the queue offset of the first entry that is needed to rebuild the state: that of the newest snapshot
        of which nothing is damaged; and where the copies of later ones lie."""
        store = self._store
        end, low = store.max_offset(STAGED_LEDGER_TOPIC, 0), max(0, store.min_offset(STAGED_LEDGER_TOPIC, 0))
        copies: list[range] = []
        while end > low:
            begin = max(low, end - _UNITS)
            for place, (physical_offset, _, tags) in reversed(
                list(enumerate(store.queue_units(STAGED_LEDGER_TOPIC, 0, begin, end - begin)))
            ):
                record = store.select_one_message(physical_offset) if tags == _SNAPSHOT_TAGS else None
                first = -1
                if record is not None:
                    with self._passed_over("the snapshot of staged batches at physical offset %d", physical_offset):
                        entry = json.loads(decode_record(record).body)
                        first = int(entry["first"]) if entry["kind"] == SNAPSHOT else -1
                if not 0 <= first <= begin + place:
                    continue
                if low <= first and self._is_whole(first, begin + place):
                    return first, copies
                copies.append(range(first, begin + place))
            end = begin
        return low, copies

    def _is_whole(self, first: int, end: int) -> bool:
        """Return whether all entries from one queue offset to another can be read."""
        units = self._store.queue_units(STAGED_LEDGER_TOPIC, 0, first, end - first)
        return all(tags != DAMAGED_TAGS_CODE and self._entry(at) is not None for at, _, tags in units)

    # --- snapshots ---

    async def keep_short(self) -> None:
        """Write a snapshot if many entries were written since the last one, or if retention is about to delete that
        one."""
        if self._settings.store.broker_role == "SLAVE" or self._store.admission.refusal() is not None:
            return
        await self._read()
        if not self._ledger.applications or not (self._is_wanted() and self._is_current):
            return
        first, offset = self._store.max_offset(STAGED_LEDGER_TOPIC, 0), self._store.max_physical_offset
        now_ms = self._store.time.now_ms()
        entries = self._ledger.snapshot(now_ms)
        for entry in entries:
            self._append(entry)
        end = self._ledger.end_of_snapshot(entries, now_ms)
        self._append({"kind": SNAPSHOT, "first": first, "offset": offset, **end})
        known = {entry["application"] for entry in entries}
        for name in set(self._ledger.applications) - known:
            del self._ledger.applications[name]

    def _is_wanted(self) -> bool:
        """Return whether a snapshot is needed: a ledger without one needs it before its first entry expires."""
        if self._entries >= _ENTRIES_BETWEEN_SNAPSHOTS:
            return True
        store = self._store
        second_file = store.commit_log.next_file_offset(store.min_physical_offset)
        if store.max_physical_offset < second_file:
            return False
        if self._snapshot_at < second_file:  # it lies in the oldest file, or there is none
            return True
        age_ms = self._clock.wall_ms() - self._snapshot_ms
        return age_ms > self._settings.store.file_reserved_time * 3_600_000 // 4


def _refuse_if_damaged(name: str, known: Application) -> None:
    """Refuse a batch of which nobody knows whether it was decided, or delivered, before."""
    if known.damaged_at >= 0:
        raise RequestRefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"the entry of staged batches at physical offset {known.damaged_at} is damaged and may be of application "
            f"{name}: which of its batches were written before is not known. Look for the rows of this one in the "
            "topic, and go on with another applicationId and, if the batch is not 0, the option coordinator",
        )
