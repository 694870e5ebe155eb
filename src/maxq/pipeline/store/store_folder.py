"""Store directories as the pipeline reaches them: local or mounted folders, or what pyarrow.fs opens (`s3://…`)."""

import json
import os
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Final

from maxq.errors import ConfigError
from maxq.runtime.files.system import SystemDisk
from maxq.runtime.interfaces import Disk
from maxq.store.tools.store_files import StoreFiles, StoreSettings

#: MaxQ's brokers write it (maxq.broker.identity.store_owner).
OWNER_FILE: Final = "owner.json"


def open_folder(path: str) -> tuple[Disk, PurePath]:
    """Return the disk and the folder of one `path`.

    Raises:
        ConfigError: a URI that pyarrow.fs does not know.
    """
    if "://" not in path:
        return SystemDisk(), Path(os.path.abspath(path))
    from maxq.pipeline.store.arrow_disk import open_uri  # brings the clients of all clouds, 30 ms, to every worker

    return open_uri(path)


def open_store(
    path: str, settings: StoreSettings | None = None, *, hash_slots: int = 0, index_entries: int = 0
) -> StoreFiles:
    """Return the files that a store has at this moment. Arguments are those of StoreFiles.

    Raises:
        ConfigError: there is no store.
    """
    if path.strip():  # the empty path, of a variable that is not set, would be the current folder
        disk, root = open_folder(path)
        with suppress(NotADirectoryError):
            files = StoreFiles(disk, root, settings, hash_slots=hash_slots, index_entries=index_entries)
            if files.exists:
                return files
    raise ConfigError(f"path {path!r} holds no store; give the storePathRootDir of a broker, or a copy of it")


def owner_of(files: StoreFiles) -> str | None:
    """Return the name of the broker whose store this is; None: no file says so, as in a Java broker's."""
    try:
        value = json.loads(files.disk.read(files.root / OWNER_FILE))
    except (FileNotFoundError, ValueError):
        return None
    name = value.get("brokerName") if isinstance(value, dict) else None
    return name if isinstance(name, str) else None
