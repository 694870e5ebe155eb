"""Push consumption against a scripted broker, in virtual time."""

import asyncio
import contextlib
from itertools import pairwise

import pytest

from maxq.client.client_config import PushConsumerConfig
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.errors import NameIllegalError
from maxq.client.instance.mq_client_manager import MQClientManager
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError
from maxq.protocol.enums import ConsumeFromWhere, ConsumeType, MessageModel
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import MessageExt, encode_record
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.client.consumer.push_consumers import COMMIT, FIRST, PULL, Q0, SEND_BACK, Got, make, start
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

# --- starting and stopping ---


def test_the_start_sequence_is_that_of_a_java_consumer() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        got = Got()
        async with make(cluster, got):
            await until(lambda: got.bodies, "a message")
        codes = [request.code for _, request in cluster.broker.seen]
        assert {r.ext["topic"] for r in cluster.names.seen[:2]} == {"T", "%RETRY%G"}
        order = [34, 38, 14, 11]
        assert [codes.index(code) for code in order] == sorted(codes.index(code) for code in order)
        (data,) = cluster.broker.heartbeats[0].consumer_data_set
        assert (data.group_name, data.consume_type) == ("G", ConsumeType.CONSUME_PASSIVELY)
        assert (data.message_model, data.consume_from_where) == (MessageModel.CLUSTERING, FIRST)
        assert {s.topic for s in data.subscription_data_set} == {"T", "%RETRY%G"}
        pull = next(r.ext for r in cluster.broker.requests(PULL) if r.ext["topic"] == "T")
        assert (pull["sysFlag"], pull["suspendTimeoutMillis"], pull["maxMsgNums"]) == ("2", "15000", "32")
        assert "subscription" not in pull

    simulate(story)


def test_leaving_commits_and_unregisters() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        got = Got()
        async with make(cluster, got) as consumer:
            client_id = consumer.client_id
            await until(lambda: len(got.bodies) == 3, "three messages")
        assert cluster.broker.committed["G", Q0] == 3
        codes = [request.code for _, request in cluster.broker.seen]
        assert codes.index(RequestCode.UNREGISTER_CLIENT) > codes.index(COMMIT)
        (leave,) = cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)
        assert leave.ext == {"clientID": client_id, "consumerGroup": "G"}

    simulate(story)


def test_heartbeats_commits_and_routes_keep_their_periods() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        async with make(cluster, Got()):
            await asyncio.sleep(100)
        beats = [at for at in cluster.broker.times(RequestCode.HEART_BEAT) if at > 900]
        assert len(beats) >= 3
        assert all(29_900 <= later - earlier <= 30_100 for earlier, later in pairwise(beats))
        commits = [at for at, r in cluster.broker.seen if r.code == COMMIT and r.ext["topic"] == "T" and r.is_oneway]
        assert 9_900 < commits[0] < 10_100
        assert len(commits) == 18 or len(commits) == 19
        routes = [r for r in cluster.names.seen if r.ext["topic"] == "T"]
        assert len(routes) in (5, 6)

    simulate(story)


def test_two_consumers_of_one_group_in_one_client_are_refused() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        manager = MQClientManager(cluster.environment())
        config = PushConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G", instance_name="one")
        first = PushConsumer(config, cluster.environment(), Got(), manager=manager)
        second = PushConsumer(config, cluster.environment(), Got(), manager=manager)
        async with first:
            with pytest.raises(ClientError, match=r"already exists on client 10\.0\.9\.9@one"):
                await second.start()

    simulate(story)


def test_clients_with_one_instance_name_share_connections() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        manager = MQClientManager(cluster.environment())
        got = [Got(), Got()]
        consumers = []
        for group, listener in zip("GH", got, strict=True):
            config = PushConsumerConfig(
                namesrv_addr=NAMESRV_ADDR, consumer_group=group, instance_name="one", consume_from_where=FIRST
            )
            consumers.append(PushConsumer(config, cluster.environment(), listener, manager=manager))
            consumers[-1].subscribe("T")
        async with consumers[0], consumers[1]:
            await until(lambda: got[0].bodies and got[1].bodies, "both groups got the message")
            assert len(cluster.broker.server.connections) == 1
        await asyncio.sleep(1)
        assert not cluster.broker.server.connections

    simulate(story)


def test_reserved_and_illegal_groups_are_refused() -> None:
    async def story(cluster: MockCluster) -> None:
        for group in ("", "DEFAULT_CONSUMER", "a b"):
            with pytest.raises(NameIllegalError):
                PushConsumer(PushConsumerConfig(consumer_group=group), cluster.environment(), Got())

    simulate(story)


# --- where to start ---


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, []),
        (ConsumeFromWhere.CONSUME_FROM_MIN_OFFSET, []),
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, [b"0", b"1", b"2", b"3"]),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, [b"2", b"3"]),
    ],
)
def test_a_group_without_offsets_starts_where_it_says(where: ConsumeFromWhere, expected: list[bytes]) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        await asyncio.sleep(3600)
        cluster.broker.put("T", b"2")
        cluster.broker.put("T", b"3")
        await asyncio.sleep(60)
        got = Got()
        async with make(cluster, got, consume_from_where=where):
            await asyncio.sleep(2)
            assert got.bodies == expected
            cluster.broker.put("T", b"new")
            await until(lambda: got.bodies == [*expected, b"new"], "the new message")

    simulate(story)


@pytest.mark.parametrize("where", [ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP])
@pytest.mark.parametrize("orderly", [False, True])
def test_what_the_first_member_of_a_new_group_had_in_work_is_not_passed_over(
    where: ConsumeFromWhere, orderly: bool
) -> None:
    """Where a new group begins is known from then on: its next member begins there, and not at the end of that time."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        await asyncio.sleep(3600)

        async def hang(messages: list[MessageExt], context: ConsumeContext) -> None:
            await asyncio.Event().wait()

        first = make(cluster, hang, orderly=orderly, consume_from_where=where)
        async with first:
            await asyncio.sleep(2)
            for number in range(3):
                cluster.broker.put("T", b"new %d" % number)
            await asyncio.sleep(1)
            await first.shutdown(0)
        got = Got()
        async with make(cluster, got, orderly=orderly, consume_from_where=where):
            await asyncio.sleep(5)
        assert got.bodies == [b"new 0", b"new 1", b"new 2"]

    simulate(story)


async def hang(messages: list[MessageExt], context: ConsumeContext) -> None:
    """Listen, and never end."""
    await asyncio.Event().wait()


@pytest.mark.parametrize("model", [MessageModel.CLUSTERING, MessageModel.BROADCASTING])
def test_a_group_that_begins_on_an_empty_queue_has_begun(model: MessageModel) -> None:
    """What arrives before it has done anything is its own, whoever is its member then."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        settings = {"consume_from_where": LAST, "message_model": model, "instance_name": "one"}
        async with make(cluster, hang, **settings) as first:
            await first.wait_for_assignment()
            await asyncio.sleep(1)
            if model is MessageModel.CLUSTERING:
                assert cluster.broker.committed["G", Q0] == 0
                cluster.broker.put("T", b"taken")
            await asyncio.sleep(1)
            await first.shutdown(0)
        cluster.broker.put("T", b"new")
        got = Got()
        async with make(cluster, got, **settings):
            await asyncio.sleep(5)
        assert got.bodies == ([b"taken", b"new"] if model is MessageModel.CLUSTERING else [b"new"])

    simulate(story)


def test_a_group_that_the_broker_lets_begin_at_the_start_has_begun() -> None:
    """The broker says 0 as long as the first message is in memory; the next member may ask later."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        cluster.broker.scripts[RequestCode.QUERY_CONSUMER_OFFSET] = lambda request: request.reply(ext={"offset": "0"})
        async with make(cluster, hang, consume_from_where=LAST) as consumer:
            await consumer.wait_for_assignment()
            await asyncio.sleep(1)
            assert cluster.broker.committed["G", Q0] == 0

    simulate(story)


def test_where_a_new_group_begins_is_not_forgotten_while_it_cannot_be_committed_yet() -> None:
    """A notice of changed members has what is held committed, and the queue is not held yet."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        is_busy = True

        async def commit(request: RemotingCommand) -> RemotingCommand:
            if is_busy:
                await asyncio.sleep(1)
                return request.reply(ResponseCode.SYSTEM_BUSY, "busy")
            return cluster.broker.update_offset(request)

        cluster.broker.scripts[COMMIT] = commit
        async with make(cluster, hang, consume_from_where=LAST) as first:
            await until(lambda: cluster.broker.requests(COMMIT), "it begins")
            await asyncio.sleep(0.3)
            note = RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "G"})
            cluster.broker.members["G"][first.client_id].send_oneway(note)
            await until(lambda: Q0 in first.assigned_queues(), "the queue")
            is_busy = False
            cluster.broker.put("T", b"new")
            await asyncio.sleep(15)
            await first.shutdown(0)
        got = Got()
        async with make(cluster, got, consume_from_where=LAST):
            await asyncio.sleep(5)
        assert got.bodies == [b"new"]

    simulate(story)


def test_two_members_that_begin_at_the_same_time_begin_at_one_place() -> None:
    """The slower one has asked for the group's offset before there was any, and for the queue's end afterwards."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        got, may_go_on = Got(), asyncio.Event()
        asked: list[RemotingCommand] = []

        async def max_offset(request: RemotingCommand) -> RemotingCommand:
            asked.append(request)
            if len(asked) == 1:
                await may_go_on.wait()
            return cluster.broker.max_offset(request)

        cluster.broker.scripts[RequestCode.GET_MAX_OFFSET] = max_offset
        quick = make(cluster, hang, consume_from_where=LAST)
        slow = make(cluster, got, consume_from_where=LAST)
        async with slow, quick:
            await until(lambda: asked, "the slower one has asked")
            del cluster.broker.members["G"][slow.client_id]  # its heartbeat came late
            await until(lambda: Q0 in quick.assigned_queues(), "the quick one has the queue")
            cluster.broker.put("T", b"new")
            await asyncio.sleep(0.5)
            may_go_on.set()
            await until(lambda: Q0 in slow.assigned_queues(), "both think that they have it")
            await quick.shutdown(0)
            await asyncio.sleep(20)
        assert got.bodies == [b"new"]

    simulate(story)


def test_a_member_of_a_new_group_takes_no_queue_while_it_cannot_say_where_it_begins() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        cluster.broker.scripts[COMMIT] = lambda request: None
        got = Got()
        async with make(cluster, got, consume_from_where=LAST) as consumer:
            await asyncio.sleep(10)
            assert Q0 not in consumer.assigned_queues()
            del cluster.broker.scripts[COMMIT]
            await until(lambda: Q0 in consumer.assigned_queues(), "the queue")
            cluster.broker.put("T", b"new")
            await until(lambda: got.bodies == [b"new"], "the message")

    simulate(story)


def test_who_unsubscribes_while_queues_change_hands_is_no_fault() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        failures: list[BaseException] = []

        async def slow(request: RemotingCommand) -> RemotingCommand:
            await asyncio.sleep(0.2)
            return request.reply()

        async with make(cluster, Got(), on_failure=failures.append) as consumer:
            await consumer.wait_for_assignment()
            await asyncio.sleep(1)
            cluster.broker.scripts[RequestCode.HEART_BEAT] = slow
            cluster.route("T", queues=2)
            cluster.broker.members["G"]["10.0.9.9@0#another"] = cluster.broker.members["G"][consumer.client_id]
            consumer._running().rebalance_immediately()
            await asyncio.sleep(0.1)
            consumer.unsubscribe("T")
            await asyncio.sleep(5)
        assert not failures

    simulate(story)


@pytest.mark.parametrize("where", list(ConsumeFromWhere))
def test_a_new_group_misses_nothing_that_failed_before_it_knew_its_retry_topic(where: ConsumeFromWhere) -> None:
    """The name server tells of that topic some time after the group's first heartbeat."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        retry_route = cluster.names.routes.pop("%RETRY%G")
        got = Got(lambda message, context: None if message.reconsume_times else ConsumeResult.RECONSUME_LATER)
        async with make(cluster, got, consume_from_where=where) as consumer:
            await consumer.wait_for_assignment()
            await asyncio.sleep(1)
            cluster.broker.put("T", b"fails")
            await until(lambda: cluster.broker.queues[MessageQueue("%RETRY%G", "broker-a", 0)], "its copy")
            cluster.names.routes["%RETRY%G"] = retry_route
            await until(lambda: got.bodies == [b"fails", b"fails"], "another try")

    simulate(story)


def test_an_orderly_member_of_a_new_group_begins_once_though_it_cannot_commit() -> None:
    """It asks once more where to begin when it has the lock."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        questions = 0

        def unknown(request: RemotingCommand) -> RemotingCommand:
            nonlocal questions
            if request.ext["topic"] == "T":
                questions += 1
                if questions == 2:
                    cluster.broker.put("T", b"new")
            return request.reply(ResponseCode.QUERY_NOT_FOUND, "Not found")

        cluster.broker.scripts[RequestCode.QUERY_CONSUMER_OFFSET] = unknown
        cluster.broker.scripts[COMMIT] = lambda request: request.reply(1, "not now")
        got = Got()
        async with make(cluster, got, orderly=True, consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET):
            await asyncio.sleep(5)
        assert questions >= 2
        assert got.bodies == [b"new"]

    simulate(story)


def test_a_stored_offset_wins() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 5)
        cluster.broker.committed["G", Q0] = 3
        got = Got()
        async with make(cluster, got):
            await until(lambda: len(got.bodies) == 2, "the last two")
        assert got.bodies == [b"3", b"4"]

    simulate(story)


def test_the_retry_topic_of_a_new_group_is_read_from_its_beginning() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        cluster.broker.put("%RETRY%G", b"again", properties={"RETRY_TOPIC": "T"}, reconsume_times=1)
        got = Got()
        async with make(cluster, got, consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET):
            await until(lambda: got.bodies, "the retried message")
        assert (got.messages[0].topic, got.messages[0].reconsume_times) == ("T", 1)

    simulate(story)


def test_a_queue_whose_offset_the_broker_does_not_tell_is_taken_in_a_later_round() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        cluster.broker.scripts[RequestCode.QUERY_CONSUMER_OFFSET] = lambda request: request.reply(1, "not now")
        got = Got()
        async with make(cluster, got):
            await asyncio.sleep(5)
            assert not cluster.broker.requests(PULL)
            del cluster.broker.scripts[RequestCode.QUERY_CONSUMER_OFFSET]
            await until(lambda: got.bodies, "the message", 3)

    simulate(story)


# --- pulling ---


def test_an_offset_outside_the_queue_is_corrected_and_the_correction_survives_late_consumers() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 5)
        cluster.broker.committed["G", Q0] = 50
        got = Got()
        async with make(cluster, got):
            await until(lambda: cluster.broker.committed["G", Q0] == 5, "offset 50 became 5")
            cluster.broker.put("T", b"new")
            await until(lambda: got.bodies == [b"new"], "reading goes on at the end")

    simulate(story)


@pytest.mark.parametrize(
    ("code", "pause_ms"),
    [(ResponseCode.SUBSCRIPTION_NOT_EXIST, 1000), (ResponseCode.SYSTEM_BUSY, 1000), (ResponseCode.FLOW_CONTROL, 20)],
)
def test_refused_pulls_are_repeated_after_a_pause(code: int, pause_ms: int) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        cluster.broker.scripts[PULL] = lambda request: request.reply(code, "as scripted")
        got = Got()
        async with make(cluster, got):
            await asyncio.sleep(4.5)
            times = [at for at, r in cluster.broker.seen if r.code == PULL and r.ext["topic"] == "T"]
            gaps = {round((b - a) / pause_ms) for a, b in pairwise(times)}
            assert gaps == {1}
            del cluster.broker.scripts[PULL]
            await until(lambda: got.bodies, "the message")

    simulate(story)


def test_a_filtered_stretch_moves_the_committed_offset() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)

        def filtered(request: RemotingCommand) -> RemotingCommand:
            ext = {"nextBeginOffset": "3", "minOffset": "0", "maxOffset": "3", "suggestWhichBrokerId": "0"}
            if request.ext["topic"] == "T" and request.ext["queueOffset"] == "0":
                return request.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, ext=ext)
            return request.reply(
                ResponseCode.PULL_NOT_FOUND, ext={**ext, "nextBeginOffset": request.ext["queueOffset"]}
            )

        async def slowly(request: RemotingCommand) -> RemotingCommand:
            await asyncio.sleep(1)
            return filtered(request)

        cluster.broker.scripts[PULL] = slowly
        async with make(cluster, Got()):
            await until(lambda: cluster.broker.committed.get(("G", Q0)) == 3, "offset 3 is committed")

    simulate(story)


def test_pulling_stops_while_too_much_is_unfinished() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 200)
        gate = asyncio.Event()
        seen: list[bytes] = []

        async def wait(messages: list[MessageExt], context: ConsumeContext) -> None:
            await gate.wait()
            seen.extend(message.body for message in messages)

        async with make(cluster, wait, pull_threshold_for_queue=50):
            await asyncio.sleep(10)
            offsets = [int(r.ext["queueOffset"]) for r in cluster.broker.requests(PULL) if r.ext["topic"] == "T"]
            assert max(offsets) == 32, "two pulls of 32 pass 50, the third waits"
            gate.set()
            await until(lambda: len(seen) == 200, "all messages in the end")

    simulate(story)


@pytest.mark.parametrize(
    ("settings", "asked"),
    [({}, {"32", "250"}), ({"pull_interval": 1}, {"32"}), ({"pull_threshold_for_topic": 40}, {"32"})],
)
def test_much_is_asked_for_at_once_of_a_queue_that_has_much_more(settings: dict[str, int], asked: set[str]) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1000)
        got = Got()
        async with make(cluster, got, **settings):
            await until(lambda: len(got.bodies) == 1000, "all messages")
        assert sorted(got.bodies, key=int) == [b"%d" % n for n in range(1000)]
        pulls = [r.ext["maxMsgNums"] for r in cluster.broker.requests(PULL) if r.ext["topic"] == "T"]
        assert pulls[0] == pulls[-1] == "32"
        assert set(pulls) == asked

    simulate(story)


def test_pulling_stops_while_offsets_in_hand_are_far_apart() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 300)
        gate = asyncio.Event()
        done: list[bytes] = []

        async def wait(messages: list[MessageExt], context: ConsumeContext) -> None:
            await gate.wait()
            done.append(messages[0].body)

        async with make(cluster, wait, consume_max_span=40):
            await asyncio.sleep(10)
            offsets = [int(r.ext["queueOffset"]) for r in cluster.broker.requests(PULL) if r.ext["topic"] == "T"]
            assert max(offsets) == 32, "63 is more than 40 apart from 0"
            gate.set()
            await until(lambda: len(done) == 300, "all messages in the end")
        assert cluster.broker.committed["G", Q0] == 300

    simulate(story)


def test_reads_go_to_the_slave_while_the_master_says_so_and_come_back() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start(slaves=1)
        cluster.route("T")
        master, slave = cluster.brokers["broker-a", 0], cluster.brokers["broker-a", 1]
        for n in range(100):
            master.put("T", b"%d" % n)
            slave.put("T", b"%d" % n)
        master.suggest_which_broker_id = slave.suggest_which_broker_id = 1
        got = Got()
        async with make(cluster, got):
            await until(lambda: len(got.bodies) == 100, "all messages")
            of_slave = [r.ext for r in slave.requests(PULL) if r.ext["topic"] == "T"]
            assert [ext["queueOffset"] for ext in of_slave[:3]] == ["32", "64", "96"]
            assert all(int(ext["sysFlag"]) & 1 == 0 for ext in of_slave), "a slave takes no offsets with a pull"
            slave.suggest_which_broker_id = master.suggest_which_broker_id = 0
            slave.put("T", b"last")  # ends the pull that waits there
            master.put("T", b"last")
            await until(lambda: len(got.bodies) == 101, "the last one")
            await until(
                lambda: any(r.ext["queueOffset"] == "101" and r.ext["topic"] == "T" for r in master.requests(PULL)),
                "the master is asked again",
            )

    simulate(story)


def test_a_consumer_outlives_its_broker() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        got = Got()
        async with make(cluster, got):
            await until(lambda: len(got.bodies) == 2, "two messages")
            await cluster.broker.stop()
            await asyncio.sleep(40)
            cluster.broker.put("T", b"after")
            await cluster.broker.start()
            await until(lambda: got.bodies[-1] == b"after", "the message after the restart")
        assert got.bodies == [b"0", b"1", b"after"]

    simulate(story)


def test_unreadable_messages_are_not_skipped_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        record = encode_record(cluster.broker.log[0])

        def torn(request: RemotingCommand) -> RemotingCommand:
            ext = {"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1", "suggestWhichBrokerId": "0"}
            if request.ext["topic"] != "T":
                return request.reply(ResponseCode.PULL_NOT_FOUND, ext={**ext, "nextBeginOffset": "0"})
            return request.reply(0, ext=ext, body=record[:-5])

        cluster.broker.scripts[PULL] = torn
        got = Got()
        async with make(cluster, got):
            await asyncio.sleep(3)
            assert not got.bodies
            del cluster.broker.scripts[PULL]
            await until(lambda: got.bodies == [b"0"], "the message, once it can be read")

    simulate(story)
    assert "is not readable" in caplog.text


# --- subscriptions ---


def test_a_subscription_of_a_running_consumer_leaves_no_task_behind_and_a_failed_one_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        async with make(cluster, Got()) as consumer:
            consumer.subscribe("T", "A")
            assert len(consumer._background) == 2  # the statistics and the announcement
            await until(lambda: len(consumer._background) == 1, "the end of the announcement", 5)

            async def fail() -> None:
                raise ZeroDivisionError("unforeseen")

            monkeypatch.setattr(consumer, "_announce", fail)
            consumer.subscribe("T", "B")
            await until(lambda: "maxq-subscribe of group G failed" in caplog.text, "the log line", 5)

    simulate(story)


def test_topics_can_be_added_and_removed_while_running() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        cluster.route("U")
        cluster.broker.put("U", b"u")
        got = Got()
        async with make(cluster, got) as consumer:
            await until(lambda: got.bodies == [b"0"], "the first topic")
            consumer.subscribe("U")
            await until(lambda: got.bodies == [b"0", b"u"], "the second topic")
            consumer.unsubscribe("T")
            await until(lambda: {q.topic for q in consumer.assigned_queues()} == {"U", "%RETRY%G"}, "T is given up")
            assert {s.topic for s in cluster.broker.heartbeats[-1].consumer_data_set[0].subscription_data_set} == {
                "U", "%RETRY%G",
            }  # fmt: skip

    simulate(story)


def test_a_refused_filter_expression_fails_the_start() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        cluster.broker.scripts[RequestCode.CHECK_CLIENT_CONFIG] = lambda request: request.reply(1, "no SQL92 here")
        consumer = make(cluster, Got())
        consumer.subscribe("T", "a > 1", "SQL92")
        with pytest.raises(BrokerError, match="no SQL92 here"):
            await consumer.start()
        await asyncio.sleep(1)
        assert not cluster.broker.server.connections, "nothing is left behind"

    simulate(story)


def test_pulls_never_carry_a_newer_subscription_than_the_broker_knows() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 0, queues=4)
        async with make(cluster, Got()):
            await asyncio.sleep(30)
        known = pulls = 0
        for _, request in cluster.broker.seen:
            if request.code == RequestCode.HEART_BEAT:
                data = cluster.broker.heartbeats.pop(0)
                known = max(
                    [s.sub_version for c in data.consumer_data_set for s in c.subscription_data_set if s.topic == "T"],
                    default=known,
                )
            elif request.code == PULL and request.ext["topic"] == "T":
                pulls += 1
                assert int(request.ext["subVersion"]) <= known
        assert known > 0 and pulls >= 4

    simulate(story)


@pytest.mark.parametrize("when_ms", range(0, 40, 4))
def test_a_shutdown_that_is_cancelled_leaves_no_ghost(when_ms: int) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 8, queues=4)
        got = Got()
        consumer = make(cluster, got)
        await consumer.start()
        await until(lambda: len(got.bodies) == 8, "all of them")
        ending = asyncio.create_task(consumer.shutdown())
        await asyncio.sleep(when_ms / 1000)
        ending.cancel()
        joining = asyncio.create_task(consumer.shutdown())
        await asyncio.wait([ending, joining])
        assert not cluster.broker.members["G"]
        assert sum(cluster.broker.committed["G", MessageQueue("T", "broker-a", n)] for n in range(4)) == 8
        other = make(cluster, got)
        async with other:
            await until(lambda: len(other.assigned_queues()) >= 4, "all queues")
        await consumer.start()  # again
        await until(lambda: len(consumer.assigned_queues()) >= 4, "all queues")
        await consumer.shutdown()

    simulate(story)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_listener_that_goes_on_though_it_is_cancelled_is_left_behind(
    orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        go_on = asyncio.Event()
        ended: list[bytes] = []

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            while not go_on.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await go_on.wait()
            ended.append(messages[0].body)

        consumer = make(cluster, listen, orderly=orderly)
        await consumer.start()
        await until(lambda: cluster.broker.requests(PULL), "the first pull")
        await asyncio.sleep(1)
        async with asyncio.timeout(60):
            await consumer.shutdown(100)
        assert not cluster.broker.members["G"]
        go_on.set()
        await until(lambda: ended, "the end of the call")
        await asyncio.sleep(10)
        assert not cluster.broker.committed.get(("G", Q0)), "nothing is committed of it"
        assert ended == ([b"0"] if orderly else [b"0", b"1", b"2"]), "no more calls are begun"
        assert not [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("maxq-")]

    simulate(story)
    assert "are abandoned" in caplog.text


def test_a_cancelled_shutdown_waits_for_no_more_calls_and_commits_nothing_of_them() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        running: list[bytes] = []

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            if messages[0].body != b"0":
                running.append(messages[0].body)
                try:
                    await asyncio.sleep(60)
                finally:
                    running.remove(messages[0].body)

        consumer = make(cluster, listen)
        await consumer.start()
        await until(lambda: len(running) == 2, "two calls under way")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await consumer.shutdown(60_000)
        assert not running
        assert cluster.broker.committed["G", Q0] == 1
        assert not cluster.broker.members["G"]

    simulate(story)


def test_a_broker_that_is_away_is_said_now_and_then_and_not_for_each_queue_and_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1, queues=16)
        got = Got()
        async with make(cluster, got):
            await until(lambda: bool(got.bodies), "the message", 5)
            await cluster.broker.stop()
            await asyncio.sleep(60)
            lines = [record.getMessage() for record in caplog.records if "pull of" in record.getMessage()]
            assert 5 <= len(lines) <= 20
            assert "more since the last line" in lines[-1]

    simulate(story)


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails first"])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_listener_may_take_its_messages_out_of_the_list(orderly: bool, fails: bool, batch: int) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 8)
        seen: list[bytes] = []

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            failed = fails and messages[0].body not in seen
            while messages:
                seen.append(messages.pop().body)
            if failed:
                raise ZeroDivisionError

        consumer = make(
            cluster, listen, orderly=orderly, consume_message_batch_max_size=batch, consume_thread_nums=2,
            suspend_current_queue_time=10,
        )  # fmt: skip
        async with consumer:
            await until(lambda: len(seen) >= (16 if fails else 8), "all of them, twice if they failed")
        assert set(seen) == {b"%d" % n for n in range(8)}
        assert cluster.broker.committed["G", Q0] == 8

    simulate(story)


def test_a_message_that_a_fault_of_the_program_keeps_from_being_given_back_is_tried_again_here() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        seen: list[bytes] = []
        told: list[Exception] = []

        class Hook:
            """Fails whenever a message is given back."""

            def do_before_request(self, address: str, request: RemotingCommand) -> None:
                if request.code == SEND_BACK:
                    raise ZeroDivisionError

            def do_after_response(self, address: str, request: RemotingCommand, response: object) -> None:
                """Do nothing."""

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
            seen.extend(message.body for message in messages)
            return ConsumeResult.RECONSUME_LATER if seen.count(b"1") == 1 and messages[0].body == b"1" else None

        async with make(cluster, listen, rpc_hooks=[Hook()], on_failure=told.append):
            await until(lambda: len(seen) == 4, "the second try", 20)
        assert sorted(seen) == [b"0", b"1", b"1", b"2"]
        assert [type(error) for error in told] == [ZeroDivisionError]
        assert cluster.broker.committed["G", Q0] == 3

    simulate(story)
