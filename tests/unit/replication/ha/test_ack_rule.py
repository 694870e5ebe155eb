"""How many copies a send waits for (spec ha.md §5.1)."""

from dataclasses import replace
from typing import Any

import pytest

from maxq.config.settings import BrokerSettings
from maxq.replication.ha.group_transfer import AckRule


def rule(in_sync: int = 1, *, acting: bool = False, **store: Any) -> AckRule:
    properties = {"brokerRole": "SYNC_MASTER", **store}
    if acting:
        properties["enableSlaveActingMaster"] = "true"
    settings, warnings = BrokerSettings.from_properties(properties, source="test")
    assert warnings == ()
    return AckRule(settings, lambda: in_sync)


@pytest.mark.parametrize(
    ("store", "needed"),
    [
        ({}, 2),
        ({"inSyncReplicas": "1"}, 1),
        ({"inSyncReplicas": "2"}, 2),
        ({"inSyncReplicas": "3"}, 3),
        ({"brokerRole": "ASYNC_MASTER", "inSyncReplicas": "3"}, 1),
        ({"brokerRole": "SLAVE", "inSyncReplicas": "3"}, 1),
        ({"inSyncReplicas": "3", "enableAutoInSyncReplicas": "true"}, 3),
    ],
    ids=["not given", "1", "2", "3", "async", "slave", "auto without acting master"],
)
def test_copies_a_send_waits_for(store: dict[str, Any], needed: int) -> None:
    assert rule(**store).needed_acks() == needed


@pytest.mark.parametrize(("in_sync", "needed"), [(1, 2), (2, 2), (3, 3), (5, 4)])
def test_auto_waits_for_what_is_in_sync_between_minimum_and_number(in_sync: int, needed: int) -> None:
    found = rule(in_sync, acting=True, inSyncReplicas="4", minInSyncReplicas="2", enableAutoInSyncReplicas="true")
    assert found.needed_acks() == needed


def test_with_an_acting_master_too_few_in_sync_refuse_before_anything_is_stored() -> None:
    remark = rule(1, acting=True, inSyncReplicas="2").refusal()
    assert remark is not None
    assert remark.startswith("[REPLICAS]in-sync replicas not enough: 1 of the needed 2")
    assert rule(2, acting=True, inSyncReplicas="2").refusal() is None
    assert rule(1, acting=True, inSyncReplicas="1").refusal() is None


def test_auto_degrades_to_the_minimum_and_refuses_below_it() -> None:
    settings: dict[str, Any] = {"inSyncReplicas": "3", "enableAutoInSyncReplicas": "true"}
    assert rule(1, acting=True, **settings).refusal() is None
    assert rule(1, acting=True, minInSyncReplicas="2", **settings).refusal() is not None


def test_without_an_acting_master_nothing_is_refused() -> None:
    assert rule(1, inSyncReplicas="5").refusal() is None


def test_a_live_change_counts_for_the_next_send() -> None:
    settings = BrokerSettings.from_properties({"brokerRole": "SYNC_MASTER"}, source="test")[0]
    found = AckRule(settings, lambda: 1)
    settings.update({"inSyncReplicas": "1"})
    assert found.needed_acks() == 1
    settings.store = replace(settings.store, broker_role="SLAVE")
    assert found.needed_acks() == 1


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ({}, "inSyncReplicas is not given: sends wait for one slave"),
        ({"inSyncReplicas": "1"}, "inSyncReplicas=1: sends wait for no slave"),
        ({"inSyncReplicas": "2"}, "inSyncReplicas=2: sends wait for one slave"),
        ({"inSyncReplicas": "3"}, "inSyncReplicas=3: sends wait for 2 slaves"),
        ({"brokerRole": "ASYNC_MASTER"}, "ASYNC_MASTER: sends wait for no slave"),
    ],
)
def test_the_start_up_line_says_the_rule(store: dict[str, Any], words: str) -> None:
    assert words in rule(**store).sentence()


@pytest.mark.parametrize(
    ("acting", "store", "sentence"),
    [
        (False, {"brokerRole": "ASYNC_MASTER"}, "ASYNC_MASTER: sends wait for no slave"),
        (False, {"brokerRole": "SLAVE"}, "SLAVE: sends go to the master"),
        (False, {"inSyncReplicas": "1"}, "SYNC_MASTER, inSyncReplicas=1: sends wait for no slave"),
        (False, {"inSyncReplicas": "2"}, "SYNC_MASTER, inSyncReplicas=2: sends wait for one slave"),
        (
            False,
            {"inSyncReplicas": "3", "enableAutoInSyncReplicas": "true"},
            "SYNC_MASTER, inSyncReplicas=3: sends wait for 2 slaves",
        ),
        (True, {"inSyncReplicas": "3"}, "SYNC_MASTER, inSyncReplicas=3: sends wait for 2 slaves"),
        (
            True,
            {"inSyncReplicas": "3", "enableAutoInSyncReplicas": "true"},
            "SYNC_MASTER, inSyncReplicas=3: sends wait for 2 slaves, for fewer (at least 1 copies) while fewer are in "
            "sync",
        ),
    ],
)
def test_a_start_says_what_sends_wait_for(acting: bool, store: dict[str, Any], sentence: str) -> None:
    assert rule(acting=acting, **store).sentence() == sentence
