"""Store directories as the pipeline reaches them: local or mounted folders, or what pyarrow.fs opens (`s3://…`)."""

import os
from pathlib import Path, PurePath

from maxq.errors import ConfigError
from maxq.runtime.interfaces import Disk
from maxq.runtime.system import SystemDisk
from maxq.store.tools.store_files import StoreFiles


def open_folder(path: str) -> tuple[Disk, PurePath]:
    """The disk and the folder of one `path`.

    Raises:
        ConfigError: a URI that pyarrow.fs does not know.
    """
    if "://" not in path:
        return SystemDisk(), Path(os.path.abspath(path))
    from maxq.pipeline.store.arrow_disk import open_uri  # brings the clients of all clouds, 30 ms, to every worker

    return open_uri(path)


def open_store(path: str) -> StoreFiles:
    """The store's files as they are now.

    Raises:
        ConfigError: there is no store.
    """
    disk, root = open_folder(path)
    files = StoreFiles(disk, root)
    if not files.exists:
        raise ConfigError(f"path {path!r} holds no store; give the storePathRootDir of a broker, or a copy of it")
    return files
