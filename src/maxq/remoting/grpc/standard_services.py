"""Descriptors of the services that gRPC itself defines, and classes of their messages.

Source:
    github.com/grpc/grpc-proto, grpc/health/v1/health.proto, grpc/reflection/v1/reflection.proto (v1alpha is the same
    under another name).
"""

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Kind = descriptor_pb2.FieldDescriptorProto
_STRING: Final = _Kind.TYPE_STRING
_BYTES: Final = _Kind.TYPE_BYTES
_INT32: Final = _Kind.TYPE_INT32
#: name, number, type (a name: of a message), is it repeated
_Field = tuple[str, int, int | str, bool]


def _file(name: str, package: str) -> Any:
    return descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")


def _add_message(file: Any, name: str, fields: Sequence[_Field], choice: str = "") -> Any:
    """Add a message; fields from number 3 on belong to the `choice`, if there is one."""
    message = file.message_type.add(name=name)
    if choice:
        message.oneof_decl.add(name=choice)
    for field, number, kind, is_repeated in fields:
        label = _Kind.LABEL_REPEATED if is_repeated else _Kind.LABEL_OPTIONAL
        if isinstance(kind, str):
            is_enum = kind.endswith("ServingStatus")
            made = message.field.add(
                name=field,
                number=number,
                label=label,
                type=_Kind.TYPE_ENUM if is_enum else _Kind.TYPE_MESSAGE,
                type_name=f".{file.package}.{kind}",
            )
        else:
            made = message.field.add(name=field, number=number, label=label, type=kind)
        if choice and number >= 3:
            made.oneof_index = 0
    return message


def _add_method(file: Any, service: Any, name: str, types: tuple[str, str], *, streams: tuple[bool, bool]) -> None:
    service.method.add(
        name=name,
        input_type=f".{file.package}.{types[0]}",
        output_type=f".{file.package}.{types[1]}",
        client_streaming=streams[0],
        server_streaming=streams[1],
    )


def health_file() -> Any:
    """Return the descriptor of grpc/health/v1/health.proto."""
    file = _file("grpc/health/v1/health.proto", "grpc.health.v1")
    _add_message(file, "HealthCheckRequest", [("service", 1, _STRING, False)])
    answer = _add_message(file, "HealthCheckResponse", [("status", 1, "HealthCheckResponse.ServingStatus", False)])
    statuses = answer.enum_type.add(name="ServingStatus")
    for number, name in enumerate(("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")):
        statuses.value.add(name=name, number=number)
    service = file.service.add(name="Health")
    types = ("HealthCheckRequest", "HealthCheckResponse")
    _add_method(file, service, "Check", types, streams=(False, False))
    _add_method(file, service, "Watch", types, streams=(False, True))
    return file


def reflection_file(version: str) -> Any:
    """Return the descriptor of reflection.proto.

    Args:
        version: v1 or v1alpha.
    """
    file = _file(f"grpc/reflection/{version}/reflection.proto", f"grpc.reflection.{version}")
    _add_message(
        file,
        "ServerReflectionRequest",
        [
            ("host", 1, _STRING, False),
            ("file_by_filename", 3, _STRING, False),
            ("file_containing_symbol", 4, _STRING, False),
            ("file_containing_extension", 5, "ExtensionRequest", False),
            ("all_extension_numbers_of_type", 6, _STRING, False),
            ("list_services", 7, _STRING, False),
        ],
        choice="message_request",
    )
    _add_message(
        file,
        "ExtensionRequest",
        [("containing_type", 1, _STRING, False), ("extension_number", 2, _INT32, False)],
    )
    _add_message(
        file,
        "ServerReflectionResponse",
        [
            ("valid_host", 1, _STRING, False),
            ("original_request", 2, "ServerReflectionRequest", False),
            ("file_descriptor_response", 4, "FileDescriptorResponse", False),
            ("all_extension_numbers_response", 5, "ExtensionNumberResponse", False),
            ("list_services_response", 6, "ListServiceResponse", False),
            ("error_response", 7, "ErrorResponse", False),
        ],
        choice="message_response",
    )
    _add_message(file, "FileDescriptorResponse", [("file_descriptor_proto", 1, _BYTES, True)])
    _add_message(
        file,
        "ExtensionNumberResponse",
        [("base_type_name", 1, _STRING, False), ("extension_number", 2, _INT32, True)],
    )
    _add_message(file, "ListServiceResponse", [("service", 1, "ServiceResponse", True)])
    _add_message(file, "ServiceResponse", [("name", 1, _STRING, False)])
    _add_message(file, "ErrorResponse", [("error_code", 1, _INT32, False), ("error_message", 2, _STRING, False)])
    service = file.service.add(name="ServerReflection")
    types = ("ServerReflectionRequest", "ServerReflectionResponse")
    _add_method(file, service, "ServerReflectionInfo", types, streams=(True, True))
    return file


def message_classes(file: Any, *names: str) -> list[Any]:
    """Return the classes of messages of a file, in a pool of their own: a program may have registered the same names in
    protobuf's."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}")) for name in names]
