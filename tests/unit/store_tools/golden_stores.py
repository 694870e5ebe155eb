"""The golden stores, as files of a SimDisk."""

import json
from functools import cache
from pathlib import PurePath
from typing import Any

from maxq.store.tools.store_files import StoreFiles, StoreSettings
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from tests.golden import STORES

ROOT = PurePath("store")

#: Every golden store; read at import, so that each is a test case of its own.
NAMES = sorted(str(path.parent.relative_to(STORES)) for path in STORES.glob("**/expected.json"))


@cache
def _files(name: str) -> dict[str, bytes]:
    folder = STORES / name
    sparse = folder / "sparse.json"
    chunks = json.loads(sparse.read_text()) if sparse.exists() else {}
    skipped = {f"{path}.chunks" for path in chunks} | {"expected.json", "sparse.json", "broker.conf", "damage.json"}
    found = {}
    for path in sorted(folder.rglob("*")):
        relative = str(path.relative_to(folder))
        if path.is_file() and relative not in skipped:
            found[relative] = path.read_bytes()
    for path, layout in chunks.items():
        if "/data/" in path:  # the index of a DLedger log is 160 MiB of holes, and nothing here reads it
            content = bytearray(layout["size"])
            stored = (folder / f"{path}.chunks").read_bytes()
            at = 0
            for offset, length in layout["chunks"]:
                content[offset : offset + length] = stored[at : at + length]
                at += length
            found[path] = bytes(content)
    return found


@cache
def expected(name: str) -> dict[str, Any]:
    """What Java said of the store."""
    return dict(json.loads((STORES / name / "expected.json").read_text()))


def golden_disk(name: str) -> SimDisk:
    """A disk that holds a copy of the store at `ROOT`."""
    disk = SimDisk(SimRng(1), SimClock(), write_back=0)
    for path, content in _files(name).items():
        disk.put(ROOT / path, content)
    return disk


def golden_files(name: str, *, conf: bool = False) -> StoreFiles:
    """The store's files, found by looking; with `conf` its broker.conf is at hand."""
    return open_files(golden_disk(name), name if conf else None)


def open_files(disk: SimDisk, conf_of: str | None = None) -> StoreFiles:
    settings = None
    if conf_of is not None:
        settings = StoreSettings.from_properties((STORES / conf_of / "broker.conf").read_bytes())
    return StoreFiles(disk, ROOT, settings)
