"""What access control writes down, and how often."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from maxq.access.audit import CHANGES, Audit
from maxq.auth.judge import DenialCause, Refused
from maxq.auth.needs import needs_of
from maxq.auth.policy import Action
from maxq.codes import RequestCode as Code
from maxq.errors import RemoteProtocolError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection
from maxq.testing.sim_clock import SimClock

CONNECTION = cast(Connection, SimpleNamespace(remote_address="10.0.0.1:4711"))
NAMES = ("topic", "consumerGroup", "group", "groupName", "destGroup", "application", "b")

#: Requests that servers repeat among themselves, and requests that nobody sends here.
NOT_WRITTEN = {
    Code.REGISTER_BROKER, Code.REGISTER_TOPIC_IN_NAMESRV, Code.BROKER_HEARTBEAT, Code.NOTIFY_MIN_BROKER_ID_CHANGE,
    Code.EXCHANGE_BROKER_HA_INFO, Code.MAXQ_HAND_BACK_POPS, Code.MAXQ_COPY_POPS, Code.GET_BROKER_HA_STATUS,
    Code.CONTROLLER_ELECT_MASTER, Code.CONTROLLER_GET_METADATA_INFO,
    Code.UPDATE_CONTROLLER_CONFIG, Code.GET_CONTROLLER_CONFIG, Code.CLEAN_BROKER_DATA, Code.GET_BROKER_CLUSTER_ACL_INFO,
    Code.GET_BROKER_CLUSTER_ACL_CONFIG, Code.MAXQ_WHY_SLOW, Code.POP_ROLLBACK, Code.MAXQ_AWAIT_TABLE_CHANGE,
}  # fmt: skip


def refuse(audit: Audit, cause: DenialCause, user: str, source_ip: str = "10.0.0.1") -> None:
    audit.note_refusal(CONNECTION, RemotingCommand(310, {"Signature": "hush"}), Refused(cause, user, "no"), source_ip)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Nothing of what others' garbage says when it is collected."""
    return [record.getMessage() for record in caplog.records if record.name == "maxq.audit"]


def changes_a_server(code: Code) -> bool:
    """By what policies must allow for it."""
    try:
        needs = needs_of(code, dict.fromkeys(NAMES, "x"), b"{}")
    except RemoteProtocolError:
        return False
    if needs is None:  # nobody may ask it
        return False
    changes = {Action.CREATE, Action.UPDATE, Action.DELETE}
    return any(changes.intersection(need.actions) and Action.SUB not in need.actions for need in needs)


def test_every_request_that_changes_a_server_is_written_down() -> None:
    assert {code for code in Code if changes_a_server(code)} - CHANGES == NOT_WRITTEN
    assert not CHANGES & NOT_WRITTEN


def test_a_client_that_is_refused_again_and_again_is_one_line_an_interval(caplog: pytest.LogCaptureFixture) -> None:
    clock = SimClock()
    audit = Audit(clock)
    for _ in range(5):
        refuse(audit, DenialCause.WRONG_SIGNATURE, "eve\nadmin")
    (line,) = said(caplog)
    assert "refused 310 SEND_MESSAGE_V2 from 10.0.0.1:4711, user 'eve\\nadmin'" in line
    assert "hush" not in line and "\nadmin'" not in line
    clock.advance_ms(10_000)
    refuse(audit, DenialCause.WRONG_SIGNATURE, "eve\nadmin")
    assert "(4 more since the last line)" in said(caplog)[-1]
    assert audit.refused[DenialCause.WRONG_SIGNATURE] == 6


def test_made_up_names_and_addresses_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = SimClock()
    audit = Audit(clock)
    for number in range(3000):
        refuse(audit, DenialCause.UNKNOWN_USER, f"eve{number}")
    assert len(said(caplog)) == 1
    for number in range(3000):
        refuse(audit, DenialCause.NO_CREDENTIALS, "", f"10.1.{number // 250}.{number % 250}")
    assert 999 <= len(said(caplog)) <= 1002
    clock.advance_ms(10_000)
    caplog.clear()
    refuse(audit, DenialCause.NO_PERMISSION, "bob")
    assert len(said(caplog)) == 1  # the old ones gave way


def test_what_changes_a_server_is_a_line_without_what_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "maxq.audit")
    audit, ext = Audit(SimClock()), dict[str, Any](AccessKey="root", Signature="sig", SecurityToken="token")
    request = RemotingCommand(Code.MAXQ_PURGE_TOPIC, ext, b"secret")
    audit.note_outcome(CONNECTION, request, request.reply())
    audit.note_outcome(CONNECTION, request, None)
    audit.note_outcome(CONNECTION, request, request.reply(1, "no\nsuch topic", body=b"secret"))
    audit.note_outcome(CONNECTION, RemotingCommand(Code.GET_MAX_OFFSET, ext), request.reply())
    who = "30081 MAXQ_PURGE_TOPIC from 10.0.0.1:4711, user 'root'"
    assert said(caplog) == [f"done {who}", f"done {who}", f"failed {who}: code 1: 'no\\nsuch topic'"]
