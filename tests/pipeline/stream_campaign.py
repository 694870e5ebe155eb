"""Streams and batches against a plain model of what is in the topics: nothing fewer in silence, nothing twice.

A case is made of its seed alone. It makes topics, fills them, begins a stream with some options, and lets things happen
between the steps of its triggers: messages come, queues are added, topics are made that a pattern names, topics are
deleted, perhaps made again, old messages are removed; the query dies at any step and is started again, perhaps with
other options. Batches with other options read the same topics meanwhile. The steps are those of Spark's micro-batches
(MicroBatchExecution): what it asks the source, in which order, what it keeps in the checkpoint, and what it does again.

    python -m tests.pipeline.stream_campaign --seconds 600 [--first 1000]
    python -m tests.pipeline.stream_campaign --first 1200 --cases 1

At the end the stream has, once, each message that its options select from where it began; what it lacks was removed or
deleted, and it said so: by an error, or with failOnDataLoss=false in the log. A query that failed goes on with
failOnDataLoss=false.
"""

import argparse
import json
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import maxq
from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.errors import DataLossError, PipelineError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.source.offsets import OffsetsJson
from maxq.pipeline.source.scan import read_scan
from maxq.pipeline.source.stream_source import TopicStream
from maxq.pipeline.wire.wire_client import WireClient
from maxq.protocol.body.topic_config import TopicConfig

BROKER: Final = "broker-a"
COLUMNS: Final = "topic,queueId,queueOffset,tags,body"
SETTINGS: Final = {
    "enablePropertyFilter": "true", "mappedFileSizeCommitLog": str(1 << 20), "autoCreateTopicEnable": "false",
}  # fmt: skip
TAGS: Final = ("TagA", "TagB", "TagC")
MOST_STEPS: Final = 60

#: Topic, which one of this name, queue id.
Queue = tuple[str, int, int]


class Failed(AssertionError):
    """A case that went wrong."""


@dataclass
class Topic:
    """A topic of one name: messages by queue as (text, tag); how many of the first are removed."""

    made: int
    queues: list[list[tuple[str, str]]]
    removed: list[int] = field(default_factory=list)


class Model:
    """What is in the topics.

    Attributes:
        now: the topics that are there.
        ever: all that ever were, by name and which one of this name it is.
        moments: (ms, ends of the queues): what was stored before that time.
    """

    def __init__(self, admin: Admin, producer: Producer, address: str) -> None:
        self._admin = admin
        self._producer = producer
        self._address = address
        self.now: dict[str, Topic] = {}
        self.ever: dict[tuple[str, int], Topic] = {}
        self.moments: list[tuple[int, dict[Queue, int]]] = []

    def make(self, name: str, queues: int) -> None:
        self._admin.topics.create(self._address, TopicConfig(name, queues, queues))
        topic = self.now.get(name)
        if topic is None:
            made = max((number for one, number in self.ever if one == name), default=0) + 1
            topic = self.now[name] = self.ever[name, made] = Topic(made, [])
        while len(topic.queues) < queues:
            topic.queues.append([])
            topic.removed.append(0)

    def delete(self, name: str) -> None:
        self._admin.topics.delete(name, "DefaultCluster")
        del self.now[name]

    def remove(self, name: str, queue_id: int, count: int) -> None:
        """As retention would: the first messages of a queue."""
        self._admin.operations.purge_topic(
            self._address, name, queue_id=queue_id, before_offset=count, dry_run=False
        )  # fmt: skip
        topic = self.now[name]
        topic.removed[queue_id] = max(topic.removed[queue_id], count)

    def send(self, name: str, queue_id: int, count: int, rng: random.Random) -> None:
        topic = self.now[name]
        rows = topic.queues[queue_id]
        batch = []
        for _ in range(count):
            text, tag = f"{name}/{topic.made}/{queue_id}/{len(rows)}", rng.choice(TAGS)
            message = Message(name, text.encode(), {"n": str(len(rows) % 3)})
            message.tags = tag
            batch.append(message)
            rows.append((text, tag))
        self._producer.send_batch(batch, queue=MessageQueue(name, BROKER, queue_id))

    def moment(self) -> None:
        """Note a time; everything else is stored at another ms."""
        time.sleep(0.003)
        now_ms = time.time_ns() // 1_000_000
        ends = {queue: len(rows) for queue, rows in self.queues()}
        self.moments.append((now_ms, ends))
        time.sleep(0.003)

    def queues(self) -> Iterator[tuple[Queue, list[tuple[str, str]]]]:
        for name, topic in self.now.items():
            for queue_id, rows in enumerate(topic.queues):
                yield (name, topic.made, queue_id), rows

    def rows(self, queue: Queue) -> list[tuple[str, str]]:
        name, made, queue_id = queue
        return self.ever[name, made].queues[queue_id]

    def removed(self, queue: Queue) -> int:
        """How many of the first messages of a queue are gone; all, if its topic is."""
        name, made, queue_id = queue
        topic = self.ever[name, made]
        return topic.removed[queue_id] if self.now.get(name) is topic else len(topic.queues[queue_id])


@dataclass
class Checkpoint:
    """A query's checkpoint, and the batches of a sink that replaces repeated ones."""

    planned: list[OffsetsJson] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)
    written: dict[int, list[str]] = field(default_factory=dict)


def rows_of(options: ReadOptions, scans: list[Any]) -> Iterator[list[str]]:
    """The texts of each partition, in turn."""
    for scan in scans:
        yield [row["body"].decode() for batch in read_scan(options, scan) for row in batch.to_pylist()]


class Run:
    """One run of a query, from its start to its end or death. `steps` does what Spark does and says after each step
    which it was.

    Attributes:
        stream: the source.
    """

    def __init__(self, options: ReadOptions, kept: Checkpoint, *, available_now: bool, limited: bool) -> None:
        self._options = options
        self._kept = kept
        self._available_now = available_now
        self._limited = limited
        self.stream = TopicStream(options, WireClient(options.connection, route_age_ms=0))

    def steps(self) -> Iterator[str]:
        kept = self._kept
        if self._available_now:
            self.stream.prepare_for_available_now()
            yield "prepared"
        last = len(kept.planned) - 1
        if last >= 0 and last not in kept.committed:
            yield from self._batch(last)
        while True:
            start = self._start(len(kept.planned))
            if not kept.planned:
                yield "began"
            else:
                self.stream.commit(_plain(start))
            end = _plain(self.stream.latest_offset(start, limited=self._limited))
            yield "asked"
            if kept.planned and end == start:
                if self._available_now:
                    return
                yield "idle"
                continue
            kept.planned.append(end)
            yield "planned"
            yield from self._batch(len(kept.planned) - 1)

    def _start(self, batch: int) -> OffsetsJson:
        found: OffsetsJson = _plain(self._kept.planned[batch - 1] if batch else self.stream.initial_offset())
        return found

    def _batch(self, batch: int) -> Iterator[str]:
        start = self._start(batch)
        scans = self.stream.partitions(start, _plain(self._kept.planned[batch]))
        yield "partitioned"
        found: list[str] = []
        for rows in rows_of(self._options, scans):
            found += rows
            yield "read"
        self._kept.written[batch] = found
        yield "written"
        self._kept.committed.add(batch)
        yield "committed"


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


class Case:
    """One seed.

    Attributes:
        history: what happened.
        marks: how often each kind of thing happened.
    """

    def __init__(self, seed: int, server: maxq.Standalone, admin: Admin, producer: Producer) -> None:
        self.seed = seed
        self.history: list[str] = []
        self.marks: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._namesrv = server.namesrv_address
        self._folder = server.store
        self._model = Model(admin, producer, server.broker_address)
        self._prefix = f"S{seed}"
        self._kept = Checkpoint()
        self._begins: dict[Queue, int] = {}  # where each queue is read from
        self._began: dict[Queue, int] = {}  # the same, of a run that has planned nothing yet
        self._unseen: dict[Queue, int] = {}  # of a queue that came later: how much was removed until it was planned
        self._fails = True
        self._has_lost = False  # something was removed or deleted since the stream began
        self._given: dict[str, str] = {}  # the start of the run
        self._is_last = False  # nothing happens any more

    # --- the case ---

    def run(self) -> None:
        """Tell it. Failed: the rows are not those of the model."""
        rng, model = self._rng, self._model
        for number in range(rng.choice((1, 1, 2, 3))):
            model.make(self._name(number), rng.choice((1, 2, 3)))
        for _ in range(rng.randrange(6)):
            self._send()
        self._base = self._base_options()
        self._tell(f"options {self._base}")
        steps = self._start()
        for _ in range(rng.randrange(10, MOST_STEPS)):
            for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
                self._event()
            if rng.random() < 0.12:
                self._tell("the query dies")
                self.marks["deaths"] += 1
                steps = self._start()
            steps = self._step(steps)
            if rng.random() < 0.1:
                self._batch()
        self._finish(steps)
        for name in [*model.now]:
            model.delete(name)

    def _name(self, number: int) -> str:
        return f"{self._prefix}-{number}"

    def _tell(self, text: str) -> None:
        self.history.append(text)

    # --- options ---

    def _base_options(self) -> dict[str, str]:
        rng = self._rng
        topics = [*self._model.now]
        selection = rng.choice(("subscribe", "subscribe", "subscribePattern", "assign"))
        options = {"rocketmq.namesrv": self._namesrv, "rocketmq.brokerWait": "2s", "columns": COLUMNS}
        if selection == "subscribe":
            options["subscribe"] = ",".join(topics)
        elif selection == "subscribePattern":
            options["subscribePattern"] = f"{self._prefix}-.*"
        else:
            table = {name: [*range(len(topic.queues))] for name, topic in self._model.now.items()}
            options["assign"] = json.dumps(table)
        expression = rng.choice(("", "", "TagA", "TagA || TagC", "SQL"))
        if expression == "SQL":
            options |= {"subExpression": "n = '1' OR TAGS = 'TagB'", "subExpressionType": "SQL92"}
        elif expression:
            options["subExpression"] = expression
        return options

    def _selects(self, text: str, tag: str) -> bool:
        expression = self._base.get("subExpression", "*")
        if "subExpressionType" in self._base:
            return int(text.rpartition("/")[2]) % 3 == 1 or tag == "TagB"
        return expression == "*" or tag in expression.split(" || ")

    def _reading(self) -> dict[str, str]:
        """How rows are read: options that may be others at each start."""
        rng = self._rng
        found = {"fetchBytes": rng.choice(("4096", "1m")), "readFrom": rng.choice(("broker", "auto", "files"))}
        if "subExpressionType" in self._base and found["readFrom"] == "files":
            found["readFrom"] = "auto"
        if found["readFrom"] != "broker":
            found["storePath"] = str(self._folder)
        if rng.random() < 0.3:
            found["minPartitions"] = str(rng.choice((1, 3, 7)))
        if rng.random() < 0.3:
            found["maxRecordsPerPartition"] = str(rng.choice((1, 4, 100)))
        return found

    def _position(self, *, batch: bool) -> dict[str, str]:
        """Options of a start."""
        rng, model = self._rng, self._model
        kind = rng.choice(["earliest", "offsets", "offsets", "moment", "none"] + ["latest"] * (not batch))
        there = [queue for queue, _ in model.queues() if self._takes(queue)]
        if kind == "none":
            return {}
        if kind in ("earliest", "latest"):
            return {"startingOffsets": kind}
        if kind == "moment" and model.moments:
            at_ms = rng.choice(model.moments)[0]
            if rng.random() < 0.5:
                return {"startingTimestamp": str(at_ms)}
            return {"startingOffsetsByTimestamp": json.dumps(_table(dict.fromkeys(there, at_ms)))}
        told = {}
        for queue in there:
            low, end = model.removed(queue), len(model.rows(queue))
            told[queue] = rng.choice((-2, -2 if batch else -1, rng.randint(low, end)))
        return {"startingOffsets": json.dumps(_table(told))}

    def _meant(self, start: dict[str, str], *, batch: bool) -> dict[Queue, int]:
        """What these options mean at this moment."""
        there = [queue for queue, _ in self._model.queues() if self._takes(queue)]
        ends = {queue: len(self._model.rows(queue)) for queue in there}
        lows = {queue: self._model.removed(queue) for queue in there}
        kind = start.get("startingOffsets", "" if start else "earliest" if batch else "latest")
        if kind in ("earliest", "latest"):
            return lows if kind == "earliest" else ends
        if kind:
            told = json.loads(kind)
            numbers = {queue: told[queue[0]][BROKER][str(queue[2])] for queue in there}
            return {queue: {-2: lows[queue], -1: ends[queue]}.get(at, min(at, ends[queue]))
                    for queue, at in numbers.items()}  # fmt: skip
        text = start.get("startingTimestamp") or start["startingOffsetsByTimestamp"]
        numbers = {queue: json.loads(text) if text.isdigit() else json.loads(text)[queue[0]][BROKER][str(queue[2])]
                   for queue in there}  # fmt: skip
        then = dict(self._model.moments)
        return {queue: max(then[ms].get(queue, 0), lows[queue]) for queue, ms in numbers.items()}

    def _takes(self, queue: Queue) -> bool:
        name, _, queue_id = queue
        if "assign" in self._base:
            return queue_id in json.loads(self._base["assign"]).get(name, ())
        return "subscribe" not in self._base or name in self._base["subscribe"].split(",")

    # --- runs ---

    def _start(self) -> Iterator[str]:
        rng = self._rng
        more: dict[str, str] = self._reading() | {"failOnDataLoss": str(self._fails).lower()}
        limits = ("", "", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger")
        limit = "" if self._is_last else rng.choice(limits)
        if limit:
            sizes = {"maxBytesPerTrigger": ("1", "300", "4k")}
            more[limit] = rng.choice(sizes.get(limit, ("1", "3", "20")))
        if limit == "minOffsetsPerTrigger":
            more["maxTriggerDelay"] = rng.choice(("0ms", "1h"))
        if rng.random() < 0.2:
            more["groupId"] = f"{self._prefix}-group"
        self._given = self._position(batch=False)
        available_now = rng.random() < 0.4 and not self._is_last
        self._tell(f"start {self._given} {more}{' AvailableNow' if available_now else ''}")
        self.marks["starts, AvailableNow" if available_now else "starts"] += 1
        options = ReadOptions.parse(self._base | self._given | more, streaming=True)
        return Run(options, self._kept, available_now=available_now, limited=bool(limit)).steps()

    def _step(self, steps: Iterator[str]) -> Iterator[str]:
        """One step of the query; a new run behind its end, or behind an error that is due."""
        had = len(self._kept.planned)
        try:
            step = next(steps, "ended")
        except PipelineError as error:
            self._tell(f"{type(error).__name__}: {str(error)[:300]}")
            if isinstance(error, DataLossError) and self._fails and self._has_lost:
                self.marks["losses that were told"] += 1
                self._fails = False
            elif isinstance(error, DataLossError) or self._is_last or self._named_are_there(self._given):
                raise Failed(f"nothing was lost, and it says: {error}") from error
            else:
                self.marks["named topics or queues that are not there"] += 1
            return self._start()
        self._tell(step)
        self.marks[step] += 1
        if step == "began":
            self._began = self._meant(self._given, batch=False)
        if len(self._kept.planned) > had:
            self._was_planned(is_first=not had)
        if step == "ended":
            return self._start()
        return steps

    def _was_planned(self, *, is_first: bool) -> None:
        """Queues that the newest offsets have for the first time begin at these."""
        planned = self._kept.planned[-1]
        for (name, made, queue_id), _ in self._model.queues():
            if str(queue_id) not in planned.get(name, {}).get(BROKER, {}):
                continue
            queue = name, made, queue_id
            if is_first:
                self._begins.setdefault(queue, self._began.get(queue, self._model.removed(queue)))
            else:
                self._begins.setdefault(queue, self._model.removed(queue))

    # --- what happens ---

    def _event(self) -> None:
        rng, model = self._rng, self._model
        what = rng.choices(
            ("send", "moment", "queues", "topic", "remove", "delete", "again"), (12, 2, 1, 1, 1.5, 0.4, 0.8)
        )[0]
        names = [*model.now]
        if what == "topic":
            number = len({name for name, _ in model.ever})
            if number < 5:
                model.make(self._name(number), rng.choice((1, 2)))
                self._tell(f"made {self._name(number)}")
            return
        if what == "send" or not names:
            self._send()
            return
        name = rng.choice(names)
        if what == "moment":
            model.moment()
        elif what == "queues":
            model.make(name, len(model.now[name].queues) + 1)
        elif what == "remove":
            queue_id = rng.randrange(len(model.now[name].queues))
            count = rng.randint(0, len(model.now[name].queues[queue_id]))
            if not count:
                return
            model.remove(name, queue_id, count)
            self._has_lost = True
            what = f"remove {count} of queue {queue_id}"
        else:
            queues = len(model.now[name].queues)
            model.delete(name)
            self._has_lost = True
            if what == "again":
                model.make(name, rng.choice((queues, queues, 1, 3)))
        self.marks[what.split()[0]] += 1
        self._tell(f"event: {what} {name}")

    def _send(self) -> None:
        rng, model = self._rng, self._model
        if not model.now:
            return
        name = rng.choice([*model.now])
        queue_id, count = rng.randrange(len(model.now[name].queues)), rng.choice((1, 2, 5, 30))
        model.send(name, queue_id, count, rng)
        self._tell(f"event: {count} messages to {name}/{queue_id}: {len(model.now[name].queues[queue_id])}")

    # --- checks ---

    def _batch(self) -> None:
        """A batch of the same topics has exactly what is there."""
        if not self._named_are_there({}):
            return
        start = self._position(batch=True)
        begins = self._meant(start, batch=True)
        more = self._reading() | {"failOnDataLoss": "true"}
        options = ReadOptions.parse(self._base | start | more, streaming=False)
        found = [text for rows in rows_of(options, plan_batch(options, Conditions())) for text in rows]
        wanted = [
            text
            for queue, begin in begins.items()
            for text, tag in self._model.rows(queue)[max(begin, self._model.removed(queue)) :]
            if self._selects(text, tag)
        ]
        self.marks["batches"] += 1
        if sorted(found) != sorted(wanted):
            raise Failed(f"a batch {start} {more}: {_difference(found, wanted)}")

    def _named(self) -> dict[str, int]:
        """The topics that the options of a query name, with the queues that they must have."""
        assigned = {name: 1 + max(ids, default=0) for name, ids in json.loads(self._base.get("assign", "{}")).items()}
        return dict.fromkeys(filter(None, self._base.get("subscribe", "").split(",")), 1) | assigned

    def _named_are_there(self, start: dict[str, str]) -> bool:
        """Whether all is there that the options of a query name, and these of its start name all that is there."""
        there = {(name, queue_id) for (name, _, queue_id), _ in self._model.queues()}
        if not all((name, queues - 1) in there for name, queues in self._named().items()) or not there:
            return False
        text = start.get("startingOffsetsByTimestamp", start.get("startingOffsets", ""))
        if not text.startswith("{"):
            return True
        told = {(name, int(at)) for name, brokers in json.loads(text).items() for at in brokers[BROKER]}
        return told == {(name, at) for (name, made, at), _ in self._model.queues() if self._takes((name, made, at))}

    def _finish(self, steps: Iterator[str]) -> None:
        """Make the topics again that the options name and that were deleted, for a query without them is refused; let
        the stream come to its end, and compare."""
        self._is_last = True
        for name, queues in self._named().items():
            if name not in self._model.now or len(self._model.now[name].queues) < queues:
                self._model.make(name, queues)
                self._tell(f"event: at the end {queues} queues of {name}")
        steps = self._start()
        idle = 0
        while idle < 3:
            steps = self._step(steps)
            idle += self.history[-1] == "idle"
        self._compare([text for rows in self._kept.written.values() for text in rows])

    def _compare(self, found: list[str]) -> None:
        """What the stream has, with what it should have."""
        self.marks["rows"] += len(found)
        twice = [text for text, count in Counter(found).items() if count > 1]
        if twice:
            raise Failed(f"{len(twice)} rows are there twice: {sorted(twice)[:5]}")
        wanted: set[str] = set()
        excused: set[str] = set()
        for (name, made), topic in self._model.ever.items():
            for queue_id, rows in enumerate(topic.queues):
                queue = name, made, queue_id
                if not self._takes(queue):
                    continue
                begin, gone = self._begins.get(queue, 0), self._model.removed(queue)
                chosen = [(at, text) for at, (text, tag) in enumerate(rows) if self._selects(text, tag)]
                selected = [(at, text) for at, text in chosen if at >= begin]
                wanted.update(text for _, text in selected)
                if not self._fails or queue not in self._begins:
                    excused.update(text for at, text in selected if at < gone)
        extra, missing = set(found) - wanted, wanted - set(found) - excused
        if extra:
            raise Failed(f"{len(extra)} rows should not be there: {sorted(extra)[:5]}")
        if missing:
            what = "in silence" if self._fails else "though they are there"
            raise Failed(f"{len(missing)} rows are missing {what}: {sorted(missing)[:5]}")


def _table(numbers: dict[Queue, int]) -> dict[str, dict[str, dict[str, int]]]:
    found: dict[str, dict[str, dict[str, int]]] = {}
    for (name, _, queue_id), number in numbers.items():
        found.setdefault(name, {}).setdefault(BROKER, {})[str(queue_id)] = number
    return found


def _difference(found: list[str], wanted: list[str]) -> str:
    more, fewer = Counter(found) - Counter(wanted), Counter(wanted) - Counter(found)
    return f"{more.total()} too many {sorted(more)[:5]}, {fewer.total()} too few {sorted(fewer)[:5]}"


@contextmanager
def server_of(folder: Path) -> Iterator[tuple[maxq.Standalone, Admin, Producer]]:
    """One server for many cases."""
    with (
        maxq.Standalone(folder, settings=SETTINGS) as server,
        Admin(server.namesrv_address) as admin,
        Producer("campaign", server.namesrv_address) as producer,
    ):
        yield server, admin, producer


def main() -> int:
    """Run cases; 1 if one failed."""
    import tempfile

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--cases", type=int, default=1 << 40, help="how many at most")
    parser.add_argument("--seconds", type=float, default=1 << 40, help="for so long at most")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    marks: Counter[str] = Counter()
    failed: list[int] = []
    end, seed = time.monotonic() + given.seconds, given.first
    with tempfile.TemporaryDirectory() as folder, server_of(Path(folder)) as (server, admin, producer):
        while seed < given.first + given.cases and time.monotonic() < end:
            case = Case(seed, server, admin, producer)
            try:
                case.run()
            except Exception as error:
                failed.append(seed)
                print(f"seed {seed}: {type(error).__name__}: {error}", *case.history, sep="\n    ", flush=True)
            marks.update(case.marks)
            seed += 1
    for mark, count in sorted(marks.items()):
        print(f"{count:8} {mark}")
    print(f"{seed - given.first} cases from {given.first}, failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
