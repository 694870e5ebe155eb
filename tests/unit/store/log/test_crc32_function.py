"""The CRC-32 that the compiled modules call."""

import ctypes
import random
import zlib

from maxq.store.log import crc32_function
from maxq.store.log.crc32_function import address

_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)


def test_the_function_is_zlibs_crc32() -> None:
    function = _PROTOTYPE(address())
    rng = random.Random(7)
    for size in (0, 1, 15, 16, 255, 4097):
        data = rng.randbytes(size)
        buffer = ctypes.create_string_buffer(data, max(size, 1))
        assert function(0, ctypes.addressof(buffer), size) == zlib.crc32(data)
        assert function(99, ctypes.addressof(buffer), size) == zlib.crc32(data, 99)


def test_a_build_of_isal_without_it_is_called_through_python() -> None:
    data = ctypes.create_string_buffer(b"123456789", 9)
    by_python = _PROTOTYPE(ctypes.cast(crc32_function._by_python, ctypes.c_void_p).value)
    assert by_python(0, ctypes.addressof(data), 9) == 0xCBF43926
