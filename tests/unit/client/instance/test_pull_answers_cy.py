"""Answers to pulls are scanned as `decode_frame` reads them, in both forms; requests are those of the slow path."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.client.instance.pull_stream import json_frame, json_pieces
from maxq.codes import RequestCode
from maxq.errors import RemoteProtocolError
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType, decode_frame
from tests.unit.both_forms import both

FORMS = both("maxq.client.instance.pull_answers_cy")
FIELDS = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")


class Stream:
    def __init__(self, takes: bool) -> None:
        self.takes = takes
        self.taken: list[tuple[Any, ...]] = []
        self.memory: list[object] = []  # in which the records were

    def found(self, *answer: Any) -> bool:
        self.memory.append(answer[4].obj)
        self.taken.append((*answer[:4], bytes(answer[4])))
        return self.takes


class Connection:
    is_held_back = False

    def __init__(self, waiters: dict[int, Any]) -> None:
        self.waiters = waiters


numbers = st.one_of(st.integers(0, 2**40).map(str), st.sampled_from(["", "x", "-1", "9" * 30]))
answers = st.builds(
    RemotingCommand,
    code=st.sampled_from([0, 0, 0, 19, 1]),
    ext=st.dictionaries(st.sampled_from([*FIELDS, "topicSysFlag", "offsetDelta", "ä\n"]), numbers, max_size=6),
    body=st.one_of(st.none(), st.binary(max_size=20)),
    remark=st.sampled_from([None, "FOUND", 'with "quotes"']),
    opaque=st.integers(0, 3),
    flag=st.sampled_from([1, 1, 1, 0]),
    serialize_type=st.sampled_from(SerializeType),
)


def read(frame: bytes) -> tuple[int, tuple[Any, ...]] | None:
    """Opaque and fields of an answer that found something; None: it is none, or its numbers are none."""
    answer = decode_frame(frame[4:])
    if answer.code != 0 or not answer.is_response or answer.is_oneway or "nextBeginOffset" not in answer.ext:
        return None
    try:
        found = [int(answer.ext.get(name, "0")) for name in FIELDS]
    except ValueError:
        return None
    return answer.opaque, (*found, answer.body_bytes)


def is_plain(command: RemotingCommand) -> bool:
    """Whether an answer is one that must be taken without an object for its frame."""
    ext = command.ext
    if command.serialize_type is SerializeType.ROCKETMQ and (command.remark or "" in ext.values()):
        return False
    if "nextBeginOffset" not in ext or {"ä\n", "offsetDelta"} & ext.keys():
        return False
    return all(text.isdigit() and len(text) < 19 for text in ext.values())


@given(st.lists(answers, max_size=4), st.booleans(), st.integers(0, 40))
def test_the_leading_answers_are_given_to_their_streams(commands: list[RemotingCommand], takes: bool, cut: int) -> None:
    frames = [command.encode() for command in commands]
    data = b"".join(frames)
    end = max(0, len(data) - cut)
    most: list[tuple[Any, ...]] = []  # which of them may be taken
    least, position = 0, 0
    for command, frame in zip(commands, frames, strict=True):
        position += len(frame)
        known = read(frame)
        if position > end or known is None or known[0] > 1 or (most and not takes):
            break
        least += least == len(most) and is_plain(command)
        most.append(known[1])
    for form in FORMS:
        stream = Stream(takes)
        connection = Connection({0: stream, 1: stream, 2: object()})
        memory = bytearray(7) + data
        begun = form.PullAnswerReader(Stream).take(connection, memory, 7, 7 + end)
        assert all(one is memory for one in stream.memory)  # so it is told that they need not be copied
        count = len(stream.taken)
        assert least <= count
        assert stream.taken == most[:count]
        assert begun - 7 == (sum(map(len, frames[:count])) if takes else 0)


@given(st.binary(max_size=80))
def test_whatever_comes_nothing_is_taken_that_is_no_answer(data: bytes) -> None:
    for form in FORMS:
        stream = Stream(True)
        begun = form.PullAnswerReader(Stream).take(Connection({0: stream}), bytearray(data or b"\0"), 0, len(data))
        assert 0 <= begun <= len(data)
        assert bool(begun) == bool(stream.taken)
        if begun:
            try:
                assert read(data[: 4 + int.from_bytes(data[:4], "big")]) is not None
            except RemoteProtocolError:
                pytest.fail("taken, and no frame")


@given(
    st.dictionaries(
        st.sampled_from(["consumerGroup", "topic", "subscription", "bname"]), st.text(max_size=9), min_size=1
    ),
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63 - 1), st.integers(0, 31)),
    st.integers(0, 2**31 - 1),
)
def test_requests_are_those_of_the_general_way(
    header: dict[str, str], changing: tuple[int, int, int], opaque: int
) -> None:
    header = {name: value.encode("utf-8", "replace").decode() for name, value in header.items()}
    offset, commit, flag = map(str, changing)
    ext = {**header, "queueOffset": offset, "commitOffset": commit, "sysFlag": flag}
    general = RemotingCommand(RequestCode.LITE_PULL_MESSAGE, ext, opaque=opaque)
    frame = json_frame(json_pieces(RequestCode.LITE_PULL_MESSAGE, header), changing, opaque)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_frame(frame[4:]) == decode_frame(general.encode()[4:])
