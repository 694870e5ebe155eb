"""The records of a batch body, counted and placed without a Python object a record. See message.py for their layout."""

from array import array

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.runtime.buffers import i32
else:
    from maxq.runtime.buffers import i32


def count_records(
    data: cython.const[cython.uchar][::1],  # type: bytes | bytearray | memoryview
    most: cython.Py_ssize_t,
):
    # type: (...) -> tuple[int, int]
    """Return how many whole records the batch body begins with, `most` at most, and the position behind them."""
    buf: cython.p_uchar
    size: cython.longlong
    body_size: cython.longlong
    behind: cython.longlong
    properties: cython.longlong
    p: cython.longlong = 0
    end: cython.longlong = len(data)
    count: cython.Py_ssize_t = 0
    if end == 0:
        return 0, 0
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(data[0]))
    else:
        buf = memoryview(data)
    while count < most and end - p >= 22:
        size = i32(buf, p)
        body_size = i32(buf, p + 16)
        behind = p + size
        properties = p + 20 + body_size
        if size < 22 or body_size < 0 or behind > end or properties + 2 > behind:
            break
        if properties + 2 + ((cython.cast(cython.longlong, buf[properties]) << 8) | buf[properties + 1]) != behind:
            break
        p = behind
        count += 1
    return count, p


def have_bodies(
    data: cython.const[cython.uchar][::1],  # type: bytes | bytearray | memoryview
    count: cython.Py_ssize_t,
    most_properties: cython.longlong,
):
    # type: (...) -> bool
    """Return whether each of the first `count` records, which `count_records` found whole, has a body, and no more than
    `most_properties` bytes of properties."""
    if count == 0:
        return True
    buf: cython.p_uchar
    body_size: cython.longlong
    p: cython.longlong = 0
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(data[0]))
    else:
        buf = memoryview(data)
    for _ in range(count):
        body_size = i32(buf, p + 16)
        if body_size == 0 or i32(buf, p) - 22 - body_size > most_properties:
            return False
        p += i32(buf, p)
    return True


def record_places(
    data: cython.const[cython.uchar][::1],  # type: bytes | bytearray | memoryview
    count: cython.Py_ssize_t,
    first: cython.longlong,
    more: cython.longlong,
):
    # type: (...) -> array[int]
    """Return the physical offset of each of the first `count` records, which `count_records` found whole, if the first
    one is stored at `first` and each takes `more` bytes more in the log than in the batch body."""
    places = array("q", bytes(8 * count))
    if count == 0:
        return places
    buf: cython.p_uchar
    found: cython.longlong[::1] = places
    number: cython.Py_ssize_t
    p: cython.longlong = 0
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(data[0]))
    else:
        buf = memoryview(data)
    for number in range(count):
        found[number] = first + p + number * more
        p += i32(buf, p)
    return places
