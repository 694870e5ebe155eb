"""Care for the bytes of one broker's log: scrub and repair together, and what operators see of them."""

import asyncio
import logging
from collections.abc import Callable

from maxq.config.message_store_config import MessageStoreConfig
from maxq.replication.ha.log_fetch import fetch_log
from maxq.replication.ha.repair import FetchLog, LogRepair
from maxq.replication.ha.scrub import ScrubService
from maxq.runtime.interfaces import Clock
from maxq.store.message_store import MessageStore
from maxq.store.recovery.damage import DamagedRange

log = logging.getLogger(__name__)

#: Seconds after which a filled range that was not served is asked for again; doubled each time. It is also asked for on
#: each new connection.
_FIRST_RETRY_S = 5.0
_LAST_RETRY_S = 300.0


class LogMaintenance:
    """Runs the periodic check of the log (scrub) and the repair of damaged ranges.

    Attributes:
        scrub, repair: see there.
    """

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        *,
        config: Callable[[], MessageStoreConfig],
        master_address: Callable[[], str],
        fetch: FetchLog = fetch_log,
    ) -> None:
        """`master_address` returns host:port of the master's HA port; empty while there is none."""
        self._store = store
        self._one_at_a_time = asyncio.Lock()
        self._sealed: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self.repair = LogRepair(store, config, master_address, fetch)
        self.scrub = ScrubService(store, clock, config, self._repair)

    def load(self) -> None:
        """Give messages their places in the queues that came back into the log before the process ended. The store is
        loaded, and nobody can send yet: a message sent before would get one of these places."""
        try:
            self.repair.place_restored()
        except OSError as error:
            log.error("restored messages have no places in their queues yet: %s", error)

    def start(self) -> None:
        """Start both services. The store is loaded, and a loop runs."""
        self.scrub.start()

    async def shutdown(self) -> None:
        """Stop both services. Call it before the store is closed."""
        if self._sealed is not None:
            self._sealed.cancel()
            await asyncio.gather(self._sealed, return_exceptions=True)
        await self.scrub.shutdown()

    def config_changed(self) -> None:
        """Let the check of the log in the background run by changed settings."""
        self.scrub.config_changed()

    def master_connected(self) -> None:
        """Fetch the damaged ranges from the master, whose link is up."""
        self._connected.set()
        if self._sealed is None or self._sealed.done():
            self._sealed = asyncio.get_running_loop().create_task(self._repair_sealed(), name="repair")

    async def offered(self, address: str) -> bool:
        """Restore ranges that this master's starts have filled from a slave that has the records; `address` is the
        slave's HA port. Returns whether a range was restored."""
        async with self._one_at_a_time:
            try:
                return await self.repair.take_back(address) > 0
            except OSError as error:
                log.error("ranges that earlier starts of this master marked as damaged cannot be restored: %s", error)
                return False

    async def _repair(self, damage: DamagedRange) -> bool:
        async with self._one_at_a_time:
            return await self.repair.repair(damage)

    async def _repair_sealed(self) -> None:
        pause_s = _FIRST_RETRY_S
        while True:
            if self._connected.is_set():
                self._connected.clear()
                pause_s = _FIRST_RETRY_S
            async with self._one_at_a_time:
                try:
                    await self.repair.repair_sealed()
                except OSError as error:
                    log.error("ranges that earlier starts marked as damaged are not repaired: %s", error)
            if not self.repair.sealed_left:
                return
            await self._pause(pause_s)
            pause_s = min(pause_s * 2, _LAST_RETRY_S)

    async def _pause(self, seconds: float) -> None:
        """Wait until that time, or until the link to the master is up again."""
        try:
            async with asyncio.timeout(seconds):
                await self._connected.wait()
        except TimeoutError:
            pass

    def runtime_info(self) -> dict[str, str]:
        """Return keys of GET_BROKER_RUNTIME_INFO (28)."""
        return {
            "scrubPasses": str(self.scrub.passes),
            "scrubCheckedBytes": str(self.scrub.checked_bytes),
            "scrubPosition": str(self.scrub.position),
            "scrubDamageFound": str(self.scrub.found),
            "scrubDamageLeft": str(len(self.scrub.damages)),
            "repairedRanges": str(self.repair.repaired),
            "repairedBytes": str(self.repair.repaired_bytes),
            "refusedRepairs": str(self.repair.refused),
            "damagedFromMaster": str(self._store.damaged_from_master),
        }
