"""The rules of dledger.md §19, checked when something happens that could break them, against a history of everything
that ever happened.

Log Matching is kept by induction: whoever writes an entry must have, before it, an entry of the term that stood there
when that (term, index) was first written, and the content is a function of (term, index). So equal (index, term) means
equal logs before it, in every log there ever was, and one comparison per entry written is enough.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from maxq.protocol.dledger.dledger_messages import DLedgerEntry, PushReply, PushRequest, PushType, VoteReply, VoteResult
from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode as Code
from maxq.replication.raft.outputs import Role
from tests.simulation.raft.sim_ledger import BrokenRuleError, SimLedger

if TYPE_CHECKING:
    from tests.simulation.raft.world import Member


class Watch:
    """The ghost history and its rules."""

    def __init__(self, members: Sequence["Member"]) -> None:
        self.members = members
        self.quorum = len(members) // 2 + 1
        self.leaders: dict[int, str] = {}  # term → who led it
        self.committed: dict[int, DLedgerEntry] = {}  # index → the entry that was committed there
        self.last_committed = -1
        self._commits_by_term: dict[int, int] = {}  # leader's term → highest index it committed
        self._written: dict[tuple[int, int], tuple[DLedgerEntry, int]] = {}  # (term, index) → entry, term before it
        self._votes: dict[tuple[str, int], str] = {}  # (member, term) → candidate

    def promises(self, now: int) -> None:
        """Rule 10: at most one member may say what only the leader may (a lock, an offset) at any time. Members of
        Java's elect whom they like, so it does not hold where there are some."""
        if any(member.is_java for member in self.members):
            return
        sure = [
            member.id
            for member in self.members
            if member.role is Role.LEADER
            and member.node is not None
            and member.paused_until <= now
            and member.node.promise_refusal(member.clock(now)) is None
        ]
        if len(sure) > 1:
            raise BrokenRuleError(f"{' and '.join(sure)} both speak for the group")

    def wrote(self, ledger: SimLedger, entry: DLedgerEntry, previous_term: int) -> None:
        """Rules 3 and 4: a member writes an entry. `previous_term` -1: its log begins here."""
        known = self._written.get((entry.term, entry.index))
        if known is None:
            self._written[entry.term, entry.index] = (entry, previous_term)
            return
        first, before = known
        if first is not entry and first != entry:
            raise BrokenRuleError(f"{ledger.owner} writes other bytes as entry {entry.index} of term {entry.term}")
        if previous_term != before and ledger.end_index >= ledger.begin_index >= 0:
            raise BrokenRuleError(
                f"{ledger.owner} writes entry {entry.index} of term {entry.term} behind one of term {previous_term}, "
                f"it stood behind one of {before}"
            )

    def leads(self, member: "Member", term: int) -> None:
        """Rules 1 and 5: a member becomes leader."""
        other = self.leaders.setdefault(term, member.id)
        if other != member.id:
            raise BrokenRuleError(f"{other} and {member.id} both lead term {term}")
        needed = max((index for by, index in self._commits_by_term.items() if by < term), default=-1)
        if needed >= 0:
            ledger = member.ledger
            if needed > ledger.end_index or (
                needed >= ledger.begin_index and ledger.term_of(needed) != self.committed[needed].term
            ):
                raise BrokenRuleError(f"{member.id} leads term {term} without the committed entry {needed}")

    def committed_by(self, member: "Member", index: int, is_leader: bool, term: int) -> None:
        """Rules 6 and 8: a member shows everything up to `index` as committed."""
        ledger = member.ledger
        if index <= ledger.live_commit:
            raise BrokenRuleError(f"{member.id} commits {index} after {ledger.live_commit}")
        if index > ledger.end_index:
            raise BrokenRuleError(f"{member.id} commits {index}, its log ends at {ledger.end_index}")
        if is_leader and index > self.last_committed:
            self._check_holders(member, index, term)
        for position in range(max(ledger.live_commit + 1, ledger.begin_index), index + 1):
            entry = ledger.entry(position)
            known = self.committed.setdefault(position, entry)
            if known is not entry and known != entry:
                raise BrokenRuleError(
                    f"{member.id} commits term {entry.term} at {position}, where term {known.term} was committed"
                )
        if index > self.last_committed:
            if not is_leader:
                raise BrokenRuleError(f"{member.id} follows and commits {index} before any leader did")
            self.last_committed = index
        if is_leader:
            self._commits_by_term[term] = max(self._commits_by_term.get(term, -1), index)
        ledger.live_commit = index

    def _check_holders(self, leader: "Member", index: int, term: int) -> None:
        entry = leader.ledger.entry(index)
        holders = sum(self._holds(member, entry) for member in self.members)
        needed = self.quorum if entry.term == term else len(self.members)
        if holders < needed:
            raise BrokenRuleError(
                f"{leader.id} commits {index} of term {entry.term} in term {term}: {holders} have it durably, "
                f"needed {needed}"
            )

    @staticmethod
    def _holds(member: "Member", entry: DLedgerEntry) -> bool:
        """Durably, or did before its disk was damaged."""
        ledger = member.ledger
        if entry.index <= ledger.amnesiac_until or entry.index <= member.lost_until:
            return True
        return entry.index < ledger.begin_index or (entry.index <= ledger.durable_index and ledger.has(entry))

    def answers_push(self, member: "Member", request: PushRequest, reply: PushReply) -> None:
        """Rule 9: what a follower says it has, it has durably, in that term."""
        if reply.code != Code.SUCCESS or request.type is PushType.COMMIT:
            return
        if member.disk_term.term != request.term:
            raise BrokenRuleError(f"{member.id} acknowledges in term {request.term}, stored is {member.disk_term}")
        ledger = member.ledger
        last = (request.entries or tuple(request.run.entries() if request.run else ()))[-1]
        if last.index > ledger.durable_index:
            raise BrokenRuleError(f"{member.id} acknowledges {last.index}, durable is {ledger.durable_index}")
        if last.index >= ledger.begin_index and not ledger.has(last):
            raise BrokenRuleError(f"{member.id} acknowledges {last.index} of term {last.term}, it has another")

    def answers_vote(self, member: "Member", candidate: str, reply: VoteReply) -> None:
        """Rule 2: a vote that is given is stored, and the only one of its term."""
        if reply.vote_result is VoteResult.ACCEPT:
            if (member.disk_term.term, member.disk_term.voted_for) != (reply.term, candidate):
                raise BrokenRuleError(f"{member.id} votes for {candidate} in {reply.term}, stored: {member.disk_term}")
            self.votes(member.id, reply.term, candidate)

    def votes(self, voter: str, term: int, candidate: str) -> None:
        """Rule 2, the candidate's own vote among them."""
        other = self._votes.setdefault((voter, term), candidate)
        if other != candidate:
            raise BrokenRuleError(f"{voter} votes for {other} and for {candidate} in term {term}")
