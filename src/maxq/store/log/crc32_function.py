"""CRC-32 as a C function: the compiled modules call isal's own, without a Python object for each record.

Measured for bodies of 1 KiB: 0.35 µs by way of a slice of a memoryview, 0.07 µs by the function itself.
"""

import ctypes
from typing import Any, Final

from isal import isal_zlib

_Function = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)


def _crc32(start: int, data: int, size: int) -> int:
    return isal_zlib.crc32(ctypes.string_at(data, size), start)


#: Used with a build of isal that does not export its C function.
_by_python = _Function(_crc32)


def _exported() -> Any:
    try:
        function = ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl
    except (OSError, AttributeError):
        return None
    function.restype, function.argtypes = ctypes.c_uint32, (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)
    known = ctypes.create_string_buffer(b"123456789", 9)
    return function if function(0, ctypes.addressof(known), 9) == 0xCBF43926 else None


_CHOSEN: Final = _exported() or _by_python


def address() -> int:
    """Returns the address of a C function `uint32_t f(uint32_t start, const unsigned char *data, uint64_t size)` that
    computes zlib's CRC-32."""
    return ctypes.cast(_CHOSEN, ctypes.c_void_p).value or 0
