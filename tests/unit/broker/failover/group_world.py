"""What surrounds a member of a broker group: replication, metadata sync, name servers, other brokers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

from maxq.broker.failover.acting_master import ActingMasterService
from maxq.broker.failover.group_api import GroupApi, Sign
from maxq.broker.failover.master_link import MasterFlushOffset, MasterLink
from maxq.broker.failover.master_only_services import MasterOnlyServices
from maxq.broker.failover.pre_online import PreOnline
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.identity.registration import BrokerRegistration
from maxq.config.settings import BrokerSettings
from maxq.errors import MaxQError, RemotingConnectError, RemotingTimeoutError
from maxq.protocol.header.admin import ExchangeHAInfoHeader
from maxq.runtime.interfaces import Clock
from maxq.store.message_store import MessageStore
from maxq.testing.sim_clock import SimClock
from tests.unit.broker.bundles_of import environment

MASTER = "10.0.0.1:10911"
MASTER_HA = "10.0.0.1:10912"
SLAVE_1 = "10.0.0.2:10911"
SLAVE_2 = "10.0.0.3:10911"
ADDRESSES = {0: MASTER, 1: SLAVE_1, 2: SLAVE_2, 3: "10.0.0.4:10911"}
INIT_MAX_OFFSET = 4096


@dataclass
class FakeHA:
    """Replication: `log` is what it was told; `copying` the hosts that copy (or, on a slave, whether it does). Its log
    is another than one with a mark in `other_marks`."""

    log: list[str] = field(default_factory=list)
    copying: set[str] = field(default_factory=set)
    waits: list[tuple[str, int]] = field(default_factory=list)
    is_apart: bool = False
    other_marks: set[str] = field(default_factory=set)

    def log_mark(self) -> str:
        return "1:2:3"

    def has_other_log(self, mark: str) -> bool:
        return mark in self.other_marks

    def hear_master_mark(self, mark: str) -> None:
        self.is_apart |= self.has_other_log(mark)

    def update_master_ha_address(self, address: str) -> None:
        self.log.append(address)

    async def wait_until_transfer(self, host: str, timeout_ms: int) -> bool:
        self.waits.append((host, timeout_ms))
        return host in self.copying


@dataclass
class FakeSync:
    """Metadata sync."""

    master_address: str = ""

    def set_master_address(self, address: str) -> None:
        self.master_address = address


@dataclass
class FakeGroupApi:
    """Name servers and the other brokers. An address in `silent` does not answer, one in `hanging` takes all the time
    there is for that; `signs` are those that masters give, GONE if none is named. `members` None: no name server. A
    master that is asked sets `was_asked`, and answers while `answers` is set. One that is asked to stand back is in
    `stood_back`, and answers `stands_back`."""

    members: dict[int, str] | None = field(default_factory=dict)
    ha_info: ExchangeHAInfoHeader = field(
        default_factory=lambda: ExchangeHAInfoHeader(MASTER_HA, INIT_MAX_OFFSET, MASTER)
    )
    silent: set[str] = field(default_factory=set)
    hanging: set[str] = field(default_factory=set)
    signs: dict[str, Sign] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    told: list[tuple[str, ExchangeHAInfoHeader]] = field(default_factory=list)
    heartbeats: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    fetches: int = 0
    stands_back: Sign = Sign.GONE
    stood_back: list[str] = field(default_factory=list)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    async def member_group(self, *, compatible: bool) -> dict[int, str]:
        self.fetches += 1
        if self.members is None:
            raise RemotingConnectError("no name server", address="")
        return dict(self.members)

    async def heartbeat(self, name_server: str, timeout_ms: int) -> None:
        if name_server in self.hanging:
            await asyncio.sleep(timeout_ms / 1000)
            raise RemotingTimeoutError("silent", address=name_server, timeout_ms=timeout_ms)
        self._meet(name_server)
        self.heartbeats.append(name_server)

    async def retrieve_ha_info(self, master: str) -> ExchangeHAInfoHeader:
        self.asked.append(master)
        self.was_asked.set()
        await self.answers.wait()
        self._meet(master)
        return self.ha_info

    async def sign_of(self, master: str, acts: Callable[[], bool], is_told: Callable[[], bool]) -> Sign:
        self.was_asked.set()
        await self.answers.wait()
        return self.signs.get(master, Sign.GONE)

    async def ask_to_stand_back(self, master: str) -> Sign:
        self.stood_back.append(master)
        return self.stands_back

    async def sign_of_slave(self, slave: str) -> Sign:
        return self.signs.get(slave, Sign.GONE)

    async def send_ha_info(self, slave: str, info: ExchangeHAInfoHeader) -> None:
        self.told.append((slave, info))
        self._meet(slave)

    def drop_connection(self, address: str) -> None:
        self.dropped.append(address)

    def _meet(self, address: str) -> None:
        if address in self.silent:
            raise RemotingConnectError(f"connect to <{address}> failed", address=address)


@dataclass
class FakeMetadata:
    """SlaveToMasterSync: whose tables were taken, and for which returns; `failure` is raised instead. What was taken of
    pops was dropped so often. `on_take` is called first."""

    taken: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)
    dropped: int = 0
    has_acted: bool = True
    forgotten: int = 0
    on_take: Callable[[], Awaitable[None]] | None = None
    copying: Callable[[], Awaitable[None]] | None = None  # what a copy does before it fails, or is made
    asked_to_copy: int = 0
    returns: list[str] = field(default_factory=list)
    failure: MaxQError | OSError | None = None

    async def take_back(self, address: str, return_id: str) -> bool:
        self.returns.append(return_id)
        if self.on_take is not None:
            await self.on_take()
        if self.failure is not None:
            raise self.failure
        self.taken.append(address)
        return self.has_acted

    async def take_over(self, address: str) -> None:
        if self.on_take is not None:
            await self.on_take()
        if self.failure is not None:
            raise self.failure
        self.taken.append(address)

    async def copy(self, address: str, is_wanted: Callable[[], bool]) -> None:
        self.asked_to_copy += 1
        if self.copying is not None:
            await self.copying()
        if self.failure is not None:
            raise self.failure
        self.copied.append(address)

    def copied_of(self, address: str) -> bytes:
        return b""

    def forget_copies(self) -> None:
        self.forgotten += 1

    def take_pops(self) -> list[bytes]:
        self.dropped += 1
        return []


@dataclass
class FakeRegistration:
    """How often everybody was told; while isolated nobody is. `on_register` is called then."""

    member: "Member"
    now: int = 0
    all_: int = 0
    is_isolated: bool = False
    on_register: Callable[[], None] = lambda: None

    def set_isolated(self, isolated: bool) -> None:
        self.is_isolated = isolated

    def name_servers(self) -> list[str]:
        return self.member.name_servers

    async def is_outdated(self, name_server: str, timeout_ms: int) -> bool:
        await self.member.api.heartbeat(name_server, timeout_ms)
        return name_server in self.member.outdated

    async def register_now(self) -> None:
        if not self.is_isolated:
            self.now += 1
            self.on_register()

    def register_all(self) -> None:
        self.all_ += 1

    async def withdraw(self) -> None:
        self.is_isolated = True


@dataclass
class FakeCheckpoint:
    master_flushed_offset: int = 0
    writes: int = 0

    def write(self) -> None:
        self.writes += 1


@dataclass
class FakeStore:
    checkpoint: FakeCheckpoint = field(default_factory=FakeCheckpoint)
    max_physical_offset: int = INIT_MAX_OFFSET


class Switch:
    """A master-only service."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def start(self) -> None:
        self.log.append("start")

    def stop(self) -> None:
        self.log.append("stop")


class Member:
    """The parts of one broker, put together as its controller does it."""

    def __init__(self, broker_id: int, clock: Clock | None = None, **settings: object) -> None:
        given = {
            "brokerName": "broker-a",
            "brokerId": str(broker_id),
            "enableSlaveActingMaster": "true",
            **{name: str(value) for name, value in settings.items()},
        }
        self.settings, _ = BrokerSettings.from_properties(given, source="test")
        host, _, port = ADDRESSES[broker_id].rpartition(":")
        self.own = BrokerAddress("C", "broker-a", broker_id, host, int(port))
        self.api = FakeGroupApi()
        self.ha = FakeHA()
        self.sync = FakeSync()
        self.metadata = FakeMetadata()
        self.registration = FakeRegistration(self)
        self.services = MasterOnlyServices()
        self.switch = Switch()
        self.services.register("switch", self.switch)
        self.store = FakeStore()
        self.flush_offset = MasterFlushOffset(cast(MessageStore, self.store), self.settings)
        self.link = MasterLink(self.ha, self.sync, self.flush_offset)
        self.notified = 0
        self.outdated: set[str] = set()
        self.name_servers = ["ns1:9876", "ns2:9876"]
        api = cast(GroupApi, self.api)
        env = environment(self.settings, own=self.own, clock=clock or SimClock())
        self.pre_online = PreOnline(env, api, self.link, self.metadata)
        self.acting = ActingMasterService(
            env,
            api,
            self.link,
            cast(BrokerRegistration, self.registration),
            self.services,
            self.pre_online,
            self._notify_held,
        )
        self.acting.loaded()

    def _notify_held(self) -> None:
        self.notified += 1

    async def see(self, *broker_ids: int) -> None:
        """Let these brokers live, and the name server be asked."""
        self.api.members = {broker_id: ADDRESSES[broker_id] for broker_id in broker_ids}
        await self.acting.sync_member_group()
