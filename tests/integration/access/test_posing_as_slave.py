"""A user without rights who asks a master what its slaves ask."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from maxq.codes import RequestCode as Code
from maxq.codes import ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from tests.integration.access.test_strangers import MALLORY, OWNER, World, guarded_world
from tests.integration.access.world import signed

TOPIC = {
    "topic": "made", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip


@pytest.fixture(params=["ACL 2.0", "ACL 1.0"])
async def master(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """It waits for slaves that have its tables, and for no copies of its log."""
    settings = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "500", "inSyncReplicas": "1", "minInSyncReplicas": "1"}
    made = await guarded_world(tmp_path, request.param, settings)
    yield made
    await made.broker.stop()


@pytest.mark.parametrize("counter", [0, 1 << 40], ids=["has nothing", "has everything"])
async def test_who_is_no_slave_is_not_waited_for_and_does_not_count_as_a_copy(master: World, counter: int) -> None:
    version = json.dumps({"counter": counter, "stateVersion": 0, "timestamp": counter})
    ext = {"topicVersion": version, "groupVersion": version, "waitMs": "30000", "restMs": "30000"}
    ext["offsetsTaken"] = str(counter << 20)
    asks = RemotingCommand(Code.MAXQ_AWAIT_TABLE_CHANGE, ext)
    asked = asyncio.ensure_future(master.broker.invoke(signed(asks, MALLORY)))
    await asyncio.sleep(0)
    await master.ask(Code.GET_BROKER_RUNTIME_INFO, {})  # on the same connection: that was worked off
    made = await master.ask(Code.UPDATE_AND_CREATE_TOPIC, TOPIC, who=OWNER)
    assert made.code == 0, made.remark
    async with asyncio.timeout(10):
        assert (await asked).code == ResponseCode.NO_PERMISSION
