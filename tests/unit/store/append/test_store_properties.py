"""Whatever is put, however the store is closed or cut: queues and index are what a naive reading of the log gives."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.protocol.message.message import Message, encode_batch
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore
from tests.short_form import times
from tests.unit.store import naive
from tests.unit.store.stores import TestClock, opened, small_config

TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=20)
NAMES = st.sampled_from(["A", "B", "%RETRY%g", "Tö", "SCHEDULE"])


@st.composite
def messages(draw: st.DrawFn) -> MessageExtBrokerInner:
    properties = {}
    for name in ("UNIQ_KEY", "TAGS", "KEYS", "user"):
        value = draw(TEXT)
        if value.strip():
            properties[name] = value
    return MessageExtBrokerInner(
        draw(NAMES), draw(st.integers(0, 3)), draw(st.binary(max_size=3000)), properties,
        born_host=draw(st.sampled_from([bytes(8), bytes(range(20))])),
        sys_flag=draw(st.sampled_from([0, 0, 0, 8, 4, 1])),
    )  # fmt: skip


STEPS = st.lists(
    st.one_of(
        messages().map(lambda message: ("put", message)),
        messages().map(lambda message: ("batch", message)),
        st.integers(0, 3000).map(lambda ms: ("time", ms)),
        st.sampled_from([("reopen", None), ("kill", None), ("bare", None)]),
    ),
    max_size=60,
)


def play(root: Path, steps: list[tuple[str, object]]) -> int:
    """Do the steps; returns how many messages were acknowledged."""
    clock = TestClock()
    config = small_config(root, max_index_num=20, max_hash_slot_num=7)
    store: MessageStore = opened(config, clock)
    count = 0
    for step, what in steps:
        if step == "time":
            assert isinstance(what, int)
            clock.now_ms += what
        elif step in ("put", "batch"):
            assert isinstance(what, MessageExtBrokerInner)
            if step == "put":
                count += store.put_message(what).ok
            elif not what.topic.startswith("%") and not what.sys_flag & 0xC:
                parts = [Message(what.topic, what.body, what.properties), Message(what.topic, b"2", {})]
                what = MessageExtBrokerInner(what.topic, what.queue_id, encode_batch(parts), born_host=what.born_host)
                count += store.put_batch(what).message_count
        else:
            if step == "kill":
                store._life.lock.release()
            else:
                store.close()
            if step == "bare":
                for name in ("consumequeue", "index"):
                    shutil.rmtree(root / name, ignore_errors=True)
                (root / "inventory.json").unlink(missing_ok=True)
            store = opened(config, clock)
    store.close()
    return count


@settings(max_examples=times(60), deadline=None)
@given(STEPS)
def test_queues_and_index_equal_a_naive_reading_of_the_log(steps: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        count = play(root, steps)
        records, _ = naive.java_reads(root)
        assert len(records) == count
        queues = naive.queues_of(records)
        assert naive.queues_on_disk(root) == queues
        assert all(sorted(units) == list(range(len(units))) for units in queues.values())
        assert naive.index_on_disk(root) == naive.index_files_of(records, 7, 20)
