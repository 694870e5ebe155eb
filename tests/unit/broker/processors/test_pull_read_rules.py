"""Who serves a reader, and whom it is told to ask next: every row of the rules (ha.md §6.1)."""

from dataclasses import dataclass

import pytest

from maxq.broker.processors.pull.pull_read_rules import ReadRules
from maxq.codes import ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.subscription import SubscriptionGroupConfig

SLOW, OWN = 3, 5  # of the group: whichBrokerWhenConsumeSlowly, brokerId
GROUP = SubscriptionGroupConfig("G", which_broker_when_consume_slowly=SLOW, broker_id=OWN)
SUCCESS, NOT_FOUND = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND
RETRY, MOVED = ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED


@dataclass
class Group:
    """What a broker believes of its group."""

    is_acting_master: bool
    min_broker_id: int | None
    log_is_another: bool = False


def rules(
    role: str, *, read: bool = True, corrects: bool = False, acting: bool = False, min_id: int | None = None
) -> ReadRules:
    """Of a broker with slaveReadEnable `read` and offsetCheckInSlave `corrects`; `min_id`: the smallest id alive."""
    settings, _ = BrokerSettings.from_properties(
        {"brokerRole": role, "slaveReadEnable": str(read).lower(), "offsetCheckInSlave": str(corrects).lower()},
        source="test",
    )
    return ReadRules(settings, Group(acting, min_id))


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("acting", [True, False])
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
def test_only_a_slave_that_may_not_be_read_and_does_not_act_as_master_refuses(
    role: str, acting: bool, read: bool
) -> None:
    refuses = rules(role, read=read, acting=acting).refusal() is not None
    assert refuses is (role == "SLAVE" and not read and not acting)


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
@pytest.mark.parametrize("min_id", [None, 0, 1])
@pytest.mark.parametrize("is_behind", [True, False])
def test_without_slave_reads_everybody_is_sent_to_the_master(role: str, min_id: int | None, is_behind: bool) -> None:
    assert rules(role, read=False, min_id=min_id).suggest(GROUP, is_behind) == 0


@pytest.mark.parametrize(
    ("role", "min_id", "in_memory", "behind"),
    [
        ("ASYNC_MASTER", None, OWN, SLOW),
        ("ASYNC_MASTER", 0, OWN, SLOW),
        ("SLAVE", None, OWN, SLOW),
        ("SLAVE", 1, OWN, SLOW),
        ("SLAVE", 0, 0, SLOW),
    ],
)
def test_who_is_behind_goes_to_the_slow_readers_broker_and_who_keeps_up_to_the_groups_or_the_live_master(
    role: str, min_id: int | None, in_memory: int, behind: int
) -> None:
    one = rules(role, min_id=min_id)
    assert (one.suggest(GROUP, is_behind=False), one.suggest(GROUP, is_behind=True)) == (in_memory, behind)


@pytest.mark.parametrize("code", [SUCCESS, NOT_FOUND, RETRY, MOVED])
@pytest.mark.parametrize("min_id", [None, 0])
def test_a_master_tells_what_it_found(code: ResponseCode, min_id: int | None) -> None:
    master = rules("ASYNC_MASTER", min_id=min_id)
    assert master.direct(code, GROUP, is_behind=False) == (code, OWN)
    assert master.direct(code, GROUP, is_behind=True) == (code, SLOW)


@pytest.mark.parametrize(
    ("code", "min_id", "is_behind", "corrects", "told"),
    [
        (SUCCESS, 0, False, False, (SUCCESS, 0)),
        (SUCCESS, None, False, False, (SUCCESS, OWN)),
        (NOT_FOUND, 0, False, False, (RETRY, 0)),
        (NOT_FOUND, 0, True, False, (NOT_FOUND, SLOW)),
        (NOT_FOUND, 1, False, False, (NOT_FOUND, OWN)),
        (NOT_FOUND, None, False, False, (NOT_FOUND, OWN)),
        (MOVED, 0, False, True, (RETRY, 0)),
        (MOVED, 0, True, False, (RETRY, OWN)),
        (MOVED, 1, False, False, (RETRY, OWN)),
        (MOVED, 1, False, True, (MOVED, OWN)),
        (MOVED, 1, True, True, (MOVED, SLOW)),
    ],
)
def test_a_slave_sends_readers_to_a_live_master_and_corrects_no_offset_unless_told_to(
    code: ResponseCode, min_id: int | None, is_behind: bool, corrects: bool, told: tuple[ResponseCode, int]
) -> None:
    assert rules("SLAVE", min_id=min_id, corrects=corrects).direct(code, GROUP, is_behind) == told


def test_only_a_slave_without_a_live_master_has_readers_wait_for_what_it_lacks() -> None:
    assert rules("SLAVE").may_wait_for_copy(MOVED)
    assert rules("SLAVE", min_id=1).may_wait_for_copy(MOVED)
    assert not rules("SLAVE").may_wait_for_copy(NOT_FOUND)
    assert not rules("SLAVE", min_id=0).may_wait_for_copy(MOVED)
    assert not rules("SLAVE", corrects=True).may_wait_for_copy(MOVED)
    assert not rules("ASYNC_MASTER").may_wait_for_copy(MOVED)
