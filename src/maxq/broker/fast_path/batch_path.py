"""The frames that a broker handles before any frame is decoded by itself: fast-path sends, remembered pulls, commits,
messages that consumers give back, acks of popped messages."""

from maxq.broker.fast_path.ack_path import AckPath
from maxq.broker.fast_path.end_path import EndPath
from maxq.broker.fast_path.pull_path import PullPath
from maxq.broker.fast_path.send_back_path import SendBackPath
from maxq.broker.fast_path.send_path import SendPath
from maxq.broker.identity.authority import Authority
from maxq.remoting.batched_reads import BatchedReads
from maxq.remoting.server import Connection


class BatchPath:
    """Answers batches of requests; `RemotingServer.batch_path` of a broker. It tries all paths in turn as long as one
    of them makes progress. A broker that is not sure of its role answers nothing here: Authority then judges each
    request by what its success would promise."""

    def __init__(
        self,
        authority: Authority,
        *,
        sends: SendPath,
        pulls: PullPath,
        ends: EndPath,
        backs: SendBackPath,
        acks: AckPath,
    ) -> None:
        self._authority = authority
        self._sends = sends
        self._pulls = pulls
        self._ends = ends
        self._backs = backs
        self._acks = acks

    def take(self, arrivals: BatchedReads) -> None:
        """Process the leading fast-path sends of all arrivals of a turn together, then the pulls. Used as
        `BatchedReads.path` of a broker."""
        if self._authority.doubt() is None:
            self._sends.take(arrivals)
            self._pulls.take(arrivals)

    def __call__(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Answer the leading frames of buffer[start:end]. Returns the position behind them."""
        if self._authority.doubt() is not None:
            return start
        while True:
            position = self._sends(connection, buffer, start, end)
            if position == end:
                return end
            position = self._pulls(connection, buffer, position, end)
            if position != end:
                position = self._ends(connection, buffer, position, end)
            if position != end:
                position = self._backs(connection, buffer, position, end)
            if position != end:
                position = self._acks(connection, buffer, position, end)
            if position in (start, end) or connection.is_held_back:
                return position
            start = position
