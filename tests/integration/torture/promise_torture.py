"""Promises of every kind on real processes: locks, offsets, topics, groups, sends, pops and acks, asked of all brokers
of a group while they are killed, paused, cut off, hand over and are restarted:
`python -m tests.integration.torture.promise_torture --rounds N [--seed S] [--on PLACE]`.

A round is one history: clients with names of their own ask for some seconds, one to three things happen to the brokers,
all is mended, and everything that was said must have been kept (tests/promise_history.py). The places:

| place | brokers | what may happen |
|---|---|---|
| `sync`, `async` | one; a killed process loses nothing, whatever its flushDiskType | kill, pause, clean restart |
| `pair` | SYNC_MASTER and slave | the same of both, their link cut or reset, the slave made the master |
| `acting` | the same, and the slave stands in for its master | the master is away, stands still, comes back |
| `dledger` | three members | kill, pause, cut off, hand over, rolling restart |

Each has two name servers, and one of them may stand still.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import re
import signal
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from maxq.client.admin.admin import Admin
from maxq.client.client_config import ClientConfig
from maxq.codes import RequestCode, ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import MaxQError
from maxq.machine import system_environment
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.remoting.client import RemotingClient
from tests.integration.processes.dledger_cluster import GROUP, Cluster, Member
from tests.integration.processes.fault_proxy import FaultProxy
from tests.integration.processes.ha_torture_cluster import MASTER, SLAVE, BrokerProcess
from tests.integration.processes.maxq_process import Process
from tests.interop.processes.servers import free_port_base
from tests.promise_clients import PromiseClients, PromiseTraffic
from tests.promise_history import Change, History, Kind

INVISIBLE_MS: Final = 5_000
SAFE_MS: Final = 4_500  # of it, on one clock
T = TypeVar("T")
Fault = Callable[[], Awaitable[None]]
PATIENCE_S: Final = 90.0  # the machine may be busy
_ANSWERS: Final = 60  # that are given before and after what happens, at least
_POLL_S: Final = 0.02
#: The end of a role is told in the log a moment after it.
_TOLD_LATE_S: Final = 0.01
QUICK: Final = {
    "timerPrecisionMs": "100", "reviveInterval": "100", "autoCreateSubscriptionGroup": "true",
    "flushConsumerOffsetInterval": "500", "slaveTimeout": "3000",
}  # fmt: skip
ACTING: Final = {
    "enableSlaveActingMaster": "true", "slaveReadEnable": "false", "totalReplicas": "2",
    "brokerHeartbeatInterval": "200", "brokerNotActiveTimeoutMillis": "1500", "syncBrokerMemberGroupPeriod": "200",
}  # fmt: skip


class Place(ABC):
    """What serves the clients.

    Attributes:
        name_server: their addresses, as clients take them.
        broker_name: of the group.
        brokers: by name, those that a client could ask.
        name_servers: two.
        history: the one that is being told.
        hands_on_commits: a broker that lives tells whoever speaks next what was committed to it.
        late_s: see PromiseTraffic.
        faults: what may happen; each returns when it is mended.
    """

    cluster_name: ClassVar = "TortureCluster"
    hands_on_commits: ClassVar = True
    late_s: ClassVar[float] = float("inf")
    has_one_master: ClassVar = True
    ROLE: ClassVar[re.Pattern[str] | None] = None  # in logs: when a role changed, and the word for the new one
    LEADS: ClassVar = ""
    name_server: str
    name_servers: Sequence[Process]
    broker_name: str
    brokers: Mapping[str, BrokerProcess | Member]
    faults: list[Fault]

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.history = History(time.monotonic)
        self._said: dict[str, str] = {}  # what brokers wrote before they were started again

    @property
    def addresses(self) -> dict[str, str]:
        """By name of the broker."""
        return {name: f"127.0.0.1:{broker.port}" for name, broker in self.brokers.items()}

    @abstractmethod
    async def start(self) -> None:
        """Everything runs."""

    @abstractmethod
    async def finish(self) -> None:
        """All end in order."""

    @abstractmethod
    async def end(self) -> None:
        """Kill what still runs."""

    @abstractmethod
    async def end_one(self, name: str) -> None:
        """SIGTERM for this broker, and a clean end."""

    @abstractmethod
    async def begin_one(self, name: str) -> None:
        """Start a broker that `end_one` has ended; returns when it serves as before."""

    def begin_history(self) -> History:
        """Another one is told from now on."""
        self.history = History(time.monotonic, knows_roles=True, has_one_master=self.has_one_master)
        return self.history

    def end_history(self) -> None:
        """Nobody asks any more: the history hears what brokers wrote of their roles."""
        if self.ROLE is None:
            return
        offset = time.monotonic() - time.time()
        for name in self.brokers:
            changes = self.history.changes.setdefault(name, [])
            for when, role in self.ROLE.findall(self.said(name)):
                at = datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f").timestamp() + offset
                leads = role == self.LEADS
                changes.append(Change(at - (0 if leads else _TOLD_LATE_S), leads, self.hands_on_commits))
            changes.sort(key=lambda change: change.when)

    def keep_log(self, name: str) -> None:
        """Before this broker is started again."""
        self._said[name] = self.said(name)

    def said(self, name: str) -> str:
        """All that this broker wrote, in all its runs."""
        return self._said.get(name, "") + self.brokers[name].log_text()

    async def pause(self, up_to: float = 1.0) -> None:
        await asyncio.sleep(self.rng.uniform(0.1, up_to))

    async def stands_still(self, process: Process, up_to: float) -> None:
        """SIGSTOP, for a while."""
        process.pause()
        try:
            await self.pause(up_to)
        finally:
            process.go_on()

    async def a_name_server_hangs(self) -> None:
        """Everybody goes on with the other one. When it goes on, it believes for a moment what was true before."""
        await self.stands_still(self.rng.choice(self.name_servers), 5.0)


class Alone(Place):
    """One broker. It leads as long as it runs; what it has in memory is gone when it is killed."""

    SETTINGS: ClassVar[Mapping[str, str]] = {"brokerId": "0", "brokerRole": "ASYNC_MASTER", **QUICK}

    def __init__(self, folder: Path, rng: random.Random, flush: str) -> None:
        super().__init__(rng)
        port = free_port_base(10)
        ports = (port, port + 2)
        self.name_server = ";".join(f"127.0.0.1:{one}" for one in ports)
        self.broker_name = "torture"
        self.name_servers = [_name_server(folder, one) for one in ports]
        self.master = BrokerProcess(
            "master", folder / "master", port + 3, self.name_server, {**self.SETTINGS, "flushDiskType": flush}
        )
        self.brokers = {"master": self.master}
        self.faults = [
            self.kill_the_master, self.kill_while_starting, self.pause_the_master, self.restart,
            self.a_name_server_hangs,
        ]  # fmt: skip

    def begin_history(self) -> History:
        history = super().begin_history()
        for name in self.brokers:
            history.changed(name, leads=self._leads(name))
        return history

    def _leads(self, name: str) -> bool:
        return self.brokers[name] is self.master

    async def start(self) -> None:
        for name_server in self.name_servers:
            await name_server.start()
        for name in self.brokers:
            await self._start(name)

    async def finish(self) -> None:
        for broker in reversed(list(self.brokers.values())):
            await broker.stop()

    async def end(self) -> None:
        for process in (*self.brokers.values(), *self.name_servers):
            await process.kill()

    async def end_one(self, name: str) -> None:
        await self._stop(name)

    async def begin_one(self, name: str) -> None:
        await self._start(name, in_order=True)

    async def _start(self, name: str, *, in_order: bool = False) -> None:
        """`in_order`: it ended so."""
        self.history.changed(name, leads=self._leads(name), keeps_offsets=in_order)
        self.keep_log(name)
        await self.brokers[name].start()

    async def _kill(self, name: str) -> None:
        await self.brokers[name].kill()
        self.history.changed(name)

    async def _stop(self, name: str) -> None:
        await self.brokers[name].stop()
        self.history.changed(name, keeps_offsets=True)

    def _name_of(self, broker: BrokerProcess) -> str:
        return next(name for name, one in self.brokers.items() if one is broker)

    async def kill_the_master(self) -> None:
        name = self._name_of(self.master)
        await self._kill(name)
        await self.pause()
        await self._start(name)

    async def kill_while_starting(self) -> None:
        name = self.rng.choice(list(self.brokers))
        await self._kill(name)
        self.keep_log(name)
        await self.brokers[name].spawn()
        await self.pause(0.7)
        await self._kill(name)
        await self._start(name)

    async def pause_the_master(self) -> None:
        await self.stands_still(self.master, 3.0)

    async def restart(self) -> None:
        """One after the other, the master last."""
        for name in reversed(list(self.brokers)):
            await self.end_one(name)
            await self.begin_one(name)


class Pair(Alone):
    """Sends, acks, topics and groups are on two disks before the answer."""

    SETTINGS: ClassVar = {**MASTER, **QUICK}
    SLAVE_SETTINGS: ClassVar = {**SLAVE, **QUICK}

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng, "ASYNC_FLUSH")
        port = self.master.port + 5
        self.slave = BrokerProcess("slave", folder / "slave", port, self.name_server, self.SLAVE_SETTINGS)
        self.brokers = {"a": self.master, "b": self.slave}
        self.link = FaultProxy(self.master.port + 1)
        self.faults += [
            self.kill_the_slave,
            self.kill_both,
            self.pause_the_slave,
            self.cut_the_link,
            self.reset_the_link,
            self.make_the_slave_the_master,
        ]

    async def start(self) -> None:
        await self.link.start()
        self.slave.configure({"haMasterAddress": self.link.address})
        await super().start()

    async def end(self) -> None:
        await super().end()
        await self.link.stop()

    async def kill_the_slave(self) -> None:
        name = self._name_of(self.slave)
        await self._kill(name)
        await self.pause()
        await self._start(name)

    async def kill_both(self) -> None:
        for name in self.rng.sample(list(self.brokers), 2):
            await self._kill(name)
        for name in self.rng.sample(list(self.brokers), 2):
            await self._start(name)

    async def pause_the_slave(self) -> None:
        await self.stands_still(self.slave, 3.0)

    async def cut_the_link(self) -> None:
        self.link.cut()
        await self.pause()
        self.link.mend()

    async def reset_the_link(self) -> None:
        for _ in range(3):
            self.link.reset()
            await self.pause(0.3)

    async def make_the_slave_the_master(self) -> None:
        """As docs/howto/master-and-slave.md says, of a master that was killed: it comes back as an empty slave."""
        await self.until_in_sync()
        for name in self.brokers:
            await self._kill(name)
        self.master, self.slave = self.slave, self.master
        await self.link.stop()
        self.link = FaultProxy(self.master.port + 1)
        await self.link.start()
        self.master.configure({**self.SETTINGS, "haMasterAddress": ""})
        self.slave.empty()
        self.slave.configure({**self.SLAVE_SETTINGS, "haMasterAddress": self.link.address})
        for broker in (self.master, self.slave):
            await self._start(self._name_of(broker))
        await self.until_in_sync()

    async def until_in_sync(self) -> None:
        """Return when a message, and a topic that is made then, are on the disks of both brokers."""
        ext = {"topic": "in-sync", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
               "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
        asked = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
        header = SendMessageRequestHeader("PG", "in-sync", "TBW102", 1, 0, 0, 0, 0, "", 0, False, False)
        sent = RemotingCommand(RequestCode.SEND_MESSAGE_V2, header.encode_v2(), b"in sync")
        client = _remoting_client()

        async def is_made() -> bool:
            with contextlib.suppress(MaxQError):
                for request in (sent, asked):  # the message tells that the slave is linked: a topic waits for who lives
                    reply = await client.invoke(f"127.0.0.1:{self.master.port}", request, 10_000)
                    if reply.code != ResponseCode.SUCCESS:
                        return False
                return await self._slave_has_all()
            return False

        try:
            await until(is_made, "the slave has everything")
        finally:
            await client.close()

    async def _slave_has_all(self) -> bool:
        ends = [broker.log().end for broker in (self.slave, self.master)]
        return ends[0] == ends[1]


class Acting(Alone):
    """The slave acts while the master is away. They write when they become the active one, and when they end."""

    SETTINGS: ClassVar = {**MASTER, **QUICK, **ACTING}
    late_s = int(QUICK["slaveTimeout"]) / 1000
    ROLE = re.compile(r"^(\S+ \S+) .*master-only services (start|stop): ", re.MULTILINE)
    LEADS = "start"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng, "ASYNC_FLUSH")
        settings = {**SLAVE, **QUICK, **ACTING}
        self.slave = BrokerProcess("slave", folder / "slave", self.master.port + 5, self.name_server, settings)
        self.brokers = {"master": self.master, "slave": self.slave}
        for broker in (self.master, self.slave):
            broker.arguments.insert(1, "--verbose")
        self.faults = [
            self.master_is_away, self.master_is_away, self.pause_the_master, self.pause_for_long, self.kill_the_slave,
            self.restart, self.master_ends, self.a_name_server_hangs,
        ]  # fmt: skip

    def begin_history(self) -> History:
        return Place.begin_history(self)

    def _leads(self, name: str) -> bool:
        return False  # it says when it does

    async def master_is_away(self) -> None:
        """Killed, until the slave has acted for a while."""
        await self._kill("master")
        await self._until_acts()
        await self.pause(2.0)
        await self._start("master")

    async def master_ends(self) -> None:
        await self._stop("master")
        await self._until_acts()
        await self.pause(2.0)
        await self._start("master", in_order=True)

    async def pause_for_long(self) -> None:
        """It goes on with what waits in its sockets, and another one has spoken for its group."""
        self.master.pause()
        try:
            await self._until_acts()
            await self.pause(2.0)
        finally:
            self.master.go_on()

    async def kill_the_slave(self) -> None:
        await self._kill("slave")
        await self.pause()
        await self._start("slave")

    async def _until_acts(self) -> None:
        """Somebody got a lock from it."""
        told = len(self.history.told)

        async def acts() -> bool:
            return any(one.kind is Kind.LOCK and one.ok and one.broker == "slave" for one in self.history.told[told:])

        await until(acts, "the slave acts")


class DLedger(Place):
    """Three members. Who leads when is read in their logs, when a history is over."""

    hands_on_commits = False
    has_one_master = False
    ROLE = re.compile(r"^(\S+ \S+) .*DLedger: \w+ of group \w+ is (\w+) in term \d+", re.MULTILINE)
    LEADS = "LEADER"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(rng)
        self._cluster = Cluster(folder, name_servers=2)
        self.name_servers = self._cluster.name_servers
        for member in self._cluster.members:
            member.more = QUICK
        self.name_server = self._cluster.name_server_address
        self.broker_name = GROUP
        self.brokers = {member.name: member for member in self._cluster.members}
        self.faults = [
            self.kill_the_leader, self.kill_a_follower, self.kill_all, self.pause_the_leader, self.wake_yesterdays,
            self.pause_a_follower, self.hand_over, self.hand_over, self.restart, self.nobody_reaches_the_leader,
            self.leader_reaches_nobody, self.a_name_server_hangs,
        ]  # fmt: skip

    async def start(self) -> None:
        await self._cluster.start()
        await until(self._has_leader, "somebody leads")

    async def finish(self) -> None:
        for member in self._cluster.members:
            await member.stop()

    async def end(self) -> None:
        await self._cluster.end()

    async def end_one(self, name: str) -> None:
        await self._member(name).stop()
        self.history.changed(name)

    async def begin_one(self, name: str) -> None:
        await self._start(self._member(name))
        await self._leader()

    def _member(self, name: str) -> Member:
        return next(member for member in self._cluster.members if member.name == name)

    async def _has_leader(self) -> bool:
        return await self._cluster.leader() is not None

    async def _start(self, member: Member) -> None:
        self.keep_log(member.name)
        await member.start()

    async def _kill(self, member: Member) -> None:
        await member.kill()
        self.history.changed(member.name)

    # -- what may happen --

    async def _leader(self) -> Member:
        await until(self._has_leader, "somebody leads")
        return await self._cluster.leader() or await self._leader()

    async def _follower(self) -> Member:
        leader = await self._leader()
        return self.rng.choice([member for member in self._cluster.members if member is not leader])

    async def _until_another_leads(self, but: Member) -> None:
        async def another() -> bool:
            return await self._cluster.leader() not in (None, but)

        await until(another, f"another one than {but.name} leads")

    async def kill_the_leader(self) -> None:
        leader = await self._leader()
        await self._kill(leader)
        await self._until_another_leads(leader)
        await self.pause()
        await self._start(leader)

    async def kill_a_follower(self) -> None:
        follower = await self._follower()
        await self._kill(follower)
        await self.pause(2.0)
        await self._start(follower)

    async def kill_all(self) -> None:
        for member in self.rng.sample(self._cluster.members, 3):
            await self._kill(member)
        for member in self.rng.sample(self._cluster.members, 3):
            await self._start(member)

    async def pause_the_leader(self) -> None:
        await self.stands_still(await self._leader(), 4.0)

    async def pause_a_follower(self) -> None:
        await self.stands_still(await self._follower(), 4.0)

    async def wake_yesterdays(self) -> None:
        """It goes on with what waits in its sockets, and another one has spoken for its group."""
        leader = await self._leader()
        leader.pause()
        try:
            await self._until_another_leads(leader)
            await self.pause(2.0)
        finally:
            leader.go_on()

    async def hand_over(self) -> None:
        for _ in range(3):
            leader = await self._leader()
            to = self.rng.choice([member for member in self._cluster.members if member is not leader])
            with contextlib.suppress(MaxQError):  # it lags too far behind, say
                await self._cluster.client.transfer(to.name)
            await self.pause(0.5)

    async def restart(self) -> None:
        """One after the other."""
        for name in self.rng.sample(list(self.brokers), 3):
            await self.end_one(name)
            await self.begin_one(name)

    async def nobody_reaches_the_leader(self) -> None:
        await self._with_links([await self._leader()], FaultProxy.cut)

    async def leader_reaches_nobody(self) -> None:
        leader = await self._leader()
        await self._with_links([member for member in self._cluster.members if member is not leader], FaultProxy.stall)

    async def _with_links(self, members: Sequence[Member], fault: Callable[[FaultProxy], None]) -> None:
        links = [member.link for member in members if member.link is not None]
        for link in links:
            fault(link)
        await self.pause(3.0)
        for link in links:
            link.mend()


PLACES: Final[Mapping[str, Callable[[Path, random.Random], Place]]] = {
    "dledger": DLedger,
    "pair": Pair,
    "acting": Acting,
    "sync": lambda folder, rng: Alone(folder, rng, "SYNC_FLUSH"),
    "async": lambda folder, rng: Alone(folder, rng, "ASYNC_FLUSH"),
}


class PromiseTorture:
    """One place, and one history after the other.

    Attributes:
        clients: ask for promises.
        told: how many answers of each kind promised something.
        happened: how often what happened.
        broken: the promises that were not kept.
    """

    clients: ClassVar[type[PromiseClients]] = PromiseClients

    def __init__(self, place: Place, rng: random.Random) -> None:
        self.place = place
        self.told: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self.broken: list[str] = []
        self._rng = rng
        self._number = 0

    async def begin(self) -> None:
        """Start it, and wait until somebody speaks."""
        await self.place.start()
        await self._make_topic("first")

    async def _make_topic(self, topic: str) -> None:
        config = ClientConfig(namesrv_addr=self.place.name_server)
        async with Admin(config, system_environment()) as admin:

            async def is_made() -> bool:
                with contextlib.suppress(MaxQError):
                    for master in await admin.brokers.masters_of_cluster(self.place.cluster_name):
                        await admin.topics.create(master, TopicConfig(topic, 4, 4))
                        return True
                return False

            await until(is_made, f"topic {topic} is made")

    async def history(self, faults: Sequence[Fault]) -> list[str]:
        """Tell one; the promises that were not kept."""
        self._number += 1
        prefix = f"h{self._number}"
        await self._make_topic(f"{prefix}-sent")
        history = self.place.begin_history()
        client = _remoting_client()
        asking = self.clients(
            client, history, self.place.addresses, self._rng, broker_name=self.place.broker_name, prefix=prefix
        )
        traffic = PromiseTraffic(
            lambda number: system_environment(), history, self._rng, name_server=self.place.name_server,
            topic=f"{prefix}-sent", group=f"{prefix}-poppers", invisible_ms=INVISIBLE_MS, safe_ms=SAFE_MS, pause_s=0.1,
            late_s=self.place.late_s,
        )  # fmt: skip
        asking.start()
        traffic.start()
        for fault in faults:
            await self._live()
            await fault()
        await self._live()
        await asking.stop()
        given = await traffic.stop(PATIENCE_S)
        self.place.end_history()
        tables = await asked(asking.tables)
        offset = await self._committed(asking) if self.place.hands_on_commits else None
        await client.close()
        self.told.update(history.count())
        self.happened.update(fault.__name__ for fault in faults)
        broken = history.broken(tables=tables, messages=given, offset=offset)
        self.broken += broken
        return broken

    async def _live(self) -> None:
        """Nothing happens, for some answers' time."""
        enough = len(self.place.history.told) + _ANSWERS
        await self.place.pause(1.0)

        async def are_told() -> bool:
            return len(self.place.history.told) >= enough

        await until(are_told, "clients ask")

    async def _committed(self, asking: PromiseClients) -> int:
        """At the end: a slave hands on what was committed to it some seconds later."""
        end = time.monotonic() + PATIENCE_S / 3
        while True:
            offset = await asked(asking.offset)
            if time.monotonic() > end or not self.place.history.commits_beyond(offset):
                return offset
            await asyncio.sleep(0.1)


async def asked(ask: Callable[[], Awaitable[T]]) -> T:
    """What `ask` finds out, as soon as it does."""
    found: list[T] = []

    async def answers() -> bool:
        with contextlib.suppress(MaxQError):
            found.append(await ask())
        return bool(found)

    await until(answers, "the group has an active broker")
    return found[0]


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """AssertionError if that takes too long."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await holds():  # noqa: ASYNC110 other processes
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise AssertionError(f"after {PATIENCE_S:g} s still not: {what}") from None


def _remoting_client() -> RemotingClient:
    environment = system_environment()
    return RemotingClient(NettyClientConfig(), clock=environment.clock, rng=environment.rng)


def _name_server(folder: Path, port: int) -> Process:
    conf = folder / f"namesrv-{port}.conf"
    conf.write_text(f"listenPort={port}\nsupportActingMaster=true\nscanNotActiveBrokerInterval=200\n")
    return Process("name server", ["namesrv", "-c", str(conf)], folder / f"namesrv-{port}-ready")


async def torture(folder: Path, on: str, seed: int, rounds: int | Sequence[Sequence[str]]) -> PromiseTorture:
    """So many histories on one place, or one with each of these sequences of faults."""
    rng = random.Random(seed)
    place = PLACES[on](folder, rng)
    run = PromiseTorture(place, rng)
    try:
        await run.begin()
        for number in range(rounds if isinstance(rounds, int) else len(rounds)):
            if isinstance(rounds, int):
                faults = rng.choices(place.faults, k=rng.randint(1, 3))
            else:
                faults = [getattr(place, name) for name in rounds[number]]
            broken = await run.history(faults)
            names = ", ".join(fault.__name__.replace("_", " ") for fault in faults)
            print(f"{on} {number + 1}: {names}; {sum(place.history.count().values())} answers", file=sys.stderr)
            for one in broken[:5]:
                print(f"  broken: {one}", file=sys.stderr, flush=True)
        await place.finish()
    finally:
        await place.end()
    return run


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # what runs is ended, not left behind
    parser = argparse.ArgumentParser(description="promises of every kind on real processes")
    parser.add_argument("--rounds", type=int, default=20, help="histories on each place")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--on", choices=tuple(PLACES), action="append")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # clients of brokers that die have much to say
    failed = 0
    for on in options.on or PLACES:
        with tempfile.TemporaryDirectory(prefix="maxq-promises-") as folder:
            run = asyncio.run(torture(Path(folder), on, options.seed, options.rounds))
        failed += len(run.broken)
        print(
            f"{on}, seed {options.seed}: {options.rounds} histories, {len(run.broken)} promises broken; "
            f"answers: {dict(sorted(run.told.items()))}; faults: {dict(sorted(run.happened.items()))}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
