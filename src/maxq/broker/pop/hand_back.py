"""HandBack: a slave that acted as master hands its pop state (messages given to consumers) to the master that comes
back.

While its master was away, the slave delivered messages and received acks. It kept both in memory, because it may not
write to the log that it copies. Before the master registers again, it asks each slave (MAXQ_HAND_BACK_POPS, 30091). An
acting slave answers, and from then on promises nothing (Authority): it delivers nothing and refuses acks, commits of
offsets and locks, which clients can send to the master a moment later. If no master registers within HELD_MS, the slave
continues to act. A slave that was not acting when it was asked, and begins to act before its master has registered,
waits as well.

A slave that stopped acting before it was asked, because a name server heard of the master first, answers with the state
it had then, for HELD_MS. It repeats the answer to a master that has not received it: the field `returnId` of the
request is the same for all requests of one return. If the master comes back another time, and the slave has read new
journal records since, the master has had the answer, and much of that state is outdated. A master that receives the
same state twice finds in its journal what it took over before.

The body of the answer is a JSON object; it is empty from a slave that did not act as master:

    end      the slave has read the journal up to this queue offset
    live     check points that have not ended; those that have ended behind one of them in their queue; and those of the
             master that have ended at the slave (CheckPointBuffer.hand_back)
    noted    numbers of those of them that the journal names before `end`, which the master therefore made. If the
             master no longer knows one of them, it has revived it, or handed it over to the revive topic when it
             ended; acks that the slave received for it go there. Slaves of earlier versions leave this out
    done     for each queue from which the slave delivered, in which something ended, or at whose end a group began: how
             far the group has come, and which messages are done (CheckPointBuffer.done_here). The master may have
             delivered such a message to another consumer before it was away, without its slave's knowledge
    earlier  receipts that messages had before the slave, or the master before it, changed their time (PopJournal, h)
    twins    pairs of numbers of check points that hold the same message (PopJournal, t)
    log      physical end of the slave's log: rows of topics that were deleted behind it are ignored
    orders   queues consumed in order (OrderService.hand_back)

Slaves of earlier versions leave out `done`, `earlier`, `twins` and `log`.

A slave that is about to act in this one's place asks, too (with its id and address): when it has the smaller id and
comes back, or when name servers do not hear this one. The acting slave then stops acting, and answers with its state.
Slaves that do not act copy this answer every few seconds (MAXQ_COPY_POPS, 30092), while the acting slave continues; if
it dies, the slave that acts next uses its copy. A slave that was restarted gets its state back in the same way.

RocketMQ's brokers do not know these requests. A master that gets no answer delivers again what was unacknowledged at
the slave.
"""

import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any, Final, Protocol

import orjson

from maxq.broker.identity.broker_identity import SlaveSign
from maxq.broker.pop.check_point_buffer import CheckPointBuffer, LateAck, point_of
from maxq.broker.pop.order_info import OrderInfo
from maxq.broker.pop.order_service import OrderService
from maxq.broker.pop.pop_journal import check_entries, check_point, check_row
from maxq.broker.pop.unfinished_revives import Key
from maxq.broker.processors.support import RequestProcessor
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RemoteProtocolError, RequestRefusedError
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection, Processor
from maxq.store.log.deletions import Deletions

log = logging.getLogger(__name__)

#: Milliseconds for which a slave that handed back its state waits for its master to register, and for which a slave
#: that no longer acts keeps what it knew.
HELD_MS: Final = 10_000

_TOPIC_AT: Final = {"live": 1, "done": 0, "orders": 0}  # the place of the topic in a row


def encode(end: int, buffer: CheckPointBuffer, orders: OrderService, log_end: int) -> bytes:
    """Encode the answer of a slave that has read the journal before queue offset `end`, and whose log ends at physical
    offset `log_end`."""
    return orjson.dumps(
        {
            "end": end,
            "live": buffer.hand_back(),
            "noted": buffer.noted_before(end),
            "done": buffer.done_here(),
            "earlier": buffer.earlier_receipts(),
            "twins": buffer.pairs_of_twins(),
            "log": log_end,
            "orders": orders.hand_back(),
        }
    )


def take_in(
    body: bytes, journal_end: int, buffer: CheckPointBuffer, orders: OrderService, deletions: Deletions
) -> list[LateAck]:
    """Take in what a slave answered, all of it or, if any of it is malformed, nothing: that is logged. The journal was
    read before `journal_end`; `deletions` are the topics that this broker's log says were deleted. Returns what is
    still to be written to the revive topic."""
    try:
        told: dict[str, Any] = orjson.loads(body or b"{}")
        if told:
            _check(told)
            # a journal that is shorter than the slave's has lost its end, and does not say what has ended
            noted = set(told.get("noted", ())) if told["end"] <= journal_end else set()
            live, done, in_order = (_living(told, *place, deletions) for place in _TOPIC_AT.items())
            late = buffer.take_back(told["end"], live, noted, done, told.get("earlier", []), told.get("twins", []))
            orders.take_back(in_order)
            log.info("pop consumption: %d check points and %d queues in order were handed back by a slave",
                     len(told["live"]), len(told["orders"]))  # fmt: skip
            return late
    except (ValueError, TypeError, KeyError, AttributeError, RemoteProtocolError):
        log.exception(
            "pop records that a slave handed back cannot be read: unacknowledged messages are delivered again"
        )
    return []


def _living(told: dict[str, Any], name: str, topic_at: int, deletions: Deletions) -> list[list[Any]]:
    """Return the rows whose topic was not deleted since; a topic of the same name that was made later begins anew."""
    end = told.get("log")
    rows: list[list[Any]] = told.get(name, [])
    return rows if end is None else [row for row in rows if not deletions.is_deleted_since(row[topic_at], end)]


def within(body: bytes, queue_end: Callable[[str, int], int]) -> bytes:
    """Return an answer of `encode` without its rows about messages behind the ends of queues, `queue_end(topic, queue
    id)`; a malformed answer is returned unchanged. A master that asks has these ends before it takes messages: if its
    log has lost its end, other messages will have the places behind them."""
    told = _read(body)
    if told is None:
        return body
    told["live"] = [row for row in told["live"] if _cut_point(row, queue_end(row[1], row[3]))]
    told["orders"] = [row for row in told["orders"] if _is_within(row, queue_end(row[0], row[2]))]
    for row in told.get("done", ()):
        _cut_done(row, queue_end(row[0], row[2]))
    return orjson.dumps(told)


def _cut_point(row: list[Any], end: int) -> bool:
    """Forget the messages of a check point from queue offset `end` on. Returns False if that leaves none."""
    kept = [distance for distance in row[8] if row[7] + distance < end]
    if len(kept) < len(row[8]):
        row[8], row[9], row[12] = kept, min(row[9], end), row[12] & ((1 << len(kept)) - 1)
        return bool(kept)
    return True


def _is_within(row: list[Any], end: int) -> bool:
    """Return whether all messages of a delivery in order lie before queue offset `end`."""
    return all(offset < end for offset in OrderInfo.from_json(row[4]).offsets)


def _cut_done(row: list[Any], end: int) -> None:
    """Forget what is done of a queue from queue offset `end` on."""
    row[3] = min(row[3], end)
    row[4] = [min(bound, end) for bound in row[4]]


def known_end(body: bytes) -> int | None:
    """Return the queue offset before which the slave of an answer had read the journal; None if the answer is
    malformed."""
    try:
        end = orjson.loads(body)["end"]
    except (ValueError, TypeError, KeyError):
        return None
    return end if isinstance(end, int) else None


def groups_of(body: bytes) -> set[str]:
    """Return the groups to which the slave of an answer gave messages itself, and of which it has check points; none if
    the answer is malformed."""
    told = _read(body) or {"live": []}
    noted = set(told.get("noted", ()))
    return {row[2] for row in told["live"] if row[0] not in noted}


def without(body: bytes, ended: Container[Key]) -> bytes:
    """Return an answer of `encode` without these check points; a malformed one is returned unchanged."""
    told = _read(body)
    if told is None:
        return body
    told["live"] = [row for row in told["live"] if point_of(row).key not in ended]
    return orjson.dumps(told)


def _read(body: bytes) -> dict[str, Any] | None:
    """Decode an answer of `encode`; None if it is empty or malformed."""
    try:
        told: dict[str, Any] = orjson.loads(body or b"{}")
        if told:
            _check(told)
    except (ValueError, TypeError, KeyError, AttributeError, RemoteProtocolError):
        return None
    return told or None


def _check(told: dict[str, Any]) -> None:
    """Raise TypeError, ValueError, KeyError or RemoteProtocolError if an answer has not the form that the module
    describes."""
    if not isinstance(told["end"], int):
        raise TypeError(f"end is {told['end']!r:.80}")
    if not all(isinstance(number, int) for number in told.get("noted", ())):
        raise TypeError(f"noted is {told['noted']!r:.80}")
    if not isinstance(told.get("log", 0), int):
        raise TypeError(f"log is {told['log']!r:.80}")
    for row in told["live"]:
        check_point(row, int)  # checks all of the row but the bits of acknowledged messages
    for row in told.get("done", ()):
        check_row(row, (str, str, int, int, list))
        bounds = row[4]
        if len(bounds) % 2 or not all(isinstance(bound, int) for bound in bounds):
            raise TypeError(f"{bounds!r:.80} are not starts and ends")
    check_entries({"o": told["orders"], "h": told.get("earlier", []), "t": told.get("twins", [])})
    for row in told["orders"]:
        OrderInfo.from_json(row[4])


class GroupOfSlave(Protocol):
    """The part of ActingMasterService that the answers need."""

    @property
    def is_acting_master(self) -> bool:
        """Return whether this slave acts for its group."""

    @property
    def log_is_another(self) -> bool:
        """Return whether this slave's log was found to be another than its master's."""

    @property
    def log_mark(self) -> str:
        """Return the check sum of the end of this slave's log, by which the master sees whether it has the same log
        (replication/ha/log_mark.py)."""

    def has_other_log(self, mark: str) -> bool:
        """Return whether the log with this mark, of another slave, is found to be another than this one's."""

    def hear_master_mark(self, mark: str) -> None:
        """Compare this slave's log with that of its master."""

    def hear_return(self, master: str) -> None:
        """Note that the master at this `host:port` comes back; empty: it does not say where it is."""

    async def leave_to(self, broker_id: int, address: str) -> None:
        """Leave the group to another slave. Raises RequestRefusedError if this one does not."""

    def copied_of(self, address: str) -> bytes:
        """Return the state that this slave has copied from the slave at `address` while that one acted; empty if there
        is none."""


class PopState(Protocol):
    """The part of PopService that the answers need."""

    def give_way(self) -> None:
        """Have this slave wait for its master, or for another slave."""

    def hand_back(self, return_id: str) -> bytes:
        """Return the answer's body for a master, and this return of it."""

    def left(self) -> bytes:
        """Return the answer's body for another slave, to which this one has left the group."""

    def copy(self) -> bytes:
        """Return the answer's body for another slave, which this one does not leave the group to."""


class HandBackProcessor(RequestProcessor):
    """Answers the questions of its master, and of other slaves, on a slave."""

    def __init__(self, group: GroupOfSlave, pops: PopState, rest: Callable[[], Awaitable[None]]) -> None:
        """`rest` returns when this slave delivers nothing to other broker groups any more while it waits."""
        self._group = group
        self._pops = pops
        self._rest = rest

    def routes(self) -> Mapping[int, Processor]:
        return {RequestCode.MAXQ_HAND_BACK_POPS: self.answer, RequestCode.MAXQ_COPY_POPS: self.copy}

    def copy(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer another slave that copies what this one keeps while it acts."""
        return request.reply(body=self._pops.copy(), ext=self._mark())

    async def answer(self, connection: Connection, request: RemotingCommand) -> None:
        """Answer when everything that this slave knows is safe, and so is the progress of delayed and timer messages,
        for which the master asks next: messages whose time is over may be on their way to another group.

        Raises:
            RequestRefusedError: this slave does not leave the group to the slave that asks; or its log is another than
                its master's, which takes nothing from it then; nor does another slave. It gives way all the same.
        """
        fields = HeaderFields(request.ext)
        mark = fields.opt_str(SlaveSign.LOG_MARK) or ""
        slave_id, slave = fields.opt_int(SlaveSign.ID), fields.opt_str(SlaveSign.ADDRESS)
        if slave_id and slave:
            told = await self._left_to(slave_id, slave)
            self._check_log(is_another=self._group.has_other_log(mark))
            connection.send(request.reply(body=told, ext=self._mark()))
            return
        self._group.hear_return(fields.opt_str("masterAddress") or "")
        self._group.hear_master_mark(mark)
        self._pops.give_way()
        await self._rest()
        self._check_log()
        told = self._pops.hand_back(fields.opt_str("returnId") or "")
        connection.send(request.reply(body=told, ext=self._mark()))

    def _mark(self) -> dict[str, str]:
        return {SlaveSign.LOG_MARK: self._group.log_mark}

    def _check_log(self, *, is_another: bool = False) -> None:
        if is_another or self._group.log_is_another:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "the log of this slave differs from its master's, so "
                                      "what it knows belongs to other messages")  # fmt: skip

    async def _left_to(self, slave_id: int, slave: str) -> bytes:
        """Leave the group to another slave. Returns the state of this slave when it stopped acting, or its copy of the
        asking slave's state, if that one acted before and was restarted.

        Raises:
            RequestRefusedError: this slave does not leave it.
        """
        if self._group.is_acting_master:
            self._pops.give_way()
            await self._rest()
        await self._group.leave_to(slave_id, slave)
        return self._pops.left() or self._group.copied_of(slave)
