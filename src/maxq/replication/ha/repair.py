"""Repair: a damaged range of a slave's log is fetched again from the master and written in its place.

A slave's log is a copy of its master's, byte for byte, so the bytes at the same offsets are the right ones, if they are
records: magic, sizes, own offsets and CRCs are checked before anything is written, and again in the file. They replace
the damaged bytes in place; nothing moves, queues and index still point right. Written bytes are durable before the
range counts as repaired.

**Ranges that a start has filled.** Recovery writes a filler over damage in the middle of the log, so that the log can
be read on over it, keeps the old bytes in `damaged/<physical offset>`, and marks the places in the queues. On a slave
these ranges are fetched too, once the master is known: the records come back, their places in the queues are written
again, and their keys indexed. The old bytes stay where they are. Fillers that this slave has copied from another master
are fetched, too, if the present master has the true bytes (store/recovery/filled_ranges.py).

**A master** restores ranges that its starts have filled from a slave that has the true bytes and offers them when it
joins (frames.py), as long as the places in the queues are free: a message that was lost with the end of its queue has
lost its place to the next one that was sent. Then the slave does not join, and an operator decides which log is right.

**What the master makes of it.** The request is the first report of one more slave. See `_wait_for_senders` for why the
newest part of the log is asked for a little later.

Not repaired, but logged: damage that a scrub finds in a master's own log; bytes that are not records at the master
either; ranges that the master has deleted; ranges that the device cannot read.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import LogRangeNotServedError
from maxq.runtime.blocking import TOOLS
from maxq.runtime.interfaces import MappedRegion
from maxq.store.log import record_cy
from maxq.store.message_store import MessageStore
from maxq.store.recovery.damage import DamagedRange
from maxq.store.recovery.file_check import REASONS, UNREADABLE
from maxq.store.recovery.restore_places import good_prefix, why_not_restored

log = logging.getLogger(__name__)

#: Bytes that are fetched, verified and written at a time; more only for a single record that is larger.
_CHUNK = 16 << 20

#: Fetches bytes: (host:port of the master's HA port, start, end). Raises LogRangeNotServedError.
FetchLog = Callable[[str, int, int], Awaitable[bytes]]


class LogRepair:
    """Repairs damaged ranges of one store's log, one after the other.

    Attributes:
        repaired, repaired_bytes: ranges, and bytes of them, that are right again.
        refused: attempts that failed; `last_refusal` says why.
    """

    def __init__(
        self,
        store: MessageStore,
        config: Callable[[], MessageStoreConfig],
        master_address: Callable[[], str],
        fetch: FetchLog,
    ) -> None:
        """`master_address` returns host:port of the master's HA port; empty if there is none."""
        self._store = store
        self._config = config
        self._master_address = master_address
        self._fetch = fetch
        self._settled_offset = 0  # physical offset below which every send was answered long ago
        self._refusals: dict[int, str] = {}  # physical offset → refusal, which is logged once
        self._placed: set[tuple[int, int]] = set()  # ranges that are restored, with their places in the queues
        self._lost_places: dict[int, str] = {}  # physical offset → why a master cannot restore what was there
        self.repaired = 0
        self.repaired_bytes = 0
        self.refused = 0
        self.last_refusal = ""

    async def repair(self, damage: DamagedRange) -> bool:
        """Put back the records of a damaged range of the log, which the master has.

        Returns:
            True: the range is restored. False: it is left as it is; `last_refusal` and a line of the log say why.
        """
        refusal = self._refusal(damage)
        if not refusal:
            try:
                await self._replace(damage)
            except (LogRangeNotServedError, OSError) as error:
                refusal = str(error)
        if refusal:
            self._refuse(damage, refusal)
            return False
        self._note_repaired(damage, f"the master at {self._master_address()}")
        return True

    def _note_repaired(self, damage: DamagedRange, source: str) -> None:
        self.repaired += 1
        self.repaired_bytes += damage.size
        self._refusals.pop(damage.physical_offset, None)
        log.warning(
            "repaired: %d bytes at physical offset %d, fetched again from %s",
            damage.size, damage.physical_offset, source,
        )  # fmt: skip

    def _refusal(self, damage: DamagedRange) -> str:
        config = self._config()
        if config.broker_role != "SLAVE":
            return "this broker is a master and cannot fetch it from another broker; its slaves have these bytes"
        if not config.ha_repair_enable:
            return "haRepairEnable is false"
        if damage.reason == UNREADABLE:
            return "the device cannot read this place; replace it and let the slave copy the whole log"
        return "" if self._master_address() else "the master is not known"

    def _refuse(self, damage: DamagedRange, refusal: str) -> None:
        self.refused += 1
        self.last_refusal = refusal
        if self._refusals.get(damage.physical_offset) != refusal:
            self._refusals[damage.physical_offset] = refusal
            log.error("not repaired: %s; %s", damage, refusal)

    async def _replace(self, damage: DamagedRange) -> None:
        start, end = damage.physical_offset, damage.end_offset
        await self._wait_for_senders(end)
        stop = min(end, start + _CHUNK)
        while start < end:
            data = await self._fetch(self._master_address(), start, stop)
            good = await TOOLS.run(self._verified, data, start, end)
            if good == 0:  # one record is larger than a chunk: fetch up to the end
                stop = end
                continue
            await self._write(start, data[:good])
            start += good
            stop = min(end, start + _CHUNK)

    async def _wait_for_senders(self, end: int) -> None:
        """Wait until no sender waits for an acknowledgement up to `end`. A request to the master from an offset
        acknowledges everything below, a second time for this slave; a master that counts connections could take it
        for another slave's."""
        if end > self._settled_offset:
            offset = self._store.max_physical_offset
            await asyncio.sleep(2 * self._config().slave_timeout / 1000)
            self._settled_offset = offset

    def _verified(self, data: bytes, start: int, end: int) -> int:
        """Return how many bytes at the front of `data`, the log from `start` on, are whole records. Blocks.

        Returns:
            0 if more is needed to tell.

        Raises:
            LogRangeNotServedError: the following bytes are not a record, or are one that ends behind `end`.
        """
        good, why = good_prefix(memoryview(data), start)
        if good == len(data):
            return good
        size = self._store.commit_log.files.file_size
        rest = size - (start + good) % size
        if why == record_cy.STOP_BLANK and int.from_bytes(data[good : good + 4], "big") == rest:
            if good + rest == len(data):
                return len(data)
            why = record_cy.STOP_END
        if why in (record_cy.STOP_END, record_cy.STOP_BAD_SIZE) and start + len(data) < end:
            return good
        raise LogRangeNotServedError(
            f"the master has no valid record at physical offset {start + good} either: {REASONS[why]}"
        )

    async def repair_sealed(self) -> int:
        """Fetch ranges again that starts have filled, here or on a former master.

        Returns:
            How many ranges are right again.
        """
        before = self.repaired
        file_size = self._store.commit_log.files.file_size
        self.place_restored()
        for start, end in self._store.filled_ranges.still_filled():
            await self._wait_for_senders(end)  # meanwhile the master has named its filled ranges
            if (start, end) in self._store.filled_ranges.as_on_master or start < self._store.min_physical_offset:
                continue
            position = start % file_size
            if await self.repair(DamagedRange(start - position, position, end - start, "a start found it damaged")):
                self._store.filled_ranges.as_on_master |= {(start, end)}
                self._place(start, end)
        return self.repaired - before

    def place_restored(self) -> None:
        """Write the queue units of restored messages that lack them, because the disk had no room for them, or the
        process ended in between.

        Raises:
            OSError: it has none now, either. No other message gets the places that are left.
        """
        refusals: list[OSError] = []
        for start, end in self._unplaced():
            try:
                self._place(start, end)
            except OSError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]

    def _place(self, start: int, end: int) -> None:
        self._store.restore_places(start, end - start)
        self._placed.add((start, end))

    def _unplaced(self) -> list[tuple[int, int]]:
        filled = self._store.filled_ranges
        open_ones = set(filled.still_filled())
        return [one for one in filled.ranges() if one not in open_ones and one not in self._placed]

    async def take_back(self, address: str) -> int:
        """Fetch ranges that this master's starts have filled from the slave whose HA port is `address`.

        Returns:
            How many ranges are right again.
        """
        before = self.repaired
        file_size = self._store.commit_log.files.file_size
        self.place_restored()
        for start, end in self._store.filled_ranges.still_filled():
            try:
                refusal = await self._take_back(address, start, end)
            except (LogRangeNotServedError, OSError) as error:
                refusal = str(error)
            position = start % file_size
            damage = DamagedRange(start - position, position, end - start, "a start found it damaged")
            if refusal:
                self._refuse(damage, refusal)
            else:
                self._note_repaired(damage, f"the slave at {address}")
        return self.repaired - before

    async def _take_back(self, address: str, start: int, end: int) -> str:
        """Restore a range. Returns why that failed; empty if it succeeded."""
        if not self._config().ha_repair_enable:
            return "haRepairEnable is false"
        if start in self._lost_places:
            return self._lost_places[start]
        if end - start > _CHUNK:
            return f"its {end - start} bytes are more than the {_CHUNK} that a master takes back from a slave"
        data = await self._fetch(address, start, end)
        if await TOOLS.run(self._verified, data, start, end) < len(data):
            return f"the slave at {address} has no whole records there"
        file = self._store.commit_log.files.find(start)
        if file is None:
            return "this part of the log was deleted meanwhile"
        own = self._store.commit_log.get(start, end - start)
        if own is not None and own == data:
            return f"the slave at {address} has it no more than this master"
        # No await from here to the flush: no other message may be given a place meanwhile.
        refusal = why_not_restored(self._store.queues, self._store.deletions, start, data)
        if refusal:
            self._lost_places[start] = refusal
            return refusal
        position, stop = start - file.file_from_offset, end - file.file_from_offset
        file.region.allocate(position, stop)
        file.view[position:stop] = data
        try:
            self._place(start, end)
        finally:
            await self._store.sync_log(file.region.flush, position, stop)
        return ""

    @property
    def sealed_left(self) -> int:
        """Return the number of fillers in this log where the master may have more, and of restored ranges without queue
        offsets."""
        filled = self._store.filled_ranges
        return len(set(filled.still_filled()) - filled.as_on_master) + len(self._unplaced())

    async def _write(self, start: int, data: bytes) -> None:
        file = self._store.commit_log.files.find(start)
        if file is None:
            raise LogRangeNotServedError("this part of the log was deleted meanwhile")
        await self._store.sync_log(_write_durably, file.region, start - file.file_from_offset, data)


def _write_durably(region: MappedRegion, position: int, data: bytes) -> None:
    """Write durably. Blocks. Raises OSError if there is no room or the device refuses."""
    stop = position + len(data)
    region.allocate(position, stop)
    view = region.view
    for begin in range(position, stop, 1 << 20):
        end = min(begin + (1 << 20), stop)
        view[begin:end] = data[begin - position : end - position]
    region.flush(position, stop)
    if view[position:stop] != data:
        raise OSError("the written bytes read back differently")
