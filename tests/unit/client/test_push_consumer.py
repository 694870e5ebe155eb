"""Push consumption against a scripted broker, in virtual time."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import PurePosixPath

import pytest

from maxq.client.client_config import PushConsumerConfig
from maxq.client.consume_result import ConsumeContext, ConsumeResult, MessageListener
from maxq.client.errors import NameIllegalError
from maxq.client.mq_client_manager import MQClientManager
from maxq.client.push_consumer import PushConsumer
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError
from maxq.protocol.body.consumer_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from maxq.protocol.body.offsets import GetConsumerStatusBody, ResetOffsetBody
from maxq.protocol.enums import CMResult, ConsumeFromWhere, ConsumeType, MessageModel
from maxq.protocol.message import MessageExt, encode_record
from maxq.protocol.message_queue import MessageQueue
from maxq.protocol.remoting_command import RemotingCommand
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
PULL, COMMIT, SEND_BACK = (
    RequestCode.PULL_MESSAGE,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
Q0 = MessageQueue("T", "broker-a", 0)


class Got:
    """A listener that keeps bodies and answers as told."""

    def __init__(self, answer: Callable[[MessageExt, ConsumeContext], ConsumeResult | None] | None = None) -> None:
        self.bodies: list[bytes] = []
        self.messages: list[MessageExt] = []
        self._answer = answer

    def __call__(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        self.messages += messages
        self.bodies += [message.body for message in messages]
        return self._answer(messages[0], context) if self._answer else None


def make(cluster: MockCluster, listener: MessageListener, *, orderly: bool = False, **settings: object) -> PushConsumer:
    values: dict[str, object] = {"consume_from_where": FIRST, **settings}
    config = PushConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G", **values)  # type: ignore[arg-type]
    consumer = PushConsumer(config, cluster.seams(), listener, orderly=orderly)
    consumer.subscribe("T")
    return consumer


async def start(cluster: MockCluster, count: int = 0, queues: int = 1) -> None:
    await cluster.start()
    cluster.route("T", queues=queues)
    cluster.route("%RETRY%G")
    for n in range(count):
        cluster.broker.put("T", b"%d" % n, n % queues)


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
        manager = MQClientManager(cluster.seams())
        config = PushConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G", instance_name="one")
        first = PushConsumer(config, cluster.seams(), Got(), manager=manager)
        second = PushConsumer(config, cluster.seams(), Got(), manager=manager)
        async with first:
            with pytest.raises(ClientError, match=r"already exists on client 10\.0\.9\.9@one"):
                await second.start()

    simulate(story)


def test_clients_with_one_instance_name_share_connections() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        manager = MQClientManager(cluster.seams())
        got = [Got(), Got()]
        consumers = []
        for group, listener in zip("GH", got, strict=True):
            config = PushConsumerConfig(
                namesrv_addr=NAMESRV_ADDR, consumer_group=group, instance_name="one", consume_from_where=FIRST
            )
            consumers.append(PushConsumer(config, cluster.seams(), listener, manager=manager))
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
                PushConsumer(PushConsumerConfig(consumer_group=group), cluster.seams(), Got())

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


# --- failures ---


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


# --- orderly ---


def test_an_orderly_consumer_locks_before_it_pulls_and_renews_its_locks() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        got = Got()
        async with make(cluster, got, orderly=True):
            await until(lambda: len(got.bodies) == 3, "three messages")
            await asyncio.sleep(60)
            locks = cluster.broker.times(RequestCode.LOCK_BATCH_MQ)
            pulls = [at for at, r in cluster.broker.seen if r.code == PULL and r.ext["topic"] == "T"]
            assert locks[0] < pulls[0]
            assert len([at for at in locks if at > 2_000]) in (2, 3)
            assert cluster.broker.locks
        assert not cluster.broker.locks, "leaving unlocks"

    simulate(story)


def test_a_queue_locked_by_somebody_else_waits_for_its_lock() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        cluster.broker.locks[Q0] = "somebody else"
        got = Got()
        async with make(cluster, got, orderly=True):
            await asyncio.sleep(10)
            assert not got.bodies
            del cluster.broker.locks[Q0]
            await until(lambda: len(got.bodies) == 3, "the queue, once it is free", 3)

    simulate(story)


def test_delivery_stops_when_the_lock_is_lost() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        got = Got()
        async with make(cluster, got, orderly=True):
            await until(lambda: len(got.bodies) == 1, "the first message")
            cluster.broker.locks[Q0] = "somebody else"
            await asyncio.sleep(25)  # one renewal
            cluster.broker.put("T", b"later")
            await asyncio.sleep(20)
            assert got.bodies == [b"0"]
            del cluster.broker.locks[Q0]
            await until(lambda: got.bodies == [b"0", b"later"], "the second, under our lock again")

    simulate(story)


def test_an_orderly_queue_that_comes_back_while_its_listener_is_busy_is_served_again() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        gate = asyncio.Event()
        seen: list[bytes] = []

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            if not gate.is_set():
                await gate.wait()
            seen.append(messages[0].body)

        async with make(cluster, listen, orderly=True) as consumer:
            await until(lambda: Q0 in cluster.broker.locks, "the queue is ours")
            await asyncio.sleep(1)
            members, note = cluster.broker.members["G"], RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            members["10.0.9.9@0#first"] = members[consumer.client_id]  # takes the only queue
            members[consumer.client_id].send_oneway(RemotingCommand(note, {"consumerGroup": "G"}))
            await asyncio.sleep(2)
            assert Q0 in cluster.broker.locks, "not given up while the listener has a message of it"
            del members["10.0.9.9@0#first"]
            await asyncio.sleep(2)
            gate.set()
            await until(lambda: set(seen) == {b"0", b"1", b"2"}, "the queue goes on", 10)

    simulate(story)


def test_an_orderly_message_goes_to_the_retry_topic_after_its_tries() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        got = Got(
            lambda m, _: ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if m.body == b"0" else ConsumeResult.SUCCESS
        )
        async with make(cluster, got, orderly=True, max_reconsume_times=2, suspend_current_queue_time=100):
            await until(lambda: b"1" in got.bodies, "the queue goes on")
            assert got.bodies[:4] == [b"0", b"0", b"0", b"1"]
        copies = [r for r in cluster.broker.requests(RequestCode.SEND_MESSAGE_V2) if r.ext["b"] == "%RETRY%G"]
        assert copies[0].ext["j"] == "3"

    simulate(story)


# --- requests from the broker ---


def test_a_change_of_members_rebalances_at_once() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 0, queues=4)
        async with make(cluster, Got()) as consumer:
            await until(lambda: len(consumer.assigned_queues()) == 5, "four queues and the retry queue")
            await asyncio.sleep(3)
            other = "10.0.9.9@0#another"  # sorts before ours
            cluster.broker.members["G"][other] = cluster.broker.members["G"][consumer.client_id]
            note = RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "G"})
            cluster.broker.members["G"][consumer.client_id].send_oneway(note)
            await until(
                lambda: {q.queue_id for q in consumer.assigned_queues() if q.topic == "T"} == {2, 3}, "our half", 1
            )

    simulate(story)


def test_the_broker_can_reset_offsets_in_a_running_consumer() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 4)
        got = Got()
        async with make(cluster, got) as consumer:
            await until(lambda: len(got.bodies) == 4, "all four")
            command = RemotingCommand(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true"},
                ResetOffsetBody({Q0: 1}).encode(),
            )
            cluster.broker.members["G"][consumer.client_id].send_oneway(command)
            await until(lambda: len(got.bodies) == 7, "the last three again")
        assert got.bodies == [b"0", b"1", b"2", b"3", b"1", b"2", b"3"]

    simulate(story)


def test_a_reset_does_not_resume_a_consumer_that_its_user_suspended() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 4)
        got = Got()
        async with make(cluster, got) as consumer:
            await until(lambda: len(got.bodies) == 4, "all four")
            consumer.suspend()
            await consumer.reset_offset("T", {Q0: 1})
            await asyncio.sleep(30)
            assert len(got.bodies) == 4
            consumer.resume()
            await until(lambda: len(got.bodies) == 7, "the last three again")

    simulate(story)


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


def test_operators_see_offsets_and_state_and_can_have_a_message_consumed() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 4)
        got = Got()
        async with make(cluster, got) as consumer:
            await until(lambda: len(got.bodies) == 4, "all four")

            async def ask(code: int, body: bytes | None = None, **ext: str) -> bytes:
                command = RemotingCommand(code, dict(ext), body)
                answer = await cluster.broker.ask_client(consumer.client_id, "G", command)
                assert answer.code == 0
                return answer.body_bytes

            status = await ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, topic="T", group="G")
            assert GetConsumerStatusBody.decode(status).message_queue_table == {Q0: 4}

            info = ConsumerRunningInfo.decode(await ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="G"))
            assert info.mq_table[Q0].commit_offset == 4
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.properties["PROP_CONSUMEORDERLY"] == "false"
            assert {s.topic for s in info.subscription_set} == {"T", "%RETRY%G"}
            assert info.status_table["T"].consume_ok_tps > 0

            record = encode_record(cluster.broker.log[2])
            directly = await ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, record, consumerGroup="G", brokerName="broker-a")
            assert ConsumeMessageDirectlyResult.decode(directly).consume_result == CMResult.CR_SUCCESS
            assert got.bodies[-1] == b"2"

            missing = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "nobody"})
            refused = await cluster.broker.ask_client(consumer.client_id, "G", missing)
            assert (refused.code, "nobody" in (refused.remark or "")) == (1, True)

    simulate(story)


# --- subscriptions ---


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
        cluster.broker.scripts[RequestCode.CHECK_CLIENT_CONFIG] = lambda request: request.reply(23, "syntax error")
        consumer = make(cluster, Got())
        consumer.subscribe("T", "a > ", "SQL92")
        with pytest.raises(BrokerError, match="syntax error"):
            await consumer.start()
        await asyncio.sleep(1)
        assert not cluster.broker.server.connections, "nothing is left behind"

    simulate(story)


def test_pulls_never_carry_a_newer_subscription_than_the_broker_knows() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 0, queues=4)
        async with make(cluster, Got()):
            await asyncio.sleep(30)
        known = 0
        for _, request in cluster.broker.seen:
            if request.code == RequestCode.HEART_BEAT:
                data = cluster.broker.heartbeats.pop(0)
                known = max(
                    [s.sub_version for c in data.consumer_data_set for s in c.subscription_data_set if s.topic == "T"],
                    default=known,
                )
            elif request.code == PULL and request.ext["topic"] == "T":
                assert int(request.ext["subVersion"]) <= known

    simulate(story)
