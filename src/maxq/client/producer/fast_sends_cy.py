"""Sends in the common case, many at a time: messages are encoded one behind the other into one buffer for each broker,
which leaves in one write, and what a broker answers is read where it lies.

A message is taken if nothing about it is special (`FastSends.post` lists what is); all others are left to
message_sender.py, which knows every rule. The first try of a message gives either its SendResult, or an error after
which MessageSender continues.

Runs compiled and uncompiled; compiled, buffers are byte pointers.
"""

import logging
from asyncio import CancelledError
from functools import partial
from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.frame.frame_scanner_cy import AnswerScanner
    from cython.cimports.maxq.protocol.message.slots import slot_place, slot_value, untrack
    from cython.cimports.maxq.runtime.buffers import (
        find_unplain,
        has_separator,
        put32,
        put_bytes,
        put_number,
        put_utf8,
        same_bytes,
        take_ascii,
        take_bytes,
    )
else:
    from maxq.protocol.frame.frame_scanner_cy import AnswerScanner
    from maxq.protocol.message.slots import slot_place, slot_value
    from maxq.runtime.buffers import (
        find_unplain,
        has_separator,
        put32,
        put_bytes,
        put_number,
        put_utf8,
        same_bytes,
        take_ascii,
        take_bytes,
    )

from maxq.client.results.send_result import STATUS_OF_CODE, SendResult
from maxq.codes import ResponseCode
from maxq.errors import RemotingTimeoutError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import RETRY_PREFIX
from maxq.remoting.socket_io_cy import give_back, lend, receive_lent, send_at_once

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

    from maxq.client.client_config import ProducerConfig
    from maxq.client.instance.mq_client import MQClientInstance
    from maxq.client.results.send_result import SendWaiter
    from maxq.protocol.message.message_id import UniqIdGenerator
    from maxq.remoting.connection import Connection


log = logging.getLogger(__name__)

_UNIQ_KEY = const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
_INSTANCE_ID = const.PROPERTY_INSTANCE_ID
#: Properties that need another kind of request.
_SPECIAL = cython.declare(frozenset, frozenset((const.PROPERTY_TRANSACTION_PREPARED, const.PROPERTY_MESSAGE_TYPE)))
#: … or cannot be in a batch.
_SPECIAL_IN_BATCH = cython.declare(
    frozenset,
    frozenset(
        (
            *_SPECIAL,
            const.PROPERTY_INSTANCE_ID,  # it would belong to the batch as a whole
            const.PROPERTY_WAIT_STORE_MSG_OK,
            const.PROPERTY_DELAY_TIME_LEVEL,
            const.PROPERTY_TIMER_DELAY_SEC,
            const.PROPERTY_TIMER_DELAY_MS,
            const.PROPERTY_TIMER_DELIVER_MS,
        )
    ),
)
_MOST_IN_BATCH = 10_000  # most messages of a batch
#: Places of the fields in a Message.
_TOPIC = cython.declare(cython.Py_ssize_t, slot_place(Message, "topic"))
_BODY = cython.declare(cython.Py_ssize_t, slot_place(Message, "body"))
_PROPERTIES = cython.declare(cython.Py_ssize_t, slot_place(Message, "properties"))
_FLAG = cython.declare(cython.Py_ssize_t, slot_place(Message, "flag"))
_MOST_BATCH = cython.declare(cython.Py_ssize_t, 64 << 20)  # bytes
_MOST_TEXT = cython.declare(cython.Py_ssize_t, 32_767)  # bytes of the properties of a message, on the wire
_MOST_TOPICS = 10_000
_SPARE = cython.declare(cython.Py_ssize_t, 64)  # bytes of a frame besides its known parts: lengths, time, opaque
_LARGE = cython.declare(cython.Py_ssize_t, 64 << 10)  # smallest body in bytes that is written by itself, not copied
_LARGE_AT_ONCE = cython.declare(cython.Py_ssize_t, 4 << 10)  # smallest such body where each message is sent at once
_ANSWER_ROOM = 64 << 10  # bytes of an answer that a thread receives itself
_ANSWER_WAIT_MS = 2  # how long a thread waits for an answer before the event loop does
_MOST_MISSES = 31  # most sends for which no thread tries to receive the answer
_KEPT_ROOM = cython.declare(cython.Py_ssize_t, 1 << 20)  # bytes that an empty buffer keeps
_HEX = cython.declare(bytes, b"0123456789abcdef")
_UPPER_HEX = cython.declare(bytes, b"0123456789ABCDEF")
_SHORT = cython.declare(bytes, b"btn_fr")  # what follows the backslash for the bytes 8 to 13; 11 has none
_GO_AWAY = int(ResponseCode.GO_AWAY)
#: What stands for the time, the property text and the opaque in the header that QueueTarget is made of.
TIME_MARK = "@time@"  # type: str
TEXT_MARK = "@text@"  # type: str
OPAQUE_MARK = 2147483647
_STATUS_OF_CODE = {int(code): status for code, status in STATUS_OF_CODE.items()}
_new_tuple = tuple.__new__


@cython.cclass
class QueueTarget:
    """A queue, the broker to which its messages are sent, and the constant parts of a request: the bytes before the
    time, before the property text, before the opaque, and behind it."""

    queue = cython.declare(object, visibility="readonly")  # type: MessageQueue
    _queue_id = cython.declare(cython.longlong)
    _line = cython.declare(object)
    _of_batches = cython.declare(object)
    _before_time = cython.declare(bytes)
    _before_text = cython.declare(bytes)
    _before_opaque = cython.declare(bytes)
    _behind = cython.declare(bytes)

    def __init__(
        self,
        queue,  # type: MessageQueue
        line,  # type: Line
        header,  # type: bytes
    ):
        """`header` is that of a request, in JSON, with the three marks."""
        self.queue = queue
        self._queue_id = queue.queue_id
        self._line = line
        self._of_batches = None
        first, _, rest = header.partition(f'"g":"{TIME_MARK}"'.encode())
        second, _, rest = rest.partition(f'"i":"{TEXT_MARK}"'.encode())
        third, _, fourth = rest.rpartition(f'"opaque":{OPAQUE_MARK}'.encode())
        self._before_time = first + b'"g":"'
        self._before_text = b'"' + second + b'"i":"'
        self._before_opaque = b'"' + third + b'"opaque":'
        self._behind = fourth


@cython.cclass
class Line:
    """The frames that leave for one address with the next write."""

    address = cython.declare(str, visibility="readonly")
    connection = cython.declare(object, visibility="readonly")  # type: Connection | None
    waiters = cython.declare(dict, visibility="readonly")  # type: dict[int, Any]
    _out = cython.declare(bytearray)
    _body = cython.declare(object)  # body of the last frame if it is large; it is written without being copied
    _filled = cython.declare(cython.Py_ssize_t)
    _count = cython.declare(cython.Py_ssize_t)

    def __init__(
        self,
        address,  # type: str
    ):
        self.address = address
        self.connection = None
        self.waiters = {}
        self._out = bytearray(16 * 1024)
        self._body = b""
        self._filled = self._count = 0

    @cython.cfunc
    def _use(self, connection) -> cython.bint:
        """Write to this connection from now on. Frames for the one before leave on it; if it is closed they are
        dropped, and who waits for their answers is told. Returns False if there is none."""
        if connection is not self.connection:
            self.flush()
            self.connection = connection
            self.waiters = {} if connection is None else connection.waiters
        return connection is not None

    @cython.cfunc
    def _reserve(self, size: cython.Py_ssize_t):
        missing: cython.Py_ssize_t = self._filled + size - len(self._out)
        if missing > 0:
            self._out += bytes(max(missing, len(self._out)))

    def flush(self):
        # type: (...) -> None
        """Write what is there. If that fails the connection is closed, and who waits for answers is told by it."""
        if self._filled == 0:
            return
        out: cython.p_uchar
        if cython.compiled:
            out = cython.cast(cython.p_uchar, cython.cast(cython.p_char, self._out))
        else:
            out = self._out
        frames = take_bytes(out, 0, self._filled)
        count, body = self._count, self._body
        self._filled = self._count = 0
        self._body = b""
        if len(self._out) > _KEPT_ROOM:
            self._out = bytearray(16 * 1024)
        try:
            self.connection.send_requests(frames, count, body)
        except Exception as error:
            log.warning("writing %d messages to %s failed: %r", count, self.address, error)
            self.connection.abort("a write failed half way")


@cython.cclass
class PendingSend:
    """A message on its way.

    Attributes:
        topic, msg_id, body: as in PreparedMessage.
        target: where it went.
        future: gets the SendResult, or None if the first try failed: a future, or the waiter that `post` was given;
            None in a window.
        error: why the first try failed; None: the broker goes away, the message is to be sent once more.
    """

    topic = cython.declare(str, visibility="readonly")
    msg_id = cython.declare(str, visibility="readonly")
    body = cython.declare(object, visibility="readonly")  # type: bytes | memoryview
    target = cython.declare(QueueTarget, visibility="readonly")
    born_ms = cython.declare(cython.longlong, visibility="readonly")
    deadline_ms = cython.declare(cython.longlong, visibility="readonly")
    timeout_ms = cython.declare(cython.longlong, visibility="readonly")
    place = cython.declare(cython.longlong, visibility="readonly")
    is_batch = cython.declare(cython.bint, visibility="readonly")
    future = cython.declare(object, visibility="readonly")  # type: asyncio.Future[SendResult | None]
    error = cython.declare(object, visibility="readonly")  # type: Exception | None
    connection = cython.declare(object, visibility="readonly")  # type: Connection
    arrivals = cython.declare(cython.longlong, visibility="readonly")
    opaque = cython.declare(cython.longlong, visibility="readonly")
    _sends = cython.declare(object)
    _is_lent = cython.declare(cython.bint)  # its connection is lent to the thread that posts it
    _text = cython.declare(bytes)  # the property text, escaped as in JSON
    _window = cython.declare(object)

    def __init__(self):
        raise TypeError("FastSends makes these")

    @property
    def text(self):
        # type: (...) -> bytes
        """Return the property text as it travels in JSON, without quotes."""
        return self._text

    @property
    def size(self):
        # type: (...) -> int
        """Return the bytes of the body."""
        return len(self.body)

    def __call__(
        self,
        command,
    ):
        # type: (...) -> None
        """Take an answer that SendAnswers has not read; None: the connection broke."""
        result = None
        if command is None:
            self.error = self.connection.broken()
        elif command.code == _GO_AWAY:
            self._sends.remoting.forget(self._address(), self.connection)
        else:
            try:
                result = self._sends.sender.result(self, self.target.queue, command, self._address())
            except Exception as error:
                self.error = error
        self._end(result)

    @cython.cfunc
    def _address(self):
        line: Line = self.target._line
        return line.address

    def expire(self):
        # type: (...) -> None
        """Stop waiting for the answer, because the time is over."""
        self.forget()
        address = self._address()
        try:
            self._sends.remoting.close_if_silent(self.connection, address, self.arrivals, self.timeout_ms)
        except Exception:  # its waiter is told in any case
            log.exception("the connection to <%s> could not be closed", address)
        text = f"wait response on the channel <{address}> timeout, {self.timeout_ms}(ms)"
        self.error = RemotingTimeoutError(text, address=address, timeout_ms=self.timeout_ms)
        self._end(None)

    def forget(self):
        # type: (...) -> None
        """Stop waiting for the answer, because nobody wants it."""
        self.connection.forget(self.opaque)

    @cython.cfunc
    def _end(self, result):
        window: SendWindow
        if self._window is not None:
            window = self._window
            window._ended(self, result)
        elif self.future is not None and not self.future.done():  # None: `post` was interrupted
            self.future.set_result(result)


@cython.cclass
class SendWindow:
    """The messages of one `send_many` that are on their way.

    Args:
        most: so many of them, and …
        most_bytes: … bytes of their bodies; a larger message goes by itself.
        on_result: called with place and result of each.
        on_failure: called when there is something new in `failures` or `failed`, and nobody is in `wait` whom it wakes.

    Attributes:
        failures: what `on_result` raised.
        failed: messages whose first try failed.
    """

    in_flight = cython.declare(cython.longlong, visibility="readonly")
    in_flight_bytes = cython.declare(cython.longlong, visibility="readonly")
    failures = cython.declare(list, visibility="public")  # type: list[BaseException]
    failed = cython.declare(list, visibility="public")  # type: list[PendingSend]
    _most = cython.declare(cython.longlong)
    _most_bytes = cython.declare(cython.longlong)
    _on_result = cython.declare(object)
    _on_failure = cython.declare(object)
    _waiting = cython.declare(object)
    _wake_at = cython.declare(cython.longlong)

    def __init__(
        self,
        most,  # type: int
        most_bytes,  # type: int
        on_result,  # type: Callable[[int, SendResult], None]
        on_failure,  # type: Callable[[], object]
    ):
        self._most = most
        self._most_bytes = most_bytes
        self._on_result = on_result
        self._on_failure = on_failure
        self.in_flight = self.in_flight_bytes = 0
        self.failures = []
        self.failed = []
        self._waiting = None
        self._wake_at = 0

    @property
    def room(self):
        # type: (...) -> int
        """Return how many more messages may be on their way."""
        return self._most - self.in_flight

    @property
    def is_full(self):
        # type: (...) -> bool
        """Return whether no further message may go now, whatever its size."""
        return self._full()

    @cython.cfunc
    @cython.exceptval(check=False)
    def _full(self) -> cython.bint:
        if self.in_flight == 0:
            return False
        return self.in_flight >= self._most or self.in_flight_bytes >= self._most_bytes

    def fits(
        self,
        size: cython.longlong,
    ):
        # type: (...) -> bool
        """Return whether a message with a body of `size` bytes may go now."""
        return self._fits(size)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _fits(self, size: cython.longlong) -> cython.bint:
        if self.in_flight == 0:
            return True
        return self.in_flight < self._most and self.in_flight_bytes + size <= self._most_bytes

    def add(
        self,
        size: cython.longlong,
    ):
        # type: (...) -> None
        """Note that a message is on its way that FastSends has not taken."""
        self.in_flight += 1
        self.in_flight_bytes += size

    def end(
        self,
        size: cython.longlong,
        place: cython.longlong,
        result,  # type: SendResult | None
    ):
        # type: (...) -> None
        """Note that a message is not on its way any more; None: it failed."""
        self.in_flight -= 1
        self.in_flight_bytes -= size
        if result is not None:
            self._tell(place, result)
        self._wake()
        if self.failures:
            self._on_failure()

    def wait(
        self,
        loop,  # type: asyncio.AbstractEventLoop
        wake_at: cython.longlong,
    ):
        # type: (...) -> asyncio.Future[None]
        """Return a future that is done when at most `wake_at` messages are on their way, or one has failed."""
        self._waiting = loop.create_future()
        self._wake_at = wake_at
        self._wake()
        return self._waiting

    @cython.cfunc
    def _ended(self, pending: PendingSend, result):
        self.in_flight -= 1
        self.in_flight_bytes -= len(pending.body)
        if result is None:
            self.failed.append(pending)
        else:
            self._tell(pending.place, result)
        if self._waiting is not None:
            if self.in_flight <= self._wake_at or result is None or self.failures:
                self._wake()
        elif result is None or self.failures:
            self._on_failure()

    @cython.cfunc
    def _tell(self, place: cython.longlong, result):
        try:
            self._on_result(place, result)
        except (Exception, CancelledError) as error:
            self.failures.append(error)

    @cython.cfunc
    def _wake(self):
        waiting = self._waiting
        if waiting is not None and (self.in_flight <= self._wake_at or self.failed or self.failures):
            self._waiting = None
            if not waiting.done():
                waiting.set_result(None)


@cython.cclass
class _Topic:
    """The queues of a topic that may be sent to, with their targets."""

    name = cython.declare(str)
    is_retry = cython.declare(cython.bint)
    info = cython.declare(object)
    changes = cython.declare(cython.longlong)
    targets = cython.declare(list)

    @cython.cfunc
    def _of(self, queue):
        """Return the target of one queue; None if it is not there."""
        target: QueueTarget
        for target in self.targets:
            if target is not None and target.queue == queue:
                return target
        return None


@cython.cclass
class FastSends:
    """Sends the messages of one producer group for which the common case holds.

    Args:
        sender: the MessageSender, which knows the other cases.
        ids: gives messages theirs.

    Attributes:
        remoting: the connections.
    """

    sender = cython.declare(object, visibility="readonly")  # type: Any
    remoting = cython.declare(object, visibility="readonly")  # type: Any
    _routes = cython.declare(object)
    _brokers = cython.declare(object)
    _clock = cython.declare(object)
    _ids = cython.declare(object)
    _loop = cython.declare(object)
    _legal_topics = cython.declare(dict)
    _namespace = cython.declare(str)
    _most_body = cython.declare(cython.Py_ssize_t)
    _most_batch = cython.declare(cython.Py_ssize_t)
    _most_waiting = cython.declare(cython.Py_ssize_t)
    _topics = cython.declare(dict)
    _lines = cython.declare(dict)
    _unflushed = cython.declare(list)
    _used = cython.declare(set)  # connections on which messages of this window may wait
    _timer = cython.declare(object)
    _timer_ms = cython.declare(cython.longlong)
    _born_ms = cython.declare(cython.longlong)
    _born = cython.declare(bytes)
    _id_head = cython.declare(str)  # common beginning of the reserved ids
    _id_buffer = cython.declare(bytearray)  # the same, and room for four digits
    _id_number = cython.declare(cython.longlong)  # number of the next id
    _ids_left = cython.declare(cython.Py_ssize_t)
    _ids_wanted = cython.declare(cython.Py_ssize_t)  # ids that are reserved when the first one is needed
    _made = cython.declare(bytearray)  # memory in which the bodies of small batches are put together
    _large = cython.declare(cython.Py_ssize_t)

    def __init__(
        self,
        sender,  # type: Any
        instance,  # type: MQClientInstance
        config,  # type: ProducerConfig
        loop,  # type: asyncio.AbstractEventLoop
        ids,  # type: UniqIdGenerator
    ):
        self.sender = sender
        self.remoting = instance.remoting
        self._routes = instance.routes
        self._brokers = instance.brokers
        self._clock = instance.environment.clock
        self._ids = ids
        self._loop = loop
        self._legal_topics = sender.preparer.legal_topics
        self._namespace = config.namespace
        self._most_body = min(config.compress_msg_body_over_howmuch - 1, config.max_message_size)
        self._most_batch = config.max_message_size
        self._most_waiting = self.remoting.request_limit
        self._topics = {}
        self._lines = {}
        self._unflushed = []
        self._used = set()
        self._timer = None
        self._timer_ms = 0
        self._born_ms = 0
        self._born = b""
        self._id_head = ""
        self._id_buffer = bytearray(4)
        self._id_number = self._ids_left = 0
        self._ids_wanted = 1
        self._made = bytearray()
        self._large = _LARGE

    # --- taking messages ---

    def post(
        self,
        message,  # type: Message
        queue,  # type: MessageQueue | None
        timeout_ms: cython.longlong,
        waiter=None,  # type: SendWaiter | None
    ):
        # type: (...) -> PendingSend | None
        """Send a message to `queue`, or to the next one in turn.

        Args:
            waiter: gets the outcome in place of a future.

        Returns:
            The message on its way; await its future. None: it is not to be sent in this way, because it is no plain
            Message of bytes with a dictionary of texts, has a flag, is to be compressed, prepares a transaction, is a
            reply, or because its topic is new, its queue of a static topic, the broker not connected, or too many
            requests wait for answers. Messages of a producer with hooks or signatures never come here.
        """
        topic: _Topic = self._topic(message)
        if topic is None:
            return None
        target: QueueTarget = self._next(topic) if queue is None else topic._of(queue)
        if target is None:
            return None
        line: Line = target._line
        if not line._use(self.remoting.open_connection(line.address)):
            return None
        is_alone: cython.bint = len(line.waiters) == 0
        self._at(self._clock.wall_ms())
        self._want_ids(1)
        pending: PendingSend = self._encode(message, topic, target, self._clock.monotonic_ms(), timeout_ms)
        if pending is None or not self._leave(pending, line, is_alone, waiter):
            return None
        if queue is None:
            topic.info.index += 1
        return pending

    def post_batch(
        self,
        messages,  # type: list[Message] | tuple[Message, ...]
        queue,  # type: MessageQueue | None
        timeout_ms: cython.longlong,
        waiter=None,  # type: SendWaiter | None
    ):
        # type: (...) -> PendingSend | None
        """Send messages in one request, as `post` does one message. None: one of them is special (also a delayed one,
        or one that does not wait until it is stored), or all together are too large."""
        messages = tuple(messages)  # a copy: the messages that are encoded must be those for which room was counted
        if len(messages) == 0:
            return None
        topic: _Topic = self._topic(messages[0])
        if topic is None or topic.is_retry:
            return None
        try:
            encoded = self._batch(messages)
        finally:
            if len(self._made) > _KEPT_ROOM:
                self._made = bytearray()
        if encoded is None:
            return None
        return self._post_body(encoded[0], encoded[1], topic, queue, timeout_ms, waiter)

    def post_encoded(
        self,
        name: str,
        body: object,  # type: bytes | memoryview
        queue,  # type: MessageQueue | None
        timeout_ms: cython.longlong,
    ):
        # type: (...) -> PendingSend | None
        """Send the body of a batch for the topic of this name, as `post_batch` does. A large one is not copied: its
        memory must stay as it is for as long as somebody refers to it."""
        topic: _Topic = self._topic_of(name)
        size: cython.Py_ssize_t = len(body)
        if topic is None or size > self._most_batch:
            return None
        if size < self._large:
            body = bytes(body)
        return self._post_body(body, "", topic, queue, timeout_ms, None)

    @cython.cfunc
    def _post_body(self, body, ids: str, topic: _Topic, queue, timeout_ms: cython.longlong, waiter):
        """Send the body of a batch of messages with these ids."""
        target: QueueTarget = self._next(topic) if queue is None else topic._of(queue)
        if target is None:
            return None
        line: Line = target._line
        if not line._use(self.remoting.open_connection(line.address)) or len(line.waiters) >= self._most_waiting:
            return None
        is_alone: cython.bint = len(line.waiters) == 0
        if target._of_batches is None:
            target._of_batches = QueueTarget(
                target.queue, line, self.sender.header_with_marks(target.queue, is_batch=True)
            )
        target = target._of_batches
        self._at(self._clock.wall_ms())
        own = {_INSTANCE_ID: self._namespace} if self._namespace else {}
        now_ms: cython.longlong = self._clock.monotonic_ms()
        pending: PendingSend = self._frame(
            self._pending(line), body, own, 2 * len(own) + len(_INSTANCE_ID) + len(self._namespace), topic, target,
            now_ms, timeout_ms,
        )  # fmt: skip
        if pending is None:
            return None
        pending.msg_id = ids
        pending.is_batch = True
        if not self._leave(pending, line, is_alone, waiter):
            return None
        if queue is None:
            topic.info.index += 1
        return pending

    @cython.cfunc
    @cython.exceptval(-1)
    def _leave(self, pending: PendingSend, line: Line, is_alone: cython.bint, waiter) -> cython.bint:
        """Write what was posted: at once if nothing else waits for this broker's answers, else with all that is posted
        in this turn of the loop. Returns False if it is not on its way."""
        pending.future = self._loop.create_future() if waiter is None else waiter
        if is_alone or line._body or line._filled > _KEPT_ROOM:
            line.flush()
        elif line not in self._unflushed:
            if not self._unflushed:
                self._loop.call_soon(self._flush)
            self._unflushed.append(line)
        return True

    def post_many(
        self,
        numbered,  # type: list[tuple[int, Message]]
        window: SendWindow,
        timeout_ms: cython.longlong,
    ):
        # type: (...) -> int
        """Send messages, each with its place, as far as the window has room and `post` would take them.

        Returns:
            How many of them were taken.
        """
        topic: _Topic = None
        target: QueueTarget
        line: Line
        pending: PendingSend
        name = None
        taken: cython.Py_ssize_t = 0
        now_ms: cython.longlong = self._clock.monotonic_ms()
        lines: list = []
        self._at(self._clock.wall_ms())
        self._want_ids(min(len(numbered), max(window._most - window.in_flight, 1)))
        try:
            for place, message in numbered:
                if window._full():
                    break
                if topic is None or type(message) is not Message or slot_value(message, _TOPIC) is not name:
                    topic = self._topic(message)
                    if topic is None:
                        break
                    name = slot_value(message, _TOPIC)
                body = slot_value(message, _BODY)
                if type(body) is not bytes or not window._fits(len(body)):
                    break
                target = self._next(topic)
                if target is None:
                    break
                line = target._line
                if line not in lines:
                    if not line._use(self.remoting.open_connection(line.address)):
                        break
                    lines.append(line)
                pending = self._encode(message, topic, target, now_ms, timeout_ms)
                if pending is None:
                    break
                topic.info.index += 1
                pending.place = place
                pending._window = window
                window.in_flight += 1
                window.in_flight_bytes += len(pending.body)
                taken += 1
        finally:  # messages that were taken are sent even if other code has raised
            for line in lines:
                line.flush()
        return taken

    def _flush(self):
        # type: (...) -> None
        lines: list = self._unflushed
        line: Line
        self._unflushed = []
        for line in lines:
            if line.connection is not None:
                line.flush()

    # --- where to ---

    @cython.cfunc
    def _topic(self, message):
        """Return the queues for a message; None if it is not a plain one, or its topic is not known yet."""
        if type(message) is not Message:
            return None
        name = slot_value(message, _TOPIC)
        return self._topic_of(name) if type(name) is str else None

    @cython.cfunc
    def _topic_of(self, user_name):
        """Return the queues of a topic; None if it is not known yet."""
        topic: _Topic
        name = self._legal_topics.get(user_name)
        if name is None:
            return None
        info = self._routes.known_publish_info(name)
        if info is None or not info.queues:
            return None
        topic = self._topics.get(name)
        if topic is None or topic.info is not info or topic.changes != self._brokers.changes:
            topic = self._make_topic(name, info)
        return topic

    @cython.cfunc
    def _make_topic(self, name, info):
        topic: _Topic = _Topic()
        topic.name, topic.info, topic.changes = name, info, self._brokers.changes
        topic.is_retry = name.startswith(RETRY_PREFIX)
        topic.targets = []
        for queue in info.queues:
            address = self.sender.address(queue)
            header = None if address is None else self.sender.header_with_marks(queue)
            if header is None:
                topic.targets.append(None)
                continue
            line = self._lines.get(address)
            if line is None:
                line = self._lines[address] = Line(address)
            topic.targets.append(QueueTarget(queue, line, header))
        if len(self._topics) >= _MOST_TOPICS:
            self._topics.clear()
            self._lines = {line.address: line for line in self._unflushed}
        self._topics[name] = topic
        return topic

    @cython.cfunc
    def _next(self, topic: _Topic):
        """Return the target of the next queue in turn; None if it cannot be sent to in this way. Its turn ends
        (`info.index`) when a message was sent: a queue that takes no message leaves the turn to the next one."""
        index: cython.longlong = topic.info.index + 1
        return topic.targets[index % len(topic.targets)]

    # --- encoding ---

    @cython.cfunc
    def _at(self, wall_ms: cython.longlong):
        """Set the time at which the next messages are born."""
        if wall_ms != self._born_ms:
            self._born_ms = wall_ms
            self._born = str(wall_ms).encode()

    @cython.cfunc
    @cython.exceptval(check=False)
    def _want_ids(self, count: cython.Py_ssize_t) -> cython.void:
        """Reserve so many ids when the first message without one comes, with the time of that moment."""
        self._ids_wanted = count
        self._ids_left = 0

    @cython.cfunc
    def _new_id(self):
        if self._ids_left == 0:
            head, self._id_number = self._ids.reserve(self._ids_wanted)
            self._ids_left = self._ids_wanted
            if head is not self._id_head:
                self._id_head = head
                self._id_buffer = bytearray(head.encode() + b"0000")
        self._ids_left -= 1
        number: cython.longlong = self._id_number
        self._id_number = number + 1
        out: cython.p_uchar
        if cython.compiled:
            out = cython.cast(cython.p_uchar, cython.cast(cython.p_char, self._id_buffer))
        else:
            out = self._id_buffer
        size: cython.Py_ssize_t = len(self._id_buffer)
        i: cython.int
        for i in range(4):
            out[size - 4 + i] = _UPPER_HEX[(number >> (12 - 4 * i)) & 15]
        return take_ascii(out, 0, size)

    @cython.cfunc
    def _encode(
        self,
        message,
        topic: _Topic,
        target: QueueTarget,
        now_ms: cython.longlong,
        timeout_ms: cython.longlong,
    ):
        """Put the request of a message into the buffer of its line, and note who waits for the answer. Returns None if
        the message is not to be sent in this way."""
        line: Line = target._line
        body = slot_value(message, _BODY)
        properties = slot_value(message, _PROPERTIES)
        flag = slot_value(message, _FLAG)
        if type(body) is not bytes or type(properties) is not dict or type(flag) is not int or flag != 0:
            return None
        size: cython.Py_ssize_t = len(body)
        if size == 0 or size > self._most_body or len(line.waiters) >= self._most_waiting:
            return None
        pairs: dict = properties
        msg_id = pairs.get(_UNIQ_KEY)
        if msg_id is None:
            msg_id = pairs[_UNIQ_KEY] = self._new_id()
        elif type(msg_id) is not str:
            return None
        if self._namespace:
            pairs[_INSTANCE_ID] = self._namespace
        pending: PendingSend = self._pending(line)
        characters: cython.Py_ssize_t = 0
        for name, value in pairs.items():
            if type(name) is not str or type(value) is not str or name in _SPECIAL:
                return None
            characters += len(name) + len(value) + 2
        if characters > _MOST_TEXT:
            return None
        pending = self._frame(pending, body, pairs, characters, topic, target, now_ms, timeout_ms)
        if pending is not None:
            pending.msg_id = msg_id
        return pending

    @cython.cfunc
    def _pending(self, line: Line):
        """Make what waits for the answer to the next request of a line, and write a large body that the new frame
        cannot follow. Other Python code may run here: a signal handler, a finalizer, another thread. It cannot run from
        there until the frame is complete, so that the properties that are counted are those that are written."""
        pending: PendingSend = PendingSend.__new__(PendingSend)
        pending.opaque = self.remoting.next_opaque()
        while line._body:
            line.flush()
        return pending

    @cython.cfunc
    def _frame(
        self,
        pending: PendingSend,
        body,
        pairs: dict,
        characters: cython.Py_ssize_t,
        topic: _Topic,
        target: QueueTarget,
        now_ms: cython.longlong,
        timeout_ms: cython.longlong,
    ):
        """Put a request into the buffer of its line, and note who waits for the answer. Returns None if one of the
        properties cannot be sent in this way. `characters` of them, with two for each pair, are at most so many."""
        line: Line = target._line
        size: cython.Py_ssize_t = len(body)
        is_large: cython.bint = size >= self._large
        line._reserve(
            6 * characters + len(target._before_time) + len(target._before_text) + len(target._before_opaque)
            + len(target._behind) + (0 if is_large else size) + _SPARE
        )  # fmt: skip
        out: cython.p_uchar
        start: cython.Py_ssize_t = line._filled
        if cython.compiled:
            out = cython.cast(cython.p_uchar, cython.cast(cython.p_char, line._out))
        else:
            out = line._out
        p: cython.Py_ssize_t = put_bytes(out, start + 8, target._before_time)
        p = put_bytes(out, p, self._born)
        p = put_bytes(out, p, target._before_text)
        text: cython.Py_ssize_t = p
        bytes_of_text: cython.Py_ssize_t = 2 * len(pairs)
        at: cython.Py_ssize_t
        try:
            for name, value in pairs.items():
                at = p
                p = put_utf8(out, at, name)
                bytes_of_text += p - at
                p = _escaped(out, at, p)
                if p < 0:
                    return None
                at = p = put_bytes(out, p, b"\\u0001")
                p = put_utf8(out, at, value)
                bytes_of_text += p - at
                p = _escaped(out, at, p)
                if p < 0:
                    return None
                p = put_bytes(out, p, b"\\u0002")
        except UnicodeEncodeError:
            return None
        if bytes_of_text > _MOST_TEXT:
            return None
        pending._text = take_bytes(out, text, p - text)
        p = put_bytes(out, p, target._before_opaque)
        p = put_number(out, p, pending.opaque)
        p = put_bytes(out, p, target._behind)
        put32(out, start + 4, p - start - 8)
        put32(out, start, p - start - 4 + size)
        if is_large:
            line._body = body
        else:
            p = put_bytes(out, p, body)
        line._filled = p
        line._count += 1
        pending._sends = self
        pending.topic = topic.name
        pending.body = body
        pending.target = target
        pending.born_ms = self._born_ms
        pending.timeout_ms = timeout_ms
        pending.deadline_ms = now_ms + timeout_ms
        connection = line.connection
        pending.connection = connection
        pending.arrivals = connection.arrivals
        self._await(pending, line, now_ms)
        return pending

    @cython.cfunc
    def _await(self, pending: PendingSend, line: Line, now_ms: cython.longlong):
        """Note who waits for the answer to a request that leaves with the next write."""
        line.waiters[pending.opaque] = pending
        if self._timer is None or pending.deadline_ms < self._timer_ms:
            self._arm(now_ms, pending.deadline_ms)
        if line.connection not in self._used:
            self._used.add(line.connection)

    @cython.cfunc
    def _batch(self, messages):
        """Encode the body of a batch. Returns it and the ids of the messages, joined by commas; None if one of them is
        special, or they are too large together."""
        if len(messages) > _MOST_IN_BATCH:
            return None
        topic = slot_value(messages[0], _TOPIC)
        most: cython.Py_ssize_t = min(self._most_batch, _MOST_BATCH)
        size: cython.Py_ssize_t = 0  # without properties
        pairs: dict
        ids: list = []
        bodies: list = []  # two lists, because a tuple for each message could start the cycle collector, and so
        maps: list = []  # other code, while they are written
        self._want_ids(len(messages))
        for message in messages:
            if type(message) is not Message:
                return None
            name = slot_value(message, _TOPIC)
            if name is not topic and (type(name) is not str or name != topic):
                return None
            flag = slot_value(message, _FLAG)
            if type(flag) is not int or flag != 0:
                return None
            body = slot_value(message, _BODY)
            properties = slot_value(message, _PROPERTIES)
            if type(body) is not bytes or type(properties) is not dict or len(body) == 0:
                return None
            pairs = properties
            msg_id = pairs.get(_UNIQ_KEY)
            if msg_id is None:
                msg_id = pairs[_UNIQ_KEY] = self._new_id()
            elif type(msg_id) is not str:
                return None
            if self._namespace:
                pairs[_INSTANCE_ID] = self._namespace
            ids.append(msg_id)
            bodies.append(body)
            maps.append(pairs)
            size += len(body) + 22
            if size > most:
                return None
        # Not earlier: there the code of a key may run, and change other messages.
        out: cython.p_uchar
        p: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        start: cython.Py_ssize_t
        text: cython.Py_ssize_t
        self._reserve_made(size)
        try:
            for i in range(len(bodies)):
                start = p
                body = bodies[i]
                self._reserve_made(start + len(body) + 22)
                out = self._made_bytes()
                p = put_bytes(out, p + 20, body)
                for text in range(start + 4, start + 16, 4):  # magic code, check sum and flag: the memory was used
                    put32(out, text, 0)
                put32(out, start + 16, p - start - 20)
                text = p + 2
                p = self._put_pairs(text, maps[i])
                if p < 0 or p > most:
                    return None
                out = self._made_bytes()
                out[text - 2] = (p - text) >> 8
                out[text - 1] = (p - text) & 0xFF
                put32(out, start, p - start)
        except UnicodeEncodeError:
            return None
        return take_bytes(self._made_bytes(), 0, p), ",".join(ids)

    @cython.cfunc
    @cython.exceptval(-1)
    def _reserve_made(self, size: cython.Py_ssize_t) -> cython.int:
        """Make the buffer in which a batch is encoded at least `size` bytes long."""
        missing: cython.Py_ssize_t = size - len(self._made)
        if missing > 0:
            self._made += bytes(max(missing, len(self._made)))
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _made_bytes(self) -> cython.p_uchar:
        """Return the bytes of a batch that is put together, until there is more room for them."""
        if cython.compiled:
            return cython.cast(cython.p_uchar, cython.cast(cython.p_char, self._made))
        return self._made

    @cython.cfunc
    @cython.exceptval(-2)
    def _put_pairs(self, p: cython.Py_ssize_t, pairs: dict) -> cython.Py_ssize_t:
        """Write properties as they are stored; returns the position behind them, or -1 if one is special or has a byte
        that separates properties, or they are too long."""
        start: cython.Py_ssize_t = p
        for name, value in pairs.items():
            if type(name) is not str or type(value) is not str:
                return -1
            if name in _SPECIAL_IN_BATCH and not (self._namespace and name == _INSTANCE_ID):
                return -1
            p = self._put_part(p, name, 1)
            if p < 0:
                return -1
            p = self._put_part(p, value, 2)
            if p < 0 or p - start > _MOST_TEXT:
                return -1
        return p

    @cython.cfunc
    @cython.exceptval(-2)
    def _put_part(self, p: cython.Py_ssize_t, text: str, separator: cython.int) -> cython.Py_ssize_t:
        """Write the name or the value of a property and the byte behind it; returns the position behind that, or -1 if
        one of the bytes that separate properties is in it, or it is too long."""
        if len(text) > _MOST_TEXT:
            return -1
        self._reserve_made(p + 4 * len(text) + 1)
        out: cython.p_uchar = self._made_bytes()
        end: cython.Py_ssize_t = put_utf8(out, p, text)
        if has_separator(out, p, end):
            return -1
        out[end] = separator
        return end + 1

    # --- time ---

    @cython.cfunc
    def _arm(self, now_ms: cython.longlong, deadline_ms: cython.longlong):
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_later(max(deadline_ms - now_ms, 1) / 1000.0, self._expire)

    def _expire(self):
        # type: (...) -> None
        """End the waits of all whose time is over, and look again when the next one's is."""
        self._timer = None
        now_ms: cython.longlong = self._clock.monotonic_ms()
        next_ms: cython.longlong = 0
        pending: PendingSend
        late: list = []
        for connection in list(self._used):
            waits: cython.bint = False
            for waiter in connection.waiters.values():
                if type(waiter) is not PendingSend:
                    continue
                pending = waiter
                if pending._sends is not self:
                    continue
                waits = True
                if pending.deadline_ms <= now_ms:
                    late.append(pending)
                elif next_ms == 0 or pending.deadline_ms < next_ms:
                    next_ms = pending.deadline_ms
            if not waits:
                self._used.discard(connection)
        if next_ms:
            self._arm(now_ms, next_ms)
        for pending in late:
            pending.expire()

    def close(self):
        # type: (...) -> None
        """Stop the timer that looks for sends whose time is over, unless messages are still on their way. Call it when
        the producer is shut down."""
        for connection in list(self._used):  # a copy, because a thread may add connections, and its waiters
            for waiter in list(connection.waiters.values()):
                if type(waiter) is PendingSend:
                    return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@cython.cfunc
@cython.inline
@cython.exceptval(-2)
def _escaped(out: cython.p_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Rewrite the UTF-8 text in out[start:end] as it stands in a JSON string, where six bytes for each of its own may
    be needed; returns the position behind it, or -1 if it has one of the bytes that separate properties."""
    first: cython.Py_ssize_t = find_unplain(out, start, end)
    return end if first == end else _put_text(out, first, take_bytes(out, first, end - first))


@cython.cfunc
@cython.exceptval(check=False)
def _put_text(out: cython.p_uchar, p: cython.Py_ssize_t, data: bytes) -> cython.Py_ssize_t:
    """Write UTF-8 text as it stands in a JSON string; returns the position behind it, or -1 if it has one of the bytes
    that separate properties."""
    i: cython.Py_ssize_t
    c: cython.int
    for i in range(len(data)):
        c = data[i]
        if c >= 0x20 and c != 0x22 and c != 0x5C:
            out[p] = c
            p += 1
            continue
        if c == 1 or c == 2:
            return -1
        out[p] = 0x5C
        if c >= 0x20:
            out[p + 1] = c
            p += 2
        elif 8 <= c <= 13 and c != 11:
            out[p + 1] = _SHORT[c - 8]
            p += 2
        else:
            p = put_bytes(out, p + 1, b"u00")
            out[p] = _HEX[c >> 4]
            out[p + 1] = _HEX[c & 15]
            p += 2
    return p


@cython.cclass
class SendAnswers(AnswerScanner):
    """Reads answers to messages that FastSends has sent."""

    _queue_id = cython.declare(cython.longlong)
    _queue_offset = cython.declare(cython.longlong)
    _seen = cython.declare(cython.int)
    _places = cython.declare(cython.Py_ssize_t[10])  # position and size: msgId, transactionId, region, trace, recall
    _region = cython.declare(bytes)
    _region_text = cython.declare(str)

    def __init__(self):
        self.signed = False
        self._waiter_type = PendingSend
        self._region = b""
        self._region_text = ""
        if not cython.compiled:
            self._places = [0] * 10

    def take(
        self,
        connection,  # type: Connection
        buffer: cython.uchar[::1],  # type: bytearray | memoryview
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ):
        # type: (...) -> int
        """Take the leading answers in buffer[start:end] and tell who waits for them. Returns the position behind
        them."""
        waiters: dict = connection.waiters
        pending: PendingSend
        buf: cython.p_uchar
        if cython.compiled:
            buf = cython.address(buffer[0])
        else:
            buf = memoryview(buffer)
        while waiters:
            waiter = self._next(waiters, buf, start, end)
            if waiter is None:
                break
            pending = waiter
            del waiters[self._opaque]
            pending._end(self._result(buf, pending))
            start = self._answer_end
        return start

    @cython.cfunc
    @cython.exceptval(check=False)
    def _begin(self) -> cython.void:
        i: cython.int
        self._seen = 0
        for i in range(10):
            self._places[i] = 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_whole(self) -> cython.bint:
        return self._seen == 7

    @cython.cfunc
    @cython.exceptval(check=False)
    def _wants(self) -> cython.bint:
        return self._code == 0 or 10 <= self._code <= 12

    @cython.cfunc
    @cython.exceptval(check=False)
    def _field(self, buf: cython.p_uchar, key: cython.Py_ssize_t, key_size: cython.Py_ssize_t) -> cython.bint:
        slot: cython.int = -1
        if self._escaped:
            return False
        if key_size == 5:
            if same_bytes(buf, key, key_size, b"msgId"):
                self._seen |= 1
                slot = 0
        elif key_size == 7:
            if same_bytes(buf, key, key_size, b"queueId"):
                self._seen |= 2
                self._queue_id = self._integer(buf)
                return self._queue_id >= 0
        elif key_size == 8:
            if same_bytes(buf, key, key_size, b"TRACE_ON"):
                slot = 3
        elif key_size == 10:
            if same_bytes(buf, key, key_size, b"MSG_REGION"):
                slot = 2
        elif key_size == 11:
            if same_bytes(buf, key, key_size, b"queueOffset"):
                self._seen |= 4
                self._queue_offset = self._integer(buf)
                return self._queue_offset >= 0
        elif key_size == 12:
            if same_bytes(buf, key, key_size, b"recallHandle"):
                slot = 4
        elif key_size == 13 and same_bytes(buf, key, key_size, b"transactionId"):
            slot = 1
        if slot >= 0:
            self._places[2 * slot] = self._text
            self._places[2 * slot + 1] = self._text_size
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def _takes(self, waiters: dict, pending: PendingSend, buf: cython.p_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Return whether the bytes are the answer to this message and nothing else; then it waits no longer. No Python
        code runs."""
        if self._next(waiters, buf, 0, size) is not pending or self._answer_end != size:
            return False
        del waiters[self._opaque]
        return True

    @cython.cfunc
    def _value(self, buf: cython.p_uchar, slot: cython.int):
        """Return a field; None if it is not there."""
        if self._places[2 * slot] == 0:
            return None
        return take_bytes(buf, self._places[2 * slot], self._places[2 * slot + 1]).decode("utf-8", "replace")

    @cython.cfunc
    def _result(self, buf: cython.p_uchar, pending: PendingSend):
        target: QueueTarget = pending.target
        queue = target.queue
        if self._queue_id != target._queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, self._queue_id)
        region: bytes = take_bytes(buf, self._places[4], self._places[5])
        if region != self._region:
            self._region, self._region_text = region, region.decode("utf-8", "replace")
        is_traced: cython.bint = not same_bytes(buf, self._places[6], self._places[7], b"false")
        msg_id = self._value(buf, 0)
        result = _new_tuple(
            SendResult,
            (
                _STATUS_OF_CODE[self._code],
                pending.msg_id or msg_id,
                queue,
                self._queue_offset,
                msg_id,
                self._value(buf, 1),
                self._region_text or "DefaultRegion",
                is_traced,
                self._value(buf, 4),
            ),
        )
        if cython.compiled:
            untrack(result)  # nothing in it can refer back to it: the cycle collector need not look at many of them
        return result


@cython.cclass
class ThreadSends(FastSends):
    """FastSends for threads besides that of the event loop, which has an object of its own: what a thread posts leaves
    before `post` or `post_batch` returns, and no other thread has to be woken. Answers are taken on the loop, or by the
    thread that waits for one, if nothing else is under way on the connection: from the moment in which it sends until
    it has the answer the loop does not read this connection, and is not woken.

    It takes nothing (None) where something else is to be sent before on a connection, and while another thread posts,
    or code that was interrupted: it waits for none of them.

    Attributes:
        is_receiving: a thread waits for something to come on a connection that is lent to it.
    """

    _is_busy = cython.declare(cython.bint)
    is_receiving = cython.declare(cython.bint, visibility="readonly")
    _answers = cython.declare(SendAnswers)
    _answer = cython.declare(bytearray)
    _to_skip = cython.declare(cython.int)  # further sends for which no thread tries to receive the answer
    _misses = cython.declare(cython.int)  # value of `_to_skip` after the last try that failed

    def __init__(
        self,
        sender,  # type: Any
        instance,  # type: MQClientInstance
        config,  # type: ProducerConfig
        loop,  # type: asyncio.AbstractEventLoop
        ids,  # type: UniqIdGenerator
    ):
        FastSends.__init__(self, sender, instance, config, loop, ids)
        self._large = _LARGE_AT_ONCE
        self._is_busy = self.is_receiving = False
        self._answers = SendAnswers()
        self._answer = bytearray(_ANSWER_ROOM)
        self._to_skip = self._misses = 0

    def post(
        self,
        message,  # type: Message
        queue,  # type: MessageQueue | None
        timeout_ms: cython.longlong,
        waiter=None,  # type: SendWaiter | None
    ):
        # type: (...) -> PendingSend | None
        """Send a message before this returns, as `FastSends.post` describes; None also while another thread sends. The
        waiter may have the outcome when this returns."""
        pending: PendingSend
        if self._is_busy:
            return None
        self._is_busy = True
        try:
            pending = FastSends.post(self, message, queue, timeout_ms, waiter)
        finally:
            self._is_busy = False
        if pending is not None and pending._is_lent:
            self._received(pending)
        return pending

    def post_batch(
        self,
        messages,  # type: list[Message] | tuple[Message, ...]
        queue,  # type: MessageQueue | None
        timeout_ms: cython.longlong,
        waiter=None,  # type: SendWaiter | None
    ):
        # type: (...) -> PendingSend | None
        """Send messages in one request before this returns, as `FastSends.post_batch` describes; None also while
        another thread sends. The waiter may have the outcome when this returns."""
        pending: PendingSend
        if self._is_busy:
            return None
        self._is_busy = True
        try:
            pending = FastSends.post_batch(self, messages, queue, timeout_ms, waiter)
        finally:
            self._is_busy = False
        if pending is not None and pending._is_lent:
            self._received(pending)
        return pending

    @cython.cfunc
    def _received(self, pending: PendingSend):
        """Receive the answer to a message whose connection is lent to this thread, and tell who waits for it. If
        something else comes, nothing in time, or a signal, the loop goes on. After a try that came to nothing some
        sends go without, twice as many each time."""
        connection = pending.connection
        reads = self.remoting.batched_reads
        requests = connection._requests  # not `waiters`, which is Python code
        waiters: dict = requests.waiters
        result = None
        buf: cython.p_uchar
        size: cython.Py_ssize_t = receive_lent(connection, reads, self._answer, _ANSWER_WAIT_MS)
        try:
            if size > 0:
                if cython.compiled:
                    buf = cython.cast(cython.p_uchar, cython.cast(cython.p_char, self._answer))
                else:
                    buf = memoryview(self._answer)
                if self._answers._takes(waiters, pending, buf, size):
                    give_back(connection, reads, b"")
                    result = self._answers._result(buf, pending)
                else:
                    give_back(connection, reads, take_bytes(buf, 0, size))
                    self._call(connection.leave_batched_reads)
        finally:
            self.is_receiving = False
        if result is None:
            self._miss()
        else:
            self._misses = 0
            pending._end(result)

    @cython.cfunc
    def _miss(self):
        self._to_skip = self._misses = min(2 * self._misses + 1, _MOST_MISSES)

    @cython.cfunc
    def _call(self, work):
        """Let the loop call a function. If it was closed meanwhile, who waits for answers is told. No handler of a
        signal runs before the loop has the function."""
        try:  # noqa: SIM105 -- `suppress` is Python code, before which a handler runs
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            pass

    @cython.cfunc
    def _await(self, pending: PendingSend, line: Line, now_ms: cython.longlong):
        """Do nothing: `_leave` notes who waits for the answer, in the same moment in which it sends the request."""

    @cython.cfunc
    @cython.exceptval(-1)
    def _leave(self, pending: PendingSend, line: Line, is_alone: cython.bint, waiter) -> cython.bint:
        connection = line.connection
        out: cython.p_uchar
        if cython.compiled:
            out = cython.cast(cython.p_uchar, cython.cast(cython.p_char, line._out))
        else:
            out = line._out
        frame = take_bytes(out, 0, line._filled)
        body = line._body
        line._filled = line._count = 0
        line._body = b""
        pending.future = waiter
        self._used.add(connection)
        is_timed: cython.bint = self._timer is not None and pending.deadline_ms >= self._timer_ms
        reads = self.remoting.batched_reads
        lent: cython.int = 0
        if is_timed and not (line.waiters or self.is_receiving):
            if self._to_skip > 0:
                self._to_skip -= 1
            else:
                lent = lend(connection, reads)
        left: cython.Py_ssize_t = send_at_once(connection, pending.opaque, pending, frame, body)
        if lent > 0 and left == 0:
            # No Python code runs from `lend` until the answer is received: it could wait for one on this connection.
            self.is_receiving = pending._is_lent = True
            return True
        if lent > 0:
            give_back(connection, reads, b"")
        if left < 0:
            return False
        if lent < 0:
            self._miss()
            self._call(connection.join_batched_reads)
        if left:
            self._call(connection.send_left)
        if not is_timed:
            self._call(partial(self._arm_by, pending.deadline_ms))
        return True

    def _arm_by(self, deadline_ms):
        # type: (...) -> None
        """Look at the time not later than at a deadline."""
        if self._timer is None or deadline_ms < self._timer_ms:
            self._arm(self._clock.monotonic_ms(), deadline_ms)


def is_compiled() -> bool:
    """Return whether this module was loaded as its compiled extension, and not as Python source."""
    return bool(cython.compiled)
