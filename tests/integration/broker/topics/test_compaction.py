"""Compaction topics on a running broker."""

import shutil
from pathlib import Path

from maxq.broker.slave.master_api import MasterApi
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import MessageExt, decode_records
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, messages_of, until
from tests.integration.broker.pop.pop_world import LONG_MS, ack, bodies, pop_all, popped

SMALL = {"compactionMappedFileSize": 4_500, "compactionCqMappedFileSize": 920, "compactionScheduleInternal": 100}


async def create(broker: RunningBroker) -> None:
    ext = {"topic": "Prices", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    ext |= {"topicFilterType": "SINGLE_TAG", "order": "false", "attributes": "+cleanup.policy=COMPACTION"}
    reply = await broker.invoke(RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext))
    assert reply.code == 0, reply.remark


async def everything(broker: RunningBroker) -> list[MessageExt]:
    found: list[MessageExt] = []
    offset = 0
    while True:
        reply = await broker.pull("Prices", offset)
        if reply.code != ResponseCode.SUCCESS:
            return found
        found += messages_of(reply)
        offset = int(reply.ext["nextBeginOffset"])


async def latest(broker: RunningBroker) -> dict[str, bytes]:
    return {message.keys or "": message.body for message in await everything(broker)}


async def test_a_reader_gets_the_newest_price_of_each_key_and_few_old_ones(start_broker: Start, tmp_path: Path) -> None:
    broker = await start_broker(**SMALL)
    await create(broker)
    sent: dict[str, bytes] = {}
    for number in range(120):
        key, body = f"k{number % 7}", b"price %d" % number
        assert (await broker.send("Prices", body, KEYS=key)).code == 0
        sent[key] = body
    assert (await broker.send("Prices", b"", KEYS="k0")).code == 0  # deletes it
    for number in range(60):
        assert (await broker.send("Prices", b"other", KEYS=f"o{number % 2}")).code == 0
    sent |= {"o0": b"other", "o1": b"other"}
    sent["k0"] = b""  # stays while the log has it, so that readers who were away learn of it
    await until(lambda: broker.controller.store.compaction.compactions > 0)
    assert await latest(broker) == sent

    async def are_few() -> bool:  # the first compaction may have come before the last messages
        return len(await everything(broker)) < 60

    await until(are_few)
    assert await latest(broker) == sent
    await broker.stop()
    again = await start_broker(**SMALL)
    assert await latest(again) == sent
    assert (await again.send("Prices", b"new", KEYS="k1")).code == 0
    assert await latest(again) == {**sent, "k1": b"new"}


async def test_a_slave_can_ask_for_all_that_is_kept(start_broker: Start) -> None:
    broker = await start_broker(**SMALL)
    await create(broker)
    for number in range(80):
        assert (await broker.send("Prices", b"price %d" % number, KEYS=f"k{number % 7}")).code == 0
    await until(lambda: broker.controller.store.compaction.compactions > 0)
    api = MasterApi(broker.client)

    async def is_all() -> bool:  # unless it was compacted again meanwhile
        found, offset = b"", 0
        while offset < 80:
            next_offset, records = await api.compacted(broker.address, "Prices", 0, offset)
            assert next_offset > offset
            found, offset = found + records, next_offset
        kept = [message.queue_offset for message in await everything(broker)]
        return [message.queue_offset for message in decode_records(found)] == kept

    await until(is_all)
    assert await api.compacted(broker.address, "Prices", 0, 80) == (80, b"")


async def test_a_message_without_key_or_body_is_refused_where_it_makes_no_sense(start_broker: Start) -> None:
    broker = await start_broker(**SMALL)
    await create(broker)
    broker.create_topic("Plain")
    reply = await broker.send("Prices", b"x")
    assert (reply.code, (reply.remark or "")[:32]) == (ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing:")
    assert (await broker.send("Plain", b"", KEYS="k")).code == ResponseCode.MESSAGE_ILLEGAL


async def test_with_compaction_switched_off_the_topic_is_an_ordinary_one(start_broker: Start) -> None:
    broker = await start_broker(enableCompaction="false", **SMALL)
    await create(broker)
    for number in range(120):
        assert (await broker.send("Prices", b"x", KEYS=f"k{number % 2}")).code == 0
    assert len(await everything(broker)) == 120
    assert broker.controller.store.compaction.compactions == 0


async def test_a_reader_waits_for_what_is_not_copied_yet_and_is_not_sent_back(
    start_broker: Start, tmp_path: Path
) -> None:
    """The compacted copy was switched off for a while, or a crash took its end; it follows the queue in pieces."""
    broker = await start_broker("store", **SMALL)
    await create(broker)
    for number in range(700):
        assert (await broker.send("Prices", b"%d" % number, KEYS=f"k{number}")).code == 0
    await broker.stop()
    shutil.rmtree(tmp_path / "store" / "compaction", ignore_errors=True)
    again = await start_broker("store", **SMALL)
    answer = await again.pull("Prices", 700)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "700")

    async def is_there() -> bool:
        return [message.body for message in await again.pull_messages("Prices", 690)] == [
            b"%d" % number for number in range(690, 700)
        ]

    await until(is_there)
    answer = await again.pull("Prices", 701)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "700")


async def test_a_popped_message_that_was_compacted_away_brings_no_other_one_again(start_broker: Start) -> None:
    """The check point of the old price copied the next message that is kept, which had been acknowledged."""
    broker = await start_broker(timerPrecisionMs="100", reviveInterval="100", **SMALL)
    await create(broker)
    for number in range(120):
        assert (await broker.send("Prices", b"price %d" % number, KEYS=f"k{number % 7}")).code == 0
    (old,) = await popped(broker, "Prices", max_msg_nums=1, invisible_time=LONG_MS)
    assert old.body == b"price 0"
    for number in range(60):
        assert (await broker.send("Prices", b"other", KEYS=f"o{number % 2}")).code == 0

    async def is_away() -> bool:
        return (await everything(broker))[0].queue_offset > 0

    await until(is_away)
    for message in await pop_all(broker, "Prices"):
        assert (await ack(broker, message)).code == 0
    (live,) = broker.controller.popping.buffer.take_old(1 << 62, 0)
    assert await broker.controller.popping.service._revive_one(live)
    broker.controller.popping.buffer.finish([live])
    assert bodies(await pop_all(broker, "Prices")) == []
