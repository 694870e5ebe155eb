"""AnswerPaths: the batch path of a client, on which answers are read without an object for each frame."""

from maxq.remoting.client import RemotingClient
from maxq.remoting.connection import BatchPath, Connection


class AnswerPaths:
    """The batch path of a client: a path for each kind of answers."""

    def __init__(self) -> None:
        self._by_kind: dict[str, BatchPath] = {}
        self._paths: tuple[BatchPath, ...] = ()

    def add(self, kind: str, path: BatchPath) -> None:
        """Let `path` take the answers of this kind, unless another one does already."""
        self._by_kind.setdefault(kind, path)
        self._paths = tuple(self._by_kind.values())

    def __call__(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Take the leading answers that one of the paths knows; returns the position behind them."""
        began = -1
        while began < start < end:
            began = start
            for path in self._paths:
                start = path(connection, buffer, start, end)
        return start


def add_answer_path(remoting: RemotingClient, kind: str, path: BatchPath) -> None:
    """Let `path` take the answers of this kind on all connections of a client, unless another one does already."""
    if not isinstance(remoting.batch_path, AnswerPaths):
        remoting.batch_path = AnswerPaths()
    remoting.batch_path.add(kind, path)
