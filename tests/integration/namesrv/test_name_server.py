"""The name server over sockets, as brokers, clients and mqadmin use it."""

import asyncio
import json
import zlib
from pathlib import Path

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.config import NettyClientConfig, NettyServerConfig
from maxq.errors import ConfigError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.topic_config import TopicConfig, TopicConfigSerializeWrapper
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from maxq.remoting.server import RemotingServer
from maxq.remoting.tls.contexts import ServerTls
from maxq.runtime.files.system import SystemClock, SystemDisk
from tests.integration.namesrv.harness import Peer, asking_route, name_server, registering, until

IDENTITY = {"clusterName": "DefaultCluster", "brokerAddr": "10.0.0.1:10911", "brokerName": "broker-a", "brokerId": "0"}


def known(answer: RemotingCommand) -> bool:
    return answer.code == ResponseCode.SUCCESS


def unknown(answer: RemotingCommand) -> bool:
    return answer.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("compressed", [False, True])
async def test_both_forms_of_registration_give_a_route(tmp_path: Path, compressed: bool) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        assert (await peer.ask(registering("T", "U", compressed=compressed))).code == 0
        answer = await peer.ask(asking_route("T"))
        assert answer.body_bytes == (
            b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster",'
            b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
            b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
        )


async def test_a_route_has_quoted_keys_for_old_clients_that_do_not_ask_for_them(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        await peer.ask(registering("T", "U"))
        for version, ext in ((400, {}), (63, {}), (479, {"acceptStandardJsonOnly": "true"})):
            request = asking_route("T", **ext)
            request.version = version
            assert list(json.loads((await peer.ask(request)).body_bytes)["brokerDatas"][0]["brokerAddrs"]) == ["0"]


async def test_a_broker_before_3_0_11_registers_the_bare_topic_table(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        request = registering("T", "U")
        request.version = 36
        table = {topic: TopicConfig(topic) for topic in ("Old1", "Old2")}
        request.body = TopicConfigSerializeWrapper(table, DataVersion(1, 0, 1)).encode()
        assert known(await peer.ask(request))
        assert known(await peer.ask(asking_route("Old1")))


async def test_a_registration_without_body_is_a_broker_without_topics(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        request = registering()
        request.body = None
        assert known(await peer.ask(request))
        info = json.loads((await peer.ask(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))).body_bytes)
        assert info["clusterAddrTable"] == {"DefaultCluster": ["broker-a"]}


async def test_a_registration_whose_checksum_is_wrong_is_refused(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        request = registering("T", "U")
        crc = zlib.crc32(request.body_bytes) & 0x7FFFFFFF
        request.ext["bodyCrc32"] = str(crc ^ 1)
        answer = await peer.ask(request)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
        assert unknown(await peer.ask(asking_route("T")))
        request.ext["bodyCrc32"] = str(crc)
        assert known(await peer.ask(request))


async def test_an_unknown_broker_with_one_topic_is_refused(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        answer = await peer.ask(registering("T"))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")


async def test_a_slave_is_told_its_master_and_the_ordered_topics(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"}
        assert (await peer.ask(registering("T", "U"))).body is None
        await peer.ask(RemotingCommand(RequestCode.PUT_KV_CONFIG, put))
        answer = await peer.ask(registering("T", "U", addr="10.0.0.2:10911", broker_id=1))
        assert answer.ext == {"haServerAddr": "10.0.0.1:109111", "masterAddr": "10.0.0.1:10911"}
        assert json.loads(answer.body_bytes) == {"table": {"T": "broker-a:8"}}
        await peer.ask(setting("returnOrderTopicConfigToBroker=false"))
        assert (await peer.ask(registering("T", "U"))).body is None


async def test_the_order_configuration_is_in_the_route_when_enabled(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        await peer.ask(registering("T", "U"))
        put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
        await peer.ask(RemotingCommand(RequestCode.PUT_KV_CONFIG, put))
        assert "orderTopicConf" not in json.loads((await peer.ask(asking_route("T"))).body_bytes)
        await peer.ask(setting("orderMessageEnable=true"))
        assert json.loads((await peer.ask(asking_route("T"))).body_bytes)["orderTopicConf"] == "broker-a:4"
        assert "orderTopicConf" not in json.loads((await peer.ask(asking_route("U"))).body_bytes)


async def test_a_client_that_stays_in_its_zone_sees_only_its_brokers(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        for name, zone in (("broker-a", "East"), ("broker-b", "west")):
            request = registering("T", "U", name=name, addr=f"{name}:1")
            request.ext["__ZONE_NAME"] = zone
            await peer.ask(request)
        await peer.ask(registering("T", "U", name="broker-c", addr="c:1", broker_id=1))  # no master, no zone

        async def brokers(**ext: str) -> set[str]:
            route = json.loads((await peer.ask(asking_route("T", **ext))).body_bytes)
            names = {broker["brokerName"] for broker in route["brokerDatas"]}
            assert {queue["brokerName"] for queue in route["queueDatas"]} == names
            return names

        assert await brokers(__ZONE_NAME="east") == {"broker-a", "broker-b", "broker-c"}
        assert await brokers(__ZONE_MODE="true", __ZONE_NAME="east") == {"broker-a", "broker-c"}
        assert await brokers(__ZONE_MODE="true", __ZONE_NAME=" ") == {"broker-a", "broker-b", "broker-c"}


async def test_a_broker_whose_connection_ends_is_gone_at_once(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as client:
        broker = await Peer.connect(server.port)
        await broker.ask(registering("T", "U"))
        assert known(await client.ask(asking_route("T")))
        await broker.close()
        await until(client, "T", unknown, seconds=30)  # who is only silent is gone after two minutes


async def test_a_broker_that_came_back_on_another_connection_survives_the_end_of_the_first(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as client:
        first, second = await Peer.connect(server.port), await Peer.connect(server.port)
        other = registering("X", "Y", name="other", addr="o:1")
        await first.ask(registering("T", "U"))
        await first.ask(other)
        await second.ask(registering("T", "U"))
        await first.close()
        await until(client, "X", unknown)
        assert known(await client.ask(asking_route("T")))
        await second.close()


async def test_a_data_version_is_compared_and_shown(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as broker:

        async def changed(version: DataVersion) -> tuple[str, bytes]:
            request = RemotingCommand(RequestCode.QUERY_DATA_VERSION, dict(IDENTITY), version.encode())
            answer = await broker.ask(request)
            return answer.ext["changed"], answer.body_bytes

        assert await changed(DataVersion(1, 0, 1000)) == ("true", b"")
        await broker.ask(registering("T", "U"))
        stored = b'{"counter":1,"stateVersion":0,"timestamp":1000}'
        assert await changed(DataVersion(1, 0, 1000)) == ("false", stored)
        for other in (DataVersion(2, 0, 1000), DataVersion(1, 1, 1000), DataVersion(1, 0, 1001)):
            assert await changed(other) == ("true", stored)


@pytest.mark.parametrize("client", [None, NettyClientConfig(use_tls=True, tls_client_auth_server=False)])
async def test_the_group_hears_of_its_new_smallest_id_when_enabled(
    client: NettyClientConfig | None, tmp_path: Path
) -> None:
    heard: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    server_side = NettyServerConfig(tls_server_mode="disabled" if client is None else "enforcing")
    tls = ServerTls(server_side, SystemDisk())
    slave = RemotingServer(server_side, clock=SystemClock(), tls=tls)
    slave.register(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, lambda _connection, request: heard.put_nowait(request.ext))
    port = await slave.start("127.0.0.1", 0)
    addr = f"127.0.0.1:{port}"
    async with (
        name_server(tmp_path, client=client, notify_min_broker_id_changed=True) as server,
        await Peer.connect(server.port) as peer,
    ):
        await peer.ask(registering("T", "U", addr=addr, broker_id=1, acting=True))
        master = await Peer.connect(server.port)
        await master.ask(registering("T", "U", addr="10.0.0.1:1", acting=True))
        came = {"minBrokerId": "0", "minBrokerAddr": "10.0.0.1:1", "haBrokerAddr": "10.0.0.1:11"}
        assert await asyncio.wait_for(heard.get(), 10) == came
        await master.close()
        went = {"minBrokerId": "1", "minBrokerAddr": addr, "offlineBrokerAddr": "10.0.0.1:1"}
        assert await asyncio.wait_for(heard.get(), 10) == went
    await slave.shutdown()


async def test_write_permission_is_taken_and_given_by_request(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        await peer.ask(registering("T", "U", "V"))

        async def perm() -> int:
            queue: int = json.loads((await peer.ask(asking_route("T"))).body_bytes)["queueDatas"][0]["perm"]
            return queue

        name = {"brokerName": "broker-a"}
        answer = await peer.ask(RemotingCommand(RequestCode.WIPE_WRITE_PERM_OF_BROKER, name))
        assert (answer.ext, await perm()) == ({"wipeTopicCount": "3"}, 4)
        answer = await peer.ask(RemotingCommand(RequestCode.ADD_WRITE_PERM_OF_BROKER, name))
        assert (answer.ext, await perm()) == ({"addTopicCount": "3"}, 6)


async def test_lists_of_topics_can_be_switched_off(tmp_path: Path) -> None:
    lists = [
        (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"}),
        (RequestCode.GET_UNIT_TOPIC_LIST, {}),
        (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, {}),
        (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, {}),
    ]
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        await peer.ask(registering("T", "U"))
        everything = RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert sorted(json.loads((await peer.ask(everything)).body_bytes)["topicList"]) == ["T", "U"]
        assert [(await peer.ask(RemotingCommand(code, dict(ext)))).code for code, ext in lists] == [0] * 4
        await peer.ask(setting("enableAllTopicList=false\nenableTopicList=false"))
        for code, ext in [*lists, (everything.code, {})]:
            answer = await peer.ask(RemotingCommand(code, dict(ext)))
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")


async def test_key_value_table_survives_a_restart_and_routes_do_not(tmp_path: Path) -> None:
    item = {"namespace": "NS", "key": "Schlüssel", "value": "a=b;c"}
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        await peer.ask(registering("T", "U"))
        assert known(await peer.ask(RemotingCommand(RequestCode.PUT_KV_CONFIG, dict(item))))
        await peer.ask(RemotingCommand(RequestCode.PUT_KV_CONFIG, item | {"key": "gone"}))
        await peer.ask(RemotingCommand(RequestCode.DELETE_KV_CONFIG, {"namespace": "NS", "key": "gone"}))
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        answer = await peer.ask(RemotingCommand(RequestCode.GET_KV_CONFIG, item))
        assert answer.ext == {"value": "a=b;c"}
        answer = await peer.ask(RemotingCommand(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "NS"}))
        assert json.loads(answer.body_bytes) == {"table": {"Schlüssel": "a=b;c"}}
        assert unknown(await peer.ask(asking_route("T")))
        await peer.ask(registering("T", "U"))
        assert known(await peer.ask(asking_route("T")))


async def test_a_damaged_key_value_file_is_named_at_start(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_bytes(b'{"configTable":[')
    with pytest.raises(ConfigError, match=r"kvConfig\.json is not a key-value table"):
        async with name_server(tmp_path):
            pass


async def test_a_change_that_cannot_be_written_is_refused_and_not_made(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_text("{}")
    async with (
        name_server(tmp_path, config_store_path=str(tmp_path)) as server,
        await Peer.connect(server.port) as peer,
    ):
        answer = await peer.ask(setting("orderMessageEnable=true"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (await shown(peer))["orderMessageEnable"] == "false"


async def test_live_settings_change_and_are_written_back(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("# ours\nlistenPort=9876\n")
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        assert known(await peer.ask(setting("supportActingMaster=true\nwaitSecondsForService=9\n")))
        now = await shown(peer)
        assert (now["supportActingMaster"], now["waitSecondsForService"]) == ("true", "9")
    assert path.read_text() == "# ours\nlistenPort=9876\nsupportActingMaster=true\nwaitSecondsForService=9\n"


@pytest.mark.parametrize("text", ["", "orderMessageEnable=false\nlistenPort=0\n"])
async def test_an_update_that_changes_nothing_succeeds_and_writes_nothing(tmp_path: Path, text: str) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        assert known(await peer.ask(setting(text)))
    assert not (tmp_path / "namesrv.conf").exists()


@pytest.mark.parametrize("name", ["configStorePath", "kvConfigPath", "configBlackList", "rocketmqHome", "listenPort"])
async def test_no_request_moves_files_or_the_black_list(tmp_path: Path, name: str) -> None:
    """CVE-2023-37582: a name server wrote its settings to a path that a request had set."""
    target = tmp_path / "owned"
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        before = await shown(peer)
        answer = await peer.ask(setting(f"orderMessageEnable=true\n{name}={target}"))
        assert answer.code in (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR)
        assert name in (answer.remark or "")
        assert await shown(peer) == before
    assert not target.exists()
    assert not (tmp_path / "namesrv.conf").exists()


@pytest.mark.parametrize("body", [b"\xff\xfe", b"a=\\u00zz", b"waitSecondsForService=long"])
async def test_a_settings_text_that_is_wrong_changes_nothing(tmp_path: Path, body: bytes) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        answer = await peer.ask(
            RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"orderMessageEnable=true\n" + body)
        )
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (await shown(peer))["orderMessageEnable"] == "false"


async def test_routes_are_refused_while_brokers_are_waited_for(tmp_path: Path) -> None:
    async with name_server(tmp_path, need_wait_for_service=True) as server, await Peer.connect(server.port) as peer:
        await peer.ask(registering("T", "U"))
        answer = await peer.ask(asking_route("T"))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
        await peer.ask(setting("waitSecondsForService=0"))
        assert known(await peer.ask(asking_route("T")))


async def test_a_topic_is_entered_and_deleted_by_request(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        await peer.ask(registering("T", "U"))
        route = (await peer.ask(asking_route("T"))).body_bytes
        assert known(await peer.ask(RemotingCommand(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "New"}, route)))
        assert (await peer.ask(asking_route("New"))).body_bytes == route
        assert known(await peer.ask(RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "New"})))
        assert unknown(await peer.ask(asking_route("New")))


async def test_a_broker_unregisters_itself(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        await peer.ask(registering("T", "U"))
        assert known(await peer.ask(RemotingCommand(RequestCode.UNREGISTER_BROKER, dict(IDENTITY))))
        assert unknown(await peer.ask(asking_route("T")))


async def test_member_group_and_system_topics(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        await peer.ask(registering("T", "U"))
        answer = await peer.ask(RemotingCommand(RequestCode.GET_BROKER_MEMBER_GROUP, dict(IDENTITY)))
        assert answer.remark is None
        assert answer.body_bytes == (
            b'{"brokerMemberGroup":{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a",'
            b'"cluster":"DefaultCluster"}}'
        )
        answer = await peer.ask(RemotingCommand(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS))
        assert answer.body_bytes == b'{"brokerAddr":"10.0.0.1:10911","topicList":["DefaultCluster","broker-a"]}'


async def test_binary_headers_are_answered_with_binary_headers(tmp_path: Path) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        request = registering("T", "U")
        request.serialize_type = SerializeType.ROCKETMQ
        answer = await peer.ask(request)
        assert (answer.code, answer.serialize_type) == (0, SerializeType.ROCKETMQ)


def setting(text: str) -> RemotingCommand:
    return RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, {}, text.encode())


async def shown(peer: Peer) -> dict[str, str]:
    answer = await peer.ask(RemotingCommand(RequestCode.GET_NAMESRV_CONFIG))
    return dict(line.split("=", 1) for line in answer.body_bytes.decode().splitlines())


@pytest.mark.parametrize("code", [1002, 1005, 1006, 1009, 1010, 1011])
async def test_requests_for_a_controller_are_refused_with_the_reason(tmp_path: Path, code: int) -> None:
    async with name_server(tmp_path) as server, await Peer.connect(server.port) as peer:
        answer = await peer.ask(RemotingCommand(code, {}))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "is for a controller, and there is none in this name server" in (answer.remark or "")
