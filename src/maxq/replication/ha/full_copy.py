"""haFullCopy: an empty slave takes its master's whole log, not only the last file of it.

The first report of a slave says where the master starts. 0 means "from your last file", so a slave that has nothing
would never get the history: after a fail-over to it, all older messages were gone. Any other number means exactly
that place:

* the master's log begins above 0: its minimum offset, which is the start of a file;
* it begins at 0: **1**. The master sends from its second byte on, and the first byte of a record is always 0 (a record
  is smaller than 16 MiB, and the size comes first), so the slave's appender puts it there itself.

A master that is asked for bytes that it has deleted only sends heartbeats, without end. So its minimum is asked for
first (`commitLogMinOffset` of GET_BROKER_RUNTIME_INFO; Java and MaxQ tell it). If it is not known, because the slave
has only the master's HA address, 1 is tried. A MaxQ master understands 1 as "from the beginning, wherever that is". If
a Java master then only sends heartbeats, the last file is copied, which is logged.

Source:
    none: RocketMQ's classic slave always reports 0; in its controller mode the master sends from its minimum.
"""

import logging
from collections.abc import Awaitable, Callable

from maxq.replication.ha.ha_connection import FROM_THE_BEGINNING

log = logging.getLogger(__name__)

FROM_THE_LAST_FILE = 0


class FullCopy:
    """Chooses the offset that a slave without a log reports first; see FirstOffset in ha_client.py."""

    def __init__(self, is_wanted: Callable[[], bool], master_min_offset: Callable[[], Awaitable[int | None]]) -> None:
        """
        Args:
            is_wanted: the setting haFullCopy.
            master_min_offset: the smallest physical offset of the master's log, at most 0 if it is empty; None if
                nobody knows.
        """
        self._is_wanted = is_wanted
        self._master_min_offset = master_min_offset
        self._is_known = False
        self._is_beginning_gone = False  # the minimum is not known, and a request from byte 1 on brought nothing

    async def choose(self) -> int:
        """Return the offset to report: 0 for the last file, 1 for everything from 0 on, else the master's minimum."""
        if not self._is_wanted():
            return FROM_THE_LAST_FILE
        low = await self._master_min_offset()
        self._is_known = low is not None
        if low is not None:
            log.info("this slave is empty: it asks for the master's whole log, which begins at %d", max(low, 0))
            return max(low, FROM_THE_BEGINNING)
        if not self._is_beginning_gone:
            log.info("this slave is empty: it asks for the master's log from its first byte on")
            return FROM_THE_BEGINNING
        self._is_beginning_gone = False  # the next connection tries again
        log.warning(
            "this slave is empty and gets only the last file of its master's log: the first is deleted there, and "
            "where its log begins is not known, as only haMasterAddress is; set namesrvAddr to get all of it"
        )
        return FROM_THE_LAST_FILE

    def nothing_there(self, reported: int) -> bool:
        """Handle that the master sent a heartbeat and no log after the report of `reported`, while the log is still
        empty.

        Returns:
            True to connect and `choose` again; False to wait: the master may be as empty as this slave.
        """
        if reported == FROM_THE_LAST_FILE:
            return False
        if self._is_known:
            # the file with the minimum was deleted since the minimum was asked for
            return reported != FROM_THE_BEGINNING
        self._is_beginning_gone = True
        return True
