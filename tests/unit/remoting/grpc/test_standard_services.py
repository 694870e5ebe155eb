"""Health and reflection, by messages that a client makes of the descriptors it was told."""

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from maxq.protocol.grpc.messages import FILES
from maxq.remoting.grpc import call_cy
from maxq.remoting.grpc.health import Health
from maxq.remoting.grpc.reflection import Reflection
from maxq.remoting.grpc.standard_services import health_file, message_classes, reflection_file
from tests.unit.remoting.grpc.http2_peer import DATA, END_STREAM, Peer, frame, prefixed, reset

SERVICE = "apache.rocketmq.v2.MessagingService"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"


def asked(peer: Peer, stream: int, path: str, service: str) -> list[int]:
    """The statuses that a health check was answered with so far."""
    request, response = message_classes(health_file(), "HealthCheckRequest", "HealthCheckResponse")
    peer.seen.clear()
    came = peer.send(peer.call(stream, path, request(service=service).SerializeToString()))
    return [response.FromString(one.payload[5:]).status for one in came if one.kind == DATA]


def test_health_is_told_of_the_server_and_its_services() -> None:
    health = Health([SERVICE])
    peer = Peer(call_cy, health.methods)
    assert asked(peer, 1, CHECK, "") == [1]
    assert asked(peer, 3, CHECK, SERVICE) == [1]
    assert asked(peer, 5, CHECK, "other") == []
    assert peer.answer(5).status == (5, "unknown service")
    health.stop_serving()
    assert asked(peer, 7, CHECK, "") == [2]


def test_who_watches_is_told_of_changes_until_he_goes() -> None:
    health = Health([SERVICE])
    peer = Peer(call_cy, health.methods)
    assert asked(peer, 1, WATCH, SERVICE) == [1]
    assert asked(peer, 3, WATCH, SERVICE) == [1]
    assert asked(peer, 5, WATCH, "other") == [3]
    peer.send(reset(3))
    health.stop_serving()
    (told,) = peer.read()
    assert (told.stream, told.payload[5:]) == (1, b"\x08\x02")


def reflected(version: str, **question: str) -> Any:
    """The answer to one question of a client of this version."""
    services = [f"{file.package}.{service.name}" for file in FILES.file for service in file.service]
    peer = Peer(call_cy, Reflection(FILES.file, services).methods)
    request, response = message_classes(reflection_file(version), "ServerReflectionRequest", "ServerReflectionResponse")
    peer.send(peer.head(1, f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"))
    peer.send(frame(DATA, END_STREAM, 1, prefixed(request(host="h", **question).SerializeToString())))
    (message,) = peer.answer(1).messages
    assert peer.answer(1).status == (0, "")
    answer = response.FromString(message)
    assert answer.valid_host == "h"
    return answer


def test_services_are_listed_in_both_versions() -> None:
    for version in ("v1", "v1alpha"):
        names = [one.name for one in reflected(version, list_services="").list_services_response.service]
        assert names == [SERVICE, "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"]


def test_a_client_makes_messages_of_the_files_of_a_symbol() -> None:
    for question in (
        {"file_containing_symbol": SERVICE},
        {"file_containing_symbol": f"{SERVICE}.SendMessage"},
        {"file_by_filename": "apache/rocketmq/v2/service.proto"},
    ):
        told = reflected("v1", **question).file_descriptor_response.file_descriptor_proto
        files = {file.name: file for file in map(descriptor_pb2.FileDescriptorProto.FromString, told)}
        pool = descriptor_pool.DescriptorPool()
        while files:
            ready = [file for file in files.values() if not files.keys() & set(file.dependency)]
            assert ready
            for file in ready:
                pool.Add(files.pop(file.name))
        request = message_factory.GetMessageClass(pool.FindMessageTypeByName("apache.rocketmq.v2.QueryRouteRequest"))
        assert request(topic={"name": "T"}).SerializeToString() == b"\n\3\x12\1T"
    nested = reflected("v1", file_containing_symbol="grpc.reflection.v1.ServerReflectionRequest.host")
    assert len(nested.file_descriptor_response.file_descriptor_proto) == 1


def test_what_is_not_known_is_an_error_within_the_stream() -> None:
    answer = reflected("v1alpha", file_containing_symbol="x.Y")
    assert (answer.error_response.error_code, answer.error_response.error_message) == (5, "x.Y is not known here")
    assert reflected("v1", file_by_filename="x.proto").error_response.error_code == 5
    assert reflected("v1", all_extension_numbers_of_type=SERVICE).error_response.error_code == 5


def test_a_message_that_cannot_be_decoded_gets_a_status_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    services = {**Health([SERVICE]).methods, **Reflection(FILES.file, [SERVICE]).methods}
    peer = Peer(call_cy, services)
    paths = (CHECK, WATCH, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    for stream, path in zip((1, 3, 5), paths, strict=True):
        peer.send(peer.call(stream, path, b"\xff"))
        assert peer.answer(stream).status == (13, "a message that cannot be decoded")
    assert not caplog.records
