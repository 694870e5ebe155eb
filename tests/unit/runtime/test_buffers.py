"""Numbers in buffers, in the uncompiled form; the compiled one is seen by the tests of the modules that inline it."""

import pytest

from maxq.runtime.buffers import digits


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
