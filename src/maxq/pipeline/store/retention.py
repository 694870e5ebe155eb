"""Does the disk hold what retention asks for? Arithmetic; free of Spark.

A broker deletes files of its log that are older than fileReservedTime, and also younger ones when the disk is fuller
than diskMaxUsedSpaceRatio. So a log that grows evenly stops growing at rate × fileReservedTime, unless the disk is full
before that, so that less is kept than the setting says.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from maxq.pipeline.store.store_folder import open_store

HOUR_MS: Final = 3_600_000
DEFAULT_RESERVED_HOURS: Final = 72  # RocketMQ's fileReservedTime
DEFAULT_RATIO: Final = 0.75  # RocketMQ's diskMaxUsedSpaceRatio
_CAPACITY: Final = re.compile(r"Total : ([\d.]+) (\w+), Free : ([\d.]+) (\w+)\.")
_UNITS: Final = {name: 1024**power for power, name in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))}


@dataclass(frozen=True)
class BrokerDisk:
    """Facts about the disk of a broker.

    Attributes:
        log_bytes: of its CommitLog files.
        total_bytes, free_bytes: of the file system they lie in, without what is reserved for root: brokers compare the
            share of these with their limit.
        ratio: the share of the file system that may be used before files are deleted early.
        reserved_hours: how long messages are to be kept.
    """

    broker: str
    log_bytes: int
    total_bytes: int
    free_bytes: int
    ratio: float = DEFAULT_RATIO
    reserved_hours: float = DEFAULT_RESERVED_HOURS


@dataclass(frozen=True)
class Forecast:
    """How a log develops that keeps growing as it did.

    Attributes:
        limit_bytes: how large the log may get before files are deleted early; other files are taken to stay.
        steady_bytes: how large it gets if messages are kept as long as asked for.
        full_in_ms: until it is at the limit; None: it stays below, 0: it is there.
        kept_ms: how long messages are kept in the end.
    """

    disk: BrokerDisk
    bytes_per_second: float
    limit_bytes: int
    steady_bytes: int
    full_in_ms: int | None
    kept_ms: int


def forecast(disk: BrokerDisk, bytes_per_second: float) -> Forecast:
    """Predict the growth of a log; see Forecast."""
    other = max(disk.total_bytes - disk.free_bytes - disk.log_bytes, 0)
    limit = max(int(disk.total_bytes * disk.ratio) - other, 0)
    asked_ms = int(disk.reserved_hours * HOUR_MS)
    steady = int(bytes_per_second * asked_ms / 1000)
    if steady <= limit and disk.log_bytes <= limit:
        return Forecast(disk, bytes_per_second, limit, steady, None, asked_ms)
    if bytes_per_second <= 0:
        return Forecast(disk, bytes_per_second, limit, steady, 0, asked_ms)
    full_in = max(int((limit - disk.log_bytes) / bytes_per_second * 1000), 0)
    return Forecast(disk, bytes_per_second, limit, steady, full_in, min(int(limit / bytes_per_second * 1000), asked_ms))


def disk_of_store(path: str, broker: str, *, ratio: float, reserved_hours: float) -> BrokerDisk | None:
    """Return the disk of a store directory on this machine; None for a directory elsewhere.

    Raises:
        ConfigError: there is no store.
    """
    if "://" in path:
        return None
    log = open_store(path).log
    usage = shutil.disk_usage(path)
    size = sum(file.size for file in log)
    return BrokerDisk(broker, size, usage.used + usage.free, usage.free, ratio, reserved_hours)


def disk_of_broker(broker: str, runtime: Mapping[str, str], config: Mapping[str, str]) -> BrokerDisk | None:
    """Return a broker's disk by its own report (request codes 28 and 26); None if the report lacks it."""
    capacity = _CAPACITY.search(runtime.get("commitLogDirCapacity", ""))
    try:
        size = int(runtime["commitLogMaxOffset"]) - int(runtime["commitLogMinOffset"])
        if capacity is None:
            return None
        total, free = (int(float(capacity[at]) * _UNITS[capacity[at + 1]]) for at in (1, 3))
        used = float(runtime.get("commitLogDiskRatio", 0))
        if 0 < used < 1:
            total = min(total, int(free / (1 - used)))
        ratio = int(config.get("diskMaxUsedSpaceRatio", 100 * DEFAULT_RATIO)) / 100
        hours = float(config.get("fileReservedTime", DEFAULT_RESERVED_HOURS))
    except (KeyError, ValueError):
        return None
    return BrokerDisk(broker, size, total, free, ratio, hours)
