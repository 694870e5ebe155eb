"""Receiving and sending on many sockets at once, in both forms."""

import select
import signal
import socket
import threading
from array import array
from collections.abc import Iterator
from types import ModuleType

import pytest

from maxq.protocol.frame.send_rows import A_END, A_ROWS, A_START, A_TAKEN, ARRIVAL_WIDTH
from maxq.remoting import socket_io_cy
from tests.unit.both_forms import both


class Peered:
    """A stand-in for a connection, with the other end of its socket."""

    def __init__(self) -> None:
        self.socket, self.peer = socket.socketpair()
        self.socket.setblocking(False)
        self.is_closed = self.active = False
        self.own_buffer: bytearray | None = None
        self.partial = b""
        self.arrivals = 0
        self.remote_host = bytes([len(str(self.socket.fileno()))] * 8)
        self.is_direct = True
        self.written: list[bytes] = []

    def direct_socket(self) -> int:
        return self.socket.fileno() if self.is_direct else -1

    def write(self, buffers: list[memoryview]) -> None:
        self.written += [bytes(buffer) for buffer in buffers]


@pytest.fixture(params=both("maxq.remoting.socket_io_cy"), ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


@pytest.fixture
def three() -> Iterator[list[Peered]]:
    made = [Peered() for _ in range(3)]
    yield made
    for one in made:
        one.socket.close()
        one.peer.close()


class Received:
    def __init__(self, form: ModuleType, peers: list[Peered], size: int = 65536, rows: int = 8, flags: int = 1) -> None:
        self.buffer, self.table = bytearray(size), array("q", bytes(8 * ARRIVAL_WIDTH * rows))
        self.connections: list[Peered] = []
        self.hosts: list[bytes] = []
        self.odd: list[Peered] = []
        by_fd = {peer.socket.fileno(): peer for peer in peers}
        self.count = form.receive(
            [(fd, flags) for fd in by_fd], by_fd, self.buffer, self.table, self.connections, self.hosts, self.odd
        )

    def arrival(self, number: int) -> bytes:
        row = number * ARRIVAL_WIDTH
        assert self.table[row + A_TAKEN] == self.table[row + A_START]
        return bytes(self.buffer[self.table[row + A_START] : self.table[row + A_END]])


def test_each_arrival_lies_behind_the_one_before(form: ModuleType, three: list[Peered]) -> None:
    for number, one in enumerate(three):
        one.peer.send(b"abc"[number : number + 1] * (number + 1))
    got = Received(form, three)
    assert [got.arrival(number) for number in range(got.count)] == [b"a", b"bb", b"ccc"]
    assert bytes(got.buffer[:7]) == b"abbccc\0"
    assert (got.connections, got.odd, got.hosts) == (three, [], [one.remote_host for one in three])
    assert all(one.active and one.arrivals == 1 for one in three)


def test_what_a_connection_kept_comes_before_what_arrives(form: ModuleType, three: list[Peered]) -> None:
    three[1].partial = b"kept"
    three[0].peer.send(b"x")
    three[1].peer.send(b"new")
    got = Received(form, three[:2])
    assert [got.arrival(0), got.arrival(1)] == [b"x", b"keptnew"]
    assert three[1].partial == b""


def test_a_connection_that_cannot_be_read_so_is_told_apart_and_keeps_what_it_kept(
    form: ModuleType, three: list[Peered]
) -> None:
    ended, expecting, fine = three
    ended.partial = b"half"
    ended.peer.close()
    expecting.own_buffer = bytearray(10)
    expecting.peer.send(b"more of it")
    fine.peer.send(b"y")
    got = Received(form, three)
    assert (got.count, got.arrival(0), got.odd) == (1, b"y", [ended, expecting])
    assert ended.partial == b"half"
    assert expecting.socket.recv(100) == b"more of it"
    fine.peer.send(b"z")
    broken = Received(form, [fine], flags=0x11)  # EPOLLHUP
    assert (broken.count, broken.odd) == (0, [fine])


def test_nothing_to_read_is_no_arrival(form: ModuleType, three: list[Peered]) -> None:
    three[0].partial = b"kept"
    got = Received(form, three)
    assert (got.count, got.connections, got.odd, three[0].partial) == (0, [], [], b"kept")


def test_what_has_no_room_stays_in_its_socket(form: ModuleType, three: list[Peered]) -> None:
    for one in three:
        one.peer.send(bytes(20000))
    narrow = Received(form, three, size=30000)
    assert (narrow.count, narrow.connections) == (1, three[:1])
    assert len(three[1].socket.recv(30000)) == 20000
    few = Received(form, three[2:] + three[:2], rows=1)
    assert (few.count, len(few.arrival(0))) == (1, 20000)


def test_untaken_names_the_arrivals_of_which_something_is_left(form: ModuleType) -> None:
    table = array("q", [0, 10, 10, 0, 1, 10, 30, 20, 1, 1, 30, 31, 30, 2, 0])
    assert form.untaken(table, 3) == [1, 2]
    assert form.untaken(table, 1) == []


def frame(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def table_of(*counts: int) -> "array[int]":
    table = array("q", bytes(8 * ARRIVAL_WIDTH * len(counts)))
    for number, count in enumerate(counts):
        table[number * ARRIVAL_WIDTH + A_ROWS] = count
    return table


def test_each_connection_gets_its_own_answers(form: ModuleType, three: list[Peered]) -> None:
    answers = bytearray(frame(b"one") + frame(b"two" * 100) + frame(b"three"))
    form.send(answers, table_of(2, 0, 1), three)
    assert three[0].peer.recv(1000) == frame(b"one") + frame(b"two" * 100)
    assert three[2].peer.recv(1000) == frame(b"three")
    assert [one.written for one in three] == [[], [], []]
    with pytest.raises(BlockingIOError):
        three[1].peer.recv(1, socket.MSG_DONTWAIT)


def test_what_a_socket_does_not_take_goes_by_the_transport(form: ModuleType, three: list[Peered]) -> None:
    full, busy, gone = three
    busy.is_direct = False
    gone.peer.close()
    big = frame(b"x" * 4_000_000)
    form.send(bytearray(big + frame(b"busy") + frame(b"gone")), table_of(1, 1, 1), three)
    got = full.peer.recv(5_000_000, socket.MSG_DONTWAIT)
    while True:
        try:
            got += full.peer.recv(5_000_000, socket.MSG_DONTWAIT)
        except BlockingIOError:
            break
    assert 0 < len(got) < len(big)
    assert got + full.written[0] == big
    assert (busy.written, gone.written) == ([frame(b"busy")], [frame(b"gone")])


def test_pieces_follow_their_head(form: ModuleType, three: list[Peered]) -> None:
    one, data = three[0], memoryview(bytes(range(100)))
    places = array("q", [90, 10, 0, 1, 50, 3, 7, 7])
    assert form.send_pieces(one.socket.fileno(), b"head", data, places, 3) == 4 + 14
    assert one.peer.recv(1000) == b"head" + bytes([*range(90, 100), 0, 50, 51, 52])
    assert form.send_pieces(one.socket.fileno(), b"alone", data, places, 0) == 5
    assert one.peer.recv(1000) == b"alone"


def test_a_socket_that_takes_only_some_of_the_pieces_or_is_broken_says_so(
    form: ModuleType, three: list[Peered]
) -> None:
    full, broken = three[:2]
    data = memoryview(bytes(4_000_000))
    taken = form.send_pieces(full.socket.fileno(), b"head", data, array("q", [0, 4_000_000]), 1)
    assert 4 < taken < 4_000_004
    assert form.send_pieces(full.socket.fileno(), b"head", data, array("q", [0, 4]), 1) == 0
    broken.peer.close()
    assert form.send_pieces(broken.socket.fileno(), b"head", data, array("q", [0, 4]), 1) == 0


@pytest.mark.parametrize("place", [(-1, 4), (97, 4), (0, 0), (0, -1), (0, 101), (1 << 62, 1 << 62)])
def test_pieces_outside_the_file_are_refused(form: ModuleType, three: list[Peered], place: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="outside the file of 100 bytes"):
        form.send_pieces(three[0].socket.fileno(), b"", memoryview(bytes(100)), array("q", place), 1)
    with pytest.raises(ValueError, match="1001 pieces"):
        form.send_pieces(three[0].socket.fileno(), b"", memoryview(bytes(100)), array("q", bytes(16 * 1001)), 1001)


# --- connections that are lent to a thread ----------------------------------------------------------------------------


class Lent(Peered):
    """A connection that is read together with others, and who reads it."""

    def __init__(self) -> None:
        super().__init__()
        self._socket = self.socket.fileno()
        self.epoll = select.epoll()
        self.epoll.register(self._socket, select.EPOLLIN)
        self.descriptor, self.is_at_work = self.epoll.fileno(), False

    @property
    def is_told(self) -> bool:
        """Whether the loop hears of what has come."""
        return bool(self.epoll.poll(0))


@pytest.fixture
def lent() -> Iterator[Lent]:
    made = Lent()
    yield made
    made.epoll.close()
    made.socket.close()
    made.peer.close()


def test_while_a_connection_is_lent_its_thread_receives_and_afterwards_the_loop_hears_of_more(
    form: ModuleType, lent: Lent
) -> None:
    buffer = bytearray(64)
    for number in range(3):
        assert form.lend(lent, lent) == 1
        threading.Timer(0.01, lent.peer.send, [b"answer"]).start()
        assert form.receive_lent(lent, lent, buffer, 60_000) == 6
        assert (bytes(buffer[:6]), lent.active, lent.arrivals, lent.is_told) == (b"answer", True, number + 1, False)
        lent.peer.send(b"more")
        assert not lent.is_told
        form.give_back(lent, lent, b"")
        assert (lent.is_told, lent.partial, lent.socket.recv(64)) == (True, b"", b"more")


def test_what_is_for_the_loop_is_kept_for_it(form: ModuleType, lent: Lent) -> None:
    form.lend(lent, lent)
    lent.peer.send(b"other")
    assert form.receive_lent(lent, lent, bytearray(4), 60_000) == 4
    form.give_back(lent, lent, b"othe")
    assert (lent.partial, lent.is_told, lent.socket.recv(64)) == (b"othe", True, b"r")


@pytest.mark.parametrize("why", ["at work", "half a frame", "a large frame"])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_where_the_loop_has_the_bytes_before_it_gets_those_that_follow(
    form: ModuleType, lent: Lent, why: str, when: str
) -> None:
    def begin() -> None:
        lent.is_at_work = why == "at work"
        lent.partial = b"half" if why == "half a frame" else b""
        lent.own_buffer = bytearray(8) if why == "a large frame" else None

    if when == "before":
        begin()
        assert form.lend(lent, lent) == 0
    else:
        assert form.lend(lent, lent) == 1
        begin()
        lent.peer.send(b"rest")
        assert form.receive_lent(lent, lent, bytearray(64), 60_000) == 0
        assert lent.socket.recv(64) == b"rest"
    lent.peer.send(b"next")
    assert (lent.is_told, lent.arrivals) == (True, 0)


def test_a_connection_that_its_transport_reads_is_not_lent(form: ModuleType, lent: Lent) -> None:
    fd, lent._socket = lent._socket, -1
    assert form.lend(lent, lent) == -1
    lent._socket = fd
    lent.epoll.unregister(fd)
    assert form.lend(lent, lent) == 0


@pytest.mark.parametrize("why", ["time", "the end", "its transport reads"])
def test_nothing_is_received_where_the_loop_is_to_look(form: ModuleType, lent: Lent, why: str) -> None:
    def leave() -> None:
        lent.epoll.unregister(lent.socket.fileno())
        lent._socket = -1
        lent.peer.send(b"more")

    assert form.lend(lent, lent) == 1
    if why == "the end":
        lent.peer.close()
    elif why == "its transport reads":
        threading.Timer(0.01, leave).start()
    assert form.receive_lent(lent, lent, bytearray(64), 10 if why == "time" else 60_000) == 0
    assert (lent.arrivals, lent.is_told) == (0, why == "the end")


def test_a_signal_ends_the_wait_and_its_handler_finds_a_loop_that_reads(lent: Lent) -> None:
    if not socket_io_cy.is_compiled():
        pytest.skip("uncompiled, Python waits on; threads do not receive then")
    told: list[bool] = []

    def handle(number: int, frame: object) -> None:
        lent.peer.send(b"for the loop")
        told.append(lent.is_told)

    before = signal.signal(signal.SIGALRM, handle)
    try:
        assert socket_io_cy.lend(lent, lent) == 1  # type: ignore[arg-type]
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)  # again, if it comes just before the thread begins to wait
        assert socket_io_cy.receive_lent(lent, lent, bytearray(64), 60_000) == 0  # type: ignore[arg-type]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert told and all(told)
