"""The recorded bytes of a Java master and its Java slave (golden wire/ha.jsonl, stores/ha)."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.golden import STORES, WIRE

CAPTURE = WIRE / "ha.jsonl"
MASTER = STORES / "ha" / "master"
SLAVE = STORES / "ha" / "slave"
LOG_FILE_SIZE = 262_144


@dataclass(frozen=True)
class Frame:
    """One frame as the recording proxy saw it; `kind` is report, data or heartbeat."""

    connection: int
    kind: str
    offset: int
    data: bytes

    @property
    def from_master(self) -> bool:
        return self.kind != "report"

    @property
    def body(self) -> bytes:
        """Log bytes of a data frame."""
        return self.data[12:]

    @property
    def end(self) -> int:
        """Physical offset behind them."""
        return self.offset + len(self.body)


@cache
def frames() -> list[Frame]:
    """All frames of both connections, in the order in which they passed."""
    rows = map(json.loads, CAPTURE.read_text(encoding="utf-8").splitlines())
    return [
        Frame(row["conn"], row["kind"], row["offset"], bytes.fromhex(row["hex"])) for row in rows if "event" not in row
    ]


def connections() -> list[int]:
    return sorted({frame.connection for frame in frames()})


def master_stream(connection: int) -> bytes:
    """All that the master said on this connection."""
    return b"".join(frame.data for frame in frames() if frame.connection == connection and frame.from_master)


def slave_stream(connection: int) -> bytes:
    """All that the slave said on this connection."""
    return b"".join(frame.data for frame in frames() if frame.connection == connection and not frame.from_master)


@cache
def log_of(store: Path) -> bytes:
    """The CommitLog of a golden store, whole files."""
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))
