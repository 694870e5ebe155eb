"""Receipts, from the request to the log: which message one names after changes of its time, and which it does not."""

import asyncio
from collections.abc import Callable

import pytest

from maxq.broker.pop.ack_message import AckMessageProcessor
from maxq.broker.pop.pop_checks import PopChecks
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.pop import AckMsg, BatchAck, PopCheckPoint, encode_batch_acks
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader
from maxq.protocol.message.pop_extra_info import ExtraInfo
from maxq.store.context.running_flags import DISK_FULL
from maxq.store.store_results import PutMessageStatus
from tests.unit.broker.broker_world import FakeConnection, connection
from tests.unit.broker.bundles_of import clients, messages
from tests.unit.broker.pop.pop_parts import GROUP, NAME, PopParts

REVIVE = "rmq_sys_REVIVE_LOG_C"


class Promise:
    """What becomes of the promise that a part of the log is safe, and the ends that were asked for."""

    def __init__(self, code: ResponseCode | None = None) -> None:
        self.code = code
        self.ends: list[int] = []

    def outcome(self, end_offset: int) -> "asyncio.Future[ResponseCode] | None":
        self.ends.append(end_offset)
        if self.code is None:
            return None
        future: asyncio.Future[ResponseCode] = asyncio.get_running_loop().create_future()
        future.set_result(self.code)
        return future


class Acks:
    """The processor of `parts`, asked as a client asks. `refusal`: why this broker is not the one to ask;
    `log_began_at`: where the log ended when it became that."""

    def __init__(self, parts: PopParts) -> None:
        self.parts = parts
        self.promise = Promise()
        self.refusal: RequestRefusedError | None = None
        self.log_began_at = 0
        bundle = messages(store=parts.store, acknowledgement=self.promise)
        checks = PopChecks(parts.env, parts.tables, clients(), bundle)
        self.processor = AckMessageProcessor(
            parts.env, bundle, checks, parts.buffer, parts.orders, parts.records, self._ready, lambda: self.log_began_at
        )

    async def _ready(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def ask(self, command: RemotingCommand) -> RemotingCommand:
        """The answer; refusals are answers, too."""
        try:
            answer = await self.processor.routes()[command.code](connection(FakeConnection()), command)  # type: ignore
        except RequestRefusedError as error:
            return command.reply(error.response_code, str(error))
        assert isinstance(answer, RemotingCommand)
        return answer

    async def ack(self, handle: ExtraInfo, offset: int, *, topic: str = "T", queue_id: int = 0) -> RemotingCommand:
        header = AckMessageRequestHeader(GROUP, topic, queue_id, str(handle), offset)
        return await self.ask(RemotingCommand(RequestCode.ACK_MESSAGE, header.encode()))

    async def batch(self, *acks: BatchAck, name: str = NAME) -> RemotingCommand:
        return await self.ask(RemotingCommand(RequestCode.BATCH_ACK_MESSAGE, body=encode_batch_acks(name, acks)))

    async def change(self, handle: ExtraInfo, offset: int, invisible_ms: int) -> RemotingCommand:
        header = ChangeInvisibleTimeRequestHeader(GROUP, "T", 0, str(handle), offset, invisible_ms)
        return await self.ask(RemotingCommand(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.encode()))


def _handle(point: PopCheckPoint, revive_qid: int = 3) -> ExtraInfo:
    return ExtraInfo(point.start_offset, point.pop_time, point.invisible_time, revive_qid, "0", NAME)


def _changed(answer: RemotingCommand, offset: int) -> ExtraInfo:
    """The handle that a change of time gives."""
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    ext = answer.ext
    return ExtraInfo(offset, int(ext["popTime"]), int(ext["invisibleTime"]), int(ext["reviveQid"]), "0", NAME)


def _batch(point: PopCheckPoint, *bits: int, topic: str = "T", queue_id: int = 0, revive_qid: int = 3) -> BatchAck:
    return BatchAck(
        topic, GROUP, "0", point.start_offset, queue_id, revive_qid, point.pop_time, point.invisible_time, [*bits]
    )


def _popped(parts: PopParts, count: int, start: int = 0) -> PopCheckPoint:
    """A check point in memory of `count` new messages."""
    parts.fill(b"%d" % number for number in range(start, start + count))
    parts.clock.now_ms += 10
    point = parts.point(start, count)
    assert parts.buffer.add([(point, 3, start + count)]) > 0
    return point


def _handed_over(parts: PopParts, count: int) -> PopCheckPoint:
    point = _popped(parts, count)
    parts.buffer.handed_over(parts.buffer.those([point.key]))
    parts.clock.now_ms += 10
    return point


def _stored(parts: PopParts) -> list[AckMsg]:
    """Acks in the revive topic."""
    return [
        AckMsg.decode(record.body, is_batch=record.tags == "bAck")
        for queue_id in range(8)
        for record in parts.stored(REVIVE, queue_id)
    ]


@pytest.fixture
def acks(parts: PopParts) -> Acks:
    return Acks(parts)


async def test_a_repeated_ack_promises_no_less_than_the_first(acks: Acks, parts: PopParts) -> None:
    point = _popped(parts, 2)
    for _ in range(2):
        assert (await acks.ack(_handle(point), 0)).code == ResponseCode.SUCCESS
    assert acks.promise.ends[0] == acks.promise.ends[1] > 0


@pytest.mark.parametrize("is_in_memory", [False, True])
@pytest.mark.parametrize("by_batch", [False, True])
async def test_nothing_is_acknowledged_while_the_log_takes_nothing(
    acks: Acks, parts: PopParts, is_in_memory: bool, by_batch: bool
) -> None:
    point = _popped(parts, 1) if is_in_memory else _handed_over(parts, 1)
    parts.store.flags.set(DISK_FULL, "the disk is full")
    if not is_in_memory:
        parts.buffer.journal.write({"e": [1]})
    answer = await (acks.batch(_batch(point, 0)) if by_batch else acks.ack(_handle(point), 0))
    assert answer.code == ResponseCode.SYSTEM_ERROR and "could not be stored" in (answer.remark or "")
    assert _stored(parts) == []


@pytest.mark.parametrize(
    ("topic", "queue_id", "offset", "code"),
    [("Unknown", 0, 0, ResponseCode.TOPIC_NOT_EXIST), ("T", 1, 0, ResponseCode.MESSAGE_ILLEGAL),
     ("T", -1, 0, ResponseCode.MESSAGE_ILLEGAL), ("T", 0, 4, ResponseCode.NO_MESSAGE),
     ("T", 0, -1, ResponseCode.NO_MESSAGE), ("%RETRY%G_X", 0, 0, ResponseCode.NO_PERMISSION)],
)  # fmt: skip
async def test_an_ack_of_what_is_not_there_or_of_another_group_is_refused(
    acks: Acks, parts: PopParts, topic: str, queue_id: int, offset: int, code: int
) -> None:
    """G_X is a group, too: %RETRY%G_X has what it is to consume again, not what G has of a topic X."""
    parts.groups.find_subscription_group_config("G_X")
    parts.create("%RETRY%G_X")
    point = _popped(parts, 3)
    answer = await acks.ack(_handle(point), offset, topic=topic, queue_id=queue_id)
    assert answer.code == code and answer.remark
    assert (parts.buffer.in_flight, _stored(parts)) == ({("T", GROUP, 0): 3}, [])


# --- batches ---------------------------------------------------------------------------------------------------------


async def test_a_batch_acknowledges_what_is_in_memory_and_what_was_handed_over(acks: Acks, parts: PopParts) -> None:
    old = _handed_over(parts, 2)
    new = _popped(parts, 3, start=2)
    assert (await acks.batch(_batch(old, 1), _batch(new, 0, 2))).code == ResponseCode.SUCCESS
    assert [(ack.key, ack.offsets) for ack in _stored(parts)] == [(old.key, [1])]
    assert parts.buffer.in_flight == {("T", GROUP, 0): 1}
    assert acks.promise.ends == [parts.store.max_physical_offset]


# --- changes of invisible time ---------------------------------------------------------------------------------------


def _due(parts: PopParts, after_ms: int) -> list[tuple[int, int]]:
    """Start and number of open messages of the check points that are due after so much time."""
    parts.clock.now_ms += after_ms
    return sorted((live.point.start_offset, len(live.point.open_offsets())) for live in parts.buffer.take_due())


async def test_a_changed_time_counts_for_its_message_alone(acks: Acks, parts: PopParts) -> None:
    point = _popped(parts, 3)
    changed = _changed(await acks.change(_handle(point), 1, 90_000), 1)
    assert changed.invisible_time == 90_000 and acks.promise.ends == [parts.store.max_physical_offset]
    assert _due(parts, 60_100) == [(0, 2)]
    assert _due(parts, 30_000) == [(0, 2), (1, 1)]


@pytest.mark.parametrize("by", ["old handle", "new handle", "batch of the old"])
async def test_either_handle_acknowledges_a_message_whose_time_was_changed(
    acks: Acks, parts: PopParts, by: str
) -> None:
    point = _popped(parts, 2)
    changed = _changed(await acks.change(_handle(point), 1, 90_000), 1)
    if by == "batch of the old":
        answer = await acks.batch(_batch(point, 1))
    else:
        answer = await acks.ack(changed if by == "new handle" else _handle(point), 1)
    assert answer.code == ResponseCode.SUCCESS
    assert (parts.buffer.in_flight, _stored(parts)) == ({("T", GROUP, 0): 1}, [])
    assert _due(parts, 200_000) == [(0, 1)]


async def test_a_change_of_what_was_handed_over_acknowledges_it_there(acks: Acks, parts: PopParts) -> None:
    point = _handed_over(parts, 2)
    changed = _changed(await acks.change(_handle(point), 0, 5_000), 0)
    assert [(ack.key, ack.offsets) for ack in _stored(parts)] == [(point.key, [0])]
    assert (await acks.ack(_handle(point), 0)).code == ResponseCode.SUCCESS
    assert (len(parts.buffer), len(_stored(parts))) == (0, 1)
    assert (await acks.ack(changed, 0)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("cause", ["the ack", "the journal"])
async def test_a_change_that_could_not_be_stored_leaves_the_handle_as_it_was(
    acks: Acks, parts: PopParts, cause: str
) -> None:
    point = _handed_over(parts, 1)
    if cause == "the ack":
        parts.refused = PutMessageStatus.OS_PAGE_CACHE_BUSY
    else:
        parts.store.flags.set(DISK_FULL, "the disk is full")
    answer = await acks.change(_handle(point), 0, 5_000)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "comes again" in (answer.remark or "")
    parts.refused = None
    parts.store.flags.clear(DISK_FULL)
    assert len(parts.buffer) == 0 and parts.buffer.in_flight == {}
    assert (await acks.ack(_handle(point), 0)).code == ResponseCode.SUCCESS
    assert [(ack.key, ack.offsets) for ack in _stored(parts)] == [(point.key, [0])]


async def test_a_slave_that_acts_leaves_to_its_master_what_that_has_handed_over(
    make_parts: Callable[..., PopParts],
) -> None:
    parts = make_parts(broker_id=1)
    parts.create()
    parts.fill([b"0"])
    acks, point = Acks(parts), parts.point(0, 1)
    parts.buffer.keep_ended(0)
    for answer in (await acks.ack(_handle(point), 0), await acks.change(_handle(point), 0, 1_000)):
        assert answer.code == ResponseCode.SYSTEM_ERROR and "ask the master" in (answer.remark or "")
    assert len(parts.buffer) == 0 and parts.buffer.hand_back() == []
    assert parts.buffer.done_here() == []


async def test_a_change_behind_the_ack_gives_no_second_life(acks: Acks, parts: PopParts) -> None:
    point = _popped(parts, 1)
    await acks.ack(_handle(point), 0)
    assert (await acks.change(_handle(point), 0, 1_000)).code == ResponseCode.SUCCESS
    assert (len(parts.buffer), _stored(parts)) == (0, [])


@pytest.mark.parametrize("is_in_revive_topic", [False, True])
async def test_a_change_that_comes_when_the_time_is_over_gives_no_second_life(
    acks: Acks, parts: PopParts, is_in_revive_topic: bool
) -> None:
    """The message may have been given again, and acknowledged."""
    point = _handed_over(parts, 1) if is_in_revive_topic else _popped(parts, 1)
    parts.clock.now_ms = point.revive_time + 100
    if not is_in_revive_topic:
        parts.buffer.finish(parts.buffer.take_due())
    answer = await acks.change(_handle(point), 0, 1_000)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "was over 100 ms ago" in (answer.remark or "")
    assert (len(parts.buffer), _stored(parts)) == (0, [])


@pytest.mark.parametrize("others", [0, 1])
async def test_a_change_that_is_repeated_when_the_new_time_is_over_is_refused(
    acks: Acks, parts: PopParts, others: int
) -> None:
    """Its answer was not heard, and the message was given again: whoever asks holds nothing, although the time of that
    receipt is not over, and others of its messages may be open. The answer was a receipt that held nothing."""
    point = _popped(parts, 1 + others)
    assert (await acks.change(_handle(point), 0, 1_000)).code == ResponseCode.SUCCESS
    parts.clock.now_ms += 1_200
    (due,) = parts.buffer.take_due()
    parts.buffer.revived(due)
    answer = await acks.change(_handle(point), 0, 1_000)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "the new time is over" in (answer.remark or "")
    assert len(parts.buffer) == others
    if others:
        assert (await acks.change(_handle(point), 1, 1_000)).code == ResponseCode.SUCCESS


async def test_what_is_known_of_messages_that_were_given_again_has_an_end(
    acks: Acks, parts: PopParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the receipts' time is over, or when there are too many."""
    monkeypatch.setattr("maxq.broker.pop.check_point_buffer._MOST_GIVEN_AGAIN", 3)
    points: list[PopCheckPoint] = []

    async def known(more: int) -> list[int]:
        for start in range(len(points), len(points) + more):
            points.append(_popped(parts, 1, start))
            await acks.change(_handle(points[-1]), start, 1_000)
            parts.clock.now_ms += 1_200
            parts.buffer.revived(*parts.buffer.take_due())
        return [point.start_offset for point in points if parts.buffer.is_given_again(point.key, point.start_offset)]

    assert await known(2) == [0, 1]
    assert await known(3) == [2, 3, 4]
    parts.clock.now_ms += 57_000
    assert await known(1) == [4, 5]


async def test_a_change_counts_when_the_time_is_over_and_the_message_was_not_given_again(
    acks: Acks, parts: PopParts
) -> None:
    point = _popped(parts, 1)
    parts.clock.now_ms = point.revive_time + 50
    changed = _changed(await acks.change(_handle(point), 0, 5_000), 0)
    assert (await acks.ack(changed, 0)).code == ResponseCode.SUCCESS
    assert len(parts.buffer) == 0


async def test_a_change_by_the_receipt_of_a_lost_message_gives_nobody_the_one_that_has_its_place(
    acks: Acks, parts: PopParts
) -> None:
    lost = parts.point(0, 1)
    parts.clock.now_ms += 10
    parts.fill([b"new"])
    assert (await acks.change(_handle(lost), 0, 5_000)).code == ResponseCode.SUCCESS
    assert (len(parts.buffer), _stored(parts)) == (0, [])


@pytest.mark.parametrize("since", ["a start", "a hand-over"])
async def test_a_change_of_what_was_stored_before_the_clock_was_set_back_counts(
    acks: Acks, parts: PopParts, since: str
) -> None:
    parts.fill([b"0"])
    parts.clock.now_ms -= 3_600_000
    point = parts.point(0, 1)
    if since == "a start":
        acks.log_began_at = parts.store.max_physical_offset
    else:
        assert parts.buffer.add([(point, 3, 1)]) > 0
        parts.buffer.handed_over(parts.buffer.those([point.key]))
    _changed(await acks.change(_handle(point), 0, 5_000), 0)
    assert [(ack.key, ack.offsets) for ack in _stored(parts)] == [(point.key, [0])]
    assert len(parts.buffer) == 1
