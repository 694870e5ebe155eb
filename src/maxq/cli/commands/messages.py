"""`maxq produce`, `maxq consume`, `maxq tail`: messages as lines."""

import asyncio
import os
import signal
import stat
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import orjson
import typer

from maxq.cli.connection import connected
from maxq.cli.help_pages import OUTPUT, CommandApp
from maxq.cli.options import finite, opened_input, split_assignments
from maxq.cli.terminal.error_text import error_line
from maxq.cli.terminal.message_json import message_object, message_of
from maxq.cli.terminal.near_names import near_names
from maxq.cli.terminal.pipes import InOrder, LineReader, LineWriter
from maxq.cli.terminal.progress import progress_bar
from maxq.cli.terminal.times import parse_time
from maxq.client.admin.admin import Admin
from maxq.client.client_config import LitePullConsumerConfig, ProducerConfig, SimpleConsumerConfig
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.consumer.simple_consumer import MAX_MESSAGES, SimpleConsumer
from maxq.client.message_feed import MessageFeed
from maxq.client.message_selector import MessageSelector
from maxq.client.producer.producer import Producer
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.client.validators import check_consumer_group
from maxq.codes import ResponseCode
from maxq.errors import BrokerError, ClientError, ConfigError, FilterExpressionError, MaxQError
from maxq.machine import system_environment
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.files.system import SystemClock

app = CommandApp()

_PROGRESS_EVERY = 1_000  # messages
_COMMIT_SECONDS = 1.0
_LONGEST = 86_400  # largest number of seconds that an option accepts
_POLL_MS = 500
_TAIL_GROUP = "TOOLS_CONSUMER"  # the group that mqadmin's tools use: it commits nothing

_Place = tuple[MessageQueue, int]  # a queue, and the queue offset behind a message

Topic = Annotated[str, typer.Argument(help="Topic.")]
AsJson = Annotated[
    bool, typer.Option("--json", rich_help_panel=OUTPUT, help="A whole message as JSON a line, instead of its body.")
]
Expression = Annotated[str, typer.Option("--tag", help="Only messages with these tags, such as 'a || b'.")]


@app.command()
@connected
def produce(
    topic: Topic,
    file: Annotated[Path, typer.Option("--file", "-f", help="Lines to send; '-' is standard input.")] = Path("-"),
    key: Annotated[str | None, typer.Option("--key", help="Keys of every message, separated by blanks.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Tag of every message.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="Property of every message.")
    ] = None,
    group: Annotated[str, typer.Option("--group", help="Producer group.")] = "maxq_produce",
    in_flight: Annotated[int, typer.Option(min=1, max=10_000, help="Messages on their way at once.")] = 512,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0.001,
            max=_LONGEST,
            callback=finite,
            help="Seconds until a message must be acknowledged, further tries included.",
        ),
    ] = 3,
    as_json: AsJson = False,
    *,
    namesrv: str,
) -> None:
    """Send every line as a message, as it comes; empty lines are left out, for RocketMQ has no empty messages.

    With --json a line is an object with body (or bodyBase64) and optionally tags, keys, flag, properties; what
    `maxq consume --json` prints will do.
    """
    given = split_assignments(properties or (), option="--property")
    sent = _Sent()
    with opened_input(file) as lines:
        source = _Source(lines, topic, as_json=as_json, key=key, tag=tag, properties=given)
        try:
            asyncio.run(_produce(source, namesrv, group, in_flight, timeout, sent))
        except KeyboardInterrupt:
            print(f"maxq: interrupted; {sent.told}", file=sys.stderr)
            raise
        except _LineError as error:  # the messages of all lines before it were sent
            raise ConfigError(f"{error}; {_messages(sent.count)} before it sent") from None
        except MaxQError as error:
            text = error_line(error).rstrip(".").replace("send_msg_timeout", "--timeout")
            raise (ConfigError if error.is_wrong_value else ClientError)(f"{text}; {sent.told}") from error
    rate = f" ({sent.count / sent.seconds:,.0f}/s)" if sent.count else ""
    print(f"{_messages(sent.count)} sent to {topic} in {sent.seconds:.2f} s{rate}", file=sys.stderr)
    for status, count in sent.others.items():
        print(f"maxq: warning: {_messages(count)} stored, but answered {status}", file=sys.stderr)


class _LineError(ConfigError):
    """Raised when a line of the input is not a message."""


class _Sent:
    """The acknowledged messages of a send that may fail half way."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        # messages that are stored less safely than the broker was told to, by send status
        self.others: Counter[str] = Counter()

    def add(self, result: SendResult) -> None:
        self.count += 1
        if result.send_status is not SendStatus.SEND_OK:
            self.others[result.send_status.name] += 1

    @property
    def told(self) -> str:
        return f"{_messages(self.count) if self.count else 'no message'} acknowledged"


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


class _Source:
    """The messages of the input. A thread of its own reads them, because a terminal or a pipe may block for ever."""

    def __init__(
        self,
        file: BinaryIO,
        topic: str,
        *,
        as_json: bool,
        key: str | None,
        tag: str | None,
        properties: dict[str, str],
    ) -> None:
        self._topic = topic
        self._as_json = as_json
        self._key = key
        self._tag = tag
        self._properties = properties
        self._reader = LineReader(file)
        self._sent = InOrder()
        facts = os.fstat(file.fileno())
        # bytes of the input file; None: the input is no file
        self.size = facts.st_size if stat.S_ISREG(facts.st_mode) else None
        self.done = 0  # bytes whose messages were acknowledged
        self._feed: MessageFeed
        self.fault: Exception | None = None

    def start(self, limit: int) -> MessageFeed:
        """Start reading; the messages come through the feed."""
        self._feed = MessageFeed(asyncio.get_running_loop(), limit, self._on_result)
        threading.Thread(target=self._read, name="maxq-lines", daemon=True).start()
        return self._feed

    def stop(self) -> None:
        """Stop reading; messages read so far are still sent."""
        self._reader.stop()
        self._feed.end()

    def _on_result(self, number: int, result: SendResult) -> None:
        self._done(self._sent.finish(number))

    def _done(self, position: int | None) -> None:
        if position is not None:
            self.done = position
            self._reader.done(position)

    def _read(self) -> None:
        try:
            for number, (position, line) in enumerate(self._reader.lines(), 1):
                message = self._message(line, number)
                if message is None:
                    self._done(self._sent.skip(position))
                    continue
                self._sent.add(position)
                if not self._feed.put(message):
                    return
        except (MaxQError, OSError) as error:
            self.fault = error
        with suppress(RuntimeError):  # the event loop has ended meanwhile
            self._feed.end()

    def _message(self, line: bytes, number: int) -> Message | None:
        """Returns the message that a line describes; None for an empty line."""
        if self._as_json:
            if line.isspace():
                return None
            message = self._from_json(line, number)
        else:
            body = line.rstrip(b"\r\n")
            if not body:
                return None
            message = Message(self._topic, body)
        if self._key is not None:
            message.keys = self._key
        if self._tag is not None:
            message.tags = self._tag
        for name, value in self._properties.items():
            message.put_user_property(name, value)
        return message

    def _from_json(self, line: bytes, number: int) -> Message:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            cut = "" if line.endswith(b"\n") else "; what wrote it ended in the middle of this line, which has no end"
            raise _LineError(f"line {number} is not JSON: {error}{cut}") from None
        try:
            return message_of(value, self._topic, f"line {number}")
        except ConfigError as error:
            raise _LineError(str(error)) from None


async def _produce(source: _Source, namesrv: str, group: str, in_flight: int, timeout_s: float, sent: _Sent) -> None:
    """Send all lines as they come; `sent` knows at any time how many there were, and how long it took from the first.

    Raises:
        _LineError: a line is not a message; those before it were sent.
        KeyboardInterrupt: Ctrl-C; what had been read was sent. A second one does not wait for that.
    """
    started = time.monotonic()
    config = ProducerConfig(
        namesrv_addr=namesrv, producer_group=group, send_msg_timeout=max(1, round(timeout_s * 1000))
    )

    def on_result(result: SendResult) -> None:
        sent.add(result)
        if sent.count % _PROGRESS_EVERY == 0:
            tell(source.done, f"{sent.count:,} messages")

    async with Producer(config, system_environment(namesrv)) as producer:
        feed = source.start(2 * in_flight)
        with _first_interrupt(source.stop) as is_interrupted, progress_bar("sending", source.size) as tell:
            await producer.send_many(feed, in_flight=in_flight, on_result=on_result)
    sent.seconds = time.monotonic() - started
    if is_interrupted():
        raise KeyboardInterrupt
    if source.fault is not None:
        raise source.fault


@contextmanager
def _first_interrupt(stop: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Call `stop` at the first Ctrl-C in the block; later ones end the command as usual. Yields a function that returns
    whether one came."""
    loop = asyncio.get_running_loop()
    count = 0

    def interrupted() -> None:
        nonlocal count
        count += 1
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
        stop()

    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if is_main:
        loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        yield lambda: count > 0
    finally:
        if is_main and not count:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)


@app.command()
@connected
def consume(
    topic: Topic,
    group: Annotated[str, typer.Option("--group", "-g", help="Consumer group; its offsets are committed.")],
    start: Annotated[
        str, typer.Option("--from", help="Where a group without offsets starts: earliest, latest, or a time.")
    ] = "earliest",
    maximum: Annotated[int | None, typer.Option("--max", min=1, help="End after this many messages.")] = None,
    idle: Annotated[
        float | None, typer.Option(min=0, callback=finite, help="End when nothing came for this many seconds.")
    ] = None,
    pop: Annotated[bool, typer.Option("--pop", help="Pop, and acknowledge the printed messages.")] = False,
    invisible: Annotated[
        float,
        typer.Option(
            min=1,
            max=_LONGEST,
            callback=finite,
            help="With --pop: seconds until unacknowledged messages are delivered to others.",
        ),
    ] = 30,
    expression: Expression = "*",
    sql: Annotated[
        str | None,
        typer.Option("--sql", help="Only messages whose properties match, such as \"amount > 100 AND region = 'EU'\"."),
    ] = None,
    as_json: AsJson = False,
    *,
    namesrv: str,
) -> None:
    """Print messages as a member of a consumer group, and commit exactly those that were printed; into a pipe, those
    that its reader has taken."""
    check_consumer_group(group)
    where, moment = _starting(start)
    if sql is not None and expression != "*":
        raise ConfigError("--tag and --sql exclude each other: in an expression the tag is TAGS")
    wanted: str | MessageSelector = expression
    if sql is not None:
        wanted = _by_sql(sql)
    if pop:
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            raise ConfigError(f"--from {start}: a group that pops starts at earliest or latest")
        popping = SimpleConsumerConfig(
            namesrv_addr=namesrv, consumer_group=group, consume_from_where=where,
            invisible_duration=round(invisible * 1000),
        )  # fmt: skip
        asyncio.run(_pop(popping, topic, wanted, as_json, maximum, idle))
        return
    config = LitePullConsumerConfig(
        namesrv_addr=namesrv,
        consumer_group=group,
        auto_commit=False,
        consume_from_where=where,
        consume_timestamp=moment,
    )
    asyncio.run(_consume(config, topic, wanted, as_json, maximum, idle))


def _by_sql(expression: str) -> MessageSelector:
    from maxq.filter.languages import compile_sql92  # its parser takes time to load

    try:
        compile_sql92(expression)
    except FilterExpressionError as error:
        raise ConfigError(f"--sql: {error}") from None
    return MessageSelector.by_sql(expression)


def _starting(start: str) -> tuple[ConsumeFromWhere, int]:
    if start == "earliest":
        return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, 0
    if start == "latest":
        return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, 0
    try:
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, parse_time(start, SystemClock())
    except ConfigError as error:
        raise ConfigError(f"--from takes earliest, latest, or a time; {error}") from None


async def _consume(
    config: LitePullConsumerConfig,
    topic: str,
    wanted: str | MessageSelector,
    as_json: bool,
    maximum: int | None,
    idle: float | None,
) -> None:
    await _check(config, topic)
    consumer = LitePullConsumer(config, system_environment(config.namesrv_addr))
    await consumer.subscribe(topic, wanted)
    async with consumer:
        await _start_where_wanted(consumer, config)
        out: LineWriter[_Place] = LineWriter()
        printed, quiet_since = 0, time.monotonic()
        done: dict[MessageQueue, int] = {}
        committing = asyncio.create_task(_commit_loop(consumer, out, done))
        try:
            while maximum is None or printed < maximum:
                messages = await consumer.poll(_POLL_MS)
                if messages:
                    messages = messages[: maximum - printed if maximum is not None else None]
                    last = messages[-1]
                    queue = MessageQueue(last.topic, last.broker_name, last.queue_id)
                    await out.write((_line(one, as_json), (queue, one.queue_offset + 1)) for one in messages)
                    printed += len(messages)
                    quiet_since = time.monotonic()
                elif idle is not None and time.monotonic() - quiet_since >= idle:
                    break
            await out.all_taken()
        finally:
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)
            await _commit(consumer, out, done)


async def _check(config: LitePullConsumerConfig | SimpleConsumerConfig, topic: str) -> None:
    """Refuse a topic that no name server knows, instead of waiting for it, and a group or topic that this user may not
    read, instead of having every pull refused. A broker that does not answer now is waited for."""
    async with Admin(config, system_environment(config.namesrv_addr)) as admin:
        async with near_names(admin, [topic]):
            await admin.topics.route(topic)
        try:
            for queue in (await admin.offsets.queues(topic))[:1]:
                await admin.offsets.committed(config.consumer_group, queue)
        except BrokerError as error:
            if error.code == ResponseCode.NO_PERMISSION:
                raise
        except MaxQError:
            pass


async def _commit_loop(consumer: LitePullConsumer, out: LineWriter[_Place], done: dict[MessageQueue, int]) -> None:
    while True:
        await asyncio.sleep(_COMMIT_SECONDS)
        try:
            await _commit(consumer, out, done)
        except MaxQError as error:
            print(f"maxq: warning: offsets are not committed yet: {error_line(error)}", file=sys.stderr)


async def _commit(consumer: LitePullConsumer, out: LineWriter[_Place], done: dict[MessageQueue, int]) -> None:
    """Commit the messages that the reader of our output has taken; `done` keeps those not committed yet. A queue that
    another member has by now is left to that member."""
    done.update(out.taken())
    for queue in done.keys() - consumer.assignment():
        del done[queue]
    if done:
        await consumer.commit(done)
        done.clear()


async def _pop(
    config: SimpleConsumerConfig,
    topic: str,
    wanted: str | MessageSelector,
    as_json: bool,
    maximum: int | None,
    idle: float | None,
) -> None:
    await _check(config, topic)
    consumer = SimpleConsumer(config, system_environment(config.namesrv_addr))
    await consumer.subscribe(topic, wanted)
    printed, quiet_since = 0, time.monotonic()
    out: LineWriter[MessageExt] = LineWriter()
    async with consumer:
        try:
            while maximum is None or printed < maximum:
                most = MAX_MESSAGES if maximum is None else min(MAX_MESSAGES, maximum - printed)
                messages = await consumer.receive(most, wait_ms=_POLL_MS)
                if messages:
                    await out.write((_line(message, as_json), message) for message in messages)
                    printed += len(messages)
                    quiet_since = time.monotonic()
                elif idle is not None and time.monotonic() - quiet_since >= idle:
                    break
                await _ack(consumer, out)
            await out.all_taken()
        finally:
            await _ack(consumer, out)


async def _ack(consumer: SimpleConsumer, out: LineWriter[MessageExt]) -> None:
    if taken := out.taken():
        await consumer.ack_all(taken)


async def _start_where_wanted(consumer: LitePullConsumer, config: LitePullConsumerConfig) -> None:
    """Seek in queues where the group has no offset, because a broker makes new groups read young topics from the start,
    whatever the client asks for."""
    if config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return
    for queue in await consumer.wait_for_assignment():
        if await consumer.committed(queue) > 0:
            continue
        if config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            await consumer.seek(queue, await consumer.offset_for_timestamp(queue, config.consume_timestamp))
        else:
            await consumer.seek_to_end(queue)


@app.command()
@connected
def tail(
    topic: Topic,
    expression: Expression = "*",
    maximum: Annotated[int | None, typer.Option("--max", min=1, help="End after this many messages.")] = None,
    as_json: AsJson = False,
    *,
    namesrv: str,
) -> None:
    """Print what arrives in a topic from now on, until Ctrl-C; no group's offsets move."""
    config = LitePullConsumerConfig(
        namesrv_addr=namesrv,
        consumer_group=_TAIL_GROUP,
        auto_commit=False,
        instance_name=f"tail-{os.getpid()}",
    )
    asyncio.run(_tail(config, topic, expression, as_json, maximum))


async def _tail(
    config: LitePullConsumerConfig, topic: str, expression: str, as_json: bool, maximum: int | None
) -> None:
    wanted = {tag.strip() for tag in expression.split("||")} - {"", "*"}
    await _check(config, topic)
    async with LitePullConsumer(config, system_environment(config.namesrv_addr)) as consumer:
        queues = await consumer.fetch_message_queues(topic)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_end(queue)
        print(f"waiting for messages of {topic} in {len(queues)} queues …", file=sys.stderr, flush=True)
        printed = 0
        out: LineWriter[None] = LineWriter()
        while maximum is None or printed < maximum:
            messages = [found for found in await consumer.poll(_POLL_MS) if not wanted or found.tags in wanted]
            messages = messages[: maximum - printed if maximum is not None else None]
            await out.write((_line(message, as_json), None) for message in messages)
            printed += len(messages)


def _line(message: MessageExt, as_json: bool) -> bytes:
    return orjson.dumps(message_object(message)) if as_json else bytes(message.body)
