"""KVConfigManager: namespace → key → value, the only thing a name server keeps on disk.

Source:
    apache/rocketmq namesrv/kvconfig/KVConfigManager.java.
"""

import asyncio
import logging
from pathlib import PurePath

from maxq.errors import ConfigError, RemoteProtocolError
from maxq.protocol.body.route import KVConfigSerializeWrapper
from maxq.runtime.blocking import TABLES
from maxq.runtime.interfaces import Disk

_log = logging.getLogger(__name__)

#: Namespace of the order configuration of topics: topic → `broker-a:4;broker-b:4`.
NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

KVTables = dict[str, dict[str, str]]


class KVConfigManager:
    """The table and its file `kvConfig.json`. A change is on disk before it is seen or answered."""

    def __init__(self, disk: Disk, path: PurePath | None) -> None:
        """With `path` None, the table lives in memory only."""
        self._disk = disk
        self._path = path
        self._tables: KVTables = {}
        self._writing = asyncio.Lock()

    def load(self) -> None:
        """Read the file, if there is one. Blocking.

        Raises:
            ConfigError: it is there and is not what this writes; names file and cause.
        """
        if self._path is None:
            return
        try:
            data = self._disk.read(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigError(f"cannot read {self._path}: {error}; check kvConfigPath") from error
        try:
            self._tables = KVConfigSerializeWrapper.decode(data).config_table
        except RemoteProtocolError as error:
            raise ConfigError(
                f"{self._path} is not a key-value table of a name server: {error}; "
                "repair it, or move it away to start with an empty table"
            ) from None

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value."""
        return self._tables.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all values of one namespace; None if it was never written to."""
        return self._tables.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value; OSError if the disk refuses, and then nothing has changed."""
        async with self._writing:
            await self._replace({**self._tables, namespace: {**self._tables.get(namespace, {}), key: value}})

    async def delete(self, namespace: str, key: str) -> None:
        """Remove one value; raises as `put`. Does nothing if there is none."""
        async with self._writing:
            table = dict(self._tables.get(namespace, {}))
            if table.pop(key, None) is not None:
                await self._replace({**self._tables, namespace: table})

    async def _replace(self, tables: KVTables) -> None:
        if self._path is not None:
            data = KVConfigSerializeWrapper(tables).encode_pretty()
            await TABLES.run(self._disk.replace, self._path, data)
        self._tables = tables

    def log_all(self) -> None:
        """Log the content of the table, as operators of RocketMQ find it in the log."""
        for namespace, table in self._tables.items():
            for key, value in table.items():
                _log.info("configTable NS: %s Key: %s Value: %s", namespace, key, value)
