"""TermWriter: makes terms and votes durable, in order, on threads that nothing else uses (rule S3 of
docs/explanation/dledger.md).

A disk without room is not a failure. While a term cannot be stored, the core holds back all messages that depend on it,
and the member takes no part in elections; it continues by itself when there is room again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from maxq.errors import MaxQError
from maxq.protocol.dledger.ledger import HardState, Ledger
from maxq.runtime.blocking import VOTES
from maxq.store.files.disk_room import lacks_room

log: Final = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.5


class TermWriter:
    """Writes terms and votes of one member.

    Args:
        stored: called on the loop when a state is durable.
        failed: called when the disk refuses for another reason than want of room; nothing is written after that.
    """

    def __init__(
        self, store: Ledger, stored: Callable[[HardState], None], failed: Callable[[BaseException], None]
    ) -> None:
        self._store = store
        self._stored = stored
        self._failed = failed
        self._states: list[HardState] = []
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def put(self, state: HardState) -> None:
        """Let `state` be stored after those that were put before."""
        self._states.append(state)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="DLedger term")

    async def close(self) -> None:
        """Return when no write is under way any more. A state for which the disk has no room is dropped."""
        self._closing.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._states and await self._store_term(self._states[0]):
                self._stored(self._states.pop(0))
        except (MaxQError, OSError) as error:
            self._failed(error)
        finally:
            self._task = None

    async def _store_term(self, state: HardState) -> bool:
        """Store the term. Returns False if the writer was closed before it was durable."""
        is_told = False
        while True:
            try:
                await VOTES.run(self._store.store_term, state)
                return True
            except OSError as error:
                if not lacks_room(error):
                    raise
                if not is_told:
                    log.error("DLedger: term %d cannot be stored: %s; it is tried again", state.term, error)
                is_told = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS):
                    await self._closing.wait()
                return False
