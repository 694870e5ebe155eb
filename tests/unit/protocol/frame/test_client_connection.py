"""The asking side of a connection: what goes out comes back to whoever waits for it, however the bytes are cut."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.errors import RemoteProtocolError, RemotingSendError
from maxq.protocol.frame.client_connection import AnswerHead, Asked, ClientConnection
from maxq.protocol.frame.remoting_command import RESPONSE_FLAG, RemotingCommand, SerializeType, decode_frame


def answer(opaque: int, body: bytes, kind: SerializeType = SerializeType.JSON) -> bytes:
    command = RemotingCommand(0, {"n": str(opaque)}, body or None, opaque=opaque, flag=RESPONSE_FLAG)
    command.serialize_type = kind
    return command.encode()


def events(connection: ClientConnection[str], pieces: list[bytes]) -> Iterator[tuple[AnswerHead | Asked, bytes]]:
    """Drive the connection as one would who reads a socket: events with their bodies."""
    left = [piece for piece in pieces if piece]
    while True:
        event = connection.next_event()
        if event is None:
            if not left:
                return
            connection.receive_data(left.pop(0))
            continue
        body = bytearray(event.body_size)
        done = connection.take_body(memoryview(body))
        while done < len(body):
            piece = left.pop(0)
            taken = piece[: len(body) - done]
            body[done : done + len(taken)] = taken
            done += len(taken)
            if rest := piece[len(taken) :]:
                left.insert(0, rest)
        yield event, bytes(body)


@given(
    bodies=st.lists(st.binary(max_size=40), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 2_000)),
    kind=st.sampled_from(SerializeType),
)
def test_answers_come_back_to_who_waits_in_any_order_and_cut_anywhere(
    bodies: list[bytes], cuts: list[int], kind: SerializeType
) -> None:
    connection: ClientConnection[str] = ClientConnection("a:1")
    frames = [b"".join(connection.request(RemotingCommand(11), f"waiter {n}")) for n in range(len(bodies))]
    opaques = [decode_frame(frame[4:]).opaque for frame in frames]
    assert len(set(opaques)) == len(connection) == connection.requests == len(bodies)
    order = sorted(range(len(bodies)), key=lambda n: bodies[n])
    stream = b"".join(answer(opaques[n], bodies[n], kind) for n in order)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = [stream[start:end] for start, end in pairwise(places)]
    found = list(events(connection, pieces))
    assert [(event.waiter, body) for event, body in found if isinstance(event, AnswerHead)] == [
        (f"waiter {n}", bodies[n]) for n in order
    ]
    assert len(connection) == 0


def test_an_answer_that_nobody_waits_for_and_a_servers_own_request_are_told_apart() -> None:
    connection: ClientConnection[str] = ClientConnection("a:1")
    first = RemotingCommand(11)
    connection.request(first, "first")
    connection.forget(first.opaque)
    notice = RemotingCommand(40, {"consumerGroup": "G"}, b"who")
    found = list(events(connection, [notice.encode() + answer(first.opaque, b"late")]))
    assert isinstance(found[0][0], Asked)
    assert (found[0][0].command.code, found[0][1]) == (40, b"who")
    assert isinstance(found[1][0], AnswerHead)
    assert (found[1][0].waiter, found[1][1]) == (None, b"late")


def test_a_body_that_nobody_takes_is_passed_over() -> None:
    connection: ClientConnection[str] = ClientConnection("a:1")
    commands = [RemotingCommand(11), RemotingCommand(11)]
    for command in commands:
        connection.request(command, str(command.opaque))
    stream = answer(commands[0].opaque, bytes(100)) + answer(commands[1].opaque, b"")
    waiters = []
    for place in range(len(stream)):
        connection.receive_data(stream[place : place + 1])
        if (event := connection.next_event()) is not None:
            assert isinstance(event, AnswerHead)
            waiters.append(event.command.opaque)
    assert waiters == [command.opaque for command in commands]


def test_there_is_a_bound_of_requests_that_wait_and_one_way_ones_do_not_count() -> None:
    connection: ClientConnection[str] = ClientConnection("a:1", limit=2)
    oneway = RemotingCommand(10)
    assert decode_frame(b"".join(connection.oneway(oneway))[4:]).is_oneway
    connection.request(RemotingCommand(11), "one")
    connection.request(RemotingCommand(11), "two")
    with pytest.raises(RemotingSendError, match="2 requests wait for answers of <a:1>, which is the limit"):
        connection.request(RemotingCommand(11), "three")
    assert connection.end() == ["one", "two"]
    connection.request(RemotingCommand(11), "three")
    assert connection.requests == 3


def test_a_request_that_cannot_be_encoded_is_not_waited_for() -> None:
    connection: ClientConnection[str] = ClientConnection("a:1")
    with pytest.raises(Exception, match="cannot be written"):
        connection.request(RemotingCommand(11, {"topic": "\ud800"}), "nobody")
    assert (len(connection), connection.requests) == (0, 0)


@given(st.binary(max_size=64))
def test_any_bytes_at_all_are_frames_or_a_protocol_error(data: bytes) -> None:
    connection: ClientConnection[str] = ClientConnection("a:1")
    connection.receive_data(data)
    try:
        while connection.next_event() is not None:
            pass
    except RemoteProtocolError:
        pass
