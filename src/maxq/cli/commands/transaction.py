"""`maxq transaction`: transactions that are open, what became of one, asking its producer again."""

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from maxq.cli.admin.command import BrokerAddr, ClusterName, addresses, command
from maxq.cli.admin.fan_out import ask_each
from maxq.cli.help_pages import CommandApp
from maxq.cli.lazy import NearGroup
from maxq.cli.terminal.progress import progress_in_bytes
from maxq.cli.terminal.report import Report, done_report
from maxq.cli.terminal.times import format_time
from maxq.client.admin.admin import Admin
from maxq.errors import ClientError, ConfigError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.transaction_view import Verdict, form_of, number
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.tools.store_files import StoreFiles
from maxq.store.tools.transactions import OfflineTransactions

app = CommandApp(cls=NearGroup, no_args_is_help=True, help="Transactions.")

Store = Annotated[Path | None, typer.Option("--store", help="Read this store directory instead of asking brokers.")]
Transaction = Annotated[str, typer.Argument(help="Transaction id (the message's unique key), or an offset message id.")]
_OPEN_COLUMNS = {
    "transactionId": "#Transaction ID",
    "topic": "#Topic",
    "group": "#Producer Group",
    "born": "#Born",
    "ageSeconds": "#Age s",
    "checks": "#Checks",
    "immunitySeconds": "#Immunity s",
    "queueOffset": "#Half Offset",
    "msgId": "#Offset Message ID",
}
_FORM_COLUMNS = {
    "form": "#Form",
    "stored": "#Stored",
    "topic": "#Topic",
    "queueId": "#QID",
    "queueOffset": "#Offset",
    "checks": "#Checks",
    "msgId": "#Offset Message ID",
}
_LATE = "transactions that ended within the last seconds (transactionOpBatchInterval) may still be shown as open"


@contextlib.contextmanager
def _offline(directory: Path) -> Iterator[OfflineTransactions]:
    files = StoreFiles(SystemDisk(), PurePath(directory))
    if not files.exists:
        raise ConfigError(f"{directory} holds no store: give the storePathRootDir of a broker")
    with progress_in_bytes() as progress:
        transactions = OfflineTransactions(files, progress)
        try:
            yield transactions
        finally:
            transactions.close()


def _open_row(half: MessageExt, now_ms: int) -> tuple[Any, ...]:
    known = half.properties
    return (
        half.uniq_key or "",
        known.get(const.PROPERTY_REAL_TOPIC, ""),
        known.get(const.PROPERTY_PRODUCER_GROUP, ""),
        format_time(half.born_timestamp),
        max(0, now_ms - half.born_timestamp) // 1000,
        number(known, const.PROPERTY_TRANSACTION_CHECK_TIMES, 0),
        known.get(const.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, ""),
        half.queue_offset,
        half.offset_msg_id,
    )


@command(app, "list", summary="Open transactions, the oldest first.")
async def list_transactions(
    admin: Admin,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
    store: Store = None,
    count: Annotated[int, typer.Option("--count", min=1, help="At most this many from each broker.")] = 100,
) -> Report:
    """Open transactions, the oldest first: whose they are, how old, and how often their producer was asked.

    Without -b and -c, those of all clusters that the name server knows.
    """
    halves: list[MessageExt] = []
    failures: dict[str, str] = {}
    if store is not None:
        _only_store(broker, cluster)
        with _offline(store) as transactions:
            halves = transactions.open(count)
    else:
        masters, failures = await _masters(admin, broker, cluster)
        found = await ask_each(masters, lambda address: admin.transactions.open(address, limit=count))
        halves = [half for open_ones in found.answers.values() for half in open_ones]
        failures |= found.failures
    now_ms = SystemClock().wall_ms()
    notes = [_LATE] if halves else ["no transaction is open"]
    return Report(_OPEN_COLUMNS, [_open_row(half, now_ms) for half in halves], notes=notes, failures=failures)


async def _masters(admin: Admin, broker: str | None, cluster: str | None) -> tuple[list[str], dict[str, str]]:
    """Return the masters that the options name; without options those of all clusters. Clusters without a master are
    returned with a sentence about each.

    Raises:
        ClientError: the cluster that is named has no master, or none of the clusters has one.
    """
    if broker is not None or cluster is not None:
        return await addresses(admin, broker, cluster), {}
    found: list[str] = []
    failures: dict[str, str] = {}
    for name in sorted((await admin.brokers.cluster_info()).cluster_addr_table):
        try:
            found += await addresses(admin, None, name)
        except ClientError as error:
            failures[name] = str(error)
    if failures and not found:
        raise ClientError("; ".join(failures.values()))
    return found, failures


@command(app, "inspect", summary="What became of one transaction.")
async def inspect_transaction(admin: Admin, transaction: Transaction, store: Store = None) -> Report:
    """One transaction: what became of it, and every form of its message that is still stored."""
    if store is not None:
        with _offline(store) as transactions:
            verdict, forms = transactions.history(transaction)
    else:
        history = await admin.transactions.history(transaction)
        verdict, forms = history.verdict, history.forms
    if not forms:
        raise ClientError(
            f"no message of transaction {transaction} is stored: it was never opened here, or was removed since"
        )
    rows = [
        (
            form_of(message), format_time(message.store_timestamp), message.topic, message.queue_id,
            message.queue_offset, number(message.properties, const.PROPERTY_TRANSACTION_CHECK_TIMES, 0),
            message.offset_msg_id,
        )
        for message in forms
    ]  # fmt: skip
    value = {
        "transactionId": forms[0].uniq_key,
        "topic": forms[0].properties.get(const.PROPERTY_REAL_TOPIC, forms[0].topic),
        "group": forms[0].properties.get(const.PROPERTY_PRODUCER_GROUP, ""),
        "verdict": verdict.value,
        "forms": [dict(zip(_FORM_COLUMNS, row, strict=True)) for row in rows],
    }
    return Report(_FORM_COLUMNS, rows, value=value, notes=[f"{verdict.value}: {_MEANING[verdict]}"])


@command(app, "resume", summary="Have the producer of a transaction that was given up asked again.")
async def resume_transaction(admin: Admin, transaction: Transaction) -> Report:
    """Make the producer of an abandoned transaction be asked again, starting with the first check."""
    msg_id = await admin.transactions.resume(transaction)
    return done_report(f"transaction {transaction} is open again", transactionId=transaction, msgId=msg_id)


def _only_store(broker: str | None, cluster: str | None) -> None:
    if broker is not None or cluster is not None:
        raise ConfigError("--store reads files: it goes with neither -b/--brokerAddr nor -c/--clusterName")


_MEANING = {
    Verdict.OPEN: "its producer has not decided yet, or decided within the last seconds",
    Verdict.COMMITTED: "its message was delivered",
    Verdict.ROLLED_BACK: "it is finished and nothing was delivered",
    Verdict.GIVEN_UP: "its producer was asked too often, or it is too old: `maxq transaction resume` asks again",
}
