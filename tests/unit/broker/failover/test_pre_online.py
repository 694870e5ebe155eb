"""What a member of a group does before it goes online, and when it gives up."""

import asyncio
from dataclasses import replace

import pytest

from maxq.broker.failover.pre_online import MinBroker
from maxq.codes import ResponseCode
from maxq.errors import BrokerError, MaxQError, RemotingConnectError, RemotingSendError, RemotingTimeoutError
from maxq.protocol.header.admin import ExchangeHAInfoHeader
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.broker.failover.group_world import MASTER, MASTER_HA, SLAVE_1, SLAVE_2, Member


def prepare(member_id: int, set_up: "object" = None, *, replicas: int = 3) -> tuple[Member, MinBroker, float]:
    """Run the preparation of one broker in virtual time: (member, what it saw, seconds it took)."""

    async def main(world: SimWorld) -> tuple[Member, MinBroker, float]:
        member = Member(member_id, world.clock, totalReplicas=replicas)
        if callable(set_up):
            set_up(member)
        began = world.loop.time()
        return member, await member.pre_online.run(), world.loop.time() - began

    return run_simulation(main, seed=1)


def test_a_master_tells_each_slave_waits_until_it_copies_and_takes_back_what_it_kept() -> None:
    def set_up(member: Member) -> None:
        member.api.members = {0: MASTER, 2: SLAVE_2, 1: SLAVE_1}
        member.ha.copying = {"10.0.0.2", "10.0.0.3"}

    member, seen, seconds = prepare(0, set_up)
    info = ExchangeHAInfoHeader(MASTER_HA, 4096, MASTER)
    assert member.api.told == [(SLAVE_1, info), (SLAVE_2, info)]
    assert [host for host, _ in member.ha.waits] == ["10.0.0.2", "10.0.0.3"]
    assert member.metadata.taken == [SLAVE_2, SLAVE_1], "the one that acts promises nothing from then on"
    assert seen == (0, MASTER)
    assert seconds == 0


def test_a_master_goes_online_without_a_slave_that_does_not_copy_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    def set_up(member: Member) -> None:
        member.api.members = {1: SLAVE_1, 2: SLAVE_2}
        member.ha.copying = {"10.0.0.3"}

    member, _, _ = prepare(0, set_up)
    assert "slave 1 at 10.0.0.2:10911 does not copy from this master: going on without it" in caplog.text
    assert member.metadata.taken == [SLAVE_2, SLAVE_1]  # what it kept counts all the same


@pytest.mark.parametrize(
    "failure",
    [
        BrokerError(ResponseCode.SERVICE_NOT_AVAILABLE, "it stood still"),
        RemotingSendError("the connection broke", address=SLAVE_1),
        RemotingTimeoutError("no answer", address=SLAVE_1, timeout_ms=3_000),
        RemotingConnectError("no packet comes through", address=SLAVE_1),
    ],
)
def test_a_slave_that_is_not_sure_of_its_role_or_cannot_be_heard_is_asked_again_for_what_it_kept(
    failure: MaxQError,
) -> None:
    def set_up(member: Member) -> None:
        member.api.members = {1: SLAVE_1}
        member.ha.copying = {"10.0.0.2"}
        member.metadata.failure = failure
        asyncio.get_running_loop().call_later(2.5, setattr, member.metadata, "failure", None)

    member, _, seconds = prepare(0, set_up, replicas=2)
    assert member.metadata.taken == [SLAVE_1]
    assert seconds == 3
    assert len(member.metadata.returns) == 4
    assert len(set(member.metadata.returns)) == 1, "of one return"


def test_a_slave_whose_process_has_ended_is_not_waited_for() -> None:
    def set_up(member: Member) -> None:
        member.api.members = {1: SLAVE_1}
        member.ha.copying = {"10.0.0.2"}
        member.metadata.failure = RemotingConnectError("nobody listens", address=SLAVE_1, is_refused=True)

    _, seen, seconds = prepare(0, set_up, replicas=2)
    assert (seen, seconds) == ((0, MASTER), 0)


def test_no_slave_is_asked_for_what_it_kept_before_all_waits_are_over() -> None:
    def set_up(member: Member) -> None:
        member.api.members = {1: SLAVE_1, 2: SLAVE_2}
        member.ha.copying = {"10.0.0.2"}
        member.metadata.taken = Steps(member)

    class Steps(list[str]):
        def __init__(self, member: Member) -> None:
            self.member = member

        def append(self, address: str) -> None:
            assert len(self.member.ha.waits) == 2
            super().append(address)

    member, _, _ = prepare(0, set_up)
    assert member.metadata.taken == [SLAVE_2, SLAVE_1]


def test_a_disk_that_refuses_what_a_slave_kept_keeps_no_master_offline(caplog: pytest.LogCaptureFixture) -> None:
    def set_up(member: Member) -> None:
        member.api.members = {1: SLAVE_1}
        member.ha.copying = {"10.0.0.2"}
        member.metadata.failure = OSError(28, "No space left on device")

    _, seen, _ = prepare(0, set_up)
    assert seen == (0, MASTER)
    assert "were not taken back: [Errno 28] No space left on device" in caplog.text


def test_a_master_gives_up_on_a_slave_that_cannot_be_told_after_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    def set_up(member: Member) -> None:
        member.api.members = {1: SLAVE_1}
        member.api.silent = {SLAVE_1}
        member.metadata.failure = BrokerError(1, "gone")

    member, seen, seconds = prepare(0, set_up, replicas=2)
    assert 8 <= seconds <= 10
    assert len(member.api.told) >= 9
    assert seen == (0, MASTER)
    assert "were not taken back" in caplog.text


def test_a_slave_asks_its_master_and_waits_until_it_copies() -> None:
    def set_up(member: Member) -> None:
        member.api.members = {0: MASTER, 2: SLAVE_2}
        member.ha.copying = {"10.0.0.1"}
        member.settings.store = replace(member.settings.store, sync_master_flush_offset_when_startup=True)

    member, seen, seconds = prepare(1, set_up)
    assert member.api.asked == [MASTER]
    assert member.store.checkpoint.master_flushed_offset == 4096
    assert member.ha.log == [MASTER_HA]
    assert member.ha.waits == [("10.0.0.1", 10_000)]
    assert member.sync.master_address == MASTER
    assert member.metadata.taken == []
    assert seen == (0, MASTER)
    assert seconds == 0


def test_a_slave_asks_a_master_that_is_silent_at_first_again() -> None:
    def set_up(member: Member) -> None:
        member.api.members = {0: MASTER}
        member.api.silent = {MASTER}
        member.ha.copying = {"10.0.0.1"}
        asyncio.get_running_loop().call_later(2.5, member.api.silent.clear)

    member, _, seconds = prepare(1, set_up)
    assert (member.ha.log, member.sync.master_address) == ([MASTER_HA], MASTER)
    assert 2.5 <= seconds <= 4


@pytest.mark.parametrize("copies", [True, False])
def test_a_slave_goes_online_after_ten_seconds_whatever_is_missing(
    copies: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def set_up(member: Member) -> None:
        member.api.members = {0: MASTER}
        if copies:
            member.api.silent = {MASTER}

    _, seen, seconds = prepare(1, set_up)
    assert seconds <= 10
    assert seen == (0, MASTER)
    assert "going online" in caplog.text


def test_a_master_that_does_not_replicate_is_not_waited_for() -> None:
    def set_up(member: Member) -> None:
        member.api.members = {0: MASTER}
        member.api.ha_info = ExchangeHAInfoHeader()

    member, _, seconds = prepare(1, set_up)
    assert (member.ha.log, seconds) == ([], 0)


def test_a_master_that_does_not_name_itself_is_where_it_was_asked() -> None:
    def set_up(member: Member) -> None:
        member.api.members = {0: MASTER}
        member.api.ha_info = ExchangeHAInfoHeader(MASTER_HA)

    assert prepare(1, set_up)[0].sync.master_address == MASTER


def test_a_slave_among_slaves_sees_the_smallest_other_one() -> None:
    def set_up(member: Member) -> None:
        member.api.members = {1: SLAVE_1, 2: SLAVE_2}

    assert prepare(1, set_up)[1] == (2, SLAVE_2)
    assert prepare(2, set_up)[1] == (1, SLAVE_1)


def test_a_broker_alone_is_its_groups_active_one() -> None:
    assert prepare(1)[1] == (1, SLAVE_1)
    assert prepare(0)[1] == (0, MASTER)


def test_a_master_that_reaches_no_name_server_goes_by_the_slaves_that_ask_it_when_they_are_all() -> None:
    def set_up(member: Member) -> None:
        member.api.members = None
        member.ha.copying = {"10.0.0.2", "10.0.0.3"}
        member.pre_online.hear_slave(1, SLAVE_1)  # before it began: it may have ended since
        for seconds, broker_id in ((1.5, 2), (2.5, 2), (30, 1)):
            address = SLAVE_1 if broker_id == 1 else SLAVE_2
            asyncio.get_running_loop().call_later(seconds, member.pre_online.hear_slave, broker_id, address)

    member, seen, seconds = prepare(0, set_up)
    assert member.metadata.taken == [SLAVE_2, SLAVE_1]
    assert [address for address, _ in member.api.told] == [SLAVE_1, SLAVE_2]
    assert seen == (0, MASTER)
    assert 30 <= seconds <= 31


@pytest.mark.parametrize("told", [{}, {1: SLAVE_1}, {0: MASTER, 1: SLAVE_1}])
def test_a_master_leaves_slaves_that_a_name_server_does_not_name_time_to_ask(told: dict[int, str]) -> None:
    """The name server was just started, or does not hear the slave that acts."""

    def set_up(member: Member) -> None:
        member.api.members = dict(told)
        for broker_id, address in ((2, SLAVE_2), (1, SLAVE_1)):
            asyncio.get_running_loop().call_later(1.2, member.pre_online.hear_slave, broker_id, address)

    member, _, seconds = prepare(0, set_up)
    assert member.metadata.taken == [SLAVE_2, SLAVE_1]
    assert seconds == 2


@pytest.mark.parametrize(("told", "waited"), [({1: SLAVE_1, 2: SLAVE_2}, 0), ({2: SLAVE_2}, 3), ({}, 3)])
def test_a_master_waits_three_intervals_for_slaves_that_nobody_names(told: dict[int, str], waited: int) -> None:
    def set_up(member: Member) -> None:
        member.api.members = dict(told)
        member.ha.copying = {"10.0.0.2", "10.0.0.3"}

    member, _, seconds = prepare(0, set_up)
    assert sorted(member.metadata.taken) == sorted(told.values())
    assert seconds == waited


def test_a_master_that_hears_neither_name_server_nor_slave_waits_until_one_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A slave may stand in for it, and clients may reach that."""

    def set_up(member: Member) -> None:
        member.api.members = None
        asyncio.get_running_loop().call_later(60, setattr, member.api, "members", {1: SLAVE_1})

    member, _, seconds = prepare(0, set_up)
    assert member.metadata.taken == [SLAVE_1]
    assert seconds >= 60
    assert caplog.text.count("0 of 2 slaves have asked: waiting") == 1


def test_a_master_that_is_its_whole_group_goes_online_after_ten_seconds() -> None:
    def set_up(member: Member) -> None:
        member.api.members = None
        member.settings.store = replace(member.settings.store, total_replicas=1)

    assert 10 <= prepare(0, set_up)[2] <= 11


def test_without_a_name_server_a_slave_goes_online_alone_after_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    def set_up(member: Member) -> None:
        member.api.members = None

    _, seen, seconds = prepare(1, set_up)
    assert seen == (1, SLAVE_1)
    assert 10 <= seconds <= 11
    assert "going online alone" in caplog.text
