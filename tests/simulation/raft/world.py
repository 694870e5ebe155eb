"""Members, their disks, the network and time: everything outside the cores, in one heap of events.

Time is in milliseconds of the world; each member reads its own clock, which runs a little fast or slow. A step takes
one event, hands it to one core and does what the core puts out, telling the watch of all that could break a rule.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from maxq.protocol.dledger.dledger_messages import (
    DLedgerResponseCode,
    PushReply,
    PushRequest,
    Reply,
    Request,
    TransferRequest,
    VoteReply,
    VoteRequest,
)
from maxq.protocol.dledger.ledger import HardState
from maxq.replication.raft.config import RaftConfig
from maxq.replication.raft.node import RaftNode
from maxq.replication.raft.outputs import (
    Alarm,
    Answer,
    BarrierWanted,
    Commit,
    ReadReady,
    Role,
    RoleChange,
    SendRequest,
    StoreTerm,
)
from maxq.testing.sim_disk import PowerLoss
from maxq.testing.sim_rng import SimRng
from tests.simulation.raft.history import History, Operation
from tests.simulation.raft.java.member import JavaMember
from tests.simulation.raft.sim_ledger import BrokenRuleError, SimLedger, Wrote
from tests.simulation.raft.watch import Watch

RPC_SWEEP_MS: Final = 250
LedgerFactory = Callable[[str, Wrote], Any]
NodeFactory = Callable[[RaftConfig, SimLedger, HardState, SimRng, int], Any]


class Member:
    """One member: its disk, and its core while it runs."""

    def __init__(self, member_id: str, config: RaftConfig) -> None:
        self.id = member_id
        self.config = config
        self.node: RaftNode | None = None  # or a JavaMember
        self.ledger: SimLedger  # or a StoredLedger
        self.disk_term = HardState()
        self.storing: HardState | None = None
        self.was_storing: HardState | None = None  # when its power went
        self.run = 0  # how often it was started
        self.rate = 1000  # of its clock, per mille
        self.paused_until = 0
        self.lost_until = -1  # highest index that a damaged disk took from it, ever
        self.role: Role = Role.CANDIDATE
        self.term = 0
        self.wake = 0  # the tick that is scheduled
        self.is_flushing = False
        self.is_java = False
        self.open: dict[int, tuple[str, int, int, Request]] = {}  # token → who asked, its run, request id, what
        self.waiting: deque[tuple[int, list[tuple[int, Operation]]]] = deque()  # commits that clients wait for
        self.reads: dict[int, Operation] = {}

    def clock(self, now: int) -> int:
        """What its clock says."""
        return now * self.rate // 1000


class World:
    """A cluster under a seed.

    Attributes:
        loss, duplication: chance of each message, per mille.
        slow: chance of a delay of up to `slow_ms`, per mille.
        blocked: (from, to) of links that carry nothing.
        flush_ms: a sync takes from 1 to so many.
    """

    def __init__(
        self, rng: SimRng, config: dict[str, Any], size: int, make_node: NodeFactory = RaftNode,
        make_ledger: LedgerFactory = SimLedger,
    ) -> None:  # fmt: skip
        self.rng = rng
        self.now = 0
        self.loss = self.duplication = self.slow = 0
        self.slow_ms = 1000
        self.flush_ms = 4
        self.blocked: set[tuple[str, str]] = set()
        self.trace: list[str] = []
        self.alarms: list[str] = []
        self.marks: set[str] = set()
        self.history = History()
        self.steps = 0
        self.late_order_ms = 0  # the next order to hand over takes so long; others do not reach who gave it then
        self.crash_after = 0  # chance of a crash right after a promise was stored or made, per mille
        self.on_stopped: Callable[[Member], None] = lambda member: None
        self.on_promise: Callable[[Member], None] = lambda member: None
        self._make_node = make_node
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._tokens = 0
        self._asked: dict[tuple[str, int, int], int] = {}  # sender, run, request id → when
        ids = tuple(f"n{number}" for number in range(size))
        self.members = {
            member_id: Member(member_id, RaftConfig(self_id=member_id, peers=ids, group="g", maxq="same", **config))
            for member_id in ids
        }
        self.everyone: Sequence[Member] = tuple(self.members.values())
        self.watch = Watch(self.everyone)
        for member in self.everyone:
            member.ledger = make_ledger(member.id, self.watch.wrote)
        self.at(RPC_SWEEP_MS, self._sweep)

    # --- time ---

    def at(self, delay: int, call: Callable[..., None], *arguments: Any) -> None:
        """Call later."""
        self._sequence += 1
        heapq.heappush(self._events, (self.now + delay, self._sequence, call, arguments))

    def run_until(self, end: int, stop: Callable[[], bool] | None = None) -> bool:
        """Go on until `end`, or until `stop` says so. Did it?"""
        events = self._events
        while events and events[0][0] <= end:
            self.now, _, call, arguments = heapq.heappop(events)
            self.steps += 1
            try:
                call(*arguments)
            except PowerLoss:
                self._power_lost()
            if stop is not None and stop():
                return True
        self.now = end
        return False

    def _power_lost(self) -> None:
        """In the middle of what a core was doing."""
        for member in self.everyone:
            if member.ledger.has_stopped and member.node is not None:
                self.marks.add("power lost within a write")
                self.crash(member)
                self.on_stopped(member)

    def say(self, text: str) -> None:
        """A line of the story."""
        self.trace.append(f"{self.now:6} {text}")

    # --- members ---

    def start(self, member: Member) -> None:
        """Start or restart it."""
        member.run += 1
        stored = member.ledger.stored_term()
        if stored is not None and stored != member.disk_term:
            if stored != member.was_storing:
                raise BrokenRuleError(f"{member.id} stored {member.disk_term}, its file says {stored}")
            member.disk_term = stored
        member.role, member.term = Role.CANDIDATE, member.disk_term.term
        member.ledger.live_commit = member.ledger.committed_index
        rng = self.rng.fork(f"{member.id}.{member.run}")
        make_node: NodeFactory = JavaMember if member.is_java else self._make_node
        member.node = make_node(member.config, member.ledger, member.disk_term, rng, member.clock(self.now))
        member.wake = 0
        member.is_flushing = False
        self.say(f"{member.id} starts at {member.disk_term}, log ends {member.ledger.end_index}")
        self.settle(member)

    def crash(self, member: Member, loses_synced: int = 0, is_seen: bool = True, *, loses_disk: bool = False) -> None:
        """Its power goes.

        Args:
            loses_synced: durable entries that a damaged file takes from it.
            is_seen: its connections break at once, else peers must find out.
            loses_disk: it starts again with an empty one.
        """
        member.was_storing = member.storing
        if member.storing is not None and not member.ledger.has_stopped and self.rng.chance(0.5):
            try:
                member.ledger.term_stored(member.storing)
                member.disk_term = member.storing
            except PowerLoss:
                pass  # in the middle of that; the file says what became of it
        member.storing = None
        member.node = None
        if loses_synced or loses_disk:
            member.lost_until = max(member.lost_until, member.ledger.durable_index)
        member.ledger.crash(self.rng, loses_synced)
        if loses_disk:
            member.ledger.replace_disk()
            member.disk_term = HardState()
        member.open.clear()
        member.waiting.clear()
        member.reads.clear()
        self.say(f"{member.id} crashes, log ends {member.ledger.end_index}, stored {member.disk_term}")
        if is_seen:
            for other in self.everyone:
                if other is not member and other.node is not None:
                    self.at(1 + self.rng.below(5), self._peer_lost, other, other.run, member.id)

    def _peer_lost(self, member: Member, run: int, peer: str) -> None:
        if member.node is not None and member.run == run and (peer, member.id) not in self.blocked:
            member.node.peer_lost(peer, member.clock(self.now))
            self.settle(member)

    def settle(self, member: Member) -> None:
        """Do what its core wants done."""
        node = member.node
        while node is not None:
            outputs = node.take()
            if not outputs:
                break
            for output in outputs:
                self._do(member, node, output)
        if node is None:
            return
        if not member.is_flushing and member.ledger.durable_index < member.ledger.end_index:
            self._flush(member)
        self.watch.promises(self.now)
        due = max(-(-node.next_tick() * 1000 // member.rate), self.now + 1)
        if due < member.wake or member.wake <= self.now:
            member.wake = due
            if due < 1 << 50:
                self.at(due - self.now, self._tick, member, member.run, due)

    def _do(self, member: Member, node: RaftNode, output: object) -> None:
        kind = type(output)
        if kind is SendRequest:
            self._asked[member.id, member.run, output.request_id] = self.now  # type: ignore[attr-defined]
            self._send(member, output)  # type: ignore[arg-type]
        elif kind is Answer:
            self._answer(member, output)  # type: ignore[arg-type]
        elif isinstance(output, Commit):
            self.watch.committed_by(member, output.index, member.role is Role.LEADER, member.term)
            self._tell_clients(member, output.index)
        elif isinstance(output, RoleChange):
            self._role_changed(member, output)
        elif isinstance(output, StoreTerm):
            self._store(member, output.state)
        elif isinstance(output, BarrierWanted):
            index = member.ledger.append_own(output.term, b"")
            node.appended(index, index, member.clock(self.now))
        elif isinstance(output, ReadReady):
            self._read_ready(member, output)
        elif isinstance(output, Alarm):
            self.say(f"{member.id} alarm: {output.text}")
            self.alarms.append(output.text)
        else:
            raise AssertionError(output)

    def _role_changed(self, member: Member, change: RoleChange) -> None:
        self.say(f"{member.id} is {change.role.value} in {change.term}, leader {change.leader_id}")
        if change.term < member.term:
            raise BrokenRuleError(f"{member.id} goes from term {member.term} to {change.term}")
        member.role, member.term = change.role, change.term
        member.ledger.is_led = change.role is Role.LEADER
        if change.role is Role.LEADER:
            if not member.is_java:  # which may lead by the others' votes
                if member.disk_term != HardState(change.term, member.id):
                    raise BrokenRuleError(f"{member.id} leads {change.term}, stored is {member.disk_term}")
                self.watch.votes(member.id, change.term, member.id)
            self.watch.leads(member, change.term)
        else:
            member.waiting.clear()

    def _tick(self, member: Member, run: int, due: int) -> None:
        if member.node is None or member.run != run or member.wake != due:
            return
        if member.paused_until > self.now:
            self.at(member.paused_until - self.now, self._tick, member, run, due)
            return
        member.wake = 0
        member.node.tick(member.clock(self.now))
        self.settle(member)

    # --- disks ---

    def _store(self, member: Member, state: HardState) -> None:
        if member.storing is not None and not member.is_java:
            raise BrokenRuleError(f"{member.id} stores {state} while {member.storing} is being stored")
        if member.is_java:  # it says what it likes before it is stored; here it always is
            member.disk_term = state
            return
        if state.term < member.disk_term.term:
            raise BrokenRuleError(f"{member.id} stores {state} over {member.disk_term}")
        member.storing = state
        self.at(1 + self.rng.below(self.flush_ms), self._stored, member, member.run, state)

    def _stored(self, member: Member, run: int, state: HardState) -> None:
        if member.node is None or member.run != run:
            return
        member.ledger.term_stored(state)
        member.disk_term, member.storing = state, None
        if self.crash_after and self.rng.below(250) < self.crash_after:
            self.at(self.rng.below(3), self.on_promise, member)
        member.node.term_stored(state, member.clock(self.now))
        self.settle(member)

    def _flush(self, member: Member) -> None:
        member.is_flushing = True
        member.ledger.begin_flush()
        self.at(1 + self.rng.below(self.flush_ms), self._flushed, member, member.run)

    def _flushed(self, member: Member, run: int) -> None:
        if member.node is None or member.run != run:
            return
        member.is_flushing = False
        member.ledger.end_flush()
        member.node.durable(member.ledger.durable_index, member.clock(self.now))
        self.settle(member)

    # --- network ---

    def _send(self, member: Member, output: SendRequest) -> None:
        target_run = self.members[output.peer].run
        if self.late_order_ms and isinstance(output.message, TransferRequest):
            late, self.late_order_ms = self.late_order_ms, 0
            self.at(late, self._order_comes, member.id, member.run, target_run, output)
            return
        self._carry(member.id, output.peer, self._arrive, member.id, member.run, target_run, output)

    def _order_comes(self, source: str, run: int, target_run: int, output: SendRequest) -> None:
        """Late, and while nothing reaches who gave it: what comes of the order it does not hear."""
        lost = {(member.id, source) for member in self.everyone} - self.blocked
        self.blocked = self.blocked | lost
        self.say(f"the order of {source} reaches {output.peer}, and nothing reaches {source}")
        self.at(self.members[source].config.election_timeout_ms, self._hears_again, lost)
        self._arrive(source, run, target_run, output)

    def _hears_again(self, lost: set[tuple[str, str]]) -> None:
        self.blocked = self.blocked - lost

    def _carry(self, source: str, target: str, call: Callable[..., None], *arguments: Any) -> None:
        rng = self.rng
        draw = rng.next64()
        if draw % 1000 < self.loss or (source, target) in self.blocked:
            return
        delay = 1 + (draw >> 10) % 3
        if (draw >> 16) % 1000 < self.slow:
            delay += rng.below(self.slow_ms)
        self.at(delay, call, *arguments)
        if (draw >> 32) % 1000 < self.duplication:
            self.at(delay + 1 + rng.below(self.slow_ms), call, *arguments)

    def _arrive(self, source: str, run: int, target_run: int, output: SendRequest) -> None:
        """A request reaches the process that the connection was made to, or none."""
        member, request_id = self.members[output.peer], output.request_id
        if member.node is None or member.run != target_run:
            if self.rng.chance(0.5):  # refused
                self.at(1, self._replied, source, run, request_id, None)
            return
        if member.paused_until > self.now:
            self.at(member.paused_until - self.now, self._arrive, source, run, target_run, output)
            return
        self._tokens += 1
        member.open[self._tokens] = (source, run, request_id, output.message)
        member.node.request(self._tokens, output.message, member.clock(self.now))
        self.settle(member)

    def _answer(self, member: Member, answer: Answer) -> None:
        asked = member.open.pop(answer.token, None)  # type: ignore[call-overload]
        if asked is None:
            raise BrokenRuleError(f"{member.id} answers {answer.token} twice, or what nobody asked: {answer.reply}")
        source, run, request_id, request = asked
        reply = answer.reply
        if member.is_java:
            pass  # its word is as good as its disk
        elif isinstance(reply, PushReply) and isinstance(request, PushRequest):
            self.watch.answers_push(member, request, reply)
        elif isinstance(reply, VoteReply) and isinstance(request, VoteRequest) and not request.is_pre_vote:
            self.watch.answers_vote(member, request.leader_id or "", reply)
        if self.crash_after and reply.code is DLedgerResponseCode.SUCCESS and self.rng.below(1000) < self.crash_after:
            self.at(self.rng.below(3), self.on_promise, member)
        if source:
            self._carry(member.id, source, self._replied, source, run, request_id, reply)

    def _replied(self, source: str, run: int, request_id: int, reply: Reply | None) -> None:
        member = self.members[source]
        if member.node is None or member.run != run:
            return
        if member.paused_until > self.now:
            self.at(member.paused_until - self.now, self._replied, source, run, request_id, reply)
            return
        if self._asked.pop((source, run, request_id), None) is not None:
            member.node.reply(request_id, reply, member.clock(self.now))
            self.settle(member)

    def _sweep(self) -> None:
        """Requests that nobody answered in time."""
        for (source, run, request_id), sent in list(self._asked.items()):
            member = self.members[source]
            if member.run != run or member.node is None:
                del self._asked[source, run, request_id]
            elif self.now - sent >= member.config.rpc_timeout_ms:
                self._replied(source, run, request_id, None)
        self.at(RPC_SWEEP_MS, self._sweep)

    # --- clients and operators ---

    def append(self, member: Member, values: Sequence[int]) -> None:
        """Send a client's batch to `member`, whether or not it considers itself the leader."""
        node = member.node
        if node is None or member.role is not Role.LEADER or member.paused_until > self.now:
            return
        if node.append_refusal(member.clock(self.now)) is not None:
            return
        operations = []
        first = member.ledger.end_index + 1
        for value in values:
            operation = self.history.begin("append", value, self.now)
            index = member.ledger.append_own(member.term, b"%d" % value)
            operations.append((index, operation))
        last = member.ledger.end_index
        member.waiting.append((last, operations))
        node.appended(first, last, member.clock(self.now))
        self.settle(member)

    def _tell_clients(self, member: Member, committed: int) -> None:
        while member.waiting and member.waiting[0][0] <= committed:
            for index, operation in member.waiting.popleft()[1]:
                self.history.end(operation, index, operation.value, self.now)
                self.marks.add("appends acknowledged")

    def read(self, member: Member) -> None:
        """A client asks `member` for the last value."""
        if member.node is None or member.paused_until > self.now:
            return
        self._tokens += 1
        member.reads[self._tokens] = self.history.begin("read", -1, self.now)
        member.node.read_index(self._tokens, member.clock(self.now))
        self.settle(member)

    def _read_ready(self, member: Member, ready: ReadReady) -> None:
        operation = member.reads.pop(ready.token)  # type: ignore[call-overload]
        if ready.code is not DLedgerResponseCode.SUCCESS:
            return
        if ready.index > member.ledger.live_commit:
            raise BrokenRuleError(f"{member.id} reads {ready.index}, shows {member.ledger.live_commit}")
        self.history.end(operation, ready.index, self._value_at(member, ready.index), self.now)
        self.marks.add("reads answered")

    def _value_at(self, member: Member, index: int) -> int:
        """The newest value up to there; what retention took comes from what was committed."""
        while index >= 0:
            begins = member.ledger.begin_index
            body = member.ledger.entry(index).body if index >= begins else self.watch.committed[index].body
            if body:
                return int(body)
            index -= 1
        return -1

    def transfer(self, leader: Member, transferee: Member) -> None:
        """An operator moves leadership."""
        if leader.node is None or leader.paused_until > self.now:
            return
        self._tokens += 1
        request = TransferRequest(
            group="g", remote_id=leader.id, term=leader.term, transfer_id=leader.id, transferee_id=transferee.id
        )
        leader.open[self._tokens] = ("", 0, 0, request)
        leader.node.request(self._tokens, request, leader.clock(self.now))
        self.settle(leader)
