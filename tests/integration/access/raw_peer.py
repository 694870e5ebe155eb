"""Frames as no client of ours would write them: one-way, marked as answers, with fields that stand in them twice."""

import asyncio
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

from maxq.auth.signature import ACCESS_KEY, SIGNATURE, Credentials, signed_content
from maxq.protocol.frame.remoting_command import LONGEST_HEADER, decode_frame

ONE_WAY, ANSWER = 2, 1
_MOST_CODE = 32_767  # of a binary header

Fields = list[tuple[str, str]]


class WholeRequest:
    """Header fields and body, signed; the signature says nothing of code, flag and opaque."""

    def __init__(self, ext: Mapping[str, str], body: bytes, who: Credentials) -> None:
        fields = {**ext, ACCESS_KEY: who.access_key}
        fields[SIGNATURE] = who.signing_key().sign(signed_content(fields), body).decode()
        self._fields, self._body = json.dumps(fields), body

    def frame(self, code: int, flag: int, opaque: int) -> bytes:
        return _frame(code, flag, opaque, f',"extFields":{self._fields}', self._body)


class RawPeer:
    """One connection, whose requests do not wait for each other.

    Attributes:
        told: every frame that came, without its length.
        answers: opaque → response code.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._opaque = 0
        self._answered = asyncio.Event()
        self.told: list[bytes] = []
        self.answers: dict[int, int] = {}
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def connect(cls, address: str) -> Self:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def _read(self) -> None:
        """Take all that comes, for a server stops reading from whom it owes too much, and answer what it asks."""
        while True:
            size = struct.unpack(">I", await self._reader.readexactly(4))[0]
            frame = await self._reader.readexactly(size)
            self.told.append(frame)
            command = decode_frame(frame, LONGEST_HEADER)
            if command.is_response:
                self.answers[command.opaque] = command.code
                if command.opaque == self._opaque:
                    self._answered.set()
            elif not command.is_oneway:
                self._writer.write(command.reply().encode())

    async def ask(self, code: int, flag: int, asked: Sequence[WholeRequest]) -> list[int]:
        """Make these requests; their opaques, by which answers are found when they have come."""
        opaques = range(self._opaque + 1, self._opaque + 1 + len(asked))
        self._opaque += len(asked)
        await self.write(one.frame(code, flag, opaque) for one, opaque in zip(asked, opaques, strict=True))
        return list(opaques)

    async def write(self, frames: Iterable[bytes]) -> None:
        self._writer.write(b"".join(frames))
        await self._writer.drain()

    async def until_worked_off(self, code: int, asks: WholeRequest) -> None:
        """Make this request, whatever its answer: what was written before it was looked at then."""
        self._answered.clear()
        await self.ask(code, 0, [asks])
        waits = asyncio.ensure_future(self._answered.wait())
        done, _ = await asyncio.wait((waits, self._reading), timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert waits in done, f"the connection is cut or does not answer: {done}"

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._writer.close()
        await self._writer.wait_closed()


def twice(
    code: int, own: Mapping[str, str], foreign: Mapping[str, str], body: bytes, who: Credentials
) -> Iterator[bytes]:
    """Frames in whose header the fields of `foreign` stand twice, before and behind those of `own`, in both forms of a
    header, and signed for what either reading of it gives."""
    for first, then in ((own, foreign), (foreign, own)):
        for counts in ({**first, **then}, {**then, **first}):
            credentials = {ACCESS_KEY: who.access_key}
            signature = who.signing_key().sign(signed_content({**counts, **credentials}), body).decode()
            fields: Fields = [*first.items(), *then.items(), *credentials.items(), (SIGNATURE, signature)]
            yield _json_frame(code, [fields], body)
            yield _json_frame(code, [[*first.items()], [*{**first, **then, **dict(fields[-2:])}.items()]], body)
            if code <= _MOST_CODE:
                yield _binary_frame(code, fields, body)


def _json_frame(code: int, ext_fields: list[Fields], body: bytes) -> bytes:
    members = ""
    for one in ext_fields:
        pairs = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in one)
        members += f',"extFields":{{{pairs}}}'
    return _frame(code, 0, -7, members, body)


def _frame(code: int, flag: int, opaque: int, members: str, body: bytes) -> bytes:
    header = f'{{"code":{code},"flag":{flag},"language":"JAVA","opaque":{opaque},"version":479{members}}}'.encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def _binary_frame(code: int, fields: Fields, body: bytes) -> bytes:
    ext = b"".join(
        struct.pack(">H", len(name)) + name + struct.pack(">I", len(value)) + value
        for name, value in ((one.encode(), other.encode()) for one, other in fields)
    )
    header = struct.pack(">hBhiii", code, 0, 479, -7, 0, 0) + struct.pack(">i", len(ext)) + ext
    return struct.pack(">II", 4 + len(header) + len(body), 1 << 24 | len(header)) + header + body
