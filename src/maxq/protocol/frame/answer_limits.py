"""Answers that are longer than a frame may be: no client of RocketMQ takes them, it ends the connection instead.

The limit is FRAME_MAX_LENGTH, which is that of all clients by default, or the server's own frameMaxLength where that is
larger. The size of answers about a broker's tables grows with its topics, groups and queues.
"""

from typing import Final

from maxq.codes import RequestCode as Code
from maxq.codes import ResponseCode
from maxq.errors import RequestRefusedError

_PAGES: Final = "ask for it in pages ({0}Seq, max{1}Num, dataVersion), as slaves do, or for one ({2})"
_REMEDIES: Final[dict[int, str]] = {
    Code.GET_ALL_TOPIC_CONFIG: _PAGES.format("topic", "Topic", "351"),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _PAGES.format("group", "Group", "352"),
    Code.GET_CONSUME_STATS: "name one topic, or fewer in topicList",
    Code.GET_BROKER_CONSUME_STATS: "ask for one group after the other (208)",
    Code.GET_ALL_CONSUMER_OFFSET: "ask for it in pages (page), as MaxQ's slaves do, or delete groups and topics that "
    "nobody uses (207, 215)",
}
_OTHERWISE: Final = "ask for less at once, or spread topics and groups over more servers"


def refusal_of_answer(code: int, size: int, limit: int) -> str:
    """Return the remark that replaces an answer to request `code` whose frame would have `size` bytes."""
    remedy = _REMEDIES.get(code, _OTHERWISE)
    return (
        f"the answer has {size} bytes or more, a client takes frames of {limit}; {remedy}, or raise "
        "com.rocketmq.remoting.frameMaxLength at this server and its clients"
    )


class LongBody:
    """The JSON of a table with any number of rows, which are encoded one at a time while other requests are served.

    Rows are joined in pieces of some 64 KiB as they come, so that there is no moment at which megabytes are copied.
    """

    _PIECE: Final = 65_536

    def __init__(self, code: int, limit: int) -> None:
        """
        Args:
            code: of the request.
            limit: bytes of the whole body.
        """
        self._code = code
        self._limit = limit
        self._rows: list[bytes] = []
        self._rows_size = 0
        self._pieces: list[memoryview] = []
        self._size = 0

    def add(self, row: bytes) -> None:
        """Put a row behind the others.

        Raises:
            RequestRefusedError: there are more bytes now than a client takes.
        """
        self._rows.append(row)
        self._rows_size += len(row) + 1
        if self._rows_size >= self._PIECE:
            self._close_piece()

    def filled(self, body: bytes, member: str, brackets: bytes = b"{}") -> list[memoryview]:
        """Return the pieces of `body` with the rows in its `member`, which is an empty map or, with `brackets` b"[]",
        an empty list."""
        before, empty, after = body.partition(f'"{member}":'.encode() + brackets)
        assert empty, "the body has an empty member of this name, and nothing before it may say so too"
        self._close_piece()
        return [memoryview(before + empty[:-1]), *self._pieces, memoryview(empty[-1:] + after)]

    def _close_piece(self) -> None:
        if not self._rows:
            return
        comma = b"," if self._pieces else b""
        self._pieces.append(memoryview(comma + b",".join(self._rows)))
        self._size += self._rows_size
        self._rows, self._rows_size = [], 0
        if self._size > self._limit:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, refusal_of_answer(self._code, self._size, self._limit))
