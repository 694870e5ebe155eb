"""Message commands of mqadmin."""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer

from maxq.cli.admin.command import Topic, Via, command
from maxq.cli.admin.values import is_true, known_charset
from maxq.cli.help_pages import CommandApp
from maxq.cli.options import server_address
from maxq.cli.terminal.message_json import message_object
from maxq.cli.terminal.progress import progress_bar
from maxq.cli.terminal.report import Report
from maxq.cli.terminal.times import format_time, parse_time
from maxq.client.admin.admin import Admin
from maxq.client.admin.messages import TOOLS_GROUP
from maxq.client.client_config import ProducerConfig
from maxq.client.producer.producer import Producer
from maxq.client.results.send_result import SendResult
from maxq.errors import BrokerError, ClientError, ConfigError, MaxQError, RemoteProtocolError
from maxq.machine import system_environment
from maxq.protocol.json.json_body import to_plain
from maxq.protocol.message.message import Message, MessageExt, decode_record
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.files.system import SystemClock

app = CommandApp()

TOOLS_PRODUCER = "TOOLS_PRODUCER"
_DEFAULT_COUNT = 128
_TOLD_EVERY = 100  # messages between two reports of progress

MsgId = Annotated[str, typer.Option("-i", "--msgId", help="Message id.")]
BrokerName = Annotated[str, typer.Option("-b", "--brokerName", help="Broker name.")]
QueueId = Annotated[int, typer.Option("-i", "--queueId", min=0)]
Begin = Annotated[str | None, typer.Option("-b", "--beginTimestamp", help="Stored at this time or later.")]
End = Annotated[str | None, typer.Option("-e", "--endTimestamp", help="Stored at this time or earlier.")]
Tags = Annotated[str, typer.Option("-s", "--subExpression", help="Tags, such as 'a || b'.")]
Charset = Annotated[
    str, typer.Option("-c", "--charsetName", callback=known_charset, help="How bodies are written, such as GBK.")
]
BodyFormat = Annotated[
    str, typer.Option("-f", "--bodyFormat", callback=known_charset, help="How its body is written, such as GBK.")
]

#: Properties that every send sets anew.
_OF_THE_STORE = frozenset({"UNIQ_KEY", "MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT", "MIN_OFFSET", "MAX_OFFSET"})
_COLUMNS = {
    "msgId": "#Message ID",
    "queueId": "#QID",
    "queueOffset": "#Offset",
    "tags": "#Tags",
    "keys": "#Keys",
    "storeTime": "#Store Time",
}


def _list_report(messages: Iterable[MessageExt]) -> Report:
    found = list(messages)
    rows = [
        (
            message.msg_id,
            message.queue_id,
            message.queue_offset,
            message.tags,
            message.keys,
            format_time(message.store_timestamp),
        )
        for message in found
    ]
    return Report(_COLUMNS, rows, value=[message_object(message) for message in found])


def _properties(message: MessageExt) -> str:
    return "{" + ", ".join(f"{name}={text}" for name, text in message.properties.items()) + "}"


async def _one_report(admin: Admin, message: MessageExt, charset: str = "UTF-8") -> Report:
    """Report all fields of one message under mqadmin's labels, and how far each group is with it."""
    labels = {
        "OffsetID": message.offset_msg_id,
        "Message ID": message.msg_id,
        "Topic": message.topic,
        "Tags": f"[{message.tags or ''}]",
        "Keys": f"[{message.keys or ''}]",
        "Queue ID": message.queue_id,
        "Queue Offset": message.queue_offset,
        "CommitLog Offset": message.physical_offset,
        "Reconsume Times": message.reconsume_times,
        "Born Timestamp": format_time(message.born_timestamp),
        "Store Timestamp": format_time(message.store_timestamp),
        "Born Host": message.born_host_text,
        "Store Host": message.store_host_text,
        "System Flag": message.sys_flag,
        "Properties": _properties(message),
        "Message Body": message.body.decode(charset, "replace"),
    }
    value = message_object(message)
    try:
        tracks = await admin.messages.track(message)
    except MaxQError as error:  # the message itself was found: show it without the groups that have read it
        print(f"maxq: warning: the groups that consumed it are unknown: {error}", file=sys.stderr)
        tracks = []
    value["tracks"] = [
        {"group": track.consumer_group, "type": track.track_type.name, "exception": track.exception_desc}
        for track in tracks
    ]
    lines = [f"{name + ':':<20} {text}" for name, text in labels.items()]
    lines += ["", *(f"{track.consumer_group:<40} {track.track_type.name}" for track in tracks)]
    return Report(
        {"label": "#Label", "value": "#Value"}, list(labels.items()), value=value, text="\n".join(lines) + "\n"
    )


@command(app, "queryMsgById")
async def query_msg_by_id(
    admin: Admin,
    msg_id: MsgId,
    topic: Topic,
    group: Annotated[str | None, typer.Option("-g", "--consumerGroup", help="Have it consumed, with -d.")] = None,
    client_id: Annotated[str | None, typer.Option("-d", "--clientId", help="By this member.")] = None,
    charset: BodyFormat = "UTF-8",
    via: Via = None,
    again: Annotated[str, typer.Option("-s", "--sendMessage", metavar="true|false", help="Send it again.")] = "false",
    unit: Annotated[str, typer.Option("-u", "--unitName", help="Unit of the producer, with -s.")] = "",
) -> Report:
    """A message by its offset id, or by its unique key."""
    if is_true("-s", again):
        return await _sent_again(admin, await admin.messages.view(topic, msg_id, via=via), unit)
    if (consumed := await _consumed(admin, topic, msg_id, group, client_id)) is not None:
        return consumed
    return await _one_report(admin, await admin.messages.view(topic, msg_id, via=via), charset)


async def _sent_again(admin: Admin, message: MessageExt, unit: str) -> Report:
    """Send a message to its topic again, with what its producer set and a new id."""
    kept = {name: text for name, text in message.properties.items() if name not in _OF_THE_STORE}
    servers = ";".join(admin.name_servers.addresses)
    config = ProducerConfig(namesrv_addr=servers, producer_group=TOOLS_PRODUCER, unit_name=unit)
    async with Producer(config, system_environment(servers)) as producer:
        result = await producer.send(Message(message.topic, message.body, kept, message.flag))
    return _sent(result)


def _sent(result: SendResult) -> Report:
    columns = {"brokerName": "#Broker Name", "queueId": "#QID", "status": "#Send Result", "msgId": "#MsgId"}
    place = result.message_queue
    return Report(columns, [(place.broker_name, place.queue_id, result.send_status.name, result.msg_id)])


@command(app, "queryMsgByUniqueKey")
async def query_msg_by_unique_key(
    admin: Admin,
    msg_id: MsgId,
    topic: Topic,
    group: Annotated[str | None, typer.Option("-g", "--consumerGroup", help="Have it consumed, with -d.")] = None,
    client_id: Annotated[str | None, typer.Option("-d", "--clientId", help="By this member.")] = None,
    show_all: Annotated[bool, typer.Option("-a", "--showAll", help="Every message with this id.")] = False,
    via: Via = None,
    start: Annotated[str | None, typer.Option("-s", "--startTime", help="Stored at this time or later.")] = None,
    end: Annotated[str | None, typer.Option("-e", "--endTime", help="Stored at this time or earlier.")] = None,
) -> Report:
    """Messages by the id that their producer gave them."""
    if (consumed := await _consumed(admin, topic, msg_id, group, client_id)) is not None:
        return consumed
    found = await admin.messages.query_by_unique_key(topic, msg_id, via=via, **_span(start, end))
    if show_all:
        return _list_report(found)
    if not found:
        raise ClientError(f"no message {msg_id} in topic {topic}")
    return await _one_report(admin, found[0])


async def _consumed(admin: Admin, topic: str, msg_id: str, group: str | None, client_id: str | None) -> Report | None:
    """Make the member that -g and -d name consume the message; returns None if neither is given."""
    if (group is None) != (client_id is None):
        raise ConfigError("-g/--consumerGroup and -d/--clientId go together")
    if group is None or client_id is None:
        return None
    result = await admin.messages.consume_directly(group, client_id, topic, msg_id)
    outcome = result.consume_result.name if result.consume_result is not None else ""
    columns = {"result": "#Result", "spentMs": "#Spent(ms)", "remark": "#Remark"}
    return Report(columns, [(outcome, result.spent_time_mills, result.remark)], value=to_plain(result))


@command(app, "queryMsgByKey")
async def query_msg_by_key(
    admin: Admin,
    topic: Topic,
    key: Annotated[str, typer.Option("-k", "--msgKey", help="Key, or with -p T a tag.")],
    begin: Begin = None,
    end: End = None,
    maximum: Annotated[int, typer.Option("-m", "--maxNum", min=1, max=64)] = 64,
    key_type: Annotated[str, typer.Option("-p", "--keyType", help="K: key, T: tag.")] = "K",
    via: Via = None,
) -> Report:
    """Messages by key."""
    if key_type not in ("K", "T"):
        raise ConfigError(f"-p {key_type!r} is not allowed: it must be K or T")
    ask = admin.messages.query_by_key if key_type == "K" else admin.messages.query_by_tag
    return _list_report(await ask(topic, key, max_num=maximum, via=via, **_span(begin, end)))


def _span(begin: str | None, end: str | None) -> dict[str, int]:
    """Make the arguments for a time from … to; an absent bound is no limit."""
    clock = SystemClock()
    given = {"begin_ms": begin, "end_ms": end}
    return {name: parse_time(text, clock) for name, text in given.items() if text is not None}


@command(app, "queryMsgByOffset")
async def query_msg_by_offset(
    admin: Admin,
    topic: Topic,
    broker: BrokerName,
    queue: QueueId,
    offset: Annotated[int, typer.Option("-o", "--offset", min=0)],
    charset: BodyFormat = "UTF-8",
    via: Annotated[str | None, typer.Option("-r", "--routeTopic", help="Whose route says where; for an LMQ.")] = None,
) -> Report:
    """The message at an offset of a queue."""
    message = await admin.messages.view_by_queue_offset(MessageQueue(topic, broker, queue), offset, via=via)
    return await _one_report(admin, message, charset)


async def _scanned(
    admin: Admin,
    topic: str,
    queues: list[MessageQueue] | None,
    begin: str | None,
    end: str | None,
    expression: str,
    limit: int | None = None,
    via: str | None = None,
    group: str = TOOLS_GROUP,
) -> list[MessageExt]:
    found: list[MessageExt] = []
    scan: AsyncIterator[MessageExt] = admin.messages.scan(
        topic, queues=queues, expression=expression, via=via, group=group, **_span(begin, end)
    )
    with progress_bar("reading", limit) as tell:
        async with aclosing(scan) as messages:  # type: ignore[type-var]
            async for message in messages:
                found.append(message)
                if len(found) % _TOLD_EVERY == 0:
                    tell(len(found), f"{len(found):,} messages")
                if limit is not None and len(found) >= limit:
                    break
    return found


def _printed(messages: list[MessageExt], with_body: bool, charset: str = "UTF-8") -> Report:
    report = _list_report(messages)
    lines = []
    for message in messages:
        body = f" BODY: {message.body.decode(charset, 'replace')}" if with_body else ""
        where = f"queueId={message.queue_id}, queueOffset={message.queue_offset}"
        lines.append(f"MSGID: {message.msg_id} {where}, properties={_properties(message)}{body}\n")
    return Report(report.columns, report.rows, value=report.value, text="".join(lines))


@command(app, "printMsg")
async def print_msg(
    admin: Admin,
    topic: Topic,
    expression: Tags = "*",
    begin: Begin = None,
    end: End = None,
    with_body: Annotated[str, typer.Option("-d", "--printBody", metavar="true|false")] = "true",
    charset: Charset = "UTF-8",
    via: Annotated[str | None, typer.Option("-l", "--lmqParentTopic", help="The topic is an LMQ of this one.")] = None,
) -> Report:
    """All messages of a topic, or those of a time."""
    shows_body = is_true("-d", with_body)
    messages = await _scanned(admin, topic, None, begin, end, expression, via=via)
    return _printed(messages, shows_body, charset)


@command(app, "printMsgByQueue")
async def print_msg_by_queue(
    admin: Admin,
    topic: Topic,
    broker: Annotated[str, typer.Option("-a", "--brokerName", help="Broker name.")],
    queue: QueueId,
    expression: Tags = "*",
    begin: Begin = None,
    end: End = None,
    with_messages: Annotated[str, typer.Option("-p", "--printMsg", metavar="true|false")] = "false",
    with_body: Annotated[str, typer.Option("-d", "--printBody", metavar="true|false")] = "false",
    calculate: Annotated[str, typer.Option("-f", "--calculate", metavar="true|false", help="Count tags.")] = "false",
    charset: Charset = "UTF-8",
) -> Report:
    """All messages of a queue, or how many there are of each tag."""
    shows, shows_body, counts_tags = is_true("-p", with_messages), is_true("-d", with_body), is_true("-f", calculate)
    messages = await _scanned(admin, topic, [MessageQueue(topic, broker, queue)], begin, end, expression)
    printed = _printed(messages, shows_body, charset)
    counts = Counter(message.tags or "" for message in messages).most_common()
    tags = "".join(f"Tag: {tag:<30} Count: {count}\n" for tag, count in counts)
    text = (printed.text or "") * shows + tags * counts_tags
    value = {"messages": printed.value, "tags": dict(counts)}
    return Report(printed.columns, printed.rows, value=value, text=text)


@command(app, "consumeMessage")
async def consume_message(
    admin: Admin,
    topic: Topic,
    broker: Annotated[str | None, typer.Option("-b", "--brokerName", help="Broker name, with -i.")] = None,
    queue: Annotated[int | None, typer.Option("-i", "--queueId", min=0)] = None,
    offset: Annotated[int | None, typer.Option("-o", "--offset", min=0, help="With -b and -i.")] = None,
    begin: Annotated[str | None, typer.Option("-s", "--beginTimestamp", help="Stored at this time or later.")] = None,
    end: End = None,
    count: Annotated[int, typer.Option("-c", "--MessageNumber", min=1)] = _DEFAULT_COUNT,
    group: Annotated[str, typer.Option("-g", "--consumerGroup", help="Pull as this group.")] = TOOLS_GROUP,
) -> Report:
    """Messages of a topic, or of one queue from an offset on; no group's offset moves."""
    if (broker is None) != (queue is None) or (offset is not None and queue is None):
        raise ConfigError("-b/--brokerName and -i/--queueId go together, and -o/--offset needs them")
    if broker is None or queue is None:
        return _printed(await _scanned(admin, topic, None, begin, end, "*", count, group=group), True)
    place = MessageQueue(topic, broker, queue)
    if offset is None:
        return _printed(await _scanned(admin, topic, [place], begin, end, "*", count, group=group), True)
    found: list[MessageExt] = []
    while len(found) < count:
        result = await admin.messages.pull(place, offset, max_nums=min(32, count - len(found)), group=group)
        found += result.messages
        if not result.messages and result.next_begin_offset <= offset:
            break
        offset = result.next_begin_offset
    return _printed(found[:count], True)


@command(app, "sendMessage")
async def send_message(
    admin: Admin,
    topic: Topic,
    body: Annotated[str, typer.Option("-p", "--body", help="Text.")],
    key: Annotated[str | None, typer.Option("-k", "--key", help="Keys, separated by blanks.")] = None,
    tags: Annotated[str | None, typer.Option("-c", "--tags", help="Tag.")] = None,
    broker: Annotated[str | None, typer.Option("-b", "--broker", help="Broker name, with -i.")] = None,
    queue: Annotated[int | None, typer.Option("-i", "--qid", min=0)] = None,
    trace: Annotated[str, typer.Option("-m", "--msgTraceEnable", metavar="true|false", help="Trace it.")] = "false",
) -> Report:
    """Send one message."""
    if (broker is None) != (queue is None):
        raise ConfigError("-b/--broker and -i/--qid go together")
    message = Message(topic, body.encode())
    if tags:
        message.tags = tags
    if key:
        message.keys = key
    servers = ";".join(admin.name_servers.addresses)
    place = MessageQueue(topic, broker, queue) if broker is not None and queue is not None else None
    traced = is_true("-m", trace)
    config = ProducerConfig(namesrv_addr=servers, producer_group=TOOLS_PRODUCER, enable_trace=traced)
    async with Producer(config, system_environment(servers)) as producer:
        result = await producer.send(message, queue=place)
    return _sent(result)


@command(app, "queryCq")
async def query_cq(
    admin: Admin,
    topic: Topic,
    queue: Annotated[int, typer.Option("-q", "--queue", min=0)],
    index: Annotated[int, typer.Option("-i", "--index", min=0)],
    count: Annotated[int, typer.Option("-c", "--count", min=1)] = 10,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", callback=server_address, help="Broker, host or host:port.")
    ] = None,
    group: Annotated[str | None, typer.Option("-g", "--consumer", help="Which of them this group would get.")] = None,
) -> Report:
    """Units of a ConsumeQueue."""
    if broker is None:
        masters = [data.master_address for data in (await admin.topics.route(topic)).broker_datas]
        broker = next((address for address in masters if address), None)
    if broker is None:
        raise BrokerError(1, f"no master has topic {topic}")
    found = await admin.messages.query_consume_queue(broker, MessageQueue(topic, "", queue), index, count, group)
    rows = [
        (index + number, unit.physic_offset, unit.physic_size, unit.tags_code, unit.eval if group else "-")
        for number, unit in enumerate(found.queue_data)
    ]
    columns = {"index": "#Index", "physicalOffset": "#Physical Offset", "size": "#Size", "tagsCode": "#Tags Code"}
    note = f"Queue data: max: {found.max_queue_index}, min: {found.min_queue_index}"
    return Report(columns | {"matches": "#Matches"}, rows, value=to_plain(found), notes=["", note])


# --- files of compacted topics ---

_LEAST_RECORD = 8  # size and magic
_COMPACTED_COLUMNS = {
    "msgId": "#Message ID",
    "queueId": "#QID",
    "queueOffset": "#Offset",
    "keys": "#Keys",
    "storeTime": "#Store Time",
    "bytes": "#Bytes",
}


@command(app, "dumpCompactionLog")
async def dump_compaction_log(
    admin: Admin, file: Annotated[Path, typer.Option("-f", "--file", help="One file below compactionLog/.")]
) -> Report:
    """The messages of a file of a compacted topic, without a broker."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"file {file} can not be read: {error.strerror}") from None
    found = _messages_of_file(data)
    rows = [(m.msg_id, m.queue_id, m.queue_offset, m.keys, format_time(m.store_timestamp), m.store_size) for m in found]
    return Report(_COMPACTED_COLUMNS, rows, value=[message_object(message) for message in found])


def _messages_of_file(data: bytes) -> list[MessageExt]:
    """Read the messages up to the first place without a record: the unused rest of the file."""
    found: list[MessageExt] = []
    position = 0
    while position + _LEAST_RECORD <= len(data):
        try:
            message = decode_record(data, position, inflate=True)
        except RemoteProtocolError:
            break
        found.append(message)
        position += message.store_size
    return found
