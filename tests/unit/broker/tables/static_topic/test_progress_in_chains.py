"""Where a group goes on in a global queue whose parts several brokers have, of which some are away or slow."""

import asyncio
import inspect
from collections.abc import Mapping
from typing import cast

import pytest

from maxq.broker.tables.static_topic.other_brokers import OtherBrokers
from maxq.broker.tables.static_topic.static_topic_gate import StaticTopicGate
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.offsets import ResetOffsetBody
from maxq.protocol.body.static_topic import LogicQueueMappingItem, TopicQueueMappingDetail
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PULL_FLAG_COMMIT_OFFSET
from maxq.remoting.connection import Connection, Processor
from maxq.remoting.server import RemotingServer
from tests.unit.broker.broker_world import BrokerWorld, FakeConnection, connection


class Chain:
    """A global queue, its brokers, and the gate of the one that leads it. Its parts begin 10,000 offsets apart; the
    message with offset n of each was stored at n ms."""

    def __init__(self, *parts: tuple[str, int]) -> None:
        """
        Args:
            parts: broker and number of messages of each.
        """
        self.away: set[str] = set()
        self.slow: dict[str, asyncio.Event] = {}  # by broker; it answers when that is set
        self.worlds = {name: BrokerWorld({"brokerName": name}) for name, _ in parts}
        items = []
        for gen, (name, count) in enumerate(parts):
            end = -1 if gen == len(parts) - 1 else count
            items.append(LogicQueueMappingItem(gen, gen, name, 10_000 * gen, 0, end))
            self.worlds[name].store.fill("T", gen, list(range(count)))
        for world in self.worlds.values():
            world.add_topic("T", len(parts) + 1)
            world.groups.find_subscription_group_config("G")
        self.leader = self.worlds[parts[-1][0]]
        self.processors: dict[int, Processor] = {}
        self.lead(items)
        offsets = self.leader.offsets
        gate = StaticTopicGate(self.leader.mappings, cast(OtherBrokers, self), offsets, None, lambda: False)
        gate.place(cast(RemotingServer, self))

    def lead(self, *chains: list[LogicQueueMappingItem]) -> None:
        """Tell the broker that has led so far of the chains of all queues, of which the first is used here."""
        name, epoch = self.leader.settings.broker.broker_name, len(chains[0])
        hosted = dict(enumerate(chains))
        detail = TopicQueueMappingDetail("T", "__global__", len(chains), name, epoch, False, None, hosted)
        self.leader.mappings.update(detail, force=True)

    # --- the leader's server, and what it asks others ---

    def processor(self, code: int) -> Processor:
        return lambda _, request: self.leader.call(request.code, request.ext)

    def register(self, code: int, processor: Processor) -> None:
        self.processors[int(code)] = processor

    async def ask(self, name: str, topic: str, code: int, ext: Mapping[str, str], *, or_slave: bool) -> RemotingCommand:
        if name in self.away:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"{name} is away")
        answer = await self.worlds[name].call(code, {**ext, "lo": "false"})
        if name in self.slow:
            await self.slow[name].wait()
        return answer

    # --- what clients and operators do ---

    async def call(self, code: int, **ext: str) -> RemotingCommand:
        request = RemotingCommand(code, {"topic": "T", "consumerGroup": "G", "group": "G", "queueId": "0", **ext})
        found = self.processors[int(code)](cast(Connection, connection(FakeConnection())), request)
        return cast(RemotingCommand, await found if inspect.isawaitable(found) else found)

    async def commit(self, offset: int, **more: str) -> int:
        return (await self.call(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=str(offset), **more)).code

    async def place(self) -> int | None:
        """Where a member of the group begins; None: where new groups do."""
        answer = await self.call(RequestCode.QUERY_CONSUMER_OFFSET)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        return int(answer.ext["offset"]) if answer.code == ResponseCode.SUCCESS else None

    async def reset(self, offset: int) -> int:
        """Return the offset to which an operator's reset has set the group."""
        answer = await self.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, timestamp="0", offset=str(offset))
        (place,) = ResetOffsetBody.decode(answer.body_bytes).offset_table.values()
        return place

    def tables(self) -> list[object]:
        return [(world.offsets.query_offsets("G", "T"), world.offsets.any_reset) for world in self.worlds.values()]


def with_empty_part() -> Chain:
    """The second of three parts never had a message, and the group has been at its beginning while it was the last."""
    chain = Chain(("a", 50), ("b", 0), ("a", 50))
    chain.worlds["b"].offsets.commit_offset("c", "G", "T", 1, 0)
    chain.away.add("b")
    return chain


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_new_group_passes_over_nothing_while_the_broker_of_an_empty_part_is_away() -> None:
    chain = Chain(("a", 50), ("b", 0), ("a", 50))
    chain.away.add("b")
    assert await chain.place() is None
    assert await chain.commit(0, maxqIfAhead="true", maxqIfNone="true") == 0
    assert await chain.place() == 0


async def test_a_new_group_begins_behind_empty_parts_whose_brokers_are_away() -> None:
    chain = Chain(("b", 0), ("c", 0), ("a", 50))
    chain.away |= {"b", "c"}
    assert await chain.place() == 0


@pytest.mark.parametrize("by_operator", [False, True])
async def test_a_group_goes_back_over_an_empty_part_whose_broker_is_away(by_operator: bool) -> None:
    """What it has committed there before does not count, either, when that broker is back."""
    chain = with_empty_part()
    assert await chain.commit(20_030) == 0
    if by_operator:
        assert await chain.reset(10) == 10
    else:
        assert await chain.commit(10) == 0
    assert await chain.place() == 10
    if by_operator:
        heard = await chain.call(RequestCode.PULL_MESSAGE, queueOffset="20030", maxMsgNums="1", sysFlag="0")
        assert (heard.code, heard.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "10")
    chain.away.clear()
    assert await chain.place() == 10
    assert await chain.commit(12, maxqIfAhead="true") == 0
    assert await chain.place() == 12
    assert await chain.commit(20_005, maxqIfAhead="true") == 0
    assert await chain.place() == 20_005


async def test_a_group_that_was_last_at_an_empty_part_goes_on_behind_it() -> None:
    chain = with_empty_part()
    chain.away.clear()
    assert await chain.place() == 10_000
    chain.away.add("b")
    assert await chain.commit(10_000) == 0
    assert await chain.place() == 20_000
    assert await chain.reset(10_000) == 20_000


async def test_a_pull_commits_nothing_while_an_earlier_commit_is_under_way() -> None:
    """The reader commits it by itself, later."""
    chain = Chain(("b", 50), ("a", 50))
    answered = chain.slow["b"] = asyncio.Event()
    earlier = asyncio.create_task(chain.commit(17))
    await turns()
    pulls: list[RemotingCommand] = []

    async def pull(request: RemotingCommand) -> RemotingCommand:
        pulls.append(request)
        return request.reply(ResponseCode.PULL_NOT_FOUND)

    chain.leader.handlers[RequestCode.PULL_MESSAGE] = lambda _, request: pull(request)
    ask = {"queueOffset": "10005", "commitOffset": "10004", "maxMsgNums": "1", "sysFlag": str(PULL_FLAG_COMMIT_OFFSET)}
    await chain.call(RequestCode.PULL_MESSAGE, **ask)
    answered.set()
    await earlier
    await chain.call(RequestCode.PULL_MESSAGE, **ask)
    assert [pull.ext["sysFlag"] for pull in pulls] == ["0", ask["sysFlag"]]


async def test_a_reset_that_one_part_refuses_changes_nothing_in_others() -> None:
    chain = Chain(("a", 50), ("b", 50), ("a", 50))
    await chain.commit(20_030)
    before = chain.tables()
    chain.away.add("b")
    with pytest.raises(RequestRefusedError, match="b is away"):
        await chain.reset(10)
    assert chain.tables() == before
    chain.away.clear()
    chain.worlds["b"].groups.delete_subscription_group_config("G")
    refused = await chain.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, timestamp="0", offset="10")
    assert refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert chain.tables() == before


async def test_a_reset_that_a_part_of_one_queue_refuses_changes_nothing_in_other_queues() -> None:
    chain = Chain(("b", 50), ("a", 50))
    items = chain.leader.mappings.table["T"].hosted_queues[0]
    chain.lead([LogicQueueMappingItem(0, 2, "a", 0)], items)
    before = chain.tables()
    chain.away.add("b")
    with pytest.raises(RequestRefusedError, match="b is away"):
        await chain.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, timestamp="0", queueId="-1")
    assert chain.tables() == before
    chain.away.clear()
    await chain.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, timestamp="0", queueId="-1")
    assert chain.tables() != before


async def test_a_late_answer_about_an_older_part_takes_back_no_newer_commit() -> None:
    """Neither in the leader's part nor in another one."""
    for newer in (20_003, 10_003):
        chain = Chain(("b", 50), ("c", 50), ("a", 50))
        answered = chain.slow["b"] = asyncio.Event()
        earlier = asyncio.create_task(chain.commit(17))
        await turns()
        later = asyncio.create_task(chain.commit(newer))
        await turns()
        answered.set()
        assert (await earlier, await later) == (0, 0)
        assert await chain.place() == newer


async def test_a_commit_that_comes_while_a_group_is_reset_does_not_undo_it() -> None:
    chain = Chain(("b", 50), ("a", 50))
    await chain.commit(10_005)
    answered = chain.slow["b"] = asyncio.Event()
    reset = asyncio.create_task(chain.reset(10))
    await turns()
    commits = [asyncio.create_task(chain.commit(offset)) for offset in (30, 10_007)]
    await turns()
    answered.set()
    assert await reset == 10
    assert await asyncio.gather(*commits) == [0, 0]
    assert await chain.place() == 10


async def test_a_queue_that_moves_on_while_a_group_goes_back_is_the_new_leaders_business() -> None:
    """That one takes back what the group has committed here, if it still has."""
    chain = Chain(("b", 50), ("a", 50))
    await chain.commit(10_005)
    answered = chain.slow["b"] = asyncio.Event()
    commit = asyncio.create_task(chain.commit(17))
    await turns()
    items = chain.leader.mappings.table["T"].hosted_queues[0]
    chain.lead([*items, LogicQueueMappingItem(2, 0, "c", -1)])
    answered.set()
    with pytest.raises(RequestRefusedError) as refused:
        await commit
    assert refused.value.response_code == ResponseCode.NOT_LEADER_FOR_QUEUE
    assert chain.leader.offsets.query_offset("G", "T", 1) == 5
