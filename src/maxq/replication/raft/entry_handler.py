"""A follower's side of replication: takes pushes of its leader in order of their index, whatever order they come in,
and answers when what it says is true after a loss of power, too.

`matched_index` is the heart of it: up to there this log is known to be the current leader's, because it was compared
with it or came from it in this term. Appends must begin at or before `matched_index + 1`, commit points count up to
there and no further, and nothing up to there is ever cut by that leader, so that pushes, comparisons and truncations
that come late, twice or in another order do no harm.

Source:
    openmessaging/dledger DLedgerEntryPusher.java, EntryHandler; safety rules S2, S5 to S8.
"""

from collections.abc import Sequence
from errno import EDQUOT, ENOSPC
from typing import NamedTuple

from maxq.errors import LedgerMismatchError, RemoteProtocolError
from maxq.protocol.dledger.dledger_messages import (
    DLedgerEntry,
    DLedgerResponseCode,
    EntryRun,
    PushReply,
    PushRequest,
    PushType,
)
from maxq.replication.raft.member_state import MemberState

_SUCCESS = DLedgerResponseCode.SUCCESS
_INCONSISTENT = DLedgerResponseCode.INCONSISTENT_STATE


class _Buffered(NamedTuple):
    token: object
    request: PushRequest
    overdue_ms: int


class _Waiting(NamedTuple):
    """A SUCCESS that is sent when the log is durable up to `until`."""

    until: int
    token: object
    request: PushRequest


class EntryHandler:
    """Processes the entries that the leader pushes to one member. Its state belongs to one leader in one term."""

    def __init__(self, state: MemberState) -> None:
        self.matched_index = -1
        self._state = state
        self._config = state.config
        self._ledger = state.ledger
        self._leader: tuple[int, str | None] = (-1, None)  # term and leader for which matched_index holds
        self._leader_commit = -1
        self._buffer: dict[int, _Buffered] = {}
        self._waiting: list[_Waiting] = []

    @property
    def next_tick(self) -> int:
        """Return the time at which `tick` must be called."""
        if not self._buffer:
            return 1 << 62
        return min(buffered.overdue_ms for buffered in self._buffer.values())

    def leader_changed(self) -> None:
        """Handle a change of leader or term. The former leader's pushes are answered accordingly, and the new one's log
        is unknown, unless it is the same leader in the same term."""
        code = DLedgerResponseCode.EXPIRED_TERM
        for waiting in self._waiting:
            self._refuse(waiting.token, waiting.request, code)
        for buffered in self._buffer.values():
            self._refuse(buffered.token, buffered.request, code)
        self._waiting.clear()
        self._buffer.clear()
        state = self._state
        standing = (state.term, state.leader_id)
        if state.leader_id is None:
            if not state.leader_is_maxq:  # Java's may lead the same term again, with a log that it lost a part of (S4)
                self._leader = (-1, None)
        elif standing != self._leader:
            self._leader = standing
            self.matched_index = -1
            self._leader_commit = -1

    def push(self, token: object, request: PushRequest, now: int) -> None:
        """Handle a push of the leader that this member follows, in its term."""
        self._leader_commit = max(self._leader_commit, request.commit_index)
        if request.type is PushType.COMMIT:
            is_unknown = self.matched_index < 0 <= request.commit_index and self._state.leader_is_maxq
            # The leader was restarted since the comparison, so quickly that this follower did not notice.
            self._answer(token, request, _INCONSISTENT if is_unknown else _SUCCESS)
        elif request.count == 0 or request.last_term > request.term:  # a leader has no entries of later terms
            self._answer(token, request, DLedgerResponseCode.UNEXPECTED_ARGUMENT)
        elif request.type is PushType.COMPARE:
            self._compare(token, request)
        elif request.type is PushType.TRUNCATE:
            self._truncate(token, request)
        else:
            self._take_append(token, request, now)
        self._take_buffered()
        self.advance()

    def advance(self) -> None:
        """Commit and answer as far as possible, because the durable end of the log or the leader's commit index has
        advanced."""
        ledger, state = self._ledger, self._state
        index = min(self._leader_commit, self.matched_index, ledger.durable_index)
        if index >= ledger.begin_index:  # not at the first entry of a log that begins anew
            state.commit(index)
        if state.is_amnesiac:
            self._remember()
        if self._waiting:
            ready = self._sayable()
            done = [waiting for waiting in self._waiting if waiting.until <= ready]
            if done:
                self._waiting = [waiting for waiting in self._waiting if waiting.until > ready]
                for waiting in done:
                    self._answer(waiting.token, waiting.request, _SUCCESS)

    def tick(self, now: int) -> None:
        """Answer pushes that wait too long for earlier ones: the leader must compare."""
        for first in [first for first, buffered in self._buffer.items() if buffered.overdue_ms <= now]:
            buffered = self._buffer.pop(first)
            self._answer(buffered.token, buffered.request, _INCONSISTENT)

    # --- amnesia (S10) ---

    def _sayable(self) -> int:
        """Return the index up to which success may be answered. A member that has lost acknowledged entries answers
        only for what is committed without it, so that no leader counts it."""
        durable = self._ledger.durable_index
        return min(durable, self._leader_commit) if self._state.is_amnesiac else durable

    def _shown_end(self) -> int:
        end = self._ledger.end_index
        if self._state.is_amnesiac:
            return min(end, max(self._leader_commit, self._ledger.begin_index - 1))
        return end

    def _remember(self) -> None:
        """End the amnesia when the log was matched with a leader's up to the forgotten entries, and that leader has
        committed an entry of its own term without this member's help."""
        ledger, committed = self._ledger, self._state.committed_index
        if (
            max(ledger.amnesiac_until, ledger.begin_index) <= min(committed, self.matched_index)
            and ledger.term_of(committed) == self._state.term
        ):
            try:
                ledger.remembered()
            except OSError as error:
                _no_room(error)  # the disk has no room: try again at the next entry

    # --- APPEND ---

    def _take_append(self, token: object, request: PushRequest, now: int) -> None:
        first = request.first_index
        if first <= self.matched_index + 1:
            self._append(token, request)
        elif self.matched_index < max(self._ledger.end_index, 0):
            self._answer(token, request, _INCONSISTENT)  # this log has not been compared with the leader's
        elif len(self._buffer) >= self._config.max_buffered_pushes:
            self._answer(token, request, _INCONSISTENT)
        else:
            older = self._buffer.pop(first, None)
            if older is not None:
                self._answer(older.token, older.request, DLedgerResponseCode.REPEATED_PUSH)
            self._buffer[first] = _Buffered(token, request, now + self._config.buffered_push_overdue_ms)

    def _take_buffered(self) -> None:
        while self._buffer:
            first = min(self._buffer)
            if first > self.matched_index + 1:
                return
            buffered = self._buffer.pop(first)
            self._append(buffered.token, buffered.request)

    def _append(self, token: object, request: PushRequest) -> None:
        """Append the entries of a push that begins within the matched part of the log, or right behind it."""
        last = request.last_index
        if last > self.matched_index:
            code = self._write(request)
            if code is not _SUCCESS:
                self._answer(token, request, code)
                return
            self.matched_index = last
        self._waiting.append(_Waiting(last, token, request))

    def _write(self, request: PushRequest) -> DLedgerResponseCode:
        """Append the entries. Any result but SUCCESS means that not all of them are in the log."""
        try:
            for run in _runs_of(request.entries) if request.run is None else [request.run]:
                self._ledger.append_entries(run)
        except (LedgerMismatchError, RemoteProtocolError) as error:
            if self.matched_index >= self._ledger.end_index:
                self._state.alarm(f"entries of {self._state.leader_id} do not fit this log: {error}")
            return _INCONSISTENT
        except OSError as error:
            return _no_room(error)
        return _SUCCESS

    # --- COMPARE, TRUNCATE ---

    def _has(self, entry: DLedgerEntry) -> bool:
        ledger = self._ledger
        return ledger.begin_index <= entry.index <= ledger.end_index and ledger.entry(entry.index) == entry

    def _compare(self, token: object, request: PushRequest) -> None:
        entry = self._single(request)
        if entry.index <= self._shown_end() and self._has(entry):
            self.matched_index = max(self.matched_index, entry.index)
            self._waiting.append(_Waiting(entry.index, token, request))
            return
        self._freeze_if_committed(entry)
        self._answer(token, request, _INCONSISTENT)

    def _truncate(self, token: object, request: PushRequest) -> None:
        """Make the entry the last one. Entries matched with this leader are kept (the request is an old one then), and
        so are committed ones."""
        entry, ledger = self._single(request), self._ledger
        if self._has(entry):
            self.matched_index = max(self.matched_index, entry.index)
            keep = max(self.matched_index, self._state.committed_index)
            try:
                if keep < ledger.end_index:
                    ledger.truncate(keep)
            except OSError as error:
                self._answer(token, request, _no_room(error))
                return
            self._waiting.append(_Waiting(entry.index, token, request))
        elif entry.index <= max(self._state.committed_index, self.matched_index):
            self._freeze_if_committed(entry)
            self._answer(token, request, _INCONSISTENT)
        else:
            code = self._make_room(entry)
            if code is _SUCCESS:
                code = self._write(request)
            if code is _SUCCESS:
                self.matched_index = entry.index
                self._waiting.append(_Waiting(entry.index, token, request))
            else:
                self._answer(token, request, code)

    def _make_room(self, entry: DLedgerEntry) -> DLedgerResponseCode:
        """Delete entries that conflict with `entry`: the tail behind the last matched one, or the whole log if no
        earlier entry is known to match."""
        ledger = self._ledger
        try:
            if self.matched_index == entry.index - 1 >= 0:
                if entry.index <= ledger.end_index:
                    ledger.truncate(entry.index - 1)
            elif ledger.end_index >= 0 or entry.index > 0:
                ledger.reset(entry.index, entry.pos)
        except LedgerMismatchError as error:
            self._state.alarm(f"the log cannot begin with {entry.index} of {self._state.leader_id}: {error}")
            return _INCONSISTENT
        except OSError as error:
            return _no_room(error)
        return _SUCCESS

    def _freeze_if_committed(self, entry: DLedgerEntry) -> None:
        """Stop voting and standing for election if the leader has another entry where one is committed here (S8). One
        of the two logs is wrong, and this member cannot tell which: the operator is alarmed."""
        state, ledger = self._state, self._ledger
        is_committed = ledger.begin_index <= entry.index <= min(ledger.end_index, state.committed_index)
        if is_committed and not self._has(entry) and not state.frozen:
            state.frozen = True
            state.alarm(
                f"{state.leader_id} has another entry at {entry.index}, which is committed here: not cut, and this "
                f"member takes no part in elections any more"
            )

    @staticmethod
    def _single(request: PushRequest) -> DLedgerEntry:
        return request.entries[0] if request.run is None else next(request.run.entries())

    # --- answers ---

    def _answer(self, token: object, request: PushRequest, code: DLedgerResponseCode) -> None:
        self._state.outbox.answer(token, self.reply(request, code, request.term))

    def _refuse(self, token: object, request: PushRequest, code: DLedgerResponseCode) -> None:
        self._state.outbox.answer(token, self.reply(request, code, self._state.term))

    def reply(self, request: PushRequest, code: DLedgerResponseCode, term: int) -> PushReply:
        """Make the answer to a push, with the bounds of this log."""
        return PushReply(
            group=self._config.group, term=term, code=code,
            index=request.first_index if request.count else None, count=request.count,
            begin_index=self._ledger.begin_index, end_index=self._shown_end(),
        )  # fmt: skip


def _no_room(error: OSError) -> DLedgerResponseCode:
    """Return the code for a disk without room, which is not a broken one: the leader tries again later.

    Raises:
        OSError: it is another error.
    """
    if error.errno not in (ENOSPC, EDQUOT):
        raise error
    return DLedgerResponseCode.DISK_FULL


def _runs_of(entries: Sequence[DLedgerEntry]) -> list[EntryRun]:
    """Group a Java leader's entries into runs: they may lie in several data files, with filler between."""
    pieces: list[list[bytes]] = []
    position = -1
    for entry in entries:
        if entry.pos != position:
            pieces.append([])
        pieces[-1].append(entry.encode())
        position = entry.pos + entry.size
    return [EntryRun.of(b"".join(piece)) for piece in pieces]
