"""The half messages that a Java broker left in the golden store `clean` go on here."""

from collections import Counter
from pathlib import Path, PurePath

from maxq.protocol.message.transaction_view import Verdict
from maxq.runtime.files.system import SystemDisk
from maxq.store.tools.store_files import StoreFiles
from maxq.store.tools.transactions import OfflineTransactions
from tests.golden import restore
from tests.integration.broker.conftest import Start
from tests.integration.broker.transactions.transaction_world import COMMIT, HALF, TransactionClient

SETTINGS = {
    "brokerClusterName": "GoldenCluster", "brokerName": "broker-g", "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 2000, "mapperFileSizeBatchConsumeQueue": 2300, "maxHashSlotNum": 1000,
    "maxIndexNum": 1800, "autoCreateTopicEnable": "false", "fileReservedTime": 1_000_000, "transactionTimeOut": 1,
    "transactionCheckInterval": 50, "timerWheelEnable": "false", "transactionCheckMax": 1_000,
}  # fmt: skip


async def test_open_transactions_of_a_java_store_are_asked_for_and_end_once(
    tmp_path: Path, start_broker: Start
) -> None:
    restore("clean", tmp_path / "store")
    broker = await start_broker(**SETTINGS)
    store = broker.controller.store
    await broker.controller.transactions.checks.ready()
    assert broker.controller.transactions.metrics.open_transactions() == {"Gd_Trans": 5}
    before = [store.max_offset("Gd_Trans", queue) for queue in range(4)]
    half = store.look_message_by_offset(store.queue_units(HALF, 0, store.max_offset(HALF, 0) - 1, 1)[0][0])
    assert half is not None
    client = TransactionClient(broker, half.properties["PGROUP"])
    await client.come_online()
    asked: Counter[str] = Counter()
    while sum(asked.values()) < 5:
        question = await client.question()
        key = question.message.uniq_key
        assert key is not None
        if (await client.answer(question, COMMIT)).code == 0 and key not in asked:
            asked[key] += 1
            assert int(question.message.properties["TRANSACTION_CHECK_TIMES"]) > 1  # Java had asked before
    assert set(asked.values()) == {1}
    after = [store.max_offset("Gd_Trans", queue) for queue in range(4)]
    assert sum(after) - sum(before) == 5
    delivered = [m for queue in range(4) for m in await client.messages("Gd_Trans", queue)]
    assert max(Counter(message.uniq_key for message in delivered).values()) == 1
    assert broker.controller.transactions.metrics.open_transactions() == {"Gd_Trans": 0}


def test_tools_find_the_same_open_transactions_in_the_files(tmp_path: Path) -> None:
    restore("clean", tmp_path / "store")
    transactions = OfflineTransactions(StoreFiles(SystemDisk(), PurePath(tmp_path / "store")))
    halves = transactions.open()
    assert Counter(half.properties["REAL_TOPIC"] for half in halves) == {"Gd_Trans": 5}
    verdicts = Counter(transactions.history(half.offset_msg_id)[0] for half in halves)
    assert verdicts == {Verdict.OPEN: 5}
    transactions.close()
