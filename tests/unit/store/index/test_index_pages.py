"""What the first key of a fresh index file costs in memory: a fault of the loop must not zero megabytes."""

from pathlib import Path

import pytest

from maxq.config.message_store_config import MessageStoreConfig
from maxq.runtime.files.system import SystemMappedRegion
from tests.unit.store.dledger.test_index_pages import pages_in_memory
from tests.unit.store.stores import message, opened


def test_the_first_key_brings_its_pages_and_none_around_them(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that makes the table of slots ready comes later here, as on a busy machine."""
    monkeypatch.setattr(SystemMappedRegion, "populate", lambda region, start, end: None)
    store = opened(MessageStoreConfig(store_path_root_dir=str(disk_path)))
    assert store.put_message(message(KEYS="key")).ok
    (file,) = (disk_path / "index").iterdir()
    assert 1 <= pages_in_memory(file) <= 8
    store.close()
