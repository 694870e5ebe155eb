"""A name server among peers that send garbage, announce too much, or stop half-way."""

import asyncio
import contextlib
import random
import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.config import NettyServerConfig
from maxq.namesrv import default_request_processor as processor
from maxq.namesrv.broker_registration import RegistrationRequest
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.protocol.header.namesrv import UnRegisterBrokerRequestHeader
from tests.integration.namesrv.harness import Peer, asking_route, name_server, registering

CODES = [
    100,
    101,
    102,
    103,
    104,
    105,
    106,
    205,
    206,
    216,
    217,
    219,
    224,
    304,
    311,
    312,
    313,
    318,
    319,
    322,
    327,
    901,
    904,
]
SMALL = NettyServerConfig(bind_address="127.0.0.1", frame_max_length=65_536)


async def assert_serves(port: int) -> None:
    async with await Peer.connect(port) as peer:
        assert (await peer.ask(registering("T", "U"))).code == 0
        assert (await peer.ask(asking_route("T"))).code == 0


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 64,
        struct.pack(">i", -1) + b"x" * 16,
        struct.pack(">ii", 8, 100) + b"1234",
        struct.pack(">iI", 10, 7 << 24 | 2) + b"{}1234",
        struct.pack(">iI", 9, 5) + b"{\x00\xff}}",
        struct.pack(">iI", 4 + 21, 1 << 24 | 21) + b"\x7f" * 21,
    ],
    ids=["http", "ones", "negative", "header-too-long", "unknown-type", "no-json", "bad-binary"],
)
async def test_bytes_that_are_no_frame_end_their_connection_and_no_other(tmp_path: Path, data: bytes) -> None:
    async with name_server(tmp_path, server=SMALL) as server, await Peer.connect(server.port) as bystander:
        async with await Peer.connect(server.port) as hostile:
            hostile.writer.write(data)
            assert await hostile.at_end()
        assert (await bystander.ask(asking_route("T"))).code == ResponseCode.TOPIC_NOT_EXIST
        await assert_serves(server.port)


async def test_a_frame_announced_larger_than_the_limit_is_not_waited_for(tmp_path: Path) -> None:
    async with name_server(tmp_path, server=SMALL) as server, await Peer.connect(server.port) as hostile:
        hostile.writer.write(struct.pack(">i", 65_537))
        assert await hostile.at_end()


async def test_random_bytes_never_stop_the_server(tmp_path: Path) -> None:
    rng = random.Random(7)
    async with name_server(tmp_path, server=SMALL) as server:
        for _ in range(150):
            async with await Peer.connect(server.port) as hostile:
                hostile.writer.write(rng.randbytes(rng.randrange(1, 200)))
                hostile.writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(hostile.reader.read(), 30)
        await assert_serves(server.port)


async def test_every_request_without_fields_or_with_a_rubbish_body_is_answered(tmp_path: Path) -> None:
    bodies = [None, b"", b"{", b"[]", b"null", b'"x"', b'{"queueDatas":7}', b"\xff\x00", zlib.compress(b"\x7f" * 64)]
    ext = {"brokerName": "b", "brokerAddr": "b:1", "clusterName": "c", "haServerAddr": "h", "brokerId": "0",
           "topic": "T", "namespace": "n", "key": "k", "value": "v", "cluster": "c"}  # fmt: skip
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        for code in CODES:
            for fields in (
                {},
                ext,
                ext | {"compressed": "true"},
                dict.fromkeys(ext, ""),
                dict.fromkeys(ext, "\x00é" * 9),
            ):
                for body in bodies:
                    answer = await peer.ask(RemotingCommand(code, dict(fields), body))
                    assert answer.code in set(ResponseCode)
                    assert "Traceback" not in (answer.remark or "")
        await assert_serves(server.port)


async def test_a_missing_field_is_named(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        answer = await peer.ask(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the custom field <topic> is null")


async def test_a_registration_that_inflates_beyond_all_measure_is_refused(tmp_path: Path) -> None:
    request = registering("T", "U", compressed=True)
    packer = zlib.compressobj(9)
    request.body = b"".join(packer.compress(bytes(2**20)) for _ in range(128)) + packer.flush()
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        assert (await peer.ask(request)).code == ResponseCode.SYSTEM_ERROR
        await assert_serves(server.port)


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_registration_without_measure_is_refused_with_the_limit(tmp_path: Path, compressed: bool) -> None:
    request = registering("T", "U", compressed=compressed)
    request.body = bytes((8 << 20) + 1) if compressed else b"[" + b"{}," * 100_001 + b"{}]"
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        answer = await peer.ask(request)
        assert answer.code == ResponseCode.INVALID_PARAMETER and "compressedRegister" in (answer.remark or "")
        await assert_serves(server.port)


async def test_others_are_served_while_a_registration_is_read_and_what_came_later_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    read = processor._registration

    def slowly(*arguments: Any) -> RegistrationRequest:
        begun.set()
        assert go_on.wait(60)
        return read(*arguments)

    leaving = UnRegisterBrokerRequestHeader("broker-a", "10.0.0.1:10911", "DefaultCluster", 0)
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        assert (await peer.ask(registering("T", "U", compressed=True))).code == 0
        monkeypatch.setattr(processor, "_registration", slowly)
        async with await Peer.connect(server.port) as broker:
            long = asyncio.ensure_future(broker.ask(registering("T", "U", "V", version=2, compressed=True)))
            async with asyncio.timeout(30):
                assert await asyncio.to_thread(begun.wait, 30)
                assert (await peer.ask(asking_route("T"))).code == 0
                code = RequestCode.UNREGISTER_BROKER
                assert (await peer.ask(RemotingCommand(code, leaving.encode()))).code == 0
                go_on.set()
                assert "something newer" in ((await long).remark or "")
                assert (await peer.ask(asking_route("V"))).code == ResponseCode.TOPIC_NOT_EXIST
                assert (await broker.ask(registering("T", "U", "V", version=3, compressed=True))).code == 0
                assert (await peer.ask(asking_route("V"))).code == 0


async def test_a_request_of_an_unknown_code_is_answered_with_3(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        answer = await peer.ask(RemotingCommand(RequestCode.SEND_MESSAGE))
        assert (answer.code, answer.remark) == (3, " request type 10 not supported")


async def test_half_a_frame_holds_nobody_up(tmp_path: Path) -> None:
    frame = registering("T", "U").encode()
    async with name_server(tmp_path) as server:
        halves = [await Peer.connect(server.port) for _ in range(50)]
        for half in halves:
            half.writer.write(frame[: len(frame) // 2])
            await half.writer.drain()
        await assert_serves(server.port)
        halves[0].writer.write(frame[len(frame) // 2 :])
        assert (await halves[0].receive()).code == 0
        for half in halves:
            await half.close()


async def test_frames_split_at_every_byte_and_frames_glued_together_are_answered_in_order(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        requests = [registering("T", "U"), *(asking_route("T") for _ in range(20))]
        for opaque, request in enumerate(requests):
            request.opaque = opaque
        data = b"".join(request.encode() for request in requests)
        peer.writer.write(data)
        assert [(await peer.receive()).opaque for _ in requests] == list(range(21))
        for byte in asking_route("T").encode():
            peer.writer.write(bytes([byte]))
            await peer.writer.drain()
            await asyncio.sleep(0)
        assert (await peer.receive()).code == 0


async def test_one_way_requests_are_done_and_never_answered(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        for request in (registering("T", "U"), RemotingCommand(9999), RemotingCommand(RequestCode.GET_KV_CONFIG)):
            request.flag = 2
            peer.writer.write(request.encode())
        assert (await peer.ask(asking_route("T"))).code == 0


async def test_a_peer_that_reads_nothing_does_not_fill_the_memory(tmp_path: Path) -> None:
    topics = [f"T{i}" for i in range(2000)]
    server_config = NettyServerConfig(bind_address="127.0.0.1", write_buffer_high_water_mark=65_536)
    async with name_server(tmp_path, server=server_config) as server:
        async with await Peer.connect(server.port) as broker, await Peer.connect(server.port) as deaf:
            await broker.ask(registering(*topics))
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            request = RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).encode()
            for _ in range(5000):  # 100 MB of answers, if they were all made
                deaf.writer.write(request)
            for _ in range(50):
                assert (await broker.ask(asking_route("T1"))).code == 0
            unsent = max(connection.unsent_bytes for connection in server._server.connections)
            assert unsent < 2**20
            deaf.writer.transport.abort()
        await assert_serves(server.port)


async def test_answers_are_well_formed_frames(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        peer.writer.write(asking_route("T").encode())
        length = struct.unpack(">i", await peer.reader.readexactly(4))[0]
        answer = decode_frame(await peer.reader.readexactly(length))
        assert answer.is_response
