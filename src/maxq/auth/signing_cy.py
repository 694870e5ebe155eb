"""Signatures of requests: HMAC-SHA1 over the values of the header fields, sorted by key, and the body; base64.

A SigningKey holds the two hash states that HMAC starts from, so a signature costs one pass over the bytes and two short
rounds. `hmac.digest` sets these up anew every time, and OpenSSL 3 looks its algorithms up each time: 2 µs a request
before the first byte. The compiled form therefore calls SHA1_Update and SHA1_Final of the libcrypto that hashlib has
loaded. Where that has no such functions, or they do not give HMAC's answer, hashlib does it.

`verify_rows` judges the rows of a scan (protocol/send_rows): it reads flat arrays, so neither module needs the other's
types.

Source:
    acl/common/AclSigner.java, AclUtils.java.
"""

import _hashlib
import base64
import ctypes
import hashlib
import hmac
from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.libc.string import memcmp, memcpy
    from cython.cimports.maxq.protocol.frame import send_rows as sr
else:
    from maxq.protocol.frame import send_rows as sr

if TYPE_CHECKING:
    from array import array
    from collections.abc import Mapping, Sequence

    #: Access key, zero byte, topic → the key that such sends are signed with; None: they need no signature.
    Admitted = Mapping[bytes, SigningKey | None]


_BLOCK = 64  # bytes SHA-1 takes at a time


def _functions():
    """Return the addresses of SHA1_Init, SHA1_Update and SHA1_Final in the library that hashlib uses; zeros if they are
    not there."""
    try:
        library = ctypes.CDLL(_hashlib.__file__)
        names = ("SHA1_Init", "SHA1_Update", "SHA1_Final")
        return tuple(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names)
    except (AttributeError, OSError):  # hashlib is built into the interpreter, or its library has no such names
        return (0, 0, 0)


if cython.compiled:
    _found = _functions()
    _sha1_init = cython.declare(sha1_init_t, cython.cast(sha1_init_t, cython.cast(cython.size_t, _found[0])))
    _sha1_update = cython.declare(sha1_update_t, cython.cast(sha1_update_t, cython.cast(cython.size_t, _found[1])))
    _sha1_final = cython.declare(sha1_final_t, cython.cast(sha1_final_t, cython.cast(cython.size_t, _found[2])))
    _direct = cython.declare(cython.bint, all(_found))


@cython.cclass
class SigningKey:
    """Signs and checks with one secret. Prints nothing of it."""

    _inner_state = cython.declare(cython.uchar[256])  # SHA_CTX has 96 bytes
    _outer_state = cython.declare(cython.uchar[256])
    _inner = cython.declare(object)
    _outer = cython.declare(object)

    def __init__(self, secret: bytes):
        key: bytes = secret if len(secret) <= _BLOCK else hashlib.sha1(secret).digest()
        key = key.ljust(_BLOCK, b"\0")
        inner: bytes = bytes([byte ^ 0x36 for byte in key])
        outer: bytes = bytes([byte ^ 0x5C for byte in key])
        self._inner = hashlib.sha1(inner)
        self._outer = hashlib.sha1(outer)
        if cython.compiled and _direct:
            _sha1_init(cython.address(self._inner_state[0]))
            _sha1_update(cython.address(self._inner_state[0]), cython.cast(cython.p_char, inner), 64)
            _sha1_init(cython.address(self._outer_state[0]))
            _sha1_update(cython.address(self._outer_state[0]), cython.cast(cython.p_char, outer), 64)

    def __repr__(self):
        return "<SigningKey>"

    @cython.cfunc
    @cython.exceptval(-1)
    def _digest(
        self,
        out: cython.p_uchar,
        content: cython.p_uchar,
        content_size: cython.Py_ssize_t,
        body: cython.p_uchar,
        body_size: cython.Py_ssize_t,
    ) -> cython.int:
        """Put the 20 bytes of the HMAC over content and body into `out`."""
        state: cython.uchar[256]
        found: bytes
        if cython.compiled:
            if _direct:
                memcpy(state, self._inner_state, 256)
                _sha1_update(state, content, content_size)
                _sha1_update(state, body, body_size)
                _sha1_final(out, state)
                memcpy(state, self._outer_state, 256)
                _sha1_update(state, out, 20)
                _sha1_final(out, state)
                return 0
            found = self._slowly(
                cython.cast(cython.p_char, content)[:content_size], cython.cast(cython.p_char, body)[:body_size]
            )
            memcpy(out, cython.cast(cython.p_char, found), 20)
        else:
            out[:20] = self._slowly(bytes(content[:content_size]), bytes(body[:body_size]))
        return 0

    @cython.cfunc
    def _slowly(self, content: bytes, body: bytes):
        inner = self._inner.copy()
        inner.update(content)
        inner.update(body)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()

    def sign(self, content: bytes, body: bytes = b""):
        # type: (...) -> bytes
        """HMAC-SHA1 of content and body, one after the other, as 28 bytes of base64."""
        if not cython.compiled:
            return base64.b64encode(self._slowly(content, body))
        digest: cython.uchar[20]
        text: cython.uchar[28]
        self._digest(
            digest,
            cython.cast(cython.p_uchar, cython.cast(cython.p_char, content)),
            len(content),
            cython.cast(cython.p_uchar, cython.cast(cython.p_char, body)),
            len(body),
        )
        _encode(text, digest)
        return cython.cast(cython.p_char, text)[:28]

    def matches(self, content: bytes, body: bytes, signature: bytes):
        # type: (...) -> bool
        """Is this the signature? Takes as long for one that is nearly right as for any other."""
        return hmac.compare_digest(self.sign(content, body), signature)


@cython.cfunc
@cython.exceptval(check=False)
def _encode(text: cython.p_uchar, digest: cython.p_uchar) -> cython.void:
    """Write the 28 characters of base64 for 20 bytes."""
    i: cython.int
    q: cython.int = 0
    bits: cython.uint
    letters: cython.p_char = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for i in range(0, 18, 3):
        bits = (digest[i] << 16) | (digest[i + 1] << 8) | digest[i + 2]
        text[q] = letters[(bits >> 18) & 63]
        text[q + 1] = letters[(bits >> 12) & 63]
        text[q + 2] = letters[(bits >> 6) & 63]
        text[q + 3] = letters[bits & 63]
        q += 4
    bits = (digest[18] << 16) | (digest[19] << 8)
    text[q] = letters[(bits >> 18) & 63]
    text[q + 1] = letters[(bits >> 12) & 63]
    text[q + 2] = letters[(bits >> 6) & 63]
    text[q + 3] = 0x3D


@cython.cfunc
@cython.exceptval(-1)
def _is_signed(
    key: SigningKey,
    buf: cython.p_uchar,
    texts: cython.p_uchar,
    mark: cython.p_longlong,
    body: cython.Py_ssize_t,
    body_size: cython.Py_ssize_t,
) -> cython.int:
    """Return 1 if the request of this row (columns S_…) carries the key's signature; the time does not depend on where
    a wrong signature differs."""
    if mark[sr.S_SIGNATURE_SIZE] != 28:
        return 0
    if not cython.compiled:
        content = bytes(texts[mark[sr.S_CONTENT] : mark[sr.S_CONTENT] + mark[sr.S_CONTENT_SIZE]])
        return key.matches(
            content, bytes(buf[body : body + body_size]), bytes(buf[mark[sr.S_SIGNATURE] : mark[sr.S_SIGNATURE] + 28])
        )
    digest: cython.uchar[20]
    text: cython.uchar[28]
    i: cython.int
    different: cython.int = 0
    key._digest(digest, texts + mark[sr.S_CONTENT], mark[sr.S_CONTENT_SIZE], buf + body, body_size)
    _encode(text, digest)
    for i in range(28):
        different |= text[i] ^ buf[mark[sr.S_SIGNATURE] + i]
    return different == 0


@cython.cfunc
@cython.exceptval(check=False)
def _repeats(buf: cython.p_uchar, p: cython.Py_ssize_t, n: cython.Py_ssize_t, q: cython.Py_ssize_t) -> cython.bint:
    """Return whether the n bytes at p equal those at q."""
    if cython.compiled:
        return memcmp(buf + p, buf + q, n) == 0
    return buf[p : p + n] == buf[q : q + n]


def verify_rows(
    source: cython.uchar[::1],  # type: bytearray | memoryview
    content: bytearray,
    signed: cython.longlong[::1],  # type: array[int]
    rows: cython.longlong[::1],  # type: array[int]
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    admitted: dict,  # type: Admitted
):
    # type: (...) -> int
    """How many of the rows [first, first + count) of a scan, from the first on, may be appended: their access key and
    topic are admitted and they are signed as that says. `content` and `signed` are the SendScanner's."""
    buf: cython.p_uchar
    texts: cython.p_uchar
    mark: cython.p_longlong
    row: cython.p_longlong
    number: cython.Py_ssize_t
    key_at: cython.Py_ssize_t = 0
    key_size: cython.Py_ssize_t = -1
    topic_at: cython.Py_ssize_t = 0
    topic_size: cython.Py_ssize_t = -1
    entry: object = None
    name: bytes
    if count <= 0:
        return 0
    if cython.compiled:
        buf = cython.address(source[0])
        texts = cython.cast(cython.p_uchar, cython.cast(cython.p_char, content))
    else:
        buf, texts = source, content
    for number in range(first, first + count):
        if cython.compiled:
            mark = cython.address(signed[number * sr.SIGNED_WIDTH])
            row = cython.address(rows[number * sr.ROW_WIDTH])
        else:
            mark = memoryview(signed)[number * sr.SIGNED_WIDTH : (number + 1) * sr.SIGNED_WIDTH]
            row = memoryview(rows)[number * sr.ROW_WIDTH : (number + 1) * sr.ROW_WIDTH]
        if (
            mark[sr.S_ACCESS_KEY_SIZE] != key_size
            or row[sr.R_TOPIC_SIZE] != topic_size
            or not _repeats(buf, mark[sr.S_ACCESS_KEY], key_size, key_at)
            or not _repeats(buf, row[sr.R_TOPIC], topic_size, topic_at)
        ):
            key_at, key_size, topic_at, topic_size = (
                mark[sr.S_ACCESS_KEY],
                mark[sr.S_ACCESS_KEY_SIZE],
                row[sr.R_TOPIC],
                row[sr.R_TOPIC_SIZE],
            )
            if cython.compiled:
                name = (
                    cython.cast(cython.p_char, buf + key_at)[:key_size]
                    + b"\0"
                    + cython.cast(cython.p_char, buf + topic_at)[:topic_size]
                )
            else:
                name = bytes(buf[key_at : key_at + key_size]) + b"\0" + bytes(buf[topic_at : topic_at + topic_size])
            if name not in admitted:
                return number - first
            entry = admitted[name]
        if entry is not None and not _is_signed(entry, buf, texts, mark, row[sr.R_BODY], row[sr.R_BODY_SIZE]):
            return number - first
    return count


def verify_arrivals(
    source: cython.uchar[::1],  # type: bytearray
    content: bytearray,
    signed: cython.longlong[::1],  # type: array[int]
    rows: cython.longlong[::1],  # type: array[int]
    table: cython.longlong[::1],  # type: array[int]
    admitted: list,  # type: Sequence[Admitted]
):
    # type: (...) -> int
    """The same for each arrival of a turn (columns A_… of protocol/send_rows), with what its connection may. Rows
    behind the first that may not are taken out of their arrival; returns how many are left in all."""
    number: cython.Py_ssize_t
    first: cython.Py_ssize_t
    count: cython.Py_ssize_t
    done: cython.Py_ssize_t
    total: cython.Py_ssize_t = 0
    for number in range(len(admitted)):
        first = table[number * sr.ARRIVAL_WIDTH + sr.A_FIRST]
        count = table[number * sr.ARRIVAL_WIDTH + sr.A_ROWS]
        done = verify_rows(source, content, signed, rows, first, count, admitted[number])
        if done < count:
            table[number * sr.ARRIVAL_WIDTH + sr.A_TAKEN] = rows[(first + done) * sr.ROW_WIDTH + sr.R_FRAME]
            table[number * sr.ARRIVAL_WIDTH + sr.A_ROWS] = done
        total += done
    return total


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled


if cython.compiled:
    # Another libcrypto may lay its states out otherwise: then hashlib does the work.
    _probe = SigningKey(b"12345678")
    if _direct and _probe.sign(b"Rocket", b"MQ") != base64.b64encode(hmac.digest(b"12345678", b"RocketMQ", "sha1")):
        _direct = False
