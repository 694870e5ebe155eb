"""Live settings of a running name server: shown, changed and written back.

Source:
    apache/rocketmq namesrv/processor/DefaultRequestProcessor.java updateConfig, getConfig; remoting/Configuration.java.
    Unlike there, only settings marked live can change, and a wrong one changes nothing (CVE-2023-37582).
"""

import asyncio
import logging
from pathlib import PurePath

from maxq.config import NamesrvSettings
from maxq.config.properties import format_properties, parse_properties
from maxq.config.settings import persist
from maxq.runtime.blocking import TABLES
from maxq.runtime.interfaces import Disk

_log = logging.getLogger(__name__)


class ConfigService:
    """The settings of a name server, and the file to which they are written back."""

    def __init__(self, settings: NamesrvSettings, disk: Disk, path: PurePath | None) -> None:
        """With `path` None, changes last until the process ends."""
        self._settings = settings
        self._disk = disk
        self._path = path
        self._updating = asyncio.Lock()

    def text(self) -> bytes:
        """Return all settings as properties, sorted by name, secrets hidden."""
        return format_properties(self._settings.snapshot()).encode()

    async def update(self, body: bytes) -> None:
        """Change the settings that a properties text names; on disk first, then live.

        Raises:
            ConfigError: the text, a name or a value is refused; nothing was changed.
            OSError: the file cannot be written; nothing was changed.
        """
        source = "UPDATE_NAMESRV_CONFIG"
        mapping = parse_properties(body, source=source)
        async with self._updating:
            changes = self._settings.check(mapping, source=source)
            if not changes:
                return
            if self._path is not None:
                await TABLES.run(persist, self._disk, self._path, changes)
            self._settings.update(mapping, source=source)
        for change in changes:
            _log.info("setting %s: %s -> %s", change.name, change.old, change.new)
