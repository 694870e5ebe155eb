"""Numbers in buffers, in the uncompiled form; the compiled one is seen by the tests of the modules that inline it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maxq.runtime.buffers import digits, find_unplain, has_separator


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"0", 0),
        (b"007", 7),
        (b"999999999", 999_999_999),
        (b"1000000000", -1),
        (b"0000000001", -1),
        (b"", -1),
        (b"-1", -1),
        (b"+1", -1),
        (b" 1", -1),
        (b"1_0", -1),
        (b"12a", -1),
        ("٣".encode(), -1),
    ],
)
def test_digits_are_one_to_nine_of_ascii(text: bytes, number: int) -> None:
    data = b"8" + text + b"9"
    for buffer in (data, bytearray(data), memoryview(data)):
        assert digits(buffer, 1, 1 + len(text)) == number


@given(st.binary(max_size=40), st.integers(0, 40), st.integers(0, 40))
@example(b"a" * 17 + b'"', 3, 18)
@example(b"\x00" * 9 + b"\x02", 0, 10)
def test_what_json_escapes_and_what_separates_properties_is_found(data: bytes, start: int, end: int) -> None:
    end = min(end, len(data))
    unplain = [i for i in range(start, end) if data[i] < 0x20 or data[i] in b'"\\']
    assert find_unplain(data, start, end) == min(unplain, default=end)
    assert has_separator(data, start, end) == bool({1, 2}.intersection(data[start:end]))
