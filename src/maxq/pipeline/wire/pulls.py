"""Pulling a range of one queue: chunks of records, in order, each offset once, through whatever happens meanwhile.

A MaxQ broker answers `maxqMaxBytes` with as much at once; the next pull leaves as soon as the head of an answer has
come, before its body. A Java broker ignores that field and answers 32 messages a pull; there pulls go out ahead, at the
offsets where the next answers should begin, and an answer that begins elsewhere than where the last one ended is
thrown away.

    answer                      what it means here
    0 FOUND                     a chunk
    19, 20 nothing, go on at n  a chunk without records: a hole, or messages that the filter rejects; without progress
                                wait, ask others
    21 offset moved             below the oldest: expired; at or behind the end: the topic was made again, the log was
                                cut, or a slave lags; between: a reset of the group's offsets was told, ask again
    17, 29 no such topic, queue deleted
    else                        busy: wait; refused: an error that says so
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn

from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, PipelineError, RemoteProtocolError, RemotingError
from maxq.pipeline.records.losses import Losses
from maxq.pipeline.wire.connection import BlockingConnection
from maxq.pipeline.wire.queue_range import QueueRange
from maxq.pipeline.wire.wire_client import TOOLS_GROUP, WireClient
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PULL_FLAG_SUBSCRIPTION
from maxq.protocol.offset_runs import read_runs

log: Final = logging.getLogger(__name__)

_MOST_MESSAGES: Final = 65_536  # most messages of one pull
_PULLS_AHEAD: Final = 8  # most pulls under way at a broker whose answers are small
#: Milliseconds after which a master that lacks messages is believed (it may be starting), or half of
#: rocketmq.brokerWait.
_MASTER_GRACE_MS: Final = 5_000
_WAIT_MS: Final = (20, 50, 100, 200, 500, 1_000)
_NO_PROGRESS: Final = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
_GONE: Final = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER)
_REFUSED: Final = (
    ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
)  # fmt: skip


class SelectionHint(NamedTuple):
    """A condition that all wanted messages meet, by which a broker may leave out others."""

    kind: str  # TAG or SQL92
    expression: str


@dataclass(frozen=True)
class PullSettings:
    """How ranges are pulled.

    Attributes:
        group: whose rights count; TOOLS_GROUP for readers without group.
        expression, expression_type: what the broker selects by (TAG or SQL92).
        hint: a further selection that only saves bytes; a broker that refuses it is asked without it.
        omit: parts of records that nobody needs (maxqOmit).
        fetch_bytes: of one answer, as far as the broker can.
    """

    group: str = TOOLS_GROUP
    expression: str = "*"
    expression_type: str = "TAG"
    hint: SelectionHint | None = None
    omit: str = ""
    fetch_bytes: int = 4 << 20

    @property
    def selects(self) -> bool:
        """Return whether the broker filters the messages. A filtered message then looks like a missing one."""
        return self.expression != "*" or self.hint is not None


class Chunk(NamedTuple):
    """The records of one answer.

    Attributes:
        view: whole records, or nothing; valid until the next chunk is asked for.
        first, next: offsets that the answer covers; records of `next` and behind may be in it only if `next` is past
            the end of the range.
        delta: added to the records' own queue offsets (static topics); None: they are right.
        available: first and one past the last offset that the broker has.
        is_master: a master sent it; what a slave lacks, or has damaged, its master may have.
        passed_over: ranges [first, end) of the records' own offsets at which a MaxQ broker has no whole record,
            whatever it was to select.
    """

    view: memoryview
    first: int
    next: int
    delta: int | None
    available: tuple[int, int]
    is_master: bool
    passed_over: Sequence[tuple[int, int]] = ()


@dataclass
class _PullsUnderWay:
    """The pulls of one connection whose answers have not been yielded.

    Attributes:
        offsets: opaque → offset, of those that are not answered.
        early: offset → answer, of those whose answers have overtaken that of an earlier offset.
    """

    offsets: dict[int, int] = field(default_factory=dict)
    early: dict[int, tuple[RemotingCommand, bytes]] = field(default_factory=dict)


class _Moved(Exception):
    """Raised when the broker answers that the offset is outside of the queue (code 21)."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high


class _Nothing(Exception):
    """Raised when an offset has no message although it should have one. `high` is the end of the broker's queue."""

    def __init__(self, high: int) -> None:
        self.high = high


class _MadeAgain(Exception):
    """Raised when the broker's topic of this name was made after the deletion of the wanted one."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high


class RangePull:
    """Pulls one range. Every answer of a MaxQ broker names the topic's incarnation, so that messages of a topic that
    was made meanwhile are not returned.

    Args:
        losses: is told which offsets of the range no broker has.
    """

    def __init__(self, client: WireClient, settings: PullSettings, wanted: QueueRange, losses: Losses) -> None:
        self._client = client
        self._losses = losses
        self._settings = settings
        self._range = wanted
        self._hint = settings.hint  # None once a broker has refused it
        self._clock = client.clock
        self._master_grace_ms = min(_MASTER_GRACE_MS, client.options.broker_wait_ms // 2)
        # monotonic ms since which answers made no progress; None: the last one did
        self._stalled_since_ms: int | None = None
        self._unexplained_resets = 0  # answers "offset moved" for an offset that the broker has
        self._is_given_back = False  # `give_back` was called for the last chunk
        self.position = wanted.first

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks of the range, in order.

        Raises:
            DataLossError: some of it is gone, and that is to be an error.
            PipelineError: no broker served it within rocketmq.brokerWait.
            BrokerError: a broker refuses.
        """
        tries = 0
        while self.position < self._range.last:
            before, again = self.position, False
            reason: object = f"topic {self._range.topic} has no broker {self._range.broker_name} now"
            candidates: list[tuple[str, bool]] = []
            try:
                candidates = self._client.candidates(self._range.queue, to_read=True)
            except RemotingError as error:
                reason = error
            for address, is_master in candidates:
                try:
                    yield from self._from_broker(address, is_master=is_master)
                    break
                except (RemotingError, RemoteProtocolError) as error:
                    self._client.drop(address)
                    self._client.suspect(address)
                    reason = error
                except _Nothing as nothing:
                    reason = f"<{address}> has no message at {self.position}, its queue ends at {nothing.high}"
                    if is_master and nothing.high <= self.position and self._waited_ms() > self._master_grace_ms:
                        self._all_gone(0, nothing.high)
                except _MadeAgain as made:
                    self._all_gone(made.low, made.high)
                    again = True
                except _Moved as moved:
                    reason = f"<{address}> has offsets {moved.low} to {moved.high}"
                    again = self._on_moved(moved, is_master)
                except BrokerError as error:
                    reason = error
                    again = self._on_refusal(error, is_master)
                if again or self.position > before:
                    break
            if self.position > before:
                tries, self._stalled_since_ms = 0, None
            elif not again:
                self._wait(tries, reason)
                tries += 1

    def give_back(self, chunk: Chunk) -> None:
        """Make `chunks` continue where the last chunk began, with other brokers first, because that chunk came from a
        slave and was incomplete."""
        self.position = chunk.first
        self._is_given_back = True

    def _waited_ms(self) -> int:
        now_ms = self._clock.monotonic_ms()
        if self._stalled_since_ms is None:
            self._stalled_since_ms = now_ms
        return now_ms - self._stalled_since_ms

    def _wait(self, tries: int, reason: object) -> None:
        limit_ms = self._client.options.broker_wait_ms
        if self._waited_ms() >= limit_ms:
            if self._client.was_deleted(self._range.topic, self._range.broker_name):
                self._lose(self._range.last, 0, 0, "the topic was deleted")
                return
            raise PipelineError(
                f"{self._range}: offset {self.position} could not be read within {limit_ms} ms (rocketmq.brokerWait): "
                f"{reason}"
            )
        if tries == 0:
            log.warning("%s: waiting at offset %d: %s", self._range, self.position, reason)
        time.sleep(_WAIT_MS[min(tries, len(_WAIT_MS) - 1)] / 1000)
        if tries >= 2:
            self._client.forget_routes()

    # --- what is not there -------------------------------------------------------------------------------------------

    def _on_moved(self, moved: _Moved, is_master: bool) -> bool:
        """Decide how to continue after code 21. Returns True to ask again at once; False to wait, or to ask another
        broker."""
        if self.position < moved.low:
            if not is_master:
                return False
            end = min(moved.low, self._range.last)
            self._lose(end, moved.low, moved.high, "the messages between have expired")
            return True
        if self.position < moved.high:
            self._unexplained_resets += 1
            return self._unexplained_resets < 3
        if is_master and self._waited_ms() > self._master_grace_ms:
            self._all_gone(moved.low, moved.high)
            return True
        return False

    def _all_gone(self, low: int, high: int) -> None:
        self._lose(self._range.last, low, high, "the topic was made again, or the broker's log was cut")

    def _on_refusal(self, error: BrokerError, is_master: bool) -> bool:
        """Decide how to continue after a refusal. Returns True to ask again at once."""
        if self._hint is not None and error.code in _REFUSED:
            log.info("%s: read without the filter %s: %s", self._range, self._hint, error)
            self._hint = None
            return True
        if error.code in _GONE and is_master:
            if self._waited_ms() > self._master_grace_ms:
                self._lose(self._range.last, 0, 0, f"the topic or the queue was deleted ({error.remark.strip()})")
                return True
            return False
        if error.code in _REFUSED and is_master:
            self._refuse(error)
        return False

    def _refuse(self, error: BrokerError) -> NoReturn:
        settings = self._settings
        hint = ""
        if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            hint = f"; make the group {settings.group} with updateSubGroup, or set groupId to one that exists"
        raise PipelineError(f"{self._range}: the broker refuses to be read: {error}{hint}") from error

    def _lose(self, end: int, low: int, high: int, reason: str) -> None:
        self._losses.offsets(self._range.name, self.position, end, (low, high), reason)
        self.position = end

    # --- one broker --------------------------------------------------------------------------------------------------

    def _from_broker(self, address: str, *, is_master: bool) -> Iterator[Chunk]:
        """Yield chunks of one broker from `position` on, until the range is done or an answer is an error."""
        connection = self._client.lend(address)  # borrowed, because other requests go to this broker between two chunks
        is_whole = False  # True when every answer was read to its end
        try:
            yield from self._chunks_on(connection, is_master=is_master)
            is_whole = True
        except (BrokerError, _Moved, _Nothing, _MadeAgain):
            is_whole = True
            raise
        finally:
            if is_whole and not connection.waiting:
                self._client.take_back(connection)
            else:  # also if requests that were sent ahead have not been answered
                connection.close()

    def _chunks_on(self, connection: BlockingConnection, *, is_master: bool) -> Iterator[Chunk]:
        pulls = _PullsUnderWay()
        step = 0
        pulls.offsets[self._send(connection, self.position)] = self.position
        while self.position < self._range.last:
            first = self.position
            if first in pulls.early:
                command, body = pulls.early.pop(first)
                view = memoryview(body)
                next_offset, available = self._next_offset(command, first, is_master=is_master)
            else:
                command, size = connection.receive_head()
                offset = pulls.offsets.pop(command.opaque, None)
                if offset != first:
                    body = bytes(connection.receive_body(size))
                    if offset is not None and offset > first:
                        pulls.early[offset] = command, body
                    continue
                next_offset, available = self._next_offset(command, first, is_master=is_master)
                if "maxqCount" in command.ext and next_offset < self._range.last:
                    self._send_ahead(connection, pulls, next_offset, 0, 1)
                view = connection.receive_body(size)
            self.position = next_offset
            delta = command.ext.get("offsetDelta")
            passed_over = read_runs(command.ext.get("maxqPassedOver", ""))
            yield Chunk(
                view, first, next_offset, None if delta is None else int(delta), available, is_master, passed_over
            )
            if self._is_given_back:
                self._is_given_back = False
                text = f"<{connection.address}>, a slave, has lost or damaged messages from {first} on"
                raise RemoteProtocolError(text)
            if "maxqCount" not in command.ext:
                step = self._send_ahead(connection, pulls, next_offset, step, next_offset - first)

    def _send_ahead(
        self, connection: BlockingConnection, pulls: _PullsUnderWay, offset: int, step: int, last_step: int
    ) -> int:
        """Send the pull at `offset`, and the pulls behind it as well while answers keep the same length. Returns that
        length, 0 if there is none."""
        under_way = {*pulls.offsets.values(), *pulls.early}
        if offset not in under_way:
            pulls.offsets.clear()  # wrong guesses: their answers are thrown away when they arrive
            pulls.early.clear()
            under_way.clear()
            step = 0
        reach = _PULLS_AHEAD if step == last_step else 1
        for place in range(reach):
            ahead = offset + place * last_step
            if ahead < self._range.last and ahead not in under_way:
                pulls.offsets[self._send(connection, ahead)] = ahead
        return last_step

    def _send(self, connection: BlockingConnection, offset: int) -> int:
        settings = self._settings
        kind, expression = self._hint or (settings.expression_type, settings.expression)
        ext = {
            "consumerGroup": settings.group,
            "topic": self._range.topic,
            "queueId": str(self._range.queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(min(_MOST_MESSAGES, self._range.last - offset)),
            "sysFlag": str(PULL_FLAG_SUBSCRIPTION),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subVersion": "0",
            "subscription": expression,
            "expressionType": kind,
            "maxqMaxBytes": str(settings.fetch_bytes),
        }
        if settings.omit:
            ext["maxqOmit"] = settings.omit
        return connection.send(RequestCode.PULL_MESSAGE, ext)

    def _next_offset(self, command: RemotingCommand, offset: int, *, is_master: bool) -> tuple[int, tuple[int, int]]:
        """Return where the next pull begins, and the first and the last existing offset. Raises the error of an answer
        without these."""
        ext = command.ext
        if command.code != ResponseCode.SUCCESS and "nextBeginOffset" not in ext:
            raise BrokerError(command.code, command.remark)
        try:
            following, low, high = (int(ext[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset"))
        except (KeyError, ValueError):
            raise RemoteProtocolError(f"a pull's answer has the header {ext!r:.200}") from None
        wanted, told = self._range.incarnation, int(ext.get("maxqIncarnation", "-1"))
        if wanted is not None and told not in (-1, wanted):
            if told < wanted and not is_master:
                raise RemoteProtocolError("a slave has not come to where the topic was deleted and made again")
            raise _MadeAgain(low, high)
        if command.code == ResponseCode.PULL_OFFSET_MOVED:
            raise _Moved(low, high)
        if command.code in _NO_PROGRESS and following <= offset:
            raise _Nothing(high)
        if command.code not in (ResponseCode.SUCCESS, *_NO_PROGRESS):
            raise BrokerError(command.code, command.remark)
        if following <= offset:
            raise RemoteProtocolError(f"a pull at {offset} goes on at {following}")
        return following, (low, high)
