"""The scanner of messages that come back takes plain requests, and reads them as the general codec does."""

import json
import struct
from types import ModuleType

import pytest

from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from maxq.protocol.header.send import ConsumerSendMsgBackRequestHeader
from tests.unit.both_forms import both

FORMS = both("maxq.protocol.frame.request_scanners_cy")


@pytest.fixture(params=FORMS, ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def _frame(*, code: int = 36, flag: int = 0, binary: bool = False, **changes: str | None) -> bytes:
    header = ConsumerSendMsgBackRequestHeader(81_234, "G", 3, "7F00", "T", False, 5)
    ext = {name: value for name, value in (header.encode() | changes).items() if value is not None}
    command = RemotingCommand(code, ext, opaque=-9, flag=flag, version=399)
    command.serialize_type = SerializeType.ROCKETMQ if binary else SerializeType.JSON
    return command.encode()


@pytest.mark.parametrize("binary", [False, True])
def test_a_request_is_read_as_it_stands(form: ModuleType, binary: bool) -> None:
    scanner = form.SendBackScanner()
    second = _frame(binary=binary, originMsgId=None, maxReconsumeTimes=None, unitMode="true", delayLevel="0")
    two = _frame(binary=binary) + second
    behind = scanner.scan(bytearray(two), 0, len(two))
    assert (scanner.group, scanner.offset, scanner.delay_level, scanner.most_times) == (b"G", 81_234, 3, 5)
    assert (scanner.unit_mode, scanner.opaque, scanner.version, scanner.binary) == (False, -9, 399, binary)
    assert scanner.origin == b"7F00"
    assert scanner.scan(bytearray(two), behind, len(two)) == len(two)
    assert (scanner.delay_level, scanner.most_times, scanner.unit_mode, scanner.origin) == (0, -1, True, b"")


def test_what_is_not_plain_is_left(form: ModuleType) -> None:
    scanner = form.SendBackScanner()
    left = [
        _frame(code=35), _frame(flag=2), _frame(flag=1), _frame(delayLevel="-1"), _frame(offset="-1"),
        _frame(offset="x"), _frame(group=None), _frame(group=""), _frame(delayLevel=None), _frame(offset=None),
        _frame(Owner="me"), _frame(unitMode="maybe"), _frame(maxReconsumeTimes="-1"), _frame(group='a"b'),
        _frame()[:-1], b"",
    ]  # fmt: skip
    for number, frame in enumerate(left):
        assert scanner.scan(bytearray(frame), 0, len(frame)) == 0, number
    text = json.dumps({"code": 36, "opaque": 1}).encode()
    frame = struct.pack(">II", 4 + len(text), len(text)) + text
    assert scanner.scan(bytearray(frame), 0, len(frame)) == 0
