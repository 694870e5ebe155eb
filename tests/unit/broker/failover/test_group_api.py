"""What a member asks of name servers and of the others of its group, and how it reads the answers."""

import asyncio
from typing import cast

import pytest

from maxq.broker.failover.group_api import GroupApi, Sign
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.codes import RequestCode, ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import BrokerError, MaxQError, RemotingConnectError, RemotingError, RemotingTimeoutError
from maxq.protocol.body.route import (
    BrokerData,
    BrokerMemberGroup,
    GetBrokerMemberGroupResponseBody,
    TopicRouteData,
)
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.admin import ExchangeHAInfoHeader
from maxq.protocol.header.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetRouteInfoRequestHeader,
)
from maxq.remoting.client import RemotingClient
from maxq.runtime.files.system import SystemClock
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.broker.failover.group_world import MASTER, MASTER_HA, SLAVE_1, SLAVE_2

OWN = BrokerAddress("C", "broker-a", 1, "10.0.0.2", 10911)
MEMBERS = {0: MASTER, 1: SLAVE_1}


class Client:
    """Stands for RemotingClient: keeps what is sent and to whom, answers as told."""

    def __init__(self, answer: RemotingCommand | None = None) -> None:
        self.name_servers = ["ns1:9876"]
        self.answers: dict[str, RemotingCommand | MaxQError | None] = {}  # by address; None: it is silent
        self.answer = answer or RemotingCommand(0)
        self.sent: list[tuple[str, RemotingCommand]] = []
        self.closed: list[str] = []
        self.marks: list[str] = []

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.sent.append((address, command))
        answer = self.answers.get(address, self.answer)
        if isinstance(answer, RemotingCommand):
            return answer
        if answer is None:
            await asyncio.sleep(timeout_ms / 1000)
            raise RemotingTimeoutError("silent", address=address, timeout_ms=timeout_ms)
        raise answer

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        self.sent.append((address, command))

    def close_connection(self, address: str, reason: str) -> None:
        self.closed.append(address)


def group_api(client: Client) -> GroupApi:
    return GroupApi(cast(RemotingClient, client), OWN, client.marks.append)


async def test_the_members_are_those_of_our_name_and_cluster_in_the_route_that_old_name_servers_answer() -> None:
    route = TopicRouteData(
        broker_datas=[
            BrokerData("C", "broker-b", {0: "10.0.0.8:10911"}),
            BrokerData("elsewhere", "broker-a", {0: "10.0.0.9:10911"}),
            BrokerData("C", "broker-a", dict(MEMBERS)),
        ]
    )
    client = Client(RemotingCommand(0, body=route.encode()))
    assert await group_api(client).member_group(compatible=True) == MEMBERS
    ((_, request),) = client.sent
    assert request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
    assert GetRouteInfoRequestHeader.decode(request.ext).topic == "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    del route.broker_datas[-1]
    client.answer = RemotingCommand(0, body=route.encode())
    assert await group_api(client).member_group(compatible=True) == {}


async def test_the_members_are_asked_for_by_name_where_name_servers_are_new() -> None:
    body = GetBrokerMemberGroupResponseBody(BrokerMemberGroup("C", "broker-a", dict(MEMBERS)))
    client = Client(RemotingCommand(0, body=body.encode()))
    assert await group_api(client).member_group(compatible=False) == MEMBERS
    ((_, request),) = client.sent
    assert request.code == RequestCode.GET_BROKER_MEMBER_GROUP
    assert GetBrokerMemberGroupRequestHeader.decode(request.ext) == GetBrokerMemberGroupRequestHeader("C", "broker-a")


def members_answer(members: dict[int, str]) -> RemotingCommand:
    group = BrokerMemberGroup("C", "broker-a", members)
    return RemotingCommand(0, body=GetBrokerMemberGroupResponseBody(group).encode())


def test_the_members_are_all_that_any_name_server_names() -> None:
    """One was just started, one does not hear the master, one is away and one hangs."""

    async def main(world: SimWorld) -> None:
        client = Client()
        client.name_servers = ["ns1:9876", "ns2:9876", "ns3:9876", "ns4:9876", "ns5:9876"]
        client.answers = {
            "ns1:9876": members_answer({}),
            "ns2:9876": members_answer({1: SLAVE_1}),
            "ns3:9876": RemotingConnectError("refused", address="ns3:9876"),
            "ns4:9876": None,
            "ns5:9876": members_answer({0: MASTER, 1: SLAVE_2}),
        }
        assert await group_api(client).member_group(compatible=False) == {0: MASTER, 1: SLAVE_1}
        assert world.loop.time() - 1000 < 0.5
        client.answers = dict.fromkeys(client.name_servers)
        client.answers["ns2:9876"] = members_answer({})
        assert await group_api(client).member_group(compatible=False) == {}
        client.answers["ns2:9876"] = RemotingConnectError("refused", address="ns2:9876")
        with pytest.raises(RemotingError):
            await group_api(client).member_group(compatible=False)
        client.name_servers = []
        with pytest.raises(RemotingConnectError, match="no name server"):
            await group_api(client).member_group(compatible=False)

    run_simulation(main, seed=1)


async def test_a_name_server_that_does_not_know_the_group_names_nobody() -> None:
    client = Client(RemotingCommand(ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info"))
    assert await group_api(client).member_group(compatible=True) == {}


@pytest.mark.parametrize("compatible", [True, False])
async def test_a_name_server_that_fails_is_a_failure_and_not_an_empty_group(compatible: bool) -> None:
    client = Client(RemotingCommand(ResponseCode.SYSTEM_ERROR, remark="no idea"))
    with pytest.raises(BrokerError, match="no idea"):
        await group_api(client).member_group(compatible=compatible)


async def test_a_sign_of_life_says_who_lives() -> None:
    client = Client()
    await group_api(client).heartbeat("ns:9876", 1_000)
    ((name_server, request),) = client.sent
    assert (name_server, request.code) == ("ns:9876", RequestCode.BROKER_HEARTBEAT)
    assert BrokerHeartbeatRequestHeader.decode(request.ext) == BrokerHeartbeatRequestHeader("C", SLAVE_1, "broker-a")


async def test_a_master_is_asked_without_an_address_and_a_slave_is_told_with_one() -> None:
    info = ExchangeHAInfoHeader(MASTER_HA, 4096, MASTER)
    client = Client(RemotingCommand(0, info.encode()))
    api = group_api(client)
    assert await api.retrieve_ha_info(MASTER) == info
    await api.send_ha_info(SLAVE_1, info)
    assert [(address, request.code, request.ext) for address, request in client.sent] == [
        (MASTER, RequestCode.EXCHANGE_BROKER_HA_INFO, {}),
        (SLAVE_1, RequestCode.EXCHANGE_BROKER_HA_INFO, info.encode()),
    ]


async def test_a_broker_that_refuses_is_named_with_its_reason() -> None:
    client = Client(RemotingCommand(ResponseCode.SYSTEM_ERROR, remark="request type 906 not supported"))
    with pytest.raises(BrokerError, match="906 not supported") as caught:
        await group_api(client).retrieve_ha_info(MASTER)
    assert caught.value.address == MASTER


async def test_the_connection_to_a_master_that_is_gone_is_closed() -> None:
    client = Client()
    group_api(client).drop_connection(MASTER)
    assert client.closed == [MASTER]


def answer_of_master(*, is_active: str) -> RemotingCommand:
    ext = ExchangeHAInfoHeader(MASTER_HA, 4096, MASTER).encode()
    return RemotingCommand(0, {**ext, "maxqIsActive": is_active, "maxqLogMark": "1:2:3"})


@pytest.mark.parametrize(
    ("answer", "sign"),
    [
        (RemotingCommand(0, ExchangeHAInfoHeader(MASTER_HA, 4096, MASTER).encode()), Sign.LIVES),
        (answer_of_master(is_active="true"), Sign.LIVES),
        (answer_of_master(is_active="false"), Sign.PREPARES),
        (RemotingCommand(ResponseCode.SERVICE_NOT_AVAILABLE, remark="this master ends"), Sign.GONE),
        (RemotingCommand(0), Sign.GONE),  # of a slave that has the master's address by now
        (RemotingCommand(ResponseCode.SYSTEM_BUSY), Sign.LIVES),
        (RemotingCommand(ResponseCode.NO_PERMISSION, remark="no rule permits that"), Sign.LIVES),
    ],
)
async def test_a_master_that_is_asked_for_a_sign_of_life(answer: RemotingCommand, sign: Sign) -> None:
    client = Client(answer)
    assert await group_api(client).sign_of(MASTER) is sign
    assert client.marks == ([answer.ext.get("maxqLogMark", "")] if sign.is_answer else [])


@pytest.mark.parametrize(
    ("answer", "sign"),
    [
        (RemotingCommand(0, {"maxqBrokerName": "broker-a"}), Sign.LIVES),
        (RemotingCommand(0, {"maxqBrokerName": "broker-b"}), Sign.GONE),  # it has the address by now
        (RemotingCommand(0), Sign.LIVES),  # RocketMQ's
        (answer_of_master(is_active="true"), Sign.LIVES),  # it was made the master
        (RemotingCommand(ResponseCode.SERVICE_NOT_AVAILABLE, remark="this slave ends"), Sign.GONE),
        (RemotingCommand(ResponseCode.SYSTEM_BUSY), Sign.LIVES),
    ],
)
async def test_a_slave_that_is_asked_for_a_sign_of_life(answer: RemotingCommand, sign: Sign) -> None:
    assert await group_api(Client(answer)).sign_of_slave(SLAVE_2) is sign


async def test_who_asks_a_master_for_a_sign_of_life_says_that_he_lives_himself() -> None:
    client = Client(RemotingCommand(0))
    await group_api(client).sign_of(MASTER)
    ((_, request),) = client.sent
    assert request.ext == {"maxqBrokerName": "broker-a", "maxqSlaveId": "1", "maxqSlaveAddress": SLAVE_1}


@pytest.mark.parametrize("acts", [False, True])
async def test_a_slave_returns_the_stamp_of_a_master_unless_it_acts(acts: bool) -> None:
    answer = answer_of_master(is_active="true")
    answer.ext["maxqStamp"] = "7.8"
    client = Client(answer)
    await group_api(client).sign_of(MASTER, lambda: acts)
    (_, question), *returned = client.sent
    assert question.ext.get("maxqActs") == ("true" if acts else None)
    assert [request.ext["maxqStamp"] for _, request in returned] == ([] if acts else ["7.8"])


@pytest.mark.parametrize(
    ("answer", "sign"),
    [
        (RemotingCommand(0, {"maxqStandsBack": "true"}), Sign.GONE),
        (RemotingCommand(0, {"maxqStandsBack": "false"}), Sign.LIVES),
        (RemotingCommand(0, ExchangeHAInfoHeader(MASTER_HA, 4096, MASTER).encode()), Sign.GONE),  # RocketMQ's
        (RemotingCommand(ResponseCode.SERVICE_NOT_AVAILABLE, remark="this master ends"), Sign.GONE),
        (RemotingCommand(ResponseCode.SYSTEM_BUSY), Sign.LIVES),
    ],
)
async def test_a_master_that_is_asked_to_stand_back(answer: RemotingCommand, sign: Sign) -> None:
    client = Client(answer)
    assert await group_api(client).ask_to_stand_back(MASTER) is sign
    ((_, request),) = client.sent
    assert request.ext["maxqStandBack"] == "true"


class Port:
    """A port of this machine, and what becomes of who connects: `"refused"`, `"silent"`, or `"cut"` each time."""

    def __init__(self, manner: str) -> None:
        self.manner = manner

    async def __aenter__(self) -> str:
        server = await asyncio.start_server(self._met, "127.0.0.1", 0)
        self._server, port = server, server.sockets[0].getsockname()[1]
        if self.manner == "refused":
            server.close()
        return f"127.0.0.1:{port}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.manner == "silent":
            await reader.read()
        writer.transport.abort()


@pytest.mark.parametrize(("manner", "sign"), [("refused", Sign.GONE), ("silent", Sign.SILENT), ("cut", Sign.SILENT)])
async def test_only_where_nobody_listens_a_master_without_an_answer_is_gone(manner: str, sign: Sign) -> None:
    client = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SimRng(1))
    async with Port(manner) as address:
        assert await GroupApi(client, OWN, lambda mark: None).sign_of(address) is sign
        await client.close()
