"""All that Java's clients and mqadmin asked Java's broker, in that order, and what it answered; ours is asked the same.

test_golden_exchanges.py puts a broker into the recording's state for each request; here the requests make the state:
topics, groups, offsets, locks, transactions, connections. Compared are code, names of header fields and names in a JSON
body: numbers depend on when and where the recording was made, and of repetitions it has the first four only.
"""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.protocol.json import json_dialect
from maxq.runtime.files.system import SystemClock
from tests.golden import WIRE
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import SUSPEND, RunningBroker

RECORDED = WIRE / "broker"
PULL_MESSAGE = 11
CHANGE_INVISIBLE_TIME = 200_053
IS_ANSWER = 1  # in the flag of a command
PATIENCE_SECONDS = 60
SETTINGS = {
    "brokerClusterName": "WireCluster",
    "brokerName": "broker-w",
    "maxMessageSize": 8192,
    "autoCreateTopicEnable": "false",
    "enablePropertyFilter": "true",
}
#: Steps that are not asked again.
UNASKED = {
    "error.system-busy",  # a moment of the recording's machine; test_golden_exchanges.py arranges one
    "pull.long-poll.timeout", "pull.long-poll.woken",  # by a message of another connection; test_pull.py
    "consumer.running-info", "consumer.running-info.jstack", "consumer.status", "consumer.consume-directly",
    "request-reply",  # ask a client that is not here; tests/interop has test_mqadmin_all.py, test_message_kinds.py
}  # fmt: skip
#: (Code, step) whose answer is another one.
DIFFERENT = {
    (11, "pull.sql-bad"),  # Java cannot read the expression and delivers every message
    (21, "topic.all"), (201, "group.config"), (201, "group.all"),  # 5.5.0 tells the total as well
    (45, "broker.all-delay-offset"),  # ours says as well up to where the log was delivered
    (12, "query.by-key"),  # wants messages of the recording's time
    (33, "view.by-id"), (36, "send-back"), (36, "send-back.to-dlq"), (36, "push.start-first"),  # name places in the log
    (11, "pull.not-found"), (11, "push.start-second-notify"), (11, "request-reply.warm-up"),  # want what was left out
    (14, "push.start-second-notify"), (38, "push.stop"), (200052, "pop.peek"),  # here all clients have one connection
}  # fmt: skip


@dataclass(frozen=True)
class Exchange:
    label: str
    request: RemotingCommand
    expected: RemotingCommand | None


def history(run: str) -> list[Exchange]:
    """The requests of one run; one JVM numbered them all."""
    found = []
    for path in (RECORDED / run).glob("*.jsonl"):
        for line in () if path.stem.endswith("-to-client") else path.read_text().splitlines():
            record: dict[str, Any] = json.loads(line)
            request = decode_frame(bytes.fromhex(record["request"]["hex"])[4:])
            answer = record["response"] and decode_frame(bytes.fromhex(record["response"]["hex"])[4:])
            if record["label"] not in UNASKED:
                found.append(Exchange(record["label"], request, answer))
    return sorted(found, key=lambda exchange: exchange.request.opaque)


class Asker:
    """One connection that asks and does not answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, broker: RunningBroker) -> "Asker":
        return cls(*await asyncio.open_connection("127.0.0.1", broker.controller.port))

    async def ask(self, request: RemotingCommand, *, answered: bool) -> RemotingCommand | None:
        self._writer.write(request.encode())
        while answered:
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            command = decode_frame(await self._reader.readexactly(length))
            if command.flag & IS_ANSWER and command.opaque == request.opaque:
                return command
        return None

    def close(self) -> None:
        self._writer.close()


def shape(answer: RemotingCommand) -> tuple[int, set[str], object]:
    """Code, names of header fields; names in a body of JSON, else whether there is one."""
    body: object = answer.body_length > 0
    if answer.body_bytes[:1] == b"{":
        body = {str(name) for name in json_dialect.loads(answer.body_bytes)}
    return answer.code, set(answer.ext), body


def hurry(request: RemotingCommand) -> None:
    """A pull does not wait for messages; a pop is of now, as is a change of the time of one: ours refuses a change that
    comes when that time was over."""
    if request.code == PULL_MESSAGE:
        request.ext["sysFlag"] = str(int(request.ext["sysFlag"]) & ~SUSPEND)
    elif request.code > 200_000 and "bornTime" in request.ext:
        request.ext["bornTime"] = str(SystemClock().wall_ms())
    elif request.code == CHANGE_INVISIBLE_TIME:
        offset, _, *rest = request.ext["extraInfo"].split()
        request.ext["extraInfo"] = " ".join([offset, str(SystemClock().wall_ms()), *rest])


@pytest.mark.parametrize("run", ["json", "binary"])
async def test_our_broker_answers_a_long_conversation_as_javas_did(start_broker: Start, namesrv: str, run: str) -> None:
    broker = await start_broker(namesrvAddr=namesrv, **SETTINGS)
    asker = await Asker.connect(broker)
    counted: Counter[str] = Counter()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            for exchange in history(run):
                request, expected = exchange.request, exchange.expected
                hurry(request)
                answer = await asker.ask(request, answered=expected is not None)
                if answer is None or expected is None:
                    counted["not answered"] += 1
                elif (request.code, exchange.label) in DIFFERENT:
                    counted["different"] += 1
                else:
                    assert shape(answer) == shape(expected), f"{exchange.label} {request.ext} {answer.remark}"
                    counted["the same"] += 1
    finally:
        asker.close()
    assert counted["the same"] > 150, counted
