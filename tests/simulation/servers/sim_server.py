"""A machine of a simulated cluster of whole servers: the name server, or a broker with settings of its story."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import PurePath
from typing import ClassVar, Final

from maxq.broker.controller import BrokerController
from maxq.config import BrokerSettings, NamesrvSettings
from maxq.config.host import broker_on
from maxq.errors import MaxQError
from maxq.machine import system_host
from maxq.namesrv.controller import NamesrvController
from maxq.testing.sim_machine import MachineDiedError, SimMachine
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld
from tests.simulation.disk_faults import FaultMix, nothing_fails

NAMESRV, CLIENT = "10.0.0.9", "10.0.1.1"
NAMESRV_ADDRESS: Final = f"{NAMESRV}:9876"
STORE: Final = PurePath("/store")
TOPIC: Final = "Simulated"
_NOTICED_S: Final = 2.0  # a failed sync ends a broker within that


class SimServer(ABC):
    """A machine and what runs on it; number -1 is the name server.

    Attributes:
        slowness: factor on the time that calls to its disk take.
    """

    KEEPS_CACHE: ClassVar[bool] = False  # after a kill, what was written and not synced is still in the system's memory

    def __init__(self, world: SimWorld, address: str, rng: SimRng, number: int) -> None:
        self.machine = SimMachine(world.loop, address, rng, kill_keeps_cache=self.KEEPS_CACHE)
        self.number = number
        self.slowness = 1
        self._rng = rng
        self.running: BrokerController | NamesrvController | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """For who reads a failure."""

    @abstractmethod
    def broker_properties(self) -> dict[str, str]:
        """Settings of its broker, beside those that all have."""

    def namesrv_properties(self) -> dict[str, str]:
        """Settings of the name server, beside those that all have."""
        return {}

    async def start(self) -> None:
        """Boot and serve; dies again if that is ordered."""
        self._boot()
        await self.serve()

    def _boot(self) -> None:
        self.machine.boot()
        self.machine.process.slowness = self.slowness

    async def serve(self) -> None:
        """Serve on a machine that has booted."""
        self.running = None
        self.running = await self.machine.call(self._start)

    async def _start(self) -> BrokerController | NamesrvController:
        machine = self.machine
        if self.number < 0:
            settings, _ = NamesrvSettings.from_properties(
                {"listenPort": "9876", "kvConfigPath": "/ns/kv.json", "configStorePath": "/ns/ns.properties",
                 **self.namesrv_properties()},
                source="simulation",
            )  # fmt: skip
            namesrv = NamesrvController(settings, disk=machine.disk, clock=machine.clock, rng=self._rng)
            await namesrv.start()
            return namesrv
        broker = BrokerController(self._broker_settings(), disk=machine.disk, clock=machine.clock, rng=self._rng)
        self._made(broker)
        await broker.start()
        return broker

    def _made(self, broker: BrokerController) -> None:  # noqa: B027 of those who want to watch it
        """A broker was made, and is about to start."""

    def _broker_settings(self) -> BrokerSettings:
        address = self.machine.address
        properties = {
            "brokerClusterName": "C", "brokerName": "broker-a", "namesrvAddr": NAMESRV_ADDRESS, "brokerIP1": address,
            "bindAddress": address, "listenPort": "10911", "storePathRootDir": str(STORE), "slaveReadEnable": "true",
            "mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "100",
            "maxIndexNum": "400", "mappedFileSizeTimerLog": "520000", "defaultTopicQueueNums": "2",
            **self.broker_properties(),
        }  # fmt: skip
        settings, _ = BrokerSettings.from_properties(properties, source="simulation")
        return broker_on(settings, system_host())

    async def stop(self) -> None:
        """End it in order, if it runs."""
        running, self.running = self.running, None
        if running is not None and self.machine.is_up:
            await self.machine.call(running.shutdown)


class FallibleServer(SimServer):
    """A machine whose disk may fail. A broker that says it has failed is ended by the story.

    Attributes:
        failed: services of its broker that ended by an error.
    """

    KEEPS_CACHE = True

    def __init__(self, world: SimWorld, address: str, rng: SimRng, number: int) -> None:
        super().__init__(world, address, rng, number)
        self.failed: list[str] = []

    @property
    def has_ended(self) -> bool:
        """Has a service of its broker ended by an error?"""
        return bool(self.failed) or not isinstance(self.running, BrokerController | NamesrvController)

    async def start(self, before: Callable[[], None] = lambda: None) -> None:
        """Boot and serve; dies again if that is ordered. `before`: called when the disk is there. What the disk refuses
        is raised, and then no process is left."""
        self._boot()
        before()
        self.failed = []
        try:
            await self.serve()
        except (MaxQError, OSError):
            self.machine.kill()
            raise
        if isinstance(self.running, BrokerController):
            self.running.set_failure_listener(lambda service, error: self.failed.append(f"{service}: {error}"))

    async def live_on_failing_disk(
        self, mix: FaultMix, seconds: float, rng: SimRng, *, may_lose_power: bool = True
    ) -> bool:
        """Calls to its disk fail for a while. Who ended by that is started again on the same machine, perhaps after a
        loss of power, and first on the disk as it is. True: it ended by that, once the disk worked again; then it is
        dead, as it may be in any case."""
        machine = self.machine
        machine.disk.faults = mix
        await asyncio.sleep(seconds)
        if self.has_ended or rng.chance(0.5):
            if rng.chance(0.5) and may_lose_power:
                machine.power_off()
            machine.kill()
            with contextlib.suppress(MaxQError, OSError, MachineDiedError):
                await self.start(lambda: setattr(machine.disk, "faults", mix))
        machine.disk.faults = nothing_fails
        await asyncio.sleep(_NOTICED_S)
        if self.has_ended:
            machine.kill()
        return self.has_ended


class NameServer(SimServer):
    """A machine with nothing but a name server."""

    name = "name server"

    def broker_properties(self) -> dict[str, str]:
        """It is none."""
        return {}
