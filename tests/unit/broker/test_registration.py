"""Registration with name servers: what each is told, and when."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.identity.outer_api import RegisterResult
from maxq.broker.identity.registration import BrokerRegistration
from maxq.config.broker_config import BrokerConfig
from maxq.errors import BrokerError, ConfigError, RemotingConnectError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.topic_config import TopicConfig
from maxq.testing.simulation import SimWorld, run_simulation


@dataclass
class NameServers:
    """Stands for BrokerOuterApi: records what each address was told, refuses what the test wants refused."""

    told: list[tuple[str, list[str], int]] = field(default_factory=list)  # address, topics, version counter
    whole: list[bool] = field(default_factory=list)  # by row of `told`: was it said to be the whole table?
    perms: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    single: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    failing: dict[str, Exception] = field(default_factory=dict)
    refuses_increments: set[str] = field(default_factory=set)
    changed: bool = False
    order_topics: dict[str, str] = field(default_factory=dict)
    heartbeat_timeouts: list[int | None] = field(default_factory=list)
    master_address: str = ""
    holders: dict[str, str] = field(default_factory=dict)  # name server → whom it has under the broker's name and id
    called: set[str] = field(default_factory=set)  # addresses that answer to that name and id
    hanging: set[str] = field(default_factory=set)  # name servers that never answer
    late: dict[str, float] = field(default_factory=dict)  # name server → seconds until it takes a registration

    async def _meet(self, address: str) -> None:
        if address in self.hanging:
            await asyncio.Event().wait()
        if address in self.failing:
            raise self.failing[address]

    async def register_broker(
        self,
        address: str,
        broker: BrokerAddress,
        topics: Mapping[str, TopicConfig],
        data_version: DataVersion,
        *,
        timeout_ms: int,
        compressed: bool = False,
        heartbeat_timeout_ms: int | None = None,
        mappings: object = None,
        is_whole: bool = False,
    ) -> RegisterResult:
        await asyncio.sleep(self.late.get(address, 0))
        await self._meet(address)
        if len(topics) == 1 and address in self.refuses_increments:
            raise BrokerError(1, "register broker failed")
        self.told.append((address, list(topics), data_version.counter))
        self.whole.append(is_whole)
        self.heartbeat_timeouts.append(heartbeat_timeout_ms)
        self.perms.update({name: topic.perm for name, topic in topics.items()})
        return RegisterResult(self.order_topics, self.master_address)

    async def needs_registration(
        self, address: str, broker: BrokerAddress, data_version: DataVersion, *, timeout_ms: int
    ) -> bool:
        self.asked.append(address)
        return self.changed

    async def register_topic(self, address: str, broker: BrokerAddress, topic: TopicConfig, *, timeout_ms: int) -> None:
        self.single.append(topic.topic_name)

    async def holder(self, address: str, broker: BrokerAddress, *, timeout_ms: int) -> str:
        await self._meet(address)
        return self.holders.get(address, "")

    async def is_called(self, address: str, broker: BrokerAddress, *, timeout_ms: int) -> bool:
        if address in self.failing:
            raise self.failing[address]
        return address in self.called

    async def unregister_broker(self, address: str, broker: BrokerAddress) -> None:
        await self._meet(address)
        self.left.append(address)


class Topics:
    """Stands for TopicConfigManager."""

    def __init__(self, *names: str) -> None:
        self.topic_config_table = {name: TopicConfig(name) for name in names}
        self.data_version = DataVersion(1, 0, 1)
        self.order: Mapping[str, str] = {}

    def update_data_version(self) -> None:
        self.data_version.counter += 1

    def update_order_topic_config(self, order: Mapping[str, str]) -> None:
        self.order = order

    def put(self, name: str) -> TopicConfig:
        topic = self.topic_config_table[name] = TopicConfig(name)
        self.update_data_version()
        return topic


class Scene:
    def __init__(self, *topics: str, servers: tuple[str, ...] = ("ns1", "ns2")) -> None:
        self.api = NameServers()
        self.topics = Topics(*topics)
        self.config = BrokerConfig()
        self.servers = list(servers)
        self.registration = BrokerRegistration(
            self.api,  # type: ignore[arg-type]
            self.topics,  # type: ignore[arg-type]
            BrokerAddress("C", "broker-a", 0, "10.0.0.1", 10911),
            config=lambda: self.config,
            name_servers=lambda: list(self.servers),
            mappings=lambda topics: {},
            is_elected=False,
        )

    async def settle(self) -> None:
        """Wait for what runs in the background, but not for what is tried again later."""
        registration = self.registration
        while running := registration._running - {server.retry for server in registration._servers.values()}:
            await asyncio.gather(*running)


async def test_every_name_server_gets_the_whole_table() -> None:
    scene = Scene("A", "B")
    await scene.registration.register_now()
    assert sorted(scene.api.told) == [("ns1", ["A", "B"], 1), ("ns2", ["A", "B"], 1)]
    assert scene.registration.registered_with == ["ns1", "ns2"]


async def test_one_name_server_that_fails_does_not_keep_the_others_from_knowing() -> None:
    scene = Scene("A")
    scene.api.failing["ns1"] = RemotingConnectError("refused", address="ns1")
    await scene.registration.register_now()
    assert scene.registration.registered_with == ["ns2"]


async def test_a_name_server_that_failed_is_tried_again_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene("A")
    scene.api.failing["ns1"] = RemotingConnectError("refused", address="ns1")
    await scene.registration.register_now()
    await asyncio.sleep(0.25)  # it is refused again
    del scene.api.failing["ns1"]
    async with asyncio.timeout(5):
        while "ns1" not in scene.registration.registered_with:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [("again and again" in text, "succeeds again" in text) for text in told] == [(True, False), (False, True)]
    await scene.registration.unregister()


async def test_a_name_server_that_went_away_is_told_everything_anew_when_it_is_back() -> None:
    scene = Scene("A", "B")
    await scene.registration.register_now()
    scene.api.told.clear()
    scene.registration.connection_lost("ns1")
    scene.registration.connection_lost("a broker")
    async with asyncio.timeout(5):
        while not scene.api.told:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert scene.api.told == [("ns1", ["A", "B"], 1)]
    await scene.registration.unregister()
    scene.registration.connection_lost("ns2")
    assert not scene.registration._running


async def test_periodic_registrations_do_not_wait_for_a_name_server_that_hangs() -> None:
    scene = Scene("A")
    scene.config = replace(scene.config, force_register=True)
    scene.api.hanging.add("ns1")
    for _ in range(3):
        async with asyncio.timeout(5):
            await scene.registration.register_now()
    assert [address for address, _, _ in scene.api.told] == ["ns2"] * 3
    assert len(scene.registration._running) <= 3
    await scene.registration.unregister()


async def test_a_change_is_told_alone_and_at_once() -> None:
    scene = Scene("A", "B", servers=("ns1",))
    await scene.registration.register_now()
    scene.registration.topics_changed([scene.topics.put("C")])
    await scene.settle()
    assert scene.api.told[1:] == [("ns1", ["C"], 2)]


async def test_a_deleted_topic_is_left_out_of_the_next_periodic_registration() -> None:
    """Who deleted it may not have told the name servers. The version says nothing: another change has told it."""
    scene = Scene("A", "B", servers=("ns1",))
    scene.config = replace(scene.config, force_register=False)
    await scene.registration.register_now()
    del scene.topics.topic_config_table["A"]
    scene.registration.topics_changed([], ["A"])
    scene.registration.topics_changed([scene.topics.put("C")])
    await scene.settle()
    await scene.registration.register_now()
    await scene.registration.register_now()
    assert scene.api.told[1:] == [("ns1", ["C"], 2), ("ns1", ["B", "C"], 2)]
    assert scene.api.whole == [True, False, True]


async def test_a_part_of_the_table_is_not_the_whole() -> None:
    scene = Scene("A", "B", "C", "D", servers=("ns1",))
    scene.config = replace(scene.config, enable_split_registration=True, split_registration_size=2)
    await scene.registration.register_now()
    assert [names for _, names, _ in scene.api.told] == [["A", "B"], ["C", "D"]]
    assert scene.api.whole == [False, False]


async def _seconds_until_known(scene: Scene) -> float:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    await scene.registration.changes_known()
    return loop.time() - begin


async def test_changes_are_known_when_a_name_server_has_taken_them() -> None:
    scene = Scene("A", servers=("ns1",))
    await scene.registration.register_now()
    scene.api.late["ns1"] = 0.1
    scene.registration.topics_changed([scene.topics.put("C")])
    await scene.registration.changes_known()
    assert scene.api.told[1:] == [("ns1", ["C"], 2)]


async def test_a_change_made_while_an_earlier_one_is_told_is_known_when_it_was_told_itself() -> None:
    scene = Scene("A", servers=("ns1",))
    await scene.registration.register_now()
    scene.api.late["ns1"] = 0.05
    scene.registration.topics_changed([scene.topics.put("C")])
    await asyncio.sleep(0.01)
    scene.registration.topics_changed([scene.topics.put("D")])
    await scene.registration.changes_known()
    assert scene.api.told[1:] == [("ns1", ["C"], 2), ("ns1", ["D"], 3)]


async def test_a_name_server_that_failed_is_not_taken_for_one_that_knows_the_changes() -> None:
    scene = Scene("A")
    await scene.registration.register_now()
    scene.api.failing["ns1"] = RemotingConnectError("refused", address="ns1")
    scene.api.late["ns2"] = 0.4
    scene.registration.topics_changed([scene.topics.put("C")])
    await scene.registration.changes_known()
    assert [address for address, topics, _ in scene.api.told if topics == ["C"]] == ["ns2"]
    await scene.registration.unregister()


@pytest.mark.parametrize(("hanging", "least", "most"), [({"ns1"}, 0.2, 0.9), ({"ns1", "ns2"}, 0.9, 1.9)])
def test_name_servers_that_hang_are_waited_for_for_a_moment(hanging: set[str], least: float, most: float) -> None:
    async def story(world: SimWorld) -> None:
        scene = Scene("A")
        await scene.registration.register_now()
        scene.api.hanging |= hanging
        scene.registration.topics_changed([scene.topics.put("C")])
        await asyncio.sleep(0.05)  # the other one has taken it by now
        assert least < await _seconds_until_known(scene) < most
        scene.api.hanging.clear()
        await scene.registration.unregister()

    run_simulation(story, seed=1)


def test_nobody_waits_for_what_is_known_or_without_name_servers_or_in_isolation_or_at_the_end() -> None:
    async def story(world: SimWorld) -> None:
        scene = Scene("A")
        await scene.registration.register_now()
        assert await _seconds_until_known(scene) < 0.1
        scene.api.hanging |= {"ns1", "ns2"}
        scene.registration.topics_changed([scene.topics.put("C")])
        scene.registration.set_isolated(True)
        assert await _seconds_until_known(scene) < 0.1
        scene.registration.set_isolated(False)
        waiting = asyncio.ensure_future(_seconds_until_known(scene))
        await asyncio.sleep(0)
        scene.api.hanging.clear()
        await scene.registration.unregister()
        assert await waiting < 0.8
        assert await _seconds_until_known(scene) < 0.1
        alone = Scene("A", servers=())
        alone.registration.topics_changed([alone.topics.put("C")])
        assert await _seconds_until_known(alone) < 0.1

    run_simulation(story, seed=1)


async def test_what_a_name_server_missed_comes_with_the_next_change() -> None:
    scene = Scene("A", servers=("ns1",))
    await scene.registration.register_now()
    scene.api.failing["ns1"] = RemotingConnectError("refused", address="ns1")
    scene.registration.topics_changed([scene.topics.put("C")])
    await scene.settle()
    del scene.api.failing["ns1"]
    scene.registration.topics_changed([scene.topics.put("D")])
    await scene.settle()
    assert scene.api.told[1:] == [("ns1", ["C", "D"], 3)]


async def test_name_server_that_refuses_an_increment_gets_everything() -> None:
    scene = Scene("A", "B", servers=("ns1",))
    await scene.registration.register_now()
    scene.api.refuses_increments.add("ns1")
    scene.registration.topics_changed([scene.topics.put("C")])
    await scene.settle()
    assert scene.api.told[1:] == [("ns1", ["A", "B", "C"], 2)]


async def test_a_topic_that_changes_while_it_is_told_is_told_again() -> None:
    scene = Scene("A", servers=("ns1",))
    await scene.registration.register_now()
    scene.registration.topics_changed([scene.topics.put("C")])
    await asyncio.sleep(0)  # the first telling is under way
    scene.registration.topics_changed([scene.topics.put("C")])
    await scene.settle()
    assert scene.api.told[-1] == ("ns1", ["C"], 3)


async def test_without_force_the_data_version_is_asked_first() -> None:
    scene = Scene("A", servers=("ns1",))
    await scene.registration.register_now()
    scene.config = replace(scene.config, force_register=False)
    await scene.registration.register_now()
    assert (scene.api.asked, len(scene.api.told)) == (["ns1"], 1)
    scene.api.changed = True
    await scene.registration.register_now()
    assert len(scene.api.told) == 2


async def test_force_registers_every_time() -> None:
    scene = Scene("A", servers=("ns1",))
    for _ in range(3):
        await scene.registration.register_now()
    assert (scene.api.asked, len(scene.api.told)) == ([], 3)


async def test_a_broker_without_write_permission_registers_topics_nobody_may_write() -> None:
    scene = Scene("A", servers=("ns1",))
    scene.config = replace(scene.config, broker_permission=4)
    await scene.registration.register_now()
    assert scene.api.perms == {"A": 4}
    assert scene.topics.topic_config_table["A"].perm == 6


async def test_single_topic_register_uses_request_217() -> None:
    scene = Scene("A", servers=("ns1",))
    scene.config = replace(scene.config, enable_single_topic_register=True)
    await scene.registration.register_now()
    scene.registration.topics_changed([scene.topics.put("C")])
    await scene.settle()
    assert scene.api.single == ["C"]


async def test_large_tables_go_in_parts_with_a_version_each_and_never_a_topic_alone() -> None:
    scene = Scene("A", "B", "C", "D", "E", servers=("ns1",))
    scene.config = replace(scene.config, enable_split_registration=True, split_registration_size=2)
    await scene.registration.register_now()
    assert scene.api.told == [("ns1", ["A", "B"], 1), ("ns1", ["C", "D", "E"], 2)]


async def test_order_topics_of_the_answer_are_taken_over() -> None:
    scene = Scene("A", servers=("ns1",))
    scene.api.order_topics = {"A": "broker-a:4"}
    await scene.registration.register_now()
    assert scene.topics.order == {"A": "broker-a:4"}


async def test_a_new_name_server_of_the_list_is_told_everything_and_an_old_one_forgotten() -> None:
    scene = Scene("A", servers=("ns1",))
    await scene.registration.register_now()
    scene.servers = ["ns2"]
    scene.registration.topics_changed([scene.topics.put("C")])
    await scene.settle()
    assert scene.api.told[1:] == [("ns2", ["A", "C"], 2)]
    assert scene.registration.registered_with == ["ns2"]


async def test_leaving_tells_every_name_server_that_knows_us_and_nothing_afterwards() -> None:
    scene = Scene("A", servers=("ns1", "ns2", "ns3"))
    scene.api.failing["ns3"] = RemotingConnectError("refused", address="ns3")
    await scene.registration.register_now()
    scene.api.failing["ns1"] = RemotingConnectError("refused", address="ns1")
    await scene.registration.unregister()
    assert scene.api.left == ["ns2"]
    told = len(scene.api.told)
    scene.registration.topics_changed([scene.topics.put("C")])
    scene.registration.register_all()
    await scene.registration.register_now()
    await scene.settle()
    assert len(scene.api.told) == told


async def test_a_broker_that_withdraws_is_told_everywhere_when_it_comes_back_and_not_before() -> None:
    """Also by a registration that was under way."""
    scene = Scene("A", servers=("ns1",))
    await scene.registration.register_now()
    scene.api.late["ns1"] = 0.001
    scene.registration.register_all()
    await asyncio.sleep(0)
    await scene.registration.withdraw()
    await scene.settle()
    assert (scene.api.left, scene.registration.registered_with) == (["ns1"], [])
    told = len(scene.api.told)
    scene.registration.register_all()
    await scene.registration.register_now()
    await scene.settle()
    assert len(scene.api.told) == told
    scene.registration.set_isolated(False)
    scene.registration.register_all()
    await scene.settle()
    assert [server for server, *_ in scene.api.told[told:]] == ["ns1"]


async def test_deleted_topics_are_told_to_nobody() -> None:
    scene = Scene("A", "B", servers=("ns1",))
    await scene.registration.register_now()
    scene.registration.topics_changed([], ["A"])
    await scene.settle()
    assert len(scene.api.told) == 1


async def test_each_answer_tells_the_listener_where_the_master_is() -> None:
    scene = Scene("A", servers=("ns1", "ns2"))
    scene.api.master_address = "10.0.0.5:10911"
    heard: list[str] = []
    scene.registration.set_result_listener(lambda result: heard.append(result.master_address))
    await scene.registration.register_now()
    assert heard == ["10.0.0.5:10911"] * 2


async def test_asking_for_the_master_tells_one_topic_only() -> None:
    scene = Scene("A", "B", "C", servers=("ns1",))
    await scene.registration.register_now()
    heard: list[str] = []
    scene.registration.set_result_listener(lambda result: heard.append(result.master_address))
    await scene.registration.ask_master()
    assert scene.api.told[1:] == [("ns1", ["A"], 1)]
    assert len(heard) == 1


async def test_asking_a_name_server_that_forgot_this_broker_registers_everything() -> None:
    scene = Scene("A", "B", servers=("ns1",))
    await scene.registration.register_now()
    scene.api.refuses_increments.add("ns1")
    await scene.registration.ask_master()
    assert scene.api.told[1:] == [("ns1", ["A", "B"], 1)]


async def test_asking_a_name_server_that_cannot_be_reached_is_no_error() -> None:
    scene = Scene("A", servers=("ns1",))
    await scene.registration.register_now()
    scene.api.failing["ns1"] = RemotingConnectError("refused", address="ns1")
    await scene.registration.ask_master()
    assert scene.registration.registered_with == ["ns1"]


async def test_an_isolated_broker_tells_nobody_and_afterwards_everything_that_changed() -> None:
    scene = Scene("A", servers=("ns1",))
    scene.registration.set_isolated(True)
    await scene.registration.register_now()
    scene.registration.topics_changed([scene.topics.put("B")])
    scene.registration.register_all()
    await scene.registration.ask_master()
    await scene.settle()
    assert (scene.api.told, scene.registration.registered_with) == ([], [])
    scene.registration.set_isolated(False)
    await scene.registration.register_now()
    assert scene.api.told == [("ns1", ["A", "B"], 2)]


async def test_only_groups_with_acting_masters_tell_how_long_a_silence_is_death() -> None:
    scene = Scene("A", servers=("ns1",))
    await scene.registration.register_now()
    scene.config = replace(scene.config, enable_slave_acting_master=True, broker_not_active_timeout_millis=7000)
    await scene.registration.register_now()
    assert scene.api.heartbeat_timeouts == [None, 7000]


# ---- name servers that hang ---------------------------------------------------------------------------------------


async def test_who_is_known_to_one_name_server_waits_for_no_other_one() -> None:
    scene = Scene("A")
    scene.api.hanging.add("ns1")
    registering = asyncio.create_task(scene.registration.register_now())
    async with asyncio.timeout(10):
        await scene.registration.known()
        assert scene.registration.registered_with == ["ns2"]
        assert scene.registration.silent_servers == ["ns1"]
        scene.api.master_address = "10.0.0.2:10911"
        heard: list[str] = []
        scene.registration.set_result_listener(lambda result: heard.append(result.master_address))
        for _ in range(2):
            await scene.registration.ask_master()
        assert heard == ["10.0.0.2:10911"] * 2
        await scene.registration.unregister()
    assert scene.api.left == ["ns2"]
    registering.cancel()


async def test_what_a_name_server_that_hangs_must_hear_waits_once_however_much_it_is() -> None:
    scene = Scene("A")
    scene.api.hanging.add("ns1")
    registering = asyncio.create_task(scene.registration.register_now())
    async with asyncio.timeout(10):
        await scene.registration.known()
        for number in range(100):
            scene.registration.topics_changed([scene.topics.put(f"T{number}")])
            scene.registration.register_all()
            await asyncio.sleep(0)
        await scene.registration.ask_master()
        while "T99" not in scene.api.told[-1][1]:  # noqa: ASYNC110 told by tasks
            await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() if not task.done()]
        assert len(left) < 10, left
        await scene.registration.unregister()
    registering.cancel()


async def test_a_broker_leaves_a_name_server_that_fails_and_one_that_hangs_and_one_that_answers() -> None:
    scene = Scene("A", servers=("ns1", "ns2", "ns3"))
    await scene.registration.register_now()
    scene.api.failing["ns1"] = RemotingConnectError("refused", address="ns1")
    scene.api.hanging.add("ns2")
    async with asyncio.timeout(10):
        await scene.registration.unregister()
    assert (scene.api.left, scene.registration.registered_with) == (["ns3"], [])


async def test_a_taken_name_is_refused_by_the_word_of_the_name_server_that_answers() -> None:
    scene = Scene("A")
    scene.api.hanging.add("ns1")
    scene.api.holders["ns2"] = OTHER
    async with asyncio.timeout(10):
        await scene.registration.refuse_taken_name()  # nobody answers there
        scene.api.called.add(OTHER)
        with pytest.raises(ConfigError, match="has this name"):
            await scene.registration.refuse_taken_name()


# ---- two brokers of one name --------------------------------------------------------------------------------------

OTHER = "10.0.0.9:10911"


async def test_a_name_that_a_living_broker_has_is_refused_with_its_address() -> None:
    scene = Scene("A")
    scene.api.holders["ns2"] = OTHER
    scene.api.called.add(OTHER)
    scene.api.failing["ns1"] = RemotingConnectError("refused", address="ns1")
    with pytest.raises(ConfigError, match=r"brokerName=broker-a, brokerId=0: the broker at 10\.0\.0\.9:10911 has"):
        await scene.registration.refuse_taken_name()


@pytest.mark.parametrize("holder", ["", OTHER, "10.0.0.1:10911"])
async def test_a_name_is_free_if_nobody_answers_to_it_but_this_broker(holder: str) -> None:
    scene = Scene("A")
    scene.api.holders["ns1"] = holder
    scene.api.called.add("10.0.0.1:10911")
    await scene.registration.refuse_taken_name()


async def test_another_holder_that_comes_and_goes_is_told_once_each(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene("A")
    scene.api.holders["ns1"] = OTHER
    scene.api.called.add(OTHER)
    for _ in range(2):
        await scene.registration.register_now()
        assert scene.registration.other_holder == OTHER
    scene.api.called.clear()
    await scene.registration.register_now()
    assert scene.registration.other_holder == ""
    told = [record.getMessage() for record in caplog.records if OTHER in record.getMessage()]
    assert len(told) == 2
    assert "has this broker's name and id, too (broker-a, 0)" in told[0]
