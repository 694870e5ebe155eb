"""PreOnline: what a member of an acting-master group does before it registers with the name servers, or acts.

A master that comes back finds out which slaves are alive, tells each of them where it replicates from, waits until the
slave copies from it, and takes over the slave's state. A slave asks its master where it replicates from, and waits
until it copies from there. Each member is waited for at most 10 s altogether; then the broker goes online and logs what
it could not do. (Java repeats this without end, until the name server drops the member that does not copy.)

Name servers say which slaves are alive. The slaves say it, too, because each asks its master every
brokerHeartbeatInterval, even a master that it has lost (GroupApi.sign_of). So a master that reaches no name server uses
the slaves that have asked since it began, once there are as many as totalReplicas says and none of them says that it
acts because a name server, which the slave reaches, says so. Until then it waits, because a slave may be acting for it.
(Java's master waits for a name server.) A name server that was just started, or that a slave does not reach, names
fewer slaves; the missing ones get a few of these intervals to ask. A slave without a name server goes online after
10 s, and acts when a name server tells it to.

A slave that is about to act asks the other slaves for the state from the times when they acted: it comes back and has a
smaller id than the acting slave, or it replaces one that name servers do not hear. The other slave stops acting when it
answers. (Java's slave acts with what it knows itself.) A slave that does not act copies this state from the slave that
does, because that one may be gone when this slave has to act.

Source:
    broker/BrokerPreOnlineService.java, store/ha/HAConnectionStateNotificationService.java.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from maxq.broker.bundles import Environment
from maxq.broker.failover.group_api import GroupApi
from maxq.broker.failover.master_link import MasterLink
from maxq.broker.failover.role_lease import patience_ms
from maxq.codes import ResponseCode
from maxq.errors import BrokerError, MaxQError, RemotingConnectError, RemotingError
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.header.admin import ExchangeHAInfoHeader
from maxq.remoting.client import split_address

log = logging.getLogger(__name__)

#: Longest wait in ms for the answer of each member of the group, and of a slave for the name servers.
GIVE_UP_MS: Final = 10_000
RETRY_MS: Final = 1_000


class MetadataRestorer(Protocol):
    """The part of SlaveToMasterSync that PreOnline uses."""

    async def take_back(self, address: str, return_id: str) -> bool:
        """Take back the tables that the slave at `address` kept for this master. `return_id` names the master's return.
        Returns whether the slave may have acted.

        Raises:
            MaxQError: it does not give it.
            OSError: the disk refuses.
        """

    async def take_over(self, address: str) -> None:
        """Take over, on a slave that is about to act, what the slave at `address` kept while it acted. Raises as
        `take_back`; BrokerError, SERVICE_NOT_AVAILABLE: that one does not leave the group to this slave now."""

    async def copy(self, address: str, is_wanted: Callable[[], bool]) -> None:
        """Copy, on a slave that does not act, what the slave at `address` keeps while it acts, as long as that
        `is_wanted`. Raises as `take_back`."""

    def copied_of(self, address: str) -> bytes:
        """Return what `copy` has found out about messages that the slave at `address` gave to consumers."""

    def forget_copies(self) -> None:
        """Forget what `copy` has found out about messages given to consumers."""

    def take_pops(self) -> list[bytes]:
        """Return, once, what was taken of messages given to consumers."""


class MinBroker(NamedTuple):
    """The smallest id of another broker when this one went online; its own id if there was no other."""

    min_broker_id: int
    min_broker_addr: str


class PreOnline:
    """Does what one broker of an acting-master group must do before it registers with the name servers.

    Attributes:
        all_asked: when it has run, or taken over: no slave is left out that may act.
    """

    def __init__(
        self,
        env: Environment,
        api: GroupApi,
        link: MasterLink,
        metadata: MetadataRestorer,
    ) -> None:
        self._own = env.own
        self._api = api
        self._ha = link.ha
        self._sync = link.sync
        self._metadata = metadata
        self._flush_offset = link.flush_offset
        self._clock = env.clock
        # slaves that have asked this broker while it looks for others; None: it is not looking
        self._heard: dict[int, str] | None = None
        # ids of the slaves that said with their last question that they act
        self._acting: set[int] = set()
        self.all_asked = True
        # slaves that do not know the request for a copy, which is logged once for each
        self._not_copied_from: set[str] = set()
        self._settings = env.settings
        self._compatible = env.settings.broker.compatible_with_old_name_srv

    def hear_slave(self, broker_id: int, address: str, *, acts: bool = False) -> None:
        """Note that a slave of this master lives: it has asked; and whether it says that it acts."""
        if self._heard is not None:
            self._heard[broker_id] = address
            self._acting.discard(broker_id)
            self._acting |= {broker_id} if acts else set()

    async def run(self) -> MinBroker:
        """Run the preparation; returns when this broker may go online."""
        self._heard, self.all_asked = {}, True
        self._acting.clear()
        try:
            others = await self._others(self._heard)
        finally:
            self._heard = None
        if self._own.broker_id == MASTER_ID:
            for broker_id in sorted(others):
                await self._meet_slave(broker_id, others[broker_id])
            # After all waits: a slave that was asked promises nothing for a while. So the one that acts comes last.
            return_id = str(self._clock.wall_ms())
            for broker_id in sorted(others, reverse=True):
                await self._take_back(broker_id, others[broker_id], return_id)
            return MinBroker(MASTER_ID, self._own.address)
        if MASTER_ID in others:
            await self._meet_master(others[MASTER_ID])
        if not others:
            log.info("no other broker of the group %s is online", self._own.broker_name)
            return MinBroker(self._own.broker_id, self._own.address)
        smallest = min(others)
        return MinBroker(smallest, others[smallest])

    async def _others(self, heard: Mapping[int, str]) -> Mapping[int, str]:
        """Returns the other living members of the group, as a name server names them; a master adds the slaves that it
        has `heard`. If no name server answers, a master returns the slaves that it has heard once they are all, and a
        slave returns none after GIVE_UP_MS."""
        began_ms = self._clock.monotonic_ms()
        deadline, has_told = began_ms + GIVE_UP_MS, False
        answered_ms: int | None = None  # when a name server first did
        named: dict[int, str] = {}  # by one of all answers: who is named no more may act for a moment
        name, slaves = self._own.broker_name, self._settings.store.total_replicas - 1
        while True:
            wait_ms = RETRY_MS
            try:
                members = await self._api.member_group(compatible=self._compatible)
            except MaxQError as error:
                is_slave = self._own.broker_id != MASTER_ID
                if not is_slave and heard and len(heard) >= slaves and not self._acting:
                    log.warning("no name server lists the members of group %s (%s): asking its slaves", name, error)
                    return dict(heard)
                is_late = self._clock.monotonic_ms() >= deadline
                if is_late and (is_slave or not slaves):
                    log.warning("within %d ms no name server listed the members of group %s (%s): going online alone",
                                GIVE_UP_MS, name, error)  # fmt: skip
                    return {}
                if is_late and not has_told:
                    has_told = True
                    log.warning("no name server lists the members of group %s (%s), and %d of %d slaves have asked: "
                                "waiting, because one of them may act as the master",
                                name, error, len(heard), slaves)  # fmt: skip
            else:
                others = {i: addr for i, addr in members.items() if i != self._own.broker_id}
                if self._own.broker_id != MASTER_ID:
                    return others
                named |= others
                others = {**heard, **named}
                now_ms = self._clock.monotonic_ms()
                answered_ms = now_ms if answered_ms is None else answered_ms
                left_ms = answered_ms + patience_ms(self._settings) - now_ms
                if len(others) >= slaves or left_ms <= 0:
                    return others
                wait_ms = min(wait_ms, left_ms)
            await asyncio.sleep(wait_ms / 1000)

    # --- a master ---------------------------------------------------------------------------------------------------

    async def _meet_slave(self, broker_id: int, address: str) -> None:
        info = ExchangeHAInfoHeader(self._own.ha_address, self._flush_offset.own, self._own.address)
        if not await self._copies(broker_id, address, info):
            log.warning("slave %d at %s does not copy from this master: going on without it (it had %d ms at most)",
                        broker_id, address, GIVE_UP_MS)  # fmt: skip

    async def _take_back(self, broker_id: int, address: str, return_id: str) -> None:
        """Take the tables back from one slave after the other: each slave's offsets are merged with those of the
        earlier ones. A slave that is not sure of its role, or whose answer does not arrive, is asked again."""
        deadline = self._clock.monotonic_ms() + GIVE_UP_MS
        while True:
            try:
                await self._metadata.take_back(address, return_id)
                return
            except (MaxQError, OSError) as error:
                if not _may_answer_later(error) or self._clock.monotonic_ms() + RETRY_MS >= deadline:
                    log.warning("offsets that slave %d at %s may have kept were not taken back: %s",
                                broker_id, address, error)  # fmt: skip
                    self.all_asked &= not _may_answer_later(error)
                    return
            await asyncio.sleep(RETRY_MS / 1000)

    async def _copies(self, broker_id: int, address: str, info: ExchangeHAInfoHeader) -> bool:
        """Tell the slave to copy, repeatedly while it cannot be reached, and wait until it copies."""
        host, _ = split_address(address)
        deadline = self._clock.monotonic_ms() + GIVE_UP_MS
        while True:
            try:
                await self._api.send_ha_info(address, info)
                return await self._ha.wait_until_transfer(host, max(0, deadline - self._clock.monotonic_ms()))
            except MaxQError as error:
                log.info("slave %d at %s was not told where to copy from: %s", broker_id, address, error)
            if self._clock.monotonic_ms() + RETRY_MS >= deadline:
                return False
            await asyncio.sleep(RETRY_MS / 1000)

    # --- a slave ----------------------------------------------------------------------------------------------------

    async def take_over(self, slaves: Mapping[int, str], may_act: Callable[[], bool]) -> bool:
        """Take over, before this slave acts, the state of other slaves (by id) from the times when they acted. The one
        with the smallest id comes last, because it acted last. The state of a slave that does not answer is left out.

        Args:
            may_act: is this slave still to act? It is asked after each answer.

        Returns:
            Whether this slave may act; else it tries again later.
        """
        self.all_asked = True
        for broker_id in sorted(slaves, reverse=True):
            try:
                async with asyncio.timeout(GIVE_UP_MS / 1000):
                    await self._metadata.take_over(slaves[broker_id])
            except (MaxQError, OSError) as error:  # TimeoutError is one
                if isinstance(error, BrokerError) and error.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                    log.warning("slave %d at %s has not handed the group over to this master yet: %s",
                                broker_id, slaves[broker_id], error)  # fmt: skip
                    self._metadata.take_pops()
                    return False
                log.warning("offsets and pop records of slave %d at %s were not taken over: %s",
                            broker_id, slaves[broker_id], error)  # fmt: skip
                self.all_asked &= not (isinstance(error, TimeoutError) or _may_answer_later(error))
            if not may_act():
                self._metadata.take_pops()
                return False
        return True

    async def copy(self, address: str, is_wanted: Callable[[], bool]) -> bool:
        """Copy, on a slave that does not act, what the slave at `address`, which does, keeps. The slave that acts may
        die, and the next one must act without asking it. Returns False if that failed."""
        try:
            async with asyncio.timeout(GIVE_UP_MS / 1000):
                await self._metadata.copy(address, is_wanted)
        except (MaxQError, OSError) as error:  # TimeoutError is one
            is_unknown = isinstance(error, BrokerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            level = logging.DEBUG if is_unknown and address in self._not_copied_from else logging.INFO
            log.log(level, "offsets and pop records of the slave that acts, %s, were not copied: %s", address, error)
            if is_unknown:
                self._not_copied_from.add(address)
            return False
        self._not_copied_from.discard(address)
        return True

    def copied_of(self, address: str) -> bytes:
        """Return what was copied of messages that the slave at `address` gave to consumers; empty if nothing was."""
        return self._metadata.copied_of(address)

    def forget_copies(self) -> None:
        """Forget what was copied of messages given to consumers, because a master is active."""
        self._metadata.forget_copies()

    async def _meet_master(self, address: str) -> None:
        deadline = self._clock.monotonic_ms() + GIVE_UP_MS
        while True:
            try:
                info = await self._api.retrieve_ha_info(address)
                break
            except MaxQError as error:
                if self._clock.monotonic_ms() + RETRY_MS >= deadline:
                    log.warning("the master at %s did not say within %d ms where it replicates from (%s): going online",
                                address, GIVE_UP_MS, error)  # fmt: skip
                    return
            await asyncio.sleep(RETRY_MS / 1000)
        self._flush_offset.adopt(info.master_flush_offset)
        if not info.master_ha_address:
            log.warning("the master at %s does not replicate: going online without copying", address)
            return
        self._ha.update_master_ha_address(info.master_ha_address)
        self._sync.set_master_address(info.master_address or address)
        left_ms = max(0, deadline - self._clock.monotonic_ms())
        if not await self._ha.wait_until_transfer(split_address(info.master_ha_address)[0], left_ms):
            log.warning("the log of the master at %s was not copied within %d ms: going online, copying continues",
                        info.master_ha_address, GIVE_UP_MS)  # fmt: skip


def _may_answer_later(error: MaxQError | OSError) -> bool:
    if isinstance(error, RemotingConnectError):
        # a refused connection means that the process has ended, and with it the state in its memory
        return not error.is_refused
    is_unsure = isinstance(error, BrokerError) and error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    return is_unsure or isinstance(error, RemotingError)
