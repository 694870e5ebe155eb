"""Scrub: read the whole log again and again in the background, and find what the disk has changed.

Off by default (scrubEnable). At most scrubBytesPerSecond are read, a megabyte at a time and off the loop, from the
log's first byte to where it ended when the pass began; scrubInterval later it begins again. Damage is named by file and
position once, counted, and handed to `on_damage`, which on a slave fetches the range again from the master (repair.py).
On a master it is only named: its slaves have the bytes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from maxq.config.message_store_config import MessageStoreConfig
from maxq.runtime.background import supervise
from maxq.runtime.blocking import TOOLS
from maxq.runtime.interfaces import Clock
from maxq.store.files.mapped_file import MappedFile
from maxq.store.message_store import MessageStore
from maxq.store.recovery.damage import DamagedRange
from maxq.store.recovery.file_check import FileCheck

log = logging.getLogger(__name__)

OnDamage = Callable[[DamagedRange], Awaitable[bool]]


class ScrubService:
    """Reads the log of one store.

    Attributes:
        passes: whole passes since start.
        checked_bytes: bytes read since start.
        found: damaged ranges met since start; one that is met in every pass counts once.
        damages: those that are still there, as far as is known, by physical offset.
        position: physical offset up to which the running pass has come; -1 between two passes.
    """

    def __init__(
        self, store: MessageStore, clock: Clock, config: Callable[[], MessageStoreConfig], on_damage: OnDamage
    ) -> None:
        """`on_damage` returns whether the range was repaired."""
        self._store = store
        self._clock = clock
        self._config = config
        self._on_damage = on_damage
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.passes = 0
        self.checked_bytes = 0
        self.found = 0
        self.damages: dict[int, DamagedRange] = {}
        self.position = -1

    def start(self) -> None:
        """Start to check the log in the background. Needs a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="scrub")
        supervise(self._task, _goes_on_without)

    async def shutdown(self) -> None:
        """Stop checking the log, and wait for a read that is under way."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def config_changed(self) -> None:
        """Handle a change of settings, of which scrubEnable may be one."""
        self._changed.set()

    async def _run(self) -> None:
        while True:
            if self._config().scrub_enable:
                await self.check_all()
                await self._pause(self._config().scrub_interval)
            else:
                await self._pause(None)

    async def _pause(self, milliseconds: int | None) -> None:
        """Wait until that time, or until scrubEnable has changed."""
        was_enabled = self._config().scrub_enable
        try:
            async with asyncio.timeout(None if milliseconds is None else milliseconds / 1000):
                while self._config().scrub_enable == was_enabled:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass

    async def check_all(self) -> list[DamagedRange]:
        """Check the whole log once; stops early if scrubEnable is switched off.

        Returns:
            The damage met that was not repaired.
        """
        began, before = self._clock.monotonic_ms(), self.checked_bytes
        end = self._store.max_physical_offset
        self.position = self._store.min_physical_offset
        left: list[DamagedRange] = []
        while self.position < end and self._config().scrub_enable:
            file = self._store.commit_log.files.find(self.position)
            if file is None:  # the file was deleted meanwhile
                self.position = max(self.position + 1, self._store.min_physical_offset)
                continue
            left += await self._check_file(file, min(file.file_size, end - file.file_from_offset))
            self.position = file.end_offset
        if self.position >= end:
            self.passes += 1
            self.damages = {offset: known for offset, known in self.damages.items() if known in left}
            took, size = self._clock.monotonic_ms() - began, self.checked_bytes - before
            log.info("scrub: %d bytes of log checked in %d ms, %d damaged ranges", size, took, len(left))
        self.position = -1
        return left

    async def _check_file(self, file: MappedFile, end: int) -> list[DamagedRange]:
        was_mapped = file.is_mapped
        left: list[DamagedRange] = []
        try:
            check = FileCheck(
                file.region, file.file_from_offset, end, file.file_size,
                check_prop_crc=self._config().force_verify_prop_crc,
            )  # fmt: skip
            while not check.is_done and self._config().scrub_enable:
                damage = await self._step(check)
                if self._store.commit_log.files.find(file.file_from_offset) is not file:
                    break  # the file was deleted meanwhile
                if damage is not None and not await self._meet(damage):
                    left.append(damage)
                self.position = file.file_from_offset + check.position
        except OSError as error:  # an error of the mapping; unreadable bytes are handled elsewhere
            log.error("scrub: %s is not checked: %s", file.path, error)
        finally:
            if not was_mapped and file is not self._store.commit_log.current:
                file.release()
        return left

    async def _step(self, check: FileCheck) -> DamagedRange | None:
        began_ms, position = self._clock.monotonic_ms(), check.position
        try:
            damage = await TOOLS.run(check.step)
        except OSError:
            damage = await TOOLS.run(check.skip_unreadable)
        size = check.position - position
        self.checked_bytes += size
        due_ms = size * 1000 // self._config().scrub_bytes_per_second
        await asyncio.sleep(max(0, began_ms + due_ms - self._clock.monotonic_ms()) / 1000)
        return damage

    async def _meet(self, damage: DamagedRange) -> bool:
        """Handle a damaged range. Returns whether it was repaired."""
        if self.damages.get(damage.physical_offset) != damage:
            self.found += 1
            self.damages[damage.physical_offset] = damage
            log.error("scrub: damage in the log: %s", damage)
        if not await self._on_damage(damage):
            return False
        del self.damages[damage.physical_offset]
        return True


def _goes_on_without(name: str, error: BaseException) -> None:
    log.critical("%s failed; the log is not checked any more", name, exc_info=error)
