"""What a broker takes from an arrival before frames are decoded one by one: plain sends, and pulls it knows."""

from maxq.broker.pull_path import PullPath
from maxq.broker.send_path import SendPath
from maxq.remoting.server import Connection


class BatchPath:
    """`RemotingServer.batch_path` of a broker: both paths in turn, as long as one of them gets on."""

    def __init__(self, sends: SendPath, pulls: PullPath) -> None:
        self._sends = sends
        self._pulls = pulls

    def __call__(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """The position behind the leading frames of buffer[start:end] that were answered."""
        while True:
            position = self._sends(connection, buffer, start, end)
            if position == end:
                return end
            position = self._pulls(connection, buffer, position, end)
            if position in (start, end):
                return position
            start = position
