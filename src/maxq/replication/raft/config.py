"""Settings of one member, in milliseconds and bytes. Names and defaults as in DLedgerConfig where it
has them."""

from maxq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Settings of the core.

    Attributes:
        peers: ids of all members, this one's among them.
        maxq: value of the extra key of this member's HEART_BEAT: the digest of the settings that all members must share
            (S18). Peers that send one are MaxQ's, the others Java's.
        heart_beat_time_interval_ms: between a leader's heart-beats. A follower gives its leader up after
            `max_heart_beat_leak` of them; after as many of `java_heart_beat_time_interval_ms` if the leader is Java's.
        retry_ms: pause after a peer did not answer, or did so with a code that means "later".
        commit_interval_ms: longest time a follower of ours is left without a commit index that the leader has; of a
            Java follower 1000, as there.
        max_push_bytes: entries in one push, and `push_window` pushes on their way to a peer of ours.
        java_push_window: pushes on their way to a Java peer, each of at most `java_push_entries`.
        max_buffered_pushes: pushes that a follower keeps because what is before them has not come yet.
        preferred_leader_ids: members that should lead if they can.
    """

    self_id: str
    peers: tuple[str, ...]
    group: str = "default"
    maxq: str = ""
    heart_beat_time_interval_ms: int = 2000
    java_heart_beat_time_interval_ms: int = 2000
    max_heart_beat_leak: int = 3
    min_vote_interval_ms: int = 300
    max_vote_interval_ms: int = 1000
    min_take_leadership_vote_interval_ms: int = 30
    max_take_leadership_vote_interval_ms: int = 100
    rpc_timeout_ms: int = 3000
    retry_ms: int = 200
    max_pending_requests_num: int = 10000
    commit_interval_ms: int = 100
    commit_again_interval_ms: int = 1000
    max_push_bytes: int = 512 * 1024
    push_window: int = 8
    java_push_window: int = 64
    java_push_entries: int = 256
    max_buffered_pushes: int = 1024
    buffered_push_overdue_ms: int = 1000
    peer_push_throttle_point: int = 300 * 1024 * 1024
    peer_push_quota: int = 20 * 1024 * 1024
    preferred_leader_ids: tuple[str, ...] = ()
    max_leadership_transfer_wait_index: int = 1000
    leadership_transfer_wait_timeout_ms: int = 1000

    @property
    def quorum(self) -> int:
        """Return the number of members of a majority."""
        return len(self.peers) // 2 + 1

    @property
    def others(self) -> tuple[str, ...]:
        """Return the ids of all members except this one."""
        return tuple(peer for peer in self.peers if peer != self.self_id)

    @property
    def election_timeout_ms(self) -> int:
        """Return how many ms a member waits for heart-beats, or for answers to them, before it considers the leader
        lost."""
        return self.heart_beat_time_interval_ms * self.max_heart_beat_leak

    @property
    def lease_ms(self) -> int:
        """Return for how many ms after a round of heartbeats that a quorum answered a leader accepts appends and reads
        (S13)."""
        return self.election_timeout_ms * 3 // 4
