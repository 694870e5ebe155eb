"""RoleLease: for how long nobody else can act in the place of a group's active broker, by what it was told.

The active broker of a group holds its role from the moment at which one of these began, for three quarters of
`patience_ms`:

* it asked the name servers who lives, and one of them named it as the one with the smallest id;
* it asked them, and all said by a closed port that no name server runs;
* a master: as many other brokers as `totalReplicas` says have taken note of it. With each answer to a slave's question
  whether it lives (906) it gives a stamp, the time by its clock, and the slave returns that. One that acts does not;
* an acting slave of a group of two: it asked the master, whose port is closed.

Others act at the earliest when that is over, and clocks differ by less than a quarter. A slave acts for a master or
another slave that is silent when name servers, which it reaches, have missed that one for `patience_ms`; for a master
that answers, when that one stands back. A master that comes back looks for slaves for `patience_ms` after a name server
has answered it. If it cannot ask one that name servers know, and that may act, it promises nothing until name servers
have named itself for `patience_ms`: the other one has heard of it by then, or reaches none.

If more than `patience_ms` are between two of these moments, another broker may have acted meanwhile: a master asks
again as after a start. All of this is for groups with `totalReplicas` above 1 and name servers; all of its brokers are
to have the same `brokerHeartbeatInterval`.
"""

from typing import Final

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.config.settings import BrokerSettings

#: A broker that lives asks, and registers at a name server that lost it, within so many of its heartbeat intervals.
_INTERVALS: Final = 3
#: Shorter intervals are no reason to take a broker for gone that got no processor for a moment.
_PATIENCE_MS_MIN: Final = 1_500
_NEVER: Final = -(1 << 62)


def patience_ms(settings: BrokerSettings) -> int:
    """Return for how long name servers are to miss a broker that is silent before another one acts, in ms."""
    return max(_INTERVALS * settings.broker.broker_heartbeat_interval, _PATIENCE_MS_MIN)


class RoleLease:
    """The lease of one broker. Pure: facts and times of its monotonic clock in, ms.

    Attributes:
        all_asked: everybody who may act in this broker's place was asked, or has had the time to hear of it.
        sure_until_ms: no other broker acts until then, ms of this broker's monotonic clock; it is read for each batch
            of requests.
    """

    def __init__(self, settings: BrokerSettings, own: BrokerAddress, now_ms: int) -> None:
        self._settings = settings
        self._own = own
        self._held_ms = now_ms  # when the newest of its facts was known to hold
        self._named_ms = _NEVER  # when the newest question began to which a name server named this broker
        self._grants: dict[int, int] = {}  # by id of the slave: its newest stamp
        self._was_lost = False
        self._named_since_ms: int | None = None  # while not all were asked
        self.all_asked = True
        self.sure_until_ms = 0
        self._set_end()

    @property
    def _others(self) -> int:
        return self._settings.store.total_replicas - 1

    @property
    def _sure_ms(self) -> int:
        return patience_ms(self._settings) * 3 // 4

    def begin(self, now_ms: int, *, all_asked: bool) -> None:
        """Note that this broker has prepared to be the active one."""
        self._held_ms = self._named_ms = now_ms
        self._was_lost = False
        self.begin_to_act(all_asked=all_asked)

    def begin_to_act(self, *, all_asked: bool) -> None:
        """Note that this broker is the active one by what it was told last."""
        self.all_asked, self._named_since_ms = all_asked, None
        self._set_end()

    def on_named(self, began_ms: int, now_ms: int) -> None:
        """Note that a name server, asked at `began_ms`, has named this broker as the one with the smallest id."""
        self._named_ms = max(self._named_ms, began_ms)
        if self._named_since_ms is None:
            self._named_since_ms = now_ms
        elif began_ms - self._named_since_ms >= patience_ms(self._settings):
            self.all_asked = True
        self.hold(began_ms)

    def on_stamp(self, slave_id: int, stamp_ms: int) -> None:
        """Note that a slave has returned a stamp. No more slaves count than there are, by totalReplicas."""
        if slave_id not in self._grants and len(self._grants) >= max(0, self._others):
            oldest = min(self._grants, key=lambda i: self._grants[i], default=None)
            if oldest is None or self._grants[oldest] >= stamp_ms:
                return
            del self._grants[oldest]
        self._grants[slave_id] = max(stamp_ms, self._grants.get(slave_id, _NEVER))
        if 0 < self._others <= len(self._grants):
            self.hold(sorted(self._grants.values())[-self._others])

    def on_master_gone(self, began_ms: int) -> None:
        """Note, on an acting slave, that nobody listened at its master's address when it asked there."""
        if self._others == 1:
            self.hold(began_ms)

    def hold(self, began_ms: int) -> None:
        """Note that nobody acts in this broker's place before `patience_ms` after `began_ms`."""
        if began_ms > self._held_ms:
            self._was_lost |= began_ms - self._held_ms > patience_ms(self._settings)
            self._held_ms = began_ms
        self._set_end()

    def _set_end(self) -> None:
        is_held = self.all_asked and not self._must_ask
        end_ms = self._held_ms + self._sure_ms if is_held else _NEVER
        self.sure_until_ms = end_ms if self._others else -_NEVER

    @property
    def _must_ask(self) -> bool:
        return self._was_lost and self._own.is_master

    def is_named(self, now_ms: int) -> bool:
        """Return whether a name server has named this broker so recently that no other one acts by what it says."""
        return now_ms - self._named_ms <= self._sure_ms

    def was_lost(self, now_ms: int) -> bool:
        """Return whether another broker may have acted since this master last prepared."""
        return self._others > 0 and (self._was_lost or now_ms - self._held_ms > patience_ms(self._settings))

    def doubt(self, now_ms: int) -> str | None:
        """Return why another broker may act in the place of this one; None if none can."""
        if now_ms <= self.sure_until_ms:
            return None
        unheard_ms = now_ms - self._held_ms
        if unheard_ms > self._sure_ms:
            return (
                f"for {unheard_ms} ms neither a name server nor all other brokers of its group said that it is active"
            )
        if self._must_ask:
            return "it was cut off for a while, and asks first who stood in for it"
        return "a broker that may act in its place could not be asked"
