"""A leader's heart-beats, and the conclusions from their answers: which members are in its term, whether a quorum still
hears it (else it steps down), until when it takes appends, and reads that are linearizable.

Reads go by ReadIndex: an entry of the own term is committed, and a quorum answered a heart-beat that was sent after the
read came. The lease alone proves nothing while Java members, which grant votes at any moment, may be in the group; it
only makes a leader that is cut off stop early (S13).

Source:
    openmessaging/dledger DLedgerLeaderElector.java, sendHeartbeats, handleHeartBeat.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode, HeartBeatReply, HeartBeatRequest, Reply
from maxq.replication.raft.member_state import MemberState
from maxq.replication.raft.outputs import ReadReady

#: A Java member raises its term in the next turn of its loop, which sleeps 10 ms.
TERM_NOT_READY_MS: Final = 15
_NEVER: Final = -(1 << 62)


class PeerContact:
    """The result of heart-beats to one member in the current term.

    Attributes:
        is_in_term: the member has answered a heart-beat of this term with 200.
        maxq: value of its extra key; None: a Java member.
        heard_sent_ms: when the newest heart-beat was sent that it answered; at first the time of the election.
        vouched_sent_ms: the same for heart-beats of this term on a connection that has lasted since. A member without
            such a connection may have been restarted, and could vote for another member at once.
        heard_round: round of the newest heart-beat that it answered.
        next_ms: when the next heart-beat is sent to it.
        lacks_room: it refused the last push because its disk has no room.
    """

    __slots__ = ("heard_round", "heard_sent_ms", "is_in_term", "lacks_room", "maxq", "next_ms", "vouched_sent_ms")

    def __init__(self, now: int) -> None:
        self.is_in_term = False
        self.maxq: str | None = None
        self.heard_sent_ms = now
        self.vouched_sent_ms = _NEVER
        self.heard_round = 0
        self.next_ms = now
        self.lacks_room = False


class _Read(NamedTuple):
    token: object
    round: int


class HeartBeats:
    """Sends heart-beats in one term of leadership.

    Args:
        on_in_term: called with peer and now when a member is in this term for the first time, or again after it was
            silent: it may have been restarted.
        committed: the commit point, or -1 while no entry of this term is committed.
    """

    def __init__(
        self, state: MemberState, on_in_term: Callable[[str, int], None], committed: Callable[[], int], now: int
    ) -> None:
        self.term = state.term
        self.contacts = {peer: PeerContact(now) for peer in state.config.others}
        self._state = state
        self._config = state.config
        self._on_in_term = on_in_term
        self._committed = committed
        self._round = 0
        self._reads: deque[_Read] = deque()
        self._strangers: set[str] = set()
        self._quorum_heard_ms = -1  # when a quorum was last heard; -1: this member alone is a quorum
        self._quorum_vouched_ms = _NEVER
        self._next_tick = 0
        self._contacts_changed()

    @property
    def next_tick(self) -> int:
        """Return the time at which `tick` must be called."""
        return self._next_tick

    def _contacts_changed(self) -> None:
        """Recompute the values that every message needs and that only heartbeats change."""
        needed = self._config.quorum - 1
        due = min((contact.next_ms for contact in self.contacts.values()), default=1 << 62)
        if needed:
            heard = sorted((contact.heard_sent_ms for contact in self.contacts.values()), reverse=True)
            self._quorum_heard_ms = heard[needed - 1]
            vouched = sorted((contact.vouched_sent_ms for contact in self.contacts.values()), reverse=True)
            self._quorum_vouched_ms = vouched[needed - 1]
            due = min(due, self._quorum_heard_ms + self._config.election_timeout_ms + 1)
        self._next_tick = due

    def quorum_heard_ms(self, now: int) -> int:
        """Return the latest time at which a quorum, this member included, considered it the leader."""
        return now if self._quorum_heard_ms < 0 else self._quorum_heard_ms

    def has_lease(self, now: int) -> bool:
        """Return whether a quorum answered so recently that this leader may accept appends and reads. No member that
        answered votes for another leader before the lease ends."""
        return self._config.quorum == 1 or now <= self._quorum_vouched_ms + self._config.lease_ms

    def lost(self, peer: str, now: int) -> None:
        """Forget the answers of `peer`, because its connection broke and its present state is unknown."""
        contact = self.contacts[peer]
        contact.vouched_sent_ms = _NEVER
        contact.next_ms = min(contact.next_ms, now)
        self._contacts_changed()

    def is_live(self, peer: str, now: int) -> bool:
        """Return whether `peer` follows this leader and answered within the election time-out."""
        contact = self.contacts[peer]
        return contact.is_in_term and now - contact.heard_sent_ms <= self._config.election_timeout_ms

    def tick(self, now: int) -> None:
        """Send due heartbeats; step down if no quorum has answered for an election time-out."""
        if now - self.quorum_heard_ms(now) > self._config.election_timeout_ms:
            self._state.step_down(self.term, now)
            return
        due = [(peer, contact) for peer, contact in self.contacts.items() if contact.next_ms <= now]
        if due and self._reads:
            self._round = self._reads[-1].round
        for peer, contact in due:
            self._send(peer, contact, now)
        self._contacts_changed()

    def read(self, token: object, now: int) -> None:
        """Begin a linearizable read. Reads that arrive while a round is under way share the next one."""
        self._reads.append(_Read(token, self._round + 1))
        if len(self._reads) == 1:
            self._start_round(now)
        self.release_reads(now)

    def release_reads(self, now: int) -> None:
        """Answer the reads that a quorum's heartbeats have confirmed."""
        index = self._committed()
        if index < 0 or not self._reads:
            return
        rounds = sorted((contact.heard_round for contact in self.contacts.values()), reverse=True)
        needed = self._config.quorum - 1
        heard = rounds[needed - 1] if needed else self._round
        while self._reads and self._reads[0].round <= heard:
            self._state.outbox.put(ReadReady(self._reads.popleft().token, DLedgerResponseCode.SUCCESS, index))
        if self._reads and self._round <= heard:
            self._start_round(now)

    def end(self) -> None:
        """Clear all state when this member stops leading."""
        while self._reads:
            self._state.outbox.put(ReadReady(self._reads.popleft().token, DLedgerResponseCode.NOT_LEADER, -1))

    def _start_round(self, now: int) -> None:
        self._round += 1
        for peer, contact in self.contacts.items():
            self._send(peer, contact, now)
        self._contacts_changed()

    def _send(self, peer: str, contact: PeerContact, now: int) -> None:
        contact.next_ms = now + self._config.heart_beat_time_interval_ms
        round_number = self._round
        request = HeartBeatRequest(
            group=self._config.group, remote_id=peer, local_id=self._config.self_id, leader_id=self._config.self_id,
            term=self.term, maxq=self._config.maxq or None,
        )  # fmt: skip
        self._state.outbox.send(
            peer, request, lambda request_id, reply, then: self._replied(peer, now, round_number, reply, then)
        )

    def _replied(self, peer: str, sent: int, round_number: int, reply: Reply | None, now: int) -> None:
        if not self._state.is_leader_of(self.term):
            return
        contact = self.contacts[peer]
        if not isinstance(reply, HeartBeatReply):
            if not self.is_live(peer, now):
                contact.is_in_term = False
                contact.next_ms = min(contact.next_ms, now + self._config.retry_ms)
        elif reply.code == DLedgerResponseCode.SUCCESS:
            self._heard(peer, contact, sent, round_number, reply, now)
        elif reply.code == DLedgerResponseCode.TERM_NOT_READY:
            contact.next_ms = min(contact.next_ms, now + TERM_NOT_READY_MS)
        elif reply.code == DLedgerResponseCode.EXPIRED_TERM and reply.term > self.term:
            self._state.step_down(reply.term, now)
        elif reply.code == DLedgerResponseCode.INCONSISTENT_LEADER:
            self._state.alarm(f"{peer} follows another leader in term {self.term}")
            self._state.step_down(self.term, now)
        self._contacts_changed()

    def _heard(
        self, peer: str, contact: PeerContact, sent: int, round_number: int, reply: HeartBeatReply, now: int
    ) -> None:
        contact.maxq = reply.maxq
        contact.heard_sent_ms = max(contact.heard_sent_ms, sent)
        contact.vouched_sent_ms = max(contact.vouched_sent_ms, sent)
        contact.heard_round = max(contact.heard_round, round_number)
        self._contacts_changed()
        if reply.maxq is not None and reply.maxq != self._config.maxq and peer not in self._strangers:
            self._strangers.add(peer)
            self._state.alarm(f"{peer} has other settings: {reply.maxq}, here {self._config.maxq}")
        if not contact.is_in_term:
            contact.is_in_term = True
            self._on_in_term(peer, now)
        self.release_reads(now)
