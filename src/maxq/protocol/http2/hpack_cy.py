"""HPACK (RFC 7541): the compressed form of header fields.

Reading. Fields of the tables are objects that are made once, and were examined then (field_kinds.py). A block whose
bytes were read before is not read again as long as the table is as it was: a client that repeats its calls sends ten to
twenty equal bytes, and gets the same `HeaderBlock`, whose `meaning` the server has noted by then.

Writing. Blocks are literals that leave the peer's table alone: those of a server are few, and made once.
"""

from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

from maxq.errors import RemoteProtocolError
from maxq.protocol.http2.field_kinds import KINDS
from maxq.protocol.http2.hpack_tables import STATIC, huffman_automaton, huffman_codes

if cython.compiled:
    from cython.cimports.maxq.protocol.http2.field_kinds import K_MALFORMED, K_OTHER
    from cython.cimports.maxq.runtime.buffers import take_ascii, take_bytes
else:
    from maxq.protocol.http2.field_kinds import K_MALFORMED, K_OTHER
    from maxq.runtime.buffers import take_ascii, take_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_KNOWN_BLOCKS = 64
_KNOWN_BLOCK_SIZE = 256  # bytes; longer blocks are rarely repeated
_KNOWN_SIZE = 4096  # bytes of a block's fields; a few bytes may name large ones, which are not kept
_EVICTED_KEPT = 64  # entries that were evicted and still stand in the list
_LONGEST_INTEGER = 1 << 24

_NEXT = cython.declare(bytes)
_SYMBOLS = cython.declare(bytes)
_FLAGS = cython.declare(bytes)
_NEXT, _SYMBOLS, _FLAGS = huffman_automaton()


@cython.cclass
class Field:
    """One header field. `kind` is one of field_kinds.py."""

    def __init__(self, name: str, value: str, kind: cython.int):
        self.name = name
        self.value = value
        self.kind = kind
        self.size = len(name) + len(value) + 32


@cython.cclass
class HeaderBlock:
    """The fields of one block, in their order. Those behind the limit are missing where it `is_too_large`."""

    def __init__(
        self,
        fields: list,  # type: list[Field]
        size: cython.Py_ssize_t,
        is_too_large: cython.bint,
    ):
        self.fields = fields
        self.size = size
        self.is_too_large = is_too_large
        self.meaning = None


@cython.cfunc
def _kind(name: str) -> cython.int:
    """Return what a field of this name is, whose characters are fine."""
    kind: object = KINDS.get(name)
    if kind is not None:
        return kind
    return K_MALFORMED if name[:1] == ":" else K_OTHER


_STATIC_FIELDS: list = [None, *(Field(name, value, _kind(name)) for name, value in STATIC)]


@cython.cclass
class HpackDecoder:
    """Reads the blocks that one peer sends, and keeps its table.

    Args:
        table_size: bytes that the peer's table may have (SETTINGS_HEADER_TABLE_SIZE).
        list_limit: bytes of the fields of one block, each counted with 32 more.
    """

    def __init__(self, table_size: cython.Py_ssize_t, list_limit: cython.Py_ssize_t):
        self._dynamic = []  # the newest entry is the last one
        self._evicted = 0  # entries at its beginning that are no longer there
        self._used = 0
        self._limit = self._most = table_size
        self._list_limit = list_limit
        self._known = {}
        self._p = 0
        self._text_size = 0
        self._is_changed = False
        self._scratch = bytearray(256)

    def decode(
        self,
        block: bytes,
    ):
        # type: (...) -> HeaderBlock
        """Read one block. Raises RemoteProtocolError; the connection cannot go on then, for the tables differ."""
        return self.read(block, 0, len(block))

    @cython.cfunc
    def read(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> HeaderBlock:
        """Read the block buf[p:end]. Raises RemoteProtocolError."""
        key: bytes = b""
        found: object
        if end - p <= _KNOWN_BLOCK_SIZE:
            key = take_bytes(buf, p, end - p)
            found = self._known.get(key)
            if found is not None:
                return found
        self._p = p
        block: HeaderBlock = self._read(buf, end)
        if key and not self._is_changed and block.size <= _KNOWN_SIZE:  # the table is as it was
            if len(self._known) >= _KNOWN_BLOCKS:
                self._known.clear()
            self._known[key] = block
        return block

    @cython.cfunc
    def _read(self, buf: cython.p_uchar, end: cython.Py_ssize_t) -> HeaderBlock:
        """Read the block from `_p` to `end`; sets `_is_changed` if the table has changed."""
        fields: list = []
        field: Field
        size: cython.Py_ssize_t = 0
        first: cython.int
        self._is_changed = False
        while self._p < end:
            first = buf[self._p]
            if first & 0x80:
                field = self._entry(self._integer(buf, end, 7))
            elif first & 0x40:
                field = self._literal(buf, end, 6)
                self._insert(field)
                self._is_changed = True
            elif first & 0x20:
                if fields:
                    raise RemoteProtocolError("HPACK: a change of the table's size behind a field")
                self._resize(self._integer(buf, end, 5))
                self._is_changed = True
                continue
            else:
                field = self._literal(buf, end, 4)
            size += field.size
            if size <= self._list_limit:
                fields.append(field)
        return HeaderBlock(fields, size, size > self._list_limit)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _integer(self, buf: cython.p_uchar, end: cython.Py_ssize_t, bits: cython.int) -> cython.Py_ssize_t:
        """Read the number at `_p`, of which the first byte has `bits` bits, and step over it."""
        most: cython.Py_ssize_t = (1 << bits) - 1
        value: cython.Py_ssize_t = buf[self._p] & most
        shift: cython.int = 0
        byte: cython.int = 0x80
        self._p += 1
        if value < most:
            return value
        while byte & 0x80:
            if self._p >= end:
                raise RemoteProtocolError("HPACK: the block ends within a number")
            byte = buf[self._p]
            self._p += 1
            value += cython.cast(cython.Py_ssize_t, byte & 0x7F) << shift
            shift += 7
            if value > _LONGEST_INTEGER or shift > 35:
                raise RemoteProtocolError("HPACK: a number that is too large")
        return value

    @cython.cfunc
    def _entry(self, index: cython.Py_ssize_t) -> Field:
        """Return the entry of static and dynamic table with this index."""
        count: cython.Py_ssize_t = len(self._dynamic)
        if 0 < index < 62:
            return _STATIC_FIELDS[index]
        if index < 62 or index - 62 >= count - self._evicted:
            raise RemoteProtocolError(f"HPACK: there is no entry {index} in the table")
        return self._dynamic[count - 1 - (index - 62)]

    @cython.cfunc
    def _literal(self, buf: cython.p_uchar, end: cython.Py_ssize_t, bits: cython.int) -> Field:
        """Read a field whose value, and perhaps name, are given in full."""
        index: cython.Py_ssize_t = self._integer(buf, end, bits)
        name: str
        value: str
        kind: cython.int
        beside: Field
        if index:
            beside = self._entry(index)
            name, kind = beside.name, beside.kind
            if kind == K_MALFORMED:
                kind = _kind(name)  # it may have been because of the value
        else:
            name = self._string(buf, end, True)
            kind = _kind(name) if self._text_size >= 0 else K_MALFORMED
        value = self._string(buf, end, False)
        if self._text_size < 0:
            kind = K_MALFORMED
        return Field(name, value, kind)

    @cython.cfunc
    def _string(self, buf: cython.p_uchar, end: cython.Py_ssize_t, is_name: cython.bint) -> str:
        """Read the string at `_p` and step over it. `_text_size` is −1 if it has characters that may not be there."""
        if self._p >= end:
            raise RemoteProtocolError("HPACK: the block ends before a string")
        is_coded: cython.bint = (buf[self._p] & 0x80) != 0
        size: cython.Py_ssize_t = self._integer(buf, end, 7)
        p: cython.Py_ssize_t = self._p
        if size > end - p:
            raise RemoteProtocolError("HPACK: the block ends within a string")
        self._p += size
        if not is_coded:
            return self._text(buf, p, size, is_name)
        size = self._huffman(buf, p, p + size)
        return self._text(self._scratch, 0, size, is_name)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _huffman(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Decode buf[p:end] into the scratch buffer, and return how many bytes it became."""
        if len(self._scratch) < 2 * (end - p):  # the shortest code has five bits
            self._scratch = bytearray(2 * (end - p))
        out: cython.p_uchar = self._scratch
        following: cython.p_uchar = _NEXT
        symbols: cython.p_uchar = _SYMBOLS
        flags: cython.p_uchar = _FLAGS
        n: cython.Py_ssize_t = 0
        at: cython.int
        state: cython.int = 0
        flag: cython.int = 4  # MAY_END
        while p < end:
            at = state * 16 + (buf[p] >> 4)
            flag = flags[at]
            if flag & 1:  # EMITS
                out[n] = symbols[at]
                n += 1
            if flag & 2:  # FAILS
                break
            at = following[at] * 16 + (buf[p] & 15)
            flag = flags[at]
            if flag & 1:
                out[n] = symbols[at]
                n += 1
            if flag & 2:
                break
            state = following[at]
            p += 1
        if flag & 2 or not flag & 4:
            raise RemoteProtocolError("HPACK: a string in Huffman's code that does not end as it must")
        return n

    @cython.cfunc
    def _text(self, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t, is_name: cython.bint) -> str:
        """Return buf[p : p + size] as text, and examine its characters."""
        i: cython.Py_ssize_t
        byte: cython.int
        above: cython.int = 0
        is_fine: cython.bint = True
        for i in range(p, p + size):
            byte = buf[i]
            above |= byte
            if is_name:
                if byte <= 0x20 or byte >= 0x7F or 0x41 <= byte <= 0x5A or (byte == 0x3A and i > p):
                    is_fine = False
            elif byte == 0 or byte == 0x0A or byte == 0x0D:
                is_fine = False
        if size:
            byte = buf[p]
            if byte == 0x20 or byte == 9:
                is_fine = False
            byte = buf[p + size - 1]
            if byte == 0x20 or byte == 9:
                is_fine = False
        elif is_name:
            is_fine = False
        self._text_size = size if is_fine else -1
        if above < 0x80:
            return take_ascii(buf, p, size)
        return take_bytes(buf, p, size).decode("latin-1")

    @cython.cfunc
    def _resize(self, limit: cython.Py_ssize_t):
        if limit > self._most:
            raise RemoteProtocolError(f"HPACK: a table of {limit} bytes, the limit is {self._most}")
        self._limit = limit
        self._shrink(0)

    @cython.cfunc
    def _insert(self, field: Field):
        self._shrink(field.size)
        if field.size <= self._limit:
            self._dynamic.append(field)
            self._used += field.size

    @cython.cfunc
    def _shrink(self, room: cython.Py_ssize_t):
        """Evict the oldest entries until there is room for so many bytes, or none is left."""
        field: Field
        self._known.clear()
        while self._used + room > self._limit and self._evicted < len(self._dynamic):
            field = self._dynamic[self._evicted]
            self._used -= field.size
            self._dynamic[self._evicted] = None
            self._evicted += 1
        if self._evicted > _EVICTED_KEPT:
            del self._dynamic[: self._evicted]
            self._evicted = 0


_CODES = huffman_codes()


def _huffman_coded(data: bytes) -> bytes:
    bits: object = 0
    count: object = 0
    for byte in data:
        code, length = _CODES[byte]
        bits = bits << length | code
        count += length
    padding = -count % 8
    return (bits << padding | (1 << padding) - 1).to_bytes((count + padding) // 8, "big")


def _encoded_integer(value: int, bits: int, flags: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes([flags | value])
    out = bytearray([flags | most])
    value -= most
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encoded_string(text: str) -> bytes:
    plain = text.encode("latin-1")
    coded = _huffman_coded(plain)
    if len(coded) < len(plain):
        return _encoded_integer(len(coded), 7, 0x80) + coded
    return _encoded_integer(len(plain), 7, 0) + plain


def encode_fields(
    fields: object,  # type: Iterable[tuple[str, str]]
):
    # type: (...) -> bytes
    """Return a block of these fields, lower-case names and values. The peer does not enter them into its table."""
    out = bytearray()
    for name, value in fields:
        if (name, value) in STATIC:
            out += _encoded_integer(STATIC.index((name, value)) + 1, 7, 0x80)
            continue
        index = next((place + 1 for place, entry in enumerate(STATIC) if entry[0] == name), 0)
        out += _encoded_integer(index, 4, 0)
        if not index:
            out += _encoded_string(name)
        out += _encoded_string(value)
    return bytes(out)


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
