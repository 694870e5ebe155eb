"""Several batch paths of one client: each takes the leading answers of an arrival that it knows."""

from maxq.remoting.client import RemotingClient
from maxq.remoting.connection import BatchPath, Connection


class AnswerPaths:
    """The batch path of a client with several kinds of answers that are scanned without an object a frame."""

    def __init__(self, paths: list[BatchPath]) -> None:
        self.paths = paths

    def __call__(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Take the leading answers that one of the paths knows; returns the position behind them."""
        began = -1
        while began < start < end:
            began = start
            for path in self.paths:
                start = path(connection, buffer, start, end)
        return start


def add_answer_path(remoting: RemotingClient, path: BatchPath) -> None:
    """Let `path` take the answers it knows on all connections of a client."""
    before = remoting.batch_path
    if isinstance(before, AnswerPaths):
        before.paths.append(path)
    else:
        remoting.batch_path = path if before is None else AnswerPaths([before, path])
