"""What a broker asks of a running push consumer; in virtual time."""

import asyncio
from dataclasses import replace

from maxq.codes import RequestCode
from maxq.protocol.body.consumer_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from maxq.protocol.body.offsets import GetConsumerStatusBody, ResetOffsetBody
from maxq.protocol.enums import CMResult
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import encode_record
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.client.consumer.push_consumers import Q0, Got, make, start
from tests.unit.client.mock_broker import MockCluster, simulate, until


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


def test_what_is_done_is_committed_when_the_members_change_for_the_next_owner_asks_at_once() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 4)
        got = Got()
        async with make(cluster, got) as consumer:
            await until(lambda: len(got.bodies) == 4, "all four")
            assert cluster.broker.committed.get(("G", Q0)) != 4, "the timer has not come yet"
            note = RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "G"})
            cluster.broker.members["G"][consumer.client_id].send_oneway(note)
            await until(lambda: cluster.broker.committed.get(("G", Q0)) == 4, "committed", 1)

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


def reset(offsets: dict[MessageQueue, int]) -> RemotingCommand:
    ext = {"topic": "T", "group": "G", "timestamp": "0", "isForce": "true"}
    return RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext, ResetOffsetBody(offsets).encode())


def test_several_resets_at_the_same_time_are_all_done_and_the_consumer_goes_on() -> None:
    """Each broker of a topic sends one of its own."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 8, queues=2)
        got = Got()
        async with make(cluster, got) as consumer:
            await until(lambda: len(got.bodies) == 8, "all eight")
            connection = cluster.broker.members["G"][consumer.client_id]
            connection.send_oneway(reset({Q0: 0}))
            connection.send_oneway(reset({replace(Q0, queue_id=1): 2}))
            connection.send_oneway(reset({Q0: 2}))
            await asyncio.sleep(30)
            again = sorted(got.bodies[8:])
            assert again in (sorted([b"4", b"6", b"5", b"7"]), sorted([b"0", b"2", b"4", b"6", b"4", b"6", b"5", b"7"]))
            cluster.broker.put("T", b"new")
            await until(lambda: got.bodies[-1] == b"new", "it goes on")

    simulate(story)


def test_a_reset_that_comes_while_the_queue_is_taken_is_done() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 4)
        cluster.broker.committed["G", Q0] = 4
        got, told = Got(), asyncio.Event()

        async def query(request: RemotingCommand) -> RemotingCommand:
            if request.ext["topic"] == "T" and not told.is_set():
                told.set()
                for connection in cluster.broker.members["G"].values():
                    connection.send_oneway(reset({Q0: 1}))
                await asyncio.sleep(1)
            return cluster.broker.query_offset(request)

        cluster.broker.scripts[RequestCode.QUERY_CONSUMER_OFFSET] = query
        async with make(cluster, got):
            await until(lambda: got.bodies == [b"1", b"2", b"3"], "what the operator wants again")

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
