"""Messages between DLedger nodes and their clients: one frozen class for each request and reply bean, with the Java
keys in snake case as fields (protocol/dledger/dledger_codec.py lists the keys).

`code` is a reply's business code; requests carry it, too (200). The term of a successful HEART_BEAT, GET or METADATA
reply is never filled in (-1). Fields that Java does not know say so: they are extra JSON keys, which fastjson skips.

Source:
    openmessaging/dledger protocol/*.java, entry/DLedgerEntry.java, entry/DLedgerEntryCoder.java.
"""

import struct
from collections.abc import Iterator
from dataclasses import field
from enum import Enum, IntEnum
from typing import Final, TypeAlias

from maxq.errors import RemoteProtocolError
from maxq.lazy_dataclass import dataclass

# fields: magic, size, index, term, pos, channel, chainCrc, bodyCrc, bodyLength
ENTRY_HEADER: Final = struct.Struct(">iiqqqiiii")
ENTRY_HEADER_SIZE: Final = ENTRY_HEADER.size
ENTRY_MAGIC: Final = 1
#: Largest term, index and position that are accepted: sums with them must stay within 64 bits.
LAST_NUMBER: Final = 1 << 62
#: Longest body that Java can encode: its buffer of 4 MiB less the header.
ENTRY_BODY_MAX: Final = 4 * 1024 * 1024 - ENTRY_HEADER_SIZE


class DLedgerRequestCode(IntEnum):
    """Codes of request frames (DLedgerRequestCode.java)."""

    METADATA = 50000
    APPEND = 50001
    GET = 50002
    VOTE = 51001
    HEART_BEAT = 51002
    PULL = 51003
    PUSH = 51004
    LEADERSHIP_TRANSFER = 51005


class DLedgerResponseCode(IntEnum):
    """The `code` of bodies (DLedgerResponseCode.java). A number that is not here is read as UNKNOWN."""

    UNKNOWN = -1
    SUCCESS = 200
    TIMEOUT = 300
    METADATA_ERROR = 301
    NETWORK_ERROR = 302
    UNSUPPORTED = 303
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    NOT_FOLLOWER = 405
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409
    INDEX_OUT_OF_RANGE = 410
    UNEXPECTED_ARGUMENT = 411
    REPEATED_REQUEST = 412
    REPEATED_PUSH = 413
    DISK_ERROR = 414
    DISK_FULL = 415
    TERM_NOT_READY = 416
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    INDEX_LESS_THAN_LOCAL_BEGIN = 419
    REQUEST_WITH_EMPTY_BODYS = 420
    PUSH_REQUEST_IS_FULL = 421
    INTERNAL_ERROR = 500
    TERM_CHANGED = 501
    WAIT_QUORUM_ACK_TIMEOUT = 502
    LEADER_PENDING_FULL = 503
    ILLEGAL_MEMBER_STATE = 504
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506
    LOAD_SNAPSHOT_ERROR = 507


class VoteResult(Enum):
    """Results of a VOTE (VoteResponse.RESULT)."""

    UNKNOWN = "UNKNOWN"
    ACCEPT = "ACCEPT"
    REJECT_UNKNOWN_LEADER = "REJECT_UNKNOWN_LEADER"
    REJECT_UNEXPECTED_LEADER = "REJECT_UNEXPECTED_LEADER"
    REJECT_EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    REJECT_ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    REJECT_ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    REJECT_TERM_NOT_READY = "REJECT_TERM_NOT_READY"
    REJECT_TERM_SMALL_THAN_LEDGER = "REJECT_TERM_SMALL_THAN_LEDGER"
    REJECT_EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    REJECT_SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"
    REJECT_TAKING_LEADERSHIP = "REJECT_TAKING_LEADERSHIP"


class PushType(Enum):
    """The kind of a PUSH (PushEntryRequest.Type)."""

    APPEND = "APPEND"
    COMMIT = "COMMIT"
    COMPARE = "COMPARE"
    TRUNCATE = "TRUNCATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class DLedgerEntry:
    """One entry of the log. `size` is 48 + length of the body; `pos` is the position of its first byte in the data
    stream. CRCs are 0 if they were not computed; comparisons ignore them."""

    magic: int = ENTRY_MAGIC
    size: int
    index: int
    term: int
    pos: int
    channel: int = 0
    chain_crc: int = field(default=0, compare=False)
    body_crc: int = field(default=0, compare=False)
    body: bytes

    def encode(self) -> bytes:
        """Encode the entry as in the data file: 48 bytes of header, then the body."""
        return ENTRY_HEADER.pack(
            self.magic, self.size, self.index, self.term, self.pos, self.channel, self.chain_crc, self.body_crc,
            len(self.body),
        ) + self.body  # fmt: skip


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Entries that follow each other in one data file, as their bytes lie there; no filler among them.

    Attributes:
        data: n × (48 bytes header, body).
        last_term: term of the last entry; terms never fall within a run.
    """

    first_index: int
    last_index: int
    last_term: int
    pos: int  # position of the entry's first byte
    data: bytes | memoryview

    @property
    def count(self) -> int:
        """Return the number of entries, at least one."""
        return self.last_index - self.first_index + 1

    def entries(self) -> Iterator[DLedgerEntry]:
        """Return all entries, with copies of their bodies."""
        position, end = 0, len(self.data)
        while position < end:
            magic, size, index, term, pos, channel, chain, crc, length = ENTRY_HEADER.unpack_from(self.data, position)
            start = position + ENTRY_HEADER_SIZE
            yield DLedgerEntry(
                magic=magic, size=size, index=index, term=term, pos=pos, channel=channel, chain_crc=chain,
                body_crc=crc, body=bytes(self.data[start : start + length]),
            )  # fmt: skip
            position += size

    @classmethod
    def of(cls, data: bytes | memoryview) -> "EntryRun":
        """Make the run whose bytes are `data`.

        Raises:
            RemoteProtocolError: not whole entries of magic 1, indexes and positions without a gap, terms that never
                fall, none above LAST_NUMBER.
        """
        position, end = 0, len(data)
        first = index = term = pos = -1
        while position < end:
            if end - position < ENTRY_HEADER_SIZE:
                raise RemoteProtocolError(f"a run of entries ends {end - position} bytes into a header")
            head = ENTRY_HEADER.unpack_from(data, position)
            if position == 0:
                first, index, term, pos = head[2], head[2] - 1, head[3], head[4]
            size = head[1]
            if head[0] != ENTRY_MAGIC or size != ENTRY_HEADER_SIZE + head[8] or head[8] < 0 or position + size > end:
                raise RemoteProtocolError(f"no entry {position} bytes into a run of {end}: {head}")
            if head[2] != index + 1 or head[3] < term or head[4] != pos + position or first < 0 or pos < 0:
                raise RemoteProtocolError(f"entry {head[2]} of term {head[3]} at {head[4]} does not follow {index}")
            index, term = head[2], head[3]
            position += size
        if first < 0:
            raise RemoteProtocolError("a run without entries")
        # checking the end is enough, because none of them falls within a run
        if max(index, term, pos + end) > LAST_NUMBER:
            raise RemoteProtocolError(
                f"entry {index} of term {term} in a run that ends at {pos + end}: the limit of each is {LAST_NUMBER}"
            )
        return cls(first, index, term, pos, data)


@dataclass(frozen=True, slots=True, kw_only=True)
class DLedgerMessage:
    """Fields of every bean (RequestOrResponse.java). Absent ones are None."""

    group: str | None = None
    remote_id: str | None = None
    local_id: str | None = None
    leader_id: str | None = None
    term: int = -1
    code: DLedgerResponseCode = DLedgerResponseCode.SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest(DLedgerMessage):
    """The candidate is `leader_id`.

    Attributes:
        is_pre_vote: MaxQ only: asks what the answer would be, of a peer that then changes nothing.
        is_transfer: MaxQ only: the leader wants this election, so members must not refuse because it is alive.
        is_founding: MaxQ only: every member of the group has told the candidate that its log is empty.
    """

    ledger_end_index: int = -1
    ledger_end_term: int = -1
    is_pre_vote: bool = False
    is_transfer: bool = False
    is_founding: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteReply(DLedgerMessage):
    """Ids are the request's, not swapped; `term` is the voter's."""

    vote_result: VoteResult = VoteResult.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartBeatRequest(DLedgerMessage):
    """A leader's heartbeat. `maxq` (MaxQ only): the sender understands binary pushes and has this config digest
    (S18)."""

    maxq: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartBeatReply(DLedgerMessage):
    """The answer to a heartbeat; `maxq` is the answering member's, as in the request."""

    maxq: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest(DLedgerMessage):
    """A client's request to append one body."""

    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendReply(DLedgerMessage):
    """Answer to an append: the place of the entry; -1 if it was not appended."""

    index: int = -1
    pos: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRequest(DLedgerMessage):
    """A client's request for the entry at `begin_index`; `max_size` is ignored."""

    begin_index: int = -1
    max_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GetReply(DLedgerMessage):
    """Answer to a get: no entry or one."""

    entries: tuple[DLedgerEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest(DLedgerMessage):
    """A client's request for the members and the leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataReply(DLedgerMessage):
    """`peers`: id → address. `status`: MaxQ only: role, indexes and what else an operator asks for, as text."""

    peers: dict[str, str] | None = None
    status: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest(DLedgerMessage):
    """A request that Java registers and does not serve."""

    node_id: str | None = None
    begin_index: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PullReply(DLedgerMessage):
    """Answer to a pull: always UNSUPPORTED."""

    entries: tuple[DLedgerEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest(DLedgerMessage):
    """A leader's push. COMPARE and TRUNCATE have one entry, COMMIT none, APPEND one or several.

    Attributes:
        entries: for peers that read JSON; more than one, or `is_batch`, travel as batchEntry.
        run: for MaxQ peers, in place of `entries`: the body is then binary.
    """

    type: PushType = PushType.APPEND
    commit_index: int = -1
    entries: tuple[DLedgerEntry, ...] = ()
    is_batch: bool = False
    run: EntryRun | None = None

    @property
    def count(self) -> int:
        """Return how many entries the request has."""
        return len(self.entries) if self.run is None else self.run.count

    @property
    def first_index(self) -> int:
        """Return the index of the first entry; -1 if there is none."""
        if self.run is not None:
            return self.run.first_index
        return self.entries[0].index if self.entries else -1

    @property
    def last_term(self) -> int:
        """Return the term of the last entry; -1 if there is none."""
        if self.run is not None:
            return self.run.last_term
        return self.entries[-1].term if self.entries else -1

    @property
    def last_index(self) -> int:
        """Return the index of the last entry; -1 if there is none."""
        if self.run is not None:
            return self.run.last_index
        return self.entries[-1].index if self.entries else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReply(DLedgerMessage):
    """`term` and `index` (of the first entry; absent for COMMIT) are the request's; begin and end are the bounds of
    the follower's log now. A `count` of 0 with an index is an old peer's 1."""

    index: int | None = None
    count: int = 0
    begin_index: int = 0
    end_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRequest(DLedgerMessage):
    """A transfer of the leadership. To the leader (`transfer_id` = its id): hand over to `transferee_id`. From the
    leader to the transferee (whose id is `remote_id`): stand as soon as your log reaches
    `take_leadership_ledger_index`."""

    transfer_id: str | None = None
    transferee_id: str | None = None
    take_leadership_ledger_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferReply(DLedgerMessage):
    """Answer to a transfer: 200 when the transferee leads."""


Request: TypeAlias = (
    VoteRequest | HeartBeatRequest | AppendRequest | GetRequest | MetadataRequest | PullRequest | PushRequest
    | TransferRequest
)  # fmt: skip
Reply: TypeAlias = (
    VoteReply | HeartBeatReply | AppendReply | GetReply | MetadataReply | PullReply | PushReply | TransferReply
)
