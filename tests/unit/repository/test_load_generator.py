"""The generator's own frames, held against the protocol's codec, which the generator itself must not use."""

import pytest
from benches.load.frames import OPAQUE_BASE, SendRing, code_and_opaque, encode, ext_field
from benches.load.histogram import Histogram

from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType, decode_frame
from maxq.protocol.message.message import decode_batch, decode_properties


def ring(batch: int = 1, binary: bool = False, size: int = 100) -> SendRing:
    return SendRing(topic="T", queues=4, connection=3, size=size, batch=batch, count=16, binary=binary, now_ms=1)


def frames(made: SendRing) -> list[RemotingCommand]:
    length = made.frame_length
    return [decode_frame(made.view[i * length + 4 : (i + 1) * length]) for i in range(made.count)]


@pytest.mark.parametrize("binary", [False, True])
def test_ring_holds_sends_with_their_own_opaque_queue_and_key(binary: bool) -> None:
    commands = frames(ring(binary=binary))
    assert [command.code for command in commands] == [310] * 16
    assert [command.opaque for command in commands] == list(range(OPAQUE_BASE, OPAQUE_BASE + 16))
    assert {command.ext["e"] for command in commands} == {"0", "1", "2", "3"}
    keys = {decode_properties(command.ext["i"])["UNIQ_KEY"] for command in commands}
    assert len(keys) == 16 and all(command.body_length == 100 for command in commands)


def test_passes_over_the_ring_have_different_unique_keys_and_the_same_rest() -> None:
    made = ring()
    first = [decode_properties(command.ext["i"]) for command in frames(made)]
    made.start_pass(7)
    second = [decode_properties(command.ext["i"]) for command in frames(made)]
    assert not {found["UNIQ_KEY"] for found in first} & {found["UNIQ_KEY"] for found in second}
    assert [found["KEYS"] for found in first] == [found["KEYS"] for found in second]


def test_batches_decode_to_their_messages_and_every_body_is_stamped() -> None:
    made = ring(batch=5)
    made.stamp(2, 0x0102030405060708)
    messages = decode_batch(frames(made)[2].body_bytes, "T")
    assert len(messages) == 5 and len({message.uniq_key for message in messages}) == 5
    assert {bytes(message.body[:8]) for message in messages} == {bytes(range(1, 9))}


@pytest.mark.parametrize("kind", list(SerializeType))
def test_answers_are_read_without_the_codec(kind: SerializeType) -> None:
    request = RemotingCommand(310, opaque=1234567, serialize_type=kind)
    frame = bytearray(request.reply(19, "a remark", {"nextBeginOffset": "77", "x": "é"}).encode())
    assert code_and_opaque(frame, 0) == (19, 1234567)
    assert (ext_field(frame, "nextBeginOffset"), ext_field(frame, "x"), ext_field(frame, "y")) == ("77", "é", None)


def test_single_requests_decode() -> None:
    command = decode_frame(encode(5, 17, {"topic": "é"}, b"body", binary=False)[4:])
    assert (command.code, command.opaque, command.ext, command.body_bytes) == (17, 5, {"topic": "é"}, b"body")


def test_histogram_quantiles_are_near() -> None:
    histogram = Histogram()
    for micros in range(1, 10_001):
        histogram.add(micros * 1000)
    for share in (0.5, 0.99, 0.999):
        assert histogram.quantile(share) == pytest.approx(share * 10_000, rel=0.02)
    assert Histogram().quantile(0.5) == 0.0
