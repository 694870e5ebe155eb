"""What a slave hands back is taken in whole, once or twice, or not at all."""

from typing import Any, cast

import orjson
import pytest

from maxq.broker.pop.check_point_buffer import CheckPointBuffer
from maxq.broker.pop.hand_back import encode, take_in
from maxq.broker.pop.order_service import OrderService
from maxq.protocol.body.pop import PopCheckPoint
from tests.unit.broker.pop.test_check_point_buffer import Clock, Journal, Offsets

OWN = PopCheckPoint("T", "G", 0, 0, 1_000, 60_000, "b", [0, 1], 2)
THEIRS = PopCheckPoint("T", "G", 0, 2, 2_000, 60_000, "b", [0, 1], 2)


class Orders:
    """Queues in order; `rows` is handed back, `taken` was taken back."""

    def __init__(self, rows: list[list[Any]] | None = None) -> None:
        self.rows = rows or []
        self.taken: list[list[Any]] = []

    def hand_back(self) -> list[list[Any]]:
        return self.rows

    def take_back(self, rows: list[list[Any]]) -> None:
        self.taken += rows


def _buffer(*points: PopCheckPoint) -> CheckPointBuffer:
    buffer = CheckPointBuffer(Offsets(), Journal(), Clock())  # type: ignore[arg-type]
    buffer.is_open = True
    for point in points:
        buffer.add([(point, 0, point.start_offset + 2)])
    return buffer


def _told() -> dict[str, Any]:
    rows = [["T", "O", 0, 3, {"popTime": 5, "i": 60_000, "o": [3]}]]
    told: dict[str, Any] = orjson.loads(encode(0, _buffer(THEIRS), cast(OrderService, Orders(rows))))
    return {**told, "end": 1}  # the slave had read of OWN, and of its end


def _take_in(buffer: CheckPointBuffer, body: bytes) -> Orders:
    orders = Orders()
    take_in(body, 1, buffer, cast(OrderService, orders))
    return orders


def _rows(buffer: CheckPointBuffer) -> list[list[Any]]:
    return [row[1:] for row in buffer.hand_back()]


def test_an_answer_that_comes_twice_is_taken_in_once() -> None:
    buffer = _buffer(OWN)
    for _ in range(2):
        assert _take_in(buffer, orjson.dumps(_told())).taken
        assert _rows(buffer) == [row[1:] for row in _told()["live"]]


def _acked_at_the_slave(end: int) -> bytes:
    """It had read of THEIRS in the journal, and was told one ack of it."""
    told = _told()
    (row,) = told["live"]
    return orjson.dumps({**told, "end": end, "live": [[*row[:12], 1]], "noted": [row[0]]})


def test_acks_of_what_this_broker_has_handed_over_since_go_where_it_was_handed_over() -> None:
    buffer = _buffer(OWN)
    late = take_in(_acked_at_the_slave(1), 2, buffer, cast(OrderService, Orders()))
    assert [(ack.point.key, ack.offsets) for ack in late] == [(THEIRS.key, [2])]
    assert _rows(buffer) == [], "THEIRS is in the revive topic; taken in again, its messages would come twice"


def test_a_check_point_that_this_brokers_journal_has_lost_is_taken_in() -> None:
    buffer = _buffer()
    assert take_in(_acked_at_the_slave(3), 2, buffer, cast(OrderService, Orders())) == []
    assert [row[12 - 1] for row in _rows(buffer)] == [1]


def test_what_ended_behind_an_open_check_point_is_not_given_again_by_the_master() -> None:
    open_one = PopCheckPoint("T", "G", 0, 0, 1_000, 60_000, "b", [0, 1], 2)
    ended = PopCheckPoint("T", "G", 0, 2, 2_000, 60_000, "b", [0, 1], 2)
    slave, master = _buffer(open_one, ended), _buffer()
    live = slave.find(ended.key)
    assert live is not None
    slave.ack(live, [2, 3])
    body = encode(0, slave, cast(OrderService, Orders()))
    for _ in range(2):
        take_in(body, 1, master, cast(OrderService, Orders()))
        assert master.latest_offset("T", "G", 0) == slave.latest_offset("T", "G", 0) == 4
        assert master.in_flight == {("T", "G", 0): 2}
        assert len(master) == 1
    kept = master.find(open_one.key)
    assert kept is not None
    master.ack(kept, [0, 1])
    assert master.latest_offset("T", "G", 0) == -1
    assert master._offsets.query_offset("G", "T", 0) == 4


_CUT = [orjson.dumps(_told())[:size] for size in (1, 20, 80, -1)]
_WRONG = [
    {**_told(), "end": "1"},
    {**_told(), "live": [*_told()["live"], []]},
    {**_told(), "live": [_told()["live"][0][:12]]},
    {**_told(), "live": None},
    {**_told(), "orders": [["T", "O", 0, 3, {"popTime": "long ago"}]]},
    {**_told(), "orders": [["T", "O", 0]]},
    {"end": 1, "live": []},
    {**_told(), "noted": ["1"]},
    {**_told(), "noted": 1},
    *({**_told(), "live": [[*_told()["live"][0][:n], {}, *_told()["live"][0][n + 1 :]]]} for n in range(13)),
]


@pytest.mark.usefixtures("caplog")
@pytest.mark.parametrize("body", [*_CUT, *map(orjson.dumps, _WRONG), b"[1]", b"7", b"\xff"])
def test_of_an_answer_that_is_cut_or_malformed_nothing_is_taken_in(body: bytes) -> None:
    buffer = _buffer(OWN)
    before = _rows(buffer)
    assert _take_in(buffer, body).taken == []
    assert _rows(buffer) == before
