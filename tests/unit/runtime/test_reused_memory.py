"""Blocks of memory are used again when nobody refers to them, and not before."""

import pyarrow as pa
import pytest

from maxq.runtime.reused_memory import ReusedMemory

KIB = 1024


def test_a_block_is_given_again_when_nobody_refers_to_it() -> None:
    memory = ReusedMemory(1 << 20)
    block = memory.take(100 * KIB)
    place, size = id(block), len(block)
    assert size >= 100 * KIB
    other = memory.take(100 * KIB)
    assert id(other) != place
    del block
    again = memory.take(90 * KIB)
    assert id(again) == place


@pytest.mark.parametrize(
    "hold", [memoryview, lambda block: memoryview(block)[5:7], pa.py_buffer, lambda block: [block]]
)
def test_a_block_that_somebody_looks_at_is_not_given(hold: object) -> None:
    memory = ReusedMemory(1 << 20)
    held = hold(memory.take(100 * KIB))  # type: ignore[operator]
    block = memory.take(100 * KIB)
    block[:10] = b"x" * 10
    view = held[0] if isinstance(held, list) else held
    assert not any(bytes(view)[:10])
    kept = id(block)
    del held, view
    assert {id(block), id(memory.take(100 * KIB))} != {kept}


def test_a_block_is_not_given_for_what_is_much_smaller_or_larger() -> None:
    memory = ReusedMemory(8 << 20)
    large, small = memory.take(2 << 20), memory.take(100)
    places = {id(large), id(small)}
    del large, small
    assert id(memory.take(10 * KIB)) in places  # both are kept …
    assert id(memory.take(300 * KIB)) not in places  # … and none of them is for this


def test_no_more_is_kept_than_was_said() -> None:
    memory = ReusedMemory(1 << 20)
    taken = [memory.take(300 * KIB) for _ in range(10)]
    assert sum(map(len, memory._blocks)) <= 1 << 20
    assert len({id(block) for block in taken}) == 10
    assert len(memory.take(3 << 20)) == 3 << 20
    assert sum(map(len, memory._blocks)) <= 1 << 20
