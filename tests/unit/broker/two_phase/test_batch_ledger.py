"""What entries say, alone and as a snapshot."""

import json
from typing import Any

import pytest

from maxq.broker.two_phase.batch_ledger import (
    CLAIM,
    DECISION,
    DELIVERY,
    DONE,
    STEP,
    BatchLedger,
    StagedRequest,
    read_runs,
)
from maxq.errors import RemoteProtocolError

DECIDED = {"brokers": {"broker-a": {"runs": [["x", 0, 7, 2], ["y", 0, 9, 1]]}}}
ENTRIES: list[dict[str, Any]] = [
    {"kind": CLAIM, "application": "app", "coordinator": "broker-b"},
    {"kind": DECISION, "application": "app", "batch": 4, "decision": DECIDED},
    {"kind": DELIVERY, "application": "app", "batch": 4, "runs": DECIDED["brokers"]["broker-a"]["runs"]},
    {"kind": STEP, "application": "app", "batch": 4, "piece": 0, "messages": None, "lost": 0},
    {"kind": STEP, "application": "app", "batch": 4, "piece": 0, "messages": [2, 3], "lost": 0},
    {"kind": STEP, "application": "app", "batch": 4, "piece": 1, "messages": None, "lost": 1},
    {"kind": DONE, "application": "app", "batch": 4, "lost": 1},
]


def ledger_after(count: int) -> BatchLedger:
    ledger = BatchLedger("broker-a")
    for number, entry in enumerate(ENTRIES[:count]):
        ledger.take(json.loads(json.dumps(entry)), 100 * (number + 1), number)
    return ledger


def test_a_delivery_is_where_its_last_step_began() -> None:
    delivery = ledger_after(5).applications["app"].delivery
    assert delivery is not None
    assert (delivery.piece, delivery.messages, delivery.step_end, delivery.done) == (0, [2, 3], 500, False)
    assert [delivery.piece_at(number) for number in range(delivery.count)] == [
        StagedRequest("x", 0, 7),
        StagedRequest("x", 1, 8),
        StagedRequest("y", 0, 9),
    ]


def test_when_it_is_done_nothing_is_uncertain() -> None:
    delivery = ledger_after(7).applications["app"].delivery
    assert delivery is not None
    assert (delivery.done, delivery.lost, delivery.step_end) == (True, 1, -1)


@pytest.mark.parametrize("count", range(1, len(ENTRIES) + 1))
def test_a_snapshot_says_what_the_entries_said(count: int) -> None:
    whole, again = ledger_after(count), BatchLedger("broker-a")
    for entry in whole.snapshot(now_ms=0):
        again.take(json.loads(json.dumps(entry)), 0, 0)
    assert again.applications == whole.applications


def test_who_was_not_heard_of_for_a_month_is_forgotten() -> None:
    month_ms = 31 * 24 * 3_600_000
    ledger = ledger_after(7)
    assert ledger.snapshot(now_ms=month_ms) == []
    lost = BatchLedger("broker-a")
    lost.take({"kind": "snapshot", "offset": 7, **ledger.end_of_snapshot(ledger.snapshot(0), 0)}, 0, 0)
    assert (lost.application("app").damaged_at, lost.application("other").damaged_at) == (7, -1)
    assert len(lost.end_of_snapshot([], 0)["lost"]) == 1
    assert lost.end_of_snapshot([], month_ms)["lost"] == {}


def test_entries_whose_beginning_has_expired_say_nothing() -> None:
    ledger = BatchLedger("broker-a")
    for entry in ENTRIES[3:]:
        ledger.take(entry, 0, 0)
    assert ledger.applications["app"].delivery is None


@pytest.mark.parametrize("wrong", [None, 5, [["x", 0, 1]], [["x", -1, 0, 1]], [[1, 0, 0, 1]], [["x", 0, 0, True]]])
def test_runs_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        read_runs(wrong)
