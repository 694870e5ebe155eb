"""PlainAclFiles: conf/plain_acl.yml and the files below conf/acl, read again when they change, and changed on request.

A file that cannot be used at the start keeps the server from starting; later the rules of before stay and the log says
so. A change counts when two looks in a row have seen the same: a file may be half written at the first. Files are read
with all scalars as texts: an access key of digits is a text, and no tag makes an object.

Source:
    acl/plain/PlainPermissionManager.java, AclFileWatchService.java (4.9.8).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, Final

import yaml

from maxq.auth.address_pattern import address_pattern
from maxq.auth.plain_acl import PlainAcl, check_permissions, read_account, read_plain_acl
from maxq.errors import ConfigError
from maxq.protocol.body.data_version import DataVersion
from maxq.runtime.blocking import TABLES, run_blocking
from maxq.runtime.interfaces import Clock, Disk

log: Final = logging.getLogger("maxq.access")

_LOOK_SECONDS: Final = 0.5
_TRIES: Final = 10
_LARGEST: Final = 4 * 1024 * 1024  # bytes of a file

_Change = Callable[[dict[str, Any]], None]
_Seen = tuple[tuple[str, int, int], ...]


class PlainAclFiles:
    """The ACL 1.0 files of one server.

    Attributes:
        acl: the rules; another object when they changed.
    """

    def __init__(self, disk: Disk, home: PurePath, *, clock: Clock) -> None:
        """`home` is rocketmqHome: the folder that holds conf."""
        self._disk = disk
        self._clock = clock
        self._main = home / "conf" / "plain_acl.yml"
        self._folder = home / "conf" / "acl"
        self.acl = PlainAcl()
        self._trees: dict[PurePath, Any] = {}
        self._seen: _Seen = ()
        self._watching: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()

    # --- reading ------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read all files; blocks.

        Raises:
            ConfigError: there is no file, one is unusable, or the files keep changing; names the file.
        """
        for _ in range(_TRIES):
            seen = self._fingerprint()
            if self._take(seen):
                return
        raise ConfigError(f"{self._main} or a file in {self._folder} changed each time that it was read; try again")

    def _take(self, seen: _Seen) -> bool:
        """Load the files that `seen` describes and make them the rules in force. Returns False, without a change, if
        one of them was written meanwhile and may be incomplete. Blocks; raises ConfigError as `load` does."""
        if not seen:
            raise ConfigError(
                f"aclEnable is true, and neither {self._main} nor a file in {self._folder} exists: every request would "
                "be refused; write one, or set rocketmqHome to the folder that contains conf"
            )
        trees = {PurePath(name): parse_yaml(self._disk.read(PurePath(name)), name) for name, _, _ in seen}
        acl, warnings = read_plain_acl((str(path), tree) for path, tree in trees.items())
        if self._fingerprint() != seen:
            return False
        for warning in warnings:
            log.warning("%s", warning)
        self._seen, self._trees, self.acl = seen, trees, acl
        return True

    def start(self) -> None:
        """Start watching for changes. Servers that share the files call it once each."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._watch(), name="watch plain_acl.yml")

    async def shutdown(self) -> None:
        """Stop to look for changes of the files."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        complained: _Seen = ()
        last = self._seen
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                seen = await run_blocking(self._fingerprint)
                # two equal looks: a file that is still being written may lack accounts or not parse
                is_settled, last = seen == last, seen
                if is_settled and seen not in (self._seen, complained):
                    complained = seen
                    async with self._changing:
                        is_taken = await run_blocking(self._take, seen)
                    if is_taken:
                        log.warning(
                            "the files of ACL 1.0 changed and are in force now: %d accounts", len(self.acl.accounts)
                        )
            except (ConfigError, OSError) as error:
                log.error("the files of ACL 1.0 changed and cannot be used, the old rules stay: %s", error)

    def _fingerprint(self) -> _Seen:
        """Return name, length and time of all files; those of the folder first, as Java reads them."""
        found: list[tuple[str, int, int]] = []
        self._look_into(self._folder, found, depth=4)
        if self._disk.exists(self._main):
            facts = self._disk.stat(self._main)
            found.append((str(self._main), facts.size, facts.modified_ms))
        return tuple(found)

    def _look_into(self, folder: PurePath, found: list[tuple[str, int, int]], depth: int) -> None:
        for entry in self._disk.list(folder):
            if entry.is_dir and depth:
                self._look_into(folder / entry.name, found, depth - 1)
            elif not entry.is_dir and entry.name.endswith((".yml", ".yaml")):
                found.append((str(folder / entry.name), entry.size, entry.modified_ms))

    # --- changing -----------------------------------------------------------------------------------------------------

    @property
    def versions(self) -> dict[str, DataVersion]:
        """Return how often each file was changed by requests."""
        return {str(path): _version(tree) for path, tree in self._trees.items()}

    @property
    def main_file(self) -> str:
        """Return the file into which new accounts are written."""
        return str(self._main)

    async def update_account(self, values: Mapping[str, Any]) -> None:
        """Create an account, or replace the given fields of it, in the file that has it.

        Raises:
            ConfigError: an account cannot look so.
        """
        check_permissions([*values.get("topicPerms", ()), *values.get("groupPerms", ())])
        name = values["accessKey"]

        def change(tree: dict[str, Any]) -> None:
            accounts = tree.get("accounts") or []
            kept = [account for account in accounts if account.get("accessKey") != name]
            old: dict[str, Any] = next((account for account in accounts if account.get("accessKey") == name), {})
            account = {**old, **values}
            read_account(account)
            tree["accounts"] = [*kept, account]

        await self._change(self._file_of(name) or self._main, change)

    async def delete_account(self, name: str) -> bool:
        """Delete an account. Returns False if there is none of that name."""
        path = self._file_of(name)
        if path is None:
            return False

        def change(tree: dict[str, Any]) -> None:
            tree["accounts"] = [account for account in tree.get("accounts") or [] if account.get("accessKey") != name]

        await self._change(path, change)
        return True

    async def update_global_white(self, addresses: list[str], file: str) -> None:
        """Set the global white list of a file.

        Args:
            file: one that is read already; empty: plain_acl.yml.

        Raises:
            ConfigError: the file does not exist, or an address is invalid.
        """
        for address in addresses:
            address_pattern(address)
        path = PurePath(file) if file else self._main
        if file and path not in self._trees:
            raise ConfigError(
                f"{file!r:.200} is not one of the files of access control, which are {sorted(map(str, self._trees))}"
            )

        def change(tree: dict[str, Any]) -> None:
            tree["globalWhiteRemoteAddresses"] = addresses

        await self._change(path, change)

    async def _change(self, path: PurePath, change: _Change) -> None:
        async with self._changing:
            stable = await self._until_stable()
            await TABLES.run(self._rewrite, path, change, stable)

    async def _until_stable(self) -> _Seen:
        """Return the state of the files once nobody writes them: it equals the loaded state, or two reads have found
        the same.

        Raises:
            ConfigError: somebody writes them all the time.
        """
        last = self._seen
        for _ in range(_TRIES):
            seen = await run_blocking(self._fingerprint)
            if seen == last:
                return seen
            last = seen
            await asyncio.sleep(_LOOK_SECONDS)
        raise ConfigError(f"{self._main} or a file in {self._folder} is being written all the time; try again later")

    def _rewrite(self, path: PurePath, change: _Change, stable: _Seen) -> None:
        """Rewrite the file from its present content on the disk, not from what was loaded: a person may be editing
        it."""
        tree = parse_yaml(self._disk.read(path), str(path)) if self._disk.exists(path) else {}
        # raises if an edit has made the file unreadable: nothing is added to such a file
        read_plain_acl([(str(path), tree)])
        if self._fingerprint() != stable:
            raise ConfigError(f"{path} was written by somebody else while it was read; try again")
        tree = tree or {}
        change(tree)
        version = _version(tree)
        version.next_version(self._clock.wall_ms())
        tree["dataVersion"] = [{"counter": version.counter, "timestamp": version.timestamp}]
        text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, default_flow_style=False)
        self._disk.replace(path, text.encode(), private=True)
        self.load()

    def _file_of(self, name: str) -> PurePath | None:
        for path, tree in self._trees.items():
            accounts = tree.get("accounts") if isinstance(tree, dict) else None
            if any(account.get("accessKey") == name for account in accounts or ()):
                return path
        return None


def parse_yaml(data: bytes, name: str) -> Any:
    """Parse a YAML file into a tree whose scalars are all texts.

    Raises:
        ConfigError: too long, or not YAML; names the line, for its content may be a secret.
    """
    if len(data) > _LARGEST:
        raise ConfigError(f"{name} has {len(data)} bytes, the limit is {_LARGEST}")
    try:
        return yaml.load(data, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # only the place is told: the error's own text quotes lines, with secrets in them
        place = getattr(error, "problem_mark", None)
        where = f" in line {place.line + 1}" if place is not None else ""
        raise ConfigError(f"{name} is not YAML{where}") from None


def _version(tree: Any) -> DataVersion:
    rows = tree.get("dataVersion") if isinstance(tree, dict) else None
    row = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    numbers = {name: int(text) for name in ("counter", "timestamp") if str(text := row.get(name, "")).isdigit()}
    return DataVersion(counter=numbers.get("counter", 0), timestamp=numbers.get("timestamp", 0))
