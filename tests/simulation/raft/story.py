"""One cluster's life under a seed: clients, faults of every kind for some seconds, then peace, in which it must find a
leader, commit, and make all logs equal.

Which faults a seed may have is drawn first, so that some seeds know only one kind and others all of them.
"""

from typing import Any, Final, cast

from maxq.replication.raft.node import RaftNode
from maxq.replication.raft.outputs import Role
from maxq.testing.sim_rng import SimRng
from tests.simulation.raft.sim_ledger import BrokenRuleError, SimLedger
from tests.simulation.raft.stored_ledger import StoredLedger
from tests.simulation.raft.world import LedgerFactory, Member, NodeFactory, World

KINDS: Final = (
    "crash", "power", "partition", "one way", "ring", "loss", "duplication", "delay", "pause", "drift", "transfer",
    "slow disk", "retention", "damage", "moment",
)  # fmt: skip
ELECTION_TIMEOUTS: Final = 10
#: What a seed may put in a member's settings, besides the defaults.
_SMALL: Final[dict[str, Any]] = {
    "min_vote_interval_ms": 30, "max_vote_interval_ms": 150, "min_take_leadership_vote_interval_ms": 3,
    "max_take_leadership_vote_interval_ms": 20, "rpc_timeout_ms": 500, "retry_ms": 20, "commit_interval_ms": 20,
    "buffered_push_overdue_ms": 100, "leadership_transfer_wait_timeout_ms": 150, "max_buffered_pushes": 8,
}  # fmt: skip


class RaftStory:
    """Tell it with `run`.

    Attributes:
        history: lines of what happened, for a story that failed.
        marks: what happened at all.
    """

    clients_stop = True  # before the logs are compared

    def __init__(
        self, seed: int, make_node: NodeFactory = RaftNode, size: int = 0, make_ledger: LedgerFactory = SimLedger
    ) -> None:
        self.seed = seed
        self.rng = rng = SimRng(seed * 2 + 1)
        self.kinds = {kind for kind in KINDS if rng.below(3) == 0}
        if not self.kinds or rng.below(8) == 0:
            self.kinds = set(KINDS)
        if SimRng(seed).fork("new disk").below(4) == 0:
            self.kinds.add("new disk")
        beat = 40 + rng.below(100)
        config = dict(
            _SMALL, heart_beat_time_interval_ms=beat, java_heart_beat_time_interval_ms=beat,
            max_push_bytes=(64, 256, 4096)[rng.below(3)], push_window=1 + rng.below(6),
            preferred_leader_ids=("n1",) if rng.below(6) == 0 else (),
        )  # fmt: skip
        self.election_ms = 3 * beat
        self.world = World(rng.fork("world"), config, size or (3, 3, 5)[rng.below(3)], make_node, make_ledger)
        self.world.on_promise = self._flap
        self._orders = SimRng(seed).fork("orders")
        self._next_value = 0
        self._is_quiet = False  # no faults any more
        self._is_over = False  # no clients any more

    @property
    def history(self) -> list[str]:
        """The story so far."""
        return self.world.trace

    @property
    def marks(self) -> set[str]:
        """What happened."""
        return self.world.marks

    def run(self) -> None:
        """Run the story to its end; raises BrokenRuleError if a rule is broken."""
        world = self.world
        for member in world.everyone:
            if "drift" in self.kinds:
                member.rate = 900 + self.rng.below(200)
            if "new disk" in self.kinds:
                member.ledger.replace_disk()
            world.start(member)
        self._client()
        self._set_network()
        self._fault()
        world.run_until((1000 + self.rng.below(1500)) * (4 if self.rng.below(8) == 0 else 1))
        self._make_peace()
        self._must_recover()
        self._must_agree()

    # --- clients ---

    def _client(self) -> None:
        """Batches to whoever takes itself for the leader, and reads."""
        if self._is_over:
            return
        try:
            for member in self.world.everyone:
                if member.role is Role.LEADER:
                    self._call(member)
        finally:  # power may be lost within a call
            self.world.at(5 + self.rng.below(30), self._client)

    def _call(self, member: Member) -> None:
        rng = self.rng
        if not rng.below(3):
            self.world.read(member)
            return
        count = 1 + (rng.below(8) if rng.below(4) == 0 else 0)
        values = range(self._next_value, self._next_value + count)
        self._next_value += count
        self.world.append(member, values)

    # --- faults ---

    def _set_network(self) -> None:
        world, rng, kinds = self.world, self.rng, self.kinds
        world.loss = rng.below(150) if "loss" in kinds else 0
        world.duplication = rng.below(150) if "duplication" in kinds else 0
        world.slow = rng.below(200) if "delay" in kinds else 0
        world.slow_ms = 10 + rng.below(800)
        world.crash_after = rng.below(60) if "moment" in kinds else 0
        world.flush_ms = 1 + rng.below(200 if "slow disk" in kinds and rng.chance(0.5) else 5)

    def _fault(self) -> None:
        if self._is_quiet:
            return
        kinds = sorted(self.kinds)
        self._apply(kinds[self.rng.below(len(kinds))])
        self.world.at(20 + self.rng.below(160), self._fault)

    def _apply(self, kind: str) -> None:
        world, rng = self.world, self.rng
        world.marks.add(kind)
        victim = self._victim()
        if kind == "crash":
            self._crash(victim, 0)
        elif kind == "power":
            for member in world.everyone:
                if rng.below(3):
                    self._crash(member, 0)
        elif kind == "damage":
            if self._may_forget():
                self._crash(victim, 1 + rng.below(4))
        elif kind == "new disk":
            if self._may_forget():
                self._crash(victim, 0, loses_disk=True)
        elif kind in ("partition", "one way", "ring"):
            self._cut(kind, victim)
        elif kind == "pause":
            victim.paused_until = world.now + rng.below(5 * self.election_ms)
            world.say(f"{victim.id} is paused until {victim.paused_until}")
        elif kind == "transfer":
            leaders = [member for member in world.everyone if member.role is Role.LEADER]
            if leaders:
                if self._orders.chance(0.4):  # after the one who ordered it has given up
                    rpc_timeout_ms: int = _SMALL["rpc_timeout_ms"]
                    world.late_order_ms = rpc_timeout_ms + self._orders.below(200)
                world.transfer(leaders[rng.below(len(leaders))], world.everyone[rng.below(len(world.everyone))])
        elif kind == "retention":
            self._retain(victim)
        else:
            self._set_network()

    def _may_forget(self) -> bool:
        """May one more member lose what it has? A majority must have everything."""
        members = self.world.everyone
        return sum(member.ledger.amnesiac_until >= 0 for member in members) < (len(members) - 1) // 2

    def _victim(self) -> Member:
        """Often the leader."""
        world, rng = self.world, self.rng
        leaders = [member for member in world.everyone if member.role is Role.LEADER and member.node is not None]
        if leaders and rng.below(2):
            return leaders[rng.below(len(leaders))]
        return world.everyone[rng.below(len(world.everyone))]

    def _crash(self, member: Member, loses_synced: int, *, loses_disk: bool = False) -> None:
        if member.node is None:
            return
        self.world.crash(member, loses_synced, is_seen=self.rng.chance(0.5), loses_disk=loses_disk)
        self.world.at(1 + self.rng.below(6 * self.election_ms), self._restart, member, member.run)

    def _flap(self, member: Member) -> None:
        """A crash at a bad moment, and back at once."""
        if member.node is not None and not self._is_quiet:
            self.world.crash(member, is_seen=self.rng.chance(0.5))
            self.world.at(1 + self.rng.below(20), self._restart, member, member.run)

    def _restart(self, member: Member, run: int) -> None:
        if member.node is None and member.run == run:
            self.world.start(member)

    def _cut(self, kind: str, victim: Member) -> None:
        world, rng = self.world, self.rng
        ids = [member.id for member in world.everyone]
        blocked: set[tuple[str, str]] = set()
        if rng.below(3) == 0:
            pass  # heal
        elif kind == "one way":
            others = [other for other in ids if other != victim.id and rng.below(2)]
            blocked = {(victim.id, other) if rng.below(2) else (other, victim.id) for other in others}
        elif kind == "ring":
            near = {(a, b) for a, b in zip(ids, ids[1:] + ids[:1], strict=True)}
            blocked = {(a, b) for a in ids for b in ids if a != b and (a, b) not in near and (b, a) not in near}
            if len(ids) == 3:
                a, b = ids[rng.below(3)], ids[rng.below(3)]
                blocked = {(a, b), (b, a)}
        else:
            side = {member_id for member_id in ids if rng.below(2)} if rng.below(2) else {victim.id}
            blocked = {(a, b) for a in ids for b in ids if (a in side) != (b in side)}
        world.blocked = blocked
        world.say(f"blocked: {sorted(blocked)}")

    def _retain(self, member: Member) -> None:
        if member.node is None:
            return
        keep = min(member.node.retain_index, member.ledger.durable_index)
        if keep > member.ledger.begin_index >= 0:
            member.ledger.forget_before(keep - self.rng.below(min(4, keep - member.ledger.begin_index)))
            self.world.say(f"{member.id} begins at {member.ledger.begin_index}")

    # --- the end ---

    def _make_peace(self) -> None:
        world = self.world
        self._is_quiet = True
        world.say("peace")
        world.blocked = set()
        world.loss = world.duplication = world.slow = world.crash_after = world.late_order_ms = 0
        world.flush_ms = 80 if "slow disk" in self.kinds and self.seed % 4 == 0 else 3
        for member in world.everyone:
            member.paused_until = 0
            if member.node is None:
                world.start(member)

    def _disk_ms(self) -> int:
        """More time for disks that stay slow."""
        return 2000 * self.world.flush_ms if self.world.flush_ms > 10 else 0

    def _must_recover(self) -> None:
        """Rule 13: a leader within ten election time-outs, and what clients send is committed."""
        world = self.world
        started = len(world.history.acknowledged)
        limit = world.now + ELECTION_TIMEOUTS * self.election_ms + 1200 + self._disk_ms()
        if not world.run_until(limit, lambda: len(world.history.acknowledged) > started):
            standing = [f"{m.id} {m.role.value} {m.term} ends {m.ledger.end_index}" for m in world.everyone]
            raise BrokenRuleError(f"nothing is committed {limit} ms after the faults: {standing}")

    def _must_agree(self) -> None:
        """All logs become equal, what was acknowledged is there, and nobody waits for an answer."""
        world = self.world
        highest = max(member.term for member in world.everyone)
        limit = 20 * self.election_ms + 2000 + self._disk_ms()
        # what a member forgot may never have been committed: it remembers when the log is as long again
        is_agreed = world.run_until(
            world.now + limit, lambda: all(member.ledger.amnesiac_until < 0 for member in world.everyone)
        )
        self._is_over = self.clients_stop
        if not is_agreed or not world.run_until(world.now + limit, self._is_agreed):
            standing = [
                f"{m.id} {m.role.value} {m.term} {m.ledger.begin_index}..{m.ledger.end_index} shows "
                f"{m.ledger.live_commit} amnesiac {m.ledger.amnesiac_until}" for m in world.everyone
            ]  # fmt: skip
            raise BrokenRuleError(f"the logs do not become equal: {standing}")
        if max(member.term for member in world.everyone) > highest + 12:
            raise BrokenRuleError(f"terms grow in peace: from {highest}")
        for index, value in world.history.acknowledged.items():
            if world.watch.committed[index].body != b"%d" % value:
                raise BrokenRuleError(f"the acknowledged {value} is not at {index}")
        world.history.check_register()

    def _is_agreed(self) -> bool:
        """Everybody has all that any client was told, and forgets nothing."""
        world = self.world
        committed = world.watch.last_committed
        known = max(world.history.acknowledged, default=-1)
        return committed >= known and all(
            member.ledger.live_commit >= known
            and member.ledger.amnesiac_until < 0
            and (known < member.ledger.begin_index or member.ledger.has(world.watch.committed[known]))
            for member in world.everyone
        )


#: What would come true of the holes that Java's protocol has anyhow is not told of mixed groups.
MIXED_KINDS: Final = (
    "crash",
    "power",
    "partition",
    "one way",
    "ring",
    "pause",
    "drift",
    "transfer",
    "retention",
    "loss",
)


class MixedStory(RaftStory):
    """The same with one or two members of Java's (the folder java), in groups of three."""

    clients_stop = False  # a Java leader has no barrier: without an append it commits nothing of older terms

    def __init__(self, seed: int) -> None:
        super().__init__(seed, size=3)
        self.kinds &= set(MIXED_KINDS)
        if not self.kinds:
            self.kinds = {MIXED_KINDS[self.rng.below(len(MIXED_KINDS))]}
        members = self.world.everyone
        members[self.rng.below(3)].is_java = True
        if self.rng.below(2):
            members[self.rng.below(3)].is_java = True


class StoredStory(RaftStory):
    """The same over the shipped file store on simulated disks, without damage, retention and new disks."""

    def __init__(self, seed: int) -> None:
        disks = SimRng(seed).fork("disks")
        super().__init__(
            seed,
            size=3,
            make_ledger=lambda owner, wrote: cast(SimLedger, StoredLedger(owner, wrote, disks.fork(owner))),
        )
        self.kinds -= {"damage", "retention", "new disk"}
        self.kinds |= {"crash", "cut"}
        self.world.on_stopped = self._start_later

    def _apply(self, kind: str) -> None:
        if kind == "cut":
            ledger = cast(StoredLedger, self._victim().ledger)
            ledger.disk.cut_power_after(self.rng.below(30))
        else:
            super()._apply(kind)

    def _make_peace(self) -> None:
        for member in self.world.everyone:
            cast(StoredLedger, member.ledger).disk.cut_power_after(-1)
        super()._make_peace()

    def _start_later(self, member: Member) -> None:
        self.world.at(1 + self.rng.below(3 * self.election_ms), self._restart, member, member.run)
