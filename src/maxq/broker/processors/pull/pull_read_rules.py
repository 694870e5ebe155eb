"""Which broker serves a reader: the rules of read/write separation.

    reader                  of a master                              of a slave
    in memory               group's brokerId (0: the master)         the same, so it goes back to the master
    further back            whichBrokerWhenConsumeSlowly (1)         the same, so it stays
    offset out of range     told where to go on (21)                 its offset is kept: 20, ask the group's broker
    log is another          -                                        the same: 20, ask the master, and no messages

"In memory" is judged by the broker that reads, by its own log and its own accessMessageInMemoryMaxRatio. All of it only
with `slaveReadEnable`; without, everybody is sent to the master and a slave answers no pulls at all.

A slave may lag, so an offset beyond its end says nothing about the reader. It never corrects one (`offsetCheckInSlave`
makes it). Such a reader is sent to the master. It comes back here only if there is no master, and then waits a moment
for the missing bytes (AHEAD_WAIT_MS); Java answers at once, and the client asks again in a tight loop. A reader of a
slave whose log differs from its master's is sent to the master, too: the master has other messages at these offsets,
which a reader of the slave's messages would miss.

Source:
    broker/processor/{PullMessageProcessor.composeResponseHeader,DefaultPullMessageResultHandler}.java.
"""

from typing import Final, NamedTuple, Protocol

from maxq.broker.processors.refusal import Refusal
from maxq.codes import ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.runtime.refusals import Cause

AHEAD_WAIT_MS: Final = 1_000


class Direction(NamedTuple):
    """The response code for a reader, and the id of the broker to ask next."""

    code: ResponseCode
    broker_id: int


class GroupStatus(Protocol):
    """The knowledge about the broker group (ActingMasterService)."""

    @property
    def is_acting_master(self) -> bool:
        """Return whether this slave acts as master, so that it serves readers without `slaveReadEnable` as well."""
        ...

    @property
    def log_is_another(self) -> bool:
        """Return whether this is a slave whose log was found to be another than its master's."""
        ...

    @property
    def min_broker_id(self) -> int | None:
        """Return the smallest id of a living broker; None if unknown. 0 sends readers near the end of the log back to
        the master, and they are not parked here."""
        ...


class ReadRules:
    """Decides from which broker readers read; role and switches follow the settings. One per broker.

    Attributes:
        group: what is known of the broker group.
    """

    def __init__(self, settings: BrokerSettings, group: GroupStatus) -> None:
        self._settings = settings
        self.group = group

    @property
    def is_slave(self) -> bool:
        return self._settings.store.broker_role == "SLAVE"

    @property
    def is_apart(self) -> bool:
        """Return whether this slave gives no messages, because its log is another than its master's."""
        return self.is_slave and self.group.log_is_another

    def refusal(self) -> Refusal | None:
        """Returns the refusal of a slave that may not be read (code 2, as in Java), with the remedy; None if reads are
        allowed."""
        if not self.is_slave or self._settings.broker.slave_read_enable or self.group.is_acting_master:
            return None
        return Refusal(
            ResponseCode.SYSTEM_BUSY,
            f"[{Cause.REJECTREQUEST}]system busy, start flow control for a while: this broker is a SLAVE and its "
            "slaveReadEnable is false, so it answers no pulls; read from the master, or set slaveReadEnable=true on "
            "this broker and its master",
        )

    def suggest(self, group: SubscriptionGroupConfig, is_behind: bool) -> int:
        """Return the id of the broker to ask next. `is_behind` means that the read messages lie further back than
        memory holds."""
        if not self._settings.broker.slave_read_enable:
            return MASTER_ID
        if is_behind:
            return group.which_broker_when_consume_slowly
        return MASTER_ID if self.master_is_there() else group.broker_id

    def direct(self, code: ResponseCode, group: SubscriptionGroupConfig, is_behind: bool) -> Direction:
        """Return the code for a reader, whose read had the outcome `code`, and the broker to ask next."""
        if code == ResponseCode.SUCCESS or not self.is_slave:
            return Direction(code, self.suggest(group, is_behind))
        if not is_behind and self.master_is_there():
            return Direction(ResponseCode.PULL_RETRY_IMMEDIATELY, MASTER_ID)
        if code == ResponseCode.PULL_OFFSET_MOVED and not self._settings.store.offset_check_in_slave:
            return Direction(ResponseCode.PULL_RETRY_IMMEDIATELY, group.broker_id)
        return Direction(code, self.suggest(group, is_behind))

    def may_wait_for_copy(self, code: ResponseCode) -> bool:
        """Return whether a reader whose offset lies beyond the end of its queue here, outcome `code`, may wait for the
        missing bytes."""
        return (
            code == ResponseCode.PULL_OFFSET_MOVED
            and self.is_slave
            and not self._settings.store.offset_check_in_slave
            and not self.master_is_there()
        )

    def master_is_there(self) -> bool:
        """Return whether this is a slave whose master lives, so that a reader that is sent to it finds it."""
        return self.is_slave and self.group.min_broker_id == MASTER_ID
