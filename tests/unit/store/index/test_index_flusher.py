"""Full index files become durable on a thread, while retention deletes old ones."""

from pathlib import Path

from tests.unit.store.stores import message, opened, small_config


def test_a_file_that_was_deleted_meanwhile_is_not_made_again(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    flush_full = store.index.on_full
    for number in range(900):
        if number == 500:
            store.index.on_full = lambda file: None  # the thread comes late
        store.put_message(message(KEYS=f"k{number}"))
    full = store.index.files[-2]
    gone = store.index.delete_expired(full.begin_physical_offset)
    assert len(gone) > 1
    store.index.files[:0] = gone  # the thread has the list of before
    for file in gone:
        file.destroy()
    flush_full(full)
    del store.index.files[: len(gone)]
    assert store.flags.writable
    assert {path.name for path in (tmp_path / "index").iterdir()} == {file.name for file in store.index.files}
    store.close()


async def test_a_file_that_is_deleted_while_it_is_flushed_is_not_made_again(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    flush_full = store.index.on_full
    store.index.on_full = lambda file: None
    for number in range(900):
        store.put_message(message(KEYS=f"k{number}"))
    full, newest = store.index.files[-2], store.index.files[-1]
    flush_full(full)  # a thread has begun
    for file in store.index.delete_expired(newest.begin_physical_offset):
        file.destroy()
    await store.shutdown()
    assert {path.name for path in (tmp_path / "index").iterdir()} == {file.name for file in store.index.files}
