"""BareServer: one member of a group without a broker, as DLedger's own server is. `maxq dledger` runs it.

Source:
    openmessaging/dledger DLedger.java, cmdline/ServerCommand.java.
"""

from collections.abc import Callable
from pathlib import PurePath

from maxq.config.netty_server_config import NettyServerConfig
from maxq.remoting.client import split_address
from maxq.remoting.peer_addresses import PeerAddresses
from maxq.replication.dledger.client_requests import ClientRequests
from maxq.replication.dledger.config import DLedgerConfig
from maxq.replication.dledger.dledger_server import DLedgerServer
from maxq.runtime.blocking import end_threads, run_blocking
from maxq.runtime.interfaces import Clock, Disk, Rng
from maxq.store.dledger.mmap_file_store import DLedgerMmapFileStore


class BareServer:
    """One process with the files of a member, the member, and its port for clients.

    Attributes:
        member: None before `start`.
    """

    def __init__(
        self,
        config: DLedgerConfig,
        base_dir: PurePath,
        data_file_size: int,
        *,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        peer_addresses: str = "",
        highest_descriptor: int = 0,
    ) -> None:
        """
        Args:
            peer_addresses: who may connect, members, clients and operators; see PeerAddresses.
            highest_descriptor: as the setting of that name; 0: no limit.
            base_dir: the member's files are in `dledger-<id>` below it.
            data_file_size: bytes, equal on all members.

        Raises:
            ConfigError: peer_addresses lists something else than addresses and networks.
        """
        self._peers = PeerAddresses(peer_addresses, clock)
        self._server_config = NettyServerConfig(highest_descriptor=highest_descriptor)
        self._config = config
        self._clock = clock
        self._rng = rng
        self._on_failure: Callable[[str, BaseException], None] = _ignore
        self._host = "0.0.0.0"
        self.store = DLedgerMmapFileStore(
            base_dir, config.self_id, disk=disk, clock=clock, data_file_size=data_file_size
        )
        self.member: DLedgerServer | None = None

    def set_failure_listener(self, listener: Callable[[str, BaseException], None]) -> None:
        """Set the failure listener, called as `listener(service, error)`. It should end the process, because a member
        that cannot write must not serve."""
        self._on_failure = listener
        self.store.set_service_failed(listener)

    async def start(self) -> None:
        """Load, recover, listen.

        Raises:
            StoreRefusedError: the files cannot be used.
            OSError: the port is in use.
        """
        await run_blocking(self.store.load)
        self.store.start()
        self.member = DLedgerServer(
            self._config,
            self.store,
            clock=self._clock,
            rng=self._rng,
            server_config=self._server_config,
            peers=self._peers,
        )
        self.member.set_service_failed(self._on_failure)
        ClientRequests(self.member)
        try:
            await self.member.start(self._host, split_address(self._config.self_address)[1])
        except BaseException:
            await self.shutdown()
            raise

    async def shutdown(self) -> None:
        """Leave the group; everything is on the disk on return."""
        if self.member is not None:
            await self.member.resign()
            await self.member.shutdown()
            self.member = None
        await self.store.shutdown()
        end_threads()


def _ignore(service: str, error: BaseException) -> None:
    """Ignore a failure: the listener of a server for which none was set."""
