"""Whatever is appended, truncated, stored and stopped: the files are those of the naive log."""

from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.protocol.dledger.dledger_messages import EntryRun
from tests.short_form import times
from tests.unit.store.dledger.naive_dledger import NaiveEntry, NaiveLog, java_recovery
from tests.unit.store.dledger.worlds import files_in, new_disk, opened

FILE_SIZE = 512

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 450)),
        st.tuples(st.just("follow"), st.lists(st.integers(0, 300), min_size=1, max_size=6)),
        st.tuples(st.just("truncate"), st.floats(0, 1)),
        st.tuples(st.just("commit"), st.floats(0, 1)),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=25,
)


def runs_of(entries: list[NaiveEntry]) -> list[EntryRun]:
    """Entries in runs of one file each."""
    runs: list[list[NaiveEntry]] = []
    for entry in entries:
        if runs and runs[-1][-1].end == entry.position:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return [EntryRun.of(b"".join(entry.encode() for entry in run)) for run in runs]


@settings(max_examples=times(60), deadline=None)
@given(OPERATIONS)
def test_the_files_are_those_of_a_naive_log(operations: list[tuple[str, object]]) -> None:
    disk, log = new_disk(), NaiveLog(FILE_SIZE)
    store = opened(disk, file_size=FILE_SIZE, index_size=160)
    term, committed = 1, -1
    for number, (name, value) in enumerate(operations):
        body = b"%03d" % number * 200
        if name == "append":
            assert isinstance(value, int)
            term += 1
            store.begin_leading(term)
            store.append(body[: min(value, FILE_SIZE - 56)])
            store.end_leading()
            log.append(term, body[: min(value, FILE_SIZE - 56)])
        elif name == "follow":
            assert isinstance(value, list)
            for run in runs_of([log.append(term, body[:size]) for size in value]):
                store.append_entries(run)
        elif name == "truncate":
            assert isinstance(value, float)
            keep = committed + int(value * (len(log.entries) - 1 - committed))
            if keep >= 0:
                store.truncate(keep)
                log.truncate(keep)
        elif name == "commit":
            assert isinstance(value, float)
            committed = max(committed, int(value * len(log.entries)) - 1)
            store.commit(committed)
        else:
            store.close_inline()
            store = opened(disk, file_size=FILE_SIZE, index_size=160)
            assert store.report.faults == []
        assert files_in(disk, "data") == log.data_files()
        assert (store.begin_index, store.end_index) == ((0, len(log.entries) - 1) if log.entries else (-1, -1))
        assert (store.committed_index, store.durable_index) == (committed, store.end_index)
        for entry in log.entries[-3:]:
            assert store.entry(entry.index).body == entry.body
            assert tuple(store.unit(entry.index)) == (entry.position, entry.size, entry.term)
    store.close_inline()
    index = b"".join(files_in(disk, "index").values())
    assert index[: 32 * len(log.entries)] == log.index_bytes()
    found = java_recovery(files_in(disk, "data"), FILE_SIZE)
    assert [entry.encode() for entry in found] == [entry.encode() for entry in log.entries]
