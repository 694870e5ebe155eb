"""Settings of one member of a DLedger group.

Source:
    openmessaging/dledger DLedgerConfig.java.
"""

import hashlib
from typing import Final

from maxq.errors import ConfigError
from maxq.lazy_dataclass import dataclass
from maxq.replication.raft.config import RaftConfig

HEART_BEAT_TIME_INTERVAL_MS: Final = 400
_CATCH_UP_BYTES_PER_SECOND: Final = 256 << 20  # Java's 20 MiB would keep a follower that lost its disk away for hours
_VERSION: Final = "1"  # version of MaxQ's additions to the protocol between members


@dataclass(frozen=True, slots=True, kw_only=True)
class DLedgerConfig:
    """Settings of one member. Times are in milliseconds.

    Attributes:
        peers: id → `host:port` of every member, this one's among them, in the order given.
        heart_beat_time_interval_ms: Java's is 2000. A follower gives up a leader of MaxQ's that it has not heard of for
            `max_heart_beat_leak` of these; one of Java's after as many of Java's.
        max_wait_ack_time_ms: how long an append waits for its quorum.
        shared: what else must be the same on all members (file sizes, where a mixed log is divided); goes into the
            digest.
    """

    group: str = "default"
    self_id: str = "n0"
    peers: dict[str, str]
    heart_beat_time_interval_ms: int = HEART_BEAT_TIME_INTERVAL_MS
    max_heart_beat_leak: int = 3
    min_vote_interval_ms: int = 50
    max_vote_interval_ms: int = 300
    max_wait_ack_time_ms: int = 2500
    max_pending_requests_num: int = 10_000
    preferred_leader_ids: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()

    @property
    def self_address(self) -> str:
        """Address, `host:port`, at which this member is reached."""
        return self.peers[self.self_id]

    @property
    def digest(self) -> str:
        """Return a digest of the settings that all members must share (S18), preceded by the version of the messages
        between MaxQ members."""
        members = ";".join(f"{peer}-{address}" for peer, address in sorted(self.peers.items()))
        text = "\n".join((self.group, members, *self.shared))
        return f"{_VERSION}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def raft(self) -> RaftConfig:
        """Return the settings of the core."""
        return RaftConfig(
            group=self.group,
            self_id=self.self_id,
            peers=tuple(self.peers),
            maxq=self.digest,
            heart_beat_time_interval_ms=self.heart_beat_time_interval_ms,
            max_heart_beat_leak=self.max_heart_beat_leak,
            min_vote_interval_ms=self.min_vote_interval_ms,
            max_vote_interval_ms=self.max_vote_interval_ms,
            max_pending_requests_num=self.max_pending_requests_num,
            preferred_leader_ids=self.preferred_leader_ids,
            peer_push_quota=_CATCH_UP_BYTES_PER_SECOND,
        )


def dledger_config(
    group: str,
    self_id: str,
    peers: str,
    *,
    preferred: str = "",
    heart_beat_time_interval_ms: int = HEART_BEAT_TIME_INTERVAL_MS,
    shared: tuple[str, ...] = (),
) -> DLedgerConfig:
    """Build the settings from the texts of a settings file.

    Args:
        peers: `id-host:port` joined by `;`.
        preferred: ids joined by `;`.

    Raises:
        ConfigError: a peer that is no `id-host:port`, an id or address twice, a member or preferred leader that is no
            peer; names it and says what to write.
    """
    members = parse_peers(peers)
    if not group:
        raise ConfigError("dLegerGroup is empty; all members of a group give it the same name")
    if self_id not in members:
        raise ConfigError(f"dLegerSelfId={self_id}: no member of dLegerPeers={peers}; give one of {', '.join(members)}")
    preferred_ids = tuple(one for one in preferred.split(";") if one)
    for one in preferred_ids:
        if one not in members:
            raise ConfigError(f"preferredLeaderId={preferred}: {one} is no member of dLegerPeers={peers}")
    if heart_beat_time_interval_ms < 10:
        raise ConfigError(f"a heart-beat every {heart_beat_time_interval_ms} ms: at least 10 ms must lie between two")
    return DLedgerConfig(
        group=group,
        self_id=self_id,
        peers=members,
        preferred_leader_ids=preferred_ids,
        heart_beat_time_interval_ms=heart_beat_time_interval_ms,
        shared=shared,
    )


def parse_peers(text: str) -> dict[str, str]:
    """Parse the setting dLegerPeers, `n0-host:port;n1-host:port`, into member id → `host:port`.

    Raises:
        ConfigError: a part has not this form, two members have one id or one address, or there is no member.
    """
    members: dict[str, str] = {}
    for part in filter(None, text.split(";")):
        peer, dash, address = part.partition("-")
        host, colon, port = address.partition(":")
        if not peer or not dash or not host or not colon or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"dLegerPeers={text}: {part!r} is no id-host:port, such as n0-10.0.0.1:40911")
        if peer in members:
            raise ConfigError(f"dLegerPeers={text}: {peer} is there twice; each member has an id of its own")
        if address in members.values():
            raise ConfigError(f"dLegerPeers={text}: {address} is there twice; each member has an address of its own")
        members[peer] = address
    if not members:
        raise ConfigError("dLegerPeers is empty; it lists all members, such as n0-10.0.0.1:40911;n1-10.0.0.2:40911")
    return members
