"""Which producers are online."""

from tests.unit.broker.broker_world import BrokerWorld, FakeConnection, connection


async def test_producers_are_found_by_group_and_by_client_id() -> None:
    world, fake = BrokerWorld(), FakeConnection()
    await world.heartbeat(fake, "p1", group="", producers=("P", "Q"))
    assert set(world.producers.group_channel_table) == {"P", "Q"}
    assert world.producers.find_channel("p1") is connection(fake)


async def test_a_client_that_leaves_one_group_is_still_found_through_the_other() -> None:
    world, fake = BrokerWorld(), FakeConnection()
    await world.heartbeat(fake, "p1", group="", producers=("P", "Q"))
    await world.call(35, {"clientID": "p1", "producerGroup": "P"}, fake=fake)
    assert set(world.producers.group_channel_table) == {"Q"}
    assert world.producers.find_channel("p1") is connection(fake)
    await world.call(35, {"clientID": "p1", "producerGroup": "Q"}, fake=fake)
    assert world.producers.find_channel("p1") is None


async def test_the_end_of_an_old_connection_does_not_hide_the_new_one_of_the_same_client() -> None:
    world, old, new = BrokerWorld(), FakeConnection("a:1"), FakeConnection("a:2")
    await world.heartbeat(old, "p1", group="", producers=("P",))
    await world.heartbeat(new, "p1", group="", producers=("P",))
    world.producers.do_channel_close_event(connection(old))
    assert world.producers.find_channel("p1") is connection(new)


async def test_producers_need_not_be_kept_when_there_are_no_transactions() -> None:
    world, fake = BrokerWorld({"enableRegisterProducer": "false", "rejectTransactionMessage": "true"}), FakeConnection()
    await world.heartbeat(fake, "p1", group="", producers=("P",))
    assert world.producers.group_channel_table == {}
