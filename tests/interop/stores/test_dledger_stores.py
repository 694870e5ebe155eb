"""A DLedger member's store, alone in its group, goes from ours to Java's DefaultMessageStore and back, and from a Java
broker to ours: after a clean end and after a kill, with messages that were not known to be committed when it came.
Java's golden stores are opened in tests/unit/store/dledger/test_message_ledger.py, whole groups are in
test_dledger_java.py."""

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from maxq.config.message_store_config import MessageStoreConfig
from maxq.protocol.dledger.ledger import HardState
from maxq.protocol.message.message import Message, encode_batch
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from tests.interop.processes.java_driver import JavaDriver, read_store
from tests.interop.processes.servers import SETTINGS, JavaBroker, MaxqNamesrv, free_port_base, stopping

pytestmark = pytest.mark.interop
FILE_SIZE = 65_536
BORN_HOST = b"\x7f\0\0\1\0\0\x12\x34"


def opened(root: Path) -> MessageStore:
    config = MessageStoreConfig(
        store_path_root_dir=str(root), mapped_file_size_commit_log=FILE_SIZE, mapped_file_size_consume_queue=2000,
        max_hash_slot_num=1000, max_index_num=1800,
    )  # fmt: skip
    config = replace(config, enable_dleger_commit_log=True, dleger_group="g", dleger_self_id="n0")
    store = MessageStore(
        config, disk=SystemDisk(), clock=SystemClock(), broker=StoreIdentity(), memory_bytes=1 << 30, populate_ahead=0
    )
    store.load()
    assert store.ledger is not None
    assert store.ledger.report.amnesia == []
    return store


def put(store: MessageStore, term: int, first: int, count: int, committed: int) -> list[str]:
    """Lead `term` and store messages `first` to `first + count`, every fourth of them as a batch; their bodies.
    All but the last `count - committed` are committed."""
    ledger, bodies = store.ledger, []
    assert ledger is not None
    ledger.store_term(HardState(term, "n0"))
    ledger.begin_leading(term)
    ledger.append(ledger.barrier())
    for number in range(first, first + count):
        body = f"{number:05d}".ljust(100 + 37 * number % 3000, "x")
        bodies.append(body)
        properties = {"KEYS": f"k{number}", "UNIQ_KEY": f"u{number:030d}", "TAGS": "TagA"}
        if number % 4:
            message = MessageExtBrokerInner("Stored", number % 2, body.encode(), properties, born_host=BORN_HOST)
            assert store.put_message(message).ok
        else:
            parts = encode_batch([Message("Stored", body.encode(), properties)])
            assert store.put_batch(MessageExtBrokerInner("Stored", number % 2, parts, {}, born_host=BORN_HOST)).ok
        if number - first == committed:
            ledger.commit(ledger.end_index)
    if committed >= count:
        ledger.commit(ledger.end_index)
    return bodies


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_java_opens_our_members_store_and_we_take_it_back(
    how: str, jars: Path, java_classes: Path, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    settings = [
        f"mappedFileSizeCommitLog={FILE_SIZE}", "mappedFileSizeConsumeQueue=2000", "maxHashSlotNum=1000",
        "maxIndexNum=1800", "enableDLegerCommitLog=true", "dLegerGroup=g", "dLegerSelfId=n0",
    ]  # fmt: skip

    def java() -> list[str]:
        peers = f"dLegerPeers=n0-127.0.0.1:{free_port_base()}"
        found = read_store(jars, java_classes, root, tmp_path / "home", *settings, peers)
        assert found["loaded"]
        rows = [row for row in found["messages"] if row["topic"] == "Stored"]
        assert all(row["foundByKey"] for row in rows)
        return sorted(base64.b64decode(row["body"]).decode() for row in rows)

    store = opened(root)
    bodies = put(store, 1, 0, 200, 200 if how == "stopped" else 150)
    if how == "stopped":
        store.close()
    else:
        store._life.lock.release()  # the process is gone; what it wrote is in the files
    assert java() == bodies, "a group of one commits all it has"
    store = opened(root)
    assert store.ledger is not None
    bodies += put(store, store.ledger.term_state.term + 1, 200, 50, 50)
    assert store.max_offset("Stored", 0) + store.max_offset("Stored", 1) == 250
    store.close()
    assert java() == bodies


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_we_open_the_store_of_a_java_broker_that_was_a_member_and_go_on(
    how: str, jars: Path, driver: JavaDriver, tmp_path: Path
) -> None:
    peers = f"n0-127.0.0.1:{free_port_base()}"
    settings = {
        "enableDLegerCommitLog": "true", "dLegerGroup": "broker-a", "dLegerPeers": peers, "dLegerSelfId": "n0",
        "brokerId": "-1",
    }  # fmt: skip
    names, java = MaxqNamesrv(tmp_path / "namesrv", free_port_base()), JavaBroker(tmp_path / "n0", free_port_base())
    with stopping(java, names):
        names.start()
        java.start(jars, names.address, settings)
        sent = driver.send(names.address, "Kept", 300, size=20_000)
        assert [row["status"] for row in sent] == ["SEND_OK"] * 300
        if how == "stopped":
            java.stop()
        else:
            java.kill()
    config = MessageStoreConfig(
        store_path_root_dir=str(java.store),
        mapped_file_size_commit_log=int(SETTINGS["mappedFileSizeCommitLog"]),
        mapped_file_size_consume_queue=int(SETTINGS["mappedFileSizeConsumeQueue"]),
        max_hash_slot_num=int(SETTINGS["maxHashSlotNum"]),
        max_index_num=int(SETTINGS["maxIndexNum"]),
        enable_dleger_commit_log=True,
        dleger_self_id="n0",
    )
    store = MessageStore(
        config, disk=SystemDisk(), clock=SystemClock(), broker=StoreIdentity(), memory_bytes=1 << 30, populate_ahead=0
    )
    store.load()
    ledger = store.ledger
    assert ledger is not None
    assert ledger.report.amnesia == []
    assert ledger.end_index >= 299
    ledger.commit(ledger.end_index)  # as a group of one does when it has elected itself
    for row in sent:
        unit = store.queue_units("Kept", row["queueId"], row["queueOffset"], 1)[0]
        record = store.look_message_by_offset(unit[0])
        assert record is not None
        assert record.uniq_key == row["msgId"]
    put(store, ledger.term_state.term + 1, 0, 10, 10)
    assert store.max_offset("Stored", 0) == 5
    store.close()
