"""`dumpCompactionLog`: the messages of one file of a compacted topic."""

from pathlib import Path
from typing import Annotated

import typer

from maxq.cli.admin.command import command
from maxq.cli.terminal.message_json import message_object
from maxq.cli.terminal.report import Report
from maxq.cli.terminal.times import format_time
from maxq.client.admin.admin import Admin
from maxq.errors import ConfigError, RemoteProtocolError
from maxq.protocol.message.message import MessageExt, decode_record

app = typer.Typer(rich_markup_mode=None)

_LEAST_RECORD = 8  # size and magic
_COLUMNS = {
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
    found = _messages(data)
    rows = [(m.msg_id, m.queue_id, m.queue_offset, m.keys, format_time(m.store_timestamp), m.store_size) for m in found]
    return Report(_COLUMNS, rows, value=[message_object(message) for message in found])


def _messages(data: bytes) -> list[MessageExt]:
    """Up to the first place without a record: the unused rest of the file."""
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
