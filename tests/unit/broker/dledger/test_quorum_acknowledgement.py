"""What producers are told in a DLedger group (dledger.md §13.1)."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from maxq.broker.dledger.member_settings import member_config, slave_id
from maxq.broker.dledger.quorum_acknowledgement import QuorumAcknowledgement
from maxq.broker.identity.role import check_role
from maxq.codes import ResponseCode
from maxq.config import BrokerSettings
from maxq.errors import ConfigError
from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode

PEERS = "n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913"


class Quorum:
    def __init__(self) -> None:
        self.is_leader = True
        self.refusal: DLedgerResponseCode | None = None
        self.waiting: list[tuple[int, Callable[[DLedgerResponseCode], None]]] = []
        self.committed = 0

    def append_refusal(self) -> DLedgerResponseCode | None:
        return self.refusal

    def when_committed(self, end_position: int, done: Callable[[DLedgerResponseCode], None]) -> bool:
        if end_position <= self.committed:
            return False
        self.waiting.append((end_position, done))
        return True


def acknowledgement_of(quorum: Quorum) -> QuorumAcknowledgement:
    acknowledgement = QuorumAcknowledgement(cast(Any, None))
    acknowledgement.set_quorum(quorum)
    return acknowledgement


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (DLedgerResponseCode.SUCCESS, ResponseCode.SUCCESS),
        (DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT, ResponseCode.SYSTEM_ERROR),
        (DLedgerResponseCode.TERM_CHANGED, ResponseCode.SYSTEM_ERROR),
        (DLedgerResponseCode.NOT_LEADER, ResponseCode.SERVICE_NOT_AVAILABLE),
        (DLedgerResponseCode.DISK_FULL, ResponseCode.SERVICE_NOT_AVAILABLE),
        (DLedgerResponseCode.DISK_ERROR, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_outcomes_become_the_codes_of_the_table(said: DLedgerResponseCode, told: ResponseCode) -> None:
    quorum = Quorum()
    heard: list[ResponseCode] = []
    assert acknowledgement_of(quorum).when(100, heard.append)
    ((end, done),) = quorum.waiting
    assert end == 100 and heard == []
    done(said)
    assert heard == [told]


def test_what_is_committed_is_not_waited_for() -> None:
    quorum = Quorum()
    quorum.committed = 100
    assert not acknowledgement_of(quorum).when(100, lambda code: pytest.fail("nobody is told"))


def test_a_leader_refuses_with_system_busy_while_it_cannot_lead() -> None:
    quorum = Quorum()
    acknowledgement = acknowledgement_of(quorum)
    assert acknowledgement.refusal() is None and acknowledgement.refusal_code == ResponseCode.SERVICE_NOT_AVAILABLE
    quorum.refusal = DLedgerResponseCode.LEADER_TRANSFERRING
    assert "handed over" in (acknowledgement.refusal() or "")
    quorum.refusal = DLedgerResponseCode.NOT_LEADER  # its lease has ended
    assert "no quorum" in (acknowledgement.refusal() or "")


def test_of_a_member_that_does_not_lead_the_store_says_why_it_refuses() -> None:
    quorum = Quorum()
    quorum.is_leader, quorum.refusal = False, DLedgerResponseCode.NOT_LEADER
    assert acknowledgement_of(quorum).refusal() is None


def settings_of(**more: str) -> BrokerSettings:
    properties = {
        "enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerPeers": PEERS, "dLegerSelfId": "n1",
        "brokerId": "7", "brokerRole": "SYNC_MASTER", **more,
    }  # fmt: skip
    return BrokerSettings.from_properties(properties, source="test")[0]


def test_a_member_starts_as_a_slave_whose_id_is_its_number_and_one() -> None:
    settings = settings_of()
    check_role(settings)
    assert settings.store.broker_role == "SLAVE" and settings.broker.broker_id == 2
    assert slave_id(settings.store) == 2


def test_settings_that_make_no_member_end_the_start() -> None:
    with pytest.raises(ConfigError, match="dLegerSelfId=n7"):
        check_role(settings_of(dLegerSelfId="n7"))
    with pytest.raises(ConfigError, match="one character and a number"):
        check_role(settings_of(dLegerSelfId="node"))
    with pytest.raises(ConfigError, match="dLegerPeers"):
        check_role(settings_of(dLegerPeers=""))


def test_members_with_other_file_sizes_are_told_apart() -> None:
    assert member_config(settings_of().store).digest != (
        member_config(settings_of(mappedFileSizeCommitLog="65536").store).digest
    )
