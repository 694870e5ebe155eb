"""QuorumAcknowledgement: a producer is told that its message is safe when a quorum of the group has it durably.

| DLedger says | producer gets |
|---|---|
| committed | SUCCESS |
| no quorum within 2.5 s (502), another term (501) | SYSTEM_ERROR (1): it may still be committed |
| not now: a transfer runs, no quorum answers, too many wait (before anything is stored) | SERVICE_NOT_AVAILABLE (14) |
| not the leader (before anything is stored) | the same, which the store says itself |

Producers of every version try again after 14; before 5.0 they do not after SYSTEM_BUSY.

Source:
    store/dledger/DLedgerCommitLog.java (asyncPutMessage).
"""

from collections.abc import Callable
from typing import Final, Protocol

from maxq.broker.processors.acknowledgement import Acknowledgement
from maxq.broker.stats.stage_times import Stage, StageSample
from maxq.codes import ResponseCode
from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode
from maxq.store.durability.flush import CommitLogFlusher

_CODES: Final = {
    DLedgerResponseCode.SUCCESS: ResponseCode.SUCCESS,
    DLedgerResponseCode.NOT_LEADER: ResponseCode.SERVICE_NOT_AVAILABLE,
    DLedgerResponseCode.INCONSISTENT_LEADER: ResponseCode.SERVICE_NOT_AVAILABLE,
    DLedgerResponseCode.DISK_FULL: ResponseCode.SERVICE_NOT_AVAILABLE,
    DLedgerResponseCode.LEADER_NOT_READY: ResponseCode.SERVICE_NOT_AVAILABLE,
}
_REASONS: Final = {
    DLedgerResponseCode.LEADER_TRANSFERRING: "the leadership is being handed over",
    DLedgerResponseCode.LEADER_PENDING_FULL: "too many messages wait for a quorum of the group",
}


class Quorum(Protocol):
    """The part of DLedgerServer that this module uses."""

    @property
    def is_leader(self) -> bool:
        """Whether this member leads."""

    def append_refusal(self) -> DLedgerResponseCode | None:
        """Return why nothing may be appended here now; None if entries may be appended."""

    def when_committed(self, end_position: int, done: Callable[[DLedgerResponseCode], None]) -> bool:
        """Call `done` when the entry that ends there is committed, or when that can no longer be known. Returns False
        if it is committed already."""


class QuorumAcknowledgement(Acknowledgement):
    """Waits for the quorum before a send of a DLedger broker is answered. Nothing is waited for before the member has
    joined its group."""

    refusal_code = ResponseCode.SERVICE_NOT_AVAILABLE

    def __init__(self, flusher: CommitLogFlusher) -> None:
        super().__init__(flusher)
        self._quorum: Quorum | None = None

    def set_quorum(self, quorum: Quorum) -> None:
        """Set how many members must have a message before its send is acknowledged."""
        self._quorum = quorum

    def refusal(self) -> str | None:
        """Returns why this leader takes no messages now. None on a member that does not lead, whose store refuses them
        itself."""
        quorum = self._quorum
        code = None if quorum is None or not quorum.is_leader else quorum.append_refusal()
        if code is None:
            return None
        reason = _REASONS.get(code, "no quorum of the group answers this leader")
        return f"[{code.name}] {reason}; send it again"

    def when(self, end_offset: int, done: Callable[[ResponseCode], None], sample: StageSample | None = None) -> bool:
        """Call back when a put is acknowledged (see the table in the module's docstring)."""
        assert self._quorum is not None, "nothing was stored before"

        def heard(code: DLedgerResponseCode) -> None:
            if sample is not None:
                sample.heard(Stage.REPLICATE)
            done(_CODES.get(code, ResponseCode.SYSTEM_ERROR))

        return self._quorum.when_committed(end_offset, heard)

    def without_waiting(self) -> None:
        """Acknowledge at once to a producer that waits for nobody; as with Java, a leader that ends may lose such a
        message."""
