"""Writes the classes of RocketMQ's gRPC messages, `maxq/protocol/grpc/messages.py` and its stub, from the proto files.

    python -m tests.unit.protocol.grpc.message_classes [PYTHON]

PYTHON is an interpreter with `grpcio-tools`; left out, the one that runs this. The classes live in a descriptor pool of
their own: a program may load the official client, which registers the same names in protobuf's pool, beside MaxQ.
"""

import base64
import keyword
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2 as d

from tests.ruff_formatted import ruff_formatted

FOLDER = Path(__file__).parents[4] / "src" / "maxq" / "protocol" / "grpc"
_PACKAGE = "apache/rocketmq/v2"
_NAMES = {".google.protobuf.Timestamp": "Timestamp", ".google.protobuf.Duration": "Duration"}
_F = d.FieldDescriptorProto
_INTEGERS = {_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_SINT32, _F.TYPE_SINT64}
_DOC = '''"""{first}

Written by `python -m tests.unit.protocol.grpc.message_classes`. The classes are protobuf's, in a descriptor pool of
their own: a program may load the official client beside MaxQ, which registers the same names in protobuf's.
"""
'''
_HEAD = """
import base64
from enum import IntEnum
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

#: The proto files, as descriptors.
FILES: Final = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(
{text}
))
_POOL: Final = descriptor_pool.DescriptorPool()
for _file in FILES.file:
    _POOL.Add(_file)


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))

"""
_STUB_HEAD = """
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from enum import IntEnum
from typing import Any, Generic, Self, TypeVar

_T = TypeVar("_T")
FILES: Any


class ProtobufMessage:
    @classmethod
    def FromString(cls, data: bytes | memoryview) -> Self: ...
    def SerializeToString(self) -> bytes: ...
    def ByteSize(self) -> int: ...
    def HasField(self, name: str) -> bool: ...
    def ClearField(self, name: str) -> None: ...
    def WhichOneof(self, name: str) -> str | None: ...
    def CopyFrom(self, other: Self) -> None: ...
    def MergeFrom(self, other: Self) -> None: ...
    def SetInParent(self) -> None: ...
    def DiscardUnknownFields(self) -> None: ...
    def Clear(self) -> None: ...


class Repeated(Generic[_T]):
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_T]: ...
    def __getitem__(self, index: int) -> _T: ...
    def append(self, value: _T) -> None: ...
    def extend(self, values: Iterable[_T]) -> None: ...


class RepeatedMessages(Repeated[_T]):
    def add(self, **fields: object) -> _T: ...

"""


def descriptors(python: str = sys.executable) -> bytes:
    """The descriptors of the proto files and of what they import, serialized. Raises CalledProcessError where
    grpcio-tools is missing."""
    with tempfile.TemporaryDirectory() as folder:
        root, made = Path(folder), Path(folder, "made")
        (root / _PACKAGE).mkdir(parents=True)
        for source in (FOLDER / "proto").glob("*.proto"):
            (root / _PACKAGE / source.name).write_text(source.read_text())
        command = [
            python, "-m", "grpc_tools.protoc", f"-I{root}", "--include_imports", f"--descriptor_set_out={made}",
            f"{_PACKAGE}/service.proto",
        ]  # fmt: skip
        subprocess.run(command, check=True, cwd=root, capture_output=True)
        return made.read_bytes()


def files(serialized: bytes) -> Iterator[tuple[Path, str]]:
    """The path of the module and of its stub, each with its text."""
    made = d.FileDescriptorSet.FromString(serialized)
    path = FOLDER / "messages.py"
    encoded = base64.b64encode(serialized).decode()
    text = "\n".join(f"    {encoded[at : at + 110]!r}" for at in range(0, len(encoded), 110))
    source = _DOC.format(first="The messages of RocketMQ's gRPC services, and their enumerations.")
    source += _HEAD.format(text=text)
    stub = _STUB_HEAD
    for file in made.file:
        for enum in file.enum_type:
            source += _enum(enum)
            stub += _enum(enum)
        for message in file.message_type:
            source += f"{message.name} = _message({f'{file.package}.{message.name}'!r})\n"
            stub += _class(message)
    yield path, ruff_formatted(source, path)
    stub_path = path.with_suffix(".pyi")
    yield stub_path, ruff_formatted(stub, stub_path)


def _enum(enum: d.EnumDescriptorProto) -> str:
    values = "".join(f"    {value.name} = {value.number}\n" for value in enum.value)
    return f"\n\nclass {enum.name}(IntEnum):\n{values}\n\n"


def _class(message: d.DescriptorProto) -> str:
    maps = {f".{message.name}.{entry.name}" for entry in message.nested_type if entry.options.map_entry}
    lines, arguments = [], []
    for enum in message.enum_type:
        lines += textwrap.indent(_enum(enum), "    ").splitlines()
    for field in message.field:
        is_map = any(field.type_name.endswith(name) for name in maps)
        read, given = _types(field, is_map)
        if field.type == _F.TYPE_MESSAGE or field.label == _F.LABEL_REPEATED:
            lines += ["    @property", f"    def {field.name}(self) -> {read}: ..."]
        else:
            lines.append(f"    {field.name}: {read}")
        assert not keyword.iskeyword(field.name)
        arguments.append(f"{field.name}: {given} | None = None")
    if arguments:
        lines.append(f"    def __init__(self, *, {', '.join(arguments)}) -> None: ...")
    body = "\n".join(lines) or "    ..."
    return f"\n\nclass {message.name}(ProtobufMessage):\n{body}\n\n"


def _types(field: d.FieldDescriptorProto, is_map: bool) -> tuple[str, str]:
    """What a field is when it is read, and what may be given for it."""
    if is_map:
        return "MutableMapping[str, str]", "Mapping[str, str]"
    if field.type == _F.TYPE_MESSAGE:
        one = _NAMES.get(field.type_name, field.type_name.rpartition(".")[2])
    elif field.type in _INTEGERS or field.type == _F.TYPE_ENUM:
        one = "int"
    else:
        one = {_F.TYPE_STRING: "str", _F.TYPE_BYTES: "bytes", _F.TYPE_BOOL: "bool", _F.TYPE_FLOAT: "float"}[field.type]
    if field.label == _F.LABEL_REPEATED:
        kind = "RepeatedMessages" if field.type == _F.TYPE_MESSAGE else "Repeated"
        return f"{kind}[{one}]", f"Iterable[{one}]"
    return one, one


if __name__ == "__main__":
    for path, text in files(descriptors(*sys.argv[1:2])):
        path.write_text(text)
