"""`maxq produce`, `maxq consume`, `maxq tail`: messages as lines."""

import asyncio
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import orjson
import typer

from maxq.cli.credentials import AccessKey, SecretKey, use_credentials
from maxq.cli.message_json import message_object, message_of
from maxq.cli.options import DEFAULT_NAMESRV, Namesrv, opened_input, split_assignments
from maxq.cli.said import said
from maxq.cli.times import parse_time
from maxq.client.admin.admin import Admin
from maxq.client.client_config import LitePullConsumerConfig, ProducerConfig, SimpleConsumerConfig
from maxq.client.lite_pull_consumer import LitePullConsumer
from maxq.client.producer import Producer
from maxq.client.send_result import SendResult, SendStatus
from maxq.client.simple_consumer import MAX_MESSAGES, SimpleConsumer
from maxq.client.validators import check_consumer_group
from maxq.errors import ClientError, ConfigError, MaxQError
from maxq.machine import system_seams
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message import Message, MessageExt
from maxq.protocol.message_queue import MessageQueue
from maxq.runtime.system import SystemClock

app = typer.Typer(rich_markup_mode=None)

_SEND_AT_ONCE = 5_000  # messages whose results are kept in memory
_COMMIT_SECONDS = 1.0
_POLL_MS = 500
_ASSIGNMENT_SECONDS = 0.02
_TAIL_GROUP = "TOOLS_CONSUMER"  # as mqadmin's tools: commits nothing

Topic = Annotated[str, typer.Argument(help="Topic.")]
AsJson = Annotated[bool, typer.Option("--json", help="A whole message as JSON a line, instead of its body.")]
Expression = Annotated[str, typer.Option("--tag", help="Only messages with these tags, such as 'a || b'.")]


@app.command()
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
    as_json: AsJson = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    access_key: AccessKey = None,
    secret_key: SecretKey = None,
) -> None:
    """Send every line as a message; empty lines are left out, for RocketMQ has no empty messages.

    With --json a line is an object with body (or bodyBase64) and optionally tags, keys, flag, properties; what
    `maxq consume --json` prints will do.
    """
    use_credentials(access_key, secret_key)
    given = split_assignments(properties or (), option="--property")
    sent = _Sent()
    with opened_input(file) as lines:
        messages = _json_messages(lines, topic) if as_json else _plain_messages(lines, topic)
        try:
            asyncio.run(_produce(_labelled(messages, key, tag, given), namesrv, group, in_flight, sent))
        except KeyboardInterrupt:
            print(f"maxq: interrupted; {sent.told}", file=sys.stderr)
            raise
        except _LineError as error:  # all before it are sent
            raise ConfigError(f"{error}; {_messages(sent.count)} before it sent") from None
        except MaxQError as error:
            raise (ConfigError if error.is_wrong_value else ClientError)(
                f"{said(error).rstrip('.')}; {sent.told}"
            ) from error
    rate = f" ({sent.count / sent.seconds:,.0f}/s)" if sent.count else ""
    print(f"{_messages(sent.count)} sent to {topic} in {sent.seconds:.2f} s{rate}", file=sys.stderr)
    for status, count in sent.others.items():
        print(f"maxq: warning: {_messages(count)} stored, but answered {status}", file=sys.stderr)


class _LineError(ConfigError):
    """A line of the input is no message."""


class _Sent:
    """What was acknowledged, of a send that may fail half way."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.others: Counter[str] = Counter()  # stored, but not as safely as the broker was told to: by status

    def add(self, result: SendResult) -> None:
        self.count += 1
        if result.send_status is not SendStatus.SEND_OK:
            self.others[result.send_status.name] += 1

    @property
    def told(self) -> str:
        return f"{_messages(self.count) if self.count else 'no message'} acknowledged"


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


def _plain_messages(lines: Iterable[bytes], topic: str) -> Iterator[Message]:
    for line in lines:
        body = line.rstrip(b"\r\n")
        if body:
            yield Message(topic, body)


def _json_messages(lines: Iterable[bytes], topic: str) -> Iterator[Message]:
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise _LineError(f"line {number} is not JSON: {error}") from None
        try:
            yield message_of(value, topic, f"line {number}")
        except ConfigError as error:
            raise _LineError(str(error)) from None


def _labelled(
    messages: Iterable[Message], key: str | None, tag: str | None, properties: dict[str, str]
) -> Iterator[Message]:
    for message in messages:
        if key is not None:
            message.keys = key
        if tag is not None:
            message.tags = tag
        for name, value in properties.items():
            message.put_user_property(name, value)
        yield message


async def _produce(messages: Iterator[Message], namesrv: str, group: str, in_flight: int, sent: _Sent) -> None:
    """Send all; `sent` knows at any time how many there were, and how long it took from the first.

    Raises:
        _LineError: a line is no message; those before it were sent.
    """
    started = time.monotonic()
    config = ProducerConfig(namesrv_addr=namesrv, producer_group=group)
    async with Producer(config, system_seams(namesrv)) as producer:
        fault = None
        while fault is None:
            some, fault = await asyncio.to_thread(_take, messages)  # a terminal or pipe may make us wait
            if not some:
                break
            await producer.send_many(some, in_flight=in_flight, on_result=sent.add)
            sent.seconds = time.monotonic() - started
            if sys.stderr.isatty():
                print(f"\r{sent.count} …", end="\r", file=sys.stderr)
    if fault is not None:
        raise fault


def _take(messages: Iterator[Message]) -> tuple[list[Message], _LineError | None]:
    """The next messages, and what is wrong with the line behind them."""
    some: list[Message] = []
    try:
        some.extend(itertools.islice(messages, _SEND_AT_ONCE))
    except _LineError as error:
        return some, error
    return some, None


@app.command()
def consume(
    topic: Topic,
    group: Annotated[str, typer.Option("--group", "-g", help="Consumer group; its offsets are committed.")],
    start: Annotated[
        str, typer.Option("--from", help="Where a group without offsets starts: earliest, latest, or a time.")
    ] = "earliest",
    maximum: Annotated[int | None, typer.Option("--max", min=1, help="End after so many messages.")] = None,
    idle: Annotated[float | None, typer.Option(min=0, help="End when nothing came for so many seconds.")] = None,
    pop: Annotated[bool, typer.Option("--pop", help="Pop, and acknowledge what was printed.")] = False,
    invisible: Annotated[
        float, typer.Option(min=1, help="With --pop: seconds until others may have what was not acknowledged.")
    ] = 30,
    expression: Expression = "*",
    as_json: AsJson = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    access_key: AccessKey = None,
    secret_key: SecretKey = None,
) -> None:
    """Print messages as a member of a consumer group, and commit exactly those that were printed."""
    check_consumer_group(group)
    use_credentials(access_key, secret_key)
    where, moment = _starting(start)
    if pop:
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            raise ConfigError(f"--from {start}: a group that pops starts at earliest or latest")
        popping = SimpleConsumerConfig(
            namesrv_addr=namesrv, consumer_group=group, consume_from_where=where,
            invisible_duration=round(invisible * 1000),
        )  # fmt: skip
        asyncio.run(_pop(popping, topic, expression, as_json, maximum, idle))
        return
    config = LitePullConsumerConfig(
        namesrv_addr=namesrv,
        consumer_group=group,
        auto_commit=False,
        consume_from_where=where,
        consume_timestamp=moment,
    )
    asyncio.run(_consume(config, topic, expression, as_json, maximum, idle))


def _starting(start: str) -> tuple[ConsumeFromWhere, int]:
    if start == "earliest":
        return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, 0
    if start == "latest":
        return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, 0
    return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, parse_time(start, SystemClock())


async def _consume(
    config: LitePullConsumerConfig,
    topic: str,
    expression: str,
    as_json: bool,
    maximum: int | None,
    idle: float | None,
) -> None:
    async with Admin(config, system_seams(config.namesrv_addr)) as admin:
        await admin.topics.route(topic)  # a topic that nobody knows is an error, not a long wait
    consumer = LitePullConsumer(config, system_seams(config.namesrv_addr))
    await consumer.subscribe(topic, expression)
    async with consumer:
        await _start_where_wanted(consumer, config)
        done: dict[MessageQueue, int] = {}
        printed, quiet_since, committed = 0, time.monotonic(), time.monotonic()
        try:
            while maximum is None or printed < maximum:
                messages = await consumer.poll(_POLL_MS)
                if messages:
                    messages = messages[: maximum - printed if maximum is not None else None]
                    _print(messages, as_json)
                    printed += len(messages)
                    last = messages[-1]
                    done[MessageQueue(last.topic, last.broker_name, last.queue_id)] = last.queue_offset + 1
                    quiet_since = time.monotonic()
                elif idle is not None and time.monotonic() - quiet_since >= idle:
                    return
                if done and time.monotonic() - committed >= _COMMIT_SECONDS:
                    await consumer.commit(done)
                    done, committed = {}, time.monotonic()
        finally:
            if done:
                await consumer.commit(done)


async def _pop(
    config: SimpleConsumerConfig, topic: str, expression: str, as_json: bool, maximum: int | None, idle: float | None
) -> None:
    async with Admin(config, system_seams(config.namesrv_addr)) as admin:
        await admin.topics.route(topic)
    consumer = SimpleConsumer(config, system_seams(config.namesrv_addr))
    await consumer.subscribe(topic, expression)
    printed, quiet_since = 0, time.monotonic()
    async with consumer:
        while maximum is None or printed < maximum:
            most = MAX_MESSAGES if maximum is None else min(MAX_MESSAGES, maximum - printed)
            messages = await consumer.receive(most, wait_ms=_POLL_MS)
            if messages:
                _print(messages, as_json)
                await consumer.ack_all(messages)
                printed += len(messages)
                quiet_since = time.monotonic()
            elif idle is not None and time.monotonic() - quiet_since >= idle:
                return


async def _start_where_wanted(consumer: LitePullConsumer, config: LitePullConsumerConfig) -> None:
    """Seek in queues where the group has no offset: a broker lets new groups read young topics from the start, whatever
    the client asks for."""
    if config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return
    while not consumer.assignment():  # noqa: ASYNC110 (the consumer offers no event for it)
        await asyncio.sleep(_ASSIGNMENT_SECONDS)
    for queue in consumer.assignment():
        if await consumer.committed(queue) > 0:
            continue
        if config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            await consumer.seek(queue, await consumer.offset_for_timestamp(queue, config.consume_timestamp))
        else:
            await consumer.seek_to_end(queue)


@app.command()
def tail(
    topic: Topic,
    expression: Expression = "*",
    maximum: Annotated[int | None, typer.Option("--max", min=1, help="End after so many messages.")] = None,
    as_json: AsJson = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    access_key: AccessKey = None,
    secret_key: SecretKey = None,
) -> None:
    """Print what arrives in a topic from now on, until Ctrl-C; no group's offsets move."""
    use_credentials(access_key, secret_key)
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
    async with LitePullConsumer(config, system_seams(config.namesrv_addr)) as consumer:
        queues = await consumer.fetch_message_queues(topic)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_end(queue)
        print(f"waiting for messages of {topic} in {len(queues)} queues …", file=sys.stderr, flush=True)
        printed = 0
        while maximum is None or printed < maximum:
            messages = [found for found in await consumer.poll(_POLL_MS) if not wanted or found.tags in wanted]
            messages = messages[: maximum - printed if maximum is not None else None]
            _print(messages, as_json)
            printed += len(messages)


def _print(messages: Iterable[MessageExt], as_json: bool) -> None:
    out = sys.stdout.buffer
    for message in messages:
        out.write(orjson.dumps(message_object(message)) if as_json else bytes(message.body))
        out.write(b"\n")
    with suppress(BlockingIOError):
        out.flush()
