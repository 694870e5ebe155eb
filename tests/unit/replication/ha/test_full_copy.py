"""What an empty slave asks its master for (haFullCopy)."""

import pytest

from maxq.replication.ha.full_copy import FullCopy


class Master:
    def __init__(self, *low: int | None) -> None:
        self.low = list(low)

    async def min_offset(self) -> int | None:
        return self.low.pop(0) if len(self.low) > 1 else self.low[0]


def full_copy(*low: int | None, wanted: bool = True) -> FullCopy:
    return FullCopy(lambda: wanted, Master(*low).min_offset)


async def test_switched_off_it_is_the_last_file_as_in_java() -> None:
    first = full_copy(0, wanted=False)
    assert await first.choose() == 0
    assert not first.nothing_there(0)


@pytest.mark.parametrize(("low", "reported"), [(-1, 1), (0, 1), (4096, 4096), (7 << 30, 7 << 30)])
async def test_all_of_the_log_is_asked_for_from_its_minimum_on(low: int, reported: int) -> None:
    assert await full_copy(low).choose() == reported


async def test_an_empty_master_is_waited_for() -> None:
    first = full_copy(0)
    assert not first.nothing_there(await first.choose())


async def test_a_master_that_deleted_a_file_meanwhile_is_asked_again() -> None:
    first = full_copy(4096, 8192)
    assert first.nothing_there(await first.choose())
    assert await first.choose() == 8192


async def test_with_an_unknown_minimum_the_beginning_is_tried_then_the_last_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = full_copy(None)
    assert await first.choose() == 1
    assert first.nothing_there(1)
    assert await first.choose() == 0
    assert not first.nothing_there(0)
    assert "only the last file of its master's log" in caplog.text
    assert await first.choose() == 1  # a later connection, still empty: who knows
