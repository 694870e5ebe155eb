"""`maxq transaction`: what is open, what became of a transaction, from a running broker and from files."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benches.load.request import Target

from maxq.api import LocalTransactionState, Message, MessageExt, async_admin, async_transaction_producer
from maxq.testing.server_process import StandaloneProcess
from tests.integration.broker.harness import until
from tests.integration.cli.harness import Outcome, maxq
from tests.integration.namesrv.harness import Peer, registering
from tests.json_output import check_output

STATE = {"c": LocalTransactionState.COMMIT_MESSAGE, "r": LocalTransactionState.ROLLBACK_MESSAGE}


class Local:
    """A body says by its first letter how its transaction ends; nobody knows the others when asked."""

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState | None:
        return STATE.get(chr(message.body[0]))

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState | None:
        return None


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """Transactions are given up after one check, after two seconds."""
    settings = {
        "transactionTimeOut": "2000", "transactionCheckInterval": "500", "transactionCheckMax": "1",
        "transactionOpBatchInterval": "20", "flushCommitLogTimed": "true", "flushCommitLogThoroughInterval": "50",
    }  # fmt: skip
    server = StandaloneProcess(settings, folder=tmp_path_factory.mktemp("server"))
    with server:
        yield server


async def send(namesrv: str, topic: str, *texts: str) -> dict[str, str]:
    """Text → transaction id."""
    async with async_transaction_producer(f"PG_{topic}", namesrv, Local()) as producer:
        return {
            text: (await producer.send_message_in_transaction(Message(topic, text.encode()))).msg_id for text in texts
        }


def objects(*words: str, namesrv: str = "") -> Any:
    """What a command prints with --json, which is as its schema says."""
    done = maxq(*words, "--json", namesrv=namesrv)
    assert done.code == 0, done.err
    value = json.loads(done.out)
    check_output(" ".join(words[:2]), value)
    return value


def test_open_transactions_are_listed_and_each_can_be_inspected(server: StandaloneProcess, namesrv: str) -> None:
    ids = asyncio.run(send(namesrv, "TxCli", "committed", "rolled back", "undecided", "open too"))
    broker = server.broker_address

    def listed() -> list[dict[str, Any]]:
        found = objects("transaction", "list", "-b", broker, namesrv=namesrv)
        return [row for row in found if row["topic"] == "TxCli"]

    async def two_are_open() -> bool:
        return len(await asyncio.to_thread(listed)) == 2

    asyncio.run(until(two_are_open))
    rows = listed()
    assert [row["transactionId"] for row in rows] == [ids["undecided"], ids["open too"]]
    assert {(row["group"], row["checks"]) for row in rows} == {("PG_TxCli", 0)}
    everywhere = objects("transaction", "list", namesrv=namesrv)
    assert [row["transactionId"] for row in everywhere if row["topic"] == "TxCli"] == [
        ids["undecided"], ids["open too"],
    ]  # fmt: skip
    verdicts = {text: objects("transaction", "inspect", ids[text], namesrv=namesrv)["verdict"] for text in ids}
    assert verdicts == {"committed": "COMMITTED", "rolled back": "ROLLED_BACK", "undecided": "OPEN", "open too": "OPEN"}
    by_offset = objects("transaction", "inspect", rows[0]["msgId"], namesrv=namesrv)
    assert by_offset["transactionId"] == ids["undecided"]
    text = maxq("transaction", "inspect", ids["committed"], namesrv=namesrv).out
    assert "COMMITTED: its message was delivered" in text
    assert "delivered" in text.splitlines()[2]
    unknown = maxq("transaction", "inspect", "7F" * 16, namesrv=namesrv)
    assert (unknown.code, "no message of transaction 7F7F" in unknown.err, "RMQ_SYS" in unknown.err) == (1, True, False)


def test_what_was_given_up_is_seen_and_resumed_and_files_tell_the_same(own_server: StandaloneProcess) -> None:
    namesrv = own_server.namesrv_address

    async def give_up() -> tuple[str, str]:
        async with async_transaction_producer("PG_Up", namesrv, Local()) as producer, async_admin(namesrv) as admin:
            result = await producer.send_message_in_transaction(Message("TxUp", b"undecided"))
            committed = await producer.send_message_in_transaction(Message("TxUp", b"committed"))

            async def is_given_up() -> bool:
                return (await admin.transactions.history(result.msg_id)).verdict.value == "GIVEN_UP"

            await until(is_given_up)
            return result.msg_id, committed.msg_id

    undecided, committed = asyncio.run(give_up())
    found = objects("transaction", "inspect", undecided, namesrv=namesrv)
    assert [row["form"] for row in found["forms"]] == ["half", "copy", "given up"]
    refused = maxq("transaction", "resume", committed, namesrv=namesrv)
    assert (refused.code, "was not given up" in refused.err) == (1, True)
    done = objects("transaction", "resume", undecided, namesrv=namesrv)
    assert done["done"] == f"transaction {undecided} is open again"
    assert own_server.stop() == 0  # before it is checked again, two seconds later
    store = str(Path(own_server.store))
    (row,) = objects("transaction", "list", "--store", store)
    assert (row["transactionId"], row["checks"]) == (undecided, 0)
    offline = objects("transaction", "inspect", undecided, "--store", store)
    assert offline["verdict"] == "OPEN"
    assert [form["form"] for form in offline["forms"]] == ["half", "copy", "given up", "copy"]
    offline = objects("transaction", "inspect", committed, "--store", store)
    assert offline["verdict"] == "COMMITTED"


def test_a_cluster_without_a_master_hides_no_transactions_of_others(server: StandaloneProcess, namesrv: str) -> None:
    ids = asyncio.run(send(namesrv, "TxOneCluster", "undecided"))

    async def listed() -> Outcome:
        async with await Peer.connect(Target.at(namesrv).port) as peer:
            await peer.ask(registering(name="lone", addr="127.0.0.1:1", broker_id=1, cluster="Headless"))
            return await asyncio.to_thread(maxq, "transaction", "list", namesrv=namesrv)

    found = asyncio.run(listed())
    assert (found.code, ids["undecided"] in found.out) == (1, True)
    assert "Headless: no broker of cluster Headless is a master now" in found.err


def test_a_store_and_a_broker_exclude_each_other(tmp_path: Path, namesrv: str) -> None:
    wrong = maxq("transaction", "list", "--store", str(tmp_path), "-b", "127.0.0.1:1", namesrv=namesrv)
    assert (wrong.code, "--store reads files" in wrong.err) == (2, True)
    empty = maxq("transaction", "list", "--store", str(tmp_path), namesrv=namesrv)
    assert (empty.code, "holds no store" in empty.err) == (2, True)
