"""A leader that nobody hears any more, and does not know it yet: what it stores now will be gone. So nothing that rests
on it may be promised to clients, noted on the disk or handed to slaves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random

import pytest

from maxq.broker.tables.topic.topic_validator import TRANS_HALF_TOPIC
from maxq.client.admin.topics import topic_fields
from maxq.client.producer.producer import Producer
from maxq.client.producer.transaction_producer import TransactionProducer
from maxq.client.results.local_transaction_state import LocalTransactionState
from maxq.codes import RequestCode, ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import RequestRefusedError
from maxq.protocol.body.offsets import DelayOffsetSerializeWrapper
from maxq.protocol.body.static_topic import LogicQueueMappingItem, TopicQueueMappingDetail
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import Message, encode_batch
from maxq.remoting.client import RemotingClient
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.dledger.dledger_clients import Clients
from tests.simulation.dledger.dledger_servers import BROKERS, Server, small_wheel
from tests.simulation.servers.sim_server import CLIENT, NAMESRV, TOPIC

pytestmark = pytest.mark.usefixtures("quiet")

#: A leader that is alone stops after three of them.
BEAT_MS = 2000


class Group:
    """Three brokers, one of which leads, and a client's machine."""

    def __init__(self, world: SimWorld, settings: Mapping[str, str]) -> None:
        self.world = world
        world.network.default_link = LinkSettings(delay_ms=(0.1, 1))
        rng = SimRng(5)
        self.name_server = Server(world, NAMESRV, rng.fork("ns"), -1)
        self.brokers = [
            Server(
                world,
                address,
                rng.fork(address),
                n,
                dLegerHeartBeatInterval=str(BEAT_MS),
                timerPrecisionMs="100",
                transactionOpBatchInterval="500",
                members=3,
                **settings,
            )
            for n, address in enumerate(BROKERS[:3])
        ]
        self.machine = SimMachine(world.loop, CLIENT, rng.fork("client"))
        self.clients = Clients(self.machine, rng.fork("clients"), None, timed=False)  # type: ignore[arg-type]
        self.leader: Server
        self.client: RemotingClient

    async def start(self) -> None:
        for server in (self.name_server, *self.brokers):
            await server.start()
        self.machine.boot()
        await asyncio.sleep(5)
        (self.leader,) = [server for server in self.brokers if server.is_leader]
        with self.machine.entered():
            self.client = RemotingClient(NettyClientConfig(), clock=self.machine.clock, rng=SimRng(6))

    async def send(self, message: Message) -> int:
        """Physical offset of its record."""
        config = self.clients._config("P")

        async def send() -> tuple[int, int]:
            async with Producer(config, self.clients._environment(SimRng(7), 3)) as producer:
                result = await producer.send(message)
                return result.message_queue.queue_id, result.queue_offset

        queue_id, queue_offset = await self.machine.call(send)
        units = self.leader.broker.store.queue_units(message.topic, queue_id, queue_offset, 1)
        return units[0][0] if units else -1

    async def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
        address = f"{self.leader.machine.address}:10911"
        return await self.machine.call(lambda: self.client.invoke(address, RemotingCommand(code, ext, body), 20_000))

    def isolate(self) -> None:
        """Nobody of its group hears the leader."""
        for other in self.brokers:
            if other is not self.leader:
                self.world.network.partition(self.leader.machine.address, other.machine.address)

    async def heal(self) -> None:
        """The others have elected another one; all hear each other again."""
        old = self.leader
        await _until(lambda: any(server.is_leader for server in self.brokers if server is not old))
        self.world.network.heal()
        await _until(lambda: not old.is_leader)
        (self.leader,) = [server for server in self.brokers if server.is_leader]
        await _until(lambda: leads(self.leader))


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(200):  # routes, heart-beats and checks of transactions have their intervals
        while not condition():  # noqa: ASYNC110 simulated time
            await asyncio.sleep(0.01)


def leads(server: Server) -> bool:
    """Does its broker promise anything?"""
    return server.is_leader and server.broker.failover.services.is_running


def run(scene: Callable[[Group], Awaitable[None]], **settings: str) -> None:
    async def main(world: SimWorld) -> None:
        group = Group(world, settings)
        await group.start()
        await scene(group)

    with small_wheel():
        run_simulation(main, seed=1, time_limit_s=600)


def test_a_message_given_back_is_not_taken_before_it_is_committed() -> None:
    async def scene(group: Group) -> None:
        offset = await group.send(Message(TOPIC, b"x"))

        async def give_back() -> int:
            ext = {"offset": str(offset), "group": "G", "delayLevel": "1", "originTopic": TOPIC, "originMsgId": "0",
                   "unitMode": "false", "maxReconsumeTimes": "16"}  # fmt: skip
            return (await group.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)).code

        for _ in range(2):  # the first makes the retry topic, the second goes the batch path
            assert await give_back() == ResponseCode.SUCCESS
        group.isolate()
        assert await give_back() == ResponseCode.SYSTEM_ERROR

    run(scene)


def test_a_staged_delivery_is_not_done_before_it_is_committed_and_is_done_once() -> None:
    async def scene(group: Group) -> None:
        body = encode_batch(Message("T", b"%d" % n, {"UNIQ_KEY": f"{n:032X}"}) for n in range(3))
        ext = {
            "topic": "T", "queueId": "0", "attempt": "x", "sequence": "0", "count": "3", "plain": "true",
            "bornTimestamp": "1", "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
        }  # fmt: skip
        staged = await group.ask(RequestCode.MAXQ_STAGE_MESSAGES, ext, body)
        assert staged.code == ResponseCode.SUCCESS, staged.remark
        runs = [["x", 0, int(staged.ext["queueOffset"]), 1]]
        decision = {"brokers": {"broker-a": {"runs": runs}}}
        await group.leader.machine.call(lambda: group.leader.broker.staged.service.decide("app", 0, decision))

        async def deliver() -> bool:
            found = await group.leader.broker.staged.service.deliver("app", 0, runs)
            assert found.lost == 0
            return found.done

        group.isolate()
        for _ in range(2):  # the second time all is in the leader's log
            with pytest.raises(RequestRefusedError):
                await group.leader.machine.call(deliver)
        await group.heal()
        assert await group.leader.machine.call(deliver)
        assert group.leader.broker.store.max_offset("T", 0) == 3

    run(scene)


def test_staged_messages_whose_commit_takes_long_are_not_delivered_again() -> None:
    async def scene(group: Group) -> None:
        body = encode_batch(Message("T", b"%d" % n, {"UNIQ_KEY": f"{n:032X}"}) for n in range(3))
        ext = {
            "topic": "T", "queueId": "0", "attempt": "x", "sequence": "0", "count": "3", "plain": "true",
            "bornTimestamp": "1", "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
        }  # fmt: skip
        staged = await group.ask(RequestCode.MAXQ_STAGE_MESSAGES, ext, body)
        runs = [["x", 0, int(staged.ext["queueOffset"]), 1]]
        service = group.leader.broker.staged.service
        group.isolate()
        with pytest.raises(RequestRefusedError):
            await group.leader.machine.call(lambda: service.deliver("app", 0, runs))
        group.world.network.heal()  # before anybody has missed the leader
        assert (await group.leader.machine.call(lambda: service.deliver("app", 0, runs))).done
        assert group.leader.broker.store.max_offset("T", 0) == 3

    run(scene)


def delivered(group: Group, level: int) -> int:
    """What slaves are told of a delay level."""
    text = group.leader.broker.carried_files.delay_offsets()
    return DelayOffsetSerializeWrapper.decode(text).offset_table.get(level, 0)


def test_slaves_hear_of_no_delivery_of_a_delayed_message_that_is_not_committed() -> None:
    async def scene(group: Group) -> None:
        message = Message(TOPIC, b"late")
        message.delay_level = 2
        await group.send(message)
        before = group.leader.broker.store.appended_offset
        group.isolate()
        await _until(lambda: group.leader.broker.store.appended_offset > before)
        await asyncio.sleep(1.5)  # a table is written each second
        assert group.leader.is_leader and delivered(group, 2) == 0
        await group.heal()
        await _until(lambda: delivered(group, 2) == 1)

    run(scene)


def test_slaves_hear_of_no_delivery_of_a_timed_message_that_is_not_committed() -> None:
    async def scene(group: Group) -> None:
        message = Message(TOPIC, b"late")
        message.delay_time_ms = 2500
        await group.send(message)
        due = group.leader.machine.clock.wall_ms() + 2500
        await asyncio.sleep(1)
        before = group.leader.broker.store.appended_offset
        group.isolate()
        await _until(lambda: group.leader.broker.store.appended_offset > before)
        await asyncio.sleep(2)  # a checkpoint is written each second
        checkpoint = group.leader.broker.carried_files.timer_checkpoint()
        assert checkpoint is not None and checkpoint.last_read_time_ms <= due
        queues = [server.broker.store.max_offset(TOPIC, queue) for server in group.brokers for queue in range(2)]
        assert sum(queues) == 0
        await group.heal()
        await _until(lambda: sum(group.leader.broker.store.max_offset(TOPIC, queue) for queue in range(2)) == 1)

    run(scene)


def test_a_transaction_is_not_noted_as_ended_before_that_is_committed() -> None:
    async def scene(group: Group) -> None:
        class Listener:
            def execute_local_transaction(self, message: Message, arg: object) -> LocalTransactionState:
                return LocalTransactionState.COMMIT_MESSAGE

            def check_local_transaction(self, message: Message) -> LocalTransactionState:
                return LocalTransactionState.COMMIT_MESSAGE

        producer = TransactionProducer(group.clients._config("T"), group.clients._environment(SimRng(8), 4), Listener())

        async def commit() -> None:
            half = await producer.send_half(Message(TOPIC, b"x"))
            group.isolate()
            await producer.end(half, LocalTransactionState.COMMIT_MESSAGE)

        await group.machine.call(producer.start)
        await group.machine.call(commit)
        await asyncio.sleep(1.5)
        offsets = group.leader.broker.offsets
        assert group.leader.is_leader
        assert offsets.query_offset("CID_RMQ_SYS_TRANS", TRANS_HALF_TOPIC, 0) <= 0
        await group.machine.call(producer.shutdown)

    run(scene)


def test_a_topic_and_a_group_outlive_the_leader_that_has_just_acknowledged_them() -> None:
    async def scene(group: Group) -> None:
        ext = {"topic": "New", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
               "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
        for topic in ("Newer", "Newest"):
            await group.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**ext, "topic": topic})
        body = SubscriptionGroupConfig("Readers").encode()
        await group.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        group.leader.machine.power_off()
        old = group.leader
        others = [server for server in group.brokers if server is not old]
        await _until(lambda: any(leads(server) for server in others))
        (new,) = [server.broker for server in others if leads(server)]
        assert new.topics.contains_topic("Newer") and new.topics.contains_topic("Newest")
        assert new.groups.contains_subscription_group("Readers")

    run(scene)


def test_nobody_takes_older_tables_from_the_leader_that_lost_its_power_and_is_there_again() -> None:
    """It does not know yet that the end of its log is committed, nor that it leads no more, and the others take it for
    the leader until they miss its heart-beats."""

    async def scene(group: Group) -> None:
        old, ledger = group.leader, group.leader.broker.store.ledger
        assert ledger is not None
        body = SubscriptionGroupConfig("Gone").encode()
        assert (await group.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)).code == 0
        await group.send(Message(TOPIC, b"x", {"KEYS": "k"}))  # an index, which is built anew after a loss of power
        await _until(lambda: ledger.notes.end_index == ledger.committed_index)
        assert (await group.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TopicConfig("New")))).code == 0
        assert (await group.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "Gone"})).code == 0
        await group.send(Message(TOPIC, b"x"))  # the others hear what is committed
        others = [server for server in group.brokers if server is not old]
        await _until(lambda: not any(server.broker.groups.contains_subscription_group("Gone") for server in others))
        old.machine.power_off()
        await old.start()
        assert old.broker.groups.contains_subscription_group("Gone")
        await _until(lambda: any(leads(server) for server in group.brokers))
        (new,) = [server.broker for server in group.brokers if leads(server)]
        assert new.topics.contains_topic("New")
        assert not new.groups.contains_subscription_group("Gone")

    run(scene)


def test_offsets_that_an_operator_has_set_or_removed_outlive_the_leader_that_has_just_acknowledged_it() -> None:
    async def scene(group: Group) -> None:
        for number in range(20):
            await group.send(Message(TOPIC, b"%d" % number))
        ends = {queue: group.leader.broker.store.max_offset(TOPIC, queue) for queue in range(4)}
        old = group.leader
        for queue, end in ends.items():
            old.broker.offsets.commit_offset("a consumer", "Readers", TOPIC, queue, end)
            old.broker.offsets.commit_offset("a consumer", "Others", TOPIC, queue, end)
            old.broker.offsets.commit_offset("a consumer", "Leaving", TOPIC, queue, end)
        readers = SubscriptionGroupConfig("Readers").encode()
        assert (await group.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, readers)).code == 0
        await asyncio.sleep(8)  # all members have copied these offsets
        reset = {"topic": TOPIC, "group": "Readers", "timestamp": "0", "isForce": "true"}
        assert (await group.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)).code == 0
        clone = {"srcGroup": "Others", "destGroup": "Copies", "topic": TOPIC, "offline": "true"}
        assert (await group.ask(RequestCode.CLONE_GROUP_OFFSET, clone)).code == 0
        removal = {"groupName": "Leaving", "cleanOffset": "true"}
        assert (await group.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, removal)).code == 0
        old.machine.power_off()
        others = [server for server in group.brokers if server is not old]
        await _until(lambda: any(leads(server) for server in others))
        (new,) = [server.broker for server in others if leads(server)]
        assert new.offsets.query_offsets("Readers", TOPIC) == dict.fromkeys(ends, 0)
        assert new.offsets.query_offsets("Copies", TOPIC) == ends
        assert new.offsets.query_offsets("Leaving", TOPIC) == {}

    run(scene, useServerSideResetOffset="true")


def test_topics_are_acknowledged_one_after_the_other_where_copying_the_tables_takes_long() -> None:
    async def scene(group: Group) -> None:
        group.world.network.default_link = LinkSettings(delay_ms=(100, 100))
        took = []
        for number in range(4):
            ext = topic_fields(TopicConfig(f"Made{number}", 1, 1))
            began_ms = group.leader.machine.clock.monotonic_ms()
            answer = await group.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
            took.append(group.leader.machine.clock.monotonic_ms() - began_ms)
            assert answer.code == ResponseCode.SUCCESS, (answer.remark, took)
        assert max(took) < 2000, took  # the request, its answer, and three questions of each member, 200 ms each

    run(scene)


def test_a_member_that_leads_before_it_could_ask_for_tables_has_what_was_made_while_it_was_away() -> None:
    async def scene(group: Group) -> None:
        (away, _) = [server for server in group.brokers if server is not group.leader]
        away.machine.power_off()
        ext = {"topic": "New", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
               "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
        for topic in ("Gone", "New"):
            assert (await group.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**ext, "topic": topic})).code == 0
        assert (await group.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"})).code == 0
        body = SubscriptionGroupConfig("Readers").encode()
        assert (await group.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)).code == 0
        mode = b'{"topic":"New","consumerGroup":"Readers","mode":"POP","popShareQueueNum":3}'
        assert (await group.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, mode)).code == 0
        detail = TopicQueueMappingDetail("New", None, 1, "broker-a", 1, False, None, {
            0: [LogicQueueMappingItem(gen=0, queue_id=1, bname="broker-a", logic_offset=0)],
        })  # fmt: skip
        ext["force"] = "true"
        made = await group.ask(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, {**ext, "topic": "New"}, detail.encode())
        assert made.code == 0, made.remark
        await group.send(Message("Automatic", b"x"))
        group.name_server.machine.power_off()  # nobody tells it who leads
        await away.start()
        old = group.leader
        last = old.broker.store.appended_offset
        await _until(lambda: away.broker.store.max_physical_offset >= last)
        member = old.member
        assert member is not None
        await old.machine.call(lambda: member.transfer(away.name))
        await _until(lambda: leads(away))
        topics = away.broker.topics
        assert topics.contains_topic("New") and topics.contains_topic("Automatic")
        assert not topics.contains_topic("Gone")
        assert away.broker.groups.contains_subscription_group("Readers")
        assert away.broker.mappings.table["New"].hosted_queues == detail.hosted_queues
        assert away.broker.request_modes.get_message_request_mode("New", "Readers") is not None

    run(scene)


def test_a_member_with_a_new_disk_has_all_topics_when_the_log_that_it_gets_begins_long_after_they_were_made() -> None:
    async def scene(group: Group) -> None:
        (new, _) = [server for server in group.brokers if server is not group.leader]
        ext = {"topic": "Old", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
               "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
        assert (await group.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)).code == 0
        assert (await group.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Old"})).code == 0
        assert (await group.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)).code == 0
        incarnation = group.leader.broker.store.incarnation("Old")
        old, store = group.leader, group.leader.broker.store
        for _ in range(6):
            await group.send(Message(TOPIC, Random(1).randbytes(50_000)))
            await asyncio.sleep(6)  # within it all rows are written again
        assert (await group.ask(RequestCode.DELETE_EXPIRED_COMMITLOG, {})).code == 0
        await _until(lambda: store.min_physical_offset > incarnation > 0)
        group.name_server.machine.power_off()  # nobody tells it who leads
        new.machine.power_off()
        new.machine.lose_disk()
        await new.start()
        await _until(lambda: new.broker.store.max_physical_offset >= store.appended_offset)
        assert new.broker.store.min_physical_offset > incarnation
        member = old.member
        assert member is not None
        await old.machine.call(lambda: member.transfer(new.name))
        await _until(lambda: leads(new))
        assert new.broker.topics.contains_topic("Old")
        assert new.broker.store.incarnation("Old") == incarnation

    run(scene, fileReservedTime="0", cleanResourceInterval="1000")
