"""Lines of a pipe stay there until they are done."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from maxq.cli.terminal.pipes import InOrder, LineReader, _unread


class Lines:
    """Reads in a thread, as the command does."""

    def __init__(self, reader: LineReader) -> None:
        self.reader = reader
        self.found: list[tuple[int, bytes]] = []
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._read)
        self.is_ended = False
        self.thread.start()

    def _read(self) -> None:
        for found in self.reader.lines():
            with self.changed:
                self.found.append(found)
                self.changed.notify_all()
        with self.changed:
            self.is_ended = True
            self.changed.notify_all()

    def wait(self, count: int) -> list[bytes]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.found) >= count, 20)
            return [line for _, line in self.found]


@contextmanager
def piped() -> Iterator[tuple[int, int, Lines]]:
    read, write = os.pipe()
    with os.fdopen(read, "rb", buffering=0) as file:
        lines = Lines(LineReader(file))  # type: ignore[arg-type]
        try:
            yield read, write, lines
        finally:
            lines.reader.stop()
            os.close(write)
            lines.thread.join(20)
            assert not lines.thread.is_alive()


def until_unread(fd: int, count: int) -> None:
    pause = threading.Event()
    for _ in range(5_000):
        if _unread(fd) == count:
            return
        pause.wait(0.002)
    raise AssertionError(f"{_unread(fd)} bytes in the pipe, not {count}")


def test_a_line_stays_in_the_pipe_until_it_is_done() -> None:
    with piped() as (read, write, lines):
        os.write(write, b"one\ntwo\nthr")
        assert lines.wait(2) == [b"one\n", b"two\n"]
        assert _unread(read) == 11
        lines.reader.done(4)
        until_unread(read, 7)
        os.write(write, b"ee\nfour\n")
        assert lines.wait(4)[2:] == [b"three\n", b"four\n"]
        assert _unread(read) == 15
        lines.reader.done(lines.found[-1][0])
        until_unread(read, 0)


def test_a_line_longer_than_the_pipe_is_read() -> None:
    with piped() as (_read, write, lines):
        writer = threading.Thread(target=lambda: os.write(write, b"x" * 1_000_000 + b"\ny\n"))
        writer.start()
        assert [len(line) for line in lines.wait(2)] == [1_000_001, 2]
        writer.join()


def test_what_is_behind_the_last_end_of_line_is_a_line() -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb", buffering=0) as file:
        lines = Lines(LineReader(file))  # type: ignore[arg-type]
        os.write(write, b"one\nrest")
        os.close(write)
        assert lines.wait(2) == [b"one\n", b"rest"]
        lines.thread.join(20)
        assert lines.is_ended and [position for position, _ in lines.found] == [4, 8]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
def test_positions_are_done_in_order(order: list[int]) -> None:
    things = InOrder()
    assert things.skip(1) == 1
    for position in (10, 20, 30):
        things.add(position)
    assert things.skip(31) is None
    told = [things.finish(number) for number in order]
    assert told[-1] == 31 and [one for one in told if one is not None] == sorted(one for one in told if one is not None)
