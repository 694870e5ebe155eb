"""`simulate`: a user's program against brokers of ours, all of it in virtual time and under one seed.

    def test_every_order_is_billed() -> None:
        async def story(sim: Simulation) -> None:
            await sim.create_topic("Orders")
            sim.add_member(bill_orders)                   # a process of the program under test, on its own machine
            async with async_producer("shop", sim.namesrv_address) as producer:
                await producer.send(Message("Orders", b"one"))
            sim.master.kill()
            await sim.until(lambda: b"one" in billed)

        simulate(story, seed=7, brokers=3)

Brokers and clients are the shipped code; network, disks, clocks and chance are the simulator's (simulation.py). An hour
of virtual time takes seconds, and a seed tells the same story each time. A process that is killed stops at once, in the
middle of what it does. What the program under test keeps in objects outside of its coroutine is like a database: it
survives.

The program uses the asynchronous clients of `maxq.api`, which take clock, disk, chance and address of their simulated
machine without being told. There are no threads, and `time.time()` is the time of the real machine.
"""

import asyncio
import inspect
import itertools
import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import PurePath
from typing import Any, ClassVar, Final, TypeVar

from maxq.api import async_admin
from maxq.broker.controller import BrokerController
from maxq.client.client_config import ClientEnvironment
from maxq.config import BrokerSettings, NamesrvSettings
from maxq.config.host import Host, broker_on
from maxq.errors import DLedgerError, MaxQError
from maxq.machine import simulated_environment
from maxq.namesrv.controller import NamesrvController
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode
from maxq.replication.dledger.dledger_server import DLedgerServer
from maxq.replication.raft.outputs import Role
from maxq.testing.sim_disk import PowerLoss
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, object]]

CLUSTER_NAME: Final = "DefaultCluster"
BROKER_NAME: Final = "broker-a"
_NAMESRV: Final = "10.0.0.9"
_NAMESRV_ADDRESS: Final = f"{_NAMESRV}:9876"
_TEST_HOST: Final = "10.0.0.100"
_BROKER_PORT, _HA_PORT, _DLEDGER_PORT = 10911, 10912, 40911
_STORE: Final = PurePath("/store")
_HOME: Final = PurePath("/home")
_LOOK_S: Final = 0.02  # virtual seconds between two looks at a condition
_PATIENCE_S: Final = 120.0  # virtual seconds for which the simulation itself waits for its brokers
_STEP_LIMIT: Final = 20_000_000
_HISTORY_LINES: Final = 40  # lines of the history in a failure
_remoting_log: Final = logging.getLogger("maxq.remoting")
_ONLY_GROUPS: Final = "only a group that elects its master hands over: brokers=3"

#: Settings of every broker: sizes of files that a disk in memory can hold.
_SETTINGS: Final = {
    "brokerClusterName": CLUSTER_NAME, "brokerName": BROKER_NAME, "namesrvAddr": _NAMESRV_ADDRESS,
    "listenPort": str(_BROKER_PORT), "storePathRootDir": str(_STORE), "slaveReadEnable": "true",
    "mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "20000", "maxHashSlotNum": "1000",
    "maxIndexNum": "4000", "mappedFileSizeDLedgerIndex": "320000", "mappedFileSizeTimerLog": "520000",
    "cleanFileForciblyEnable": "false",
}  # fmt: skip


class SimulatedServer(ABC):
    """A machine of the simulation, and the one program that runs on it.

    Attributes:
        name: in the history of a failure.
        machine: its address, clock and disk.
    """

    def __init__(self, sim: "Simulation", name: str, address: str) -> None:
        self.name = name
        self._sim = sim
        self._rng = sim.rng.fork(address)
        self.machine = SimMachine(sim.world.loop, address, self._rng.fork("disk"))

    @property
    def is_up(self) -> bool:
        """Return whether it has a process, perhaps a paused one."""
        return self.machine.is_up

    @abstractmethod
    async def start(self) -> None:
        """Start the program on the machine's disk as the last process left it."""

    @abstractmethod
    async def stop(self) -> None:
        """End the program in order, as SIGTERM does. Does nothing if it is down."""

    def kill(self) -> None:
        """Kill the process, as kill -9 does. Does nothing if it is down."""
        if self.is_up:
            self._sim.log(f"{self.name} is killed")
            self.machine.kill()

    async def restart(self) -> None:
        """End the program in order, if it is up, and start it again."""
        await self.stop()
        await self.start()

    async def pause(self, seconds: float) -> None:
        """Stop the process for `seconds`, as a machine does that swaps or is moved; returns when it runs again."""
        self._sim.log(f"{self.name} is paused for {seconds:.1f} s")
        await self.machine.pause(seconds)

    async def cut_off(self, seconds: float) -> None:
        """Let no packet pass between this machine and all others for `seconds`; returns when they pass again."""
        self._sim.log(f"{self.name} is cut off for {seconds:.1f} s")
        others = [address for address in self._sim.addresses if address != self.machine.address]
        for other in others:
            self._sim.world.network.partition(self.machine.address, other)
        await asyncio.sleep(seconds)
        for other in others:
            self._sim.world.network.heal(self.machine.address, other)

    def jump_clock(self, seconds: float) -> None:
        """Set the machine's wall clock forward, or back if `seconds` is negative."""
        self._sim.log(f"the clock of {self.name} jumps by {seconds:+.1f} s")
        self.machine.clock.jump_wall_ms(round(seconds * 1000))

    def __repr__(self) -> str:
        return f"<{self.name} at {self.machine.address}, {'up' if self.is_up else 'down'}>"


class SimulatedNameServer(SimulatedServer):
    """The name server."""

    async def start(self) -> None:
        self.machine.boot()
        await self.machine.call(self._serve)

    async def _serve(self) -> None:
        given = {"listenPort": "9876", "kvConfigPath": "/ns/kv.json", "configStorePath": "/ns/namesrv.properties"}
        settings, _ = NamesrvSettings.from_properties(given, source="simulation")
        machine = self.machine
        self._running = NamesrvController(settings, disk=machine.disk, clock=machine.clock, rng=self._rng)
        await self._running.start()

    async def stop(self) -> None:
        if self.is_up:
            await self.machine.call(self._running.shutdown)
            self.machine.kill()


class SimulatedBroker(SimulatedServer):
    """A broker."""

    def __init__(self, sim: "Simulation", name: str, address: str, settings: Mapping[str, str]) -> None:
        super().__init__(sim, name, address)
        self._settings = {"brokerIP1": address, "brokerIP2": address, "bindAddress": address, **settings}
        self._running: BrokerController | None = None

    @property
    def address(self) -> str:
        """Address, host:port, for clients."""
        return f"{self.machine.address}:{_BROKER_PORT}"

    @property
    def is_master(self) -> bool:
        """Return whether it runs and is the master of its group, as far as it knows."""
        if self._running is None or not self.is_up:
            return False
        if self._running.dledger is not None:
            return self._ledger().role is Role.LEADER
        return self._settings.get("brokerRole") != "SLAVE"

    def _ledger(self) -> DLedgerServer:
        broker = self._running
        assert broker is not None and broker.dledger is not None, _ONLY_GROUPS
        assert broker.dledger.member is not None, f"{self.name} runs"
        return broker.dledger.member

    async def start(self) -> None:
        """Start the broker; returns when clients can use it."""
        self._sim.log(f"{self.name} starts")
        self.machine.boot()
        self._running = None
        self._running = await self.machine.call(self._serve)

    async def _serve(self) -> BrokerController:
        settings, _ = BrokerSettings.from_properties({**_SETTINGS, **self._settings}, source="simulation")
        machine = self.machine
        settings = broker_on(settings, Host(self.name, machine.address, _HOME))
        broker = BrokerController(settings, disk=machine.disk, clock=machine.clock, rng=self._rng)
        broker.set_failure_listener(lambda service, error: self._sim.fail(error, f"{service} of {self.name} failed"))
        await broker.start()
        return broker

    async def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None and self.is_up:
            self._sim.log(f"{self.name} is shut down")
            await self.machine.call(running.shutdown)
            self.machine.kill()

    async def lead(self) -> None:
        """Make it the master of its group by a hand-over, without a kill. The group must be one that elects.

        Raises:
            DLedgerError: it lags too far behind, or did not become the master.
        """
        leader = await self._sim.wait_for_master()
        if leader is self:
            return
        ledger = leader._ledger()
        self._sim.log(f"{leader.name} hands over to {self.name}")
        code = await leader.machine.call(lambda: ledger.transfer(_member_id(self.name)))
        if code is not DLedgerResponseCode.SUCCESS:
            raise DLedgerError(code, f"{leader.name} does not hand over to {self.name}: {code.name}")


class SimulatedMember(SimulatedServer):
    """A process of the program under test: `await work()`, on a machine of its own."""

    def __init__(self, sim: "Simulation", name: str, address: str, work: Work) -> None:
        super().__init__(sim, name, address)
        self.work = work
        self._lives = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.start_now()

    def start_now(self) -> None:
        """Start the program, as `start` does, without an await."""
        self._sim.log(f"{self.name} starts")
        self._lives += 1
        self.machine.boot()
        self._task = self.machine.spawn(self._run())

    async def _run(self) -> None:
        simulated_environment.set(self._environment)
        process = self.machine.process
        try:
            await self.work()
        except (asyncio.CancelledError, PowerLoss, KeyboardInterrupt):
            raise
        except SystemExit as end:
            if end.code:
                self._sim.fail(AssertionError(f"{self.name} ended by sys.exit({end.code!r})"), f"{self.name} fails")
        except BaseException as error:  # also pytest.fail, which raises no Exception
            self._sim.fail(error, f"{self.name} ended by {type(error).__name__}")
        self._sim.log(f"{self.name} has ended")
        if self.machine.process is process:
            self.machine.kill()

    def _environment(self) -> ClientEnvironment:
        machine = self.machine
        return ClientEnvironment(machine.clock, self._rng, machine.disk, machine.address, 1000 + self._lives, _HOME)

    async def stop(self) -> None:
        """Cancel the program, as Ctrl-C does to a program under `asyncio.run`, and wait for its end."""
        task = self._task
        if task is not None and self.is_up:
            self._sim.log(f"{self.name} is stopped")
            task.cancel()
            await asyncio.wait((task, self.machine.process.ended), return_when=asyncio.FIRST_COMPLETED)
            self.machine.kill()


class Simulation:
    """The world of a story: brokers, members, time and failures.

    Attributes:
        seed: of this story.
        namesrv_address: for clients.
        brokers: one; master and slave; or the members of a group that elects its master.
        members: the processes of the program under test, in the order in which they were added.
        rng: chance of this seed, for what the story draws itself.
        world: the simulator's loop, network and clock, for more than this class has.
    """

    namesrv_address: ClassVar[str] = _NAMESRV_ADDRESS

    def __init__(self, world: SimWorld, seed: int, brokers: int, settings: Mapping[str, str]) -> None:
        self.world = world
        self.seed = seed
        self.rng = SimRng(seed).fork("story")
        self.history: list[str] = []
        self._began = world.loop.time()
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()
        self._topics: list[str] = []
        self._numbers = itertools.count(1)  # numbers of members
        self._namesrv = SimulatedNameServer(self, "the name server", _NAMESRV)
        self.members: list[SimulatedMember] = []
        self.brokers = [
            SimulatedBroker(self, f"broker {number}", f"10.0.0.{number}", _of_broker(number, brokers) | dict(settings))
            for number in range(1, brokers + 1)
        ]

    # -- what a failure tells --

    @property
    def seconds(self) -> float:
        """Return the virtual seconds since the story began."""
        return self.world.loop.time() - self._began

    def log(self, text: str) -> None:
        """Add a line to the history, which a failure shows."""
        self.history.append(f"{self.seconds:10.3f} {text}")

    def fail(self, error: BaseException, text: str) -> None:
        """End the story: `error` is raised out of `simulate`."""
        if self._failure is None:
            self.log(text)
            self._failure = error
            self._failed.set()

    # -- brokers --

    @property
    def master(self) -> SimulatedBroker:
        """Return the broker that is the master now; `wait_for_master` waits until there is one.

        Raises:
            AssertionError: no broker is.
        """
        masters = [broker for broker in self.brokers if broker.is_master]
        if not masters:
            raise AssertionError("no broker is the master now: await sim.wait_for_master()")
        return masters[-1]

    async def wait_for_master(self) -> SimulatedBroker:
        """Wait until a broker is registered as master, and return it."""
        async with async_admin(self.namesrv_address) as admin:

            async def look() -> SimulatedBroker | None:
                addresses = await admin.brokers.masters_of_cluster(CLUSTER_NAME)
                return next((one for one in self.brokers if one.is_master and one.address in addresses), None)

            return await self._try(look)

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic on the master."""
        master = await self.wait_for_master()
        async with async_admin(self.namesrv_address) as admin:

            async def create() -> bool:
                await admin.topics.create(master.address, TopicConfig(topic, queues, queues))
                return True

            await self._try(create)
        self._topics.append(topic)

    async def hand_over(self) -> SimulatedBroker:
        """Make another broker the master without a kill, and return it. The group must be one that elects."""
        old = await self.wait_for_master()
        assert len(self.brokers) > 2, _ONLY_GROUPS
        others = [broker for broker in self.brokers if broker.is_up and broker is not old]
        assert others, "no other broker is up"
        new = self.rng.choice(others)

        async def lead() -> SimulatedBroker:
            await new.lead()
            return new

        await self._try(lead)
        return await self.wait_for_master()

    async def deliver_again(self, group: str, topic: str, *, seconds: float | None = None) -> None:
        """Deliver again to a consumer group what it has had, as `maxq admin resetOffsetByTime` does.

        Args:
            seconds: only what was stored within the last `seconds`; None: everything.
        """
        self.log(f"{group} gets {topic} again, {'all of it' if seconds is None else f'the last {seconds:.1f} s'}")
        master = await self.wait_for_master()
        since = 0 if seconds is None else max(master.machine.clock.wall_ms() - round(seconds * 1000), 0)
        async with async_admin(self.namesrv_address) as admin:

            async def reset() -> bool:
                await admin.offsets.reset_by_time(group, topic, since)
                return True

            await self._try(reset)

    async def _try(self, ask: Callable[[], Awaitable[T | None]]) -> T:
        """Ask until there is an answer: brokers change and are away for a while."""
        end = self.seconds + _PATIENCE_S
        while True:
            try:
                answer = await ask()
                if answer:
                    return answer
                why: object = "there is no master"
            except (MaxQError, ValueError) as error:
                why = error
            assert self.seconds < end, f"the brokers do not answer within {_PATIENCE_S:.0f} s of virtual time: {why}"
            await asyncio.sleep(_LOOK_S)

    # -- members --

    def add_member(self, work: Work, *, name: str = "") -> SimulatedMember:
        """Start `await work()` as a process on a machine of its own. An exception that it raises ends the story.

        Args:
            work: a coroutine function without arguments.
            name: in the history.
        """
        number = next(self._numbers)
        member = SimulatedMember(self, name or f"member {number}", f"10.1.{number // 250}.{1 + number % 250}", work)
        self.members.append(member)
        member.start_now()
        return member

    # -- time --

    async def until(self, condition: Callable[[], object], *, seconds: float = 600.0, what: str = "") -> None:
        """Wait until `condition()` is true.

        Args:
            what: description of the condition, for the failure.

        Raises:
            AssertionError: it is not within `seconds` of virtual time.
        """
        __tracebackhide__ = True
        end = self.seconds + seconds
        while not condition():
            if self.seconds >= end:
                raise AssertionError(f"still not so after {seconds:.0f} s of virtual time: {what or 'the condition'}")
            await asyncio.sleep(_LOOK_S)

    def jump_clocks(self, seconds: float) -> None:
        """Set the wall clocks of all machines forward, or back if `seconds` is negative."""
        self.log(f"all clocks jump by {seconds:+.1f} s")
        self.world.clock.jump_wall_ms(round(seconds * 1000))

    # -- trouble --

    async def trouble(self, seconds: float, *, kinds: Sequence[str] | None = None) -> None:
        """Let things go wrong for `seconds`, at moments and of kinds that the seed draws. On return what it has ended
        runs again.

        Args:
            kinds: of KINDS; None: all.

        Raises:
            ValueError: there is no such kind.
        """
        rng, end = self.rng.fork(f"trouble {self.seconds}"), self.seconds + seconds
        chosen = tuple(KINDS) if kinds is None else tuple(kinds)
        for kind in chosen:
            if kind not in KINDS:
                raise ValueError(f"there is no trouble {kind!r}; there is {', '.join(KINDS)}")
        while (wait := rng.uniform(0.2, 10)) < end - self.seconds:
            await asyncio.sleep(wait)
            await KINDS[rng.choice(chosen)](self, rng)

    @property
    def addresses(self) -> list[str]:
        """Return the addresses of all machines."""
        servers: list[SimulatedServer] = [self._namesrv, *self.brokers, *self.members]
        return [server.machine.address for server in servers] + [_TEST_HOST]

    async def run(self, story: "Callable[[Simulation], Awaitable[T]]") -> T:
        """Start the servers and tell the story; called once, by `simulate`."""
        __tracebackhide__ = True
        simulated_environment.set(self._environment)
        with self.world.network.on_host(_TEST_HOST):
            await self._namesrv.start()
            await asyncio.gather(*(broker.start() for broker in self.brokers))
            await self.wait_for_master()
            self.log("the story begins")
            begun = story(self)
            if not inspect.isawaitable(begun):
                raise TypeError("a story is a coroutine function: `async def story(sim)`")
            telling = asyncio.ensure_future(_awaited(begun))
            failing = asyncio.ensure_future(self._failed.wait())
            await asyncio.wait((telling, failing), return_when=asyncio.FIRST_COMPLETED)
            failing.cancel()
            if self._failure is not None:
                telling.cancel()
                raise self._failure
            return telling.result()

    def _environment(self) -> ClientEnvironment:
        world = self.world
        return ClientEnvironment(world.clock, world.rng, world.disk, _TEST_HOST, 999, _HOME)


def simulate(
    story: Callable[[Simulation], Awaitable[T]],
    *,
    seed: int,
    brokers: int = 1,
    settings: Mapping[str, str] | None = None,
    time_limit_s: float = 24 * 3600.0,
) -> T:
    """Run `await story(sim)` in virtual time and return its result.

    Args:
        story: a coroutine function that is given a Simulation, whose brokers run.
        seed: of everything that is drawn: delays, ids, moments, the troubles. The same seed tells the same story.
        brokers: 1; 2 for a master and a slave, which has a copy of everything and serves readers while the master is
            down; 3 or 5 for a group that elects its master and another one when that is gone.
        settings: of all brokers, by RocketMQ's names, such as {"messageDelayLevel": "1s 2s"}.
        time_limit_s: virtual seconds after which the story has failed.

    Raises:
        Exception: what the story or a member raised. A note that is added to it has the seed and what happened.
        SimDeadlockError, SimTimeLimitError: the story cannot or does not end.
        RuntimeError: called on an event loop.
    """
    if brokers not in (1, 2, 3, 5):
        raise ValueError(f"brokers={brokers}: 1, 2 for master and slave, 3 or 5 for a group that elects its master")
    __tracebackhide__ = True
    if _is_in_loop():
        raise RuntimeError("a simulation has an event loop of its own: call it in a plain function, not in a coroutine")
    for text in BrokerSettings.from_properties(settings or {}, source="settings")[1]:
        warnings.warn(text, stacklevel=2)
    told: list[Simulation] = []

    async def main(world: SimWorld) -> T:
        __tracebackhide__ = True
        sim = Simulation(world, seed, brokers, settings or {})
        told.append(sim)
        return await sim.run(story)

    _remoting_log.addFilter(_is_of_simulations)
    try:
        return run_simulation(main, seed=seed, time_limit_s=time_limit_s, step_limit=_STEP_LIMIT)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # also pytest.fail, which raises no Exception
        history = told[0].history[-_HISTORY_LINES:] if told else []
        error.add_note("\n".join([f"simulation with seed {seed}:", *history]))
        raise
    finally:
        _remoting_log.removeFilter(_is_of_simulations)


def _is_of_simulations(record: logging.LogRecord) -> bool:
    """Return whether to log something: not that ports are open, for the only machines here are the story's."""
    return "is open to other machines" not in str(record.msg)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _awaited(work: Awaitable[T]) -> T:
    __tracebackhide__ = True
    return await work


def _member_id(name: str) -> str:
    """Return the id in its DLedger group of the broker with this name."""
    return f"n{name.rpartition(' ')[2]}"


def _of_broker(number: int, brokers: int) -> dict[str, str]:
    """Return the settings that make a broker one of so many."""
    if brokers == 1:
        return {}
    if brokers == 2:
        role = "SYNC_MASTER" if number == 1 else "SLAVE"
        return {
            "brokerId": str(number - 1), "brokerRole": role, "haListenPort": str(_HA_PORT),
            "haMasterAddress": f"10.0.0.1:{_HA_PORT}", "haFullCopy": "true",
        }  # fmt: skip
    peers = (f"n{one}-10.0.0.{one}:{_DLEDGER_PORT}" for one in range(1, brokers + 1))
    return {
        "enableDLegerCommitLog": "true", "dLegerGroup": BROKER_NAME, "dLegerPeers": ";".join(peers),
        "dLegerSelfId": f"n{number}",
    }  # fmt: skip


# -- kinds of trouble --


async def _kill_broker(sim: Simulation, rng: SimRng) -> None:
    broker = rng.choice(sim.brokers)
    broker.kill()
    await asyncio.sleep(rng.choice((0.0, 1.0, 20.0)))
    await broker.start()


async def _pause_broker(sim: Simulation, rng: SimRng) -> None:
    await rng.choice(sim.brokers).pause(rng.choice((0.5, 5.0, 40.0)) * rng.uniform(0.5, 1.5))


async def _cut_off_broker(sim: Simulation, rng: SimRng) -> None:
    await rng.choice(sim.brokers).cut_off(rng.choice((0.5, 5.0, 40.0)) * rng.uniform(0.5, 1.5))


async def _hand_over(sim: Simulation, rng: SimRng) -> None:
    """Of a group that elects; other brokers are restarted in order."""
    if len(sim.brokers) < 3:
        await rng.choice(sim.brokers).restart()
        return
    await sim.hand_over()


async def _kill_member(sim: Simulation, rng: SimRng) -> None:
    member = _drawn_member(sim, rng)
    if member is not None:
        member.kill()
        await asyncio.sleep(rng.choice((0.0, 1.0, 30.0)))
        await member.start()


async def _restart_member(sim: Simulation, rng: SimRng) -> None:
    member = _drawn_member(sim, rng)
    if member is not None:
        await member.restart()


async def _pause_member(sim: Simulation, rng: SimRng) -> None:
    member = _drawn_member(sim, rng)
    if member is not None:
        await member.pause(rng.choice((0.5, 5.0, 150.0)) * rng.uniform(0.5, 1.5))


async def _more_members(sim: Simulation, rng: SimRng) -> None:
    """Run one more copy of a member for a while."""
    member = _drawn_member(sim, rng)
    if member is not None:
        twin = sim.add_member(member.work, name=f"another {member.name}")
        await asyncio.sleep(rng.uniform(0.1, 20))
        await twin.stop()
        sim.members.remove(twin)


async def _deliver_again(sim: Simulation, rng: SimRng) -> None:
    topic = rng.choice(sim._topics) if sim._topics else ""
    async with async_admin(sim.namesrv_address) as admin:
        try:
            groups = await admin.topics.consumed_by(topic) if topic else []
        except MaxQError:
            groups = []
    if groups:
        await sim.deliver_again(rng.choice(groups), topic, seconds=rng.choice((1.0, 30.0)) * rng.uniform(0.5, 1.5))


async def _jump_clock(sim: Simulation, rng: SimRng) -> None:
    server: SimulatedServer = rng.choice([*sim.brokers, *sim.members])
    server.jump_clock(rng.choice((-1, 1)) * rng.choice((1.0, 60.0, 3600.0)) * rng.uniform(0.5, 1.5))


def _drawn_member(sim: Simulation, rng: SimRng) -> SimulatedMember | None:
    up = [member for member in sim.members if member.is_up]
    return rng.choice(up) if up else None


#: Kinds of trouble from which `Simulation.trouble` draws.
KINDS: Final[Mapping[str, Callable[[Simulation, SimRng], Awaitable[None]]]] = {
    "kill broker": _kill_broker,
    "pause broker": _pause_broker,
    "cut off broker": _cut_off_broker,
    "hand over": _hand_over,
    "kill member": _kill_member,
    "restart member": _restart_member,
    "pause member": _pause_member,
    "more members": _more_members,
    "deliver again": _deliver_again,
    "clock jump": _jump_clock,
}
