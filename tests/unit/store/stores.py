"""Stores on a temporary folder for tests: settings, a clock that can be set, opening and closing."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from maxq.config.loader import load
from maxq.config.message_store_config import MessageStoreConfig
from maxq.config.properties import parse_properties
from maxq.runtime.files.system import SystemDisk
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore

IDENTITY = StoreIdentity()


class TestClock:
    """Wall and monotonic time that stand still until moved."""

    __test__ = False

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000

    def go_to_hour(self, hour: int) -> None:
        """Let time pass until a local clock shows this hour of the day."""
        while datetime.fromtimestamp(self.now_ms / 1000).hour != hour:
            self.now_ms += 3_600_000


def small_config(root: Path, **changes: Any) -> MessageStoreConfig:
    """Files so small that tests cross their borders."""
    base = MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=65_536,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=100,
        max_index_num=200,
        max_message_size=16_384,
    )
    return replace(base, **changes)


def config_of(root: Path, conf: Path) -> MessageStoreConfig:
    """The settings of a golden store's broker.conf for a copy at `root`."""
    values = {
        name: text
        for name, text in parse_properties(conf.read_bytes()).items()
        if name != "brokerRole" and "dLeger" not in name and "DLeger" not in name  # replication: a later issue
    }
    found: MessageStoreConfig = load([MessageStoreConfig()], values, source=str(conf)).configs[0]
    return replace(found, store_path_root_dir=str(root), store_path_commit_log="")


def new_store(config: MessageStoreConfig, clock: Any = None) -> MessageStore:
    return MessageStore(config, disk=SystemDisk(), clock=clock or TestClock(), broker=IDENTITY, memory_bytes=1 << 30)


def opened(config: MessageStoreConfig, clock: Any = None) -> MessageStore:
    store = new_store(config, clock)
    store.load()
    return store


def message(topic: str = "T", queue_id: int = 0, body: bytes = b"hello", **properties: str) -> MessageExtBrokerInner:
    return MessageExtBrokerInner(topic, queue_id, body, properties, born_host=b"\x7f\0\0\1\0\0\x12\x34")


async def delete_topics(store: MessageStore, *topics: str) -> None:
    """Delete topics for good, as a broker does before it answers."""
    result = store.put_deletion(topics)
    assert result.ok, result.remark
    await store.finish_deletion(topics)
