"""A running broker's ledger: read anew, snapshots, SYNC_FLUSH, requests that are wrong."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from maxq.broker.tables.topic.topic_validator import STAGED_LEDGER_TOPIC
from maxq.broker.two_phase import two_phase_service as staged_service
from maxq.broker.two_phase.two_phase_service import TwoPhaseService
from maxq.codes import RequestCode, ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import MaxQError, RequestRefusedError
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import Message, decode_record, encode_batch
from maxq.remoting.client import RemotingClient
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng
from maxq.standalone import StandaloneServer
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[StandaloneServer]:
    settings = {"flushDiskType": request.param, "mappedFileSizeCommitLog": str(1 << 20)}
    server = StandaloneServer(tmp_path, settings=settings, disk=SystemDisk(), clock=SystemClock(), rng=SystemRng())
    await server.start()
    yield server
    await server.shutdown()


@pytest.fixture
def service(server: StandaloneServer) -> TwoPhaseService:
    assert server._broker is not None
    return server._broker.staged.service


async def ask(server: StandaloneServer, code: int, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
    client = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())
    try:
        return await client.invoke(server.broker_address, RemotingCommand(code, ext, body), 10_000)
    finally:
        await client.close()


def batch_of(*bodies: bytes) -> bytes:
    return encode_batch(Message("T", body, {"UNIQ_KEY": f"{number:032X}"}) for number, body in enumerate(bodies))


async def stage(server: StandaloneServer, body: bytes, count: int, **more: str) -> RemotingCommand:
    ext = {
        "topic": "T", "queueId": "0", "attempt": "x", "sequence": "0", "count": str(count), "plain": "true",
        "bornTimestamp": "1", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", **more,
    }  # fmt: skip
    return await ask(server, RequestCode.MAXQ_STAGE_MESSAGES, ext, body)


async def test_messages_are_in_their_queue_after_the_delivery(
    server: StandaloneServer, service: TwoPhaseService
) -> None:
    staged = await stage(server, batch_of(b"a", b"b"), 2)
    assert staged.code == ResponseCode.SUCCESS, staged.remark
    runs = [["x", 0, int(staged.ext["queueOffset"]), 1]]
    decision = {"brokers": {server.broker_name: {"runs": runs}}}

    assert await service.decide("app", 0, decision) == decision
    assert server._broker is not None
    store = server._broker.store
    assert store.max_offset("T", 0) == 0
    for before in (False, True):
        found = await service.deliver("app", 0, runs)
        assert (found.done, found.lost, found.before) == (True, 0, before)
        assert store.max_offset("T", 0) == 2


async def test_another_decision_of_a_batch_that_was_delivered_is_refused(
    server: StandaloneServer, service: TwoPhaseService
) -> None:
    """The coordinator has lost the first one."""
    first, second = [await stage(server, batch_of(body), 1) for body in (b"a", b"b")]
    runs, others = ([["x", 0, int(staged.ext["queueOffset"]), 1]] for staged in (first, second))
    assert (await service.deliver("app", 0, runs)).done
    for _ in range(2):
        with pytest.raises(RequestRefusedError, match="has delivered other rows as batch 0 of application app"):
            await service.deliver("app", 0, others)
        service.start()
    told = await ask(server, RequestCode.MAXQ_STAGED_DECISION, {"application": "app"})
    assert told.ext == {"delivered": "0"}
    assert server._broker is not None and server._broker.store.max_offset("T", 0) == 1
    assert (await service.deliver("app", 1, others)).done


async def test_what_lies_at_the_place_of_another_attempt_is_lost_not_delivered(
    server: StandaloneServer, service: TwoPhaseService
) -> None:
    staged = await stage(server, batch_of(b"a"), 1)
    found = await service.deliver("app", 0, [["y", 0, int(staged.ext["queueOffset"]), 1], ["x", 0, 17, 1]])
    assert (found.done, found.lost) == (True, 2)


async def test_a_ledger_is_read_from_its_last_snapshot(
    server: StandaloneServer, service: TwoPhaseService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_service, "_ENTRIES_BETWEEN_SNAPSHOTS", 4)
    for batch in range(3):
        await service.decide("app", batch, {"brokers": {}})
    await service.keep_short()
    service.start()
    assert (await service.application("app")).batch == 2
    assert service._first_entry()[0] == 0

    await service.decide("other", 0, {"brokers": {}})
    await service.keep_short()
    await service.decide("app", 3, {"brokers": {}})
    service.start()
    assert (await service.application("app")).batch == 3
    assert (await service.application("other")).batch == 0
    assert (await service.application("unknown")).batch is None
    assert service._first_entry()[0] == 4


async def test_the_first_claim_holds_over_restarts_and_snapshots(
    server: StandaloneServer, service: TwoPhaseService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_service, "_ENTRIES_BETWEEN_SNAPSHOTS", 1)
    for coordinator in ("broker-b", "broker-c"):
        ext = {"application": "app", "coordinator": coordinator}
        answer = await ask(server, RequestCode.MAXQ_CLAIM_STAGED, ext)
        assert (answer.code, answer.ext["coordinator"]) == (ResponseCode.SUCCESS, "broker-b")
        await service.keep_short()
        service.start()
    known = await ask(server, RequestCode.MAXQ_STAGED_DECISION, {"application": "app"})
    assert known.ext["coordinator"] == "broker-b"
    assert "batch" not in known.ext
    assert service._first_entry()[0] > 0


async def test_an_earlier_batch_is_refused(service: TwoPhaseService) -> None:
    await service.decide("app", 2, {"brokers": {}})
    with pytest.raises(RequestRefusedError, match="another applicationId"):
        await service.decide("app", 1, {"brokers": {}})


@pytest.mark.parametrize(
    ("body", "count", "more", "code"),
    [
        (b"", 0, {}, ResponseCode.MESSAGE_ILLEGAL),
        (batch_of(b"a"), 2, {}, ResponseCode.MESSAGE_ILLEGAL),
        (batch_of(b"a"), 1, {"queueId": "99"}, ResponseCode.INVALID_PARAMETER),
        (batch_of(b"a"), 1, {"queueId": "-1"}, ResponseCode.INVALID_PARAMETER),
        (batch_of(b"a"), 1, {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, ResponseCode.NO_PERMISSION),
    ],
)
async def test_wrong_requests_are_refused(
    server: StandaloneServer, body: bytes, count: int, more: dict[str, str], code: int
) -> None:
    assert (await stage(server, body, count, **more)).code == code


async def test_applications_that_were_refused_leave_nothing(service: TwoPhaseService) -> None:
    for number in range(20):
        with pytest.raises(MaxQError):
            await service.deliver(f"made-up-{number}", 0, [[5]])
    assert len(service._locks) == 0


async def test_malformed_requests_are_answered(server: StandaloneServer) -> None:
    assert (await stage(server, b"\x00\x00\x00\x05", 1)).code != ResponseCode.SUCCESS
    assert (await ask(server, RequestCode.MAXQ_CLAIM_STAGED, {"application": "app"})).code != ResponseCode.SUCCESS
    name = {"application": "app", "batch": "0"}
    for code in (RequestCode.MAXQ_DECIDE_STAGED, RequestCode.MAXQ_DELIVER_STAGED):
        for body in (b"", b"[]", b"{", json.dumps({"brokers": {"a": 5}}).encode()):
            answer = await ask(server, code, name, body)
            assert answer.code != ResponseCode.SUCCESS, (code, body)


async def test_entries_that_are_none_keep_nobody_from_the_others(
    server: StandaloneServer, service: TwoPhaseService, caplog: pytest.LogCaptureFixture
) -> None:
    await service.decide("app", 2, {"brokers": {}})
    assert server._broker is not None
    for tags in ("snapshot", "decision"):
        for body in (b"{", b"5", b"{}", b'{"kind":"decision"}', b'{"kind":"snapshot","first":"x"}',
                     b'{"kind":"snapshot","first":999,"offset":0}'):  # fmt: skip
            put = MessageExtBrokerInner(STAGED_LEDGER_TOPIC, 0, body, {"TAGS": tags})
            assert server._broker.store.put_message(put).ok
    service.start()
    assert (await service.application("app")).batch == 2
    assert "the entry of staged batches at physical offset " in caplog.text
    await service.keep_short()
    await service.decide("app", 3, {"brokers": {}})


async def test_applications_that_a_ledger_knows_are_bounded(
    server: StandaloneServer, service: TwoPhaseService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_service, "MOST_APPLICATIONS", 3)
    for number in range(3):
        assert await service.claim(f"app{number}", "broker-a") == "broker-a"
    with pytest.raises(RequestRefusedError, match="3 applications"):
        await service.claim("one more", "broker-a")
    assert await service.claim("app1", "broker-b") == "broker-a"


@pytest.mark.parametrize("plain", ["true", "false"])
@pytest.mark.parametrize("name", ["TRAN_MSG", "POP_CK"])
async def test_what_is_the_brokers_to_write_is_refused_before_it_is_staged(
    server: StandaloneServer, name: str, plain: str
) -> None:
    body = encode_batch([Message("T", b"x", {"UNIQ_KEY": "U", name: "true"})])
    refused = await stage(server, body, 1, plain=plain)
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL and name in (refused.remark or "")


async def test_a_staged_message_that_waits_is_not_plain(server: StandaloneServer) -> None:
    body = encode_batch([Message("T", b"x", {"UNIQ_KEY": "U", "DELAY": "3"})])
    assert (await stage(server, body, 1, plain="true")).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await stage(server, body, 1, plain="false")).code == ResponseCode.SUCCESS


async def test_a_topic_that_keeps_one_message_for_each_key_is_staged_none_without(
    server: StandaloneServer, service: TwoPhaseService
) -> None:
    """Nobody would ever see it."""
    assert server._broker is not None
    topic = TopicConfig("T", 1, 1, 6, attributes={"+cleanup.policy": "COMPACTION"})
    server._broker.topics.update_topic_config(topic)
    refused = await stage(server, batch_of(b"a", b"b"), 2)
    assert (refused.code, "set KEYS" in (refused.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
    with_key = encode_batch([Message("T", b"a", {"UNIQ_KEY": "A" * 32, "KEYS": "k"})])
    staged = await stage(server, with_key, 1)
    found = await service.deliver("app", 0, [["x", 0, int(staged.ext["queueOffset"]), 1]])
    assert (staged.code, found.lost) == (ResponseCode.SUCCESS, 0)
    assert server._broker.store.get_message("G", "T", 0, 0, 32, None).message_count == 1


async def test_staged_messages_are_checked_for_their_type_as_sent_ones_are(server: StandaloneServer) -> None:
    assert server._broker is not None
    server._broker.staged._processor._settings.update({"enableTopicMessageTypeCheck": "true"})
    topic = TopicConfig("T", 1, 1, 6, attributes={"+message.type": "FIFO"})
    server._broker.topics.update_topic_config(topic)
    refused = await stage(server, batch_of(b"a"), 1)
    assert (refused.code, "TopicMessageType" in (refused.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)


async def test_messages_that_are_staged_for_a_batch_queue_have_places_of_their_own(
    server: StandaloneServer, service: TwoPhaseService
) -> None:
    assert server._broker is not None
    store = server._broker.store
    server._broker.topics.update_topic_config(TopicConfig("T", 1, 1, 6, attributes={"+queue.type": "BatchCQ"}))
    for batch in range(3):
        body = b"sent %d" % batch
        assert store.put_message(MessageExtBrokerInner("T", 0, body, {"UNIQ_KEY": f"{100 + batch:032X}"})).ok
        staged = await stage(server, batch_of(b"a %d" % batch, b"b %d" % batch), 2, sequence=str(batch))
        found = await service.deliver("app", batch, [["x", batch, int(staged.ext["queueOffset"]), 1]])
        assert (found.done, found.lost) == (True, 0)
    await store.flush()
    read = [decode_record(record) for record in store.get_message("G", "T", 0, 0, 32, None).buffers]
    expected = [b"%b %d" % (what, batch) for batch in range(3) for what in (b"sent", b"a", b"b")]
    assert [(message.queue_offset, message.body) for message in read] == list(enumerate(expected))


@pytest.mark.parametrize("plain", ["true", "false"])
async def test_staged_messages_wait_for_the_queue_that_was_taken_from_them(
    server: StandaloneServer, service: TwoPhaseService, plain: str
) -> None:
    assert server._broker is not None
    topics, store = server._broker.topics, server._broker.store
    topics.update_topic_config(TopicConfig("T", 4, 4))
    staged = await stage(server, batch_of(b"a", b"b"), 2, queueId="3", plain=plain)
    runs = [["x", 0, int(staged.ext["queueOffset"]), 1]]
    topics.update_topic_config(TopicConfig("T", 1, 1))
    end = -1
    for _ in range(2):  # nothing is written while they wait, but that the delivery has begun
        with pytest.raises(RequestRefusedError, match=r"staged messages for T wait: request queueId\[3\] is illegal"):
            await service.deliver("app", 0, runs)
        assert end in (-1, store.max_physical_offset)
        end = store.max_physical_offset
    topics.update_topic_config(TopicConfig("T", 4, 4))
    found = await service.deliver("app", 0, runs)
    assert (found.done, found.lost, store.max_offset("T", 3)) == (True, 0, 2)


async def test_what_was_staged_is_delivered_when_the_broker_takes_nothing_new(
    server: StandaloneServer, service: TwoPhaseService
) -> None:
    assert server._broker is not None
    server._broker.topics.update_topic_config(TopicConfig("T", 4, 4, order=True))
    staged = await stage(server, batch_of(b"a"), 1)
    server._broker.staged._processor._settings.update({"brokerPermission": "4"})
    assert (await stage(server, batch_of(b"b"), 1, sequence="1")).code == ResponseCode.NO_PERMISSION
    found = await service.deliver("app", 0, [["x", 0, int(staged.ext["queueOffset"]), 1]])
    assert (found.done, found.lost) == (True, 0)


async def test_a_timed_message_waits_for_the_timer_and_one_that_no_setting_allows_is_lost(
    server: StandaloneServer,
    service: TwoPhaseService,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert server._broker is not None
    body = encode_batch(
        Message("T", b"x", {"UNIQ_KEY": f"{number:032X}", "TIMER_DELAY_SEC": delay})
        for number, delay in enumerate(("60", "never"))
    )
    staged = await stage(server, body, 2, plain="false")
    runs = [["x", 0, int(staged.ext["queueOffset"]), 1]]
    with monkeypatch.context() as loading:
        loading.setattr(server._broker.timed.hook, "_wheel", lambda: None)
        with pytest.raises(RequestRefusedError, match="the timer is not loaded yet"):
            await service.deliver("app", 0, runs)
    for before in (False, True):
        found = await service.deliver("app", 0, runs)
        assert (found.done, found.lost, found.before) == (True, 1, before)
    assert (
        "1 staged messages for T are lost, because the store does not take them: timer message illegal" in caplog.text
    )


def damage(server: StandaloneServer, folder: Path, entry: int) -> None:
    """Flip a bit in the body of an entry of the ledger, as a bad disk does."""
    assert server._broker is not None
    store = server._broker.store
    (physical_offset, _, _) = store.queue_units(STAGED_LEDGER_TOPIC, 0, entry, 1)[0]
    record = store.select_one_message(physical_offset)
    assert record is not None
    place = physical_offset + bytes(record).index(b'"application"') + 1
    file = next(folder.glob("**/commitlog/00000000000000000000"))
    with file.open("r+b") as log:
        log.seek(place)
        log.write(b"A")


# entries of batch 0: decision 0, delivery 1, step 2, done 3; of batch 1 so far: decision 4, delivery 5, step 6, done 7
@pytest.mark.parametrize("entry", range(8))
async def test_a_batch_is_not_written_again_because_an_entry_about_it_is_damaged(
    server: StandaloneServer, service: TwoPhaseService, tmp_path: Path, entry: int
) -> None:
    assert server._broker is not None
    store = server._broker.store
    runs = []
    for batch in range(2):
        staged = await stage(server, batch_of(b"a", b"b"), 2, sequence=str(batch))
        runs.append([["x", batch, int(staged.ext["queueOffset"]), 1]])
        await service.decide("app", batch, {"of": batch, "brokers": {}})
        await service.deliver("app", batch, runs[batch])
    await store.flush()
    damage(server, tmp_path, entry)
    service.start()

    if entry < 4 or entry == 6:  # what follows says that the batch was delivered
        assert await service.decide("app", 1, {"of": "another run", "brokers": {}}) == {"of": 1, "brokers": {}}
        assert (await service.deliver("app", 1, runs[1])).before
    else:
        with pytest.raises(
            RequestRefusedError, match=r"is damaged and may be of application app: .* another applicationId"
        ):
            await service.decide("app", 1 if entry == 4 else 2, {"of": "another run", "brokers": {}})
            await service.deliver("app", 1 if entry == 4 else 2, runs[1])
    assert store.max_offset("T", 0) == 4
    assert await service.claim("new", "broker-b") == "broker-b"


async def test_a_batch_whose_delivery_is_the_damaged_first_entry_is_not_delivered_again(
    server: StandaloneServer, service: TwoPhaseService, tmp_path: Path
) -> None:
    """A broker that does not decide hears of an application with its first delivery."""
    assert server._broker is not None
    store = server._broker.store
    staged = await stage(server, batch_of(b"a", b"b"), 2)
    runs = [["x", 0, int(staged.ext["queueOffset"]), 1]]
    await service.deliver("app", 0, runs)
    await store.flush()
    damage(server, tmp_path, 0)
    service.start()
    with pytest.raises(RequestRefusedError, match="is damaged and may be of application app"):
        await service.deliver("app", 0, runs)
    assert store.max_offset("T", 0) == 2


async def test_a_coordinator_does_not_decide_again_because_its_first_decision_is_damaged(
    server: StandaloneServer, service: TwoPhaseService, tmp_path: Path
) -> None:
    assert server._broker is not None
    staged = await stage(server, batch_of(b"a", b"b"), 2)
    runs = [["x", 0, int(staged.ext["queueOffset"]), 1]]
    await service.claim("app", server.broker_name)
    await service.decide("app", 0, {"of": "run 1", "brokers": {}})
    await service.deliver("app", 0, runs)
    await server._broker.store.flush()
    damage(server, tmp_path, 1)
    service.start()
    with pytest.raises(RequestRefusedError, match="is damaged and may be of application app"):
        await service.decide("app", 0, {"of": "run 2", "brokers": {}})


# entries of "idle": decision 0, delivery 1, step 2, done 3; of "busy": decision 4, delivery 5, step 6, done 7
@pytest.mark.parametrize("entry", [5, 6, 7])
async def test_an_application_with_nothing_open_goes_on_though_an_entry_of_another_is_damaged(
    server: StandaloneServer, service: TwoPhaseService, tmp_path: Path, entry: int
) -> None:
    assert server._broker is not None
    for number, name in enumerate(("idle", "busy")):
        staged = await stage(server, batch_of(b"a"), 1, sequence=str(number))
        await service.decide(name, 0, {"of": name, "brokers": {}})
        await service.deliver(name, 0, [["x", number, int(staged.ext["queueOffset"]), 1]])
    await server._broker.store.flush()
    damage(server, tmp_path, entry)
    service.start()
    assert await service.decide("idle", 1, {"of": 1, "brokers": {}}) == {"of": 1, "brokers": {}}


async def test_a_snapshot_with_a_damaged_entry_gives_way_to_what_it_was_made_of(
    server: StandaloneServer, service: TwoPhaseService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its applications were unknown then, and their batches were written once more."""
    monkeypatch.setattr(staged_service, "_ENTRIES_BETWEEN_SNAPSHOTS", 1)
    assert server._broker is not None
    store = server._broker.store
    staged = await stage(server, batch_of(b"a", b"b"), 2)
    runs = [["x", 0, int(staged.ext["queueOffset"]), 1]]
    await service.claim("app", server.broker_name)
    await service.decide("app", 0, {"brokers": {}})
    await service.deliver("app", 0, runs)
    entry = store.max_offset(STAGED_LEDGER_TOPIC, 0)
    await service.keep_short()
    await store.flush()
    damage(server, tmp_path, entry)
    service.start()
    assert (await service.application("app")).batch == 0
    assert (await service.deliver("app", 0, runs)).before
    assert store.max_offset("T", 0) == 2
    assert await service.decide("app", 1, {"of": 1, "brokers": {}}) == {"of": 1, "brokers": {}}


async def three_in_a_snapshot(service: TwoPhaseService, store: MessageStore) -> int:
    """Decide batch 0 of a, b and c, and write a snapshot; returns the entry at which it begins."""
    for name in ("a", "b", "c"):
        await service.decide(name, 0, {"of": name, "brokers": {}})
    entry = store.max_offset(STAGED_LEDGER_TOPIC, 0)
    await service.keep_short()
    await store.flush()
    assert store.max_offset(STAGED_LEDGER_TOPIC, 0) == entry + 4
    return entry


def expire(store: MessageStore, patch: pytest.MonkeyPatch, entry: int) -> None:
    """Have the ledger begin with this entry, as after retention."""
    whole = store.min_offset
    patch.setattr(
        store, "min_offset", lambda topic, queue: entry if topic == STAGED_LEDGER_TOPIC else whole(topic, queue)
    )


async def test_an_application_whose_only_entry_is_damaged_is_refused_and_no_other(
    server: StandaloneServer, service: TwoPhaseService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted as new, and its batch was decided once more."""
    monkeypatch.setattr(staged_service, "_ENTRIES_BETWEEN_SNAPSHOTS", 1)
    assert server._broker is not None
    store = server._broker.store
    entry = await three_in_a_snapshot(service, store)
    damage(server, tmp_path, entry + 1)
    expire(store, monkeypatch, entry)
    for begins in (entry, entry + 4):  # the next snapshot knows it, too
        service.start()
        with pytest.raises(RequestRefusedError, match=r"damaged and may be of application b: .* another applicationId"):
            await service.application("b")
        with pytest.raises(RequestRefusedError, match="may be of application b"):
            await service.decide("b", 0, {"of": "another run", "brokers": {}})
        for name in ("a", "c"):
            assert await service.decide(name, 0, {"of": "another run", "brokers": {}}) == {"of": name, "brokers": {}}
        assert service._first_entry()[0] == begins
        await service.keep_short()
    assert await service.decide("b again", 0, {"of": "b", "brokers": {}}) == {"of": "b", "brokers": {}}


@pytest.mark.parametrize("has_expired", [False, True])
async def test_damage_within_a_snapshot_concerns_one_application(
    server: StandaloneServer, service: TwoPhaseService, monkeypatch: pytest.MonkeyPatch, has_expired: bool
) -> None:
    """A start has put a filler there, so that the place does not say what it was: those copied before were refused."""
    monkeypatch.setattr(staged_service, "_ENTRIES_BETWEEN_SNAPSHOTS", 1)
    assert server._broker is not None
    store = server._broker.store
    entry = await three_in_a_snapshot(service, store)
    whole = store.queue_units
    filled = store.queue_units(STAGED_LEDGER_TOPIC, 0, entry + 1, 1)[0]

    def units(*args: Any) -> list[tuple[int, int, int]]:
        return [(*unit[:2], DAMAGED_TAGS_CODE) if unit == filled else unit for unit in whole(*args)]

    monkeypatch.setattr(store, "queue_units", units)
    if has_expired:
        expire(store, monkeypatch, entry)
    service.start()
    for name in ("a", "c", "b"):
        if has_expired and name == "b":
            with pytest.raises(RequestRefusedError, match="may be of application b"):
                await service.decide(name, 0, {"of": "another run", "brokers": {}})
        else:
            assert await service.decide(name, 0, {"of": "another run", "brokers": {}}) == {"of": name, "brokers": {}}
        if name != "b":
            assert await service.decide(name, 1, {"of": name, "brokers": {}}) == {"of": name, "brokers": {}}
