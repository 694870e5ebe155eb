"""Objects that all parts of one store share: settings, disk, clock, identity, state."""

from pathlib import PurePath
from typing import Final

from maxq.config.message_store_config import MessageStoreConfig
from maxq.lazy_dataclass import dataclass
from maxq.runtime.interfaces import Clock, Disk
from maxq.store.context.progress import Progress, no_progress
from maxq.store.context.running_flags import RunningFlags
from maxq.store.files.executor_jobs import ExecutorJobs
from maxq.store.retention.trusted_time import TrustedTime

_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """The broker to which a store belongs.

    Attributes:
        store_host: address and 4-byte port of this broker as records carry it, 8 (IPv4) or 20 (IPv6) bytes.
        region: value of MSG_REGION.
    """

    cluster: str = "DefaultCluster"
    broker_name: str = "broker-a"
    broker_id: int = 0
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
    region: str = "DefaultRegion"


class StoreContext:
    """The objects that all parts of a store share. `config` is replaced by a live update, so parts read it at each use.
    All expiry uses `time`."""

    __slots__ = (
        "clock", "config", "disk", "flags", "identity", "is_leading", "jobs", "master_address", "progress", "root",
        "time",
    )  # fmt: skip

    def __init__(self, config: MessageStoreConfig, disk: Disk, clock: Clock, identity: StoreIdentity) -> None:
        self.config = config
        self.disk = disk
        self.clock = clock
        self.identity = identity
        self.time = TrustedTime(clock, lambda: self.config.file_reserved_time * _HOUR_MS)
        self.flags = RunningFlags()
        self.master_address = ""  # address of a slave's master, named in its refusals
        self.is_leading = False  # this member leads its DLedger group: only then messages are accepted
        self.jobs = ExecutorJobs()
        self.progress: Progress = no_progress  # called with the progress of a recovery
        self.root = PurePath(config.store_path_root_dir or "store")

    @property
    def is_dledger(self) -> bool:
        """Whether the log is a DLedger log."""
        return self.config.enable_dleger_commit_log

    @property
    def commit_log_folder(self) -> PurePath:
        """Folder of the log's files."""
        if self.is_dledger:
            own = self.config.store_path_dledger_commit_log
            return PurePath(own) if own else self.dledger_folder / "data"
        return self.plain_log_folder

    @property
    def plain_log_folder(self) -> PurePath:
        """Return the folder of a log that was written without DLedger."""
        own = self.config.store_path_commit_log
        return PurePath(own) if own else self.root / "commitlog"

    @property
    def dledger_folder(self) -> PurePath:
        """Folder of the index, term and checkpoint of a DLedger member."""
        return self.root / f"dledger-{self.config.dleger_self_id}"

    @property
    def consume_queue_folder(self) -> PurePath:
        return self.root / "consumequeue"
