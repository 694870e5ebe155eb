"""StoreOwner: whose store a folder is. A slave must not append one group's log to another's.

`owner.json` in the store's folder, written at each start; Java ignores it, and it may be deleted:

    {"brokerId":1,"brokerName":"broker-a","clusterName":"C","role":"SLAVE"}

A master that was a slave before says in `slaveUntil` up to which physical offset its log is a copy. A slave that has
found that its log is another than its master's says so in `logIsAnother`.

A store without it (a Java broker's) is taken as ours, with a note if there are messages in it; one that a Java broker
ran in controller mode says whose it is in `brokerIdentity` (`cluster#brokerName#brokerId`). A master may be renamed.
"""

import logging
import threading
from pathlib import PurePath
from typing import Final

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.identity.role import SLAVE
from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import RemoteProtocolError, StoreRefusedError
from maxq.protocol.json import json_dialect
from maxq.runtime.interfaces import Disk
from maxq.store.files.disk_room import lacks_room

log = logging.getLogger(__name__)

FILE_NAME: Final = "owner.json"
JAVA_FILE_NAME: Final = "brokerIdentity"


class StoreOwner:
    """The owner of a broker's store. Methods block.

    Attributes:
        was_slave: the last broker that used the store ended as a slave; known after `check`.
        slave_until: the log is the copy of a slave up to this physical offset, as a master said that used the store
            last; known after `check`.
        log_is_another: the slave that used the store last had found that its log is another than its master's, and not
            the contrary since; known after `check`.
    """

    def __init__(self, disk: Disk, store: MessageStoreConfig, broker: BrokerAddress) -> None:
        self._disk = disk
        self._root = PurePath(store.store_path_root_dir)
        self._log_folder = PurePath(store.store_path_commit_log or self._root / "commitlog")
        self._broker = broker
        self._owner_before: tuple[str, str] | None = None  # (cluster, name) of another broker, found by `check`
        self.was_slave = False
        self.slave_until = 0
        self.log_is_another = False
        self._role = ""
        self._writing = threading.Lock()

    def check(self, role: str) -> None:
        """Check the owner before the store is touched.

        Raises:
            StoreRefusedError: a slave would go on with the log of another cluster or broker group.
        """
        if not any(entry.size for entry in self._disk.list(self._log_folder)):
            return  # whoever used the folder left no messages
        name, owner = self._owner()
        mine = (self._broker.cluster, self._broker.broker_name)
        if owner is None:
            log.info("%s does not name the owner of its messages; they are taken as those of broker %s of cluster %s",
                     self._root, mine[1], mine[0])  # fmt: skip
        elif owner != mine and role == SLAVE:
            raise StoreRefusedError(
                f"{self._root / name}: this store holds messages of broker group {owner[1]} of cluster {owner[0]}, but "
                f"this slave belongs to {mine[1]} of cluster {mine[0]} (brokerName, brokerClusterName): its master's "
                "log does not continue it. Set storePathRootDir to an empty folder, or correct the names; if the group "
                f"was renamed, delete {name}."
            )
        elif owner != mine:
            self._owner_before = owner

    def record(self, role: str, slave_until: int = 0) -> None:
        """Record that the store, which is open and locked now, belongs to this broker, in this role.

        Args:
            slave_until: of a master: see the attribute.

        Raises:
            OSError: the disk refuses. A lack of disk room for a new role is ignored, because the file already names the
                group.
        """
        broker = self._broker
        self._role = role
        self.log_is_another = self.log_is_another and role == SLAVE
        if self._owner_before is not None:
            log.warning("%s belonged to %s of cluster %s until now, and belongs to %s of cluster %s from here on",
                        self._root, self._owner_before[1], self._owner_before[0], broker.broker_name,
                        broker.cluster)  # fmt: skip
            self._owner_before = None
        with self._writing:
            self._write(role, slave_until)

    def _write(self, role: str, slave_until: int) -> None:
        broker = self._broker
        text = json_dialect.dumps(
            {"brokerId": broker.broker_id, "brokerName": broker.broker_name, "clusterName": broker.cluster,
             "role": role}
            | ({"slaveUntil": slave_until} if slave_until else {})
            | ({"logIsAnother": True} if self.log_is_another else {})
        )  # fmt: skip
        if self._read(FILE_NAME) != text:
            try:
                self._disk.make_dirs(self._root)
                self._disk.replace(self._root / FILE_NAME, text)
            except OSError as error:
                if not lacks_room(error) or self._owner()[1] != (broker.cluster, broker.broker_name):
                    raise
                log.warning(
                    "%s could not be written with this broker's role, %s: %s", self._root / FILE_NAME, role, error
                )

    def record_log(self) -> None:
        """Record `log_is_another`, of a slave. Blocks.

        Raises:
            OSError: the disk refuses.
        """
        if self._role == SLAVE:
            self.record(SLAVE)

    def _owner(self) -> tuple[str, tuple[str, str] | None]:
        """Return the file that names the owner, and the owner's (cluster, broker name)."""
        data = self._read(FILE_NAME)
        if data is not None:
            try:
                value = json_dialect.loads(data)
                owner = str(value["clusterName"]), str(value["brokerName"])
                self.was_slave = value.get("role") == SLAVE
                self.slave_until = int(value.get("slaveUntil", 0))
                self.log_is_another = value.get("logIsAnother") is True
                return FILE_NAME, owner
            except (RemoteProtocolError, TypeError, ValueError, KeyError):
                log.warning("%s cannot be read; it is written again", self._root / FILE_NAME)
        parts = (self._read(JAVA_FILE_NAME) or b"").decode("utf-8", "replace").strip().split("#")
        return JAVA_FILE_NAME, (parts[0], parts[1]) if len(parts) == 3 else None

    def _read(self, name: str) -> bytes | None:
        try:
            return self._disk.read(self._root / name)
        except FileNotFoundError:
            return None
