"""A store that starts with other settings than those it was made with."""

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from maxq.errors import StoreRefusedError
from maxq.protocol.message.message import decode_records
from maxq.runtime.files.system import SystemMappedRegion
from maxq.runtime.interfaces import SyncFailedError
from maxq.store.log.tails_cy import jhash
from maxq.store.message_store import MessageStore
from tests.unit.store import naive
from tests.unit.store.recovery.recovery_world import assert_whole, close
from tests.unit.store.stores import message, opened, small_config


def put(store: MessageStore, first: int, count: int, **properties: str) -> list[int]:
    """Store messages `first`, `first` + 1 …, with a key each. Returns their physical offsets."""
    found = []
    for number in range(first, first + count):
        sent = message(body=b"%d" % number * 40, KEYS=f"k{number}")
        sent.properties.update(properties)
        result = store.put_message(sent)
        assert result.ok, result.remark
        found.append(result.physical_offset)
    return found


def found_by_key(store: MessageStore, number: int) -> list[int]:
    result = store.query_message("T", f"k{number}", 32, 0, 1 << 60)
    return [record.physical_offset for buffer in result.buffers for record in decode_records(buffer)]


def snapshot(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


# --- check sums of properties


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("both", [True, False])
def test_records_of_before_check_sums_of_properties_stay_when_those_are_verified(
    tmp_path: Path, clean: bool, both: bool
) -> None:
    store = opened(small_config(tmp_path))
    places = put(store, 0, 900)
    close(store, clean=clean)
    store = opened(small_config(tmp_path, force_verify_prop_crc=True, enabled_append_prop_crc=both))
    assert store.report.damages == [] and store.report.cut_bytes == 0
    assert store.max_offset("T", 0) == 900
    more = put(store, 900, 10)
    store.close()
    store = opened(small_config(tmp_path, force_verify_prop_crc=True))
    assert store.report.damages == []
    assert [unit[0] for unit in store.queue_units("T", 0, 0, 1000)] == [*places, *more]
    store.close()


@pytest.mark.parametrize("at", [-1, 95])
def test_a_record_without_that_check_sum_is_damaged_if_its_end_or_its_body_is(tmp_path: Path, at: int) -> None:
    store = opened(small_config(tmp_path))
    places = put(store, 0, 5)
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[(places[3] if at < 0 else places[2]) + at] = 0
    path.write_bytes(data)
    store = opened(small_config(tmp_path, force_verify_prop_crc=True))
    assert [damage.physical_offset for damage in store.report.damages] == [places[2]]
    store.close()


def test_what_a_start_has_filled_is_no_damage_for_one_that_verifies_check_sums(tmp_path: Path) -> None:
    config = small_config(tmp_path, force_verify_prop_crc=True, enabled_append_prop_crc=True)
    store = opened(config)
    places = put(store, 0, 5)
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[places[2] + 95] ^= 1
    path.write_bytes(data)
    for damages in (1, 0):
        store = opened(config)
        assert len(store.report.damages) == damages
        store.close()


def with_a_wrong_queue_offset(tmp_path: Path, **settings: Any) -> int:
    """A store in which a bit of message 2's queue offset has changed. Returns where the message lies."""
    store = opened(small_config(tmp_path, **settings))
    places = put(store, 0, 5)
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[places[2] + 26] ^= 1
    path.write_bytes(data)
    (tmp_path / "inventory.json").unlink()
    return places[2]


def test_a_queue_offset_that_was_corrected_agrees_with_the_check_sum_of_the_record(tmp_path: Path) -> None:
    with_a_wrong_queue_offset(tmp_path, enabled_append_prop_crc=True)
    store = opened(small_config(tmp_path))
    assert any("was set to 2" in fault for fault in store.report.faults)
    store.close()
    store = opened(small_config(tmp_path, force_verify_prop_crc=True))
    assert store.report.damages == []
    store.close()


def test_a_correction_that_could_not_be_synced_is_made_again_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the failed sync the system shows what is not on the disk."""
    place = with_a_wrong_queue_offset(tmp_path)
    path = tmp_path / "commitlog" / f"{0:020d}"
    before, flush = path.read_bytes(), SystemMappedRegion.flush

    def refuse(region: SystemMappedRegion, start: int, end: int) -> None:
        if start == place:
            raise SyncFailedError(errno.EIO, "the device refuses")
        flush(region, start, end)

    monkeypatch.setattr(SystemMappedRegion, "flush", refuse)
    with pytest.raises(StoreRefusedError):
        opened(small_config(tmp_path))
    assert path.read_bytes() == before
    monkeypatch.undo()
    store = opened(small_config(tmp_path))
    assert any("was set to 2" in fault for fault in store.report.faults)
    store.close()
    assert_whole(tmp_path)


# --- the index


@pytest.mark.parametrize("clean", [True, False])
def test_messages_of_before_the_index_was_switched_on_are_found_by_their_keys(tmp_path: Path, clean: bool) -> None:
    store = opened(small_config(tmp_path, message_index_enable=False))
    places = put(store, 0, 300)
    close(store, clean=clean)
    store = opened(small_config(tmp_path))
    assert [found_by_key(store, number) for number in (0, 150, 299)] == [[places[n]] for n in (0, 150, 299)]
    store.close()
    assert_whole(tmp_path)


@pytest.mark.parametrize("clean", [True, False])
def test_messages_of_while_the_index_was_off_are_found_when_it_is_on_again(tmp_path: Path, clean: bool) -> None:
    store = opened(small_config(tmp_path))
    places = put(store, 0, 250)
    close(store)
    for number in range(250, 850, 300):
        store = opened(small_config(tmp_path, message_index_enable=False))
        places += put(store, number, 300)
        close(store, clean=clean)
    store = opened(small_config(tmp_path))
    assert all(found_by_key(store, number) == [places[number]] for number in range(850))
    store.close()
    assert_whole(tmp_path)


def test_what_the_log_has_lost_while_the_index_was_off_is_not_in_it(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    places = put(store, 0, 100)
    close(store, clean=False)  # and then the power goes: the log has less than the index knows
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[: places[60]].ljust(65_536, b"\0"))
    store = opened(small_config(tmp_path, message_index_enable=False))
    assert store.max_offset("T", 0) == 60
    places[60:] = put(store, 200, 100)
    store.close()
    store = opened(small_config(tmp_path))
    assert [found_by_key(store, number) for number in (59, 60, 61, 99)] == [[places[59]], [], [], []]
    assert [found_by_key(store, 200 + number) for number in range(100)] == [[place] for place in places[60:]]
    store.close()
    assert_whole(tmp_path)


# --- light queues


@pytest.mark.parametrize("rebuilt", [True, False])
def test_light_queues_keep_what_they_have_while_multi_dispatch_is_off(tmp_path: Path, rebuilt: bool) -> None:
    on = {"enable_lmq": True, "enable_multi_dispatch": True}
    store = opened(small_config(tmp_path, **on))
    places = put(store, 0, 30, INNER_MULTI_DISPATCH="%LMQ%a")
    close(store, clean=False)
    if rebuilt:
        (tmp_path / "inventory.json").unlink(missing_ok=True)
    store = opened(small_config(tmp_path, enable_lmq=True))
    assert [unit[0] for unit in store.queue_units("%LMQ%a", 0, 0, 100)] == places
    put(store, 30, 5, INNER_MULTI_DISPATCH="%LMQ%a")
    assert store.max_offset("%LMQ%a", 0) == 30
    close(store, clean=False)
    store = opened(small_config(tmp_path, **on))
    places += put(store, 35, 5, INNER_MULTI_DISPATCH="%LMQ%a")
    assert [unit[0] for unit in store.queue_units("%LMQ%a", 0, 0, 100)] == places
    store.close()


# --- what is refused


@pytest.mark.parametrize("changes", [{}, {"enable_dleger_commit_log": True, "dleger_self_id": "n1"}])
def test_the_log_of_a_dledger_member_that_the_settings_do_not_name_is_refused(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Its messages would be missing, and the next ones get their places."""
    old = opened(small_config(tmp_path))
    put(old, 0, 400)
    old.close()
    member = {"enable_dleger_commit_log": True, "dleger_self_id": "n0"}
    store = opened(small_config(tmp_path, **member))
    assert store.ledger is not None
    store.ledger.append(b"an entry")
    store.close()
    before = snapshot(tmp_path)
    with pytest.raises(StoreRefusedError, match="dledger-n0 holds the log of member n0") as refusal:
        opened(small_config(tmp_path, **changes))
    assert "dLegerSelfId=n0" in str(refusal.value)
    assert snapshot(tmp_path) == before
    store = opened(small_config(tmp_path, **member))
    assert store.ledger is not None and store.ledger.end_index == 0
    store.close()


def test_two_stores_do_not_share_a_folder_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = opened(small_config(tmp_path / "first", store_path_commit_log=str(log)))
    put(first, 0, 5)
    second = small_config(tmp_path / "second", store_path_commit_log=str(log))
    with pytest.raises(StoreRefusedError, match="set storePathCommitLog to another folder"):
        opened(second)
    first.close()
    third = opened(small_config(tmp_path / "first", store_path_commit_log=str(log)))
    assert third.max_offset("T", 0) == 5
    third.close()
    assert [path.name for path in naive.files(log)] == [f"{0:020d}"]


# --- extension units


class Selection:
    """Of messages with a tag."""

    expression_type = "TAG"

    def __init__(self, tag: str) -> None:
        self.sub_string = tag
        self.code_set = [jhash(tag)]


def put_tagged(store: MessageStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        put(store, number, 1, TAGS=f"tag{number % 3}")


def lacks(store: MessageStore) -> list[int]:
    """The messages that a consumer which selects by their tag does not get."""
    lacking = []
    for number in range(store.max_offset("T", 0)):
        result = store.get_message("g", "T", 0, number, 1, Selection(f"tag{number % 3}"))
        if result.next_begin_offset != number + 1 or not result.message_count:
            lacking.append(number)
    return lacking


EXT: dict[str, Any] = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 1024}


@pytest.mark.parametrize("size", [2048, 8192, 1536])
def test_extension_files_of_another_size_hide_no_message(tmp_path: Path, size: int) -> None:
    """Their addresses stand in the queues, and are not given again."""
    store = opened(small_config(tmp_path, **EXT))
    put_tagged(store, 0, 200)
    store.close()
    other = small_config(tmp_path, **{**EXT, "mapped_file_size_consume_queue_ext": size})
    for first, config in ((200, other), (301, small_config(tmp_path, **EXT)), (402, other)):
        store = opened(config)
        put_tagged(store, first, 101)
        assert lacks(store) == []
        store.close()
    assert lacks(opened(other)) == []


@pytest.mark.parametrize("without", [0, 1500])
def test_extension_files_that_were_lost_hide_no_message(tmp_path: Path, without: int) -> None:
    """`without`: messages that came while there were no extension units."""
    store = opened(small_config(tmp_path, **EXT))
    put_tagged(store, 0, 200)
    store.close()
    store = opened(small_config(tmp_path))
    put_tagged(store, 200, without)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue_ext")
    store = opened(small_config(tmp_path, **EXT))
    put_tagged(store, 200 + without, 200)
    assert lacks(store) == []
    store.close()
