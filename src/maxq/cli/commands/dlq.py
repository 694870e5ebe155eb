"""`maxq dlq`: a group's dead letters: list, show, export, redrive."""

import sys
from contextlib import aclosing, suppress
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import orjson
import typer

from maxq.cli.admin.command import command
from maxq.cli.help_pages import CommandApp
from maxq.cli.lazy import NearGroup
from maxq.cli.options import opened_output
from maxq.cli.terminal.message_json import message_object
from maxq.cli.terminal.progress import progress_bar
from maxq.cli.terminal.report import Report, done_report
from maxq.cli.terminal.times import format_time, parse_time
from maxq.client.admin.admin import Admin
from maxq.client.admin.dead_letters import DeadLetterSelection, origin_msg_id, origin_topic
from maxq.client.client_config import ProducerConfig
from maxq.client.producer.producer import Producer
from maxq.errors import MaxQError
from maxq.machine import system_environment
from maxq.protocol.message.message import Message, MessageExt
from maxq.runtime.files.system import SystemClock

app = CommandApp(
    cls=NearGroup,
    no_args_is_help=True,
    help="Dead letters of consumer groups.",
)

_PRODUCER = "TOOLS_PRODUCER"

Group = Annotated[str, typer.Argument(help="Consumer group.")]
Begin = Annotated[str | None, typer.Option("-b", "--begin", help="Dead since this time or later.")]
End = Annotated[str | None, typer.Option("-e", "--end", help="Dead since this time or earlier.")]
Key = Annotated[str | None, typer.Option("-k", "--key", help="Only messages with this key.")]
MsgId = Annotated[
    str | None, typer.Option("-i", "--msgId", help="Only this one: any of its ids, also that in its own topic.")
]

_COLUMNS = {
    "msgId": "#Message ID",
    "originTopic": "#Topic",
    "reconsumeTimes": "#Tries",
    "tags": "#Tags",
    "keys": "#Keys",
    "storeTime": "#Dead Since",
}


class Target(Enum):
    """The topic to which dead letters are sent again: the group's retry topic or the original topic."""

    RETRY = "retry"
    ORIGIN = "origin"


def _selection(begin: str | None, end: str | None, key: str | None, msg_id: str | None) -> DeadLetterSelection:
    clock = SystemClock()
    return DeadLetterSelection(
        begin_ms=None if begin is None else parse_time(begin, clock),
        end_ms=None if end is None else parse_time(end, clock),
        key=key,
        msg_id=msg_id,
    )


def letter_object(letter: MessageExt) -> dict[str, Any]:
    """Return all fields of a dead letter; its original topic and id are in originTopic and originMsgId."""
    return {
        **message_object(letter),
        "originTopic": origin_topic(letter),
        "originMsgId": origin_msg_id(letter),
    }


@command(app, "list", summary="Groups that have dead letters, and how many.")
async def list_groups(admin: Admin) -> Report:
    """Groups that have dead letters, and how many of them were redriven."""
    counts = await admin.dead_letters.groups()
    rows = [(found.group, found.count, found.sent_again, format_time(found.last_ms)) for found in counts]
    return Report({"group": "#Group", "count": "#Dead Letters", "redriven": "#Redriven", "last": "#Last"}, rows)


@command(app, "show")
async def show_letters(
    admin: Admin,
    group: Group,
    count: Annotated[int, typer.Option("-c", "--count", min=1, help="At most this many.")] = 128,
    begin: Begin = None,
    end: End = None,
    key: Key = None,
    msg_id: MsgId = None,
) -> Report:
    """A group's dead letters, from the first one on."""
    letters: list[MessageExt] = []
    async with aclosing(admin.dead_letters.scan(group, _selection(begin, end, key, msg_id))) as found:
        async for letter in found:
            letters.append(letter)
            if len(letters) == count:
                break
    rows = [
        (
            letter.msg_id,
            origin_topic(letter),
            letter.reconsume_times,
            letter.tags,
            letter.keys,
            format_time(letter.store_timestamp),
        )
        for letter in letters
    ]
    notes = [f"there may be more: only {count} are shown (-c)"] if len(letters) == count else []
    return Report(_COLUMNS, rows, value=[letter_object(letter) for letter in letters], notes=notes)


@command(app, "export", summary="Write a group's dead letters as JSON, one a line.")
async def export_letters(
    admin: Admin,
    group: Group,
    file: Annotated[Path, typer.Option("-f", "--file", help="Where to; '-' is standard output.")],
    begin: Begin = None,
    end: End = None,
    key: Key = None,
    msg_id: MsgId = None,
) -> Report:
    """Write a group's dead letters as JSON, one a line; `maxq produce --json` takes them."""
    selection = _selection(begin, end, key, msg_id)
    with opened_output(file) as out:
        count = await _write(admin, group, selection, out)
    if str(file) == "-":
        return Report({}, [], value={"group": group, "count": count}, text="")
    return done_report(f"{count} dead letters of {group} are in {file}", group=group, count=count, file=str(file))


async def _write(admin: Admin, group: str, selection: DeadLetterSelection, out: BinaryIO) -> int:
    count = 0
    with progress_bar("exporting", await _total(admin, group)) as tell:
        async with aclosing(admin.dead_letters.scan(group, selection)) as letters:
            async for letter in letters:
                out.write(orjson.dumps(letter_object(letter)) + b"\n")
                count += 1
                tell(count, f"{count:,} letters")
    out.flush()
    return count


async def _total(admin: Admin, group: str) -> int | None:
    """Return how many dead letters a group has, chosen or not, for a progress bar; None if none is shown."""
    if not sys.stderr.isatty():
        return None
    with suppress(MaxQError):  # the redrive itself reports what is wrong
        return (await admin.dead_letters.count(group)).count
    return None


@command(app, "redrive")
async def redrive_letters(
    admin: Admin,
    group: Group,
    to: Annotated[
        Target, typer.Option(help="retry: only this group gets them; origin: every group of their topics does.")
    ] = Target.RETRY,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="To this topic instead.")] = None,
    begin: Begin = None,
    end: End = None,
    key: Key = None,
    msg_id: MsgId = None,
    again: Annotated[bool, typer.Option("--again", help="Also those that were redriven before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count those that the options choose.")] = False,
) -> Report:
    """Send dead letters again, with no tries counted. Without options: those that were not redriven yet.

    They stay in the dead-letter topic; how far it was redriven is kept as the offset of TOOLS_CONSUMER.
    """
    selection = _selection(begin, end, key, msg_id)
    if dry_run:
        count = await _count(admin, group, selection, again=again)
        return done_report(f"{count} dead letters of {group} would be sent again", group=group, count=count)
    target = topic if topic is not None else ("" if to is Target.ORIGIN else None)
    servers = ";".join(admin.name_servers.addresses)
    config = ProducerConfig(namesrv_addr=servers, producer_group=_PRODUCER)
    sent = 0
    with progress_bar("sending again", await _total(admin, group)) as tell:
        async with Producer(config, system_environment(servers)) as producer:

            async def send(messages: list[Message]) -> list[str]:
                nonlocal sent
                results = await producer.send_many(messages, in_flight=1)
                sent += len(messages)
                tell(sent, f"{sent:,} letters")
                return [result.offset_msg_id for result in results]

            count = await admin.dead_letters.redrive(group, selection, send, topic=target, again=again)
    sentence = f"{count} dead letters of {group} were sent again"
    if not (count or again) and selection.is_everything:
        sentence += "; none is left that was not sent again before (--again sends those once more)"
    return done_report(sentence, group=group, count=count)


async def _count(admin: Admin, group: str, selection: DeadLetterSelection, *, again: bool) -> int:
    if selection.is_everything and not again:
        found = [count for count in await admin.dead_letters.groups() if count.group == group]
        return sum(count.count - count.sent_again for count in found)
    count = 0
    async with aclosing(admin.dead_letters.scan(group, selection)) as letters:
        async for _ in letters:
            count += 1
    return count
