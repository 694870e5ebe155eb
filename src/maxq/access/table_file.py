"""TableFile: users and policies in one file, `auth.json`, that only the server's own user may read.

RocketMQ keeps them in two RocksDB folders. Passwords stand in clear text in either: signatures are checked with them.
"""

import asyncio
from pathlib import PurePath
from typing import Any

from maxq.auth.info import AclInfo, UserInfo
from maxq.auth.tables import AccessTables
from maxq.errors import ConfigError, RemoteProtocolError
from maxq.protocol.json import json_dialect
from maxq.runtime.blocking import TABLES
from maxq.runtime.interfaces import Disk

FILE_NAME = "auth.json"


class TableFile:
    """Loads and stores the users and policies of one server (ACL 2.0): auth.json in its folder.

    Attributes:
        path: of the file.
    """

    def __init__(self, disk: Disk, folder: PurePath, tables: AccessTables) -> None:
        self._disk = disk
        self.path = folder / FILE_NAME
        self._tables = tables
        self._writing = asyncio.Lock()

    def load(self) -> None:
        """Fill the tables; they stay empty if there is no file. Blocks.

        Raises:
            ConfigError: it cannot be read: which file, what to do.
        """
        try:
            data = self._disk.read(self.path)
        except FileNotFoundError:
            return
        try:
            decode_tables(data, self._tables)
        except RemoteProtocolError as error:
            raise ConfigError(
                f"{self.path} holds no users and policies ({error}); restore it from a copy, or delete it and copy "
                "them from another server (copyUser, copyAcl)"
            ) from None

    def encode(self) -> bytes:
        """Returns the tables as the bytes of their file."""
        tables = self._tables
        return json_dialect.dumps_pretty(
            {
                "users": [UserInfo.of(user, with_password=True).to_json() for user in list(tables.users.values())],
                "acls": [AclInfo.of(acl).to_json() for acl in list(tables.acls.values())],
            }
        )

    def persist(self) -> None:
        """Write the file; blocks until it is durable. Raises OSError if the disk refuses: the file keeps its old
        content."""
        self._disk.replace(self.path, self.encode(), private=True)

    async def save(self) -> None:
        """Write the present tables; returns when they are durable. Raises OSError if the disk refuses."""
        async with self._writing:
            await TABLES.run(self.persist)


def decode_tables(data: bytes, tables: AccessTables) -> None:
    """Fill the tables from a file's content.

    Raises:
        RemoteProtocolError: it is not such a file.
    """
    value: Any = json_dialect.loads(data)
    if not isinstance(value, dict) or not isinstance(value.get("users"), list):
        raise RemoteProtocolError("the file is an object with users and acls")
    users = [UserInfo.from_json(user).user() for user in value["users"]]
    acls = value.get("acls") or []
    if not isinstance(acls, list):
        raise RemoteProtocolError("acls is a list")
    infos = [AclInfo.from_json(acl) for acl in acls]
    tables.replace_all(users, [info.acl(info.subject or "") for info in infos])
