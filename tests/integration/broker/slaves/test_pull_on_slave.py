"""Pulls from a slave (ha.md §6.1, RW-04): who may read there, whom an answer suggests, and what happens when it lags.

The slave's log is filled by hand, with the bytes of its master's."""

import asyncio
from dataclasses import dataclass, replace

import pytest

from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.runtime.files.system import SystemMappedRegion
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import SUBSCRIPTION, SUSPEND, Asked, RunningBroker, messages_of

HOLD = SUSPEND | SUBSCRIPTION


@dataclass
class Group:
    """What a broker believes of its group."""

    is_acting_master: bool
    min_broker_id: int | None
    log_is_another: bool = False


class Pair:
    """A master with messages in queue 0 of T, and a slave that has what `copy` gave it."""

    def __init__(self, master: RunningBroker, slave: RunningBroker) -> None:
        self.master = master
        self.slave = slave

    async def send(self, *bodies: bytes) -> None:
        for body in bodies:
            await self.master.send("T", body, UNIQ_KEY="u")

    def copy(self) -> None:
        """Everything the master has and the slave lacks."""
        source, target = self.master.controller.store, self.slave.controller.store
        while (at := target.max_physical_offset) < source.max_physical_offset:
            data = source.log_bytes(at, 1 << 20)
            assert data is not None
            target.append_from_master(at, data)

    def group(self, **changes: object) -> None:
        """Change group G of the slave."""
        groups = self.slave.controller.groups
        config = groups.find_subscription_group_config("G")
        assert config is not None
        groups.update_subscription_group_config(replace(config, **changes))  # type: ignore[arg-type]


@pytest.fixture
def slave_settings() -> dict[str, str]:
    """More settings of the slave, by RocketMQ's names."""
    return {}


@pytest.fixture
async def pair(start_broker: Start, slave_settings: dict[str, str]) -> Pair:
    """Ten messages, all copied."""
    master = await start_broker("master", slaveReadEnable="true")
    settings = {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"} | slave_settings
    slave = await start_broker("slave", **settings)
    pair = Pair(master, slave)
    for broker in (master, slave):
        broker.create_topic("T", queues=2)
    await pair.send(*(b"m%d" % i for i in range(10)))
    pair.copy()
    return pair


# ---- who may read --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slave_settings", [{"slaveReadEnable": "false"}])
async def test_a_slave_that_may_not_be_read_says_which_setting_and_what_to_do(pair: Pair) -> None:
    reply = await pair.slave.pull("T")
    assert reply.code == 2
    remark = reply.remark or ""
    assert remark.startswith("[REJECTREQUEST]system busy, start flow control for a while")
    assert "slaveReadEnable is false" in remark and "set slaveReadEnable=true" in remark
    pair.slave.settings.update({"slaveReadEnable": "true"})
    assert (await pair.slave.pull("T")).code == 0


@pytest.mark.parametrize("slave_settings", [{"slaveReadEnable": "false"}])
async def test_an_acting_master_is_read_without_it_and_suggests_the_master(pair: Pair) -> None:
    group = Group(is_acting_master=True, min_broker_id=1)
    rules = pair.slave.controller.pull_processor.rules
    rules.group = group
    for _ in range(3):
        reply = await pair.slave.pull("T")
        assert (reply.code, reply.ext["suggestWhichBrokerId"]) == (0, "0")
    group.is_acting_master = False
    assert (await pair.slave.pull("T")).code == 2, "no remembered plan outlives the permission"


async def test_a_slave_gives_the_masters_bytes(pair: Pair) -> None:
    of_master, of_slave = await pair.master.pull("T", 3), await pair.slave.pull("T", 3)
    assert of_slave.code == 0
    assert of_slave.body_bytes == of_master.body_bytes
    assert of_slave.ext == of_master.ext


async def test_a_repeated_pull_is_answered_by_the_batch_path_as_by_the_processor(pair: Pair) -> None:
    asked = Asked(pair.slave, RequestCode.PULL_MESSAGE)
    for count, broker_id in enumerate((0, 7), 1):
        pair.group(broker_id=broker_id)
        first = await pair.slave.pull("T", 4)  # the group's config is another one: learnt anew
        again = await pair.slave.pull("T", 4)
        assert asked.count == count
        assert (again.code, again.ext, again.body_bytes) == (first.code, first.ext, first.body_bytes)
        assert again.ext["suggestWhichBrokerId"] == str(broker_id)


async def test_a_role_that_changes_ends_what_was_remembered(pair: Pair) -> None:
    pair.slave.settings.update({"slaveReadEnable": "false"})
    settings = pair.slave.settings
    settings.store = replace(settings.store, broker_role="ASYNC_MASTER")
    assert (await pair.slave.pull("T")).code == 0
    assert (await pair.slave.pull("T")).code == 0
    settings.store = replace(settings.store, broker_role="SLAVE")
    assert (await pair.slave.pull("T")).code == 2


@pytest.mark.parametrize("is_master_known", [True, False])
async def test_a_slave_whose_log_is_another_gives_no_messages_and_suggests_the_master(
    pair: Pair, is_master_known: bool
) -> None:
    """Its readers would pass over the messages that the master has at these places."""
    for _ in range(2):
        assert (await pair.slave.pull("T", 3)).code == 0  # the second by what is remembered of the first
    pair.slave.controller.ha_service.client.note_other_log()
    if is_master_known:
        pair.slave.controller.pull_processor.rules.group = Group(False, 0, log_is_another=True)
    for more in ({}, {"sys_flag": HOLD, "wait_ms": 300_000}):
        reply = await pair.slave.pull("T", 3, **more)  # type: ignore[arg-type]
        assert (reply.code, reply.body_length) == (20, 0)
        assert (reply.ext["nextBeginOffset"], reply.ext["suggestWhichBrokerId"]) == ("3", "0")
        assert "the log of this slave differs from its master's" in (reply.remark or "")


# ---- whom it suggests ----------------------------------------------------------------------------------------------


async def test_a_reader_that_keeps_up_is_sent_to_the_groups_broker(pair: Pair) -> None:
    assert (await pair.slave.pull("T", 8)).ext["suggestWhichBrokerId"] == "0"
    pair.group(broker_id=2)
    assert (await pair.slave.pull("T", 8)).ext["suggestWhichBrokerId"] == "2"


@pytest.mark.parametrize("slave_settings", [{"accessMessageInMemoryMaxRatio": "0"}])
async def test_a_reader_that_is_behind_stays_until_it_has_caught_up(pair: Pair) -> None:
    pair.group(which_broker_when_consume_slowly=3)
    for _ in range(2):
        behind = await pair.slave.pull("T", 0, max_nums=5)
        assert (behind.code, behind.ext["suggestWhichBrokerId"]) == (0, "3")
    at_the_end = await pair.slave.pull("T", 10)
    assert (at_the_end.code, at_the_end.ext["suggestWhichBrokerId"]) == (19, "0")


async def test_with_a_master_known_alive_nobody_waits_at_the_slave(pair: Pair) -> None:
    rules = pair.slave.controller.pull_processor.rules
    rules.group = Group(is_acting_master=False, min_broker_id=0)
    pair.group(broker_id=5)
    for offset, code in ((10, 20), (12, 20), (4, 0)):
        reply = await pair.slave.pull("T", offset, sys_flag=HOLD, wait_ms=8_000)
        assert (reply.code, reply.ext["suggestWhichBrokerId"]) == (code, "0")


# ---- a slave that lags ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [11, 1_000_000, -1])
async def test_a_slave_never_corrects_an_offset(pair: Pair, offset: int) -> None:
    reply = await pair.slave.pull("T", offset)
    assert (reply.code, reply.ext["nextBeginOffset"], reply.ext["suggestWhichBrokerId"]) == (20, str(offset), "0")
    assert reply.remark in ("OFFSET_OVERFLOW_BADLY", "OFFSET_TOO_SMALL")
    pair.group(broker_id=4)
    assert (await pair.slave.pull("T", offset)).ext["suggestWhichBrokerId"] == "4"


async def test_nor_in_a_queue_of_which_nothing_has_come_yet(pair: Pair) -> None:
    reply = await pair.slave.pull("T", 5, queue_id=1)
    assert (reply.code, reply.ext["nextBeginOffset"]) == (20, "5")


@pytest.mark.parametrize("slave_settings", [{"offsetCheckInSlave": "true"}])
async def test_it_does_where_it_is_told_to(pair: Pair) -> None:
    reply = await pair.slave.pull("T", 11)
    assert (reply.code, reply.ext["nextBeginOffset"]) == (21, "10")


async def test_a_reset_is_told_by_the_master_only(pair: Pair) -> None:
    pair.slave.controller.offsets.assign_reset_offsets("T", "G", {0: 2})
    assert (await pair.slave.pull("T", 7)).code == 0
    assert pair.slave.controller.offsets.has_offset_reset("T", "G", 0)


async def test_a_reader_ahead_of_the_copy_gets_the_missing_messages_as_they_come(pair: Pair) -> None:
    await pair.send(b"a", b"b", b"c")
    pull = asyncio.create_task(pair.slave.pull("T", 12, sys_flag=HOLD, wait_ms=8_000))
    await pair.slave.until_held("T")
    pair.copy()
    assert [message.body for message in messages_of(await pull)] == [b"c"]


async def test_or_is_sent_to_the_groups_broker_after_a_second(pair: Pair) -> None:
    pull = asyncio.create_task(pair.slave.pull("T", 12, sys_flag=HOLD, wait_ms=300_000))
    await pair.slave.until_held("T")
    reply = await pull
    assert (reply.code, reply.ext["nextBeginOffset"], reply.ext["suggestWhichBrokerId"]) == (20, "12", "0")


# ---- long polling --------------------------------------------------------------------------------------------------


async def test_bytes_of_the_master_wake_a_pull_that_waits_at_the_slave(pair: Pair) -> None:
    await pair.send(b"new")
    pull = asyncio.create_task(pair.slave.pull("T", 10, sys_flag=HOLD, wait_ms=8_000))
    await pair.slave.until_held("T")
    pair.copy()
    reply = await pull
    assert (reply.code, reply.ext["nextBeginOffset"]) == (0, "11")
    assert [message.body for message in messages_of(reply)] == [b"new"]
    assert pair.slave.controller.hold_service.held_count == 0


async def test_half_a_record_wakes_nobody(pair: Pair) -> None:
    await pair.send(b"x" * 500)
    source, target = pair.master.controller.store, pair.slave.controller.store
    pull = asyncio.create_task(pair.slave.pull("T", 10, sys_flag=HOLD, wait_ms=8_000))
    await pair.slave.until_held("T")
    at = target.max_physical_offset
    data = source.log_bytes(at, 1 << 20)
    assert data is not None
    target.append_from_master(at, data[:200])
    assert pair.slave.controller.hold_service.held_count == 1
    target.append_from_master(at + 200, data[200:])
    assert [message.body for message in messages_of(await pull)] == [b"x" * 500]


async def test_a_change_of_roles_answers_every_pull_that_waits(pair: Pair) -> None:
    pulls = [asyncio.create_task(pair.slave.pull("T", 10, sys_flag=HOLD, wait_ms=8_000)) for _ in range(3)]
    await pair.slave.until_held("T", count=3)
    pair.slave.controller.hold_service.notify_all()
    assert [reply.code for reply in await asyncio.gather(*pulls)] == [19, 19, 19]


# ---- what cannot be read from the disk -----------------------------------------------------------------------------


async def test_a_cold_pull_that_fails_is_answered(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await start_broker(accessMessageInMemoryMaxRatio="0")
    broker.create_topic("T")
    for i in range(3):
        await broker.send("T", b"m%d" % i)

    def fail(region: object, start: int, end: int) -> None:
        raise RuntimeError("no such page")

    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: False)
    monkeypatch.setattr(SystemMappedRegion, "load", fail)
    reply = await broker.pull("T")
    assert reply.code == 1
    assert "could not be read from the disk" in (reply.remark or "") and "no such page" in (reply.remark or "")
    assert broker.controller.fast_failure.pulls.count == 0


@pytest.mark.parametrize("is_resident", [True, False])
async def test_a_reader_that_is_behind_waits_for_the_disk_only_where_pages_are_missing(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch, is_resident: bool
) -> None:
    broker = await start_broker(accessMessageInMemoryMaxRatio="0")
    broker.create_topic("T")
    for i in range(3):
        await broker.send("T", b"m%d" % i)
    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: is_resident)
    loaded: list[int] = []
    monkeypatch.setattr(SystemMappedRegion, "load", lambda region, start, end: loaded.append(end - start))
    reply = await broker.pull("T")
    assert [message.body for message in messages_of(reply)] == [b"m0", b"m1", b"m2"]
    assert set(loaded) == (set() if is_resident else {reply.body_length})


# ---- offsets -------------------------------------------------------------------------------------------------------


async def test_a_slave_takes_commits_and_keeps_them_for_its_master(pair: Pair) -> None:
    await pair.slave.pull("T")  # makes the group
    ext = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "7"}
    assert (await pair.slave.invoke(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext))).code == 0
    offsets = pair.slave.controller.offsets
    assert offsets.query_offset("G", "T", 0) == 7
    (commit,) = offsets.ahead_of_master({"T@G": {0: 6}})
    assert (commit.topic, commit.group, commit.queue_id, commit.offset) == ("T", "G", 0, 7)
    assert offsets.ahead_of_master({"T@G": {0: 7}}) == []
    assert len(offsets.slave_commits) == 0, "the master has it: forgotten"
