"""DLedger's bodies against Java's frames, and against any bytes."""

import base64
import contextlib
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.errors import RemoteProtocolError
from maxq.protocol.dledger.dledger_codec import decode_reply, decode_request, encode_reply, encode_request, request_code
from maxq.protocol.dledger.dledger_messages import (
    DLedgerEntry,
    DLedgerRequestCode,
    DLedgerResponseCode,
    EntryRun,
    GetReply,
    HeartBeatReply,
    HeartBeatRequest,
    MetadataReply,
    PushReply,
    PushRequest,
    PushType,
    TransferRequest,
    VoteReply,
    VoteRequest,
    VoteResult,
)
from maxq.protocol.frame.remoting_command import decode_frame
from tests.golden import WIRE

RECORDED = WIRE / "dledger.jsonl"
EXCHANGES = [json.loads(line) for line in RECORDED.read_text().splitlines()]
ENTRY = DLedgerEntry(index=7, term=3, pos=350, size=50, body=b"hi")
IDS = {"group": "g", "leader_id": "n0", "local_id": "n0", "remote_id": "n1", "term": 3}


def frame_body(frame: dict[str, str]) -> bytes:
    return decode_frame(bytes.fromhex(frame["hex"])[4:]).body_bytes


def joined(body: object) -> bytes:
    return b"".join(body) if isinstance(body, list) else bytes(body)  # type: ignore[call-overload,no-any-return]


def run_of(*entries: DLedgerEntry) -> bytes:
    return b"".join(entry.encode() for entry in entries)


def test_requests_of_java_nodes_come_back_byte_for_byte() -> None:
    kinds = set()
    for exchange in EXCHANGES:
        request = exchange["request"]
        decoded = decode_request(request["header"]["code"], frame_body(request))
        assert request_code(decoded) == request["header"]["code"]
        if request["header"]["version"]:  # the capture's own client sorts its keys otherwise
            assert joined(encode_request(decoded)) == frame_body(request)
            kinds.add((exchange["name"], exchange["type"]))
    assert len(kinds) == 6


def test_replies_of_java_nodes_come_back_byte_for_byte() -> None:
    codes = set()
    for exchange in EXCHANGES:
        response = exchange["response"]
        if response and response["bodyLength"]:
            decoded = decode_reply(exchange["request"]["header"]["code"], frame_body(response))
            assert encode_reply(decoded) == frame_body(response)
            codes.add(decoded.code)
    assert codes == {200, 400, 401, 404, 405, 406, 410, 416}


def test_vectors_of_the_specification() -> None:
    vote = VoteRequest(**IDS, ledger_end_index=9, ledger_end_term=2)
    assert encode_request(vote) == (
        b'{"code":200,"group":"g","leaderId":"n0","ledgerEndIndex":9,"ledgerEndTerm":2,"localId":"n0","remoteId":"n1",'
        b'"term":3}'
    )
    assert encode_reply(VoteReply(**IDS, vote_result=VoteResult.ACCEPT)) == (
        b'{"code":200,"group":"g","leaderId":"n0","localId":"n0","remoteId":"n1","term":3,"voteResult":"ACCEPT"}'
    )
    assert encode_request(PushRequest(**IDS, commit_index=6, entries=(ENTRY,))) == (
        b'{"batch":false,"batchEntry":[],"code":200,"commitIndex":6,"count":1,"entry":{"body":"aGk=","bodyCrc":0,'
        b'"chainCrc":0,"channel":0,"index":7,"magic":1,"pos":350,"size":50,"term":3},"firstEntryIndex":7,"group":"g",'
        b'"lastEntryIndex":7,"leaderId":"n0","localId":"n0","remoteId":"n1","term":3,"totalSize":0,"type":"APPEND"}'
    )
    assert encode_reply(PushReply(group="g", term=3, index=7, count=1, begin_index=0, end_index=7)) == (
        b'{"beginIndex":0,"code":200,"count":1,"endIndex":7,"group":"g","index":7,"term":3}'
    )
    transfer = TransferRequest(**IDS, transfer_id="n0", transferee_id="n1", take_leadership_ledger_index=9)
    assert encode_request(transfer) == (
        b'{"code":200,"group":"g","leaderId":"n0","localId":"n0","remoteId":"n1","takeLeadershipLedgerIndex":9,'
        b'"term":3,"transferId":"n0","transfereeId":"n1"}'
    )
    assert decode_request(DLedgerRequestCode.LEADERSHIP_TRANSFER, encode_request(transfer)) == transfer


def test_several_entries_are_a_batch_with_the_sum_of_their_sizes() -> None:
    second = DLedgerEntry(index=8, term=3, pos=400, size=51, body=b"you")
    push = PushRequest(**IDS, commit_index=6, entries=(ENTRY, second))
    members = orjson.loads(joined(encode_request(push)))
    assert members["batch"] is True and members["totalSize"] == 101 and members["count"] == 2
    assert "entry" not in members and [entry["index"] for entry in members["batchEntry"]] == [7, 8]
    back = decode_request(DLedgerRequestCode.PUSH, encode_request(push))
    assert isinstance(back, PushRequest) and back.entries == push.entries and back.is_batch
    assert (back.first_index, back.last_index, back.count) == (7, 8, 2)


def test_what_java_does_not_know_is_absent_unless_it_is_said() -> None:
    assert b"maxq" not in joined(encode_request(VoteRequest(**IDS)))
    assert b"maxq" not in joined(encode_request(HeartBeatRequest(**IDS)))
    for request in (
        VoteRequest(**IDS, is_pre_vote=True),
        VoteRequest(**IDS, is_transfer=True),
        VoteRequest(**IDS, is_founding=True),
        HeartBeatRequest(**IDS, maxq="d"),
    ):
        assert decode_request(request_code(request), encode_request(request)) == request
    beat = HeartBeatReply(maxq="digest")
    assert decode_reply(DLedgerRequestCode.HEART_BEAT, encode_reply(beat)) == beat
    metadata = MetadataReply(group="g", peers={"n0": "h:1"}, status={"role": "LEADER"})
    assert decode_reply(DLedgerRequestCode.METADATA, encode_reply(metadata)) == metadata


def test_a_binary_push_carries_the_bytes_of_the_data_file() -> None:
    data = run_of(ENTRY, DLedgerEntry(index=8, term=4, pos=400, size=51, body=b"you", body_crc=5))
    push = PushRequest(**IDS, commit_index=6, run=EntryRun.of(memoryview(data)))
    body = encode_request(push)
    assert isinstance(body, list) and body[1].obj is data  # no copy
    back = decode_request(DLedgerRequestCode.PUSH, joined(body))
    assert isinstance(back, PushRequest) and back.run is not None and back.type is PushType.APPEND
    assert back.run.data == data and (back.commit_index, back.term, back.leader_id) == (6, 3, "n0")
    assert (back.run.first_index, back.run.last_index, back.run.last_term, back.run.pos) == (7, 8, 4, 350)
    entries = list(back.run.entries())
    assert entries[0] == ENTRY and entries[1].body == b"you" and entries[1].body_crc == 5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        ENTRY.encode()[:-1],
        ENTRY.encode()[:20],
        run_of(ENTRY, ENTRY),
        run_of(ENTRY, DLedgerEntry(index=8, term=2, pos=400, size=50, body=b"hi")),
        run_of(ENTRY, DLedgerEntry(index=8, term=3, pos=401, size=50, body=b"hi")),
        DLedgerEntry(index=7, term=3, pos=350, size=51, body=b"hi").encode(),
        DLedgerEntry(index=7, term=3, pos=350, size=50, body=b"hi", magic=2).encode(),
        DLedgerEntry(index=-1, term=3, pos=350, size=50, body=b"hi").encode(),
        DLedgerEntry(index=(1 << 62) + 1, term=3, pos=350, size=50, body=b"hi").encode(),
        DLedgerEntry(index=7, term=(1 << 62) + 1, pos=350, size=50, body=b"hi").encode(),
        DLedgerEntry(index=7, term=3, pos=(1 << 62) - 9, size=50, body=b"hi").encode(),
    ],
)
def test_a_run_that_contradicts_itself_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        EntryRun.of(data)


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (DLedgerRequestCode.PUSH, b'{"entries":[],"preLogIndex":3,"type":"APPEND"}'),
        (DLedgerRequestCode.PUSH, b'{"type":[1]}'),
        (DLedgerRequestCode.PUSH, b'{"type":"APPEND","entry":{"size":50,"index":1,"pos":0,"body":"a"}}'),
        (DLedgerRequestCode.PUSH, b'{"type":"APPEND","entry":{"size":51,"index":1,"pos":0,"body":"aGk="}}'),
        (DLedgerRequestCode.PUSH, b"MXP1\x7f\xff\xff\xff{}"),
        (DLedgerRequestCode.PUSH, b"MXP1"),
        (DLedgerRequestCode.PUSH, b'{"type":"APPEND","entry":{"size":48,"index":4611686018427387905,"pos":0}}'),
        (DLedgerRequestCode.PUSH, b'{"type":"APPEND","entry":{"size":48,"index":1,"pos":4611686018427387905}}'),
        (DLedgerRequestCode.PUSH, b'{"type":"APPEND","entry":{"size":48,"index":1,"term":4611686018427387905}}'),
        (DLedgerRequestCode.HEART_BEAT, b'{"term":4611686018427387905}'),
        (DLedgerRequestCode.VOTE, b'{"term":9223372036854775808}'),
        (DLedgerRequestCode.VOTE, b""),
        (DLedgerRequestCode.VOTE, b"[]"),
        (99, b"{}"),
    ],
)
def test_what_no_node_says_is_refused(code: int, body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_request(code, body)


def test_a_reply_without_body_is_a_failure_of_the_peer() -> None:
    with pytest.raises(RemoteProtocolError, match="without body"):
        decode_reply(DLedgerRequestCode.PULL, None)


def test_unknown_names_and_codes_are_unknown() -> None:
    reply = decode_reply(DLedgerRequestCode.VOTE, b'{"code":999,"voteResult":"MAYBE"}')
    assert isinstance(reply, VoteReply)
    assert (reply.code, reply.vote_result) == (DLedgerResponseCode.UNKNOWN, VoteResult.UNKNOWN)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
KEYS = [
    "group", "term", "code", "leaderId", "type", "entry", "batchEntry", "commitIndex", "peers", "entries", "body",
    "beginIndex", "index", "voteResult", "maxq", "takeLeadershipLedgerIndex", "maxqStatus", "count", "endIndex",
    "ledgerEndTerm",
]  # fmt: skip
ENTRY_LIKE = st.fixed_dictionaries(
    {},
    optional={
        "body": st.binary(max_size=3).map(lambda value: base64.b64encode(value).decode()) | JSON,
        "size": st.integers(47, 52) | JSON,
        "index": st.integers(-1, 3) | JSON,
        "pos": st.integers(-1, 3) | JSON,
        "magic": JSON,
    },
)


@given(
    st.sampled_from(list(DLedgerRequestCode)),
    st.dictionaries(st.sampled_from(KEYS), JSON | ENTRY_LIKE | st.lists(ENTRY_LIKE, max_size=2), max_size=5),
)
def test_any_object_is_a_message_or_refused(code: DLedgerRequestCode, members: dict[str, object]) -> None:
    body = json.dumps(members).encode()
    with contextlib.suppress(RemoteProtocolError):
        request = decode_request(code, body)
        assert decode_request(code, joined(encode_request(request))) == request
    with contextlib.suppress(RemoteProtocolError):
        reply = decode_reply(code, body)
        assert decode_reply(code, encode_reply(reply)) == reply


@given(st.sampled_from(list(DLedgerRequestCode)), st.binary(max_size=200), st.integers(0, 300))
def test_any_bytes_are_a_message_or_refused(code: DLedgerRequestCode, noise: bytes, at: int) -> None:
    push = PushRequest(**IDS, run=EntryRun.of(run_of(ENTRY, DLedgerEntry(index=8, term=3, pos=400, size=48, body=b""))))
    whole = joined(encode_request(push))
    for body in (noise, b"MXP1" + noise, whole[:at] + noise[:4] + whole[at + 4 :], whole[:at]):
        with contextlib.suppress(RemoteProtocolError):
            decode_request(code, body)
        with contextlib.suppress(RemoteProtocolError):
            decode_reply(code, body)


def test_the_body_of_a_get_is_found_again() -> None:
    reply = GetReply(group="g", entries=(ENTRY,))
    assert decode_reply(DLedgerRequestCode.GET, encode_reply(reply)) == reply


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{a:[" + b"1," * 20_000 + b"1]}", "no standard JSON"),
        (b'{"a":[' + b"{}," * 60_000 + b"{}]}", "60002 objects"),
        (b'{"a":[' + b"1," * 700_000 + b"1]}", "700000 values"),
    ],
    ids=["dialect", "objects", "values"],
)
def test_a_long_body_that_would_take_long_to_read_is_refused(body: bytes, words: str) -> None:
    """Members ask for no signature: whoever reaches the port may send it."""
    with pytest.raises(RemoteProtocolError, match=words):
        decode_request(DLedgerRequestCode.APPEND, body)
