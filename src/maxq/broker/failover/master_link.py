"""MasterLink: what binds a member of a group to its master: replication of the log, copies of its tables, and the
offset up to which the master's log was durable.

MasterFlushOffset: up to where the master's log was durable when it started (checkpoint offset 24).

A slave keeps it for tools; nothing reads it here. It comes with the exchange of HA information (906), if the checkpoint
has none yet and syncMasterFlushOffsetWhenStartup is on, or from an administrator (908).

Source:
    store/DefaultMessageStore.java setMasterFlushedOffset; broker/BrokerController.java onMasterOnline.
"""

import logging
from typing import Protocol

from maxq.config.settings import BrokerSettings
from maxq.lazy_dataclass import dataclass
from maxq.store.message_store import MessageStore

log = logging.getLogger(__name__)


class HALink(Protocol):
    """The replication service as the failover services use it (HAService)."""

    @property
    def is_apart(self) -> bool:
        """Return whether this slave's log was found to be another than its master's."""

    def log_mark(self) -> str:
        """Return the check sum of the end of this broker's log, by which others see whether theirs is the same
        (replication/ha/log_mark.py)."""

    def has_other_log(self, mark: str) -> bool:
        """Return whether the log with this mark is found to be another than this broker's."""

    def hear_master_mark(self, mark: str) -> None:
        """Compare this slave's log with its master's, which has this mark."""

    def update_master_ha_address(self, address: str) -> None:
        """Copy from `host:port` from now on; an empty text stops the copying."""

    async def wait_until_transfer(self, host: str, timeout_ms: int) -> bool:
        """Wait up to that time for a connection: on a master until the slave at `host` copies, on a slave until this
        broker itself copies. Returns whether it does."""


class MetadataSync(Protocol):
    """Interface for copying the master's tables (RoleService, which passes it on to SlaveSynchronize)."""

    @property
    def master_address(self) -> str:
        """Return `host:port`; empty while no master is known."""

    def set_master_address(self, address: str) -> None:
        """Copy from `host:port` from now on; an empty text stops the copying."""


class MasterFlushOffset:
    """The master's flush offset that a slave keeps in its store's checkpoint.

    Attributes:
        own: physical offset where this broker's log ended when it was loaded; a slave is told so as its master's.
    """

    def __init__(self, store: MessageStore, settings: BrokerSettings) -> None:
        self._store = store
        self._checkpoint = store.checkpoint
        self.own = 0
        self._settings = settings

    def loaded(self) -> None:
        """Remember where the log ended; call this after the store was loaded."""
        self.own = self._store.max_physical_offset

    @property
    def is_wanted(self) -> bool:
        """Return whether this slave should have the offset and lacks it."""
        return self._settings.store.sync_master_flush_offset_when_startup and not self._checkpoint.master_flushed_offset

    def adopt(self, offset: int | None) -> None:
        """Adopt the master's `offset`, if `is_wanted`."""
        if self.is_wanted and offset is not None:
            self.reset(offset)

    def reset(self, offset: int) -> None:
        """Set the offset to `offset`, even if it is lower; it is durable with the next flush of the checkpoint."""
        log.info("masterFlushedOffset of the checkpoint is %d now, it was %d",
                 offset, self._checkpoint.master_flushed_offset)  # fmt: skip
        self._checkpoint.master_flushed_offset = offset
        self._checkpoint.write()


@dataclass(frozen=True, slots=True)
class MasterLink:
    """The connections of one broker to its master: replication, copies of tables, and its flush offset."""

    ha: HALink
    sync: MetadataSync
    flush_offset: MasterFlushOffset
