"""What only one broker of a group does at a time."""

import pytest

from maxq.broker.failover.master_only_services import MasterOnlyServices
from tests.unit.broker.failover.group_world import Switch


def test_all_services_follow_together_and_once_per_change() -> None:
    services, one, other = MasterOnlyServices(), Switch(), Switch()
    services.register("one", one)
    services.register("other", other)
    for state in (True, True, False, False):
        services.change(state)
    assert one.log == other.log == ["stop", "start", "stop"]
    assert services.names() == ["one", "other"]


def test_who_begins_again_has_ended_before_and_who_does_not_speak_does_not_begin() -> None:
    services, one = MasterOnlyServices(), Switch()
    services.register("one", one)
    services.begin_again()
    services.change(True)
    services.begin_again()
    assert one.log == ["stop", "start", "stop", "start"]


def test_a_service_registered_late_is_brought_into_the_present_state() -> None:
    services, late = MasterOnlyServices(), Switch()
    services.change(True)
    services.register("late", late)
    assert late.log == ["start"]


def test_the_failure_of_one_service_keeps_no_other_from_following(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def start(self) -> None:
            raise RuntimeError("wheel is stuck")

        def stop(self) -> None:
            pass

    services, other = MasterOnlyServices(), Switch()
    services.register("timer", Broken())
    services.register("other", other)
    services.change(True)
    assert other.log == ["stop", "start"]
    assert "timer did not start" in caplog.text
