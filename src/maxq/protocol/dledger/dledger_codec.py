"""Bodies of DLedger's frames: JSON as fastjson 1.2 writes it (keys sorted, nulls left out, enums by name, bytes as
Base64, derived getters written and not read), and the binary PUSH between MaxQ members.

Binary PUSH APPEND: one request code, another body, told apart by its first byte.

    i32 0x4D585031 "MXP1" · i32 length of head · head, the PUSH as JSON without entries · an `EntryRun`'s bytes

Source:
    openmessaging/dledger DLedgerRpcNettyService.java, protocol/*.java.
"""

import base64
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

from maxq.errors import RemoteProtocolError
from maxq.protocol.dledger.dledger_json import (
    Json,
    base_json,
    dump,
    entry_json,
    load,
    read_base,
    read_bytes,
    read_entry,
    read_int,
    read_list,
    read_text,
    read_texts,
)
from maxq.protocol.dledger.dledger_messages import (
    AppendReply,
    AppendRequest,
    DLedgerRequestCode,
    EntryRun,
    GetReply,
    GetRequest,
    HeartBeatReply,
    HeartBeatRequest,
    MetadataReply,
    MetadataRequest,
    PullReply,
    PullRequest,
    PushReply,
    PushRequest,
    PushType,
    Reply,
    Request,
    TransferReply,
    TransferRequest,
    VoteReply,
    VoteRequest,
    VoteResult,
)
from maxq.protocol.frame.remoting_command import Body

_BINARY: Final = struct.Struct(">ii")
_BINARY_MAGIC: Final = 0x4D585031
_BINARY_START: Final = b"MXP1"
_PRE_VOTE: Final = "maxqPreVote"
_TRANSFER: Final = "maxqTransfer"
_FOUNDING: Final = "maxqFounding"
_MAXQ: Final = "maxq"
_STATUS: Final = "maxqStatus"

#: Keys of DLedger 0.4, whose PUSH bodies have another meaning.
_FOREIGN_PUSH_KEYS: Final = ("entries", "preLogIndex")


def request_code(request: Request) -> DLedgerRequestCode:
    """Return the code of the frame that carries `request`."""
    return _CODES[type(request)]


def encode_request(request: Request) -> Body:
    """Encode the body of a request frame; in pieces if entries travel as they lie in the data file."""
    if type(request) is PushRequest and request.run is not None:
        head = dump(_push_json(request))
        return [memoryview(_BINARY.pack(_BINARY_MAGIC, len(head)) + head), memoryview(request.run.data)]
    return dump(_TO_JSON[type(request)](request))


def encode_reply(reply: Reply) -> bytes:
    """Encode the body of a response frame, whose header code is 200."""
    return dump(_TO_JSON[type(reply)](reply))


def decode_request(code: int, body: Body) -> Request:
    """Decode the request in a frame of this code.

    Raises:
        RemoteProtocolError: no code of DLedger's, not JSON, a member of another kind, an entry that contradicts
            itself, a PUSH of DLedger 0.4.
    """
    read = _REQUESTS.get(code)
    if read is None:
        raise RemoteProtocolError(f"{code} is no request code of DLedger")
    data = b"".join(body) if isinstance(body, list) else body
    if code == DLedgerRequestCode.PUSH and data is not None and data[:4] == _BINARY_START:
        return _decode_binary_push(memoryview(data))
    request: Request = read(load(data))
    return request


def decode_reply(code: int, body: Body) -> Reply:
    """Decode the answer to a request of `code`.

    Raises:
        RemoteProtocolError: the bytes are not such an answer, or the frame has no body, which is how a Java peer says
            that it failed.
    """
    read = _REPLIES.get(code)
    if read is None:
        raise RemoteProtocolError(f"{code} is no request code of DLedger")
    reply: Reply = read(load(b"".join(body) if isinstance(body, list) else body))
    return reply


# --- VOTE, HEART_BEAT ------------------------------------------------------------------------------------------------


def _vote_json(request: VoteRequest) -> Json:
    members = base_json(request)
    members["ledgerEndIndex"] = request.ledger_end_index
    members["ledgerEndTerm"] = request.ledger_end_term
    if request.is_pre_vote:
        members[_PRE_VOTE] = True
    if request.is_transfer:
        members[_TRANSFER] = True
    if request.is_founding:
        members[_FOUNDING] = True
    return members


def _vote(members: Json) -> VoteRequest:
    return VoteRequest(
        **read_base(members),
        ledger_end_index=read_int(members, "ledgerEndIndex", -1),
        ledger_end_term=read_int(members, "ledgerEndTerm", -1),
        is_pre_vote=members.get(_PRE_VOTE) is True,
        is_transfer=members.get(_TRANSFER) is True,
        is_founding=members.get(_FOUNDING) is True,
    )


def _vote_reply_json(reply: VoteReply) -> Json:
    return base_json(reply) | {"voteResult": reply.vote_result.value}


def _vote_reply(members: Json) -> VoteReply:
    result = members.get("voteResult")
    known = _VOTE_RESULTS.get(result) if isinstance(result, str) else None
    return VoteReply(**read_base(members), vote_result=known or VoteResult.UNKNOWN)


def _heart_beat_json(message: HeartBeatRequest | HeartBeatReply) -> Json:
    members = base_json(message)
    if message.maxq is not None:
        members[_MAXQ] = message.maxq
    return members


def _heart_beat(members: Json) -> HeartBeatRequest:
    return HeartBeatRequest(**read_base(members), maxq=read_text(members, _MAXQ))


def _heart_beat_reply(members: Json) -> HeartBeatReply:
    return HeartBeatReply(**read_base(members), maxq=read_text(members, _MAXQ))


# --- APPEND, GET, METADATA, PULL -------------------------------------------------------------------------------------


def _append_json(request: AppendRequest) -> Json:
    members = base_json(request)
    members["batch"] = False
    if request.body is not None:
        members["body"] = base64.b64encode(request.body).decode()
    return members


def _append(members: Json) -> AppendRequest:
    return AppendRequest(**read_base(members), body=read_bytes(members, "body"))


def _append_reply_json(reply: AppendReply) -> Json:
    return base_json(reply) | {"index": reply.index, "pos": reply.pos}


def _append_reply(members: Json) -> AppendReply:
    return AppendReply(**read_base(members), index=read_int(members, "index", -1), pos=read_int(members, "pos", -1))


def _get_json(request: GetRequest) -> Json:
    return base_json(request) | {"beginIndex": request.begin_index, "maxSize": request.max_size}


def _get(members: Json) -> GetRequest:
    return GetRequest(
        **read_base(members), begin_index=read_int(members, "beginIndex", -1), max_size=read_int(members, "maxSize", 0)
    )


def _entries_reply_json(reply: GetReply | PullReply) -> Json:
    return base_json(reply) | {"entries": [entry_json(entry) for entry in reply.entries]}


def _get_reply(members: Json) -> GetReply:
    return GetReply(**read_base(members), entries=tuple(map(read_entry, read_list(members, "entries"))))


def _pull_reply(members: Json) -> PullReply:
    return PullReply(**read_base(members), entries=tuple(map(read_entry, read_list(members, "entries"))))


def _metadata(members: Json) -> MetadataRequest:
    return MetadataRequest(**read_base(members))


def _metadata_reply_json(reply: MetadataReply) -> Json:
    members = base_json(reply)
    if reply.peers is not None:
        members["peers"] = reply.peers
    if reply.status is not None:
        members[_STATUS] = reply.status
    return members


def _metadata_reply(members: Json) -> MetadataReply:
    return MetadataReply(**read_base(members), peers=read_texts(members, "peers"), status=read_texts(members, _STATUS))


def _pull_json(request: PullRequest) -> Json:
    members = base_json(request) | {"beginIndex": request.begin_index}
    if request.node_id is not None:
        members["nodeId"] = request.node_id
    return members


def _pull(members: Json) -> PullRequest:
    return PullRequest(
        **read_base(members), node_id=read_text(members, "nodeId"), begin_index=read_int(members, "beginIndex", -1)
    )


# --- PUSH ------------------------------------------------------------------------------------------------------------


def _push_json(request: PushRequest) -> Json:
    """Return a PUSH of JSON; without entries if they travel beside it."""
    members = base_json(request)
    entries = request.entries
    is_batch = request.is_batch or len(entries) > 1
    members["batch"] = is_batch
    members["batchEntry"] = [entry_json(entry) for entry in entries] if is_batch else []
    members["commitIndex"] = request.commit_index
    members["count"] = request.count
    if entries and not is_batch:
        members["entry"] = entry_json(entries[0])
    members["firstEntryIndex"] = request.first_index
    members["lastEntryIndex"] = request.last_index
    members["totalSize"] = sum(entry.size for entry in entries) if is_batch else 0
    members["type"] = request.type.value
    return members


def _push(members: Json) -> PushRequest:
    for key in _FOREIGN_PUSH_KEYS:
        if key in members:
            raise RemoteProtocolError(f"a PUSH with {key} comes from DLedger 0.4; a group must have one release line")
    kind = _push_type(members)
    batch = read_list(members, "batchEntry")
    entry = members.get("entry")
    entries = tuple(map(read_entry, batch)) if batch else () if entry is None else (read_entry(entry),)
    if any(later.index != earlier.index + 1 for earlier, later in pairwise(entries)):
        raise RemoteProtocolError(f"indexes of a PUSH do not follow each other: {[entry.index for entry in entries]}")
    return PushRequest(
        **read_base(members),
        type=kind,
        commit_index=read_int(members, "commitIndex", -1),
        entries=entries,
        is_batch=bool(batch),
    )


def _push_type(members: Json) -> PushType:
    name = members.get("type")
    kind = PushType.APPEND if name is None else _PUSH_TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise RemoteProtocolError(f"type of a PUSH cannot be {name!r:.80}")
    return kind


def _decode_binary_push(data: memoryview) -> PushRequest:
    if len(data) < _BINARY.size:
        raise RemoteProtocolError(f"a binary PUSH of {len(data)} bytes")
    length = _BINARY.unpack_from(data)[1]
    start = _BINARY.size + length
    if length < 0 or start > len(data):
        raise RemoteProtocolError(f"a binary PUSH of {len(data)} bytes cannot have a head of {length}")
    members = load(data[_BINARY.size : start])
    run = EntryRun.of(data[start:])
    if _push_type(members) is not PushType.APPEND:
        raise RemoteProtocolError(f"a binary PUSH is an APPEND, not {members.get('type')}")
    return PushRequest(**read_base(members), commit_index=read_int(members, "commitIndex", -1), run=run)


def _push_reply_json(reply: PushReply) -> Json:
    members = base_json(reply)
    members["beginIndex"] = reply.begin_index
    members["count"] = reply.count
    members["endIndex"] = reply.end_index
    if reply.index is not None:
        members["index"] = reply.index
    return members


def _push_reply(members: Json) -> PushReply:
    return PushReply(
        **read_base(members),
        index=None if members.get("index") is None else read_int(members, "index", -1),
        count=read_int(members, "count", 0),
        begin_index=read_int(members, "beginIndex", 0),
        end_index=read_int(members, "endIndex", 0),
    )


# --- LEADERSHIP_TRANSFER ---------------------------------------------------------------------------------------------


def _transfer_json(request: TransferRequest) -> Json:
    members = base_json(request)
    members["takeLeadershipLedgerIndex"] = request.take_leadership_ledger_index
    if request.transfer_id is not None:
        members["transferId"] = request.transfer_id
    if request.transferee_id is not None:
        members["transfereeId"] = request.transferee_id
    return members


def _transfer(members: Json) -> TransferRequest:
    return TransferRequest(
        **read_base(members),
        transfer_id=read_text(members, "transferId"),
        transferee_id=read_text(members, "transfereeId"),
        take_leadership_ledger_index=read_int(members, "takeLeadershipLedgerIndex", 0),
    )


def _transfer_reply(members: Json) -> TransferReply:
    return TransferReply(**read_base(members))


_VOTE_RESULTS: Final[dict[str, VoteResult]] = {result.value: result for result in VoteResult}
_PUSH_TYPES: Final[dict[str, PushType]] = {kind.value: kind for kind in PushType}
_CODES: Final[dict[type[Any], DLedgerRequestCode]] = {
    MetadataRequest: DLedgerRequestCode.METADATA,
    AppendRequest: DLedgerRequestCode.APPEND,
    GetRequest: DLedgerRequestCode.GET,
    VoteRequest: DLedgerRequestCode.VOTE,
    HeartBeatRequest: DLedgerRequestCode.HEART_BEAT,
    PullRequest: DLedgerRequestCode.PULL,
    PushRequest: DLedgerRequestCode.PUSH,
    TransferRequest: DLedgerRequestCode.LEADERSHIP_TRANSFER,
}
_TO_JSON: Final[dict[type[Any], Callable[[Any], Json]]] = {
    MetadataRequest: base_json,
    MetadataReply: _metadata_reply_json,
    AppendRequest: _append_json,
    AppendReply: _append_reply_json,
    GetRequest: _get_json,
    GetReply: _entries_reply_json,
    VoteRequest: _vote_json,
    VoteReply: _vote_reply_json,
    HeartBeatRequest: _heart_beat_json,
    HeartBeatReply: _heart_beat_json,
    PullRequest: _pull_json,
    PullReply: _entries_reply_json,
    PushRequest: _push_json,
    PushReply: _push_reply_json,
    TransferRequest: _transfer_json,
    TransferReply: base_json,
}
_REQUESTS: Final[dict[int, Callable[[Json], Any]]] = {
    DLedgerRequestCode.METADATA: _metadata,
    DLedgerRequestCode.APPEND: _append,
    DLedgerRequestCode.GET: _get,
    DLedgerRequestCode.VOTE: _vote,
    DLedgerRequestCode.HEART_BEAT: _heart_beat,
    DLedgerRequestCode.PULL: _pull,
    DLedgerRequestCode.PUSH: _push,
    DLedgerRequestCode.LEADERSHIP_TRANSFER: _transfer,
}
_REPLIES: Final[dict[int, Callable[[Json], Any]]] = {
    DLedgerRequestCode.METADATA: _metadata_reply,
    DLedgerRequestCode.APPEND: _append_reply,
    DLedgerRequestCode.GET: _get_reply,
    DLedgerRequestCode.VOTE: _vote_reply,
    DLedgerRequestCode.HEART_BEAT: _heart_beat_reply,
    DLedgerRequestCode.PULL: _pull_reply,
    DLedgerRequestCode.PUSH: _push_reply,
    DLedgerRequestCode.LEADERSHIP_TRANSFER: _transfer_reply,
}
