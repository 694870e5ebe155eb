"""Why the store may not be read or written: one bit a reason (RunningFlags.java)."""

from maxq.runtime.refusals import Cause

NOT_READABLE = 1 << 0
NOT_WRITABLE = 1 << 1
LOGICS_ERROR = 1 << 2  # a ConsumeQueue could not be written
INDEX_ERROR = 1 << 3
DISK_FULL = 1 << 4
FENCED = 1 << 5
LOGIC_DISK_FULL = 1 << 6
NO_ROOM = 1 << 7  # the log gets no blocks: unlike DISK_FULL this is no matter of ratios

_CAUSES = {
    DISK_FULL: Cause.DISK_FULL,
    LOGIC_DISK_FULL: Cause.DISK_FULL,
    NO_ROOM: Cause.DISK_NO_ROOM,
    FENCED: Cause.FENCED,
}

_NOT_WRITABLE_MASK = NOT_WRITABLE | LOGICS_ERROR | INDEX_ERROR | DISK_FULL | FENCED | LOGIC_DISK_FULL | NO_ROOM
# dispatch goes on while a disk is full: what is in the log must become visible
_NOT_CQ_WRITABLE_MASK = NOT_WRITABLE | LOGICS_ERROR | INDEX_ERROR | LOGIC_DISK_FULL


class RunningFlags:
    """The bits, and for each set bit the reason in words (cause, measured value, limit, remedy)."""

    __slots__ = ("_reasons", "bits")

    def __init__(self) -> None:
        self.bits = 0
        self._reasons: dict[int, str] = {}

    def set(self, bit: int, reason: str, cause: Cause | None = None) -> None:
        """From now on, for `reason`: measured value, limit, remedy. `cause`: if it is not the one that the bit says."""
        self.bits |= bit
        self._reasons[bit] = f"[{cause or _CAUSES.get(bit, Cause.DISK_FAILED)}]{reason}"

    def clear(self, bit: int) -> None:
        """No more."""
        self.bits &= ~bit
        self._reasons.pop(bit, None)

    def has(self, bit: int) -> bool:
        """Is it set?"""
        return bool(self.bits & bit)

    @property
    def readable(self) -> bool:
        """May queues be read?"""
        return not self.bits & NOT_READABLE

    @property
    def writable(self) -> bool:
        """May messages be stored?"""
        return not self.bits & _NOT_WRITABLE_MASK

    @property
    def cq_writable(self) -> bool:
        """May queues grow? They may while a disk is full, for what is in the log must become visible."""
        return not self.bits & _NOT_CQ_WRITABLE_MASK

    def why(self) -> str:
        """The reasons of all bits that are set, each behind its cause, for a remark; empty if none is."""
        return "; ".join(self._reasons[bit] for bit in sorted(self._reasons))
