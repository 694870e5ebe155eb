"""What a start thinks of bytes that do not follow the log: a write that was torn, or bits that have changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.protocol.dledger.dledger_messages import DLedgerEntry
from maxq.store.dledger.ledger_recovery import may_be_torn

HEADER, SECTOR, FILE = 48, 512, 4096


def file_with(position: int, body_size: int) -> bytearray:
    """A file of zeros with one entry, whose body has no zeros."""
    body = bytes(1 + at % 255 for at in range(body_size))
    entry = DLedgerEntry(size=HEADER + body_size, index=7, term=3, pos=position, body=body).encode()
    file = bytearray(FILE)
    file[position : position + len(entry)] = entry
    return file


PLACES = st.tuples(st.integers(0, 2000), st.integers(1, 2000))


@given(place=PLACES, known=st.sampled_from([0, HEADER]), data=st.data())
def test_an_entry_of_which_some_sectors_were_not_written_may_be_torn(
    place: tuple[int, int], known: int, data: st.DataObject
) -> None:
    position, body_size = place
    file = file_with(position, body_size)
    end = position + HEADER + body_size
    sectors = [at for at in range(position // SECTOR * SECTOR, end, SECTOR) if at >= position + known]
    if not sectors:
        return
    for at in data.draw(st.sets(st.sampled_from(sectors), min_size=1)):
        file[at : min(at + SECTOR, end)] = bytes(min(at + SECTOR, end) - at)
    assert may_be_torn(memoryview(file), position, known)


@given(place=PLACES, data=st.data())
def test_an_entry_of_which_only_the_beginning_or_the_end_was_written_may_be_torn(
    place: tuple[int, int], data: st.DataObject
) -> None:
    position, body_size = place
    file = file_with(position, body_size)
    end = position + HEADER + body_size
    cut = data.draw(st.integers(position + 4, end - 1))
    lost = slice(cut, end) if data.draw(st.booleans()) else slice(position, cut)
    file[lost] = bytes(lost.stop - lost.start)
    assert may_be_torn(memoryview(file), position, 0)


@given(body_size=st.integers(1, 2000), place=st.integers(0, 3), at=st.integers(0, 7), data=st.data())
def test_changed_bits_of_an_entry_that_was_whole_are_no_torn_write(
    body_size: int, place: int, at: int, data: st.DataObject
) -> None:
    """Unless a zero stands where a sector ends or begins."""
    position = SECTOR * place
    file = file_with(position, body_size)
    file[position + HEADER + data.draw(st.integers(0, body_size - 1))] ^= 1 << at
    borders = [byte for border in range(SECTOR, FILE, SECTOR) for byte in (border - 1, border)]
    end = position + HEADER + body_size
    zero_at_border = any(position < border < end and file[border] == 0 for border in borders)
    if not zero_at_border and file[end - 1]:
        assert not may_be_torn(memoryview(file), position, HEADER)
        assert not may_be_torn(memoryview(file), position, 0)


@pytest.mark.parametrize(("left", "may_be"), [(HEADER - 1, True), (HEADER, False)])
def test_less_than_a_header_at_the_end_of_a_file_may_be_anything(left: int, may_be: bool) -> None:
    file = bytearray(b"\1" * FILE)
    assert may_be_torn(memoryview(file), FILE - left, 0) is may_be


def test_a_zero_at_a_border_says_nothing_where_the_bytes_are_known_to_be_right() -> None:
    position = SECTOR - 20
    file = file_with(position, 300)
    file[position + HEADER + 50] ^= 4
    assert file[SECTOR - 1] == 0 or file[SECTOR] == 0, "in the header"
    assert may_be_torn(memoryview(file), position, 0)
    assert not may_be_torn(memoryview(file), position, HEADER)
