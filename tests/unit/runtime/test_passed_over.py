"""One thing that fails is named once, counted, and harms no other."""

import asyncio
import logging

import pytest

from maxq.errors import MaxQError, StoreFailedError
from maxq.runtime.passed_over import PassedOver

log = logging.getLogger(__name__)


def test_the_rest_goes_on_and_the_same_failure_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    passed_over, done = PassedOver(log), []
    for _ in range(3):
        for number in range(4):
            with passed_over("record %d", number) as attempt:
                if number == 2:
                    raise MaxQError("it is torn")
                done.append(number)
            assert attempt.failed == (number == 2)
    assert done == [0, 1, 3] * 3
    assert passed_over.count == 3 and passed_over.reasons == {"record 2": "it is torn"}
    assert [record.getMessage() for record in caplog.records] == ["record 2 is skipped: it is torn"]
    assert caplog.records[0].exc_info is None


def test_a_failure_that_nobody_foresaw_has_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    with PassedOver(log)("100 % of it"):
        raise KeyError("x")
    assert caplog.records[0].getMessage() == "100 % of it is skipped: KeyError: 'x'"
    assert caplog.records[0].exc_info is not None


@pytest.mark.parametrize("error", [StoreFailedError("the disk failed"), asyncio.CancelledError(), SystemExit(1)])
def test_what_must_end_a_service_ends_it(error: BaseException) -> None:
    with pytest.raises(type(error)), PassedOver(log)("a record"):
        raise error


def test_only_so_many_are_remembered() -> None:
    passed_over = PassedOver(log)
    for number in range(1_100):
        with passed_over("record %d", number):
            raise OSError("no")
    assert passed_over.count == 1_100 and len(passed_over.reasons) == 1_000 and "record 1099" in passed_over.reasons
