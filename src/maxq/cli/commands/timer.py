"""`maxq timer`: messages with a delivery time: list, inspect, cancel."""

import contextlib
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from maxq.cli.admin.command import BrokerAddr, ClusterName, addresses, command
from maxq.cli.help_pages import CommandApp
from maxq.cli.lazy import NearGroup
from maxq.cli.terminal.report import Report, done_report
from maxq.cli.terminal.times import format_time, parse_time
from maxq.client.admin.admin import Admin
from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import BrokerError, ClientError, ConfigError
from maxq.runtime.files.overlay_disk import OverlayDisk
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.timer.offline_timer import OfflineTimer
from maxq.store.tools.store_files import StoreFiles

app = CommandApp(
    cls=NearGroup,
    no_args_is_help=True,
    help="Messages with a delivery time.",
)

Page = dict[str, Any]
Store = Annotated[Path | None, typer.Option("--store", help="Read this store directory instead of asking brokers.")]
Precision = Annotated[int, typer.Option(help="timerPrecisionMs of the store directory.", min=100)]
Topic = Annotated[str, typer.Option("-t", "--topic", help="Only messages to this topic.")]
MsgId = Annotated[str, typer.Argument(help="Message id, as the producer was told.")]

_PRECISION = MessageStoreConfig().timer_precision_ms
_PRIVATE_FROM = 1 << 20
_PAGE = 500
_COLUMNS = {
    "brokerName": "#Broker Name",
    "due": "#Due",
    "state": "#State",
    "topic": "#Topic",
    "queueId": "#QID",
    "msgId": "#Message ID",
    "physicalOffset": "#Physical Offset",
    "why": "#Why Late",
}


@contextlib.contextmanager
def _offline(directory: Path, precision_ms: int) -> Iterator[OfflineTimer]:
    """Open the timer of a store directory, which stays as it is."""
    files = StoreFiles(SystemDisk(), PurePath(directory))
    if not files.exists:
        raise ConfigError(f"{directory} holds no store: give the storePathRootDir of a broker")
    with tempfile.TemporaryDirectory(prefix="maxq-timer-") as upper:
        disk = OverlayDisk(PurePath(directory), PurePath(upper), private_from=_PRIVATE_FROM)
        yield OfflineTimer(disk, PurePath(directory), files.log, precision_ms)


def _offline_pages(timer: OfflineTimer, begin_ms: int, end_ms: int, topic: str) -> Iterator[Page]:
    now_ms, cursor = SystemClock().wall_ms(), ""
    begin_ms = max(begin_ms, timer.read_time_ms if timer.earliest_ms is None else timer.earliest_ms)
    end_ms = min(end_ms, timer.latest_ms + 1)
    while True:
        page = timer.listing.page(begin_ms, end_ms, now_ms, topic=topic, limit=_PAGE, cursor=cursor)
        yield {
            "brokerName": "",
            "nowMs": now_ms,
            "readTimeMs": timer.read_time_ms,
            "pending": timer.pending,
            "entries": [entry.to_json("no broker delivers" if entry.state == "LATE" else "") for entry in page.entries],
        }
        cursor = page.next
        if not cursor:
            return


async def _pages(
    admin: Admin, broker: str | None, cluster: str | None, begin_ms: int | None, end_ms: int | None, topic: str
) -> AsyncGenerator[Page, None]:
    for address in await addresses(admin, broker, cluster):
        async with aclosing(admin.timers.pages(address, begin_ms=begin_ms, end_ms=end_ms, topic=topic)) as pages:
            async for page in pages:
                yield page


class _Found:
    """Collects entries of pages, up to a number."""

    def __init__(self, count: int) -> None:
        self.entries: list[dict[str, Any]] = []
        self.brokers: dict[str, Page] = {}
        self._count = count

    def take(self, page: Page) -> bool:
        """Take an entry. Returns False when enough were taken."""
        name = page["brokerName"]
        self.brokers[name] = page
        self.entries += [{"brokerName": name, **entry} for entry in page["entries"]]
        return len(self.entries) < self._count

    def report(self) -> Report:
        entries = self.entries[: self._count]
        rows = [
            (
                entry["brokerName"], format_time(entry["dueMs"]), entry["state"], entry.get("topic", ""),
                entry.get("queueId", ""), entry.get("msgId", ""), entry["physicalOffset"], entry.get("why", ""),
            )
            for entry in entries
        ]  # fmt: skip
        notes = [_note(page) for page in self.brokers.values()]
        if len(entries) == self._count:
            notes.append(f"there may be more: only {self._count} are shown (--count)")
        return Report(_COLUMNS, rows, value=entries, notes=notes)


def _note(page: Page) -> str:
    text = f"{page['brokerName'] or 'the store'}: {page['pending']} messages wait, read up to "
    text += format_time(page["readTimeMs"])
    if page.get("unread"):
        text += f", {page['unread']} are not in the wheel yet"
    if page.get("closed"):
        text += f"; nothing can be stored: {page['closed']}"
    return text


@command(app, "list", summary="Waiting messages by delivery time, the next first.")
async def list_messages(
    admin: Admin,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
    store: Store = None,
    topic: Topic = "",
    begin: Annotated[str | None, typer.Option("--begin", help="Due at this time or later.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Due before this time.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="At most this many.")] = 100,
    precision: Precision = _PRECISION,
) -> Report:
    """Waiting messages by due time, the next one first: where each lies, and why it is late."""
    clock = SystemClock()
    begin_ms = None if begin is None else parse_time(begin, clock)
    end_ms = None if end is None else parse_time(end, clock)
    found = _Found(count)
    if store is not None:
        _only_store(broker, cluster)
        with _offline(store, precision) as timer:
            for page in _offline_pages(timer, begin_ms or 0, 1 << 62 if end_ms is None else end_ms, topic):
                if not found.take(page):
                    break
        return found.report()
    async with aclosing(_pages(admin, broker, cluster, begin_ms, end_ms, topic)) as pages:
        async for page in pages:
            if not found.take(page):
                break
    return found.report()


@command(app, "inspect", summary="One message: when it is due, where it lies.")
async def inspect_message(
    admin: Admin,
    msg_id: MsgId,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
    store: Store = None,
    topic: Topic = "",
    precision: Precision = _PRECISION,
) -> Report:
    """One message: when it is due, where it lies, whether it is recalled, and why it is late if it is."""
    found = _Found(1 << 30)
    if store is not None:
        _only_store(broker, cluster)
        with _offline(store, precision) as timer:
            for page in _offline_pages(timer, 0, 1 << 62, topic):
                found.take({**page, "entries": [one for one in page["entries"] if one.get("msgId") == msg_id]})
    else:
        for address in await addresses(admin, broker, cluster):
            found.take(await admin.timers.inspect(address, msg_id, topic))
    if not found.entries:
        raise ClientError(f"no timer message {msg_id} waits: it was delivered, recalled, or is of another broker")
    return found.report()


@command(app, "cancel")
async def cancel_message(
    admin: Admin,
    msg_id: MsgId,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
    topic: Topic = "",
) -> Report:
    """Take a message back before it is due."""
    failures: list[str] = []
    for address in await addresses(admin, broker, cluster):
        try:
            await admin.timers.cancel(address, msg_id, topic)
        except BrokerError as error:
            failures.append(f"{address}: {error}")
        else:
            return done_report(f"{msg_id} is taken back on {address}", msgId=msg_id, address=address)
    raise ClientError("; ".join(failures) or "no broker was asked: the cluster has no master")


def _only_store(broker: str | None, cluster: str | None) -> None:
    if broker is not None or cluster is not None:
        raise ConfigError("--store reads files: it goes with neither -b/--brokerAddr nor -c/--clusterName")
