"""Why the store may not be read or written: one bit a reason (RunningFlags.java)."""

from maxq.runtime.refusals import Cause

NOT_READABLE = 1 << 0
NOT_WRITABLE = 1 << 1
LOGICS_ERROR = 1 << 2  # a ConsumeQueue could not be written
INDEX_ERROR = 1 << 3
DISK_FULL = 1 << 4
FENCED = 1 << 5
LOGIC_DISK_FULL = 1 << 6
NO_ROOM = 1 << 7  # the log gets no blocks, whatever the usage of the disk is

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
    """The flags of a store, and for each set flag its reason in words (cause, measured value, limit, remedy)."""

    __slots__ = ("_reasons", "bits")

    def __init__(self) -> None:
        self.bits = 0
        self._reasons: dict[int, str] = {}

    def set(self, bit: int, reason: str, cause: Cause | None = None) -> None:
        """Set a bit for `reason` (measured value, limit, remedy). `cause` is needed only if it differs from the bit's
        own."""
        self.bits |= bit
        self._reasons[bit] = f"[{cause or _CAUSES.get(bit, Cause.DISK_FAILED)}]{reason}"

    def clear(self, bit: int) -> None:
        """Clear a flag and the reason for which it was set."""
        self.bits &= ~bit
        self._reasons.pop(bit, None)

    def has(self, bit: int) -> bool:
        """Return whether a flag is set."""
        return bool(self.bits & bit)

    @property
    def readable(self) -> bool:
        """Whether queues may be read."""
        return not self.bits & NOT_READABLE

    @property
    def writable(self) -> bool:
        """Whether messages may be stored."""
        return not self.bits & _NOT_WRITABLE_MASK

    @property
    def cq_writable(self) -> bool:
        """Whether queues may grow. They may while a disk is full, because what is in the log must become visible."""
        return not self.bits & _NOT_CQ_WRITABLE_MASK

    def why(self) -> str:
        """Returns the reasons of all set bits, each behind its cause, as text for a remark; empty if no bit is set."""
        return "; ".join(self._reasons[bit] for bit in sorted(self._reasons))
