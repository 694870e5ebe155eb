"""Commands of mqadmin that send messages and say how long it takes."""

import asyncio
import datetime
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from maxq.cli.admin.command import Topic, command
from maxq.cli.admin.values import is_true
from maxq.cli.help_pages import CommandApp
from maxq.cli.terminal.progress import tracked
from maxq.cli.terminal.report import Report
from maxq.client.admin.admin import Admin
from maxq.client.client_config import ProducerConfig
from maxq.client.producer.producer import Producer
from maxq.client.results.send_result import SendResult
from maxq.errors import ClientError, MaxQError
from maxq.machine import system_environment
from maxq.protocol.message.message import Message

app = CommandApp()

_GROUP = "maxq_send_times"
_MOST = 1_000_000
_LARGEST = 64 << 20  # no broker takes more
Amount = Annotated[int, typer.Option("-a", "--amount", min=1, max=_MOST, help="How many messages to send.")]
Size = Annotated[int, typer.Option("-s", "--size", min=1, max=_LARGEST, help="Bytes of each.")]


@asynccontextmanager
async def _producer(admin: Admin) -> AsyncIterator[Producer]:
    servers = ";".join(admin.name_servers.addresses)
    config = ProducerConfig(namesrv_addr=servers, producer_group=_GROUP, retry_times_when_send_failed=0)
    async with Producer(config, system_environment(servers)) as producer:
        yield producer


async def _timed(producer: Producer, topic: str, size: int) -> tuple[float, SendResult | MaxQError]:
    """Send a message; returns the milliseconds and the outcome."""
    started = time.perf_counter()
    try:
        outcome: SendResult | MaxQError = await producer.send(Message(topic, b"a" * size))
    except MaxQError as error:
        outcome = error
    return (time.perf_counter() - started) * 1000, outcome


@command(app, "sendMsgStatus")
async def send_msg_status(
    admin: Admin,
    broker: Annotated[str, typer.Option("-b", "--brokerName", help="Broker name.")],
    size: Annotated[int, typer.Option("-s", "--messageSize", min=1, max=_LARGEST, help="Bytes of each.")] = 128,
    count: Annotated[int, typer.Option("-c", "--count", min=1, max=_MOST, help="How many messages to send.")] = 50,
) -> Report:
    """Send to the topic named after a broker, and show what comes of each message."""
    rows = []
    async with _producer(admin) as producer:
        await _timed(producer, broker, 16)  # so that routes are known and connections are open
        for _ in tracked(range(count), f"Sending to {broker}"):
            took, outcome = await _timed(producer, broker, size)
            if isinstance(outcome, MaxQError):
                raise outcome
            place = outcome.message_queue
            rows.append((took, outcome.send_status.name, outcome.msg_id, place.queue_id, outcome.queue_offset))
    text = "".join(
        f"rt={took:.0f}ms, SendResult=SendResult [sendStatus={status}, msgId={msg_id}, "
        f"messageQueue=MessageQueue [topic={broker}, brokerName={broker}, queueId={queue}], queueOffset={offset}]\n"
        for took, status, msg_id, queue, offset in rows
    )
    columns = {"rtMs": "#RT", "status": "#Send Result", "msgId": "#MsgId", "queueId": "#QID", "queueOffset": "#Offset"}
    return Report(columns, rows, text=text)


def _average(times: Sequence[float]) -> float:
    """Return the average of all times but the first, whose send connects; the first if there is no other."""
    counted = times[1:] or times
    return sum(counted) / len(counted)


@command(app, "checkMsgSendRT")
async def check_msg_send_rt(admin: Admin, topic: Topic, amount: Amount = 100, size: Size = 128) -> Report:
    """Send messages to the queues of a topic in turn, and show how long each took."""
    rows: list[tuple[str, int | None, bool, float]] = []
    async with _producer(admin) as producer:
        for _ in tracked(range(amount), f"Sending to {topic}"):
            took, outcome = await _timed(producer, topic, size)
            if isinstance(outcome, MaxQError):
                rows.append(("", None, False, took))
            else:
                place = outcome.message_queue
                rows.append((place.broker_name, place.queue_id, True, took))
    average = _average([row[3] for row in rows])
    columns = {"brokerName": "#Broker Name", "queueId": "#QID", "sent": "#Send Result", "rtMs": "#RT"}
    failed = sum(not row[2] for row in rows)
    failures = {topic: f"{failed} of {amount} messages could not be sent"} if failed else {}
    return Report(columns, rows, notes=[f"Avg RT: {average:.2f}"], failures=failures)


@command(app, "clusterRT", repeats=True)
async def cluster_rt(
    admin: Admin,
    amount: Amount = 100,
    size: Size = 128,
    cluster: Annotated[str | None, typer.Option("-c", "--cluster", help="Only this cluster.")] = None,
    as_log: Annotated[
        str, typer.Option("-p", "--print", metavar="true|false", help="Lines for a log: time|room|cluster|broker|rt.")
    ] = "false",
    room: Annotated[str, typer.Option("-m", "--machine", help="Machine room, for -p.")] = "noname",
) -> Report:
    """Send to every broker of a cluster, and show how long it takes; with -i again and again."""
    info = await admin.cluster_info()
    names = [cluster] if cluster else sorted(info.cluster_addr_table)
    if cluster and cluster not in info.cluster_addr_table:
        raise ClientError(f"cluster [{cluster}] not exist; there are {', '.join(sorted(info.cluster_addr_table))}")
    places = [(name, broker) for name in names for broker in sorted(info.cluster_addr_table[name])]
    rows = []
    async with _producer(admin) as producer:
        for name, broker in tracked(places, "Sending to brokers"):
            outcomes = [await _timed(producer, broker, size) for _ in range(amount)]
            failed = sum(isinstance(outcome, MaxQError) for _, outcome in outcomes)
            rows.append((name, broker, _average([took for took, _ in outcomes]), amount - failed, failed))
            await asyncio.sleep(0)
    columns = {"cluster": "#Cluster Name", "brokerName": "#Broker Name", "rtMs": "#RT"}
    columns |= {"successCount": "#successCount", "failCount": "#failCount"}
    failures = {row[1]: f"{row[4]} of {amount} messages could not be sent" for row in rows if row[4]}
    text = None
    if is_true("-p", as_log):
        now = f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S}"
        text = "".join(f"{now}|{room}|{row[0]}|{row[1]}|{row[2]:.0f}\n" for row in rows)
    return Report(columns, rows, text=text, failures=failures)
