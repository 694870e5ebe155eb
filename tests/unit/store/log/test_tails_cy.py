"""Writing ends of the files that dispatch fills, in both forms."""

from types import ModuleType

import pytest

from tests.unit.both_forms import both


@pytest.fixture(params=both("maxq.store.log.tails_cy"), ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def test_collected_entries_make_the_file_that_dispatch_makes(form: ModuleType) -> None:
    keys = [(number * 7 % 5, 100 * number, 1_700_000_000_000 + 900 * number) for number in range(12)]
    direct, later = bytearray(40 + 4 * 3 + 20 * 9), bytearray(40 + 4 * 3 + 20 * 9)
    tail = form.IndexTail()
    tail.attach(memoryview(direct), 3, 9)
    written = [tail.put_key(*key) for key in keys]
    collector, entries = form.IndexCollector(), bytearray(20 * 12)
    collector.collect_into(memoryview(entries))
    assert all(collector.put_key(*key) for key in keys)
    assert not collector.put_key(1, 2, 3)
    assert collector.count == 12
    tail.attach(memoryview(later), 3, 9)
    assert tail.put_collected(entries, 0, 5) == 5
    assert tail.put_collected(entries, 5, 12) == 3 == written.count(True) - 5
    assert later == direct
    with pytest.raises(ValueError, match="outside the 12 that are there"):
        tail.put_collected(entries, 5, 13)


def test_jhash_is_javas(form: ModuleType) -> None:
    for text, value in (
        ("TagA", 2598919),
        ("RocketMQ", -453554280),
        ("polygenelubricants", -2147483648),
        ("", 0),
        ("😀", 1772899),
    ):
        assert form.jhash(text) == value
