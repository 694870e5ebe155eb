"""Who may grant queue locks and whose offsets count, and how offsets come back to a master."""

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any, cast

import pytest

from maxq.broker.failover.consumer_offset_ownership import VERSION_JUMP, ConsumerOffsetOwnership, is_newer
from maxq.broker.failover.slave_to_master_sync import SlaveToMasterSync
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.slave.master_api import MasterApi, OffsetsPage
from maxq.broker.slave.replicated_config_files import ReplicatedConfigFiles
from maxq.broker.tables.client.rebalance_lock_manager import RebalanceLockManager
from maxq.codes import ResponseCode
from maxq.errors import BrokerError, ReplicationDivergedError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.offsets import DelayOffsetSerializeWrapper
from maxq.protocol.body.timer_checkpoint import TimerCheckpoint
from maxq.protocol.json import json_dialect
from maxq.protocol.message.message_queue import MessageQueue
from maxq.testing.sim_clock import SimClock
from tests.unit.broker.broker_world import CONFIG_DIR, BrokerWorld
from tests.unit.broker.failover.group_world import SLAVE_1, FakeHA

LOG_END = 1_000
QUEUE = MessageQueue("T", "broker-a", 0)


def version(counter: int) -> dict[str, int]:
    return {"counter": counter, "stateVersion": 0, "timestamp": 1}


class FakeSlave:
    """What a slave answers: offsets, delay offsets, timer checkpoint."""

    def __init__(self, offsets: dict[str, Any], counter: int, **more: Any) -> None:
        self.offsets = {"offsetTable": offsets, "dataVersion": version(counter), **more}
        self.delay: dict[str, Any] = {}
        self.timer: TimerCheckpoint | None = None
        self.timer_refusal = BrokerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")
        self.timer_asked = 0
        self.pops: bytes | None = None  # a Java broker does not know the question
        self.mark = ""
        self.ha = FakeHA()

    async def hand_back_pops(self, address: str, return_id: str, master: str, mark: str) -> tuple[bytes, str]:
        assert mark == self.ha.log_mark()
        if self.pops is None:
            raise BrokerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")
        return self.pops, self.mark

    async def leave_group(self, slave: str, own: BrokerAddress, mark: str) -> tuple[bytes, str]:
        return await self.hand_back_pops(slave, "", own.address, mark)

    async def copy_pops(self, slave: str) -> tuple[bytes, str]:
        return self.pops or b"", self.mark

    async def consumer_offsets(self, address: str, page: str = "") -> OffsetsPage:
        """A key a page."""
        keys = list(self.offsets["offsetTable"])
        number = int(page or 0)
        some = {key: self.offsets["offsetTable"][key] for key in keys[number : number + 1]}
        following = str(number + 1) if number + 1 < len(keys) else ""
        return OffsetsPage({**self.offsets, "offsetTable": some}, following)

    async def delay_offsets(self, address: str) -> bytes:
        return json_dialect.dumps(self.delay) if self.delay else b""

    async def timer_check_point(self, address: str) -> TimerCheckpoint:
        self.timer_asked += 1
        if self.timer is None:
            raise self.timer_refusal
        return self.timer


OWN = BrokerAddress("C", "broker-a", 0, "10.0.0.1", 10911)


def reverse(
    world: BrokerWorld,
    slave: FakeSlave,
    timer: "RunningTimer | None" = None,
    *,
    timer_wheel: bool = True,
    queue_end: int = 1_000,
) -> SlaveToMasterSync:
    files = ReplicatedConfigFiles(world.disk, CONFIG_DIR)
    if timer is not None:
        files.set_timer(timer)
    return SlaveToMasterSync(
        cast(MasterApi, slave), OWN, world.offsets, files, timer_wheel=lambda: timer_wheel, log_end=lambda: LOG_END,
        queue_end=lambda topic, queue_id: queue_end, ha=slave.ha,
    )  # fmt: skip


# --- locks ------------------------------------------------------------------------------------------------------------


def test_a_broker_that_does_not_speak_for_its_group_grants_no_lock() -> None:
    locks = RebalanceLockManager(clock=SimClock())
    locks.stop()
    assert locks.try_lock_batch("G", [QUEUE], "c1") == set()
    locks.start()
    assert locks.try_lock_batch("G", [QUEUE], "c1") == {QUEUE}


def test_it_still_answers_a_master_that_asks_its_slaves() -> None:
    locks = RebalanceLockManager(clock=SimClock())
    locks.stop()
    assert locks.try_lock_batch("G", [QUEUE], "c1", only_this_broker=True) == {QUEUE}


def test_locks_of_an_earlier_turn_do_not_outlive_it() -> None:
    locks = RebalanceLockManager(clock=SimClock())
    locks.try_lock_batch("G", [QUEUE], "c1")
    locks.stop()
    locks.start()
    assert locks.try_lock_batch("G", [QUEUE], "c2") == {QUEUE}


# --- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("broker_id", "jump"), [(1, VERSION_JUMP), (0, 0)])
def test_only_a_slave_that_takes_over_moves_its_version_ahead(broker_id: int, jump: int) -> None:
    world = BrokerWorld()
    before = world.offsets.data_version.counter
    own = BrokerAddress("C", "broker-a", broker_id, "10.0.0.1")
    ConsumerOffsetOwnership(world.offsets, own, world.clock).start()
    assert world.offsets.data_version.counter - before == jump


async def test_what_was_consumed_at_a_slave_that_acted_counts_however_much_its_master_had_counted_since() -> None:
    """The slave had not copied for an hour, because it was far behind the log."""
    slave, master = BrokerWorld(), BrokerWorld()
    copied = slave.offsets.data_version
    ConsumerOffsetOwnership(slave.offsets, BrokerAddress("C", "broker-a", 1, "10.0.0.2"), slave.clock).start()
    acted = slave.offsets.data_version
    master.offsets.take_version(DataVersion(copied.counter + 1_000_000, copied.state_version, acted.timestamp - 1))
    kept = FakeSlave({"T@G": {"0": 15}}, 0, dataVersion=acted.to_json())
    await reverse(master, kept).take_back(SLAVE_1, "1")
    assert master.offsets.query_offset("G", "T", 0) == 15


def test_versions_are_compared_by_state_then_counter_then_time() -> None:
    ordered = [DataVersion(9, 0, 9), DataVersion(1, 1, 1), DataVersion(2, 1, 0), DataVersion(2, 1, 3)]
    for older, newer in pairwise(ordered):
        assert is_newer(newer, older)
        assert not is_newer(older, newer)
        assert not is_newer(older, older)


async def test_each_queue_moves_on_to_the_larger_offset_and_the_rest_stays() -> None:
    world = BrokerWorld()
    for queue_id, offset in ((0, 10), (1, 20)):
        world.offsets.commit_offset("h", "G", "T", queue_id, offset)
    world.offsets.commit_offset("h", "MINE", "T", 0, 1)
    slave = FakeSlave({"T@G": {"0": 15, "1": 12, "2": 3}, "U@G": {"0": 4}}, counter=5)
    await reverse(world, slave).take_back(SLAVE_1, "1")
    assert world.offsets.query_offsets("G", "T") == {0: 15, 1: 20, 2: 3}
    assert world.offsets.query_offset("G", "U", 0) == 4
    assert world.offsets.query_offset("MINE", "T", 0) == 1
    assert world.offsets.data_version.counter == 5


async def test_what_was_consumed_of_messages_that_a_master_has_lost_is_not_taken_back() -> None:
    """It gives their places to other messages, which the group is to get; who goes on at the old offset is told."""
    world = BrokerWorld()
    slave = FakeSlave({"T@G": {"0": 15, "1": 3}}, counter=5)
    await reverse(world, slave, queue_end=12).take_back(SLAVE_1, "1")
    assert world.offsets.query_offsets("G", "T") == {0: 12, 1: 3}
    assert world.offsets.has_offset_reset("T", "G", 0)


@pytest.mark.parametrize("take", [SlaveToMasterSync.take_over, partial(SlaveToMasterSync.take_back, return_id="1")])
async def test_nothing_is_taken_from_a_slave_whose_log_is_another_however_long_it_is(
    take: Callable[..., Awaitable[None]],
) -> None:
    world = BrokerWorld()
    slave = FakeSlave({"T@G": {"0": 50}}, 5)
    slave.pops, slave.mark = b"{}", "0:9:9"
    slave.ha.other_marks = {slave.mark}
    sync = reverse(world, slave)
    with pytest.raises(ReplicationDivergedError, match=f"the log of slave {SLAVE_1} differs"):
        await take(sync, SLAVE_1)
    assert (world.offsets.query_offset("G", "T", 0), sync.take_pops()) == (-1, [])


async def test_a_copy_older_than_ours_is_not_taken() -> None:
    world = BrokerWorld()
    world.offsets.take_version(DataVersion(6, 0, 1))
    await reverse(world, FakeSlave({"T@G": {"0": 15}}, counter=5)).take_back(SLAVE_1, "1")
    assert world.offsets.query_offset("G", "T", 0) == -1
    assert world.offsets.data_version.counter == 6


async def test_a_copy_as_old_as_ours_is_taken() -> None:
    """What a slave kept before it heard that it is the active one has the version of its last copy."""
    world = BrokerWorld()
    world.offsets.take_version(DataVersion(5, 0, 1))
    await reverse(world, FakeSlave({"T@G": {"0": 15}}, counter=5)).take_back(SLAVE_1, "1")
    assert world.offsets.query_offset("G", "T", 0) == 15


async def test_of_two_slaves_that_acted_in_turn_both_are_taken_back_whichever_began_last() -> None:
    """Slave 1 stood still, slave 2 acted for a while, and slave 1 went on."""
    world = BrokerWorld()
    world.offsets.take_version(DataVersion(5, 0, 1))
    slaves = {
        "two": FakeSlave({"T@G": {"0": 12, "1": 8}}, 0, dataVersion={**version(10_005), "timestamp": 9}),
        "one": FakeSlave({"T@G": {"0": 15, "1": 7}}, 0, dataVersion={**version(10_005), "timestamp": 4}),
    }

    class Both(FakeSlave):
        async def consumer_offsets(self, address: str, page: str = "") -> OffsetsPage:
            return await slaves[address].consumer_offsets(address, page)

    taking = reverse(world, Both({}, 0))
    for address in slaves:
        await taking.take_back(address, "1")
    assert world.offsets.query_offsets("G", "T") == {0: 15, 1: 8}
    slaves["two"].offsets |= {"offsetTable": {"T@G": {"2": 3}}, "dataVersion": version(10_004)}
    await taking.take_back("two", "2")
    assert world.offsets.query_offsets("G", "T") == {0: 15, 1: 8}, "it was away since, and its table is old"


async def test_what_was_taken_back_is_on_the_disk_after_a_restart() -> None:
    world = BrokerWorld()
    await reverse(world, FakeSlave({"T@G": {"0": 15}}, counter=5)).take_back(SLAVE_1, "1")
    await world.offsets.persisted()
    again = BrokerWorld(disk=world.disk)
    again.offsets.load()
    assert again.offsets.query_offset("G", "T", 0) == 15


@pytest.mark.parametrize("has_acted", [True, False])
async def test_a_slave_takes_over_from_another_only_what_was_committed_while_that_acted(has_acted: bool) -> None:
    """Its own version says nothing of that. Its log may have less, and the next messages have their places."""
    world = BrokerWorld()
    world.offsets.commit_offset("h", "G", "T", 0, 10)
    world.offsets.take_version(DataVersion(20_000, 0, 1))
    more = {"hasActed": True} if has_acted else {}
    slave = FakeSlave({"T@G": {"0": 15, "1": 3}}, counter=5, logEnd=LOG_END + 1, **more)
    slave.pops = b"{}" if has_acted else b""
    taking = reverse(world, slave, queue_end=12)
    await taking.take_over(SLAVE_1)
    await taking.take_over(SLAVE_1)
    assert world.offsets.query_offsets("G", "T") == ({0: 15, 1: 3} if has_acted else {0: 10})
    assert taking.take_pops() == ([b"{}"] if has_acted else [])


async def test_a_copy_follows_a_group_that_goes_back_where_the_last_one_of_that_slave_is_still_here() -> None:
    world = BrokerWorld({"enableLmq": "true"})
    slave = FakeSlave({}, counter=5, hasActed=True)
    copying = reverse(world, slave, timer_wheel=False)

    async def copied(offset: int, address: str = SLAVE_1, pops: bytes = b"{}") -> set[int]:
        slave.pops, table = pops, {"0": offset, "1": offset}
        slave.offsets |= {"offsetTable": {"T@G": table}, "lmqOffsetTable": {"T@%LMQ%g": offset}}
        await copying.copy(address, lambda: True)
        return {*world.offsets.query_offsets("G", "T").values(), world.offsets.query_offset("%LMQ%g", "T", 0)}

    assert [await copied(offset) for offset in (7, 3, 5, -1, 4)] == [{7}, {3}, {5}, {-1}, {4}]
    assert await copied(2, pops=b"") == {4}, "it was started anew, and does not act yet"
    assert await copied(3) == {4}
    assert [await copied(offset) for offset in (6, 5)] == [{6}, {5}]
    assert await copied(3, "10.0.0.9:10911") == {5}, "another one acts now, and may have an older copy"
    assert [await copied(offset) for offset in (6, 5)] == [{6}, {5}]
    for queue_id in (0, 1):
        world.offsets.commit_offset("h", "G", "T", queue_id, 6)
    assert await copied(4) == {6, 4}
    copying.forget_copies()
    assert await copied(3) == {6, 4}, "this slave may have acted meanwhile"


async def test_what_was_taken_over_of_pops_stays_if_the_slave_has_forgotten_it_when_it_is_asked_again() -> None:
    slave = FakeSlave({}, 5)
    taking = reverse(BrokerWorld(), slave)
    for slave.pops in (b"{}", b""):
        await taking.take_over(SLAVE_1)
    assert taking.take_pops() == [b"{}"]


async def test_light_queues_come_back_too() -> None:
    world = BrokerWorld({"enableLmq": "true"})
    world.offsets.commit_offset("h", "%LMQ%g", "%LMQ%a", 0, 9)
    slave = FakeSlave({}, 5, lmqOffsetTable={"%LMQ%a@%LMQ%g": 4, "%LMQ%b@%LMQ%g": 8})
    await reverse(world, slave).take_back(SLAVE_1, "1")
    assert world.offsets.query_offset("%LMQ%g", "%LMQ%a", 0) == 9
    assert world.offsets.query_offset("%LMQ%g", "%LMQ%b", 0) == 8


@pytest.mark.parametrize(("own_counter", "taken"), [(None, True), (4, True), (5, True), (6, False)])
async def test_delay_offsets_and_timer_checkpoint_of_javas_slaves_come_back_unless_ours_are_newer(
    own_counter: int | None, taken: bool
) -> None:
    world = BrokerWorld()
    files = ReplicatedConfigFiles(world.disk, CONFIG_DIR)
    if own_counter is not None:
        files.write_delay_offsets(json_dialect.dumps({"offsetTable": {"1": 1}, "dataVersion": version(own_counter)}))
        files.write_timer_checkpoint(TimerCheckpoint(1, 0, 0, 0, DataVersion(own_counter, 0, 1)))
    slave = FakeSlave({}, 0)
    slave.delay = {"offsetTable": {"1": 8}, "dataVersion": version(5)}
    slave.timer = TimerCheckpoint(99, 0, 0, 7, DataVersion(5, 0, 1))
    await reverse(world, slave).take_back(SLAVE_1, "1")
    after = ReplicatedConfigFiles(world.disk, CONFIG_DIR)
    assert (b'"1":8' in (after.delay_offsets() or b"")) is taken
    checkpoint = after.timer_checkpoint()
    assert checkpoint is not None
    assert (checkpoint.last_read_time_ms == 99) is taken


@pytest.mark.parametrize(("their_log", "is_taken"), [(LOG_END, True), (LOG_END + 1, False)])
async def test_a_master_without_delay_offsets_takes_none_that_speak_of_another_log(
    their_log: int, is_taken: bool
) -> None:
    world = BrokerWorld()
    slave = FakeSlave({}, 0)
    slave.delay = json_dialect.loads(DelayOffsetSerializeWrapper({1: 8}, DataVersion(5, 0, 1), their_log).encode())
    await reverse(world, slave).take_back(SLAVE_1, "1")
    assert (ReplicatedConfigFiles(world.disk, CONFIG_DIR).delay_offsets() is not None) is is_taken


@pytest.mark.parametrize(("their_log", "is_taken"), [(LOG_END, True), (LOG_END + 1, False)])
async def test_what_master_or_slave_has_delivered_is_delivered_whichever_has_counted_further(
    their_log: int, is_taken: bool
) -> None:
    """Ours is the newer version. A slave whose log has more than ours speaks of another one."""
    world = BrokerWorld()
    files = ReplicatedConfigFiles(world.disk, CONFIG_DIR)
    ours = DelayOffsetSerializeWrapper({1: 5, 2: 9}, DataVersion(9, 0, 1), 700, {1: [2, 3]})
    files.write_delay_offsets(ours.encode())
    files.write_timer_checkpoint(TimerCheckpoint(50, 0, 0, 0, DataVersion(9, 0, 1)))
    slave = FakeSlave({}, 0)
    theirs = DelayOffsetSerializeWrapper({1: 8, 2: 4, 3: 1}, DataVersion(5, 0, 1), their_log, {1: [3, 6], 2: [1]})
    slave.delay = json_dialect.loads(theirs.encode())
    slave.timer = TimerCheckpoint(99, 0, 0, 7, DataVersion(5, 0, 1), (), their_log)
    await reverse(world, slave).take_back(SLAVE_1, "1")
    after = ReplicatedConfigFiles(world.disk, CONFIG_DIR)
    table, checkpoint = DelayOffsetSerializeWrapper.decode(after.delay_offsets()), after.timer_checkpoint()
    assert checkpoint is not None and (checkpoint.last_read_time_ms == 99) is is_taken
    if is_taken:
        assert (table.offset_table, table.postponed) == ({1: 8, 2: 9, 3: 1}, {1: [3, 6]})
        assert table.physical_offset == LOG_END
    else:
        assert (table.offset_table, table.postponed) == ({1: 5, 2: 9}, {1: [2, 3]})


class RunningTimer:
    """A timer that was loaded and does not deliver yet: it is told of checkpoints, and has written none of them."""

    def __init__(self, saved: TimerCheckpoint) -> None:
        self.saved = saved
        self.told: list[int] = []

    def checkpoint(self) -> TimerCheckpoint:
        return self.saved

    def known_read_time_ms(self) -> int:
        return self.told[-1] if self.told else self.saved.last_read_time_ms

    def take_checkpoint(self, checkpoint: TimerCheckpoint) -> bool:
        self.told.append(checkpoint.last_read_time_ms)
        return True

    def metrics(self) -> bytes:
        return b""

    def take_metrics(self, text: bytes) -> bool:
        return False


async def test_of_two_slaves_whose_timers_have_come_less_far_the_one_counts_that_has_come_further() -> None:
    """The messages that the first one moved and did not deliver would count as delivered."""
    world = BrokerWorld()
    slave, timer = FakeSlave({}, 0), RunningTimer(TimerCheckpoint(50))
    master = reverse(world, slave, timer)
    for read_ms in (99, 70):
        slave.timer = TimerCheckpoint(read_ms, 0, 0, 7, DataVersion(5, 0, 1), (), LOG_END)
        await master.take_back(SLAVE_1, "1")
    assert timer.told == [99]


async def test_a_slave_without_a_timer_is_no_failure() -> None:
    world = BrokerWorld()
    await reverse(world, FakeSlave({"T@G": {"0": 15}}, counter=5)).take_back(SLAVE_1, "1")
    assert ReplicatedConfigFiles(world.disk, CONFIG_DIR).timer_checkpoint() is None


async def test_a_slave_whose_timer_fails_is_one() -> None:
    slave = FakeSlave({}, 5)
    slave.timer_refusal = BrokerError(ResponseCode.SYSTEM_ERROR, "wheel is stuck")
    with pytest.raises(BrokerError, match="wheel is stuck"):
        await reverse(BrokerWorld(), slave).take_back(SLAVE_1, "1")


async def test_without_a_wheel_no_timer_is_asked_for() -> None:
    slave = FakeSlave({}, 5)
    await reverse(BrokerWorld(), slave, timer_wheel=False).take_back(SLAVE_1, "1")
    assert slave.timer_asked == 0


async def test_what_slaves_say_of_pops_is_kept_for_pop_consumption_and_given_once() -> None:
    slave = FakeSlave({}, 1)
    slave.pops = b"{}"
    taking = reverse(BrokerWorld(), slave, timer_wheel=False)
    await taking.take_back(SLAVE_1, "1")
    assert (taking.take_pops(), taking.take_pops()) == ([b"{}"], [])


async def test_what_slaves_say_of_pops_ends_where_queues_ended_when_they_were_asked() -> None:
    """A master that has lost its end takes messages as soon as it has registered, and pop consumption starts later."""
    slave = FakeSlave({}, 1)
    slave.pops = json_dialect.dumps({"end": 0, "live": [], "orders": [], "done": [["T", "G", 0, 15, []]]})
    taking = reverse(BrokerWorld(), slave, timer_wheel=False, queue_end=12)
    await taking.take_back(SLAVE_1, "1")
    (told,) = taking.take_pops()
    assert json_dialect.loads(told)["done"] == [["T", "G", 0, 12, []]]


async def test_a_java_slave_says_nothing_of_pops_and_its_offsets_are_taken() -> None:
    world = BrokerWorld()
    taking = reverse(world, FakeSlave({"T@G": {"0": 5}}, 1), timer_wheel=False)
    await taking.take_back(SLAVE_1, "1")
    assert taking.take_pops() == []
    assert world.offsets.query_offset("G", "T", 0) == 5
