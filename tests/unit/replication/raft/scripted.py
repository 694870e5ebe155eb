"""Groups of cores that do what a script says, one step at a time: the stories in tests/data/raft/*.txt.

A script is a list of blocks: commands, a line `----`, and what the group said and did, as it was recorded. Commands:

    members n0 n1 n2 [setting=value]     cores with empty disks; times are in milliseconds
    disk n1 terms 1 1 2 [term=2] [vote=n0] [committed=0]     what n1 finds when it starts
    start n0 …                           (restart: the same)
    crash n1 [lose=2]                    its power goes; synced entries are lost only if it says so
    at 500 [n0 …]                        it is 500 ms, everybody (or n0 alone) ticks; messages stay where they are
    run 300                              300 ms pass, messages are carried; only roles, commits and alarms are shown
    deliver [n0 n1]                      all messages (from n0 to n1 alone) are carried, with what they lead to
    lose n0 n1                           messages on their way from n0 to n1 are lost (their askers are told)
    keep n0 n1 / release                 messages from n0 to n1 are put aside now / are back
    block n0 n1 / unblock                nothing gets from n0 to n1 / everything gets everywhere
    append n0 a b c                      a client's batch for n0
    read n0                              a linearizable read
    transfer n0 n1                       an operator moves leadership
    disconnect n1 n0                     n1 sees its connection with n0 break
    hold n1 / sync n1                    n1's disk syncs nothing until told / now
    forget n0 5                          n0's retention: its log begins with 5
    status                               role, term, vote, log (terms from begin on), committed

Lines starting with # are comments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from maxq.protocol.dledger.dledger_messages import (
    DLedgerResponseCode,
    HeartBeatReply,
    HeartBeatRequest,
    PushReply,
    PushRequest,
    PushType,
    Reply,
    Request,
    TransferReply,
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
    Output,
    ReadReady,
    RoleChange,
    SendRequest,
    StoreTerm,
)
from maxq.testing.sim_rng import SimRng
from tests.simulation.raft.sim_ledger import SimLedger

_SETTINGS: dict[str, Any] = {
    "heart_beat_time_interval_ms": 100, "java_heart_beat_time_interval_ms": 100, "min_vote_interval_ms": 30,
    "max_vote_interval_ms": 100, "min_take_leadership_vote_interval_ms": 5, "max_take_leadership_vote_interval_ms": 20,
    "rpc_timeout_ms": 300, "retry_ms": 20, "commit_interval_ms": 10, "leadership_transfer_wait_timeout_ms": 100,
    "buffered_push_overdue_ms": 100,
}  # fmt: skip
#: Members were started so long before, and have waited: they may elect at once.
_WAITED_MS = 300


@dataclass(slots=True)
class _Message:
    source: str
    target: str
    request_id: int
    content: Request | Reply
    run: int


class _Member:
    def __init__(self, member_id: str, config: RaftConfig) -> None:
        self.id = member_id
        self.config = config
        self.ledger = SimLedger(member_id, lambda ledger, entry, term: None)
        self.disk_term = HardState()
        self.node: RaftNode | None = None
        self.run = 0
        self.term = 0
        self.is_held = False


class ScriptedGroup:
    """Run commands, get lines."""

    def __init__(self) -> None:
        self._now = 0
        self._members: dict[str, _Member] = {}
        self._messages: list[_Message] = []
        self._kept: list[_Message] = []
        self._blocked: set[tuple[str, str]] = set()
        self._lines: list[str] = []
        self._is_brief = False

    def do(self, line: str) -> list[str]:
        """One command; what it led to."""
        name, *words = line.split()
        command: Callable[..., None] = getattr(self, f"_do_{name}")
        self._lines = []
        command(*words)
        return self._lines

    # --- commands ---

    def _do_members(self, *words: str) -> None:
        ids = tuple(word for word in words if "=" not in word)
        settings = dict(_SETTINGS)
        for word in words:
            key, _, value = word.partition("=")
            if value:
                settings[key] = tuple(value.split(",")) if key == "preferred_leader_ids" else int(value)
        for member_id in ids:
            config = RaftConfig(self_id=member_id, peers=ids, group="g", maxq="same", **settings)
            self._members[member_id] = _Member(member_id, config)

    def _do_disk(self, member_id: str, *words: str) -> None:
        member = self._members[member_id]
        facts = dict(word.split("=") for word in words if "=" in word)
        for term in (int(word) for word in words[1:] if "=" not in word):
            member.ledger.append_own(term, f"t{term}i{member.ledger.end_index + 1}".encode())
        member.ledger.begin_flush()
        member.ledger.end_flush()
        member.ledger.committed_index = int(facts.get("committed", -1))
        member.disk_term = HardState(int(facts.get("term", max(member.ledger.end_term, 0))), facts.get("vote"))

    def _do_start(self, *ids: str) -> None:
        for member_id in ids:
            member = self._members[member_id]
            member.run += 1
            member.ledger.live_commit = member.ledger.committed_index
            rng = SimRng(int(member_id[1:]) + 10 * member.run)
            member.node = RaftNode(member.config, member.ledger, member.disk_term, rng, self._now - _WAITED_MS)
            self._settle(member)

    def _do_crash(self, member_id: str, lose: str = "lose=0") -> None:
        member = self._members[member_id]
        member.node = None
        member.ledger.crash(_Unlucky(0), int(lose.partition("=")[2]))
        self._messages = [m for m in self._messages if m.source != member_id]

    def _do_at(self, time: str, *ids: str) -> None:
        self._now = int(time)
        for member in [self._members[member_id] for member_id in ids] or self._running():
            assert member.node is not None
            member.node.tick(self._now)
            self._settle(member)

    def _do_run(self, duration: str) -> None:
        end = self._now + int(duration)
        self._is_brief = True
        self._carry_all()
        while True:
            due, member = min(((self._due(member), member) for member in self._running()), key=lambda pair: pair[0])
            if due > end or member.node is None:
                break
            self._now = due
            member.node.tick(due)
            self._settle(member)
            self._carry_all()
        self._now = end
        self._is_brief = False

    def _do_deliver(self, source: str = "", target: str = "") -> None:
        self._carry_all(source, target)

    def _do_lose(self, source: str, target: str) -> None:
        for message in [m for m in self._messages if (m.source, m.target) == (source, target)]:
            self._messages.remove(message)
            self._fail(message)

    def _do_keep(self, source: str, target: str) -> None:
        self._kept += [m for m in self._messages if (m.source, m.target) == (source, target)]
        self._messages = [m for m in self._messages if (m.source, m.target) != (source, target)]

    def _do_release(self) -> None:
        self._messages += self._kept
        self._kept = []

    def _do_block(self, source: str, target: str) -> None:
        self._blocked.add((source, target))

    def _do_unblock(self) -> None:
        self._blocked.clear()

    def _do_append(self, member_id: str, *bodies: str) -> None:
        member = self._members[member_id]
        assert member.node is not None
        refusal = member.node.append_refusal(self._now)
        if refusal is not None:
            self._lines.append(f"{member_id}: {refusal.name}")
            return
        first = member.ledger.end_index + 1
        for body in bodies:
            member.ledger.append_own(member.term, body.encode())
        member.node.appended(first, member.ledger.end_index, self._now)
        self._settle(member)

    def _do_read(self, member_id: str) -> None:
        member = self._members[member_id]
        assert member.node is not None
        member.node.read_index("read", self._now)
        self._settle(member)

    def _do_transfer(self, leader: str, transferee: str) -> None:
        member = self._members[leader]
        assert member.node is not None
        request = TransferRequest(
            group="g", remote_id=leader, term=member.term, transfer_id=leader, transferee_id=transferee
        )
        member.node.request(_Message("operator", leader, 0, request, 0), request, self._now)
        self._settle(member)

    def _do_disconnect(self, member_id: str, peer: str) -> None:
        member = self._members[member_id]
        assert member.node is not None
        member.node.peer_lost(peer, self._now)
        self._settle(member)

    def _do_hold(self, member_id: str) -> None:
        self._members[member_id].is_held = True

    def _do_sync(self, member_id: str) -> None:
        self._members[member_id].is_held = False
        self._settle(self._members[member_id])

    def _do_forget(self, member_id: str, index: str) -> None:
        self._members[member_id].ledger.forget_before(int(index))

    def _do_status(self) -> None:
        for member in self._members.values():
            ledger, node = member.ledger, member.node
            terms = [ledger.term_of(i) for i in range(max(ledger.begin_index, 0), ledger.end_index + 1)]
            begins = f" from {ledger.begin_index}" if ledger.begin_index > 0 else ""
            log = f"log{begins} {' '.join(map(str, terms)) or '-'}"
            if node is None:
                self._lines.append(f"{member.id} down, {log}")
                continue
            status = node.status()
            extra = "".join(f", {key} {status[key]}" for key in ("frozen", "amnesiacUntil") if key in status)
            self._lines.append(
                f"{member.id} {node.role.value} of {node.term}, leader {node.leader_id or '-'}, vote "
                f"{member.disk_term.voted_for or '-'}, {log}, committed {node.committed_index}{extra}"
            )

    # --- how it runs ---

    def _running(self) -> list[_Member]:
        return [member for member in self._members.values() if member.node is not None]

    def _due(self, member: _Member) -> int:
        assert member.node is not None
        return max(member.node.next_tick(), self._now + 1)

    def _settle(self, member: _Member) -> None:
        node = member.node
        while node is not None:
            outputs = node.take()
            if not outputs and (member.is_held or member.ledger.durable_index == member.ledger.end_index):
                return
            for output in outputs:
                self._perform(member, node, output)
            if not outputs:
                member.ledger.begin_flush()
                member.ledger.end_flush()
                node.durable(member.ledger.durable_index, self._now)

    def _perform(self, member: _Member, node: RaftNode, output: Output) -> None:
        if isinstance(output, SendRequest):
            target = self._members[output.peer]
            self._messages.append(_Message(member.id, output.peer, output.request_id, output.message, target.run))
        elif isinstance(output, Answer):
            self._answered(member, output)
        elif isinstance(output, StoreTerm):
            member.disk_term = output.state
            node.term_stored(output.state, self._now)
        elif isinstance(output, Commit):
            member.ledger.live_commit = output.index
            self._lines.append(f"{member.id} commits {output.index}")
        elif isinstance(output, RoleChange):
            member.term = output.term
            member.ledger.is_led = output.leader_id == member.id
            self._lines.append(f"{member.id} is {output.role.value} of {output.term}, leader {output.leader_id or '-'}")
        elif isinstance(output, BarrierWanted):
            index = member.ledger.append_own(output.term, b"")
            node.appended(index, index, self._now)
        elif isinstance(output, ReadReady):
            self._lines.append(f"{member.id} read: {output.code.name} {output.index}")
        else:
            assert isinstance(output, Alarm)
            self._lines.append(f"{member.id} alarm: {output.text}")

    def _answered(self, member: _Member, answer: Answer) -> None:
        asked = answer.token
        assert isinstance(asked, _Message)
        if asked.source == "operator":
            self._lines.append(f"operator: {answer.reply.code.name}")
        else:
            run = self._members[asked.source].run
            self._messages.append(_Message(member.id, asked.source, asked.request_id, answer.reply, run))

    def _carry_all(self, source: str = "", target: str = "") -> None:
        links = ((source, target), (target, source))
        while True:
            ready = (m for m in self._messages if not source or (m.source, m.target) in links)
            message = next(ready, None)
            if message is None:
                return
            self._messages.remove(message)
            self._carry(message)

    def _carry(self, message: _Message) -> None:
        member = self._members[message.target]
        if (message.source, message.target) in self._blocked or member.node is None or member.run != message.run:
            self._fail(message)
            return
        if not self._is_brief:
            self._lines.append(f"  {message.source}→{message.target} {_shown(message.content)}")
        if isinstance(message.content, (VoteRequest, HeartBeatRequest, PushRequest, TransferRequest)):
            member.node.request(message, message.content, self._now)
        else:
            member.node.reply(message.request_id, message.content, self._now)  # type: ignore[arg-type]
        self._settle(member)

    def _fail(self, message: _Message) -> None:
        """A request that is lost fails at once; an answer that is lost, too."""
        is_request = isinstance(message.content, (VoteRequest, HeartBeatRequest, PushRequest, TransferRequest))
        asker = self._members[message.source if is_request else message.target]
        if asker.node is not None:
            asker.node.reply(message.request_id, None, self._now)
            self._settle(asker)


class _Unlucky(SimRng):
    """Nothing that was not synced outlives a crash."""

    def below(self, bound: int) -> int:
        return 0


def _shown(content: Request | Reply) -> str:
    if isinstance(content, VoteRequest):
        kind = "PROBE" if content.is_pre_vote else "VOTE"
        return f"{kind} {content.term} log {content.ledger_end_term}/{content.ledger_end_index}"
    if isinstance(content, VoteReply):
        return f"{content.vote_result.name} {content.term}"
    if isinstance(content, HeartBeatRequest):
        return f"HEART_BEAT {content.term}"
    if isinstance(content, PushRequest):
        what = content.type.name
        if content.type is not PushType.COMMIT:
            last = f"..{content.last_index}" if content.last_index != content.first_index else ""
            what += f" {content.first_index}{last}"
        return f"{what} of {content.term} commit {content.commit_index}"
    if isinstance(content, PushReply):
        return f"{content.code.name} {'' if content.index is None else content.index} ends {content.end_index}"
    if isinstance(content, TransferRequest):
        return f"TRANSFER to {content.transferee_id} at {content.take_leadership_ledger_index}"
    assert isinstance(content, (HeartBeatReply, TransferReply))
    return content.code.name + (f" {content.term}" if content.code is DLedgerResponseCode.EXPIRED_TERM else "")
