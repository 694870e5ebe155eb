"""A name server and a broker in one process: `StandaloneServer` for a loop that runs, `Standalone` for everybody else.

    with maxq.Standalone() as mq, maxq.api.Producer("my-group", mq.namesrv_address) as producer:
        producer.send(maxq.api.Message("Topic", b"hello"))

`Standalone` runs its own loop in a thread of its own, on free ports and a temporary store unless told otherwise.
"""

import asyncio
import contextlib
import errno
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from maxq.broker.admission.access import broker_access
from maxq.broker.assembly.grpc_door import GrpcPortError
from maxq.broker.controller import BrokerController
from maxq.config import BrokerSettings, NamesrvSettings
from maxq.config.host import EVERYWHERE, broker_on, has_access_control, is_loopback
from maxq.config.loader import texts
from maxq.config.properties import parse_properties
from maxq.errors import ConfigError, MaxQError, StoreRefusedError
from maxq.machine import new_event_loop, system_host
from maxq.namesrv.controller import NamesrvController
from maxq.protocol.message.message_id import host_and_port
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng
from maxq.runtime.interfaces import Clock, Disk, Rng

CLUSTER_NAME = "DefaultCluster"
BROKER_NAME = "broker-a"
_PORTS = (18_000, 32_000)
_BROKER_PORTS = (-2, 1)  # VIP and replication, seen from the broker's own
_PORT_TRIES = 5
_NAMESRV_OPTION = "--namesrv-port, namesrv_port"
_BROKER_OPTION = "--broker-port, broker_port"
_GRPC_OPTION = "--grpc-port, grpc_port"
_START_SECONDS = 60
_STOP_SECONDS = 60


class PortInUseError(MaxQError):
    """Raised when another process listens on `port` of `host`."""

    def __init__(self, host: str, port: int, use: str, option: str) -> None:
        super().__init__(
            f"port {port} of {host} ({use}) is in use: choose another one ({option}; 0 takes a free one), or stop what "
            "listens there"
        )
        self.host = host
        self.port = port


class AddressRefusedError(MaxQError):
    """Raised when this machine cannot listen on `host`, or not on `port` of it."""

    def __init__(self, host: str, port: int, use: str, reason: str) -> None:
        where = host_and_port(host, port) if port else host
        super().__init__(f"the {use} cannot listen on {where}: {reason}")
        self.host = host
        self.port = port


class StandaloneServer:
    """Name server and broker on the running loop.

    Args:
        store: the broker's store folder.
        host: address that both listen on and give to clients. With 0.0.0.0 they listen on every address, and give
            clients the one by which others reach this machine. `bindAddress` among the settings is listened on instead.
        namesrv_port, broker_port: 0 takes a free one (for the broker also its VIP and replication ports), and another
            one if somebody else has taken it before `start`; the addresses are certain after that.
        settings: broker properties by RocketMQ's names, on top of those of a standalone broker.
        file_settings: the same from a settings file, which `settings` come before; brokerConfigPath names the file.
        grpc_port: for clients of RocketMQ 5.x; 0 takes a free one, None opens none unless grpcServerPort is set.

    Attributes:
        needs_grpc: False: it starts without a port for gRPC clients if `grpc_port` is taken.

    Raises:
        ConfigError: a setting is wrong.
        AddressRefusedError: `host` is not an address of this machine.
    """

    def __init__(
        self,
        store: Path,
        host: str = "127.0.0.1",
        namesrv_port: int = 0,
        broker_port: int = 0,
        settings: Mapping[str, str] | None = None,
        *,
        file_settings: Mapping[str, str] | None = None,
        grpc_port: int | None = None,
        disk: Disk,
        clock: Clock,
        rng: Rng,
    ) -> None:
        if not host:
            raise ConfigError("the host is empty: give an address of this machine, such as 127.0.0.1")
        if host == "::":
            raise ConfigError(
                "the host :: is every IPv6 address of this machine, and clients need one address: give "
                "the one that they can reach, or 0.0.0.0 for every IPv4 address"
            )
        given, self._file_settings = dict(settings or {}), dict(file_settings or {})
        bind_address = given.get("bindAddress") or self._file_settings.get("bindAddress")
        self.bind_address = given["bindAddress"] = bind_address or host
        self.host = _told_to_clients(host, self.bind_address)
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._given = (store, namesrv_port, broker_port, given)
        self._grpc_port = grpc_port
        self.needs_grpc = True
        self._settings, self.warnings = self._choose_ports()
        self.store = Path(self._settings.store.store_path_root_dir)
        self._namesrv: NamesrvController | None = None
        self._broker: BrokerController | None = None
        self._failure_listener: Callable[[str, BaseException], None] | None = None

    def set_failure_listener(self, listener: Callable[[str, BaseException], None]) -> None:
        """Set the failure listener, before `start`; see BrokerController.set_failure_listener."""
        self._failure_listener = listener

    @property
    def namesrv_address(self) -> str:
        """Address, host:port, of the name server for clients."""
        return host_and_port(self.host, self._namesrv_port)

    @property
    def broker_address(self) -> str:
        """Address, host:port, of the broker itself, which clients learn from the name server."""
        broker = self._settings.broker
        return host_and_port(broker.broker_ip1, broker.listen_port)

    @property
    def grpc_address(self) -> str:
        """Address, host:port, for clients of RocketMQ 5.x; empty: there is none."""
        port = self._settings.proxy.grpc_server_port
        return host_and_port(self.host, port) if port else ""

    @property
    def broker_name(self) -> str:
        """Name of the broker: broker-a, unless the settings say otherwise."""
        return self._settings.broker.broker_name

    @property
    def is_guarded(self) -> bool:
        """Whether requests must be signed."""
        return has_access_control(self._settings.broker.acl_enable, self._settings.auth)

    def _choose_ports(self) -> tuple[BrokerSettings, tuple[str, ...]]:
        """Choose the ports that were not given; returns the broker's settings with them, and warnings of the
        settings."""
        store, namesrv_port, broker_port, given = self._given
        with naming_port(self.bind_address, namesrv_port, "name server", _NAMESRV_OPTION):
            self._namesrv_port = namesrv_port or free_ports(self._rng, self.bind_address, ())
        with naming_port(self.bind_address, broker_port, "broker", _BROKER_OPTION):
            self._broker_port = broker_port or free_ports(self._rng, self.bind_address, _BROKER_PORTS)
        grpc_port = self._grpc_port or 0
        if self._grpc_port == 0:
            with naming_port(self.bind_address, 0, "gRPC server", _GRPC_OPTION):
                grpc_port = free_ports(self._rng, self.bind_address, ())
        own = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": BROKER_NAME,
            "brokerIP1": self.host,
            "listenPort": str(self._broker_port),
            "haListenPort": str(self._broker_port + 1),
            "grpcServerPort": str(grpc_port),
            "namesrvAddr": self.namesrv_address,
            "storePathRootDir": str(store),
        }
        base, _ = BrokerSettings.from_properties(own, source="standalone")
        file = self._file_settings
        settings, warnings = base.overlay(file, source=f"file {file.get('brokerConfigPath')}")
        settings, more = settings.overlay(given, source="--set")
        return broker_on(settings, system_host()), (*warnings, *more)

    async def start(self) -> None:
        """Listen on both ports; the broker is registered on return.

        Raises:
            PortInUseError, AddressRefusedError.
            StoreRefusedError: the store is damaged, foreign, no folder, or in use by another broker.
        """
        for tries_left in reversed(range(_PORT_TRIES)):
            try:
                await self._start()
                return
            except MaxQError as error:
                grpc_port = self._settings.proxy.grpc_server_port
                if not self.needs_grpc and isinstance(error, PortInUseError) and error.port == grpc_port:
                    self._grpc_port = None
                elif not tries_left or 0 not in (*self._given[1:3], self._grpc_port) or not _is_of_a_taken_port(error):
                    raise
                self._settings, self.warnings = self._choose_ports()

    async def _start(self) -> None:
        self._make_store()
        folder = self.store / "namesrv"
        own = {
            "listenPort": str(self._namesrv_port),
            "bindAddress": self.bind_address,
            "kvConfigPath": str(folder / "kvConfig.json"),
            "configStorePath": str(folder / "namesrv.properties"),
        }
        shared = texts([self._settings.server], secrets=True)
        namesrv = {name: text for name, text in shared.items() if _is_shared(name)}
        namesrv |= self._changes_of_name_server(folder) | own
        settings, _ = NamesrvSettings.from_properties(namesrv, source="standalone")
        access = broker_access(self._settings, disk=self._disk, clock=self._clock)
        self._namesrv = NamesrvController(settings, disk=self._disk, clock=self._clock, rng=self._rng, access=access)
        with naming_port(self.bind_address, self._namesrv_port, "name server", _NAMESRV_OPTION):
            await self._namesrv.start()
        try:
            self._broker = BrokerController(
                self._settings, disk=self._disk, clock=self._clock, rng=self._rng, access=access
            )
            self._broker.topics.is_alone = True
            if self._failure_listener is not None:
                self._broker.set_failure_listener(self._failure_listener)
            address, port = self._settings.server.bind_address, self._settings.broker.listen_port
            with naming_port(address, port, "broker", _BROKER_OPTION):
                try:
                    await self._broker.start()
                except GrpcPortError as error:
                    with naming_port(address, self._settings.proxy.grpc_server_port, "gRPC server", _GRPC_OPTION):
                        raise error.__cause__ or error from None
        except BaseException:
            self._broker = None
            await self.shutdown()
            raise

    def _changes_of_name_server(self, folder: Path) -> dict[str, str]:
        """Return what operators have changed of the name server's settings in earlier runs."""
        path = folder / "namesrv.properties"
        try:
            return parse_properties(self._disk.read(path), source=f"file {path}")
        except FileNotFoundError:
            return {}

    def _make_store(self) -> None:
        """Make the store's folder if it does not exist: the name server, which starts first, does not use stores."""
        try:
            self._disk.make_dirs(self.store)
        except OSError as error:
            is_file = isinstance(error, (FileExistsError, NotADirectoryError))
            reason = "a file is in the place of the folder" if is_file else error.strerror
            raise StoreRefusedError(
                f"the store {self.store} cannot be used: {reason}. Give another folder (--store, storePathRootDir)."
            ) from error

    async def shutdown(self) -> None:
        """End both, the broker first; on return everything that it acknowledged is on disk."""
        if self._broker is not None:
            await self._broker.shutdown()
            self._broker = None
        if self._namesrv is not None:
            await self._namesrv.shutdown()
            self._namesrv = None


class Standalone:
    """`StandaloneServer` with a loop in a thread of its own, as a blocking context manager.

    Args:
        store: folder to keep messages in; None is a temporary one, deleted at the end.
        host, namesrv_port, broker_port, settings, grpc_port: as for StandaloneServer.
    """

    def __init__(
        self,
        store: Path | str | None = None,
        host: str = "127.0.0.1",
        namesrv_port: int = 0,
        broker_port: int = 0,
        settings: Mapping[str, str] | None = None,
        *,
        grpc_port: int | None = None,
    ) -> None:
        self._temporary = Path(tempfile.mkdtemp(prefix="maxq-")) if store is None else None
        self.store = self._temporary or Path(store or "")
        disk, clock, rng = SystemDisk(), SystemClock(), SystemRng()
        try:
            self._server = StandaloneServer(
                self.store, host, namesrv_port, broker_port, settings, grpc_port=grpc_port, disk=disk, clock=clock,
                rng=rng,
            )  # fmt: skip
        except BaseException:
            self._remove_temporary()
            raise
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def namesrv_address(self) -> str:
        """Address, host:port, for clients, such as `namesrv_addr=mq.namesrv_address`."""
        return self._server.namesrv_address

    @property
    def broker_address(self) -> str:
        """The broker's address, host:port."""
        return self._server.broker_address

    @property
    def grpc_address(self) -> str:
        """Address, host:port, for clients of RocketMQ 5.x; empty: there is none."""
        return self._server.grpc_address

    def start(self) -> Self:
        """Start, and return once clients can send; errors as StandaloneServer.start."""
        loop = new_event_loop()
        self._loop = loop
        self._thread = threading.Thread(target=self._run, args=(loop,), name="maxq-standalone", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._server.start(), loop).result(_START_SECONDS)
        except BaseException:
            self._end_loop()
            raise
        return self

    def stop(self) -> None:
        """End the servers and the thread; delete a temporary store. Does nothing when stopped."""
        if self._loop is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self._server.shutdown(), self._loop).result(_STOP_SECONDS)
        finally:
            self._end_loop()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    def _end_loop(self) -> None:
        assert self._loop is not None and self._thread is not None, "ended before it was started"
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_SECONDS)
        self._loop = None
        self._thread = None
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@contextlib.contextmanager
def naming_port(host: str, port: int, use: str, option: str) -> Iterator[None]:
    """Turn the system's error about an address that cannot be listened on into one that names the server, the reason
    and the remedy.

    Args:
        use: which server's it is.
        option: what chooses the port.

    Raises:
        PortInUseError: "address already in use".
        AddressRefusedError: the machine has no such address, or keeps the port for others.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(host, port, use, option) from error
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            reason = f"{host!r} is no address of this machine; give one that is, such as 127.0.0.1, or 0.0.0.0 for all"
        elif error.errno == errno.EACCES and error.filename is None:
            reason = "this user may not use that port; choose one from 1024 on"
        else:
            raise
        raise AddressRefusedError(host, port, use, reason) from error


def _told_to_clients(host: str, bind_address: str) -> str:
    """Return the address that clients are given: the host, unless only this machine reaches it and the servers listen
    elsewhere; never 0.0.0.0, to which no other machine can connect."""
    address = bind_address if is_loopback(host) else host
    return system_host().address if address == EVERYWHERE else address


def _is_shared(setting: str) -> bool:
    """Return whether a setting of the broker's server counts for the name server as well: those about who may connect,
    and how."""
    return setting.startswith("tls.") or setting == "proxyProtocolTrusted"


def _is_of_a_taken_port(error: MaxQError) -> bool:
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE


def free_ports(rng: Rng, host: str, offsets: Sequence[int]) -> int:
    """Find a port P such that P and P + each of `offsets` are free at the moment.

    Below the range from which the kernel gives ports to outgoing connections, so that none of those takes it meanwhile.

    Raises:
        OSError: `host` is not an address of this machine.
    """
    low, high = _PORTS
    while True:
        port = low + rng.below(high - low)
        if not any(_is_taken(host, port + offset) for offset in (0, *offsets)):
            return port


def _is_taken(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise
    return False
