"""What an acknowledgement and a change of invisible time do to the check points, and when they are answered."""

from typing import Any

import pytest

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.pop.ack_message import AckMessageProcessor
from maxq.broker.pop.pop_journal import NOT_NOTED
from maxq.broker.stats import names
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.pop import AckMsg, BatchAck, PopCheckPoint, encode_batch_acks
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader
from maxq.protocol.message.pop_extra_info import ExtraInfo
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from tests.unit.broker.broker_world import FakeConnection
from tests.unit.broker.bundles_of import environment, messages
from tests.unit.broker.pop.test_check_point_buffer import Clock

POP_TIME, INVISIBLE = 900, 5_000  # the clock stands at 1000
PLACE = 4_000  # of the queue's messages in the log
KEY = ("T", "G", 3, 40, POP_TIME, "broker-a")


class Noted:
    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset


class Buffer:
    """Check points in memory: "one" and "two" hold what the test says."""

    def __init__(self) -> None:
        self.holders: dict[int, str] = {}
        self.asked: list[Any] = []
        self.end = 700
        self.ended_before = self.handed_over_before = 0
        self.known: set[int] = set()  # pop times

    def holder(self, key: tuple[Any, ...], offset: int) -> str | None:
        assert key == KEY
        return self.holders.get(offset)

    def is_given_again(self, key: tuple[Any, ...], offset: int) -> bool:
        return False

    def ack(self, live: str, offsets: list[int]) -> Noted:
        self.asked.append(("ack", live, offsets))
        self.end += 1 if self.end != NOT_NOTED else 0
        return Noted(self.end)

    def replace(self, point: PopCheckPoint, revive_qid: int, live: str, offset: int, *, by: tuple[Any, ...]) -> Noted:
        assert by == KEY
        self.asked.append(("replace", point, revive_qid, live, offset))
        return Noted(self.end)

    def may_have_handed_over(self, pop_time: int) -> bool:
        return pop_time < self.handed_over_before

    def has_ended(self, pop_time: int) -> bool:
        return pop_time < self.ended_before

    def noted_end(self) -> int:
        return self.end

    def add_renewed(self, point: PopCheckPoint, revive_qid: int, *, by: tuple[Any, ...], until_ms: int) -> int:
        assert (by, until_ms) == (KEY, POP_TIME + INVISIBLE)
        self.asked.append(("add", point, revive_qid))
        return self.end

    def take_away(self, point: PopCheckPoint) -> None:
        self.asked.append(("take away", point))

    def is_known(self, point: PopCheckPoint) -> bool:
        return point.pop_time in self.known


class Records:
    def __init__(self) -> None:
        self.put: list[tuple[AckMsg, list[int], int, int]] = []
        self.result = PutMessageResult(PutMessageStatus.PUT_OK, physical_offset=800, end_offset=900)

    async def put_ack(self, ack: AckMsg, revive_qid: int, revive_time_ms: int) -> PutMessageResult:
        self.put.append((ack, list(ack.offsets), revive_qid, revive_time_ms))
        return self.result


class Orders:
    def __init__(self) -> None:
        self.known, self.end = True, 600
        self.asked: list[tuple[Any, ...]] = []

    def knows(self, *queue: Any) -> bool:
        return True

    def ack(self, *what: Any) -> tuple[bool, int]:
        self.asked.append(("ack", *what))
        return self.known, self.end

    def change_visible_time(self, *what: Any) -> tuple[bool, int]:
        self.asked.append(("change", *what))
        return self.known, self.end


class Checks:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    def message(self, connection: Any, *what: Any, may_be_end: bool) -> None:
        self.asked.append((*what, may_be_end))

    def retry_topic(self, topic: str, group: str) -> None:
        self.asked.append((topic, group))


class Store:
    """Attributes:
    incarnation: of topic T: where it was deleted last.
    """

    stored_ms, incarnation = POP_TIME, 0

    @property
    def deletions(self) -> "Store":
        return self

    def known(self, topic: str) -> int:
        return self.incarnation

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 41 if (topic, queue_id) == ("T", 3) else -1

    def max_offset(self, topic: str, queue_id: int) -> int:
        return 45 if (topic, queue_id) == ("T", 3) else 0

    def queue_units(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        return [(PLACE, 100, 0)] if (topic, queue_id) == ("T", 3) else []

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        return self.stored_ms if (topic, queue_id) == ("T", 3) else -1


class Acknowledgement:
    """Notes up to where somebody waits."""

    def __init__(self) -> None:
        self.waited_for: list[int] = []
        self.code = ResponseCode.SUCCESS

    def outcome(self, end_offset: int) -> Any:
        self.waited_for.append(end_offset)

        async def answer() -> ResponseCode:
            return self.code

        return answer()


class World:
    def __init__(self) -> None:
        self.clock, self.buffer, self.records, self.orders = Clock(), Buffer(), Records(), Orders()
        self.checks, self.safe, self.store = Checks(), Acknowledgement(), Store()
        self.refused_at_start = False
        self.log_began_at = PLACE + 1
        own = BrokerAddress("C", "broker-a", 0, "10.0.0.1", 10911)
        env = environment(own=own, clock=self.clock)
        self.counted: list[tuple[Any, ...]] = []
        env.stats.add = lambda *what: self.counted.append(what)  # type: ignore[method-assign]
        self.processor = AckMessageProcessor(
            env, messages(store=self.store, acknowledgement=self.safe), self.checks, self.buffer, self.orders,  # type: ignore[arg-type]
            self.records, self._ready, lambda: self.log_began_at,  # type: ignore[arg-type]
        )  # fmt: skip

    async def _ready(self) -> None:
        if self.refused_at_start:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "not known yet")

    async def ask(self, code: int, ext: dict[str, str] | None, body: bytes = b"") -> RemotingCommand:
        request = RemotingCommand(code, ext or {}, body=body)
        return await self.processor.routes()[code](FakeConnection(), request)  # type: ignore[misc,arg-type]

    async def ack(self, offset: int, revive_qid: int = 5) -> RemotingCommand:
        handle = ExtraInfo(40, POP_TIME, INVISIBLE, revive_qid, "0", "broker-a", 3, offset)
        header = AckMessageRequestHeader("G", "T", 3, str(handle), offset)
        return await self.ask(RequestCode.ACK_MESSAGE, header.encode())

    async def batch(self, *bits: int, queue_id: int = 3, revive_qid: int = 5, name: str = "") -> RemotingCommand:
        batch = BatchAck("T", "G", "0", 40, queue_id, revive_qid, POP_TIME, INVISIBLE, list(bits))
        return await self.ask(RequestCode.BATCH_ACK_MESSAGE, {}, encode_batch_acks(name, [batch]))

    async def change(self, offset: int, revive_qid: int = 5, suspend: bool = False) -> RemotingCommand:
        handle = ExtraInfo(40, POP_TIME, INVISIBLE, revive_qid, "0", "broker-a", 3, offset)
        header = ChangeInvisibleTimeRequestHeader("G", "T", 3, str(handle), offset, 9_000, suspend=suspend)
        return await self.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.encode())


@pytest.fixture
def world() -> World:
    return World()


# --- acks ---


async def test_an_ack_of_what_is_in_memory_is_answered_when_the_journal_is_safe(world: World) -> None:
    world.buffer.holders = {42: "one"}
    assert (await world.ack(42)).code == ResponseCode.SUCCESS
    assert world.buffer.asked == [("ack", "one", [42])]
    assert (world.safe.waited_for, world.records.put) == ([701], [])
    assert world.checks.asked == [("T", "G", 3, 42, True)]
    assert world.counted == [(names.GROUP_ACK_NUMS, "T@G", 1), (names.BROKER_ACK_NUMS, "C", 1)]


async def test_any_other_ack_becomes_a_record_of_the_revive_topic(world: World) -> None:
    assert (await world.ack(42)).code == ResponseCode.SUCCESS
    ((ack, offsets, revive_qid, revive_time),) = world.records.put
    assert (ack.key, offsets, revive_qid, revive_time) == (KEY, [42], 5, POP_TIME + INVISIBLE)
    assert not ack.is_batch
    assert (world.safe.waited_for, world.buffer.asked) == ([900], [])


async def test_messages_of_several_check_points_are_acknowledged_each_at_its_own(world: World) -> None:
    world.buffer.holders = {41: "one", 43: "one", 44: "two"}
    assert (await world.batch(1, 2, 3, 4)).code == ResponseCode.SUCCESS
    assert world.buffer.asked == [("ack", "one", [41, 43]), ("ack", "two", [44])]
    assert [offsets for _, offsets, _, _ in world.records.put] == [[42]]
    assert world.records.put[0][0].is_batch
    assert world.safe.waited_for == [900]
    assert (names.GROUP_ACK_NUMS, "T@G", 4) in world.counted


async def test_of_a_batch_only_messages_of_the_queue_count(world: World) -> None:
    """It begins at 41 and ends at 45, and an ack may name the end."""
    await world.batch(0, 1, 4, 5, 6)
    assert [offsets for _, offsets, _, _ in world.records.put] == [[41, 44, 45]]
    assert world.records.put[0][3] == POP_TIME + INVISIBLE
    assert world.checks.asked == [("T", "G")]


@pytest.mark.parametrize(("bits", "queue_id"), [((0, 9), 3), ((1,), 4)])
async def test_a_batch_of_nothing_that_is_there_waits_for_nothing(
    world: World, bits: tuple[int, ...], queue_id: int
) -> None:
    assert (await world.batch(*bits, queue_id=queue_id)).code == ResponseCode.SUCCESS
    assert (world.safe.waited_for, world.records.put, world.counted) == ([], [], [])


async def test_a_batch_without_acks_is_refused(world: World) -> None:
    with pytest.raises(RequestRefusedError, match="names no message") as refused:
        await world.ask(RequestCode.BATCH_ACK_MESSAGE, {}, encode_batch_acks("broker-a", []))
    assert refused.value.response_code == ResponseCode.NO_MESSAGE


async def test_a_batch_that_names_no_broker_is_this_ones(world: World) -> None:
    await world.batch(1)
    assert world.records.put[0][0].broker_name == "broker-a"


async def test_a_batch_is_safe_when_its_last_record_is(world: World) -> None:
    first, second = (BatchAck("T", "G", "0", 40, 3, 5, POP_TIME, INVISIBLE, [bit]) for bit in (1, 2))
    world.buffer.holders = {41: "one"}
    await world.ask(RequestCode.BATCH_ACK_MESSAGE, {}, encode_batch_acks("broker-a", [second, first]))
    assert world.safe.waited_for == [900]


async def test_what_the_journal_does_not_take_is_not_promised(world: World) -> None:
    world.buffer.holders, world.buffer.end = {42: "one"}, NOT_NOTED
    with pytest.raises(RequestRefusedError, match="the message comes again") as refused:
        await world.ack(42)
    assert refused.value.response_code == ResponseCode.SYSTEM_ERROR
    with pytest.raises(RequestRefusedError, match="the message comes again"):
        await world.batch(1, 2)
    assert world.records.put == [], "records must not overtake what waits for the journal"
    assert world.safe.waited_for == []


async def test_a_record_that_is_not_stored_is_refused_with_the_reason(world: World) -> None:
    world.records.result = PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark="the disk is full")
    with pytest.raises(RequestRefusedError, match="so the message comes again: the disk is full") as refused:
        await world.ack(42)
    assert refused.value.response_code == ResponseCode.SYSTEM_ERROR
    world.records.result = PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
    with pytest.raises(RequestRefusedError, match="comes again: SERVICE_NOT_AVAILABLE"):
        await world.ack(42)


async def test_an_ack_that_is_not_safe_in_time_says_so(world: World) -> None:
    world.safe.code = ResponseCode.FLUSH_DISK_TIMEOUT
    with pytest.raises(RequestRefusedError) as refused:
        await world.ack(42)
    assert refused.value.response_code == ResponseCode.FLUSH_DISK_TIMEOUT


async def test_nothing_is_acknowledged_before_it_is_known_what_was_popped(world: World) -> None:
    world.refused_at_start = True
    for asked in (world.ack(42), world.batch(1), world.change(42)):
        with pytest.raises(RequestRefusedError, match="not known yet"):
            await asked
    assert (world.records.put, world.buffer.asked) == ([], [])


# --- in order ---


async def test_in_order_each_message_is_acknowledged_in_its_table(world: World) -> None:
    await world.ack(42, revive_qid=999)
    assert world.orders.asked == [("ack", "T", "G", 3, 42, POP_TIME, "10.0.0.9:40000")]
    assert world.safe.waited_for == [600]
    await world.batch(1, 2, revive_qid=999)
    assert [what[4] for what in world.orders.asked] == [42, 41, 42]
    assert world.safe.waited_for == [600, 600]
    assert [what for what in world.counted if what[0] == names.GROUP_ACK_NUMS] == [(names.GROUP_ACK_NUMS, "T@G", 1)] * 3
    world.orders.end = NOT_NOTED
    with pytest.raises(RequestRefusedError, match="the message comes again"):
        await world.batch(1, revive_qid=999)


async def test_in_order_what_was_not_given_out_is_refused(world: World) -> None:
    world.orders.known = False
    with pytest.raises(RequestRefusedError, match="key:T@G@3, commit:42: it was not given out") as refused:
        await world.ack(42, revive_qid=999)
    assert refused.value.response_code == ResponseCode.MESSAGE_ILLEGAL
    assert world.counted == []


# --- invisible time ---


async def test_a_change_of_time_puts_a_new_check_point_in_place_of_the_old_one(world: World) -> None:
    world.buffer.holders = {42: "one"}
    reply = await world.change(42, suspend=True)
    ((what, point, revive_qid, live, offset),) = world.buffer.asked
    assert (what, revive_qid, live, offset) == ("replace", 5, "one", 42)
    assert point == PopCheckPoint("T", "G", 3, 42, 1_000, 9_000, "broker-a", [0], 1, suspend=True)
    assert (reply.code, reply.ext) == (
        ResponseCode.SUCCESS, {"popTime": "1000", "invisibleTime": "9000", "reviveQid": "5"},
    )  # fmt: skip
    assert world.safe.waited_for == [700]
    assert world.checks.asked == [("T", "G", 3, 42, False)]
    assert world.counted == [
        (names.GROUP_ACK_NUMS, "T@G", 1), (names.BROKER_ACK_NUMS, "C", 1),
        (names.GROUP_CK_NUMS, "T@G"), (names.BROKER_CK_NUMS, "C"),
    ]  # fmt: skip


async def test_new_check_points_of_one_moment_have_times_of_their_own(world: World) -> None:
    world.buffer.holders, world.buffer.known = {42: "one"}, {1_000, 1_001}
    reply = await world.change(42)
    assert world.buffer.asked[0][1].pop_time == 1_002
    assert reply.ext is not None and reply.ext["popTime"] == "1002"


async def test_a_change_of_what_has_ended_makes_no_check_point(world: World) -> None:
    world.buffer.ended_before = POP_TIME + 1
    assert (await world.change(42)).code == ResponseCode.SUCCESS
    assert (world.buffer.asked, world.records.put) == ([], [])
    assert world.safe.waited_for == [700]


async def test_a_change_of_what_was_stored_before_the_clock_was_set_back_counts(world: World) -> None:
    world.store.stored_ms = POP_TIME + 3_600_000
    world.log_began_at = PLACE
    assert (await world.change(42)).code == ResponseCode.SUCCESS
    assert world.buffer.asked == []
    world.log_began_at = PLACE + 1
    assert (await world.change(42)).code == ResponseCode.SUCCESS
    assert [what[0] for what in world.buffer.asked] == ["add"]


async def test_a_change_of_a_deleted_topics_message_makes_no_check_point_in_the_new_topic(world: World) -> None:
    world.store.stored_ms, world.store.incarnation = POP_TIME + 1, 4_096
    assert (await world.change(42)).code == ResponseCode.SUCCESS
    assert (world.buffer.asked, world.records.put) == ([], [])
    assert world.safe.waited_for == [700]


async def test_a_change_of_what_was_handed_over_acknowledges_it_in_the_revive_topic(world: World) -> None:
    assert (await world.change(42)).code == ResponseCode.SUCCESS
    assert [what[0] for what in world.buffer.asked] == ["add"]
    ((ack, offsets, revive_qid, revive_time),) = world.records.put
    assert (ack.key, offsets, revive_qid, revive_time) == (KEY, [42], 5, POP_TIME + INVISIBLE)
    assert world.safe.waited_for == [900]


async def test_a_new_check_point_goes_when_the_old_one_cannot_be_acknowledged(world: World) -> None:
    world.records.result = PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
    with pytest.raises(RequestRefusedError):
        await world.change(42)
    (_, added, _), (what, taken) = world.buffer.asked
    assert what == "take away" and taken is added


async def test_a_change_that_the_journal_does_not_take_is_refused(world: World) -> None:
    world.buffer.end = NOT_NOTED
    with pytest.raises(RequestRefusedError, match="could not be stored"):
        await world.change(42)
    (_, added, _), (what, taken) = world.buffer.asked
    assert what == "take away" and taken is added, "the old one holds the message"
    assert world.records.put == []


async def test_in_order_a_change_of_time_is_one_in_the_table(world: World) -> None:
    reply = await world.change(42, revive_qid=999)
    assert world.orders.asked == [("change", "T", "G", 3, 42, POP_TIME, 10_000)]
    assert reply.ext == {"popTime": "900", "invisibleTime": "9100", "reviveQid": "999"}
    assert world.safe.waited_for == [600]
    assert world.buffer.asked == []
