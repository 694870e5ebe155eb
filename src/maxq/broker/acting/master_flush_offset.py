"""MasterFlushOffset: up to where the master's log was durable when it started (checkpoint offset 24).

A slave keeps it for tools; nothing reads it here. It comes with the exchange of HA information (906), if the checkpoint
has none yet and syncMasterFlushOffsetWhenStartup is on, or from an administrator (908).

Source:
    store/DefaultMessageStore.java setMasterFlushedOffset; broker/BrokerController.java onMasterOnline.
"""

import logging

from maxq.config.settings import BrokerSettings
from maxq.store.message_store import MessageStore

log = logging.getLogger(__name__)


class MasterFlushOffset:
    """The number in the store's checkpoint."""

    def __init__(self, store: MessageStore, settings: BrokerSettings) -> None:
        self._checkpoint = store.checkpoint
        self._settings = settings

    @property
    def is_wanted(self) -> bool:
        """Is there none yet, although there should be?"""
        return self._settings.store.sync_master_flush_offset_when_startup and not self._checkpoint.master_flushed_offset

    def learn(self, offset: int | None) -> None:
        """A master says `offset`; taken if it is wanted."""
        if self.is_wanted and offset is not None:
            self.reset(offset)

    def reset(self, offset: int) -> None:
        """Take `offset` whatever was there; durable with the next flush of the checkpoint."""
        log.info("masterFlushedOffset of the checkpoint is %d now, it was %d",
                 offset, self._checkpoint.master_flushed_offset)  # fmt: skip
        self._checkpoint.master_flushed_offset = offset
        self._checkpoint.write()
