"""Calls and frames of one connection, in both forms."""

import gzip
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.unit.both_forms import both_together
from tests.unit.remoting.grpc.http2_peer import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITIZED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Peer,
    frame,
    prefixed,
    reset,
    settings,
    window_update,
)

FORMS = both_together("maxq.protocol.http2.hpack_cy", "maxq.protocol.http2.connection_cy", "maxq.remoting.grpc.call_cy")
form = pytest.mark.parametrize("form", FORMS, ids=["uncompiled", "installed"])

PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM = 1, 3, 5, 6, 7
COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 9, 11


class Service:
    """Methods that keep their calls."""

    def __init__(self, form: ModuleType) -> None:
        self.calls: list[Any] = []
        self.got: list[bytes | None] = []
        self.ended = 0
        self.methods = {
            "/t/Echo": form.Unary(lambda call, message: call.answer(message)),
            "/t/Wait": form.Unary(self._wait),
            "/t/Fail": form.Unary(self._fail),
            "/t/Chat": form.Streaming(self._chat),
        }

    def _wait(self, call: Any, message: bytes) -> None:
        call.on_end = self._on_end
        self.calls.append(call)
        self.got.append(message)

    def _fail(self, call: Any, message: bytes) -> None:
        raise KeyError(message)

    def _on_end(self) -> None:
        self.ended += 1

    def _chat(self, call: Any) -> Callable[[bytes | None], None]:
        call.on_end = self._on_end
        self.calls.append(call)
        return self.got.append


@pytest.fixture(params=FORMS, ids=["uncompiled", "installed"])
def service(request: pytest.FixtureRequest) -> Service:
    return Service(request.param)


@pytest.fixture
def peer(request: pytest.FixtureRequest, service: Service) -> Peer:
    form = FORMS[0] if "uncompiled" in request.node.callspec.id.split("-") else FORMS[1]
    return Peer(form, service.methods)


def form_of(service: Service) -> ModuleType:
    return next(form for form in FORMS if type(service.methods["/t/Echo"]) is form.Unary)


# --- calls ------------------------------------------------------------------------------------------------------------


def test_a_call_is_answered_by_message_and_status(peer: Peer) -> None:
    peer.send(peer.call(1, "/t/Echo", b"hello"))
    answer = peer.answer(1)
    assert answer.fields == {":status": "200", "content-type": "application/grpc"}
    assert answer.messages == [b"hello"]
    assert answer.trailers == {"grpc-status": "0"}
    assert peer.channel.streams == 0
    assert peer.connection.writes


def test_arrivals_may_end_anywhere(peer: Peer) -> None:
    whole = peer.call(1, "/t/Echo", b"m" * 300) + peer.call(3, "/t/Echo", b"") + frame(PING, 0, 0, b"12345678")
    for place in range(len(whole)):
        peer.send(whole[place : place + 1])
    assert peer.answer(1).messages == [b"m" * 300]
    assert peer.answer(3).messages == [b""]
    assert peer.seen[-1].payload == b"12345678"


def test_a_message_may_be_split_among_frames_with_padding(peer: Peer) -> None:
    body = prefixed(b"0123456789")
    peer.send(peer.head(1, "/t/Echo"))
    for place in range(len(body)):
        peer.send(frame(DATA, PADDED, 1, b"\x03" + body[place : place + 1] + bytes(3)))
    peer.send(frame(DATA, END_STREAM, 1))
    assert peer.answer(1).messages == [b"0123456789"]


def test_a_service_answers_later_and_in_another_order(peer: Peer, service: Service) -> None:
    peer.send(peer.call(1, "/t/Wait", b"a") + peer.call(3, "/t/Wait", b"b"))
    assert peer.seen[-1].kind == SETTINGS
    writes = peer.connection.writes
    service.calls[1].answer(b"B")
    service.calls[0].answer(b"A")
    assert peer.connection.writes == writes + 1, "one write of the connection takes both"
    peer.read()
    assert peer.answer(1).messages == [b"A"]
    assert peer.answer(3).messages == [b"B"]


def test_metadata_has_all_fields_but_those_of_http2(peer: Peer, service: Service) -> None:
    peer.send(peer.call(1, "/t/Wait", b"", ("x-mq-client-id", "one"), ("x-twice", "a"), ("x-twice", "b")))
    call = service.calls[0]
    assert call.path == "/t/Wait"
    assert call.metadata == {
        "content-type": "application/grpc", "te": "trailers", "x-mq-client-id": "one", "x-twice": "a,b",
    }  # fmt: skip
    assert call.connection is peer.connection
    assert call.deadline is None


def test_a_status_alone_comes_in_one_frame_with_text_in_percents(peer: Peer, service: Service) -> None:
    peer.send(peer.call(1, "/t/Wait", b""))
    service.calls[0].finish(5, "not 100% 好\n", [("x-more", "y")])
    came = peer.read()
    assert [(one.kind, one.flags) for one in came] == [(HEADERS, END_STREAM | END_HEADERS)]
    answer = peer.answer(1)
    assert answer.status == (5, "not 100%25 %E5%A5%BD%0A")
    assert answer.fields["x-more"] == "y"


def test_a_stream_of_answers(peer: Peer, service: Service) -> None:
    peer.send(peer.call(1, "/t/Wait", b""))
    for number in range(5):
        service.calls[0].send(b"%d" % number)
    service.calls[0].finish(8, "enough")
    service.calls[0].send(b"too late")
    service.calls[0].finish()
    peer.read()
    assert peer.answer(1).messages == [b"0", b"1", b"2", b"3", b"4"]
    assert peer.answer(1).status == (8, "enough")


def test_a_stream_of_messages_is_given_one_by_one(peer: Peer, service: Service) -> None:
    peer.send(peer.head(1, "/t/Chat") + frame(DATA, 0, 1, prefixed(b"a") + prefixed(b"bc") + prefixed(b"d")[:3]))
    assert service.got == [b"a", b"bc"]
    service.calls[0].send(b"meanwhile")
    assert [one.kind for one in peer.read()] == [HEADERS, DATA]
    peer.send(frame(DATA, 0, 1, prefixed(b"d")[3:]) + frame(DATA, END_STREAM, 1))
    assert service.got == [b"a", b"bc", b"d", None]
    service.calls[0].finish()
    peer.read()
    assert peer.answer(1).messages == [b"meanwhile"]
    assert service.ended == 0


def test_others_have_their_turn_while_a_stream_has_many_messages(peer: Peer, service: Service) -> None:
    data = bytearray(peer.head(1, "/t/Chat") + frame(DATA, 0, 1, prefixed(b"")) * 1000)
    position, turns = 0, 0
    while position < len(data):
        before = len(service.got)
        position = peer.channel.receive(data, position, len(data))
        assert len(service.got) - before <= 128
        turns += 1
    assert len(service.got) == 1000
    assert turns >= 8


def test_compressed_messages_are_unpacked_up_to_the_limit(peer: Peer, service: Service) -> None:
    def send(stream: int, message: bytes) -> tuple[int, str]:
        peer.send(peer.head(stream, "/t/Echo", ("grpc-encoding", "gzip")))
        peer.send(frame(DATA, END_STREAM, stream, prefixed(message, 1)))
        return peer.answer(stream).status

    assert send(1, gzip.compress(b"x" * 1000)) == (0, "")
    assert peer.answer(1).messages == [b"x" * 1000]
    assert send(3, gzip.compress(bytes((1 << 20) + 1))) == (8, "Decompressed gRPC message exceeds maximum size 1048576")
    assert send(5, gzip.compress(b"x" * 1000)[:-3])[0] == 13
    assert send(7, b"no gzip")[0] == 13
    peer.send(peer.head(9, "/t/Echo") + frame(DATA, END_STREAM, 9, prefixed(gzip.compress(b"x"), 1)))
    assert peer.answer(9).status[0] == 13, "no encoding was named"
    peer.send(peer.head(11, "/t/Echo", ("grpc-encoding", "zstd")))
    assert peer.answer(11).status[0] == 12
    assert peer.answer(11).fields["grpc-accept-encoding"] == "identity,gzip"


def test_calls_that_cannot_be_served_get_a_status(peer: Peer, service: Service) -> None:
    peer.send(peer.call(1, "/t/Nothing", b""))
    assert peer.answer(1).status == (12, "Method not found: t/Nothing")
    peer.send(peer.call(3, "/t/Fail", b""))
    assert peer.answer(3).status[0] == 2
    peer.send(peer.head(5, "/t/Echo") + frame(DATA, 0, 5, b"\0" + (1 << 20 | 1).to_bytes(4, "big")))
    assert peer.answer(5).status == (8, "gRPC message exceeds maximum size 1048576: 1048577")
    peer.send(peer.head(7, "/t/Echo") + frame(DATA, END_STREAM, 7, prefixed(b"a") + prefixed(b"b")))
    assert peer.answer(7).status == (13, "Too many requests")
    peer.send(peer.head(9, "/t/Echo", flags=END_HEADERS | END_STREAM))
    assert peer.answer(9).status == (13, "Half-closed without a request")
    peer.send(peer.head(11, "/t/Echo") + frame(DATA, END_STREAM, 11, b"\0\0\0\0\5abc"))
    assert peer.answer(11).status[0] == 13
    peer.send(peer.head(13, "/t/Echo", ("grpc-timeout", "5 minutes")))
    assert peer.answer(13).status[0] == 13
    assert not peer.channel.failure
    assert peer.channel.streams == 0


def test_what_is_not_grpc_is_answered_as_http_when_it_has_been_sent(peer: Peer) -> None:
    fields = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")]
    peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, peer.block(*fields)))
    assert peer.answer(1).fields[":status"] == "405"
    fields[0] = (":method", "POST")
    for stream, kind in ((3, "application/grpc-web"), (5, "text/html"), (7, "application/grpcs")):
        assert not peer.send(frame(HEADERS, END_HEADERS, stream, peer.block(*fields, ("content-type", kind))))
        peer.send(frame(DATA, END_STREAM, stream, b"body"))
        assert peer.answer(stream).fields[":status"] == "415"
    for stream, kind in ((9, "application/grpc+proto"), (11, "application/grpc;charset=utf-8")):
        peer.send(
            frame(HEADERS, END_HEADERS, stream, peer.block(*fields[:2], (":path", "/t/Echo"), ("content-type", kind)))
        )
        peer.send(frame(DATA, END_STREAM, stream, prefixed(b"m")))
        assert peer.answer(stream).messages == [b"m"]


def test_a_server_that_ends_a_call_early_tells_the_client_to_stop(peer: Peer, service: Service) -> None:
    peer.send(peer.head(1, "/t/Chat"))
    service.calls[0].finish(7, "no")
    assert [(one.kind, one.code if one.kind == RST_STREAM else None) for one in peer.read()] == [
        (HEADERS, None), (RST_STREAM, 0),
    ]  # fmt: skip
    assert not peer.send(frame(DATA, 0, 1, prefixed(b"on its way")) + peer.head(1, "/t/Chat"))
    assert not peer.channel.failure


# --- how calls end ----------------------------------------------------------------------------------------------------


def test_a_cancelled_call_is_over_and_its_service_is_told_once(peer: Peer, service: Service) -> None:
    peer.send(peer.call(1, "/t/Wait", b"") + peer.head(3, "/t/Chat"))
    peer.send(reset(1) + reset(3))
    assert [call.is_over for call in service.calls] == [True, True]
    assert service.ended == 2
    for call in service.calls:
        call.send(b"late")
        call.answer(b"late")
        call.finish(5)
    assert not peer.read()
    assert peer.channel.streams == 0


def test_a_lost_connection_ends_its_calls(peer: Peer, service: Service) -> None:
    peer.send(peer.call(1, "/t/Wait", b"") + peer.call(3, "/t/Wait", b""))
    service.calls[0].answer(b"done")
    peer.channel.lost()
    assert service.ended == 1
    service.calls[1].answer(b"late")
    assert not peer.channel.take_output()


def test_deadlines_end_calls(peer: Peer, service: Service) -> None:
    peer.channel.now = 1000.0
    times = {"2S": 2.0, "1500m": 1.5, "1H": 3600.0, "3M": 180.0, "2500000u": 2.5, "90000000n": 0.09}
    for number, text in enumerate(times):
        peer.send(peer.call(2 * number + 1, "/t/Wait", b"", ("grpc-timeout", text)))
    assert [call.deadline for call in service.calls] == pytest.approx([1000 + one for one in times.values()])
    assert peer.connection.wakes == pytest.approx([1002.0, 1001.5, 1000.09])
    peer.channel.expire(1000.1)
    assert peer.connection.wakes[-1] == pytest.approx(1001.5)
    peer.channel.expire(1002.1)
    peer.read()
    assert [peer.answer(stream).status[0] for stream in (1, 3, 11)] == [4, 4, 4]
    assert service.ended == 3
    assert peer.channel.streams == 3


# --- windows ----------------------------------------------------------------------------------------------------------


@form
def test_answers_wait_for_the_windows_of_stream_and_connection(form: ModuleType) -> None:
    service = Service(form)
    peer = Peer(form, service.methods, window=10)
    message = bytes(range(256)) * 300
    peer.send(peer.call(1, "/t/Wait", b""))
    call = service.calls[0]
    call.answer(message)
    assert [(one.kind, len(one.payload)) for one in peer.read()][1:] == [(DATA, 10)]
    assert call.unsent == 5 + len(message) - 10
    assert peer.channel.unsent == call.unsent
    sizes = [len(one.payload) for one in peer.send(window_update(1, 1_000_000)) if one.kind == DATA]
    assert sum(sizes) == 65535 - 10, "the window of the connection"
    assert max(sizes) <= 16384
    peer.send(window_update(0, 1_000_000))
    assert peer.answer(1).messages == [message]
    assert call.unsent == peer.channel.unsent == peer.channel.streams == 0


@form
def test_a_change_of_the_first_window_is_one_of_open_streams(form: ModuleType) -> None:
    service = Service(form)
    peer = Peer(form, service.methods, window=100)
    peer.send(peer.call(1, "/t/Wait", b""))
    service.calls[0].answer(bytes(195))
    assert len(peer.read()[-1].payload) == 100
    assert not [one for one in peer.send(settings(window=60)) if one.kind == DATA], "it is −40 now"
    assert not peer.send(window_update(1, 40))
    assert len(peer.send(settings(window=70))[-1].payload) == 10
    peer.send(settings(window=1000))
    assert peer.answer(1).messages == [bytes(195)]


@form
def test_streams_take_turns(form: ModuleType) -> None:
    service = Service(form)
    peer = Peer(form, service.methods, window=1 << 20)
    peer.send(peer.call(1, "/t/Wait", b"") + peer.call(3, "/t/Wait", b""))
    for call in service.calls:
        call.answer(bytes(200_000))
    peer.read()
    order = [one.stream for one in peer.send(window_update(0, 65536)) if one.kind == DATA]
    assert order == [1, 3, 1, 3]


@form
async def test_a_service_waits_until_its_answers_have_left(form: ModuleType) -> None:
    service = Service(form)
    peer = Peer(form, service.methods, window=10)
    peer.send(peer.call(1, "/t/Wait", b"") + peer.call(3, "/t/Wait", b""))
    one, other = service.calls
    await one.drained()
    one.send(bytes(20))
    other.send(bytes(20))
    waits, cancelled = one.drained(), other.drained()
    assert not waits.done()
    peer.send(window_update(1, 100))
    assert waits.done()
    peer.send(reset(3))
    assert cancelled.done()
    assert other.is_over


@form
def test_a_peer_that_does_not_read_is_ended(form: ModuleType) -> None:
    service = Service(form)
    peer = Peer(form, service.methods, window=0)
    peer.send(peer.call(1, "/t/Wait", b""))
    service.calls[0].send(bytes(1 << 21))
    assert not peer.connection.unread
    service.calls[0].send(bytes(1 << 21))
    assert peer.connection.unread == 2 * (5 + (1 << 21))


@form
def test_a_stopped_connection_takes_no_more_calls_and_queues_no_more_answers(form: ModuleType) -> None:
    service = Service(form)
    service.methods["/t/Large"] = form.Unary(lambda call, message: call.send(bytes(1 << 21)))
    peer = Peer(form, service.methods, window=0)
    peer.send(peer.call(1, "/t/Wait", b""))
    peer.connection.end_unread = lambda unsent: peer.channel.stop("does not read")  # type: ignore[method-assign]
    calls = b"".join(peer.call(stream, "/t/Large", b"") for stream in (3, 5, 7, 9)) + peer.call(11, "/t/Wait", b"")
    peer.send(calls)
    assert peer.channel.failure == "does not read"
    assert peer.channel.unsent == 2 * (5 + (1 << 21))
    service.calls[0].send(bytes(1 << 21))
    assert peer.channel.unsent == 2 * (5 + (1 << 21))
    assert len(service.calls) == 1


@form
def test_answers_that_wait_are_dropped_at_the_deadline(form: ModuleType) -> None:
    service = Service(form)
    peer = Peer(form, service.methods, window=0)
    peer.channel.now = 1000.0
    for stream in (1, 3):
        peer.send(peer.call(stream, "/t/Wait", b"", ("grpc-timeout", "2S")))
        service.calls[-1].send(bytes(1000))
    service.calls[0].finish()
    peer.channel.expire(1001.0)
    assert peer.connection.wakes[-1] == pytest.approx(1002.0)
    assert peer.channel.unsent == 2 * 1005
    peer.channel.expire(1002.1)
    assert [(one.kind, one.stream) for one in peer.read() if one.kind == RST_STREAM] == [
        (RST_STREAM, 1),
        (RST_STREAM, 3),
    ]
    assert (peer.channel.unsent, peer.channel.streams) == (0, 0)
    assert service.ended == 1


@form
def test_a_service_is_told_once_that_answers_are_lost_also_those_of_a_finished_call(form: ModuleType) -> None:
    service = Service(form)
    peer = Peer(form, service.methods, window=1005)
    lost: list[int] = []
    for stream in (1, 3, 5, 7):
        peer.send(peer.call(stream, "/t/Wait", b""))
        call = service.calls[-1]
        call.on_lost = lambda number=stream: lost.append(number)
        call.send(bytes(1000))
        if stream != 1:
            call.send(bytes(1000))
        if stream != 7:
            call.finish()
    peer.send(reset(3))
    assert lost == [3]
    peer.channel.stop("does not answer")
    service.calls[3].finish()
    peer.channel.lost()
    assert lost == [3, 5, 7]
    assert service.ended == 0


@form
def test_a_client_that_keeps_to_its_windows_is_never_stuck(form: ModuleType) -> None:
    service = Service(form)
    peer = Peer(form, service.methods)
    sent = prefixed(bytes(1 << 20)) * 12
    windows = {0: 65535, 1: 65535}
    peer.send(peer.head(1, "/t/Chat"))
    place = 0
    while place < len(sent):
        for one in peer.seen:
            if one.kind == WINDOW_UPDATE:
                windows[one.stream] += int.from_bytes(one.payload, "big")
            elif one.kind == SETTINGS and not one.flags & ACK:
                names = {
                    int.from_bytes(one.payload[at : at + 2], "big"): at + 2 for at in range(0, len(one.payload), 6)
                }
                windows[1] += int.from_bytes(one.payload[names[4] : names[4] + 4], "big") - 65535
        peer.seen.clear()
        size = min(16384, windows[0], windows[1], len(sent) - place)
        assert size > 0, f"stuck behind {place} bytes"
        peer.send(frame(DATA, 0, 1, sent[place : place + size]))
        windows = {stream: window - size for stream, window in windows.items()}
        place += size
    assert [len(one or b"") for one in service.got] == [1 << 20] * 12
    assert peer.connection.kept_bytes == 0


def test_what_is_not_whole_is_counted(peer: Peer, service: Service) -> None:
    peer.send(peer.head(1, "/t/Wait") + frame(DATA, 0, 1, prefixed(bytes(100_000))[:16000]))
    assert peer.connection.kept_bytes == 0, "so little is not"
    peer.send(frame(DATA, 0, 1, bytes(16000)))
    assert peer.connection.kept_bytes == 32000
    peer.send(reset(1))
    assert peer.connection.kept_bytes == 0


def test_whole_messages_of_calls_that_are_not_ended_are_counted_as_they_came(peer: Peer, service: Service) -> None:
    packed = gzip.compress(b"x" * 1_000_000) + bytes(10_000)
    for stream in range(1, 9, 2):
        head = peer.head(stream, "/t/Wait", ("grpc-encoding", "gzip"))
        peer.send(head + frame(DATA, 0, stream, prefixed(packed, 1)))
    assert peer.connection.kept_bytes == 4 * len(packed)
    peer.send(frame(DATA, END_STREAM, 1))
    assert [len(one or b"") for one in service.got] == [1_000_000]
    assert peer.connection.kept_bytes == 3 * len(packed)
    peer.send(reset(3) + reset(5))
    peer.send(frame(DATA, 0, 7, prefixed(b"one more")))
    assert peer.answer(7).status == (13, "Too many requests")
    assert peer.connection.kept_bytes == len(packed) < 16384, "what little is left is not said"


def test_unpacking_counts_for_the_turn_of_a_connection(peer: Peer, service: Service) -> None:
    packed = prefixed(gzip.compress(bytes(1_000_000)), 1)
    calls = b"".join(
        peer.head(stream, "/t/Wait", ("grpc-encoding", "gzip")) + frame(DATA, END_STREAM, stream, packed)
        for stream in range(1, 41, 2)
    )
    peer.channel.receive(bytearray(calls), 0, len(calls))
    assert peer.channel.is_resting
    assert 5 < len(service.got) < 12


def test_a_held_connection_sends_no_data(peer: Peer, service: Service) -> None:
    peer.send(peer.call(1, "/t/Wait", b"") + peer.call(3, "/t/Echo", b"echo"))
    peer.channel.hold(True)
    service.calls[0].answer(b"a")
    assert [one.kind for one in peer.read()] == [HEADERS]
    peer.channel.hold(False)
    peer.read()
    assert peer.answer(1).messages == [b"a"]


# --- errors of the peer -----------------------------------------------------------------------------------------------

CONNECTION_ERRORS: dict[str, tuple[Callable[[Peer], bytes], int]] = {
    "a frame that is too large": (lambda peer: frame(DATA, 0, 1, bytes(16385)), FRAME_SIZE_ERROR),
    "data on stream 0": (lambda peer: frame(DATA, 0, 0, b"x"), PROTOCOL_ERROR),
    "data on a stream that was never opened": (lambda peer: frame(DATA, 0, 5, b"x"), PROTOCOL_ERROR),
    "padding longer than its frame": (
        lambda peer: peer.head(1, "/t/Chat") + frame(DATA, PADDED, 1, b"\5abc"),
        PROTOCOL_ERROR,
    ),
    "a stream of the server's": (lambda peer: peer.head(2, "/t/Echo"), PROTOCOL_ERROR),
    "a number that goes back": (lambda peer: peer.call(5, "/t/Echo", b"") + peer.head(3, "/t/Echo"), STREAM_CLOSED),
    "a block within a block": (lambda peer: peer.head(1, "/t/Echo", flags=0) + peer.head(3, "/t/Echo"), PROTOCOL_ERROR),
    "a block that another stream goes on with": (
        lambda peer: peer.head(1, "/t/Echo", flags=0) + frame(CONTINUATION, END_HEADERS, 3),
        PROTOCOL_ERROR,
    ),
    "a continuation of nothing": (lambda peer: frame(CONTINUATION, END_HEADERS, 1), PROTOCOL_ERROR),
    "a block that is none": (lambda peer: frame(HEADERS, END_HEADERS, 1, b"\x80"), COMPRESSION_ERROR),
    "a stream that depends on itself": (
        lambda peer: frame(HEADERS, END_HEADERS | PRIORITIZED, 1, b"\0\0\0\1\0"),
        PROTOCOL_ERROR,
    ),
    "a priority cut short": (lambda peer: frame(HEADERS, END_HEADERS | PRIORITIZED, 1, b"\0\0"), FRAME_SIZE_ERROR),
    "a priority of the connection": (lambda peer: frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL_ERROR),
    "a reset of the connection": (lambda peer: reset(0), PROTOCOL_ERROR),
    "a reset of a stream that was never opened": (lambda peer: reset(7), PROTOCOL_ERROR),
    "a reset of another size": (lambda peer: frame(RST_STREAM, 0, 1, b"abc"), FRAME_SIZE_ERROR),
    "settings of a stream": (lambda peer: frame(SETTINGS, 0, 1), PROTOCOL_ERROR),
    "settings cut short": (lambda peer: frame(SETTINGS, 0, 0, b"\0\4\0"), FRAME_SIZE_ERROR),
    "an acknowledgement with settings": (lambda peer: frame(SETTINGS, ACK, 0, bytes(6)), FRAME_SIZE_ERROR),
    "push neither on nor off": (lambda peer: settings(push=2), PROTOCOL_ERROR),
    "a first window that is too large": (lambda peer: settings(window=1 << 31), FLOW_CONTROL_ERROR),
    "frames that are too small": (lambda peer: settings(frame_size=16383), PROTOCOL_ERROR),
    "frames that are too large": (lambda peer: settings(frame_size=1 << 24), PROTOCOL_ERROR),
    "a promise": (lambda peer: frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)), PROTOCOL_ERROR),
    "a ping of a stream": (lambda peer: frame(PING, 0, 1, bytes(8)), PROTOCOL_ERROR),
    "a ping of another size": (lambda peer: frame(PING, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    "a farewell of a stream": (lambda peer: frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL_ERROR),
    "a window of another size": (lambda peer: frame(WINDOW_UPDATE, 0, 0, bytes(3)), FRAME_SIZE_ERROR),
    "a window by nothing": (lambda peer: window_update(0, 0), PROTOCOL_ERROR),
    "a window that is too large": (lambda peer: window_update(0, (1 << 31) - 1), FLOW_CONTROL_ERROR),
    "a window of a stream that was never opened": (lambda peer: window_update(9, 1), PROTOCOL_ERROR),
}


@pytest.mark.parametrize("name", CONNECTION_ERRORS)
def test_an_error_of_the_connection_ends_it_with_its_code(peer: Peer, service: Service, name: str) -> None:
    make, code = CONNECTION_ERRORS[name]
    last = peer.send(make(peer))[-1]
    assert last.kind == GOAWAY
    assert last.code == code, last.payload[8:]
    assert peer.channel.failure
    assert not peer.send(peer.call(99, "/t/Echo", b"")), "nothing more is taken"


@form
def test_a_connection_that_does_not_begin_as_it_must(form: ModuleType) -> None:
    for start in (b"GET / HTTP/1.1\r\n\r\n", PREFACE[:10] + b"x", PREFACE + frame(PING, 0, 0, bytes(8))):
        peer = Peer(form, {})
        peer.channel = form.GrpcChannel(peer.connection, {}, 1 << 20, 1 << 22)
        assert peer.send(start)[-1].code == PROTOCOL_ERROR


STREAM_ERRORS: dict[str, tuple[Callable[[Peer], bytes], int]] = {
    "data behind the end": (
        lambda peer: frame(DATA, END_STREAM, 1, prefixed(b"x")) + frame(DATA, 0, 1, b"x"),
        STREAM_CLOSED,
    ),
    "fields behind the end": (
        lambda peer: frame(DATA, END_STREAM, 1, prefixed(b"x")) + peer.head(1, "/t/Wait"),
        STREAM_CLOSED,
    ),
    "trailers that are not the end": (
        lambda peer: frame(HEADERS, END_HEADERS, 1, peer.block(("x", "y"))),
        PROTOCOL_ERROR,
    ),
    "trailers with a pseudo field": (
        lambda peer: frame(HEADERS, END_HEADERS | END_STREAM, 1, peer.block((":path", "/"))),
        PROTOCOL_ERROR,
    ),
    "a window by nothing": (lambda peer: window_update(1, 0), PROTOCOL_ERROR),
    "a window that is too large": (lambda peer: window_update(1, (1 << 31) - 1), FLOW_CONTROL_ERROR),
    "a priority of another size": (lambda peer: frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
    "a priority of itself": (lambda peer: frame(PRIORITY, 0, 1, b"\0\0\0\1\0"), PROTOCOL_ERROR),
}


@pytest.mark.parametrize("name", STREAM_ERRORS)
def test_an_error_of_a_stream_resets_it_with_its_code(peer: Peer, service: Service, name: str) -> None:
    make, code = STREAM_ERRORS[name]
    peer.send(peer.head(1, "/t/Wait"))
    last = peer.send(make(peer))[-1]
    assert (last.kind, last.stream, last.code) == (RST_STREAM, 1, code)
    assert service.ended == len(service.calls), "a call that was handed over hears of its end"
    assert peer.channel.streams == 0
    peer.send(peer.call(3, "/t/Echo", b"still here"))
    assert peer.answer(3).messages == [b"still here"]


MALFORMED = {
    "no method": [(":scheme", "http"), (":path", "/t/Echo")],
    "no scheme": [(":method", "POST"), (":path", "/t/Echo")],
    "no path": [(":method", "POST"), (":scheme", "http")],
    "an empty path": [(":method", "POST"), (":scheme", "http"), (":path", "")],
    "two paths": [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":path", "/b")],
    "a pseudo field behind others": [(":method", "POST"), (":scheme", "http"), ("x", "y"), (":path", "/t/Echo")],
    "a pseudo field of answers": [(":method", "POST"), (":scheme", "http"), (":path", "/t/Echo"), (":status", "200")],
    "a field of HTTP/1": [(":method", "POST"), (":scheme", "http"), (":path", "/"), ("connection", "close")],
    "te of another kind": [(":method", "POST"), (":scheme", "http"), (":path", "/"), ("te", "gzip")],
    "a length that is no number": [(":method", "POST"), (":scheme", "http"), (":path", "/"), ("content-length", "x")],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_resets_its_stream(peer: Peer, name: str) -> None:
    (last,) = peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, peer.block(*MALFORMED[name])))
    assert (last.kind, last.stream, last.code) == (RST_STREAM, 1, PROTOCOL_ERROR)
    assert not peer.channel.failure


def test_a_body_of_another_length_than_was_said(peer: Peer, service: Service) -> None:
    for stream, length, is_fine in ((1, "6", True), (3, "7", False), (5, "5", False)):
        peer.send(peer.head(stream, "/t/Wait", ("content-length", length)))
        came = peer.send(frame(DATA, END_STREAM, stream, prefixed(b"x")))
        assert [one.code for one in came] == ([] if is_fine else [PROTOCOL_ERROR])
    assert len(service.calls) == 1


# --- hostile peers ----------------------------------------------------------------------------------------------------


def test_data_of_a_stream_that_is_over_is_taken_from_the_windows(peer: Peer, service: Service) -> None:
    piece = frame(DATA, 0, 1, bytes(16384))
    peer.send(peer.head(1, "/t/Nothing"))
    came = [one for _ in range(600) for one in peer.send(piece)]
    assert {(one.kind, one.stream) for one in came} == {(WINDOW_UPDATE, 0)}


@form
def test_data_beyond_the_window_of_a_stream_resets_it(form: ModuleType) -> None:
    service = Service(form)
    peer = Peer(form, service.methods, window=0)
    peer.send(peer.head(1, "/t/Chat"))
    service.calls[0].send(b"waits")
    service.calls[0].finish(5)
    for _ in range(64):
        peer.send(frame(DATA, 0, 1, bytes(16384)))
    last = peer.send(frame(DATA, 0, 1, b"x"))[-1]
    assert (last.kind, last.code) == (RST_STREAM, FLOW_CONTROL_ERROR)
    assert peer.channel.unsent == peer.channel.streams == 0


def test_streams_above_the_limit_are_refused(peer: Peer, service: Service) -> None:
    for stream in range(1, 2 * 2048, 2):
        peer.send(peer.head(stream, "/t/Wait"))
    (last,) = peer.send(peer.head(4097, "/t/Wait"))
    assert (last.kind, last.code) == (RST_STREAM, REFUSED_STREAM)
    peer.send(reset(1))
    peer.send(peer.call(4099, "/t/Echo", b"again"))
    assert peer.answer(4099).messages == [b"again"]


FLOODS: dict[str, Callable[[Peer, int], bytes]] = {
    "pings": lambda peer, number: frame(PING, 0, 0, bytes(8)),
    "settings": lambda peer, number: settings(window=65535),
    "empty data": lambda peer, number: frame(DATA, 0, 1),
    "priorities": lambda peer, number: frame(PRIORITY, 0, 3, bytes(5)),
    "unknown frames": lambda peer, number: frame(99, 0, 0),
    "windows that nobody needs": lambda peer, number: window_update(1, 1),
    "resets": lambda peer, number: peer.head(2 * number + 3, "/t/Wait") + reset(2 * number + 3),
    "streams that must be reset": lambda peer, number: (
        peer.head(2 * number + 3, "/t/Wait") + window_update(2 * number + 3, 0)
    ),
    "data on streams that are gone": lambda peer, number: (
        peer.call(2 * number + 3, "/t/Echo", b"") + frame(DATA, 0, 2 * number + 3, b"x")
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_ended(peer: Peer, name: str) -> None:
    peer.send(peer.head(1, "/t/Chat"))
    for number in range(20_000):
        came = peer.send(FLOODS[name](peer, number))
        if peer.channel.failure:
            break
    assert (came[-1].kind, came[-1].code) == (GOAWAY, ENHANCE_YOUR_CALM)


@pytest.mark.parametrize("name", ["pings", "resets"])
def test_what_a_client_does_now_and_then_is_no_flood(peer: Peer, name: str) -> None:
    for number in range(15_000):
        if number % 50 == 0:
            peer.channel.tick()
        peer.send(FLOODS[name](peer, number))
    assert not peer.channel.failure


def test_windows_and_pings_that_go_with_traffic_are_no_flood(peer: Peer, service: Service) -> None:
    """As clients do that measure their line, and give back the windows of what they read."""
    peer.send(peer.head(1, "/t/Chat"))
    for number in range(4_000):
        stream = 2 * number + 3
        peer.send(peer.call(stream, "/t/Echo", b"m") + window_update(stream, 100) + window_update(0, 100))
        service.calls[0].send(bytes(1000))
        peer.send(window_update(1, 1000) + window_update(0, 1000) + frame(PING, 0, 0, bytes(8)))
        peer.seen.clear()
        assert not peer.channel.failure, number


def test_a_header_block_without_end_is_ended(peer: Peer) -> None:
    peer.send(peer.head(1, "/t/Echo", flags=0))
    sent = 0
    while not peer.channel.failure:
        came = peer.send(frame(CONTINUATION, 0, 1, b"\x00\x01x\x01y" * 200))
        sent += 1000
    assert came[-1].code == ENHANCE_YOUR_CALM
    assert sent < 40_000


def test_header_fields_that_are_too_large_are_answered_so(peer: Peer) -> None:
    peer.send(frame(HEADERS, END_HEADERS, 1, b"\x40\x01x\x7f\x81\x1e" + b"v" * 3968))
    came = peer.send(frame(HEADERS, END_HEADERS, 3, b"\xbe" * 10_000))
    assert peer.answer(3).fields == {":status": "431"}
    assert came[-1].kind == RST_STREAM
    peer.send(peer.call(5, "/t/Echo", b"x"))
    assert peer.answer(5).messages == [b"x"]


# --- farewell ---------------------------------------------------------------------------------------------------------


def test_a_drained_connection_serves_what_was_begun(peer: Peer, service: Service) -> None:
    peer.send(peer.call(1, "/t/Wait", b""))
    peer.channel.drain()
    first, ping = peer.read()
    assert (first.kind, first.code, first.payload[:4]) == (GOAWAY, 0, b"\x7f\xff\xff\xff")
    peer.send(peer.call(3, "/t/Wait", b""))
    (last,) = peer.send(frame(PING, ACK, 0, ping.payload))
    assert (last.kind, last.code, last.payload[:4]) == (GOAWAY, 0, b"\0\0\0\3")
    assert not peer.send(peer.call(5, "/t/Wait", b"")), "nobody serves it, and the client knows"
    peer.send(b"".join(peer.head(stream, "/t/Wait") for stream in range(7, 7 + 2 * 300, 2)))
    assert not peer.send(frame(DATA, 0, 605, b"x"))
    assert [one.kind for one in peer.send(frame(DATA, 0, 7, b"x"))] == [RST_STREAM], "few are remembered"
    assert len(service.calls) == 2
    service.calls[0].answer(b"a")
    assert not peer.channel.is_drained
    service.calls[1].answer(b"b")
    assert peer.channel.is_drained
    peer.read()
    assert [peer.answer(stream).messages for stream in (1, 3)] == [[b"a"], [b"b"]]
