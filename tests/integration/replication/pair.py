"""A master's and a slave's store with their HAServices on real sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maxq.config.broker_config import BrokerConfig
from maxq.config.settings import BrokerSettings
from maxq.replication.ha.ha_service import HAService
from maxq.runtime.files.system import SystemClock
from maxq.store.message_store import MessageStore
from tests.unit.store.stores import message, opened, small_config


@dataclass
class Member:
    """One broker of the group, as far as replication goes."""

    settings: BrokerSettings
    store: MessageStore
    ha: HAService

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ha.port}"

    def set(self, **changes: Any) -> None:
        """Change store settings of the running member."""
        self.settings.store = replace(self.settings.store, **changes)
        self.store.update_config(self.settings.store)

    def put(self, count: int, body: bytes = b"x" * 500) -> int:
        """Store messages; the end of the log."""
        for number in range(count):
            assert self.store.put_message(message("T", number % 4, body, KEYS=f"k{number}")).ok
        return self.store.max_physical_offset

    def log(self) -> bytes:
        position, log = self.store.min_physical_offset, b""
        while position < self.store.max_physical_offset:
            piece = self.store.log_bytes(position, 1 << 30)
            assert piece is not None
            log += bytes(piece)
            position += len(piece)
        return log


@asynccontextmanager
async def member(root: Path, role: str, master: str = "", port: int = 0, **changes: Any) -> AsyncIterator[Member]:
    """A started member; closed at the end."""
    config = small_config(root, broker_role=role, ha_master_address=master, **changes)
    settings = BrokerSettings(broker=BrokerConfig(broker_name="broker-a"), store=config)
    store = opened(config)
    ha = HAService(settings, store, SystemClock())
    await ha.start("127.0.0.1", port)
    try:
        yield Member(settings, store, ha)
    finally:
        await ha.shutdown()
        store.close()


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Turn the loop until `condition` holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for is another store
            await asyncio.sleep(0.001)
