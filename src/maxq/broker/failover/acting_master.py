"""ActingMasterService: the part of one broker in its group.

It brings the broker online, sends heartbeats to the name servers, watches which broker of the group is active, and
starts or stops this broker's master-only services accordingly. Without enableSlaveActingMaster it only
brings the broker online: a master runs the master-only services, a slave does not.

**One broker at a time.** No two brokers of a group act at once. The active one promises nothing (Authority) when it has
not been told for a while that it still is the active one (RoleLease), and a slave that is about to act waits at least
as long.

**A broker that stood still.** In a group whose slaves may act, a broker that stood still (SIGSTOP, a virtual machine
that is moved) may have been given up and replaced. When it has not looked at the group for three quarters of
brokerNotActiveTimeoutMillis, it is not sure of its role and promises nothing (Authority) until it has looked. A master
then comes back as if it had been started: it takes over the state of the slave that acted for it (PreOnline). If a
slave reaches no name server for ten seconds, it continues as before: in a group without any name server no broker is
replaced. (The first question after a standstill often fails, because connections were closed meanwhile.)

**When a slave considers its master gone.** Name servers may miss a living master: they were restarted, or its
connection broke. So a slave asks its master all the time, and once more before it acts:

* If nobody listens at the master's address, or the master says that it is ending, it is gone.
* A master that answers is asked to stand back when name servers have missed it for brokerNotActiveTimeoutMillis,
  because clients do not find it. It does so unless a name server knows it, and comes back when one does.
* A master that is silent stands still, or is cut off by the network. It counts as gone when it has been silent for
  brokerNotActiveTimeoutMillis (a master that stood still is then not sure of its role) and name servers have missed it
  for longer than it would need to register again. The same holds for a master of which a slave that has just started
  knows nothing.

RocketMQ's masters do not stand back, and do not doubt their role: they and a slave may answer at once.

A slave whose log differs from its master's, because the master lost the end of its log and continued without it, does
not act: it would deliver messages that the master does not have, and its state would concern offsets at which the
master has other messages. It does not hand its state to a returning master either. While there is no master and another
slave is alive, it leaves the name servers, so that they send clients to the next slave.

**When a slave considers an acting slave gone.** Name servers may miss that slave, too. The slave with the next id asks
those with smaller ids that it knew of. One that answers or is silent counts as gone when name servers have missed it
for brokerNotActiveTimeoutMillis.

A slave that is about to act first asks the other slaves for the state from the times when they acted
(PreOnline.take_over), and a slave that acts gives the group up when it is asked. While it acts, the others copy its
state (PreOnline.copy).

Slaves continue to ask a master that they have lost. So a master that comes back and reaches no name server hears from
them, and takes over their state. An acting slave that gets no answer from any name server gives the group up to a
master that says that it is active: name servers may have replaced the slave, too.

On a slave: when a smaller id appears, its master-only services stop. When the master is gone, its address and HA
address are forgotten. When the master is back, both are set, and parked pulls are examined again, so that consumers
return to the master.

Source:
    broker/BrokerController.java startService, startServiceWithoutCondition, updateMinBroker, onMinBrokerChange,
    onMasterOffline, onMasterOnline, sendHeartbeat, syncBrokerMemberGroup.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from functools import partial
from typing import Final

from maxq.broker.bundles import Environment
from maxq.broker.failover.broker_group import BrokerGroup, MinBrokerChange
from maxq.broker.failover.group_api import GroupApi, Sign, is_refusal
from maxq.broker.failover.master_link import MasterLink
from maxq.broker.failover.master_only_services import MasterOnlyServices
from maxq.broker.failover.pre_online import GIVE_UP_MS, RETRY_MS, MinBroker, PreOnline
from maxq.broker.failover.role_lease import RoleLease, patience_ms
from maxq.broker.identity.registration import BrokerRegistration
from maxq.codes import ResponseCode
from maxq.errors import MaxQError, RequestRefusedError
from maxq.protocol.body.route import MASTER_ID
from maxq.remoting.first_answers import until_answered
from maxq.runtime.periodic import PeriodicTasks

log = logging.getLogger(__name__)

#: How often a slave copies the state of the slave that acts as master: seconds between two copies, most seconds after
#: copies that failed, and the largest share of the time that copying may take.
_COPY_SECONDS: Final = 3.0
_RETRY_COPY_SECONDS: Final = 15.0
_COPY_SHARE: Final = 0.05
#: Questions that a slave without an answer is asked before another slave acts without its state.
_SIGNS: Final = 3
#: How often a master that comes back asks its slaves, if one is told each time that it may act.
_PREPARATIONS: Final = 3


class ActingMasterService:
    """Brings a broker online and decides whether it acts for its group; see the module's text.

    Attributes:
        group: the known members of the group, which share this broker's name.
        is_ending: this broker shuts down, so another one may become active at any time.
    """

    def __init__(
        self,
        env: Environment,
        api: GroupApi,
        link: MasterLink,
        registration: BrokerRegistration,
        services: MasterOnlyServices,
        pre_online: PreOnline,
        notify_held: Callable[[], None],
    ) -> None:
        """`notify_held` is called to have parked pulls answered, so that consumers return to the master."""
        self._settings = env.settings
        self._clock = env.clock
        self._api = api
        self._ha = link.ha
        self._sync = link.sync
        self._flush_offset = link.flush_offset
        self._registration = registration
        self._services = services
        self._pre_online = pre_online
        self._notify_held = notify_held
        self._looked_ms = env.clock.monotonic_ms()  # when the last look at the group began
        self._lease = RoleLease(env.settings, env.own, self._looked_ms)
        self._is_out_because = ""  # why this master promises nothing until it has asked who is active
        self._stood_back = 0  # how often this master has left the group to a slave that asked for it
        self._began_ms = env.clock.wall_ms()  # wall time of the start, which marks the stamps of this run
        self._tasks = PeriodicTasks()
        self._signs: dict[str, asyncio.Task[None]] = {}  # under way, by name server
        self._changing = asyncio.Lock()  # changes are carried out in the order they were seen
        self._unmet_master: MinBrokerChange | None = None  # a master that did not say yet where it replicates from
        # monotonic time since which name servers miss a master that may be alive; None: none is missed
        self._missed_ms: int | None = None
        self._takes_over = False  # this slave is asking other slaves for their state, and acts afterwards
        self._lost_master = ""  # host:port, of a master that was taken for gone
        self._told_ms = env.clock.monotonic_ms()  # monotonic time of a name server's last answer about who is alive
        self._heard_ms = -(1 << 62)  # monotonic time at which the last question began that the master answered
        self._knows_group = False  # it is known which broker of the group is active
        self.group = BrokerGroup(env.own)
        self._has_refused = False  # it has refused to act as master, which is logged once
        self._has_withdrawn = False  # it has left the name servers, because its log differs from the group's
        self.is_ending = False
        self._copy_seconds = _COPY_SECONDS  # seconds until the next copy

    def loaded(self) -> None:
        """Note that the store was just loaded: this broker registers nothing until it has prepared to go online."""
        self._flush_offset.loaded()
        self._looked_ms = self._clock.monotonic_ms()
        self._began_ms = self._clock.wall_ms()
        self._registration.set_isolated(self._prepares())

    @property
    def is_isolated(self) -> bool:
        """Return whether this broker is still preparing to go online; it registers nowhere meanwhile."""
        return self._registration.is_isolated and not self._has_withdrawn

    @property
    def is_acting_master(self) -> bool:
        """Return whether this slave acts as its group's master."""
        return self.group.own_id != MASTER_ID and self._services.is_running

    @property
    def is_active(self) -> bool:
        """Whether this broker is the active one of its group, and sure of it."""
        return self._services.is_running and self.doubt() is None

    @property
    def min_broker_id(self) -> int | None:
        """Return the id of the group's active broker; None until a name server has named it, or without
        enableSlaveActingMaster."""
        return self.group.min_broker_id if self.group.min_broker_addr else None

    def doubt(self) -> str | None:
        """Return why this broker cannot be sure that it still is its group's active broker; None if it is sure."""
        if not self._settings.broker.enable_slave_acting_master:
            return None
        now_ms = self._clock.monotonic_ms()  # in nearly all cases this is all: it is asked for each batch of requests
        is_held = now_ms <= self._lease.sure_until_ms and not self._is_out_because
        if is_held and now_ms - self._looked_ms <= self._sure_ms:
            return None
        return self.stood_still() or self.may_be_replaced()

    def doubt_of_state(self) -> str | None:
        """Return why others of the group are not to take what this broker has: another one may have acted since, which
        this one has yet to ask. None if they may. A slave that acts hands over what it has in any case, unless it stood
        still."""
        return self.doubt() if self.group.own_id == MASTER_ID else self.stood_still()

    def stood_still(self) -> str | None:
        """Return why this broker does not know what became of its group; None if it has looked lately."""
        if not self._settings.broker.enable_slave_acting_master:
            return None
        silent_ms = self._clock.monotonic_ms() - self._looked_ms
        if silent_ms <= self._sure_ms:
            return None
        return f"it did not look at its group for {silent_ms} ms, and another broker may stand in for it"

    def may_be_replaced(self) -> str | None:
        """Return why another broker may act in the place of this one, which looks and is not told otherwise; None if
        none can."""
        if not self._settings.broker.enable_slave_acting_master:
            return None
        if self._is_out_because:
            return self._is_out_because
        why = self._lease.doubt(self._clock.monotonic_ms())
        return why if why is not None and self._registration.name_servers() else None

    @property
    def _sure_ms(self) -> int:
        """Return for how long nobody takes this broker's place, however silent it is."""
        return self._settings.broker.broker_not_active_timeout_millis * 3 // 4

    def preparation(self) -> str | None:
        """Return why this broker leaves promises to the one that stood in for it, which it has yet to ask; None if it
        is online."""
        return "it was started, and asks first who stood in for it" if self.is_isolated else None

    @property
    def alive_replicas(self) -> int:
        """Return the number of living brokers of the group, this one included; totalReplicas until a name server was
        asked."""
        return self.group.alive_replicas(self._settings.store.total_replicas)

    def _prepares(self) -> bool:
        broker = self._settings.broker
        return broker.enable_slave_acting_master and self._settings.store.total_replicas > 1

    def _asks_first(self) -> bool:
        """Return whether this broker asks who is there before it goes online. Without a name server nobody could have
        been told to stand in for it."""
        return not self._settings.broker.skip_pre_online and bool(self._registration.name_servers())

    # --- going online -----------------------------------------------------------------------------------------------

    async def go_online(self) -> None:
        """Prepare if requested, start the services that this broker is responsible for, and register. Failures are
        logged, not raised."""
        if self.is_isolated and self._asks_first():
            seen = await self._prepare()
            own_id = self.group.own_id
            if own_id == MASTER_ID or seen.min_broker_id != own_id:  # a slave that finds nobody looks again
                self.group.on_online(*seen)
            self._has_withdrawn = self.log_is_another and seen.min_broker_id not in (MASTER_ID, own_id)
        self._begin()
        self._registration.set_isolated(self._has_withdrawn)
        await self._registration.register_now()

    async def _prepare(self) -> MinBroker:
        """Find out who has acted. A master that leaves the group to a slave meanwhile does so once more: it may have
        asked that slave before. If it is asked to leave the group each time, it waits for name servers to name it."""
        for _ in range(_PREPARATIONS):
            before = self._stood_back
            seen = await self._pre_online.run()
            if before == self._stood_back or self.is_ending:
                return seen
        self._pre_online.all_asked = False
        return seen

    def _begin(self) -> None:
        """Begin to be the active broker if this is the master, which has prepared."""
        self._looked_ms = self._clock.monotonic_ms()
        self._is_out_because = ""
        self._lease.begin(self._looked_ms, all_asked=self._pre_online.all_asked)
        self._services.change(self.group.own_id == MASTER_ID)

    def start(self) -> None:
        """Start watching the group and sending heartbeats, if enableSlaveActingMaster is set."""
        broker = self._settings.broker
        if not broker.enable_slave_acting_master:
            return
        every = self._tasks.every
        every("broker heartbeat", broker.broker_heartbeat_interval / 1000, self.look)
        every("member group", broker.sync_broker_member_group_period / 1000, self.sync_member_group)
        every("master", broker.broker_heartbeat_interval / 1000, self.watch_master)
        every("copy of the acting slave", lambda: self._copy_seconds, self.copy_acting_slave)

    async def shutdown(self) -> None:
        """Stop watching the group and acting for it."""
        await self._tasks.stop()
        for sign in self._signs.values():
            sign.cancel()
        self.is_ending = True
        self._services.change(False)

    @property
    def _is_named(self) -> bool:
        """Return whether a name server has named this broker lately as the one with the smallest id, or none is set."""
        return not self._registration.name_servers() or self._lease.is_named(self._clock.monotonic_ms())

    def role_changed(self) -> None:
        """Follow a change of this broker's role between master and slave."""
        self._is_out_because = ""
        self._lease.begin(self._clock.monotonic_ms(), all_asked=True)
        self._services.change(self.group.own_id == MASTER_ID)

    # --- signs of life ----------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Send a heartbeat to the name servers. If another broker may have acted meanwhile, because this process was
        paused for long, or a master was cut off or has stood back, find out first which broker of the group is
        active."""
        began_ms = self._clock.monotonic_ms()
        must_ask = not self.is_isolated and self._must_ask(began_ms)
        if must_ask:
            log.warning("asking which broker of the group is active: %s", self.doubt())
            await self._look_again()
            began_ms = self._clock.monotonic_ms()
        self._looked_ms = began_ms
        await self.send_heartbeat()

    def _must_ask(self, now_ms: int) -> bool:
        if self.doubt() is None:
            return False
        is_master = self.group.own_id == MASTER_ID
        is_out = bool(self._is_out_because) or self._lease.was_lost(now_ms)
        return self.stood_still() is not None or (is_master and is_out)

    async def _look_again(self) -> None:
        if self.group.own_id != MASTER_ID:
            for _ in range(GIVE_UP_MS // RETRY_MS):
                if await self.sync_member_group():
                    break
                await asyncio.sleep(RETRY_MS / 1000)
            await self._hear_lost_master(is_told=False)  # a name server that was just started does not know the master
            return
        self._services.change(False)  # they begin with what slaves tell, and write nothing over it
        if self._asks_first():
            await self._prepare()
        elif self._prepares() and not self._is_named:
            self._is_out_because = self._is_out_because or "a slave may act for it, and no name server knows it"
            return
        self._begin()

    async def send_heartbeat(self) -> None:
        """Send a heartbeat to every name server at the same time. A name server that has not answered the last one gets
        none, and once one has answered, the others are not waited for, because one may hang."""
        if self._registration.is_isolated:
            return
        compatible = self._settings.broker.compatible_with_old_name_srv
        give = self._ask_for_change if compatible else self._give_sign
        loop = asyncio.get_running_loop()
        for address in self._registration.name_servers():
            if address not in self._signs:
                sign = self._signs[address] = loop.create_task(self._heard(give, address))
                sign.add_done_callback(partial(self._sign_ended, address))
        await until_answered(list(self._signs.values()))

    def _sign_ended(self, name_server: str, sign: asyncio.Task[None]) -> None:
        del self._signs[name_server]
        if not sign.cancelled():
            sign.exception()  # marks the exception as retrieved; it has been logged

    async def _ask_for_change(self, name_server: str) -> None:
        """Ask a name server which brokers live (322, which counts as a heartbeat, too). The answer also shows a name
        server that was restarted and does not know this broker: the others of the group would consider it dead until
        the next registration."""
        if await self._registration.is_outdated(name_server, self._settings.broker.send_heartbeat_timeout_millis):
            self._registration.register_all()

    async def _give_sign(self, name_server: str) -> None:
        await self._api.heartbeat(name_server, self._settings.broker.send_heartbeat_timeout_millis)

    @staticmethod
    async def _heard(give: Callable[[str], Awaitable[None]], name_server: str) -> None:
        """Give a sign of life to one name server.

        Raises:
            MaxQError: the name server did not answer, or refused it; this is logged.
        """
        try:
            await give(name_server)  # called here: a task cancelled before its first step must not leave it un-awaited
        except MaxQError as error:
            log.warning("name server %s did not take a heartbeat: %s", name_server, error)
            raise

    # --- which broker is active -----------------------------------------------------------------------------------

    async def sync_member_group(self) -> bool:
        """Fetch the living members of the group and apply changes. Returns whether a name server answered."""
        began_ms = self._clock.monotonic_ms()
        try:
            members = await self._api.member_group(compatible=self._settings.broker.compatible_with_old_name_srv)
        except MaxQError as error:
            log.warning("no name server listed the members of the group: %s", error)
            if is_refusal(error):
                self._lease.hold(began_ms)
            return False
        now_ms = self._clock.monotonic_ms()
        if members and min(members) == self.group.own_id:
            self._lease.on_named(began_ms, now_ms)
        untold_ms, self._told_ms = now_ms - self._told_ms, now_ms
        if not self.is_isolated:
            if untold_ms > self._sure_ms:
                await self._doubt_role(members)
            await self._follow(lambda: self.group.on_members(members), living=members)
            await self._show_or_hide(members)
        return True

    async def _show_or_hide(self, living: Container[int]) -> None:
        """Have name servers know a slave that left them when a master lives, or its log is found to be the master's;
        and end to act for a master that has come back for a moment, and whose log is another."""
        async with self._changing:
            if self.is_acting_master and self.log_is_another and not self.is_ending:
                self._services.change(False)
                self.group.pass_over((MASTER_ID, ""), self.group.members)
            elif self._has_withdrawn and (MASTER_ID in living or not self.log_is_another):
                log.warning("this slave registers at the name servers again")
                self._has_withdrawn = False
                self._registration.set_isolated(False)
                self._registration.register_all()

    async def _doubt_role(self, members: Mapping[int, str]) -> None:
        """Let an acting slave find out who is active, as after a start, because no name server has answered it for so
        long that another slave may have acted in its place. It takes over the state of the others."""
        async with self._changing:
            others = {*self.group.members, *members} - {MASTER_ID, self.group.own_id}
            if others and self.is_acting_master:
                self._services.change(False)
                self.group.pass_over((MASTER_ID, ""), self.group.members)

    async def on_min_broker_id_changed(self, min_broker_id: int, min_broker_addr: str, ha_address: str | None) -> None:
        """Handle a name server's notice of a new smallest id (905)."""
        log.info("the smallest broker id of the group is %d now, at %s; it was %d", min_broker_id, min_broker_addr,
                 self.group.min_broker_id)  # fmt: skip
        if self._settings.broker.enable_slave_acting_master:
            await self._follow(
                lambda: self.group.on_notice(min_broker_id, min_broker_addr, ha_address), living=(min_broker_id,)
            )
            if self.is_acting_master and self.doubt() is not None:
                await self.sync_member_group()  # which it asked before, and not when it was told

    async def _follow(self, news: Callable[[], MinBrokerChange | None], *, living: Container[int]) -> None:
        """Apply the change `news`, after earlier changes were applied. If it changes nothing, retry a master that could
        not be asked last time. `living` are the ids that the name server counts among the living."""
        async with self._changing:
            before, members = self.group.smallest, self.group.members
            change = news()
            if MASTER_ID in living or (before[0] < self.group.own_id and before[0] in living):
                self._missed_ms = None  # the broker that was missed is registered again
            if change is None:
                change, self._unmet_master = self._unmet_master, None
                if change is not None:
                    await self._on_master_online(change)
                return
            is_own = change.min_broker_id == self.group.own_id
            slaves = self._replaced(before, members) if is_own else {}
            if not change.has_master and await self._may_live(slaves, is_to_act=is_own):
                self.group.pass_over(before, members)
                return
            if self.is_ending:
                return
            own_id = self.group.own_id
            if is_own and self.log_is_another:
                others = self.group.members.keys() - {MASTER_ID, own_id}
                self.group.pass_over(before, members)
                await self._refuse_to_act(has_others=bool(others))
                return
            known = {**members, **self.group.members, before[0]: before[1]}
            if is_own and not await self._take_over(known, before[0]):
                self.group.pass_over(before, members)
                return
            self._unmet_master, self._missed_ms, self._knows_group = None, None, True
            log.info("broker %d at %s is the active one of the group now; this is %d", *change[:2], own_id)
            if not change.has_master:
                self._on_master_offline()
            self._services.change(is_own)
            if change.has_master:
                await self._on_master_online(change)

    @property
    def log_is_another(self) -> bool:
        """Return whether this is a slave whose log was found to be another than its master's."""
        return self.group.own_id != MASTER_ID and self._ha.is_apart

    @property
    def log_mark(self) -> str:
        """Return the check sum of the end of this broker's log, by which others see whether theirs is the same
        (replication/ha/log_mark.py)."""
        return self._ha.log_mark()

    def has_other_log(self, mark: str) -> bool:
        """Return whether the log with this mark, of another slave, is found to be another than this one's."""
        return self._ha.has_other_log(mark)

    def hear_master_mark(self, mark: str) -> None:
        """Compare this slave's log with that of its master, which comes back."""
        self._ha.hear_master_mark(mark)

    async def _refuse_to_act(self, *, has_others: bool) -> None:
        """Log that this slave does not act. Where another may, name servers are not to lead clients to this one."""
        level = logging.DEBUG if self._has_refused else logging.WARNING
        self._has_refused = True
        log.log(level, "this slave does not act for its master: its log is another. Keep what is needed of its store, "
                "then empty it and start it again")  # fmt: skip
        if has_others and not self._has_withdrawn:
            log.warning("this slave leaves the name servers until a master lives: another one is to act")
            self._has_withdrawn = True
            await self._registration.withdraw()

    def stamp(self) -> str:
        """Return what a slave is to return with its next question whether this master lives."""
        return f"{self._began_ms}.{self._clock.monotonic_ms()}"

    def hear_slave(self, broker_id: int | None, address: str | None, *, acts: bool, stamp: str | None) -> None:
        """Note, on a master, that a slave asked for a sign of life: whether it says that it acts, and the stamp that it
        returns, if it does. RocketMQ's slaves do not say who they are."""
        if not broker_id or not address:
            return
        self._pre_online.hear_slave(broker_id, address, acts=acts)
        began, _, at_ms = (stamp or "").partition(".")
        if began == str(self._began_ms) and at_ms.isdecimal():
            self._lease.on_stamp(broker_id, min(int(at_ms), self._clock.monotonic_ms()))

    def stand_back(self, broker_id: int | None, address: str | None) -> bool:
        """Leave the group, as a master, to a slave that name servers tell to act, until one knows this master again.
        Returns False if one knows it now, or if slaves do not act in this group."""
        if not self._settings.broker.enable_slave_acting_master:
            return False  # it does not look at its group, and nothing would start its services again
        self.hear_slave(broker_id, address, acts=True, stamp=None)
        if self._is_named:
            return False
        if self._services.is_running:
            log.warning("no name server knows this master: it leaves the group to a slave until one does")
        self._is_out_because = "no name server knew it, and it has left the group to a slave"
        self._stood_back += 1
        self._services.change(False)
        return True

    async def watch_master(self) -> None:
        """Ask the master whether it lives; if that is in doubt, ask the name servers for the living members, because
        their last notice may have been missed."""
        await self.hear_master()
        untold_ms = self._clock.monotonic_ms() - self._told_ms
        await self._hear_lost_master(is_told=untold_ms < patience_ms(self._settings))
        broker = self._settings.broker
        asks_seldom = broker.sync_broker_member_group_period > broker.broker_heartbeat_interval
        if self._missed_ms is not None or self.min_broker_id is None or (asks_seldom and self._services.is_running):
            await self.sync_member_group()

    async def hear_master(self) -> Sign:
        """Ask the master that this broker copies from whether it lives. Without a known master the result is GONE; for
        a slave that has just started, SILENT."""
        master, began_ms = self._sync.master_address, self._clock.monotonic_ms()
        if not master or self.group.own_id == MASTER_ID:
            return Sign.GONE if self._knows_group else Sign.SILENT
        sign = await self._sign_of(master)
        if sign.is_answer and master == self._sync.master_address:
            self._heard_ms = max(self._heard_ms, began_ms)
        return sign

    def hear_return(self, master: str) -> None:
        """Note, on a slave that acts, that the master at this `host:port` comes back and asks what was kept for it. A
        slave that was started while its master was away has not known it."""
        if master and self.is_acting_master:
            self._lost_master = master

    async def hear_returning_master(self) -> Sign:
        """Ask the master that this slave copies from, or stands in for, whether it lives; GONE if none is known."""
        master = self._sync.master_address or self._lost_master
        return await self._sign_of(master) if master else Sign.GONE

    async def _sign_of(self, master: str) -> Sign:
        return await self._api.sign_of(
            master,
            acts=lambda: self._takes_over or self.is_acting_master,
            is_told=lambda: self._is_named,
        )

    async def _hear_lost_master(self, *, is_told: bool) -> None:
        """Ask the master that this slave has lost: one that comes back hears who lives. Unless name servers have told a
        slave that acts that it is to act, it leaves the group to a master that is active."""
        master = self._lost_master
        copies = bool(self._sync.master_address) or self.group.own_id == MASTER_ID
        if not master or (copies and not self.is_acting_master):
            return
        began_ms = self._clock.monotonic_ms()
        sign = await self._sign_of(master)
        if sign is Sign.GONE:
            self._lease.on_master_gone(began_ms)
        if sign is Sign.LIVES and not is_told and self.is_acting_master:
            log.warning("the master at %s is active again, although no name server has reported it", master)
            await self._follow(lambda: self.group.on_notice(MASTER_ID, master, None), living=(MASTER_ID,))

    def _replaced(self, before: tuple[int, str], members: Mapping[int, str]) -> Mapping[int, str]:
        """Return the slaves with smaller ids, as they were known before, in whose place this slave would act."""
        return {i: address for i, address in (*members.items(), before) if MASTER_ID < i < self.group.own_id}

    async def _may_live(self, slaves: Mapping[int, str], *, is_to_act: bool) -> bool:
        """Return whether the master that name servers miss may be alive and active, or one of `slaves` may be alive,
        and has been missed for a short time only. A master is asked to stand back if this slave `is_to_act`."""
        broker, now_ms = self._settings.broker, self._clock.monotonic_ms()
        since_ms = now_ms if self._missed_ms is None else self._missed_ms
        is_over = now_ms - since_ms >= broker.broker_not_active_timeout_millis
        master = self._sync.master_address or self._lost_master
        sign = await self.hear_master()
        if not self._sync.master_address and master and await self._sign_of(master) is Sign.LIVES:
            sign = Sign.LIVES  # it was taken for gone, and goes on
        if is_over and sign.is_answer:
            sign = await self._api.ask_to_stand_back(master) if is_to_act else Sign.GONE
        is_silent_for_long = now_ms - self._heard_ms >= broker.broker_not_active_timeout_millis
        is_missed_for_long = now_ms - since_ms >= patience_ms(self._settings)
        if sign is not Sign.GONE and not (sign is Sign.SILENT and is_silent_for_long and is_missed_for_long):
            log.warning("the master at %s may be alive, although a name server has lost it: %s",
                        master, sign.value)  # fmt: skip
        elif is_over:
            return False
        else:
            signs = await asyncio.gather(*map(self._api.sign_of_slave, slaves.values()))
            may_live = [i for i, sign in zip(slaves, signs, strict=True) if sign is not Sign.GONE]
            if not may_live:
                return False
            log.warning("slave %d may be alive, although a name server has lost it", may_live[0])
        self._missed_ms = since_ms
        return True

    async def _take_over(self, known: Mapping[int, str], acted: int) -> bool:
        """Take over, before this slave acts, what the slaves that it knows by id kept while they acted; the id of the
        one that `acted` last may be the master's. Returns False if it is not to act now: one that acts does not leave
        the group to it, or is to act itself."""
        others = {i: address for i, address in known.items() if address and i not in (MASTER_ID, self.group.own_id)}
        if self._services.is_running:
            return True
        if not others:
            self._lease.begin_to_act(all_asked=True)
            return True
        self._takes_over = True
        try:
            living, silent = await self._living(others)
            may_act = await self._pre_online.take_over(living, lambda: self._takes_over and not self.is_ending)
        finally:
            self._takes_over = False
        self._lease.begin_to_act(all_asked=self._pre_online.all_asked and acted not in silent)
        return may_act

    async def _living(self, slaves: Mapping[int, str]) -> tuple[Mapping[int, str], Container[int]]:
        """Return those of these slaves, by id, that answer, and the ids of those that are silent. A silent one is asked
        again: a packet may be lost."""
        living: dict[int, str] = {}
        silent = dict(slaves)
        for _ in range(_SIGNS):
            if not silent:
                break
            signs = await asyncio.gather(*map(self._api.sign_of_slave, silent.values()))
            by_id = dict(zip(silent, signs, strict=True))
            living |= {i: slaves[i] for i, sign in by_id.items() if sign is Sign.LIVES}
            silent = {i: slaves[i] for i, sign in by_id.items() if sign is Sign.SILENT}
        return living, silent

    async def leave_to(self, broker_id: int, address: str) -> None:
        """Give the group up to another slave, which is about to act and asks for the state of this one. Of two that ask
        each other the one with the smaller id goes on.

        Raises:
            RequestRefusedError: this slave does not leave it: it is about to act, or its master comes back.
        """
        if self._takes_over:
            if self.group.own_id < broker_id:
                raise RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, "this slave is about to act itself")
            self._takes_over = False
        elif self.is_acting_master:
            log.warning("slave %d at %s is to act, and this one leaves the group to it", broker_id, address)
            await self._follow(lambda: self.group.on_notice(broker_id, address, None), living=(broker_id,))
            if self.is_acting_master:
                raise RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, "the master of this slave comes back")

    def copied_of(self, address: str) -> bytes:
        """Return what this slave has copied of the messages that the slave at `address` gave to consumers."""
        return self._pre_online.copied_of(address)

    async def copy_acting_slave(self) -> None:
        """Copy what another slave of the group keeps if it acts."""
        acting = self.group.smallest
        if acting[0] == MASTER_ID or not acting[1] or self.group.own_id == MASTER_ID:
            self._copy_seconds = _COPY_SECONDS
            return

        def is_wanted() -> bool:
            is_free = not (self._services.is_running or self._takes_over or self._sync.master_address)
            return is_free and acting == self.group.smallest and acting[0] != self.group.own_id

        if is_wanted() and not self.is_isolated and not self.log_is_another:
            began_ms = self._clock.monotonic_ms()
            if await self._pre_online.copy(acting[1], is_wanted):
                took = (self._clock.monotonic_ms() - began_ms) / 1000
                self._copy_seconds = max(_COPY_SECONDS, took / _COPY_SHARE)
            else:  # the time was spent on waiting, not on copying
                self._copy_seconds = min(2 * self._copy_seconds, _RETRY_COPY_SECONDS)

    def _on_master_offline(self) -> None:
        """Fail all requests to the lost master, so that no copy of its tables arrives after this broker's own
        commits."""
        master = self._sync.master_address
        self._sync.set_master_address("")
        self._ha.update_master_ha_address("")
        if master:
            self._lost_master = master
            self._api.drop_connection(master)

    async def _on_master_online(self, change: MinBrokerChange) -> None:
        address, ha_address = change.min_broker_addr, change.ha_address
        self._pre_online.forget_copies()
        if ha_address is None or self._flush_offset.is_wanted:
            try:
                info = await self._api.retrieve_ha_info(address)
            except MaxQError as error:
                log.warning("the master at %s does not say where it replicates from: %s", address, error)
                self._unmet_master = change
            else:
                self._flush_offset.adopt(info.master_flush_offset)
                ha_address = ha_address or info.master_ha_address
        self._heard_ms = self._clock.monotonic_ms()
        self._sync.set_master_address(address)
        if ha_address:
            self._ha.update_master_ha_address(ha_address)
        self._notify_held()
