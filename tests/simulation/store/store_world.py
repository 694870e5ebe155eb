"""A small store on a simulated disk, and the tools to look at it from outside."""

from dataclasses import replace
from pathlib import PurePath
from typing import Final

from maxq.config.message_store_config import MessageStoreConfig
from maxq.protocol.message.message import decode_record
from maxq.runtime.interfaces import Clock
from maxq.store.context.store_context import StoreIdentity
from maxq.store.log import record_cy as rc
from maxq.store.log.deletions import DELETED_TOPIC, deleted_names
from maxq.store.message_store import MessageStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.tools.check import CheckReport, StoreCheck
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.message_lines import is_deletion, messages_of
from maxq.store.tools.queue_files import QueueEntry, QueueFiles
from maxq.store.tools.recover import recover
from maxq.store.tools.store_files import StoreFiles, StoreSettings
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng

ROOT: Final = PurePath("store")
LOG_FILE_SIZE: Final = 8192
HASH_SLOTS: Final = 50
INDEX_ENTRIES: Final = 60


def store_config(rng: SimRng) -> MessageStoreConfig:
    """Small files, so that every kind of roll-over happens often; the rest is drawn."""
    return MessageStoreConfig(
        store_path_root_dir=str(ROOT),
        mapped_file_size_commit_log=LOG_FILE_SIZE,
        mapped_file_size_consume_queue=20 * rng.choice((5, 20, 50)),
        max_hash_slot_num=HASH_SLOTS,
        max_index_num=INDEX_ENTRIES,
        flush_disk_type=rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH")),
        flush_interval_commit_log=rng.choice((20, 500)),
        flush_interval_consume_queue=rng.choice((20, 1000)),
        flush_commit_log_thorough_interval=rng.choice((50, 10_000)),
        flush_consume_queue_thorough_interval=rng.choice((50, 60_000)),
        file_reserved_time=rng.choice((1, 48)),
        clean_resource_interval=1000,
    )


def new_store(config: MessageStoreConfig, disk: SimDisk, clock: Clock) -> MessageStore:
    return MessageStore(config, disk=disk, clock=clock, broker=StoreIdentity(), memory_bytes=1 << 30)


def store_files(disk: SimDisk, config: MessageStoreConfig | None = None) -> StoreFiles:
    """`config`: with which a broker used them last; None: that of `store_config`."""
    if config is None:
        return StoreFiles(disk, ROOT, hash_slots=HASH_SLOTS, index_entries=INDEX_ENTRIES)
    settings = replace(StoreSettings.from_properties(""), index_enabled=config.message_index_enable)
    slots, entries = config.max_hash_slot_num, config.max_index_num
    return StoreFiles(disk, ROOT, settings, hash_slots=slots, index_entries=entries)


def check(disk: SimDisk, config: MessageStoreConfig | None = None) -> CheckReport:
    """The offline check, an implementation of its own of what queues and index must hold."""
    return StoreCheck(store_files(disk, config)).run()


def messages_on_disk(disk: SimDisk) -> dict[int, dict[str, object]]:
    """What `maxq store messages` lists, by physical offset, without the records that delete topics."""
    walk = LogWalk(store_files(disk))
    found = {message["physicalOffset"]: message for batch in walk.batches() for message in messages_of(batch)}
    walk.close()
    return {at: message for at, message in found.items() if message["topic"] != DELETED_TOPIC}


def deletions_on_disk(disk: SimDisk) -> dict[str, int]:
    """Topic → physical offset of the last record in the log that deletes it."""
    walk, found = LogWalk(store_files(disk)), {}
    for batch in walk.batches():
        for start in range(0, batch.count * rc.SCAN_WIDTH, rc.SCAN_WIDTH):
            row = batch.rows[start : start + rc.SCAN_WIDTH]
            if is_deletion(batch.view, row):
                record = batch.view[row[rc.C_POSITION] : row[rc.C_POSITION] + row[rc.C_SIZE]]
                found.update(dict.fromkeys(deleted_names(decode_record(record)), row[rc.C_PHYSICAL_OFFSET]))
    walk.close()
    return found


def rebuilt(disk: SimDisk, config: MessageStoreConfig, clock: Clock) -> SimDisk:
    """A copy of the disk on which queues, index, checkpoint and inventory were built anew from the log: what
    `maxq store recover --rebuild` does."""
    copy = disk.boot()
    recover(store_files(copy, config), clock, rebuild=True, config=config)
    return copy


def made_of_the_log(disk: SimDisk, config: MessageStoreConfig, clock: Clock) -> SimDisk:
    """The same from nothing but the log."""
    copy = disk.boot()
    copy.delete_tree(ROOT / "consumequeue")
    return rebuilt(copy, config, clock)


def unit_bytes(disk: SimDisk) -> dict[tuple[str, int], dict[int, QueueEntry]]:
    """The good units of every ConsumeQueue whose records are in the log, by queue offset.

    The places of damaged messages are left out: queue files may remember more of them than the log can tell.
    """
    files = store_files(disk)
    start = files.log[0].from_offset if files.log else 0
    found = {}
    for key, sequence in files.queues.items():
        units = {index: unit for index, unit in QueueFiles(files, sequence).units() if unit.physical_offset >= start}
        found[key] = {
            i: unit for i, unit in units.items() if not unit.is_pre_blank and unit.tags_code != DAMAGED_TAGS_CODE
        }
    return {key: units for key, units in found.items() if units}
