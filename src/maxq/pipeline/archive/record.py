"""A record of what was sent again: JSON lines, two a piece of work, added to and never rewritten.

    {"maxqRecord": 1, "id": "3f9a…", "what": "replay /archive"}
    {"begun": 1794999999000, "rows": 500, "ranges": {"Orders/broker-a/0": [[0, 499]]}, "incarnations": {}}
    {"done": 1795000000000, "rows": 500, "ranges": {"Orders/broker-a/0": [[0, 499]]}, "incarnations": {}}

Offsets that are done were looked at, and sent if they were chosen; a run with the same record passes over them. A
piece that was begun and not done is done first, cut as it was: `id` and its offsets name it to MaxQ brokers, which take
it once (delivery=exactly-once), however often it is sent. `rows` of a piece that was begun says how many messages were
to be sent, where they were counted because retention may delete them meanwhile: what it deletes is not part of the line
`done`. `incarnations` says which topic of its name a queue is of, where that was deleted before
(ReportedOffset.incarnation): offsets of a topic that was made again are others. Java's brokers do not tell that; there
`newest` does: queue → offset, store time in µs and body CRC of the last message of the piece.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from maxq.errors import ConfigError
from maxq.pipeline.archive.ranges import Range, union
from maxq.pipeline.archive.same_messages import ArchivedMessage
from maxq.pipeline.source.positions import name_of
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.files.durable_files import DurableFiles
from maxq.runtime.files.system import SystemClock, SystemRng

VERSION: Final = 1
#: Returns the incarnation of each queue whose topic was deleted before.
IncarnationsOf = Callable[[Iterable[MessageQueue]], Mapping[MessageQueue, int]]


class SentRecord:
    """The record, in one file, of the messages that a job has sent.

    Args:
        path: of the file; it is made when the first line is added.
        what: names the work; a record of other work is refused.
        incarnations_of: returns the present incarnations of queues; None: they never change, as those of an archive.

    Raises:
        ConfigError: the file is not such a record, or records other work; or a topic in it was deleted since.
    """

    def __init__(self, path: Path, what: str, incarnations_of: IncarnationsOf | None = None) -> None:
        self._path = path
        self._what = what
        self._incarnations_of = incarnations_of or (lambda queues: {})
        self._incarnations: dict[MessageQueue, int] = {}  # incarnations of queues, where lines tell them
        self.id = SystemRng().bytes(8).hex()
        self.rows = 0
        self._ranges: dict[MessageQueue, list[Range]] = {}
        self.pending: dict[MessageQueue, list[Range]] = {}  # ranges of a piece that was begun and not finished
        self.pending_rows: int | None = None  # messages of that piece; None: they were not counted
        # last message of each queue's last piece, where lines tell it
        self.newest: dict[MessageQueue, ArchivedMessage] = {}
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        self._is_new = not lines
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):  # a run was killed while it wrote the line
                DurableFiles().cut(path, sum(map(len, lines[: number - 1])))
                self._is_new = number == 1
                break
            try:
                self._take(json.loads(line), is_head=number == 1)
            except (ValueError, KeyError, TypeError):
                raise ConfigError(
                    f"{path}, line {number} is not a line of a record of sent messages: name another file"
                ) from None
        self._check_incarnations()

    def _check_incarnations(self) -> None:
        for queue, number in self._incarnations_of(self._incarnations).items():
            if number != self._incarnations[queue]:
                raise self._deleted(queue)

    def refuse(self, queues: Iterable[MessageQueue]) -> None:
        """Raise ConfigError if the record has queues whose topics were deleted and made again since (`queues` as
        same_messages.other_queues returns them)."""
        for queue in queues:
            raise self._deleted(queue)

    def _deleted(self, queue: MessageQueue) -> ConfigError:
        return ConfigError(
            f"{self._path} records messages of {name_of(queue)} whose topic was deleted since, or whose broker lost "
            "its log: the present queue is a new one, and its first offsets would count as sent. Name another file"
        )

    def _note_newest(self, messages: Mapping[MessageQueue, ArchivedMessage]) -> None:
        for queue, one in messages.items():
            if queue not in self.newest or self.newest[queue].offset < one.offset:
                self.newest[queue] = one

    def _take(self, value: Mapping[str, Any], *, is_head: bool) -> None:
        if not is_head:
            ranges = _queues(value["ranges"])
            if "incarnations" in value:
                told = value["incarnations"]
                self._incarnations |= {queue: int(told.get(name_of(queue), 0)) for queue in ranges}
            if "begun" in value:
                self.pending, self.pending_rows = ranges, value.get("rows")
                self._note_newest(_named(value.get("newest", {})))
            else:
                self._count(int(value["rows"]), ranges)
            return
        if value["maxqRecord"] != VERSION:
            raise ValueError("another version")
        if value["what"] != self._what:
            raise ConfigError(f"{self._path} records other work ({value['what']}), not {self._what}: name another file")
        self.id = str(value["id"])

    def _count(self, rows: int, ranges: Mapping[MessageQueue, Sequence[Range]]) -> None:
        self.rows += rows
        self.pending, self.pending_rows = {}, None
        for queue, some in ranges.items():
            self._ranges[queue] = union([*self._ranges.get(queue, ()), *some])

    @property
    def coverage(self) -> dict[MessageQueue, list[Range]]:
        """Return the offsets of each queue that the record calls done."""
        return dict(self._ranges)

    def begin(self) -> None:
        """Write the head, so that every run with this record has the same id. Done before anything is sent."""
        if self._is_new:
            self._append({"maxqRecord": VERSION, "id": self.id, "what": self._what})
            self._is_new = False

    def begin_piece(
        self,
        ranges: Mapping[MessageQueue, Sequence[Range]],
        rows: int | None = None,
        newest: Mapping[MessageQueue, ArchivedMessage] | None = None,
    ) -> None:
        """Note durably, before any of them is sent, that these offsets come next.

        Args:
            rows: how many messages are to be sent; None: they were not counted.
            newest: the last one of each queue.
        """
        self.begin()
        self.pending, self.pending_rows = {queue: list(some) for queue, some in ranges.items()}, rows
        self._note_incarnations(ranges)
        more: dict[str, Any] = {} if rows is None else {"rows": rows}
        if newest:
            self._note_newest(newest)
            more["newest"] = {name_of(queue): list(one[:3]) for queue, one in sorted(newest.items())}
        self._append({"begun": SystemClock().wall_ms()} | more | self._told(ranges))

    def add(self, rows: int, ranges: Mapping[MessageQueue, Sequence[Range]]) -> None:
        """Note durably that these offsets are done, and how many rows of them were sent."""
        self.begin()
        self._note_incarnations(ranges)
        self._append({"done": SystemClock().wall_ms(), "rows": rows} | self._told(ranges))
        self._count(rows, ranges)

    def _note_incarnations(self, queues: Iterable[MessageQueue]) -> None:
        """Note the incarnations of queues that are not known yet. They do not change afterwards, because a topic that
        is made again while a piece is sent is not part of the piece."""
        new = [queue for queue in queues if queue not in self._incarnations]
        now = self._incarnations_of(new) if new else {}
        self._incarnations |= {queue: now.get(queue, 0) for queue in new}

    def _told(self, ranges: Mapping[MessageQueue, Sequence[Range]]) -> dict[str, Any]:
        deleted = {name_of(queue): number for queue in sorted(ranges) if (number := self._incarnations[queue])}
        return {"ranges": _texts(ranges), "incarnations": deleted}

    def _append(self, value: Mapping[str, Any]) -> None:
        DurableFiles().append(self._path, json.dumps(value).encode() + b"\n")


def piece_name(record_id: str, ranges: Mapping[MessageQueue, Sequence[Range]]) -> str:
    """Return the name by which brokers know a piece of work: the same for the same offsets."""
    text = json.dumps({name_of(queue): list(some) for queue, some in sorted(ranges.items())})
    return f"replay-{record_id}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _texts(ranges: Mapping[MessageQueue, Sequence[Range]]) -> dict[str, list[list[int]]]:
    return {name_of(queue): [list(one) for one in some] for queue, some in sorted(ranges.items())}


def _queues(texts: Mapping[str, Any]) -> dict[MessageQueue, list[Range]]:
    return {_queue(name): [(int(first), int(last)) for first, last in ranges] for name, ranges in texts.items()}


def _named(texts: Mapping[str, Any]) -> dict[MessageQueue, ArchivedMessage]:
    return {_queue(name): ArchivedMessage(*map(int, one)) for name, one in texts.items()}


def _queue(name: str) -> MessageQueue:
    topic, broker, queue_id = name.rsplit("/", 2)
    return MessageQueue(topic, broker, int(queue_id))
