"""Memory that is seen again and again."""

import gc
import mmap
from collections import Counter
from pathlib import Path

import pytest

from maxq.runtime.files.ring_memory import ring_memory

PAGE = mmap.PAGESIZE


def test_a_byte_is_the_same_one_ring_further() -> None:
    view = ring_memory(2 * PAGE, 6 * PAGE)
    assert len(view) == 6 * PAGE
    view[PAGE + 5] = 7
    assert [view[PAGE + 5 + n * 2 * PAGE] for n in range(3)] == [7, 7, 7]
    view[2 * PAGE - 2 : 2 * PAGE + 2] = b"abcd"
    assert bytes(view[:2]) == b"cd"
    assert bytes(view[4 * PAGE - 2 : 4 * PAGE + 2]) == b"abcd"


def test_a_ring_is_given_back_with_the_last_slice() -> None:
    def mappings() -> Counter[str]:
        """How often each ring is mapped, by its inode; those of other tests may go at any moment."""
        lines = Path("/proc/self/maps").read_text().splitlines()
        return Counter(line.split()[4] for line in lines if "maxq-ring" in line)

    before = mappings()
    piece = ring_memory(PAGE, 8 * PAGE)[PAGE:]
    ((ring, times),) = (mappings() - before).items()
    assert times == 8
    piece.release()
    del piece
    gc.collect()
    assert ring not in mappings()


@pytest.mark.parametrize(("size", "window"), [(PAGE - 1, PAGE - 1), (PAGE, PAGE + 1), (0, PAGE)])
def test_a_size_that_cannot_be_is_named(size: int, window: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes seen over {window}"):
        ring_memory(size, window)
