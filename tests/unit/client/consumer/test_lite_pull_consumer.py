"""Lite pull consumption against a scripted broker, in virtual time."""

import asyncio
import logging
from typing import Any

import pytest

from maxq.client.client_config import LitePullConsumerConfig, SimpleConsumerConfig
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.consumer.simple_consumer import SimpleConsumer
from maxq.client.errors import NotRunningError
from maxq.client.instance.pull_api import PullAPIWrapper
from maxq.client.results.pull_result import PullResult
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError, NoRouteError
from maxq.protocol.body.consumer_info import ConsumerRunningInfo
from maxq.protocol.body.offsets import ResetOffsetBody
from maxq.protocol.enums import ConsumeFromWhere, ConsumeType
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until

LITE_PULL, COMMIT = RequestCode.LITE_PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET
Q0 = MessageQueue("T", "broker-a", 0)


def make(cluster: MockCluster, **settings: object) -> LitePullConsumer:
    values: dict[str, object] = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **settings}
    config = LitePullConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G", **values)  # type: ignore[arg-type]
    return LitePullConsumer(config, cluster.environment())


async def start(cluster: MockCluster, count: int, queues: int = 1) -> None:
    await cluster.start()
    cluster.route("T", queues=queues)
    for n in range(count):
        cluster.broker.put("T", b"%d" % n, n % queues)


def test_pulls_are_lite_carry_the_expression_and_commit_nothing() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        consumer = make(cluster)
        await consumer.subscribe("T", "A || B")
        async with consumer:
            await until(lambda: cluster.broker.requests(LITE_PULL), "a pull")
            (data,) = cluster.broker.heartbeats[-1].consumer_data_set
            assert data.consume_type == ConsumeType.CONSUME_ACTIVELY
        ext = cluster.broker.requests(LITE_PULL)[0].ext
        assert int(ext["sysFlag"]) == 2 | 4 | 16
        assert (ext["subscription"], ext["suspendTimeoutMillis"], ext["commitOffset"]) == ("A || B", "20000", "0")

    simulate(story)


@pytest.mark.parametrize("kind", ["lite pull", "simple"])
@pytest.mark.parametrize("is_running", [False, True])
def test_a_broker_that_does_not_select_by_sql92_is_an_error_at_once(kind: str, is_running: bool) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 0)
        check = RequestCode.CHECK_CLIENT_CONFIG
        cluster.broker.scripts[check] = lambda request: request.reply(1, "no SQL92 here")
        consumer: LitePullConsumer | SimpleConsumer = make(cluster)
        if kind == "simple":
            settings = SimpleConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G")
            consumer = SimpleConsumer(settings, cluster.environment())
        if is_running:
            async with consumer:
                with pytest.raises(BrokerError, match="no SQL92 here"):
                    await consumer.subscribe("T", "a > 1", "SQL92")
                assert consumer.topics() == set(), "it is not subscribed to"
        else:
            await consumer.subscribe("T", "a > 1", "SQL92")
            with pytest.raises(BrokerError, match="no SQL92 here"):
                await consumer.start()
        await asyncio.sleep(1)
        assert not cluster.broker.server.connections, "nothing is left behind"

    simulate(story)


def test_progress_is_committed_every_five_seconds_of_polling() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        consumer = make(cluster)
        await consumer.subscribe("T")
        async with consumer:
            assert len(await consumer.poll()) == 3
            for _ in range(30):
                await consumer.poll(500)
            await until(lambda: cluster.broker.committed.get(("G", Q0)) == 3, "the commit", 10)

    simulate(story)


def test_messages_given_out_last_are_not_committed_before_the_next_poll() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        consumer = make(cluster, auto_commit=False)
        await consumer.subscribe("T")
        await consumer.start()
        await consumer.poll()
        await asyncio.sleep(30)
        assert cluster.broker.committed.get(("G", Q0), -1) <= 0
        await consumer.commit()
        assert cluster.broker.committed["G", Q0] == 3
        (explicit,) = [r for r in cluster.broker.requests(COMMIT) if not r.is_oneway]
        assert explicit.ext["commitOffset"] == "3"
        await consumer.shutdown()

    simulate(story)


def test_an_offset_outside_the_queue_is_corrected() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        cluster.broker.committed["G", Q0] = 77
        consumer = make(cluster)
        await consumer.assign([Q0])
        async with consumer:
            assert await consumer.poll(200) == []
            cluster.broker.put("T", b"new")
            assert [m.body for m in await consumer.poll()] == [b"new"]

    simulate(story)


def test_pulling_ahead_stops_at_the_threshold() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 500)
        consumer = make(cluster, pull_threshold_for_queue=100)
        await consumer.assign([Q0])
        async with consumer:
            await asyncio.sleep(5)
            offsets = [int(r.ext["queueOffset"]) for r in cluster.broker.requests(LITE_PULL)]
            assert max(offsets) == 96
            seen = 0
            while seen < 500:
                seen += len(await consumer.poll())
        assert seen == 500

    simulate(story)


def test_much_is_asked_for_at_once_of_a_queue_that_has_much_more_and_a_poll_gives_it_out_piece_by_piece() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1000)
        consumer = make(cluster, pull_batch_size=32, max_msg_bytes=100_000)
        await consumer.assign([Q0])
        async with consumer:
            bodies: list[bytes] = []
            while len(bodies) < 1000:
                polled = [message.body for message in await consumer.poll()]
                assert 0 < len(polled) <= 32
                bodies += polled
            assert bodies == [b"%d" % n for n in range(1000)]
            cluster.broker.put("T", b"lone")
            assert [message.body for message in await consumer.poll()] == [b"lone"]
            await consumer.commit()
        assert cluster.broker.committed["G", Q0] == 1001
        asked = [
            (ext["maxMsgNums"], ext.get("maxqMaxBytes")) for ext in (r.ext for r in cluster.broker.requests(LITE_PULL))
        ]
        assert asked[:4] == [("32", None), ("250", "100000"), ("250", "100000"), ("250", "100000")]
        assert asked[4:] and set(asked[4:]) == {("250", "100000"), ("32", None)}
        assert asked[-1] == ("32", None)

    simulate(story)


def test_a_consumer_that_may_hold_little_asks_for_little() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 500)
        consumer = make(cluster, pull_threshold_for_queue=100)
        await consumer.assign([Q0])
        async with consumer:
            await until(lambda: len(cluster.broker.requests(LITE_PULL)) > 3, "some pulls")
        assert {r.ext["maxMsgNums"] for r in cluster.broker.requests(LITE_PULL)} == {"32"}

    simulate(story)


def test_a_seek_throws_away_what_was_pulled_before_it() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 100)
        consumer = make(cluster, pull_batch_size=10)
        await consumer.assign([Q0])
        async with consumer:
            first = await consumer.poll()
            assert first[0].body == b"0"
            await asyncio.sleep(1)
            await consumer.seek(Q0, 55)
            assert (await consumer.poll())[0].body == b"55"
            await consumer.commit()
            assert cluster.broker.committed["G", Q0] == 65
            with pytest.raises(ClientError, match="not assigned"):
                await consumer.seek(MessageQueue("T", "broker-a", 9), 0)

    simulate(story)


def test_queues_that_go_to_another_member_are_committed_and_given_out_no_more() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 8, queues=2)
        consumer = make(cluster)
        await consumer.subscribe("T")
        async with consumer:
            got = [*await consumer.poll(), *await consumer.poll()]
            await consumer.poll(0)
            assert len(got) == 8
            cluster.broker.members["G"]["10.0.9.9@0#first"] = cluster.broker.members["G"][consumer.client_id]
            await until(lambda: consumer.assignment() == {MessageQueue("T", "broker-a", 1)}, "one queue is left")
            await until(lambda: cluster.broker.committed.get(("G", Q0)) == 4, "what was given out is committed")
            cluster.broker.put("T", b"not ours", 0)
            assert await consumer.poll(1000) == []

    simulate(story)


def test_a_late_commit_does_not_move_the_offset_of_a_queue_that_another_member_has() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 8, queues=2)
        q1 = MessageQueue("T", "broker-a", 1)
        consumer = make(cluster, auto_commit=False)
        await consumer.subscribe("T")
        async with consumer:
            await consumer.poll()
            cluster.broker.members["G"]["10.0.9.9@0#first"] = cluster.broker.members["G"][consumer.client_id]
            await until(lambda: consumer.assignment() == {q1}, "one queue is left")
            cluster.broker.committed["G", Q0] = 1000  # by its new owner
            with pytest.raises(ClientError, match="no longer assigned"):
                await consumer.commit({Q0: 1, q1: 2})
            assert (cluster.broker.committed["G", Q0], cluster.broker.committed["G", q1]) == (1000, 2)

    simulate(story)


def test_operators_see_a_lite_consumer_and_can_move_it() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 10)
        consumer = make(cluster)
        await consumer.subscribe("T")
        async with consumer:
            assert len(await consumer.poll()) == 10
            ask = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "G"})
            answer = await cluster.broker.ask_client(consumer.client_id, "G", ask)
            info = ConsumerRunningInfo.decode(answer.body_bytes)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
            assert info.mq_table[Q0].cached_msg_count == 10
            ext = {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true"}
            reset = RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext, ResetOffsetBody({Q0: 7}).encode())
            cluster.broker.members["G"][consumer.client_id].send_oneway(reset)
            await asyncio.sleep(1)
            assert [m.queue_offset for m in await consumer.poll()] == [7, 8, 9]

    simulate(story)


def test_what_an_operator_has_moved_is_not_moved_back_by_what_was_committed_before() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 20)
        async with make(cluster, auto_commit=False) as consumer:
            await consumer.subscribe("T")
            assert len(await consumer.poll(5_000)) > 7
            await consumer.commit()
            ext = {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true"}
            reset = RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext, ResetOffsetBody({Q0: 7}).encode())
            cluster.broker.members["G"][consumer.client_id].send_oneway(reset)
            cluster.broker.committed["G", Q0] = 7
            await asyncio.sleep(20)
            assert cluster.broker.committed["G", Q0] == 7

    simulate(story)


def test_of_two_assignments_at_the_same_time_the_later_one_holds() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 20, queues=2)
        q1 = MessageQueue("T", "broker-a", 1)

        async def slow(request: RemotingCommand) -> RemotingCommand:
            if request.ext["queueId"] == "0":
                await asyncio.sleep(1)
            return cluster.broker.query_offset(request)

        cluster.broker.scripts[RequestCode.QUERY_CONSUMER_OFFSET] = slow
        async with make(cluster) as consumer:
            await asyncio.gather(consumer.assign([Q0]), consumer.assign([q1]))
            assert consumer.assignment() == {q1}
            await asyncio.gather(consumer.assign([Q0]), consumer.assign([Q0]))
            polled = [await consumer.poll(500) for _ in range(5)]
            assert sum(map(len, polled)) == 10, "each once"

    simulate(story)


def test_a_shutdown_during_an_assignment_leaves_nothing_that_pulls() -> None:
    """A second start would not begin what seems to be assigned."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 20)
        for when_ms in range(20):
            before = asyncio.all_tasks()
            consumer = make(cluster)
            await consumer.start()
            assigning = asyncio.create_task(consumer.assign([Q0]))
            await asyncio.sleep(when_ms / 1000)
            await consumer.shutdown()
            await asyncio.gather(assigning, return_exceptions=True)
            await asyncio.sleep(1)
            assert not [task for task in asyncio.all_tasks() - before if "pull" in task.get_name()], when_ms

    simulate(story)


def test_a_start_that_fails_leaves_the_group_again() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        consumer = make(cluster)
        await consumer.assign([MessageQueue("Unknown", "broker-a", 0)])
        with pytest.raises(NoRouteError):
            await consumer.start()
        await consumer.assign([Q0])
        async with consumer:  # neither "already started" nor "group already exists on this client"
            assert len(await consumer.poll()) == 3

    simulate(story)


def test_a_pull_that_fails_in_an_unforeseen_way_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real_pull = PullAPIWrapper.pull
    failures = [ZeroDivisionError("unforeseen")]

    async def pull(self: PullAPIWrapper, *args: Any, **kwargs: Any) -> PullResult:
        if failures:
            raise failures.pop()
        return await real_pull(self, *args, **kwargs)

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        consumer = make(cluster)
        await consumer.assign([Q0])
        async with consumer:
            assert len(await consumer.poll(10_000)) == 3

    monkeypatch.setattr(PullAPIWrapper, "pull", pull)
    simulate(story)
    assert not failures


@pytest.mark.parametrize("auto_commit", [True, False])
def test_after_the_end_of_a_queue_went_back_nothing_behind_it_is_committed(auto_commit: bool) -> None:
    """Its topic was made anew, or its broker lost the end of its log: new messages have the numbers of old ones."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 20)
        real = cluster.broker.serve_pull

        async def from_the_beginning(request: RemotingCommand) -> RemotingCommand:
            answer = await real(request)
            if answer.code == ResponseCode.PULL_OFFSET_MOVED:
                answer.ext["nextBeginOffset"] = "0"
            return answer

        cluster.broker.scripts[LITE_PULL] = from_the_beginning
        consumer = make(cluster, auto_commit=auto_commit)
        await consumer.assign([Q0])
        async with consumer:
            assert len(await consumer.poll()) == 20
            if not auto_commit:
                await consumer.commit()
            await asyncio.sleep(1)
            cluster.broker.queues[Q0].clear()
            cluster.broker.committed["G", Q0] = 0
            cluster.broker.put("T", b"new")
            assert [m.body for m in await consumer.poll(60_000)] == [b"new"]
            await asyncio.sleep(30)
            assert cluster.broker.committed["G", Q0] <= 1
            if not auto_commit:
                await consumer.commit()
        assert cluster.broker.committed["G", Q0] == 1

    simulate(story)


@pytest.mark.parametrize("auto_commit", [True, False])
def test_what_was_pulled_of_messages_that_are_gone_from_the_broker_is_still_given_out(auto_commit: bool) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 20)
        consumer = make(cluster, auto_commit=auto_commit, pull_batch_size=5, pull_threshold_for_queue=8)
        await consumer.assign([Q0])
        async with consumer:
            got = [message.body for message in await consumer.poll()]
            await asyncio.sleep(1)  # ten are here, or given out
            script = cluster.broker.serve_pull

            async def expired(request: RemotingCommand) -> RemotingCommand:
                answer = await script(request)
                if int(request.ext["queueOffset"]) < 15:
                    answer.code, answer.body = ResponseCode.PULL_OFFSET_MOVED, None
                    answer.ext["nextBeginOffset"] = answer.ext["minOffset"] = "15"
                return answer

            cluster.broker.scripts[LITE_PULL] = expired
            while len(got) < 15:
                got += [message.body for message in await consumer.poll()]
            await consumer.commit()
        assert got == [b"%d" % n for n in (*range(10), *range(15, 20))]
        assert cluster.broker.committed["G", Q0] == 20

    simulate(story)


def test_what_a_task_held_that_failed_is_not_done_at_the_shutdown() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 8, queues=2)
        queues = [Q0, MessageQueue("T", "broker-a", 1)]
        consumer = make(cluster)
        await consumer.assign(queues)
        await consumer.start()

        async def work(*, fails: bool) -> int:
            messages = await consumer.poll()
            if fails:
                raise ZeroDivisionError
            return messages[0].queue_id

        done = await asyncio.create_task(work(fails=False))
        await asyncio.gather(asyncio.create_task(work(fails=True)), return_exceptions=True)
        await consumer.shutdown()
        assert cluster.broker.committed["G", queues[done]] == 4
        assert cluster.broker.committed.get(("G", queues[1 - done]), 0) == 0

    simulate(story)


def test_a_program_can_wait_for_its_queues() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 0, queues=4)
        consumer = make(cluster)
        with pytest.raises(NotRunningError):
            await consumer.wait_for_assignment()
        async with consumer:
            waiting = asyncio.create_task(consumer.wait_for_assignment(lambda queues: len(queues) == 4))
            with pytest.raises(TimeoutError):
                await consumer.wait_for_assignment(timeout_ms=5_000)
            assert not waiting.done()
            await consumer.subscribe("T")
            assert await waiting == {MessageQueue("T", "broker-a", number) for number in range(4)}
            fewer = asyncio.create_task(consumer.wait_for_assignment(lambda queues: len(queues) == 2))
            async with make_second(cluster) as second:
                await second.subscribe("T")
                assert len(await fewer) == 2
                assert len(await second.wait_for_assignment()) == 2
            assert len(await consumer.wait_for_assignment(lambda queues: len(queues) == 4)) == 4

    simulate(story)


def test_a_member_that_is_refused_says_so_now_and_then_and_to_who_waits(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(request: RemotingCommand) -> RemotingCommand:
        return request.reply(ResponseCode.NO_PERMISSION, "User:bob has no permission to access Group:G")

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 0)
        codes = RequestCode.HEART_BEAT, RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.UNREGISTER_CLIENT
        for code in codes:
            cluster.broker.scripts[code] = refuse
        consumer = make(cluster)
        await consumer.subscribe("T")
        async with consumer:
            with pytest.raises(TimeoutError, match=r"group G does not hold .* User:bob has no permission"):
                await consumer.wait_for_assignment(timeout_ms=30_000)
        assert [len(cluster.broker.requests(code)) > 3 for code in codes] == [True, True, False]

    with caplog.at_level(logging.WARNING, "maxq.client"):
        simulate(story)
    lines = [record.getMessage() for record in caplog.records if "User:bob" in record.getMessage()]
    assert len(lines) <= 2 * 4 and "more since the last line" in lines[-1]  # of heartbeats, and of shares
    assert not any("leaves" in line for line in lines)


def test_a_new_member_whose_broker_had_no_heartbeat_yet_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: MockCluster) -> None:
        def unknown(request: RemotingCommand) -> RemotingCommand:
            del cluster.broker.scripts[RequestCode.GET_CONSUMER_LIST_BY_GROUP]
            return request.reply(ResponseCode.SYSTEM_ERROR, "no consumer for this group")

        await start(cluster, 0)
        cluster.broker.scripts[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = unknown
        consumer = make(cluster)
        await consumer.subscribe("T")
        async with consumer:
            assert await consumer.wait_for_assignment(timeout_ms=60_000) == {Q0}
        assert not cluster.broker.scripts

    with caplog.at_level(logging.WARNING):
        simulate(story)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("maxq.client")] == []


def make_second(cluster: MockCluster) -> LitePullConsumer:
    return make(cluster, instance_name="second")


def test_who_waits_for_queues_hears_that_the_consumer_was_shut_down() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 0)
        consumer = make(cluster)
        await consumer.start()
        waiting = asyncio.create_task(consumer.wait_for_assignment())
        await asyncio.sleep(1)
        await consumer.shutdown()
        with pytest.raises(NotRunningError):
            await waiting

    simulate(story)


def test_a_program_may_take_messages_out_of_the_list_that_it_polled() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2_000)
        consumer = make(cluster)
        await consumer.assign([Q0])
        bodies: list[bytes] = []
        async with consumer:
            while messages := await consumer.poll():
                while messages:
                    bodies.append(messages.pop(0).body)
        assert bodies == [b"%d" % n for n in range(2_000)]
        assert cluster.broker.committed["G", Q0] == 2_000

    simulate(story)


def test_who_polls_hears_at_once_that_the_consumer_was_shut_down() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 0)
        consumer = make(cluster)
        await consumer.assign([Q0])
        await consumer.start()
        polling = asyncio.create_task(consumer.poll(60_000))
        await asyncio.sleep(1)
        await consumer.shutdown()
        async with asyncio.timeout(1):
            with pytest.raises(NotRunningError):
                await polling

    simulate(story)


def test_a_second_start_of_a_running_consumer_is_refused_and_changes_nothing() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 50)
        consumer = make(cluster)
        await consumer.assign([Q0])
        bodies: list[bytes] = []
        async with consumer:
            await until(lambda: len(cluster.broker.requests(LITE_PULL)) >= 2, "messages that wait to be polled")
            with pytest.raises(ClientError, match="already started"):
                await consumer.start()
            while messages := await consumer.poll():
                bodies += [message.body for message in messages]
        assert bodies == [b"%d" % n for n in range(50)]

    simulate(story)


def test_who_polls_without_having_subscribed_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        async with make(cluster) as consumer:
            for _ in range(3):
                assert await consumer.poll(10) == []
            told = [record.getMessage() for record in caplog.records if "nothing is subscribed" in record.getMessage()]
            assert len(told) == 1
            await consumer.subscribe("T")
            assert len(await consumer.poll()) == 1

    simulate(story)


@pytest.mark.parametrize("auto_commit", [False, True])
def test_a_new_group_begins_once(auto_commit: bool) -> None:
    """What its first member polled and had not done is not passed over by the next one."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        settings = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, "auto_commit": auto_commit}
        first, second = make(cluster, **settings), make(cluster, **settings)
        await first.subscribe("T")
        await second.subscribe("T")
        await first.start()
        await first.wait_for_assignment()
        cluster.broker.put("T", b"new")
        assert [message.body for message in await first.poll(5_000)] == [b"new"]
        await first.shutdown(is_finished=False)
        async with second:
            assert [message.body for message in await second.poll(5_000)] == [b"new"]

    simulate(story)


def test_messages_can_be_iterated_and_each_is_done_when_the_next_is_asked_for() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 5)
        consumer = make(cluster, auto_commit=False)
        with pytest.raises(NotRunningError):
            async for _ in consumer:
                pass
        await consumer.subscribe("T")
        async with consumer:
            bodies = []
            async for message in consumer:
                bodies.append(message.body)
                if len(bodies) == 3:
                    break
            assert bodies == [b"0", b"1", b"2"]
            await consumer.commit()
            assert await consumer.committed(Q0) == 3, "the commit says that this task has done what it got"
            iterator = aiter(consumer)
            assert (await anext(iterator)).body == b"3"
            assert (await anext(aiter(consumer))).body == b"4", "any iterator goes on where the task is"
            waiting = asyncio.create_task(anext(iterator))
            await asyncio.sleep(60)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            cluster.broker.put("T", b"5", 0)
            assert (await anext(iterator)).body == b"5", "who was cancelled has lost nothing"
        assert cluster.broker.committed["G", Q0] == 3, "nothing is committed that nobody has said to be done"

    simulate(story)


def test_an_iteration_that_is_left_keeps_the_messages_that_it_has_not_given_out() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 10)
        for auto_commit in (True, False):
            consumer = make(cluster, auto_commit=auto_commit)
            await consumer.subscribe("T")
            async with consumer:
                async for message in consumer:
                    if message.body == b"4":
                        break
                if not auto_commit:
                    await consumer.commit()
            again = make(cluster)
            await again.subscribe("T")
            async with again:
                messages = await again.poll(5_000)
                assert messages[0].body == b"5", "the next member of the group goes on behind it"
                await again.commit({Q0: 0})
                await again.shutdown(is_finished=False)

    simulate(story)


def test_an_iteration_ends_when_the_consumer_is_shut_down() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        consumer = make(cluster)
        await consumer.subscribe("T")
        await consumer.start()
        bodies = []

        async def iterate() -> None:
            async for message in consumer:
                bodies.append(message.body)

        task = asyncio.create_task(iterate())
        await until(lambda: len(bodies) == 2, "both messages")
        await consumer.shutdown()
        await task
        assert cluster.broker.committed["G", Q0] == 2

    simulate(story)


@pytest.mark.parametrize("how", ["cancel", "seek"])
def test_a_pull_under_way_is_forgotten_with_who_waits_for_it(how: str) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        consumer = make(cluster)
        await consumer.subscribe("T")
        async with consumer:
            assert await consumer.poll(5_000)
            await until(lambda: len(cluster.broker.requests(LITE_PULL)) == 2, "a pull that waits")
            if how == "seek":
                await consumer.seek(Q0, 0)
                assert [message.body for message in await consumer.poll(5_000)] == [b"0"]
            else:
                await consumer.unsubscribe("T")
            remoting = consumer._instance.remoting  # type: ignore[union-attr]
            await until(lambda: all(len(c.waiters) <= 1 for _, c in remoting.open_connections()), "no waiters")

    simulate(story)


def test_pulls_go_on_after_an_answer_that_never_came_and_after_a_broken_connection() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        consumer = make(cluster, consumer_timeout_when_suspend=30_000)
        await consumer.subscribe("T")
        async with consumer:
            assert await consumer.poll(5_000)
            silent: asyncio.Future[RemotingCommand | None] = asyncio.get_running_loop().create_future()
            cluster.broker.scripts[LITE_PULL] = lambda request: silent
            cluster.broker.put("T", b"1", 0)
            await until(lambda: len(cluster.broker.requests(LITE_PULL)) > 2, "the next pull")
            del cluster.broker.scripts[LITE_PULL]
            assert [message.body for message in await consumer.poll(60_000)] == [b"1"]
            for connection in list(cluster.broker.server.connections):
                connection.abort("by the test")
            cluster.broker.put("T", b"2", 0)
            assert [message.body for message in await consumer.poll(60_000)] == [b"2"]

    simulate(story)


@pytest.mark.parametrize("wrong", [None, "", "x", "1" * 30, "१", "1_0", " 1"])
@pytest.mark.parametrize("code", [ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND])
def test_an_answer_that_does_not_say_where_to_go_on_is_asked_for_again(
    wrong: str | None, code: ResponseCode, caplog: pytest.LogCaptureFixture
) -> None:
    """Going on at the start would give everything out again."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        consumer = make(cluster, pull_batch_size=1)
        await consumer.subscribe("T")
        told: list[RemotingCommand] = []

        def pull(request: RemotingCommand) -> RemotingCommand:
            answer = cluster.broker.pull_answer(request, Q0, int(request.ext["queueOffset"]), 1)
            if request.ext["queueOffset"] == "1" and not told:
                told.append(request)
                del answer.ext["nextBeginOffset"]
                answer.code = code
                answer.body = answer.body if code is ResponseCode.SUCCESS else None
                if wrong is not None:
                    answer.ext["nextBeginOffset"] = wrong
            return answer

        cluster.broker.scripts[LITE_PULL] = pull
        async with consumer:
            bodies: list[bytes] = []
            while len(bodies) < 2:
                bodies += [message.body for message in await consumer.poll(2_000)]
            bodies += [message.body for message in await consumer.poll(100)]
        assert told
        assert bodies == [b"0", b"1"]

    simulate(story)
    assert "is not readable" in caplog.text


def test_rpc_hooks_see_every_pull_of_a_busy_queue_and_its_answer() -> None:
    class Hook:
        def __init__(self) -> None:
            self.before: list[RemotingCommand] = []
            self.after: list[RemotingCommand] = []

        def do_before_request(self, address: str, request: RemotingCommand) -> None:
            if request.code == LITE_PULL:
                assert "mark" not in request.ext, "each request is new"
                request.ext["mark"] = "x"
                self.before.append(request)

        def do_after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
            if request.code == LITE_PULL and response is not None:
                self.after.append(response)

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 10)
        hook = Hook()
        consumer = make(cluster, rpc_hooks=[hook], pull_batch_size=1, pull_threshold_for_queue=4)
        await consumer.subscribe("T")
        async with consumer:
            got: list[bytes] = []
            while len(got) < 10:
                got += [message.body for message in await consumer.poll(5_000)]
        assert got == [b"%d" % n for n in range(10)]
        assert len(hook.after) >= 10
        assert all(request.ext["mark"] == "x" for request in cluster.broker.requests(LITE_PULL))
        offsets = [int(request.ext["queueOffset"]) for request in hook.before]
        assert offsets[:11] == list(range(11))

    simulate(story)
