"""What becomes of messages whose listener fails, hangs, or says later; in virtual time."""

import asyncio
from pathlib import PurePosixPath

import pytest

from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.codes import RequestCode
from maxq.protocol.enums import MessageModel
from maxq.protocol.message.message import MessageExt
from tests.unit.client.consumer.push_consumers import COMMIT, Q0, SEND_BACK, Got, make, start
from tests.unit.client.mock_broker import MockCluster, simulate, until


def test_a_failed_message_goes_back_to_the_broker() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)

        def answer(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
            first_try = message.body == b"0" and message.reconsume_times == 0
            return ConsumeResult.RECONSUME_LATER if first_try else ConsumeResult.SUCCESS

        got = Got(answer)
        async with make(cluster, got):
            await until(lambda: len(got.bodies) == 3, "the failed message came again")
        (back,) = cluster.broker.requests(SEND_BACK)
        failed = cluster.broker.log[0]
        assert back.ext["offset"] == str(failed.physical_offset)
        assert (back.ext["group"], back.ext["originTopic"], back.ext["delayLevel"]) == ("G", "T", "0")
        assert (back.ext["originMsgId"], back.ext["maxReconsumeTimes"]) == (failed.msg_id, "16")
        assert (got.messages[-1].topic, got.messages[-1].reconsume_times) == ("T", 1)
        assert cluster.broker.committed["G", Q0] == 2

    simulate(story)


def test_an_exception_counts_as_later(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)

        def answer(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
            if message.reconsume_times == 0:
                raise ValueError("the application is wrong")
            return ConsumeResult.SUCCESS

        got = Got(answer)
        async with make(cluster, got):
            await until(lambda: len(got.bodies) == 2, "the message came again")

    simulate(story)
    assert "the application is wrong" in caplog.text


def test_each_failed_message_is_one_line_and_each_error_has_its_traceback_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A listener that fails on each message must not bury everything else in the log."""

    class WorstError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("it has no text either")

    def wrong(body: bytes) -> None:
        if body == b"3":
            raise KeyError("another error")
        if body == b"4":
            raise WorstError
        raise ValueError(f"order {body!r}\n  of two lines" + "x" * 10_000)

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 6)

        def answer(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
            if message.reconsume_times == 0:
                wrong(message.body)
            return ConsumeResult.SUCCESS

        got = Got(answer)
        async with make(cluster, got):
            await until(lambda: len(got.bodies) == 12, "the messages came again")

    simulate(story)
    said = [record for record in caplog.records if "listener of group G failed" in record.getMessage()]
    lines = sorted(record.getMessage() for record in said)
    assert len(lines) == 6 and all(line.count("\n") == 0 and len(line) < 600 for line in lines)
    assert sum("of topic T queue 0 offset 1: ValueError: order b'1' of two lines" in line for line in lines) == 1
    assert sum("KeyError: 'another error'" in line for line in lines) == 1
    assert sum("WorstError" in line for line in lines) == 1
    assert sum(record.exc_info is not None for record in said) == 3, "one for each error"


def test_a_wrong_answer_counts_as_later() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        got = Got(lambda message, context: "fine" if message.reconsume_times == 0 else None)  # type: ignore[arg-type,return-value]
        async with make(cluster, got):
            await until(lambda: len(got.bodies) == 2, "the message came again")

    simulate(story)


def test_ack_index_and_delay_level_of_the_context_are_obeyed() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 4)

        def answer(message: MessageExt, context: ConsumeContext) -> None:
            if message.reconsume_times == 0:
                context.ack_index = 1
                context.delay_level_when_next_consume = 5

        got = Got(answer)
        async with make(cluster, got, consume_message_batch_max_size=4):
            await until(lambda: len(cluster.broker.requests(SEND_BACK)) == 2, "two went back")
            offsets = {int(r.ext["offset"]) for r in cluster.broker.requests(SEND_BACK)}
            assert offsets == {cluster.broker.log[2].physical_offset, cluster.broker.log[3].physical_offset}
            assert {r.ext["delayLevel"] for r in cluster.broker.requests(SEND_BACK)} == {"5"}

    simulate(story)


def test_when_sending_back_fails_a_copy_goes_to_the_retry_topic() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        cluster.broker.scripts[SEND_BACK] = lambda request: request.reply(1, "look message by offset failed")
        got = Got(lambda m, _: ConsumeResult.RECONSUME_LATER if m.reconsume_times == 0 else ConsumeResult.SUCCESS)
        async with make(cluster, got):
            await until(lambda: len(got.bodies) == 2, "the copy came")
        (copy,) = cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)
        assert (copy.ext["b"], copy.ext["j"], copy.ext["l"]) == ("%RETRY%G", "1", "16")
        stored = cluster.broker.log[-1]
        assert stored.properties["RETRY_TOPIC"] == "T"
        assert stored.properties["DELAY"] == "3"
        assert stored.properties["ORIGIN_MESSAGE_ID"] == cluster.broker.log[0].msg_id
        assert got.messages[-1].topic == "T"

    simulate(story)


def test_a_listener_that_hangs_gives_its_messages_to_somebody_else_after_15_minutes() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        never = asyncio.Event()

        async def hang(messages: list[MessageExt], context: ConsumeContext) -> None:
            await never.wait()

        async with make(cluster, hang):
            await asyncio.sleep(31 * 60)
        back = cluster.broker.requests(SEND_BACK)
        assert [r.ext["delayLevel"] for r in back][:1] == ["3"]
        assert back[0].ext["offset"] == str(cluster.broker.log[0].physical_offset)

    simulate(story)


def test_broadcasting_drops_failures_and_keeps_its_offsets_in_a_file() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        got = Got(lambda message, _: ConsumeResult.RECONSUME_LATER)
        async with make(cluster, got, message_model=MessageModel.BROADCASTING):
            await until(lambda: len(got.bodies) == 3, "all three")
        assert not cluster.broker.requests(SEND_BACK)
        assert not cluster.broker.requests(COMMIT)
        path = PurePosixPath("/home/user/.rocketmq_offsets/10.0.9.9@DEFAULT/G/offsets.json")
        assert b'"queueId":0' in cluster.world.disk.read(path).replace(b" ", b"")
        cluster.broker.put("T", b"3")
        again = Got()
        async with make(cluster, again, message_model=MessageModel.BROADCASTING):
            await until(lambda: again.bodies, "the new one")
        assert again.bodies == [b"3"]

    simulate(story)


@pytest.mark.parametrize("is_taken", [False, True], ids=["nobody takes it back", "taken back"])
def test_what_expired_is_committed_only_if_somebody_took_it(is_taken: bool) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        if not is_taken:
            cluster.broker.scripts[SEND_BACK] = lambda request: request.reply(1, "as scripted")
            cluster.broker.scripts[RequestCode.SEND_MESSAGE_V2] = lambda request: request.reply(1, "as scripted")
        go_on = asyncio.Event()

        async def hang(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
            if messages[0].body == b"1":
                await go_on.wait()
                return ConsumeResult.RECONSUME_LATER
            return None

        async with make(cluster, hang, consume_timeout_minutes=1):
            await asyncio.sleep(3 * 60)
            go_on.set()
            await asyncio.sleep(1)
        assert cluster.broker.committed["G", Q0] == (3 if is_taken else 1)

    simulate(story)


def test_what_has_ended_does_not_expire() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 64)
        never = asyncio.Event()

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            if messages[0].body == b"63" and not messages[0].reconsume_times:
                await never.wait()
            await asyncio.sleep(20)

        async with make(cluster, listen, consume_timeout_minutes=1, consume_thread_nums=4):
            await asyncio.sleep(10 * 60)
        backs = [int(request.ext["offset"]) for request in cluster.broker.requests(SEND_BACK)]
        assert backs == [cluster.broker.log[63].physical_offset]

    simulate(story)


def test_an_answer_that_makes_no_sense_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 40)

        def answer(message: MessageExt, context: ConsumeContext) -> None:
            if message.reconsume_times == 0 and int(message.body) < 30:
                context.ack_index = "all"  # type: ignore[assignment]

        got = Got(answer)
        async with make(cluster, got, consume_thread_nums=2):
            await until(lambda: len(got.bodies) == 70, "those came again")

    simulate(story)
    assert "ack_index is a number" in caplog.text


def test_a_listener_that_waits_for_something_cancelled_is_a_failed_try() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 30)
        done: list[bytes] = []

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            if messages[0].reconsume_times == 0:
                gone = asyncio.get_running_loop().create_future()
                gone.cancel()
                await gone
            done.append(messages[0].body)

        async with make(cluster, listen, consume_thread_nums=2):
            await until(lambda: len(done) == 30, "all of them, at the second try")

    simulate(story)
