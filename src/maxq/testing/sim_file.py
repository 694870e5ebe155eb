"""One file of a simulated disk: what the process sees, what the platters hold, and what is left when the power goes."""

from dataclasses import dataclass, field

from maxq.testing.sim_rng import SimRng

PAGE = 4096
SECTOR = 512
_MANY_PAGES = 256 * PAGE


@dataclass(slots=True, eq=False)
class SimFile:
    """A file without its name.

    Attributes:
        live: what the process sees.
        durable: what the platters hold; shorter than `live` until the length is durable.
        lost_pages: dropped by a failed sync, by number; not written until they are modified again.
        sync_failed: this process has failed to sync the file, and may not believe a later success.
        allocated: numbers of the pages that have blocks; None for a file that takes its full length.
    """

    live: bytearray
    durable: bytearray
    modified_ms: int
    lost_pages: dict[int, bytes] = field(default_factory=dict)
    allocated: set[int] | None = None
    sync_failed: bool = False

    def copy(self) -> "SimFile":
        """Return a copy for another process, which knows nothing of failed syncs."""
        allocated = None if self.allocated is None else set(self.allocated)
        return SimFile(
            bytearray(self.live), bytearray(self.durable), self.modified_ms, dict(self.lost_pages), allocated
        )

    def written_back(self) -> "SimFile":
        """Return a copy for another process, when the kernel has written everything that it takes for dirty."""
        durable = bytearray(self.live)
        lost: dict[int, bytes] = {}
        for page, content in self.lost_pages.items():
            begin = page * PAGE
            if self.live[begin : begin + PAGE] == content:
                before = self.durable[begin : begin + len(content)]
                durable[begin : begin + len(content)] = before + bytes(len(content) - len(before))
                lost[page] = content
        return SimFile(bytearray(self.live), durable, self.modified_ms, lost)

    @property
    def blocks_bytes(self) -> int:
        """Return the bytes that it takes of the partition."""
        return len(self.live) if self.allocated is None else len(self.allocated) * PAGE

    def used_pages(self) -> set[int]:
        """Return the numbers of the pages that hold anything but zeros."""
        live = self.live
        return {begin // PAGE for begin in range(0, len(live), PAGE) if live[begin : begin + PAGE].strip(b"\0")}

    def make_length_durable(self) -> None:
        """Make the file's length durable; what was never written reads as zeros."""
        missing = len(self.live) - len(self.durable)
        if missing > 0:
            self.durable.extend(bytes(missing))

    def make_durable(self) -> None:
        """Make all bytes of the file durable, as fsync does."""
        self.durable = bytearray(self.live)
        self.lost_pages.clear()

    def dirty_pages(self) -> list[int]:
        """Return the numbers of the pages whose live and durable bytes differ."""
        differing = self._parts_that_differ(range(0, len(self.live), _MANY_PAGES))
        return [
            begin // PAGE
            for part in differing
            for begin in self._parts_that_differ(range(part, min(part + _MANY_PAGES, len(self.live)), PAGE))
        ]

    def _parts_that_differ(self, starts: range) -> list[int]:
        """Return those of `starts` whose ranges, up to the next start, differ between `live` and `durable`; neither is
        copied for it."""
        live, size, length = self.live, starts.step, len(self.live)
        with memoryview(self.durable) as durable:
            return [
                begin
                for begin in starts
                if not live.startswith(part := durable[begin : begin + size], begin)
                or len(part) < min(size, length - begin)
            ]

    def store_page(self, page: int) -> None:
        """Write a page back, unless a failed sync made the kernel forget that it is dirty."""
        begin = page * PAGE
        content = self.live[begin : begin + PAGE]
        if page in self.lost_pages:
            if self.lost_pages[page] == content:
                return
            del self.lost_pages[page]
        self.durable[begin : begin + len(content)] = content

    def lose_page(self, page: int) -> None:
        """Mark this page as one whose sync failed: the kernel then takes it for clean."""
        content = bytes(self.live[page * PAGE : (page + 1) * PAGE])
        if content != self.durable[page * PAGE : (page + 1) * PAGE]:
            self.lost_pages[page] = content

    def modified(self, start: int, end: int) -> None:
        """Mark the pages of [start, end) dirty, which a call wrote, though the bytes may be the same as before."""
        for page in range(start // PAGE, -(-end // PAGE)) if self.lost_pages else ():
            self.lost_pages.pop(page, None)

    def torn(self, rng: SimRng, *, length_in_journal: bool) -> bytearray:
        """Return the content after a loss of power: the durable part, and of the rest what chance decides.

        Args:
            length_in_journal: a length that is not durable yet is lost for sure; else chance decides that too.
        """
        kept = bytearray(self.durable)
        if len(kept) < len(self.live):
            if length_in_journal or not rng.chance(0.7):
                return kept
            kept.extend(bytes(len(self.live) - len(kept)))
        elif len(kept) > len(self.live):
            if not rng.chance(0.7):
                return kept
            del kept[len(self.live) :]
        fate = rng.choice(("none", "all", "mixed", "mixed"))
        if fate == "none":
            return kept
        for page in self.dirty_pages():
            if page in self.lost_pages:
                continue
            begin = page * PAGE
            if fate == "all" or rng.chance(0.4):
                kept[begin : begin + PAGE] = self.live[begin : begin + PAGE]
            elif rng.chance(0.5):
                _tear_page(kept, self.live, begin, rng)
        return kept


def _tear_page(kept: bytearray, live: bytearray, begin: int, rng: SimRng) -> None:
    """Tear a page sector by sector: old, new, or new up to or from a drawn byte."""
    for sector in range(begin, min(begin + PAGE, len(live)), SECTOR):
        end = min(sector + SECTOR, len(live))
        fate = rng.below(4)
        if fate == 1:
            kept[sector:end] = live[sector:end]
        elif fate == 2:
            cut = rng.between(sector, end)
            kept[sector:cut] = live[sector:cut]
        elif fate == 3:
            cut = rng.between(sector, end)
            kept[cut:end] = live[cut:end]
