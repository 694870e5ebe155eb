"""PlainSends: sends of gRPC clients from protobuf's bytes to the frame for the broker, and from the broker's answer to
protobuf's bytes, without an object for each of their parts.

A send is taken if nothing about it is special (`PlainSends.take` lists what may be there); all others are left to
sending.py, which knows every rule. All frames of an arrival leave in one write for each client (`flush`), so that the
broker stores them together.

Runs compiled and uncompiled; compiled, buffers are byte pointers.
"""

from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

from maxq.codes import CURRENT_VERSION
from maxq.protocol.message import message_const as const
from maxq.proxy.brokers import MIXED, NORMAL, NotKnownYet

if cython.compiled:
    from cython.cimports.maxq.protocol.frame.frame_scanner_cy import AnswerScanner
    from cython.cimports.maxq.runtime.buffers import (
        copy_bytes,
        put32,
        put_bytes,
        put_number,
        same_bytes,
        take_ascii,
        take_bytes,
    )
else:
    from maxq.protocol.frame.frame_scanner_cy import AnswerScanner
    from maxq.runtime.buffers import copy_bytes, put32, put_bytes, put_number, same_bytes, take_ascii, take_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from maxq.config.proxy_config import ProxyConfig
    from maxq.protocol.frame.remoting_command import RemotingCommand
    from maxq.proxy.brokers import Brokers
    from maxq.proxy.clients import Clients
    from maxq.remoting.connection import Connection
    from maxq.remoting.grpc.calls import Call

    class Asking(Protocol):
        """The asking end of connections to brokers, as far as sends use it."""

        batch_path: Any

        def next_opaque(self) -> int: ...


_CLIENT_ID = cython.declare(str, "x-mq-client-id")
_SEND_MESSAGE_V2 = cython.declare(cython.int, 310)
_VERSION = cython.declare(cython.int, int(CURRENT_VERSION))
_MOST_WAITERS = cython.declare(cython.Py_ssize_t, 65_000)  # requests that may wait on one connection
_MOST_TOPICS = cython.declare(cython.Py_ssize_t, 1_024)
_MOST_BORN_MS = cython.declare(cython.longlong, 1 << 50)
_OK_STATUS = cython.declare(bytes, b"\x0a\x08\x08\xa0\x9c\x01\x12\x02OK")  # field 1: a Status, code 20000 and its text
_RESERVED = cython.declare(frozenset, const.RESERVED_PROPERTIES)

# Fields of a message that were seen: bits.
_TOPIC = 1
_SYSTEM = 2
_BODY = 4
_TAG = 8
_ID = 16
_BORN = 32
_HOST = 64
_KIND = 128
_ENCODING = 256
_DIGEST = 512


@cython.cfunc
@cython.exceptval(check=False)
def _is_plain(buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Return whether buf[p:end] is text of printable ASCII without spaces, and not empty."""
    if p == end:
        return False
    while p < end:
        if buf[p] < 0x21 or buf[p] > 0x7E:
            return False
        p += 1
    return True


@cython.cclass
class PlainSend:
    """One message on its way to a broker. It is also called by those who read answers in general."""

    call = cython.declare(object, visibility="readonly")  # type: Call
    broker_name = cython.declare(str, visibility="readonly")
    _message_id = cython.declare(bytes)
    _sends = cython.declare(object)

    def __init__(
        self,
        call,  # type: Call
        broker_name: str,
        message_id: bytes,
        sends,  # type: PlainSends
    ):
        self.call = call
        self.broker_name = broker_name
        self._message_id = message_id
        self._sends = sends

    @property
    def message_id(self):
        # type: (...) -> str
        """Return the id that the client gave the message."""
        return self._message_id.decode()

    def __call__(self, reply: object):
        """Answer the call by an answer that is not plain, or None: there is none."""
        self._sends.general(self, reply)


@cython.cclass
class _Outgoing:
    """Frames for one connection."""

    _out = cython.declare(bytearray)
    _end = cython.declare(cython.Py_ssize_t)
    _count = cython.declare(cython.Py_ssize_t)

    def __init__(self):
        self._out = bytearray(16384)
        self._end = self._count = 0


@cython.cclass
class PlainSends:
    """Takes plain sends; see the module's text.

    Args:
        brokers: where topics are.
        config: returns the settings.
        clients: who is connected.
        legal: tells whether a topic of this name may be sent to, whatever brokers have.
        general: answers the call of a PlainSend by a broker's answer of any kind.
    """

    general = cython.declare(object, visibility="readonly")  # type: Callable[[PlainSend, RemotingCommand | None], None]
    taken = cython.declare(cython.longlong, visibility="readonly")  # sends so far
    _brokers = cython.declare(object)
    _settings = cython.declare(object)
    _clients = cython.declare(object)
    _legal = cython.declare(object)
    _numbers = cython.declare(object)
    _topics = cython.declare(dict)
    _note = cython.declare(object)
    _names_brokers = cython.declare(cython.bint)
    _waiting = cython.declare(dict)
    _config = cython.declare(object)
    _most_properties = cython.declare(cython.Py_ssize_t)
    _most_property_bytes = cython.declare(cython.Py_ssize_t)
    _checks_type = cython.declare(cython.bint)
    # of the message that is read
    _p = cython.declare(cython.Py_ssize_t)
    _topic = cython.declare(cython.Py_ssize_t)
    _topic_size = cython.declare(cython.Py_ssize_t)
    _body = cython.declare(cython.Py_ssize_t)
    _body_size = cython.declare(cython.Py_ssize_t)
    _tag = cython.declare(cython.Py_ssize_t)
    _tag_size = cython.declare(cython.Py_ssize_t)
    _id = cython.declare(cython.Py_ssize_t)
    _id_size = cython.declare(cython.Py_ssize_t)
    _host = cython.declare(cython.Py_ssize_t)
    _host_size = cython.declare(cython.Py_ssize_t)
    _born_ms = cython.declare(cython.longlong)
    _keys = cython.declare(list)
    _user = cython.declare(list)
    _property_bytes = cython.declare(cython.Py_ssize_t)
    _seen = cython.declare(cython.int)

    def __init__(
        self,
        brokers,  # type: Brokers
        config,  # type: Callable[[], ProxyConfig]
        clients,  # type: Clients
        legal,  # type: Callable[[str], bool]
        general,  # type: Callable[[PlainSend, RemotingCommand | None], None]
    ):
        self.general = general
        self.taken = 0
        self._brokers = brokers
        self._settings = config
        self._clients = clients
        self._legal = legal
        self._numbers = None
        self._note = None if brokers.knows_clients else brokers.asked
        self._names_brokers = not brokers.knows_clients
        self._topics = {}
        self._waiting = {}
        self._config = None
        self._keys = []
        self._user = []

    def use(
        self,
        asking,  # type: Asking
    ):
        # type: (...) -> None
        """Take the answers that come on these connections. Without this no send is taken."""
        self._numbers = asking.next_opaque
        asking.batch_path = PlainSendAnswers().take

    def take(
        self,
        call,  # type: Call
        message: bytes,
    ):
        # type: (...) -> bool
        """Send a request of SendMessage to its broker if it has one message whose topic has no namespace, and that has
        a body as it is, an id, a time and a place of birth, perhaps a tag, keys and properties of the user, and nothing
        else; all texts are printable ASCII without spaces. Returns False, and has done nothing, if it is another one,
        or if anything about its topic or its client has to be found out first."""
        buf: cython.p_uchar = message
        view: object
        client: object
        link: object
        waiters: dict
        send: PlainSend
        broker_name: str
        queue_id: cython.longlong
        opaque: cython.longlong
        if self._numbers is None or not self._read(buf, len(message)):
            return False
        client = self._clients.find(call.metadata.get(_CLIENT_ID, ""), "")
        view = self._view(take_bytes(buf, self._topic, self._topic_size))
        if client is None or view is None or self._body_size > self._brokers.max_message_size:
            return False
        broker_name, queue_id = view.queue_in_turn()
        link = self._brokers.link(client, broker_name)
        if link is None:
            view.take_back_turn()
            return False
        waiters = link.waiters
        if len(waiters) >= _MOST_WAITERS:
            view.take_back_turn()
            return False
        opaque = self._numbers()
        send = PlainSend(call, broker_name, take_bytes(buf, self._id, self._id_size), self)
        waiters[opaque] = send
        if self._note is not None:
            self._note(link, opaque, send)
        self._put(self._outgoing(link), buf, queue_id, opaque, client.language, len(message), broker_name)
        self.taken += 1
        return True

    def flush(self):
        # type: (...) -> None
        """Send what was taken."""
        outgoing: _Outgoing
        waiting: dict = self._waiting
        if waiting:
            self._waiting = {}
            for link, outgoing in waiting.items():
                link.send_requests(bytes(memoryview(outgoing._out)[: outgoing._end]), outgoing._count)

    # --- what must be so --------------------------------------------------------------------------------------------

    @cython.cfunc
    def _view(self, name: bytes):
        """Return where a topic is; None if its name is illegal, or its messages cannot be sent in this way."""
        text: object = self._topics.get(name)
        if text is None:
            text = name.decode()
            if not self._legal(text):
                return None
            if len(self._topics) >= _MOST_TOPICS:
                self._topics.clear()
            self._topics[name] = text
        view: object
        try:
            view = self._brokers.topic(text)
        except NotKnownYet:
            return None
        if view is None or not view.write_queues:
            return None
        kind: str = view.message_type
        if self._checks_type and kind != NORMAL and kind != MIXED:
            return None
        return view

    @cython.cfunc
    def _read_settings(self, config: object):
        self._config = config
        self._most_properties = config.user_property_max_num
        self._most_property_bytes = config.max_user_property_size
        self._checks_type = config.grpc_topic_message_type_check

    # --- protobuf -----------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(check=False)
    def _varint(self, buf: cython.p_uchar, end: cython.Py_ssize_t) -> cython.longlong:
        """Read a number at `_p` and step over it; −1 if there is none of at most 56 bits."""
        value: cython.longlong = 0
        shift: cython.int = 0
        p: cython.Py_ssize_t = self._p
        while p < end and shift < 56:
            value |= cython.cast(cython.longlong, buf[p] & 0x7F) << shift
            p += 1
            if buf[p - 1] < 0x80:
                self._p = p
                return value
            shift += 7
        return -1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _size(self, buf: cython.p_uchar, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the size of a field of bytes, which must end by `end`; −1 if it does not. `_p` is where it begins."""
        size: cython.longlong = self._varint(buf, end)
        return size if 0 <= size <= end - self._p else -1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _once(self, bit: cython.int) -> cython.bint:
        """Note that a field was seen; returns False if it was before."""
        if self._seen & bit:
            return False
        self._seen |= bit
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _read(self, buf: cython.p_uchar, end: cython.Py_ssize_t) -> cython.bint:
        """Read a request; returns False if it is not plain."""
        size: cython.Py_ssize_t
        config: object = self._settings()
        if config is not self._config:
            self._read_settings(config)
        self._seen = 0
        self._property_bytes = 0
        self._tag_size = 0
        if self._keys:
            self._keys = []
        if self._user:
            self._user = []
        if end < 2 or buf[0] != 0x0A:
            return False
        self._p = 1
        size = self._size(buf, end)
        if size < 0 or self._p + size != end:
            return False
        while self._p < end:
            if not self._message_field(buf, end):
                return False
        return (self._seen & 119) == 119 and self._property_bytes <= self._most_property_bytes

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _message_field(self, buf: cython.p_uchar, end: cython.Py_ssize_t) -> cython.bint:
        """Read a field of the message."""
        tag: cython.int = buf[self._p]
        size: cython.Py_ssize_t
        self._p += 1
        size = self._size(buf, end)
        if size < 0:
            return False
        p: cython.Py_ssize_t = self._p
        self._p += size
        if tag == 0x22:
            self._body, self._body_size = p, size
            return size > 0 and self._once(_BODY)
        if tag == 0x0A:  # a Resource, of which only the name is there, in one byte's length
            self._topic, self._topic_size = p + 2, size - 2
            return (
                2 < size < 130
                and buf[p] == 0x12
                and buf[p + 1] == size - 2
                and _is_plain(buf, p + 2, p + size)
                and self._once(_TOPIC)
            )
        if tag == 0x12:
            return self._user_property(buf, p, p + size)
        return tag == 0x1A and self._once(_SYSTEM) and self._system(buf, p, p + size)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _user_property(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """Read a property of the user: name and value, in this order."""
        after: cython.Py_ssize_t = self._p
        size: cython.Py_ssize_t
        name: str
        if p == end or buf[p] != 0x0A:
            return False
        self._p = p + 1
        size = self._size(buf, end)
        if size < 0 or not _is_plain(buf, self._p, self._p + size):
            return False
        name = take_ascii(buf, self._p, size)
        self._p += size
        if self._p == end or buf[self._p] != 0x12:
            return False
        self._p += 1
        p = self._p
        if self._size(buf, end) != end - self._p or not _is_plain(buf, self._p, end) or name in _RESERVED:
            return False
        for known in self._user:
            if known[0] == name:
                return False
        self._user.append((name, take_bytes(buf, self._p, end - self._p)))
        self._property_bytes += size + end - self._p
        self._p = after
        return len(self._user) <= self._most_properties

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _system(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """Read what the message says besides."""
        after: cython.Py_ssize_t = self._p
        self._p = p
        while self._p < end:
            if not self._system_field(buf, end):
                return False
        self._p = after
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _system_field(self, buf: cython.p_uchar, end: cython.Py_ssize_t) -> cython.bint:
        tag: cython.int = buf[self._p]
        size: cython.Py_ssize_t
        self._p += 1
        if tag == 0x28 or tag == 0x30:  # encoding and type: as it is, normal
            size = self._varint(buf, end)
            return (size == 1 or size == 0) and self._once(_ENCODING if tag == 0x28 else _KIND)
        size = self._size(buf, end)
        if size < 0:
            return False
        p: cython.Py_ssize_t = self._p
        self._p += size
        if tag == 0x3A:
            return self._once(_BORN) and self._born(buf, p, p + size)
        if tag == 0x22:
            return self._once(_DIGEST) and self._digest(buf, p, p + size)
        if not _is_plain(buf, p, p + size):
            return False
        if tag == 0x1A:
            self._id, self._id_size = p, size
            return self._once(_ID)
        if tag == 0x42:
            self._host, self._host_size = p, size
            return self._once(_HOST)
        if tag == 0x0A:
            self._tag, self._tag_size = p, size
            self._property_bytes += size
            return self._once(_TAG) and 0x7C not in take_bytes(buf, p, size)
        if tag == 0x12:
            self._keys.append(take_bytes(buf, p, size))
            self._property_bytes += size
            return True
        return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def _born(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """Read a Timestamp: seconds, and perhaps nanoseconds."""
        after: cython.Py_ssize_t = self._p
        seconds: cython.longlong
        nanos: cython.longlong = 0
        if p == end or buf[p] != 0x08:
            return False
        self._p = p + 1
        seconds = self._varint(buf, end)
        if self._p < end and buf[self._p] == 0x10:
            self._p += 1
            nanos = self._varint(buf, end)
        if seconds < 0 or seconds > _MOST_BORN_MS // 1000 or nanos < 0 or nanos > 999_999_999 or self._p != end:
            return False
        self._p = after
        self._born_ms = seconds * 1000 + nanos // 1_000_000
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _digest(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """Step over a Digest: its type and its text, which nobody reads."""
        after: cython.Py_ssize_t = self._p
        self._p = p
        if self._p < end and buf[self._p] == 0x08:
            self._p += 1
            if self._varint(buf, end) < 0:
                return False
        if self._p < end:
            if buf[self._p] != 0x12:
                return False
            self._p += 1
            if self._size(buf, end) != end - self._p or not _is_plain(buf, self._p, end):
                return False
        self._p = after
        return True

    # --- frames -------------------------------------------------------------------------------------------------------

    @cython.cfunc
    def _outgoing(self, link: object) -> _Outgoing:
        found: object = self._waiting.get(link)
        if found is None:
            found = self._waiting[link] = _Outgoing()
        return found

    @cython.cfunc
    def _put(
        self,
        outgoing: _Outgoing,
        source: cython.p_uchar,
        queue_id: cython.longlong,
        opaque: cython.longlong,
        language: cython.int,
        size: cython.Py_ssize_t,
        broker_name: str,
    ):
        """Write the request of the message that was read, with a header in the form ROCKETMQ."""
        room: cython.Py_ssize_t = size + 3 * self._topic_size + 512 + 8 * len(self._user) + 8 * len(self._keys)
        name: bytes
        out: cython.p_uchar
        start: cython.Py_ssize_t = outgoing._end
        p: cython.Py_ssize_t
        extended: cython.Py_ssize_t
        properties: cython.Py_ssize_t
        if self._names_brokers:
            name = broker_name.encode()
            room += len(name)
        if start + room > len(outgoing._out):
            outgoing._out += bytes(max(room, len(outgoing._out)))
        out = outgoing._out
        p = start + 8
        out[p] = _SEND_MESSAGE_V2 >> 8
        out[p + 1] = _SEND_MESSAGE_V2 & 0xFF
        out[p + 2] = language
        out[p + 3] = _VERSION >> 8
        out[p + 4] = _VERSION & 0xFF
        put32(out, p + 5, opaque)
        put32(out, p + 9, 0)
        put32(out, p + 13, 0)
        extended = p + 21
        p = self._text_field(out, extended, 0x61, source, self._topic, self._topic_size)
        p = self._text_field(out, p, 0x62, source, self._topic, self._topic_size)
        p = put_bytes(out, p, b"\x00\x01c\x00\x00\x00\x06TBW102\x00\x01d\x00\x00\x00\x014")
        p = self._number_field(out, p, 0x65, queue_id)
        p = put_bytes(out, p, b"\x00\x01f\x00\x00\x00\x010")
        p = self._number_field(out, p, 0x67, self._born_ms)
        p = put_bytes(out, p, b"\x00\x01h\x00\x00\x00\x010\x00\x01j\x00\x00\x00\x010\x00\x01k\x00\x00\x00\x05false")
        if self._names_brokers:
            p = put_bytes(out, p, b"\x00\x01n\x00\x00\x00\x00")
            put32(out, p - 4, len(name))
            p = put_bytes(out, p, name)
        p = put_bytes(out, p, b"\x00\x01i\x00\x00\x00\x00")
        properties = p
        p = self._properties(out, p, source)
        put32(out, properties - 4, p - properties)
        put32(out, extended - 4, p - extended)
        put32(out, start + 4, (1 << 24) | (p - start - 8))
        copy_bytes(out, p, source, self._body, self._body_size)
        p += self._body_size
        put32(out, start, p - start - 4)
        outgoing._end = p
        outgoing._count += 1

    @cython.cfunc
    def _properties(self, out: cython.p_uchar, p: cython.Py_ssize_t, source: cython.p_uchar) -> cython.Py_ssize_t:
        """Write the property text."""
        first: cython.bint = True
        key: bytes
        for name, value in self._user:
            p = self._property(out, p, name.encode(), value)
        if self._tag_size:
            p = put_bytes(out, p, b"TAGS\x01")
            copy_bytes(out, p, source, self._tag, self._tag_size)
            p = put_bytes(out, p + self._tag_size, b"\x02")
        if self._keys:
            p = put_bytes(out, p, b"KEYS\x01")
            for key in self._keys:
                if not first:
                    p = put_bytes(out, p, b" ")
                first = False
                p = put_bytes(out, p, key)
            p = put_bytes(out, p, b"\x02")
        p = put_bytes(out, p, b"UNIQ_KEY\x01")
        copy_bytes(out, p, source, self._id, self._id_size)
        p = put_bytes(out, p + self._id_size, b"\x02PGROUP\x01")
        copy_bytes(out, p, source, self._topic, self._topic_size)
        p = put_bytes(out, p + self._topic_size, b"\x02__BORNHOST\x01")
        copy_bytes(out, p, source, self._host, self._host_size)
        p = put_bytes(out, p + self._host_size, b"\x02BORN_TIMESTAMP\x01")
        return put_bytes(out, put_number(out, p, self._born_ms), b"\x02")

    @cython.cfunc
    def _property(self, out: cython.p_uchar, p: cython.Py_ssize_t, name: bytes, value: bytes) -> cython.Py_ssize_t:
        p = put_bytes(out, put_bytes(out, p, name), b"\x01")
        return put_bytes(out, put_bytes(out, p, value), b"\x02")

    @cython.cfunc
    @cython.exceptval(check=False)
    def _text_field(
        self,
        out: cython.p_uchar,
        p: cython.Py_ssize_t,
        letter: cython.int,
        source: cython.p_uchar,
        at: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        out[p] = 0
        out[p + 1] = 1
        out[p + 2] = letter
        put32(out, p + 3, size)
        copy_bytes(out, p + 7, source, at, size)
        return p + 7 + size

    @cython.cfunc
    @cython.exceptval(check=False)
    def _number_field(
        self, out: cython.p_uchar, p: cython.Py_ssize_t, letter: cython.int, value: cython.longlong
    ) -> cython.Py_ssize_t:
        end: cython.Py_ssize_t = put_number(out, p + 7, value)
        out[p] = 0
        out[p + 1] = 1
        out[p + 2] = letter
        put32(out, p + 3, end - p - 7)
        return end


@cython.cclass
class PlainSendAnswers(AnswerScanner):
    """Reads answers to messages that PlainSends has sent, and answers their calls."""

    _queue_offset = cython.declare(cython.longlong)
    _transaction = cython.declare(cython.Py_ssize_t)
    _transaction_size = cython.declare(cython.Py_ssize_t)

    def __init__(self):
        self.signed = False
        self._waiter_type = PlainSend

    def take(
        self,
        connection,  # type: Connection
        buffer: cython.uchar[::1],  # type: bytearray | memoryview
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ):
        # type: (...) -> int
        """Take the leading answers in buffer[start:end] that are plain. Returns the position behind them."""
        waiters: dict = connection.waiters
        send: PlainSend
        buf: cython.p_uchar
        if cython.compiled:
            buf = cython.address(buffer[0])
        else:
            buf = memoryview(buffer)
        while waiters:
            waiter = self._next(waiters, buf, start, end)
            if waiter is None:
                break
            send = waiter
            del waiters[self._opaque]
            send.call.answer(self._answer(buf, send._message_id))
            start = self._answer_end
        return start

    @cython.cfunc
    def _answer(self, buf: cython.p_uchar, message_id: bytes) -> bytes:
        """Return a SendMessageResponse of one entry."""
        entry: bytes = _OK_STATUS + b"\x12" + _varint_of(len(message_id)) + message_id
        if self._transaction_size:
            entry += b"\x1a" + _varint_of(self._transaction_size)
            entry += take_bytes(buf, self._transaction, self._transaction_size)
        if self._queue_offset:
            entry += b"\x20" + _varint_of(self._queue_offset)
        return _OK_STATUS + b"\x12" + _varint_of(len(entry)) + entry

    @cython.cfunc
    @cython.exceptval(check=False)
    def _begin(self) -> cython.void:
        self._queue_offset = -1
        self._transaction_size = 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_whole(self) -> cython.bint:
        return self._queue_offset >= 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _wants(self) -> cython.bint:
        return self._code == 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _field(self, buf: cython.p_uchar, key: cython.Py_ssize_t, key_size: cython.Py_ssize_t) -> cython.bint:
        if self._escaped:
            return False
        if key_size == 11 and same_bytes(buf, key, key_size, b"queueOffset"):
            self._queue_offset = self._integer(buf)
            return self._queue_offset >= 0
        if key_size == 13 and same_bytes(buf, key, key_size, b"transactionId"):
            self._transaction = self._text
            self._transaction_size = self._text_size
            return _is_plain(buf, self._text, self._text + self._text_size)
        return key_size != 12 or not same_bytes(buf, key, key_size, b"recallHandle")


@cython.cfunc
def _varint_of(value: cython.longlong) -> bytes:
    """Return a number as protobuf writes it."""
    out: cython.uchar[10]
    n: cython.Py_ssize_t = 0
    if not cython.compiled:
        out = bytearray(10)
    while value >= 0x80:
        out[n] = value & 0x7F | 0x80
        value >>= 7
        n += 1
    out[n] = value
    return take_bytes(out, 0, n + 1)


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
