"""Two brokers of one name and id on one name server: the second does not start, or both say so."""

import pytest

from maxq.codes import RequestCode
from maxq.errors import ConfigError
from maxq.protocol.body.route import KVTable
from maxq.protocol.frame.remoting_command import RemotingCommand
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until


async def also_at(broker: RunningBroker) -> str:
    answer = await broker.invoke(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    return KVTable.decode(answer.body_bytes).table["brokerNameAlsoAt"]


@pytest.mark.parametrize("role", [{}, {"brokerRole": "SLAVE", "brokerId": 1}])
async def test_a_second_broker_of_a_living_ones_name_and_id_does_not_start(
    start_broker: Start, namesrv: str, role: dict[str, object]
) -> None:
    first = await start_broker("first", namesrvAddr=namesrv, **role)
    with pytest.raises(ConfigError, match=f"the broker at {first.address} has this name and id"):
        await start_broker("second", namesrvAddr=namesrv, **role)
    await first.stop()
    second = await start_broker("second", namesrvAddr=namesrv, **role)
    assert await also_at(second) == ""


async def test_two_masters_of_one_name_say_so_until_one_has_left(start_broker: Start, namesrv: str) -> None:
    first = await start_broker("first", namesrvAddr=namesrv)
    second = await start_broker("second")  # it knows no name server yet, so nobody can tell it
    second.controller.client.update_name_servers([namesrv])
    await second.controller.registration.register_now()
    assert await also_at(second) == first.address
    await first.controller.registration.register_now()
    assert await also_at(first) == second.address
    await second.stop()
    await first.controller.registration.register_now()
    await until(lambda: not first.controller.registration.other_holder)
