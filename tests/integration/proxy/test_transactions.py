"""Transactions: EndTransaction, and recovery of those that were left open."""

import pytest

from maxq.protocol.grpc import messages as pb
from tests.integration.proxy.conftest import StartWorld
from tests.integration.proxy.grpc_world import GrpcClient, World

_COMMIT, _ROLLBACK = pb.TransactionResolution.COMMIT, pb.TransactionResolution.ROLLBACK


async def _prepare(client: GrpcClient, body: bytes, topic: str = "pays") -> pb.SendResultEntry:
    answer = await client.send(topic, body, message_type=pb.MessageType.TRANSACTION)
    assert answer.status.code == pb.Code.OK
    return answer.entries[0]


async def _end(
    client: GrpcClient, sent: pb.SendResultEntry, resolution: int, topic: str = "pays"
) -> pb.EndTransactionResponse:
    request = pb.EndTransactionRequest(
        topic=pb.Resource(name=topic), message_id=sent.message_id, transaction_id=sent.transaction_id,
        resolution=resolution, source=pb.TransactionSource.SOURCE_CLIENT,
    )  # fmt: skip
    answer: pb.EndTransactionResponse = await client.call("EndTransaction", request)
    return answer


async def test_only_what_is_committed_is_seen(world: World) -> None:
    await world.topic("pays", "TRANSACTION")
    client = world.client()
    await client.begin("pays", "g")
    committed, rolled_back = await _prepare(client, b"yes"), await _prepare(client, b"no")
    assert await world.stored("pays") == []
    assert (await _end(client, rolled_back, _ROLLBACK)).status.code == pb.Code.OK
    assert (await _end(client, committed, _COMMIT)).status.code == pb.Code.OK
    (got,) = await client.receive("pays", "g")
    assert (got.body, got.system_properties.message_id) == (b"yes", committed.message_id)
    assert got.system_properties.message_type == pb.MessageType.TRANSACTION


async def test_a_transaction_is_ended_by_any_client_after_a_restart_of_the_server(world: World) -> None:
    await world.topic("pays", "TRANSACTION")
    sent = await _prepare(world.client("first"), b"x")
    await world.server.shutdown()
    await world.server.start()
    assert (await _end(world.client("second"), sent, _COMMIT)).status.code == pb.Code.OK
    while not (stored := await world.stored("pays")):
        pass
    assert [each.body for each in stored] == [b"x"]


async def test_a_producer_is_asked_about_a_transaction_that_it_left_open(start: StartWorld) -> None:
    world = await start(transactionTimeOut="100", transactionCheckInterval="200")
    await world.topic("pays", "TRANSACTION")
    client = world.client("producer")
    await client.say_settings(client.producer_settings("pays"))
    sent = await _prepare(client, b"x")
    command = (await client.commands.read()).recover_orphaned_transaction_command
    assert (command.message.body, command.message.topic.name) == (b"x", "pays")
    assert command.message.system_properties.message_id == sent.message_id
    sent.transaction_id = command.transaction_id
    assert (await _end(client, sent, _COMMIT)).status.code == pb.Code.OK
    while not (stored := await world.stored("pays")):
        pass
    assert [each.body for each in stored] == [b"x"]


@pytest.mark.parametrize("text", ["", " ", "x", "a:broker-a:1", "a:broker-a:-1:0", "a:broker-a:0:99999999999999999999"])
async def test_ids_of_no_transaction_are_refused(world: World, text: str) -> None:
    await world.topic("pays", "TRANSACTION")
    answer = await _end(world.client(), pb.SendResultEntry(message_id="m", transaction_id=text), _COMMIT)
    assert answer.status.code == pb.Code.INVALID_TRANSACTION_ID


async def test_a_forged_transaction_id_changes_nothing(world: World) -> None:
    await world.topic("pays", "TRANSACTION")
    await world.topic("other", "TRANSACTION")
    client = world.client()
    sent = await _prepare(client, b"x")
    parts = sent.transaction_id.rsplit(":", 1)
    for text in (f"{parts[0]}:{int(parts[1]) + 1}", f"m:broker-a:0:{1 << 50}"):
        forged = pb.SendResultEntry(message_id=sent.message_id, transaction_id=text)
        assert (await _end(client, forged, _COMMIT)).status.code != pb.Code.OK
    assert (await _end(client, sent, _COMMIT, topic="other")).status.code != pb.Code.OK
    assert await world.stored("pays") == [] and await world.stored("other") == []
