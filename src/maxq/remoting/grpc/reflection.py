"""The reflection service of gRPC (grpc.reflection.v1 and v1alpha): tools such as grpcurl ask it for the proto files.

Source:
    github.com/grpc/grpc, doc/server-reflection.md.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from google.protobuf.message import DecodeError

from maxq.remoting.grpc.calls import Call, GrpcStatus, Streaming
from maxq.remoting.grpc.standard_services import message_classes, reflection_file

_VERSIONS: Final = ("v1", "v1alpha")


class Reflection:
    """Tells the proto files of a server's services, its own included.

    Attributes:
        methods: what a GrpcServer is given of it.
    """

    def __init__(self, files: Iterable[Any], services: Iterable[str]) -> None:
        """
        Args:
            files: FileDescriptorProto of all files that the services need.
            services: full names of the services that are told.
        """
        own = [reflection_file(version) for version in _VERSIONS]
        self._files = {file.name: file for file in [*files, *own]}
        self._by_symbol = {symbol: file for file in self._files.values() for symbol in _symbols(file)}
        self._services = sorted({*services, *(f"{file.package}.ServerReflection" for file in own)})
        self.methods = {
            f"/{file.package}.ServerReflection/ServerReflectionInfo": Streaming(
                partial(self._start, *message_classes(file, "ServerReflectionRequest", "ServerReflectionResponse"))
            )
            for file in own
        }

    def _start(self, request: Any, response: Any, call: Call) -> Callable[[bytes | None], None]:
        def received(message: bytes | None) -> None:
            if message is None:
                call.finish()
                return
            try:
                asked = request.FromString(message)
            except DecodeError:
                call.finish(GrpcStatus.INTERNAL, "a message that cannot be decoded")
                return
            answer = response(valid_host=asked.host, original_request=asked)
            self._fill(answer, asked)
            call.send(answer.SerializeToString())

        return received

    def _fill(self, answer: Any, asked: Any) -> None:
        kind = asked.WhichOneof("message_request")
        if kind == "list_services":
            for name in self._services:
                answer.list_services_response.service.add(name=name)
        elif kind == "file_by_filename":
            self._fill_files(answer, self._files.get(asked.file_by_filename), asked.file_by_filename)
        elif kind == "file_containing_symbol":
            self._fill_files(answer, self._by_symbol.get(asked.file_containing_symbol), asked.file_containing_symbol)
        else:
            self._fill_error(answer, "these files have no extensions")

    def _fill_files(self, answer: Any, file: Any, name: str) -> None:
        """Tell a file and, behind it, those that it needs."""
        if file is None:
            self._fill_error(answer, f"{name:.200} is not known here")
            return
        told: dict[str, None] = {}
        left = [file.name]
        while left:
            if (one := left.pop(0)) not in told and one in self._files:
                told[one] = None
                left += self._files[one].dependency
        answer.file_descriptor_response.file_descriptor_proto.extend(
            self._files[one].SerializeToString() for one in told
        )

    def _fill_error(self, answer: Any, text: str) -> None:
        answer.error_response.error_code = GrpcStatus.NOT_FOUND
        answer.error_response.error_message = text


def _symbols(file: Any) -> Iterator[str]:
    """Yield the full names of all messages, enumerations, services and methods of a file."""
    for service in file.service:
        yield f"{file.package}.{service.name}"
        for method in service.method:
            yield f"{file.package}.{service.name}.{method.name}"
    for enum in file.enum_type:
        yield f"{file.package}.{enum.name}"
    for message in file.message_type:
        yield from _names_within(file.package, message)


def _names_within(scope: str, message: Any) -> Iterator[str]:
    name = f"{scope}.{message.name}"
    yield name
    for enum in message.enum_type:
        yield f"{name}.{enum.name}"
    for field in message.field:
        yield f"{name}.{field.name}"
    for inner in message.nested_type:
        yield from _names_within(name, inner)
