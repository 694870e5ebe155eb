"""ConsumerOffsetOwnership: which broker of a group counts its consumer offsets, and how that comes back to the master.

A slave copies its master's offsets. When it becomes the group's active broker, what its consumers commit counts from
then on: the data version of its table jumps ahead, so that a master that comes back takes the table for the newer one,
even if its own file knows commits that never reached the slave. (Java's slave keeps the copied version, so a master
that had counted further ignores all that was consumed meanwhile.) It copies none of its master's offsets until it is
active no more: a master that comes back says where to copy from some time before it asks for them.

The master that comes back takes the larger offset of each queue (see SlaveToMasterSync).

Source:
    broker/BrokerPreOnlineService.java syncMetadataReverse.
"""

import logging
from typing import Final

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.tables.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.route import MASTER_ID
from maxq.runtime.interfaces import Clock

log = logging.getLogger(__name__)

#: How far the version jumps: more than a master can have counted since the slave's last copy, which may be hours old.
VERSION_JUMP: Final = 1 << 32


class ConsumerOffsetOwnership:
    """Makes the consumer offsets of a broker valid for the group while it is the active broker."""

    def __init__(self, offsets: ConsumerOffsetManager, own: BrokerAddress, clock: Clock) -> None:
        self._offsets = offsets
        self._own = own
        self._clock = clock

    def start(self) -> None:
        """Make this slave's offsets valid for the group from now on."""
        self._offsets.owns_offsets = True
        if self._own.broker_id != MASTER_ID:
            version = self._offsets.data_version
            self._offsets.begin_to_act(
                DataVersion(version.counter + VERSION_JUMP, version.state_version, self._clock.wall_ms())
            )

    def stop(self) -> None:
        """Give the ownership of the offsets back to the master: the copies that follow replace those here."""
        self._offsets.owns_offsets = False


def is_newer(one: DataVersion, other: DataVersion) -> bool:
    """Return whether `one` is newer (DataVersion.compare > 0): by state version first, then counter, then time."""
    return _rank(one) > _rank(other)


def _rank(version: DataVersion) -> tuple[int, int, int]:
    return version.state_version, version.counter, version.timestamp
