"""The delayed, returned and dead messages that a Java broker left in the golden store `clean` go on here."""

import json
from collections import Counter
from pathlib import Path

import pytest

from maxq.protocol.message.message import MessageExt
from maxq.runtime.files.system import SystemClock
from tests.golden import restore
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until
from tests.integration.broker.transactions.test_transactions_golden import SETTINGS

STORED_MS = 1_795_229_829_255  # when the delayed ones were sent
MINUTE_MS = 60_000
DELIVERED = [0, 1, 2, 3, 4, 5]  # by Java; messages 6 … 10 wait: 6m, 30m, 1h, 2h, 2h
LOST_TABLE = "lost"


class _ShiftedClock(SystemClock):
    """Wall time as it was some minutes after the messages were sent."""

    def __init__(self, minutes: float) -> None:
        super().__init__()
        self._shift_ms = STORED_MS + int(minutes * MINUTE_MS) - super().wall_ms()

    def wall_ms(self) -> int:
        return super().wall_ms() + self._shift_ms

    def jump(self, minutes: float) -> None:
        self._shift_ms += int(minutes * MINUTE_MS)


@pytest.fixture
async def start_at(tmp_path: Path, start_broker: Start, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """`await start_at(minutes, table)`: the broker on a copy of the store, with that delayOffset.json."""

    async def start(minutes: float, table: str = "") -> tuple[RunningBroker, _ShiftedClock]:
        clock = _ShiftedClock(minutes)
        monkeypatch.setattr("tests.integration.broker.harness.SystemClock", lambda: clock)
        if not (tmp_path / "store").exists():
            restore("clean", tmp_path / "store")
        file = tmp_path / "store" / "config" / "delayOffset.json"
        if table == LOST_TABLE:
            file.unlink()
            file.with_name("delayOffset.json.bak").unlink()
        elif table:
            file.write_text(table)
        return await start_broker(**SETTINGS), clock

    return start


def _messages(broker: RunningBroker, topic: str) -> list[MessageExt]:
    store = broker.controller.store
    found = []
    for queue_id in range(8):
        for offset in range(store.max_offset(topic, queue_id)):
            ((physical_offset, _, _),) = store.queue_units(topic, queue_id, offset, 1)
            record = store.look_message_by_offset(physical_offset)
            assert record is not None
            found.append(record)
    return found


def _numbers(broker: RunningBroker) -> list[int]:
    """The delayed messages that are in their topic."""
    return sorted(int(bytes(message.body).split(b"|")[2]) for message in _messages(broker, "Gd_Delay"))


@pytest.mark.parametrize("table", ["", LOST_TABLE, '{"offsetTable":{1:3,2:0}}', '{"offsetTable":{}}', "not json"])
async def test_what_java_delivered_is_not_delivered_again_whatever_became_of_its_table(start_at, table: str) -> None:  # type: ignore[no-untyped-def]
    broker, _ = await start_at(24 * 60, table)
    await until(lambda: len(_numbers(broker)) >= 11)
    assert _numbers(broker) == list(range(11))
    retries = Counter(message.uniq_key for message in _messages(broker, "%RETRY%Gd_G_Retry"))
    assert (len(retries), max(retries.values())) == (7, 1)


async def test_each_comes_when_it_is_due_also_when_the_clock_jumps(start_at) -> None:  # type: ignore[no-untyped-def]
    broker, clock = await start_at(5)
    await broker.send("Gd_Simple", b"x")  # the broker runs
    assert _numbers(broker) == DELIVERED
    clock.jump(2)
    await until(lambda: len(_numbers(broker)) == 7)
    clock.jump(24)
    await until(lambda: len(_numbers(broker)) == 8)
    clock.jump(-10)  # back: what has come does not come again, what waits does not come early
    clock.jump(10 + 29.5)
    await until(lambda: len(_numbers(broker)) == 9)
    assert _numbers(broker) == [*DELIVERED, 6, 7, 8]
    await broker.stop()
    table = json.loads((broker.folder / "config" / "delayOffset.json").read_bytes())["offsetTable"]
    assert (table["10"], table["16"], table["17"], table.get("18", 0)) == (1, 1, 1, 0)
    again, clock = await start_at(125)
    await until(lambda: len(_numbers(again)) == 11)
    assert _numbers(again) == list(range(11))


async def test_dead_letters_of_java_are_read_from_the_first_one_on(start_at) -> None:  # type: ignore[no-untyped-def]
    broker, _ = await start_at(5)
    letters = await broker.pull_messages("%DLQ%Gd_G_Retry", group="TOOLS_CONSUMER")
    assert [letter.queue_offset for letter in letters] == [0, 1, 2, 3, 4]
    assert {letter.properties["RETRY_TOPIC"] for letter in letters} == {"Gd_Retry"}
