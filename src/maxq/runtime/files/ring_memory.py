"""Few pages of memory seen again and again over a long range of addresses.

The same pages of an anonymous file are mapped one copy behind the other. A writer that goes from the beginning of the
range to its end overwrites the bytes of `size` bytes before, and nothing has to be moved to the front.
"""

import ctypes
import mmap
import os

_PROTECTION = mmap.PROT_READ | mmap.PROT_WRITE
_FIXED = 0x10  # MAP_FIXED
_NO_RESERVE = 0x4000  # MAP_NORESERVE
_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def ring_memory(size: int, window: int) -> memoryview:
    """Return `window` writable bytes backed by `size` bytes of memory, which is released with the last slice of the
    view.

    Args:
        size: a multiple of the page size.
        window: a multiple of `size`.

    Raises:
        OSError: the kernel gives no memory or no more mappings (vm.max_map_count).
    """
    if size <= 0 or size % mmap.PAGESIZE or window % size:
        raise ValueError(f"a ring of {size} bytes seen over {window}: whole pages, and a multiple of them, are needed")
    held = mmap.mmap(-1, window, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE, prot=_PROTECTION)
    descriptor = os.memfd_create("maxq-ring", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
        first = ctypes.addressof(ctypes.c_char.from_buffer(held))
        for position in range(0, window, size):
            got = _libc.mmap(first + position, size, _PROTECTION, mmap.MAP_SHARED | _FIXED, descriptor, 0)
            if got == _FAILED:
                code = ctypes.get_errno()
                raise OSError(code, f"{window // size} mappings of a ring of {size} bytes: {os.strerror(code)}")
    finally:
        os.close(descriptor)
    return memoryview(held)
