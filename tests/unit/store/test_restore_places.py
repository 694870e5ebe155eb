"""Units of messages that were sealed as damaged, when their records are back."""

from pathlib import Path

import pytest

from maxq.store.log_cy import DAMAGED_TAGS_CODE
from maxq.store.message_store import MessageStore
from maxq.store.restore_places import is_sealed
from tests.unit.store.stores import message, opened, small_config

MESSAGES = 30


def filled(root: Path, topic: str, **properties: str) -> MessageStore:
    store = opened(small_config(root))
    for number in range(MESSAGES):
        assert store.put_message(message(topic, 0, b"%03d" % number * 40, **properties)).ok
    return store


def units(store: MessageStore, topic: str) -> list[tuple[int, int, int] | None]:
    queue = store.queue(topic, 0)
    assert queue is not None
    return [queue.unit(number) for number in range(MESSAGES)]


@pytest.mark.parametrize(
    ("topic", "properties"),
    [
        ("T", {}),
        ("T", {"TAGS": "TagA"}),
        ("SCHEDULE_TOPIC_XXXX", {"DELAY": "3"}),
        ("SCHEDULE_TOPIC_XXXX", {"DELAY": "99"}),
    ],
)
@pytest.mark.parametrize("inside", [5, 130])  # the magic code; the body
def test_records_that_are_back_get_the_units_they_had(
    tmp_path: Path, topic: str, properties: dict[str, str], inside: int
) -> None:
    store = filled(tmp_path, topic, **properties)
    before = units(store, topic)
    unit = before[12]
    assert unit is not None
    offset, size, _ = unit
    path = tmp_path / "commitlog" / f"{0:020d}"
    store.close()
    good = path.read_bytes()
    bad = bytearray(good)
    bad[offset + inside] ^= 8
    path.write_bytes(bad)
    (tmp_path / "inventory.json").unlink()
    store = opened(small_config(tmp_path))
    assert is_sealed(store.commit_log, offset, size) and not is_sealed(store.commit_log, 0, size)
    placeholder = units(store, topic)[12]
    assert placeholder is not None and placeholder[2] == DAMAGED_TAGS_CODE
    file = store.commit_log.files.files[0]
    file.view[offset : offset + size] = good[offset : offset + size]
    assert not is_sealed(store.commit_log, offset, size)
    assert store.restore_places(offset, size) == 1
    assert units(store, topic) == before
    assert store.restore_places(offset, size) == 0
    store.close()


def test_a_seal_up_to_the_end_of_a_file_is_known_as_one(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    while store.max_physical_offset <= 65_536:
        store.put_message(message("T", 0, b"y" * 900))
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[60_000:] = b"\xee" * (len(data) - 60_000)
    path.write_bytes(data)
    store = opened(small_config(tmp_path))
    (damage,) = store.report.damages
    assert damage.end_offset == 65_536
    assert is_sealed(store.commit_log, damage.physical_offset, damage.size)
    store.close()
