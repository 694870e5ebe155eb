"""A piece of the master's log, over a connection of its own.

The classic link has no request for a range; but a master sends from wherever the first report of a connection says. So
to read [start, end): connect, report `start`, take frames until `end`, and close. `start` 0 would mean the last file;
1 is asked for instead, and the byte before it is a record's first, which is 0 (see full_copy.py).

To the master this is one more slave that is far behind, for a moment; its report acknowledges the bytes below `start`,
so ask only for bytes that no sender waits for any more. A master that does not have `start` sends heartbeats only, the
first after haSendHeartbeatInterval.
"""

import asyncio

from maxq.errors import LogRangeNotServedError
from maxq.replication.ha.frames import FILLED_OFFSET, HEAD, LONGEST_FILLED, encode_report
from maxq.replication.ha.ha_connection import FROM_THE_BEGINNING

_CONNECT_TIMEOUT_S = 5.0
#: A master answers at once, or with a heartbeat after 5 s.
_SILENCE_TIMEOUT_S = 15.0
_LEAST_BYTES_A_SECOND = 16 << 10  # least speed of the answer; a slower master would hold up other repairs
_BUFFER = 1 << 18
_FRAME_MAX = 1 << 30


async def fetch_log(address: str, start: int, end: int) -> bytes:
    """Fetch the bytes [start, end) of the log of the master whose HA port is `address`.

    Args:
        address: host:port.
        start, end: physical offsets.

    Raises:
        LogRangeNotServedError: it cannot be reached, has no such range, or says something that is not a frame.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, int(port), limit=_BUFFER)
    except (OSError, TimeoutError, ValueError) as error:
        raise LogRangeNotServedError(f"master {address} cannot be reached: {str(error) or 'timed out'}") from None
    try:
        first = max(start, FROM_THE_BEGINNING)
        writer.write(encode_report(first))
        async with asyncio.timeout(_SILENCE_TIMEOUT_S + (end - first) / _LEAST_BYTES_A_SECOND):
            return bytes(first - start) + await _frames(reader, address, first, end)
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        reason = "it was silent, or too slow" if isinstance(error, TimeoutError) else str(error)
        raise LogRangeNotServedError(f"master {address} did not send {start} to {end}: {reason}") from None
    finally:
        writer.transport.abort()


async def _frames(reader: asyncio.StreamReader, address: str, first: int, end: int) -> bytearray:
    found = bytearray()
    while first + len(found) < end:
        async with asyncio.timeout(_SILENCE_TIMEOUT_S):
            offset, size = HEAD.unpack(await reader.readexactly(HEAD.size))
        expected = first + len(found)
        if offset == FILLED_OFFSET and not found and 0 <= size <= LONGEST_FILLED:
            await reader.readexactly(size)
            continue
        if offset != expected or not 0 <= size <= _FRAME_MAX:
            raise LogRangeNotServedError(
                f"master {address} was asked for its log from {expected} on and sent {size} bytes from {offset}: its "
                "log begins later, or it is no master"
            )
        if size == 0:
            raise LogRangeNotServedError(
                f"master {address} has nothing at {expected}: it has deleted that part (fileReservedTime, "
                "diskMaxUsedSpaceRatio), or its log ends before"
            )
        while size and first + len(found) < end:
            async with asyncio.timeout(_SILENCE_TIMEOUT_S):
                piece = await reader.read(min(size, end - first - len(found)))
            if not piece:
                raise asyncio.IncompleteReadError(b"", size)
            found += piece
            size -= len(piece)
    return found
