"""How a leader brings one follower's log in line with its own and keeps it so.

COMPARE: find the highest entry that both have. The follower is asked about one entry at a time, whole, as Java members
expect; where they differ the search goes on by bisection, which is right because equal entries at one index mean equal
logs before it. TRUNCATE: make that entry the follower's last, or, if the logs do not meet, let its log begin with our
first entry. APPEND: send what comes next, as much as there is in each push, several on their way at a time.

It begins when the follower has answered a heart-beat of this term with 200: only then do its answers count (S5). A push
that fails in any way sends it back to COMPARE, which finds out where things stand.

Source:
    openmessaging/dledger DLedgerEntryPusher.java, EntryDispatcher.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from maxq.protocol.dledger.dledger_messages import (
    DLedgerEntry,
    DLedgerResponseCode,
    EntryRun,
    PushReply,
    PushRequest,
    PushType,
    Reply,
)
from maxq.replication.raft.heart_beats import PeerContact
from maxq.replication.raft.member_state import MemberState
from maxq.replication.raft.quorum_ack_checker import QuorumAckChecker

_NEVER: Final = 1 << 62
#: Entries up to which a follower that is behind does not count as a laggard, however large they are.
_LAG_ENTRIES: Final = 1000


class DispatcherState(Enum):
    """Whether logs are being compared or entries sent."""

    WAIT = "WAIT"  # waits for the first heart-beat that the follower answers
    COMPARE = "COMPARE"
    TRUNCATE = "TRUNCATE"
    APPEND = "APPEND"


class EntryDispatcher:
    """Sends entries to one follower, for one term of leadership.

    Args:
        contact: what heart-beats say of the follower.
        on_mark: called with now when the follower's water mark has risen.
    """

    def __init__(
        self, peer: str, state: MemberState, contact: PeerContact, acks: QuorumAckChecker,
        on_mark: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.peer = peer
        self.type = DispatcherState.WAIT
        self.write_index = -1
        self._state = state
        self._config = state.config
        self._ledger = state.ledger
        self._contact = contact
        self._acks = acks
        self._on_mark = on_mark
        self._term = state.term
        self._asked = 0  # id of the COMPARE or TRUNCATE on its way; 0: none
        self._compare_index = -1
        self._truncate_index = -1
        self._equal = -1  # highest index found equal in this comparison
        self._different = -1  # lowest index found different
        self._in_flight: dict[int, int] = {}  # id of a push → its last index, ascending
        self._not_before = 0
        self._last_push_ms = 0
        self._commit_sent = -1  # newest commit index that was sent
        self._commit_known = -1  # newest commit index that the follower certainly has
        self._step = 1  # how far below the last difference the next comparison is
        self._refusals = 0  # number of pushes refused in a row
        self._quota_second = 0
        self._quota_bytes = 0

    # --- inputs ---

    def start(self, now: int) -> None:
        """Start sending to a follower that is in this term, for the first time or again."""
        self._compare_again(now)
        self.pump(now)

    def pump(self, now: int) -> None:
        """Send the follower what it needs next, if it may be sent now."""
        if self.type is DispatcherState.APPEND:
            self._append(now)
        elif self.type is not DispatcherState.WAIT and not self._asked and now >= self._not_before:
            self._compare(now)

    def next_tick(self, now: int) -> int:
        """Return the time at which `pump` must be called although no input has arrived."""
        if self.type is not DispatcherState.WAIT and not self._asked and self._not_before > now:
            return self._not_before
        return self._commit_due() if self.type is DispatcherState.APPEND else _NEVER

    # --- COMPARE, TRUNCATE ---

    def _compare_again(self, now: int, pause_ms: int = 0) -> None:
        self.type = DispatcherState.COMPARE
        self._in_flight.clear()
        self._asked = 0
        self._compare_index = -1
        self._truncate_index = -1
        self._equal = -1
        self._different = -1
        self._step = 1
        self._commit_sent = self._commit_known
        self._not_before = now + pause_ms

    def _compare(self, now: int) -> None:
        begin, end = self._ledger.begin_index, self._ledger.end_index
        if end < max(begin, 0):
            return  # the first entry of this leader's term will come, and wake it
        if self._truncate_index >= 0:
            self.type = DispatcherState.TRUNCATE
            index = self._truncate_index = max(self._truncate_index, begin)
            kind = PushType.TRUNCATE
        else:
            self.type = DispatcherState.COMPARE
            # most followers end where this leader's term begins, or at the index that it knows of them
            if self._compare_index < 0:
                self._compare_index = max(self._acks.first_index - 1, self._acks.mark(self.peer))
            if not begin <= self._compare_index <= end:
                self._compare_index = end
            index = self._compare_index
            kind = PushType.COMPARE
        self._asked = self._push(kind, (self._ledger.entry(index),), None, now)

    def _compared(self, reply: PushReply, now: int) -> None:
        """Handle the answer to a comparison by Java's rules, with a search between the highest index known to be equal
        and the lowest known to differ."""
        index, follower_end = self._compare_index, reply.end_index
        begin, end = self._ledger.begin_index, self._ledger.end_index
        if follower_end < self._acks.mark(self.peer):
            self._state.alarm(
                f"{self.peer} ends at {follower_end} and had acknowledged {self._acks.mark(self.peer)}: it lost its log"
            )
            self._acks.lowered(self.peer, follower_end)
        if reply.code == DLedgerResponseCode.SUCCESS:
            self._equal = max(self._equal, index)
            self._marked(index, now)
            if follower_end == index:
                self._begin_append(index, now)
                return
            if index == end:
                self._truncate_index = index
        elif follower_end < begin or reply.begin_index > end:
            self._truncate_index = begin
        elif reply.begin_index <= index <= follower_end:
            self._different = index
        if self._truncate_index < 0:
            self._next_comparison(max(begin, reply.begin_index, self._equal + 1), min(end, follower_end), begin)
        if 0 <= self._truncate_index < self._acks.mark(self.peer):  # an answer arrived in between: compare again
            self._compare_again(now, self._config.retry_ms)
        self.pump(now)

    def _next_comparison(self, low: int, high: int, begin: int) -> None:
        """Set the next index to compare, or the one behind which the follower truncates its log. Both logs have
        low..high; entries below low are known to be equal."""
        if self._different >= 0:
            high = min(high, self._different - 1)
        if low > high:
            self._truncate_index = max(self._equal, begin)
        elif self._different < 0:  # so far, one log is the beginning of the other
            self._compare_index = high
        elif self._equal < 0:  # different ends are short as a rule: step back in doubling steps, then bisect
            self._compare_index = max(low, self._different - self._step)
            self._step *= 2
        else:
            self._compare_index = (low + high) // 2

    def _begin_append(self, index: int, now: int) -> None:
        self.type = DispatcherState.APPEND
        self.write_index = index + 1
        if self._refusals > 1:  # it agrees when asked and refuses what follows: wait before the next round
            self._not_before = now + self._config.retry_ms
        self.pump(now)

    # --- APPEND, COMMIT ---

    def _append(self, now: int) -> None:
        ledger = self._ledger
        is_ours = self._contact.maxq is not None
        window = self._config.push_window if is_ours else self._config.java_push_window
        while self.write_index <= ledger.end_index and len(self._in_flight) < window and now >= self._not_before:
            if self.write_index < ledger.begin_index:
                self._compare_again(now)
                self.pump(now)
                return
            if self._is_over_quota(now):
                break
            run = ledger.entries(self.write_index, self._config.max_push_bytes)
            last = run.last_index
            if is_ours:
                request_id = self._push(PushType.APPEND, (), run, now)
            else:
                entries = tuple(run.entries())[: self._config.java_push_entries]
                last = entries[-1].index
                request_id = self._push(PushType.APPEND, entries, None, now)
            self._in_flight[request_id] = last
            self._quota_bytes += len(run.data)
            self.write_index = last + 1
        if now >= self._commit_due():
            self._push(PushType.COMMIT, (), None, now)

    def _commit_due(self) -> int:
        """Return when to send the commit index again, for a follower that restarted without being noticed and has lost
        it. A Java member gets it only at its usual interval."""
        if self._contact.maxq is not None and self._commit_sent < self._state.committed_index:
            return self._last_push_ms + self._config.commit_interval_ms
        return self._last_push_ms + self._config.commit_again_interval_ms

    def _is_over_quota(self, now: int) -> bool:
        """Return whether a follower far behind has used up its share of this second (peerPushThrottlePoint,
        peerPushQuota)."""
        ledger = self._ledger
        if ledger.end_index - self.write_index < _LAG_ENTRIES:
            return False
        lag = ledger.unit(ledger.end_index).position - ledger.unit(self.write_index).position
        if lag < self._config.peer_push_throttle_point:
            return False
        if now - self._quota_second >= 1000:
            self._quota_second = now
            self._quota_bytes = 0
        if self._quota_bytes < self._config.peer_push_quota:
            return False
        self._not_before = self._quota_second + 1000
        return True

    # --- messages ---

    def _push(self, kind: PushType, entries: tuple[DLedgerEntry, ...], run: EntryRun | None, now: int) -> int:
        config = self._config
        committed = self._state.committed_index
        self._last_push_ms = now
        self._commit_sent = committed
        return self._state.outbox.send(
            self.peer,
            PushRequest(
                group=config.group, remote_id=self.peer, local_id=config.self_id, leader_id=config.self_id,
                term=self._term, type=kind, commit_index=committed, entries=entries, is_batch=len(entries) > 1, run=run,
            ),
            lambda request_id, reply, then: self._replied(kind, committed, request_id, reply, then),
        )  # fmt: skip

    def _replied(self, kind: PushType, committed: int, request_id: int, reply: Reply | None, now: int) -> None:
        if not self._state.is_leader_of(self._term):
            return
        if not isinstance(reply, PushReply):
            self._failed(kind, request_id, now)
        elif reply.code == DLedgerResponseCode.EXPIRED_TERM and reply.term > self._term:
            self._state.step_down(reply.term, now)
        elif reply.code == DLedgerResponseCode.SUCCESS:
            if committed > self._commit_known:
                self._commit_known = committed
            self._succeeded(kind, request_id, reply, now)
        elif reply.code != DLedgerResponseCode.INCONSISTENT_STATE:
            self._contact.lacks_room = reply.code == DLedgerResponseCode.DISK_FULL
            self._failed(kind, request_id, now)
        elif kind is PushType.COMPARE and request_id == self._asked:
            self._asked = 0
            self._compared(reply, now)
        elif kind is PushType.TRUNCATE and request_id == self._asked:
            self._compare_again(now, self._config.retry_ms)
        elif request_id in self._in_flight or (kind is PushType.COMMIT and self.type is DispatcherState.APPEND):
            self._refusals += 1
            self._compare_again(now)
            self.pump(now)

    def _succeeded(self, kind: PushType, request_id: int, reply: PushReply, now: int) -> None:
        if kind is PushType.APPEND:
            last = self._in_flight.pop(request_id, -1)
            if last >= 0:
                self._refusals = 0
                self._contact.lacks_room = False
                self._marked(last, now)
                self.pump(now)
        elif kind is not PushType.COMMIT and request_id == self._asked:
            self._asked = 0
            if kind is PushType.COMPARE:
                self._compared(reply, now)
            else:
                self._marked(self._truncate_index, now)
                self._begin_append(self._truncate_index, now)

    def _failed(self, kind: PushType, request_id: int, now: int) -> None:
        """Handle a missing answer, or one that asks to try later."""
        if kind is PushType.COMMIT:
            self._commit_sent = self._commit_known
        elif request_id == self._asked or request_id in self._in_flight:
            self._compare_again(now, self._config.retry_ms)

    def _marked(self, index: int, now: int) -> None:
        if index > self._acks.mark(self.peer):
            self._acks.acknowledged(self.peer, index)
            self._on_mark(now)
