"""How many copies a send to this broker waits for (CommitLog.asyncPutMessage, calcNeedAckNums).

`inSyncReplicas` counts the master. RocketMQ 5 takes 1 where nothing is given, so that its SYNC_MASTER waits for nobody;
here a SYNC_MASTER without an explicit number waits for one slave, as RocketMQ 4's did.
"""

from collections.abc import Callable

from maxq.config.settings import BrokerSettings
from maxq.runtime.refusals import Cause

#: What a SYNC_MASTER waits for if inSyncReplicas is not given: itself and one slave.
COPIES_OF_SYNC_MASTER = 2


class AckRule:
    """The rule that decides how many copies a send waits for. Settings are read for each call, because they may change
    at run time."""

    def __init__(self, settings: BrokerSettings, in_sync: Callable[[], int]) -> None:
        """`in_sync`: brokers of the group that live and are in sync, the master included."""
        self._settings = settings
        self._in_sync = in_sync

    def needed_acks(self) -> int:
        """Copies a send waits for, the master's included: 1 waits for nobody."""
        store = self._settings.store
        if store.broker_role != "SYNC_MASTER":
            return 1
        wanted = store.in_sync_replicas or COPIES_OF_SYNC_MASTER
        if store.enable_auto_in_sync_replicas and self._settings.broker.enable_slave_acting_master:
            return max(min(wanted, self._in_sync()), store.min_in_sync_replicas)
        return wanted

    def refusal(self) -> str | None:
        """Why nothing may be stored now, as the remark of an answer; None: go on. Only groups with an acting master
        refuse; others store and answer FLUSH_SLAVE_TIMEOUT."""
        store = self._settings.store
        if store.broker_role != "SYNC_MASTER" or not self._settings.broker.enable_slave_acting_master:
            return None
        needed = self.needed_acks()
        if needed <= 1:
            return None
        in_sync = self._in_sync()
        if needed <= in_sync:
            return None
        return (
            f"[{Cause.REPLICAS}]in-sync replicas not enough: {in_sync} of the needed {needed} copies are in sync, "
            "this broker included; "
            "start the slaves, or set inSyncReplicas or enableAutoInSyncReplicas"
        )

    def sentence(self) -> str:
        """The rule in force, for the log's start-up line."""
        role, sends = self.role_and_sends()
        return f"{role}: sends {sends}"

    def role_and_sends(self) -> tuple[str, str]:
        """Returns the role with the setting that decides it, and what sends wait for."""
        store = self._settings.store
        role, number = store.broker_role, store.in_sync_replicas
        if role != "SYNC_MASTER":
            return role, "wait for no slave"
        if not number:
            return f"{role}, inSyncReplicas is not given", "wait for one slave (RocketMQ 5 would wait for none)"
        if number == 1:
            return f"{role}, inSyncReplicas=1", "wait for no slave"
        slaves = "one slave" if number == 2 else f"{number - 1} slaves"
        auto = self._settings.broker.enable_slave_acting_master and store.enable_auto_in_sync_replicas
        fewer = f", for fewer (at least {store.min_in_sync_replicas} copies) while fewer are in sync" if auto else ""
        return f"{role}, inSyncReplicas={number}", f"wait for {slaves}{fewer}"
