"""Hooks around every request, and around the ends of transactions."""

import asyncio

import pytest

from maxq.client.client_config import ProducerConfig
from maxq.client.hooks import EndTransactionContext
from maxq.client.producer.producer import Producer
from maxq.client.producer.transaction_producer import LocalTransactionState, TransactionProducer
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import ClientError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import CheckTransactionStateRequestHeader
from maxq.protocol.message.message import Message, MessageExt, encode_record
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until

SEND, END = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION
CHECK = RequestCode.CHECK_TRANSACTION_STATE


class Signs:
    """Adds a field to every request, and keeps what it saw."""

    def __init__(self) -> None:
        self.before: list[tuple[str, int]] = []
        self.after: list[tuple[str, int, int | None]] = []

    def do_before_request(self, address: str, request: RemotingCommand) -> None:
        self.before.append((address, request.code))
        request.ext["Signature"] = "mine"

    def do_after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        self.after.append((address, request.code, None if response is None else response.code))


class Refuses(Signs):
    def do_before_request(self, address: str, request: RemotingCommand) -> None:
        if request.code == SEND:
            raise ClientError("not this one")


class Commits:
    """A listener and an EndTransactionHook."""

    def __init__(self) -> None:
        self.ends: list[EndTransactionContext] = []

    def execute_local_transaction(self, message: Message, arg: object) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.ROLLBACK_MESSAGE

    def end_transaction(self, context: EndTransactionContext) -> None:
        self.ends.append(context)


class Broken:
    def end_transaction(self, context: EndTransactionContext) -> None:
        raise RuntimeError("broken hook")


def settings(**more: object) -> ProducerConfig:
    return ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P", **more)  # type: ignore[arg-type]


def test_rpc_hooks_see_every_request_and_what_they_add_travels() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        hook = Signs()
        async with Producer(settings(rpc_hooks=[hook]), cluster.environment()) as sender:
            await sender.send(Message("T", b"hello"))
            await sender.send_oneway(Message("T", b"one way"))
            await until(lambda: len(cluster.broker.log) == 2, "both are there")
        address = cluster.broker.address
        assert all(request.ext["Signature"] == "mine" for _, request in cluster.broker.seen)
        assert (NAMESRV_ADDR, RequestCode.GET_ROUTEINFO_BY_TOPIC) in hook.before
        assert hook.before.count((address, SEND)) == 2
        assert hook.after.count((address, SEND, ResponseCode.SUCCESS)) == 1, "nobody answers the one-way one"

    simulate(story)


def test_a_hook_that_raises_keeps_a_request_at_home() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with Producer(settings(rpc_hooks=[Refuses()]), cluster.environment()) as sender:
            with pytest.raises(ClientError, match="not this one"):
                await sender.send(Message("T", b"hello"))
        assert cluster.broker.requests(SEND) == []

    simulate(story)


def test_ends_of_transactions_and_answers_to_checks_pass_the_hooks() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        broker, rpc, local = cluster.broker, Signs(), Commits()
        broker.scripts[END] = lambda request: None if request.is_oneway else request.reply()
        connections = []
        broker.server.register(
            RequestCode.HEART_BEAT, lambda connection, request: connections.append(connection) or request.reply()
        )
        config = settings(rpc_hooks=[rpc], end_transaction_hooks=[Broken(), local])
        async with TransactionProducer(config, cluster.environment(), local) as producer:
            result = await producer.send_message_in_transaction(Message("T", b"hello"))
            header = CheckTransactionStateRequestHeader(5, 900, "T", "M", "U").encode()
            asked = RemotingCommand(CHECK, header, encode_record(broker.log[0]))
            connections[0].send_oneway(asked)
            await until(lambda: len(broker.requests(END)) == 2, "the check is answered")
            await asyncio.sleep(0)
        told, answered = local.ends
        assert (told.producer_group, told.message.body, told.broker_address) == ("P", b"hello", broker.address)
        assert (told.msg_id, told.transaction_id) == (result.msg_id, result.transaction_id)
        assert (told.transaction_state, told.from_transaction_check) == (LocalTransactionState.COMMIT_MESSAGE, False)
        assert answered.message.body == b"hello"
        assert (answered.transaction_state, answered.from_transaction_check) == (
            LocalTransactionState.ROLLBACK_MESSAGE, True,
        )  # fmt: skip
        assert [request.ext.get("Signature") for request in broker.requests(END)] == ["mine", "mine"]
        assert (broker.address, CHECK) in rpc.before
        assert (broker.address, CHECK, None) in rpc.after

    simulate(story)
