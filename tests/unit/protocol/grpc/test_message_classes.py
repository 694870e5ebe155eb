"""The classes of RocketMQ's gRPC messages, and whether they are those of the proto files."""

import subprocess

import pytest

from maxq.protocol.grpc import messages as pb
from tests.unit.protocol.grpc import message_classes


def test_classes_and_stub_are_those_that_the_proto_files_give() -> None:
    try:
        serialized = message_classes.descriptors()
    except subprocess.CalledProcessError:
        serialized = pb.FILES.SerializeToString()  # no protoc: their texts at least
    for path, text in message_classes.files(serialized):
        assert path.read_text() == text, f"{path} is not fresh: python -m tests.unit.protocol.grpc.message_classes"


def test_a_message_is_read_as_it_was_written() -> None:
    sent = pb.Message(
        topic=pb.Resource(name="orders"),
        user_properties={"colour": "green"},
        system_properties=pb.SystemProperties(tag="a", keys=["k"], born_timestamp=pb.Timestamp(seconds=1, nanos=2)),
        body=b"hello",
    )
    read = pb.Message.FromString(sent.SerializeToString())
    assert read == sent
    assert (read.topic.name, dict(read.user_properties), read.body) == ("orders", {"colour": "green"}, b"hello")
    assert (read.system_properties.tag, list(read.system_properties.keys)) == ("a", ["k"])
    assert not read.system_properties.HasField("queue_offset")


def test_the_messages_are_not_in_the_pool_that_official_clients_register_theirs_in() -> None:
    from google.protobuf import descriptor_pool

    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("apache.rocketmq.v2.Message")
