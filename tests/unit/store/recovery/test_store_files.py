"""Files that stand in the way of a start: refused by name, or dropped if nothing is lost."""

import shutil
from pathlib import Path

import pytest

from maxq.errors import StoreRefusedError
from tests.unit.store import naive
from tests.unit.store.recovery.recovery_world import assert_whole, close, delete_inventory, fill, last_file, reopened
from tests.unit.store.stores import message, new_store, opened, small_config


def test_a_log_file_of_another_size_is_refused_by_name_size_and_setting(tmp_path: Path) -> None:
    fill(tmp_path)
    path = naive.files(tmp_path / "commitlog")[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreRefusedError, match=r"0{20} has 65535 bytes, but mappedFileSizeCommitLog is 65536"):
        reopened(tmp_path)


@pytest.mark.parametrize("size", [32_768, 131_072])
def test_a_start_with_a_wrong_file_size_of_the_log_loses_nothing(tmp_path: Path, size: int) -> None:
    offsets = fill(tmp_path)
    with pytest.raises(StoreRefusedError, match=rf"65536 bytes, but mappedFileSizeCommitLog is {size}"):
        opened(small_config(tmp_path, mapped_file_size_commit_log=size))
    store, report = reopened(tmp_path)
    assert report.end_offset > offsets[-1]
    store.close()
    assert_whole(tmp_path)


def test_a_gap_between_log_files_is_refused_if_there_is_something_behind_it(tmp_path: Path) -> None:
    fill(tmp_path)
    naive.files(tmp_path / "commitlog")[1].unlink()
    with pytest.raises(StoreRefusedError, match="00000000000000065536"):
        reopened(tmp_path)


def test_a_file_made_ahead_behind_a_gap_is_dropped(tmp_path: Path) -> None:
    offsets = fill(tmp_path, clean=False)
    last = int(last_file(tmp_path).name)
    (tmp_path / "commitlog" / f"{last + 2 * 65_536:020d}").write_bytes(bytes(65_536))
    store, report = reopened(tmp_path)
    assert report.end_offset > offsets[-1]
    store.close()
    assert [int(path.name) for path in naive.files(tmp_path / "commitlog")][-1] == last


def test_an_empty_last_log_file_is_dropped(tmp_path: Path) -> None:
    fill(tmp_path, clean=False)
    last = int(last_file(tmp_path).name)
    (tmp_path / "commitlog" / f"{last + 65_536:020d}").write_bytes(b"")
    store, _ = reopened(tmp_path)
    store.close()
    assert_whole(tmp_path)


def test_an_emptied_log_file_in_front_of_messages_is_refused_and_may_be_given_up(tmp_path: Path) -> None:
    offsets = fill(tmp_path, clean=False)
    files = naive.files(tmp_path / "commitlog")
    files[1].write_bytes(b"")
    with pytest.raises(StoreRefusedError, match=r"0{15}65536 has 0 bytes.* move it and all later files away"):
        reopened(tmp_path)
    for path in files[1:]:
        path.rename(tmp_path / path.name)
    delete_inventory(tmp_path)
    store, report = reopened(tmp_path)
    assert 0 < report.end_offset <= 65_536 < offsets[-1]
    store.close()
    assert_whole(tmp_path)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("files", [1, 2])
def test_a_log_that_lacks_its_newest_files_is_refused_until_they_are_back_or_given_up(
    tmp_path: Path, clean: bool, files: int
) -> None:
    """The next messages would get the places of those in the missing files."""
    offsets = fill(tmp_path, clean=clean)
    store, _ = reopened(tmp_path)
    store.queue_flusher.flush_inline()
    close(store, clean=clean)
    gone = [path for path in naive.files(tmp_path / "commitlog") if int(path.name) <= offsets[-1]][-files:]
    kept = [path.rename(tmp_path / path.name) for path in gone]
    before = [path.name for path in naive.files(tmp_path / "commitlog")]
    with pytest.raises(StoreRefusedError, match=f"has no file {gone[0].name}, but the queues were complete up to"):
        reopened(tmp_path)
    assert [path.name for path in naive.files(tmp_path / "commitlog")] == before
    for path in kept:
        path.rename(tmp_path / "commitlog" / path.name)
    store, report = reopened(tmp_path)
    assert report.end_offset > offsets[-1] and report.clean_exit == clean
    store.close()
    for path in gone:
        path.unlink()
    (tmp_path / "inventory.json").unlink()
    store, report = reopened(tmp_path)
    assert report.end_offset <= int(gone[0].name)
    store.close()
    assert_whole(tmp_path)


def test_queue_files_that_all_have_another_size_are_a_wrong_setting(tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(StoreRefusedError, match="mappedFileSizeConsumeQueue is 800"):
        new_store(small_config(tmp_path, mapped_file_size_consume_queue=800)).load()


def test_a_second_broker_on_the_store_is_refused(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    program = (
        "import sys; from tests.unit.store.stores import *\n"
        "try: opened(small_config(Path(sys.argv[1])))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"StoreRefusedError {tmp_path}/lock is locked: another broker")
    store.close()


@pytest.mark.parametrize("folder", ["consumequeue", "consumequeue_rocksdb"])
def test_a_store_with_queues_in_rocksdb_is_refused(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "CURRENT").write_text("MANIFEST-000005\n")
    with pytest.raises(StoreRefusedError, match="RocksDB"):
        reopened(tmp_path)
    assert not (tmp_path / "abort").exists()


def test_a_log_that_is_gone_is_refused_and_nothing_is_lost_when_it_is_back(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "commitlog").rename(tmp_path / "elsewhere")  # a disk that is not mounted
    with pytest.raises(StoreRefusedError, match="has no file of the log, but its queues were complete up to"):
        reopened(tmp_path)
    (tmp_path / "inventory.json").unlink()  # as in a store of a Java broker
    with pytest.raises(StoreRefusedError, match="has queues of messages"):
        reopened(tmp_path)
    (tmp_path / "elsewhere").rename(tmp_path / "commitlog")
    reopened(tmp_path)[0].close()
    assert_whole(tmp_path)


def test_a_log_that_is_gone_may_be_given_up(tmp_path: Path) -> None:
    fill(tmp_path)
    for folder in ("commitlog", "consumequeue"):
        shutil.rmtree(tmp_path / folder)
    (tmp_path / "inventory.json").unlink()
    store, _ = reopened(tmp_path)
    assert store.max_physical_offset == 0
    assert store.put_message(message("T0")).queue_offset == 0
    store.close()


def test_a_log_in_several_folders_is_refused(tmp_path: Path) -> None:
    setting = {"store_path_commit_log": "/one,/two"}
    with pytest.raises(StoreRefusedError, match="MaxQ has one folder for the log"):
        new_store(small_config(tmp_path, **setting)).load()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefusedError, match="cannot be used"):
        reopened(tmp_path / "file" / "store")


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
def test_a_log_of_which_retention_left_one_file_and_a_loss_of_power_nothing_in_it_starts(
    tmp_path: Path, role: str
) -> None:
    """Numbers go on where they were, and so does the log, in this start and the next ones."""
    store = opened(small_config(tmp_path))
    for _ in range(900):
        assert store.put_message(message(body=bytes(100), KEYS="k")).ok
    store.close()
    *older, last = naive.files(tmp_path / "commitlog")
    for path in older:
        path.unlink()
    last.write_bytes(bytes(65_536))
    (tmp_path / "abort").write_bytes(b"")
    begin = int(last.name)
    for _ in range(2):
        store = opened(small_config(tmp_path, broker_role=role))
        if role != "SLAVE":
            assert (store.min_physical_offset, store.max_physical_offset) == (begin, begin)
            assert store.max_offset("T", 0) == 900
        close(store, clean=False)
    store = opened(small_config(tmp_path, broker_role=role))
    if role != "SLAVE":
        sent = store.put_message(message())
        assert (sent.physical_offset, sent.queue_offset) == (begin, 900)
    store.close()
    opened(small_config(tmp_path, broker_role=role)).close()
