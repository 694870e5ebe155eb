"""Members of a group, consumer offsets, queue locks."""

import pytest

from maxq.broker.tables.offset.lmq_consumer_offset_manager import create_consumer_offset_manager
from maxq.broker.tables.offset.slave_commits import SlaveCommit
from tests.unit.broker.broker_world import CONFIG_DIR, BrokerWorld, FakeConnection, parsed

PLACE = {"consumerGroup": "G", "topic": "T", "queueId": "0"}


def world_with_group(settings: dict[str, str] | None = None, *, messages: int = 0) -> BrokerWorld:
    """Topic T and group G exist; the first queue has so many messages."""
    world = BrokerWorld(settings)
    world.add_topic("T")
    if messages:
        world.store.fill("T", 0, [1000] * messages)
    world.groups.find_subscription_group_config("G")
    return world


async def test_members_are_listed_and_an_unknown_group_is_code_1() -> None:
    world = BrokerWorld()
    await world.heartbeat(FakeConnection("a:1"), "c1")
    await world.heartbeat(FakeConnection("b:1"), "c2")
    assert parsed(await world.call(38, {"consumerGroup": "G"})) == {"consumerIdList": ["c1", "c2"]}
    answer = await world.call(38, {"consumerGroup": "H"})
    assert (answer.code, answer.remark) == (1, "no consumer for this group, H")
    world.notifier.close()


async def test_an_offset_is_committed_and_found() -> None:
    world = world_with_group(messages=17)
    assert (await world.call(15, {**PLACE, "commitOffset": "17"})).code == 0
    assert (await world.call(14, PLACE)).ext == {"offset": "17"}


async def test_who_wants_it_moves_no_offset_back_and_begins_no_group_anew() -> None:
    world = world_with_group(messages=17)
    begin = {"maxqIfAhead": "true", "maxqIfNone": "true"}

    async def committed(offset: int, **more: str) -> str:
        assert (await world.call(15, {**PLACE, "commitOffset": str(offset), **more})).code == 0
        return (await world.call(14, PLACE)).ext["offset"]

    assert await committed(0, **begin) == "0"
    assert await committed(17, **begin) == "0"
    assert await committed(9, maxqIfAhead="true") == "9"
    assert await committed(8, maxqIfAhead="true") == "9"
    assert await committed(8) == "8"


async def test_a_part_of_a_static_topic_is_told_that_a_group_has_gone_back_from_it() -> None:
    """Resets are the business of the broker that leads the global queue."""
    world = world_with_group()
    part = {**PLACE, "lo": "false", "setZeroIfNotFound": "false"}
    assert (await world.call(15, {**part, "commitOffset": "-1"})).code == 0
    assert not world.offsets.query_offsets("G", "T")  # it was never there
    world.store.fill("T", 0, [1000] * 17)
    await world.call(15, {**part, "commitOffset": "17"})
    await world.call(15, {**part, "commitOffset": "-1"})
    assert (await world.call(14, part)).code == 22
    world.offsets.assign_reset_offsets("T", "G", {0: 3}, {0: -1})
    assert (await world.call(14, part)).code == 22
    await world.call(15, {**part, "commitOffset": "8", "maxqIfAhead": "true", "maxqReadAt": "0"})  # by a slave
    assert world.offsets.has_offset_reset("T", "G", 0)


@pytest.mark.parametrize("if_ahead", [True, False])
async def test_what_a_group_commits_in_a_part_of_a_static_topic_ends_the_reset_that_waits_there(if_ahead: bool) -> None:
    """Members have heard of it at the broker that leads the queue. Consumers of MaxQ say maxqIfAhead."""
    world = world_with_group(messages=17)
    part = {**PLACE, "lo": "false", "setZeroIfNotFound": "false"} | ({"maxqIfAhead": "true"} if if_ahead else {})
    world.offsets.assign_reset_offsets("T", "G", {0: 3})
    for offset in ("5", "8"):
        assert (await world.call(15, {**part, "commitOffset": offset})).remark is None
        assert (await world.call(14, part)).ext == {"offset": offset}
    assert not world.offsets.has_offset_reset("T", "G", 0)


async def test_a_commit_behind_the_end_of_a_static_topics_part_counts_up_to_the_end_at_the_start() -> None:
    """Whoever leads the queue tells its members then."""
    world = world_with_group(messages=13)
    world.store.may_lack_messages = True
    world.offsets.master_from = 1_000  # where the eleventh message begins
    assert (await world.call(15, {**PLACE, "lo": "false", "commitOffset": "15"})).remark == "The queue ended at 10"
    assert (world.offsets.query_offset("G", "T", 0), world.offsets.has_offset_reset("T", "G", 0)) == (10, True)


async def test_where_a_group_begins_is_on_the_disk_when_its_member_hears_that_it_is_committed() -> None:
    """A broker that is killed then would let the next member begin where the queue ends by that time."""
    world = world_with_group(messages=17)
    begin = {"maxqIfAhead": "true", "maxqIfNone": "true"}
    assert (await world.call(15, {**PLACE, "commitOffset": "17", **begin})).code == 0
    after_kill = create_consumer_offset_manager(world.disk, CONFIG_DIR, settings=world.settings, clock=world.clock)
    after_kill.load()
    assert after_kill.query_offset("G", "T", 0) == 17


@pytest.mark.parametrize(("creates", "code"), [("true", 0), ("false", 26)])
async def test_a_slave_hands_over_commits_of_a_group_that_began_there(creates: str, code: int) -> None:
    world = BrokerWorld({"autoCreateSubscriptionGroup": creates})
    world.add_topic("T")
    world.store.fill("T", 0, [1000] * 4)
    ext = {**PLACE, "commitOffset": "4", "maxqIfAhead": "true", "maxqReadAt": "0", "lo": "false"}
    assert (await world.call(15, ext)).code == code
    assert world.offsets.query_offset("G", "T", 0) == (4 if code == 0 else -1)
    assert not world.groups.contains_subscription_group("G")


async def test_the_commit_of_an_unknown_group_is_refused_and_does_not_create_it() -> None:
    world = BrokerWorld({"autoCreateSubscriptionGroup": "true"})
    world.add_topic("T")
    for of_consumer in ({}, {"maxqIfAhead": "true"}):
        answer = await world.call(15, {**PLACE, "commitOffset": "1", **of_consumer})
        assert (answer.code, answer.remark) == (26, "Group G not exist!")
    assert not world.groups.contains_subscription_group("G")
    assert world.offsets.query_offset("G", "T", 0) == -1


async def test_the_commit_of_an_unknown_topic_or_without_place_says_what_is_missing() -> None:
    world = world_with_group()
    no_topic = await world.call(15, {**PLACE, "topic": "Unknown", "commitOffset": "1"})
    assert (no_topic.code, no_topic.remark) == (17, "Topic Unknown not exist!")
    assert (await world.call(15, {"consumerGroup": "G", "topic": "T", "commitOffset": "1"})).code == 29
    assert (await world.call(15, PLACE)).code == 29
    assert (await world.call(15, {"topic": "T"})).code == 1


async def test_a_new_group_starts_at_0_of_a_young_queue() -> None:
    world = BrokerWorld()
    world.store.fill("T", 0, [1000, 2000])
    assert (await world.call(14, PLACE)).ext == {"offset": "0"}
    asked = await world.call(14, {**PLACE, "setZeroIfNotFound": "false"})
    assert asked.code == 22
    assert asked.remark == "Not found, do not set to zero, maybe this group boot first"


async def test_a_new_group_decides_itself_where_to_start_in_an_old_queue() -> None:
    world = BrokerWorld()
    world.store.fill("T", 0, [1000, 2000], first=5)
    answer = await world.call(14, PLACE)
    assert (answer.code, answer.remark) == (22, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
    world.store.fill("T", 0, [1000, 2000])
    world.store.on_disk = True
    assert (await world.call(14, PLACE)).code == 22


@pytest.mark.parametrize("is_of_maxq", [True, False])
async def test_commits_are_passed_over_while_a_reset_waits(is_of_maxq: bool) -> None:
    """Clients of MaxQ send maxqIfAhead with each commit: who has not heard of the reset would end it."""
    world = world_with_group(messages=17)
    world.offsets.assign_reset_offsets("T", "G", {0: 3})
    more = {"maxqIfAhead": "true"} if is_of_maxq else {}
    answer = await world.call(15, {**PLACE, "commitOffset": "17", **more})
    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    assert world.offsets.query_offset("G", "T", 0) == 3
    world.offsets.query_then_erase_reset_offset("T", "G", 0)
    await world.call(15, {**PLACE, "commitOffset": "17"})
    assert world.offsets.query_offset("G", "T", 0) == 17


@pytest.mark.parametrize(("committed", "left"), [(-1, 10), (7, 10), (10, 10), (12, 12)])
async def test_what_a_slave_hands_over_of_lost_messages_counts_up_to_the_end_at_the_start(
    committed: int, left: int
) -> None:
    """Three new messages have got the places of five lost ones; who has had two of the new ones has them."""
    world = world_with_group()
    world.store.fill("T", 0, [1000] * 13)
    world.offsets.master_from = 1_000  # where the eleventh message begins
    if committed >= 0:
        world.offsets.commit_offset("c", "G", "T", 0, committed)
    ext = {**PLACE, "commitOffset": "15", "maxqIfAhead": "true", "maxqReadAt": "1000", "lo": "false"}
    assert (await world.call(15, ext)).code == 0
    assert world.offsets.query_offset("G", "T", 0) == left
    assert world.offsets.has_offset_reset("T", "G", 0) is (committed <= 10)


@pytest.mark.parametrize(
    ("more", "settings", "left"),
    [
        ({"maxqNotCopiedOf": "70"}, {}, 10),
        ({"maxqNotCopiedOf": "1"}, {}, 10),
        ({"maxqNotCopiedOf": "100"}, {}, 15),
        ({}, {}, 15),
        ({"maxqNotCopiedOf": "70"}, {"enableDLegerCommitLog": "true"}, 15),
    ],
    ids=["read before the start", "nobody knows when", "read since then", "of the slave's copy", "of a DLedger group"],
)
async def test_what_a_slave_did_not_have_may_be_other_messages_now(
    more: dict[str, str], settings: dict[str, str], left: int
) -> None:
    """The master has stored five or more messages since its start, and one that was not started again has all that was
    read there: a slave that lagged made it give them to the group once more."""
    world = world_with_group(settings)
    world.store.fill("T", 0, [1000] * 17)
    world.offsets.master_from, world.offsets.master_since = 1_000, 100
    ext = {**PLACE, "maxqIfAhead": "true", "maxqReadAt": "1400", "lo": "false", **more}
    assert (await world.call(15, {**ext, "commitOffset": "9"})).code == 0
    assert world.offsets.query_offset("G", "T", 0) == 9, "from before the start"
    assert (await world.call(15, {**ext, "commitOffset": "15"})).code == 0
    assert world.offsets.query_offset("G", "T", 0) == left


@pytest.mark.parametrize(("committed", "left"), [(-1, 10), (7, 10), (10, 10), (12, 12)])
async def test_a_commit_of_lost_messages_counts_up_to_the_end_at_the_start(committed: int, left: int) -> None:
    """Its consumer has read five messages that the master has lost with its power; three new ones have their places."""
    world = world_with_group(messages=13)
    world.store.may_lack_messages = True
    world.offsets.master_from = 1_000  # where the eleventh message begins
    if committed >= 0:
        world.offsets.commit_offset("c", "G", "T", 0, committed)
    answer = await world.call(15, {**PLACE, "commitOffset": "15"})
    assert (answer.code, answer.remark) == (0, "The queue ended at 10")
    assert world.offsets.query_offset("G", "T", 0) == left
    assert world.offsets.has_offset_reset("T", "G", 0) is (committed <= 10)
    world.offsets.query_then_erase_reset_offset("T", "G", 0)
    assert (await world.call(15, {**PLACE, "commitOffset": "13"})).remark is None
    assert world.offsets.query_offset("G", "T", 0) == 13


async def test_a_commit_behind_the_end_of_a_queue_that_lost_nothing_is_refused() -> None:
    world = world_with_group(messages=13)
    world.offsets.commit_offset("c", "G", "T", 0, 7)
    answer = await world.call(15, {**PLACE, "commitOffset": "14"})
    assert (answer.code, answer.remark) == (29, "offset 14 is behind the end of T queue 0, 13: nothing is committed")
    assert world.offsets.query_offset("G", "T", 0) == 7
    assert not world.offsets.has_offset_reset("T", "G", 0)


async def test_a_commit_behind_what_a_slave_has_counts_because_the_master_may_have_more() -> None:
    world = world_with_group({"brokerRole": "SLAVE", "brokerId": "1"}, messages=13)
    assert (await world.call(15, {**PLACE, "commitOffset": "15"})).code == 0
    assert world.offsets.query_offset("G", "T", 0) == 15


@pytest.mark.parametrize(
    ("askers", "knows"),
    [([("a", "looks")], False), ([("a", "begins")], True), ([("a", "begins"), ("b", "looks")], True)],
    ids=["who only looks", "who begins there", "who begins there, before another one looks"],
)
async def test_a_slave_hands_over_what_a_client_knew_of_a_reset_if_it_began_there(
    askers: list[tuple[str, str]], knows: bool
) -> None:
    """A consumer that has heard nothing for long looks whether another one has gone on, and goes on where it was."""
    world = world_with_group({"brokerRole": "SLAVE", "brokerId": "1"}, messages=40)
    world.offsets.assign_reset_offsets("T", "G", {0: 3})  # as copied from the master
    world.offsets.query_then_erase_reset_offset("T", "G", 0)
    clients = {host: FakeConnection(f"{host}:1") for host in "ab"}
    for host, how in askers:
        ext = PLACE | ({"maxqOnlyLooks": "true"} if how == "looks" else {})
        assert (await world.call(14, ext, fake=clients[host])).ext == {"offset": "3"}
    await world.call(15, {**PLACE, "commitOffset": "30"}, fake=clients["a"])
    (commit,) = world.offsets.slave_commits.ahead_of({})
    assert (commit.offset, commit.change) == (30, world.offsets.changes.of("T@G") if knows else 0)


@pytest.mark.parametrize("enable_lmq", ["false", "true"])
@pytest.mark.parametrize(
    ("case", "left"),
    [
        ("not heard of it", 3),
        ("of an earlier version", 3),
        ("heard of it", 9),
        ("of this master's time", 9),
        ("by a client", 9),
        ("after the group was removed", 9),
    ],
)
async def test_a_commit_at_a_slave_that_is_older_than_a_reset_does_not_count_when_a_pull_has_taken_it(
    case: str, left: int, enable_lmq: str
) -> None:
    """A reset that waited when the master was started again, which is started once more after the pull."""
    world = world_with_group({"enableLmq": enable_lmq}, messages=17)
    world.offsets.commit_offset("c", "G", "T", 0, 6)
    world.offsets.assign_reset_offsets("T", "G", {0: 2})
    change = world.offsets.changes.of("T@G")
    world.offsets.persist()
    world.offsets.load()
    world.offsets.begin_as_master(1_700)
    since = world.offsets.master_since
    assert world.offsets.query_then_erase_reset_offset("T", "G", 0) == 2
    world.offsets.commit_offset("c", "G", "T", 0, 3)
    if "removed" in case:
        world.offsets.remove_offset("G")
    world.offsets.persist()
    world.offsets.load()
    told = {"maxqIfAhead": "true", "maxqReadAt": "800", "lo": "false", "maxqMasterSince": str(since - 1)} | {
        "of an earlier version": {"maxqMasterSince": "0"},
        "heard of it": {"maxqOperatorChange": str(change)},
        "of this master's time": {"maxqMasterSince": str(since)},
    }.get(case, {})
    told = {"maxqIfAhead": "true"} if case == "by a client" else told
    assert (await world.call(15, {**PLACE, "commitOffset": "9", **told})).code == 0
    assert world.offsets.query_offset("G", "T", 0) == left


async def test_a_slave_that_acts_may_lack_what_another_one_hands_over() -> None:
    world = world_with_group({"brokerRole": "SLAVE", "brokerId": "1"})
    ext = {**PLACE, "commitOffset": "15", "maxqIfAhead": "true", "maxqReadAt": "1000", "lo": "false"}
    assert (await world.call(15, ext)).code == 0
    assert world.offsets.query_offset("G", "T", 0) == 15


@pytest.mark.parametrize("is_copied", [True, False])
async def test_what_a_slave_says_of_a_commit_goes_on_to_the_master_by_way_of_the_one_that_acts(is_copied: bool) -> None:
    """Of which operator's change the client has heard, and of which master it had read what the first slave had not: a
    reset that waits would take the group back, or it would pass over the messages that have the places of lost ones."""
    world = world_with_group({"brokerRole": "SLAVE", "brokerId": "1"}, messages=20 if is_copied else 0)
    world.offsets.note_master({"masterSince": 90})
    ext = {**PLACE, "commitOffset": "15", "maxqIfAhead": "true", "maxqReadAt": "1400", "lo": "false"}
    told = {"maxqOperatorChange": "5", "maxqNotCopiedOf": "70", "maxqMasterSince": "80"}
    assert (await world.call(15, {**ext, **told})).code == 0
    assert list(world.offsets.slave_commits.ahead_of({})) == [SlaveCommit("T", "G", 0, 15, 5, 70, 80)]
    assert (await world.call(15, {**ext, "commitOffset": "16"})).code == 0
    second = SlaveCommit("T", "G", 0, 16, 5, 0 if is_copied else 90, 90)
    assert list(world.offsets.slave_commits.ahead_of({})) == [second]


def lock_body(client_id: str) -> dict[str, object]:
    queue = {"brokerName": "broker-w", "queueId": 0, "topic": "T"}
    return {"clientId": client_id, "consumerGroup": "G", "mqSet": [queue], "onlyThisBroker": False}


async def test_a_queue_is_locked_for_one_client_at_a_time() -> None:
    world = BrokerWorld()
    queue = {"brokerName": "broker-w", "queueId": 0, "topic": "T"}
    assert parsed(await world.call(41, None, lock_body("a"))) == {"lockOKMQSet": [queue]}
    assert parsed(await world.call(41, None, lock_body("b"))) == {"lockOKMQSet": []}
    assert (await world.call(42, None, lock_body("b"))).code == 0
    assert parsed(await world.call(41, None, lock_body("b"))) == {"lockOKMQSet": []}
    assert (await world.call(42, None, lock_body("a"))).code == 0
    assert parsed(await world.call(41, None, lock_body("b"))) == {"lockOKMQSet": [queue]}


async def test_offsets_of_queues_that_a_topic_does_not_have_are_not_kept() -> None:
    world = world_with_group()
    queues = world.topics.topic_config_table["T"].read_queue_nums
    for queue_id in (-1, queues, 100_000):
        answer = await world.call(15, {**PLACE, "queueId": str(queue_id), "commitOffset": "1"})
        assert (answer.code, answer.remark) == (
            29, f"queueId {queue_id} is none of topic T, which has {queues} queues: nothing is committed",
        )  # fmt: skip
        assert world.offsets.query_offset("G", "T", queue_id) == -1
    world.store.fill("T", queues + 1, [1000])  # the topic had more queues before, which are read to their end
    assert (await world.call(15, {**PLACE, "queueId": str(queues + 1), "commitOffset": "1"})).code == 0


async def test_a_slave_of_an_earlier_version_gets_rid_of_commits_of_the_brokers_own_groups() -> None:
    """It would hand them over again for ever, and copy no offsets before."""
    world = world_with_group(messages=3)
    own = {**PLACE, "consumerGroup": "CID_RMQ_SYS_TRANS", "commitOffset": "2"}
    assert (await world.call(15, own)).code == 16
    assert (await world.call(15, {**own, "maxqReadAt": "0", "maxqIfAhead": "true"})).code == 0
    assert not world.offsets.query_offsets("CID_RMQ_SYS_TRANS", "T")
    commits = world.offsets.slave_commits
    commits.from_json({"offsetTable": {"T@CID_RMQ_SYS_TRANS": {"0": 2}, "T@G": {"0": 1}}})
    assert commits.table() == {"T@G": {0: 1}}
