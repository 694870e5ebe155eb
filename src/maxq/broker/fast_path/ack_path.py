"""The batch path of acks: those of an arrival whose check points are in memory are taken together.

Java's consumers acknowledge message by message, its proxies many in a batch. Each such frame costs a look at its header
(and body) and bits in check points here; all of a turn of the loop share one record of the journal, all of an arrival
one write. Any other request (an ordered or unknown message, a check point that was handed over, a one-way request, an
odd header) ends the run and takes the slow path, which knows every rule and remark. So does a batch under access
control, because each of its entries must be checked.
"""

import asyncio
import binascii
from typing import Any, Final, NamedTuple

import orjson

from maxq.access.guard import Guard
from maxq.auth.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signed_content
from maxq.broker.bundles import Environment, Messages
from maxq.broker.pop.check_point_buffer import CheckPointBuffer, LiveCheckPoint
from maxq.broker.pop.pop_journal import NOT_NOTED
from maxq.broker.processors.acknowledgement import remark_of
from maxq.broker.stats import names
from maxq.codes import CURRENT_VERSION, RequestCode, ResponseCode
from maxq.errors import RemoteProtocolError
from maxq.protocol.frame.remoting_command import RESPONSE_FLAG, RemotingCommand
from maxq.protocol.message.pop_extra_info import NORMAL, POP_ORDER_REVIVE_QUEUE, real_topic
from maxq.remoting.server import Connection

_START: Final = b'{"code":%d,' % RequestCode.ACK_MESSAGE
_BATCH_START: Final = b'{"code":%d,' % RequestCode.BATCH_ACK_MESSAGE
_PREFIX_SIZE: Final = 8
_JSON: Final = 0
_FIELDS: Final = frozenset({"consumerGroup", "topic", "queueId", "extraInfo", "offset"})
_KNOWN: Final = _FIELDS | {"bname", ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, "OnsChannel"}
_REPLY: Final = (
    b'{"code":0,"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":'
    + str(int(CURRENT_VERSION)).encode()
    + b"}"
)


class _Signed(NamedTuple):
    access_key: bytes
    signature: bytes
    signed_content: bytes


NOT_STORED_REMARK: Final = (
    "the ack could not be stored, so the message comes again: the log takes nothing now (the disk is full or fails, or "
    "this broker is not the master any more); acknowledge again, or look at the disk"
)


def unsafe_remark(code: ResponseCode) -> str:
    """Returns the remark for an ack that is not as durable as the settings promise."""
    return remark_of(code, "the ack", "the message may come again")


class AckPath:
    """Answers batches of acks straight from the receive buffer. One per broker."""

    def __init__(self, env: Environment, messages: Messages, buffer: CheckPointBuffer) -> None:
        self._buffer = buffer
        self._acknowledgement = messages.acknowledgement
        self._stats = env.stats
        self._own = env.own
        self._guard = env.guard
        self._bits: dict[LiveCheckPoint, int] = {}  # acknowledged messages of each check point in this turn of the loop
        self._opaques: dict[Connection, list[int]] = {}

    def __call__(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Answer the leading acks of buffer[start:end]. Returns the position behind them."""
        position, opaques = start, list[int]()
        while True:
            if buffer.startswith(_START, position + _PREFIX_SIZE, end):
                take = self._take
            elif self._guard is None and buffer.startswith(_BATCH_START, position + _PREFIX_SIZE, end):
                take = self._take_batch
            else:
                break
            behind = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
            if behind > end or buffer[position + 4] != _JSON:
                break
            opaque = take(connection, buffer, position, behind)
            if opaque is None:
                break
            opaques.append(opaque)
            position = behind
        if opaques:
            if not self._opaques:
                asyncio.get_running_loop().call_soon(self._answer)
            self._opaques.setdefault(connection, []).extend(opaques)
        return position

    def _take(self, connection: Connection, buffer: bytearray, position: int, behind: int) -> int | None:
        """Mark the ack at `position`. Returns its opaque; None if the processor must handle it."""
        length = int.from_bytes(buffer[position + 5 : position + 8], "big")
        if length != behind - position - _PREFIX_SIZE:
            return None
        header = _loads(buffer, position + _PREFIX_SIZE, behind)
        opaque = _opaque(header)
        if opaque is None:
            return None
        ext = header.get("extFields")
        if type(ext) is not dict or not _FIELDS <= ext.keys() <= _KNOWN:
            return None
        if self._guard is not None and not self._may(self._guard, connection, ext):
            return None
        return opaque if self._mark(ext) else None

    @staticmethod
    def _may(guard: Guard, connection: Connection, ext: dict[str, Any]) -> bool:
        """Return whether the guard has allowed such an ack on this connection before, and this one is signed by the
        same user."""
        try:
            signed = _Signed(ext.get(ACCESS_KEY, "").encode(), ext.get(SIGNATURE, "").encode(), signed_content(ext))
            fields = ext["consumerGroup"].encode(), ext["topic"].encode()
        except (AttributeError, TypeError, UnicodeEncodeError):  # a value is no text
            return False
        return guard.session(connection).admits(RequestCode.ACK_MESSAGE, signed, *fields)

    def _mark(self, ext: dict[str, Any]) -> bool:
        try:
            start, pop_time, _, _, _, broker_name, _, _ = ext["extraInfo"].split(" ")
            offset = int(ext["offset"])
            key = ext["topic"], ext["consumerGroup"], int(ext["queueId"]), int(start), int(pop_time), broker_name
            live = self._buffer.holder(key, offset)
        except (ValueError, TypeError, AttributeError):
            return False
        if live is None or live.point.index_of(offset) < 0:
            return False
        self._bits[live] = self._bits.get(live, 0) | self._buffer.mark(live, offset)
        return True

    def _take_batch(self, connection: Connection, buffer: bytearray, position: int, behind: int) -> int | None:
        """Mark the messages of the batch ack at `position`. Returns its opaque; None if the processor must handle
        it."""
        body_at = position + _PREFIX_SIZE + int.from_bytes(buffer[position + 5 : position + 8], "big")
        if body_at >= behind:
            return None
        opaque = _opaque(_loads(buffer, position + _PREFIX_SIZE, body_at))
        found = None if opaque is None else self._those(_loads(buffer, body_at, behind))
        if not found:
            return None
        for live, distances in found:
            self._bits[live] = self._bits.get(live, 0) | self._buffer.mark_those(live, distances)
        return opaque

    def _those(self, body: Any) -> list[tuple[LiveCheckPoint, int]] | None:
        """Return the check points that a batch names, with bits for the distances of its messages; None if one is not
        in memory, or if a message of one has a new check point since its invisible time was changed."""
        found = []
        try:
            broker_name = body.get("brokerName") or self._own.broker_name
            for ack in body["acks"]:
                topic, group, retry = ack["t"], ack["c"], ack["r"]
                if retry != NORMAL:
                    topic = real_topic(topic, group, retry)
                key = topic, group, ack["q"], ack["so"], ack["pt"], broker_name
                live = self._buffer.find(key)
                if live is None or self._buffer.is_renewed(key) or ack["rq"] == POP_ORDER_REVIVE_QUEUE:
                    return None
                found.append((live, int.from_bytes(binascii.a2b_base64(ack["b"], strict_mode=True), "little")))
        except (AttributeError, KeyError, TypeError, ValueError, RemoteProtocolError):
            return None
        return found

    def _answer(self) -> None:
        """Write the acks of this turn to the journal, and answer them when that is as durable as the settings
        promise."""
        bits, opaques = self._bits, self._opaques
        self._bits, self._opaques = {}, {}
        end_offset = self._buffer.acked({live: mask for live, mask in bits.items() if mask})
        self._count(bits)
        if end_offset == NOT_NOTED:
            _refuse(opaques, ResponseCode.SYSTEM_ERROR, NOT_STORED_REMARK)
        elif not end_offset or not self._acknowledgement.when(end_offset, lambda code: _tell(opaques, code)):
            _tell(opaques, ResponseCode.SUCCESS)

    def _count(self, bits: dict[LiveCheckPoint, int]) -> None:
        counts: dict[str, int] = {}
        for live, mask in bits.items():
            key = f"{live.point.topic}@{live.point.group}"
            counts[key] = counts.get(key, 0) + mask.bit_count()
        for key, count in counts.items():
            self._stats.add(names.GROUP_ACK_NUMS, key, count)
        self._stats.add(names.BROKER_ACK_NUMS, self._own.cluster, sum(counts.values()))


def _loads(buffer: bytearray, start: int, end: int) -> Any:
    """Returns the JSON value of buffer[start:end]; None if the bytes are not JSON."""
    with memoryview(buffer) as view:
        try:
            return orjson.loads(view[start:end])
        except orjson.JSONDecodeError:
            return None


def _opaque(header: Any) -> int | None:
    """Return the opaque of a request that expects a response; None for a oneway request or an unreadable header."""
    if type(header) is not dict or header.get("flag", 0) != 0:
        return None
    opaque = header.get("opaque")
    return opaque if type(opaque) is int and -(1 << 31) <= opaque < 1 << 31 else None


def _tell(opaques: dict[Connection, list[int]], code: ResponseCode) -> None:
    if code is not ResponseCode.SUCCESS:
        _refuse(opaques, code, unsafe_remark(code))
        return
    for connection, of_connection in opaques.items():
        connection.write([b"".join([_reply(opaque) for opaque in of_connection])])


def _refuse(opaques: dict[Connection, list[int]], code: ResponseCode, remark: str) -> None:
    for connection, of_connection in opaques.items():
        for opaque in of_connection:
            connection.send(RemotingCommand(code, flag=RESPONSE_FLAG, opaque=opaque, remark=remark))


def _reply(opaque: int) -> bytes:
    head = _REPLY % opaque
    size = len(head)
    return (4 + size).to_bytes(4, "big") + size.to_bytes(4, "big") + head
