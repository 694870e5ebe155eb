"""What is given out in order: who is blocked, what an ack commits, and the file."""

import json
from pathlib import PurePath
from typing import Any

import pytest

from maxq.broker.pop.order_info import FILE_NAME, ILLEGAL, NO_COMMIT, ConsumerOrderInfoManager, OrderInfo
from maxq.errors import RemoteProtocolError
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng

DAY_MS = 24 * 3_600_000
INVISIBLE_MS = 60_000


class World:
    """One table; times are ms since it was made."""

    def __init__(self, queues: int = 4) -> None:
        self.clock = SimClock()
        self.start = self.clock.wall_ms()
        self.queues = queues
        self.disk = SimDisk(SimRng(1), self.clock)
        self.table = self.new_table()

    def new_table(self) -> ConsumerOrderInfoManager:
        return ConsumerOrderInfoManager(
            self.disk,
            PurePath(FILE_NAME),
            clock=self.clock,
            is_there=lambda topic, group: self.queues if topic == "T" else 0,
        )

    def deliver(self, *offsets: int, attempt: str | None = "a", at: int = 0, queue_id: int = 0) -> list[str]:
        return self.table.delivered(
            "T", "G", queue_id, attempt_id=attempt, pop_time=self.start + at, invisible_time=INVISIBLE_MS,
            offsets=list(offsets),
        )  # fmt: skip

    def ack(self, offset: int, *, at: int = 0, committed: int = 0) -> int:
        return self.table.commit_and_next("T", "G", 0, offset, self.start + at, committed)

    def is_blocked(self, attempt: str | None = "b", invisible_ms: int = INVISIBLE_MS) -> bool:
        return self.table.is_blocked("T", "G", 0, attempt, invisible_ms)

    def wait(self, ms: int) -> None:
        self.clock.advance_ms(ms)


@pytest.fixture
def world() -> World:
    return World()


def test_an_ack_of_an_unknown_delivery_passes_over_no_message(world: World) -> None:
    assert world.ack(7, committed=3) == NO_COMMIT
    assert world.ack(3, committed=3) == 4
    assert world.ack(0, committed=-1) == 1
    assert world.ack(1, committed=1) == 2


def test_the_offset_to_commit_is_that_of_the_first_open_message(world: World) -> None:
    world.deliver(5, 7, 9)
    assert world.ack(7) == 5
    assert world.ack(5) == 9
    assert world.ack(9) == 10


def test_acks_of_other_messages_and_deliveries_commit_nothing(world: World) -> None:
    world.deliver(5, 7)
    assert world.ack(6) == ILLEGAL
    assert world.ack(5, at=1) == NO_COMMIT
    assert world.ack(7) == 5
    world.table.put("T", "G", 0, OrderInfo("a", world.start, INVISIBLE_MS, [], 0))
    assert world.ack(5) == ILLEGAL


def test_a_queue_is_blocked_while_a_message_is_open_and_invisible(world: World) -> None:
    assert not world.is_blocked()
    world.deliver(5, 7)
    assert world.is_blocked("b")
    assert not world.is_blocked("a")
    assert world.is_blocked(None)
    assert not world.table.is_blocked("T", "G", 1, "b", INVISIBLE_MS)
    assert not world.table.is_blocked("T", "other", 0, "b", INVISIBLE_MS)
    world.ack(5)
    assert world.is_blocked("b")
    world.ack(7)
    assert not world.is_blocked("b")


def test_a_block_ends_when_the_messages_may_be_seen_again(world: World) -> None:
    world.deliver(5)
    assert world.table.blocks() == [("T", "G", 0, world.start + INVISIBLE_MS)]
    world.wait(INVISIBLE_MS - 1)
    assert world.is_blocked()
    world.wait(1)
    assert not world.is_blocked()
    assert world.table.blocks() == []


def test_an_attempt_without_a_name_is_nobodys(world: World) -> None:
    world.deliver(5, attempt=None)
    assert world.is_blocked(None)
    assert world.is_blocked("a")


def test_a_delivery_without_a_time_takes_that_of_who_asks(world: World) -> None:
    world.table.put("T", "G", 0, OrderInfo("a", world.start, 0, [5], 0))
    assert world.is_blocked("b", invisible_ms=10)
    world.wait(10)
    assert not world.is_blocked("b", invisible_ms=99)


def test_a_changed_time_counts_for_its_message(world: World) -> None:
    world.deliver(5, 7)
    assert not world.table.change_visible_time("T", "G", 0, 5, world.start + 1, 0)
    assert not world.table.change_visible_time("T", "G", 1, 5, world.start, 0)
    assert world.table.change_visible_time("T", "G", 0, 5, world.start, world.start + 100)
    assert world.table.blocks() == [("T", "G", 0, world.start + 100)]
    world.wait(100)
    assert world.table.blocks() == [("T", "G", 0, world.start + INVISIBLE_MS)], "the other one is open still"


@pytest.mark.parametrize(("ago_ms", "seen_after_ms"), [(INVISIBLE_MS, 2 * INVISIBLE_MS), (DAY_MS, INVISIBLE_MS)])
def test_a_clock_that_was_set_back_blocks_for_one_invisible_time_at_most(
    world: World, ago_ms: int, seen_after_ms: int
) -> None:
    world.deliver(5, 7, at=ago_ms)
    assert world.table.blocks() == [("T", "G", 0, world.start + seen_after_ms)]
    world.wait(seen_after_ms)
    assert not world.is_blocked()


def test_a_message_that_may_be_seen_sooner_stays_so_when_the_clock_was_set_back(world: World) -> None:
    world.deliver(5, at=DAY_MS)
    world.table.change_visible_time("T", "G", 0, 5, world.start + DAY_MS, world.start + 10)
    assert world.table.blocks() == [("T", "G", 0, world.start + 10)]


def test_what_comes_again_is_counted_by_message(world: World) -> None:
    assert world.deliver(5, 6) == ["0 0 0"]
    assert world.deliver(5, 6, attempt="a") == ["0 0 0"], "the same attempt has lost its answer"
    assert world.deliver(5, 6, 7, attempt="b") == ["0 qo0%5 1", "0 qo0%6 1", "0 0 0"]
    assert world.deliver(6, 7, attempt="c") == ["0 qo0%6 2", "0 qo0%7 1", "0 0 1"]
    assert world.deliver(6, attempt=None) == ["0 qo0%6 3", "0 0 3"]
    assert world.deliver(6, attempt=None) == ["0 qo0%6 4", "0 0 4"]
    assert world.deliver(6, attempt=None, queue_id=2) == ["0 2 0"]


def test_a_delivery_takes_the_place_of_the_one_before(world: World) -> None:
    world.deliver(5, 6)
    world.deliver(6, 7, attempt="b", at=5)
    assert world.ack(6) == NO_COMMIT
    assert world.ack(6, at=5) == 7
    info = world.table.get("T", "G", 0)
    assert info is not None
    assert (info.attempt_id, info.pop_time, info.offsets, info.committed) == ("b", world.start + 5, [6, 7], 1)


def test_an_administrators_reset_takes_the_block_away(world: World) -> None:
    world.deliver(5)
    world.table.is_dirty = False
    world.table.clear_block("T", "G", 1)
    world.table.clear_block("T", "other", 0)
    assert (world.is_blocked(), world.table.is_dirty) == (True, False)
    world.table.clear_block("T", "G", 0)
    assert (world.is_blocked(), world.table.is_dirty) == (False, True)


def test_every_change_is_to_be_written(world: World) -> None:
    def is_dirty() -> bool:
        was, world.table.is_dirty = world.table.is_dirty, False
        return was

    world.deliver(5, 7)
    assert is_dirty()
    world.ack(6)
    world.ack(5, at=1)
    world.table.change_visible_time("T", "G", 0, 5, world.start + 1, 0)
    world.is_blocked()
    assert not is_dirty()
    world.ack(5)
    assert is_dirty()
    world.table.change_visible_time("T", "G", 0, 7, world.start, 0)
    assert is_dirty()
    world.table.put("T", "G", 1, OrderInfo(None, 1, 2, [3], 4))
    assert is_dirty()
    assert [row[:3] for row in world.table.rows()] == [("T", "G", 0), ("T", "G", 1)]


def test_deliveries_of_what_is_gone_and_of_long_ago_are_forgotten(world: World) -> None:
    now = world.clock.wall_ms()
    for queue_id in range(5):
        world.table.put("T", "G", queue_id, OrderInfo("a", now, INVISIBLE_MS, [5], now - DAY_MS))
    world.table.put("gone", "G", 0, OrderInfo("a", now, INVISIBLE_MS, [5], now))
    world.table.put("T", "old", 0, OrderInfo("a", now, INVISIBLE_MS, [5], now - DAY_MS - 1))
    world.table.is_dirty = False
    world.table.clean(now)
    assert [row[:3] for row in world.table.rows()] == [("T", "G", queue_id) for queue_id in range(4)]
    assert world.table.is_dirty
    assert list(world.table.to_json()["table"]) == ["T@G"]
    world.table.is_dirty = False
    world.table.clean(now)
    assert not world.table.is_dirty


def test_the_file_is_javas(world: World) -> None:
    world.deliver(5, 7, 10)
    world.deliver(5, 7, 10, attempt="b")
    world.ack(7)
    world.table.change_visible_time("T", "G", 0, 10, world.start, 77)
    world.table.put("T", "G", 3, OrderInfo(None, 1, 2, [], 4))
    written = json.loads(json.dumps(world.table.to_json()))
    now = world.start
    assert written == {
        "table": {
            "T@G": {
                "0": {
                    "a": "b", "cm": 2, "i": INVISIBLE_MS, "l": now, "o": [5, 2, 5],
                    "oc": {"5": 1, "7": 1, "10": 1}, "ot": {"10": 77}, "popTime": now,
                },
                "3": {"cm": 0, "i": 2, "l": 4, "o": [], "oc": {}, "popTime": 1},
            }
        }
    }  # fmt: skip
    other = world.new_table()
    other.from_json({**written, "other": 1})
    assert list(other.rows()) == list(world.table.rows())


def test_what_java_leaves_out_is_nothing(world: World) -> None:
    world.table.from_json({"table": {"T@G": {"0": {"o": None}, "1": {}}, "no group": {"0": {}}}})
    assert list(world.table.rows()) == [
        ("T", "G", 0, OrderInfo(None, 0, 0, [], 0)),
        ("T", "G", 1, OrderInfo(None, 0, 0, [], 0)),
    ]
    assert not world.is_blocked()


@pytest.mark.parametrize(
    "value",
    [
        {"T@G": 1},
        {"T@G": {"x": {}}},
        {"T@G": {"0": 1}},
        {"T@G": {"0": {"o": [1, "x"]}}},
        {"T@G": {"0": {"o": 1}}},
        {"T@G": {"0": {"o": [1 << 62, 1 << 62]}}},
        {"T@G": {"0": {"popTime": 1 << 63}}},
        {"T@G": {"0": {"i": -(1 << 63) - 1}}},
        {"T@G": {"0": {"ot": [1]}}},
        {"T@G": {"0": {"oc": {"a": 1}}}},
        {"T@G": {"0": {"cm": "x"}}},
        {"T@G": {"0": {"l": float("inf")}}},
    ],
)
def test_files_that_are_none_are_refused(world: World, value: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        world.table.from_json({"table": value})


def test_the_largest_numbers_of_64_bits_are_taken(world: World) -> None:
    row = {"o": [(1 << 63) - 1], "popTime": -(1 << 63), "i": (1 << 63) - 1}
    world.table.from_json({"table": {"T@G": {"0": row}}})
    info = world.table.get("T", "G", 0)
    assert info is not None
    assert (info.offsets, info.pop_time, info.invisible_time) == ([(1 << 63) - 1], -(1 << 63), (1 << 63) - 1)


def test_a_time_beyond_64_bits_in_a_file_is_the_latest_there_is() -> None:
    info = OrderInfo.from_json({"popTime": 1, "i": 2, "o": [0], "ot": {"0": (1 << 63) + 5}})
    assert info.next_visible == {0: (1 << 63) - 1}
