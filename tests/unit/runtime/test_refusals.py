"""The form of refusals, and how they are counted."""

import logging

import pytest

from maxq.runtime.refusals import Cause, Refusals, cause_of, explain


def test_a_remark_names_cause_measured_value_limit_and_remedy() -> None:
    remark = explain(Cause.QUOTA, "topic T sent 12 messages", limit="10 a second (quota.messages)", remedy="send less")
    assert remark == "[QUOTA]topic T sent 12 messages, the limit is 10 a second (quota.messages); send less"
    assert cause_of(remark) == "QUOTA"


def test_the_cause_may_stand_behind_a_text_that_clients_know() -> None:
    assert cause_of("[PC_SYNCHRONIZED]broker busy [PCBUSY_CLEAN_QUEUE]an append took 2000 ms") == "PCBUSY_CLEAN_QUEUE"
    assert cause_of("topic[FOO] not exist") is None


def test_only_refusals_among_answers_are_counted() -> None:
    refusals = Refusals()
    refusals.heard("[DISK_FULL]the disk is 95% full", oneway=False)
    refusals.heard("[DISK_FULL]the disk is 96% full", oneway=True)
    refusals.heard("topic[T] not exist", oneway=False)
    refusals.heard(None, oneway=False)
    assert refusals.by_cause == {"DISK_FULL": 2}
    assert (refusals.total, refusals.oneway_dropped) == (2, 1)


def test_each_cause_is_logged_once_an_interval_with_its_newest_remark(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    refusals = Refusals()
    for number in range(3):
        refusals.count(Cause.QUOTA, f"[QUOTA]number {number}")
    refusals.report()
    refusals.report()
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("maxq.")]
    assert line.startswith("refused 3 requests with [QUOTA]") and line.endswith("[QUOTA]number 2")
