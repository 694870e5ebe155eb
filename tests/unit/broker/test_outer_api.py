"""Calls to name servers: the bodies they carry."""

import zlib

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.identity.outer_api import BrokerOuterApi
from maxq.broker.tables.row_json import RowJson
from maxq.codes import RequestCode
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.register_broker import RegisterBrokerBody
from maxq.protocol.body.topic_config import TopicConfig, TopicConfigAndMappingSerializeWrapper
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.namesrv import RegisterBrokerRequestHeader

BROKER = BrokerAddress("C", "broker-a", 0, "10.0.0.1", 10911)


class Client:
    """Stands for RemotingClient: keeps what is sent, answers as told."""

    def __init__(self) -> None:
        self.sent: list[RemotingCommand] = []
        self.answer = RemotingCommand(0)

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.sent.append(command)
        return self.answer


def topics(count: int) -> dict[str, TopicConfig]:
    made = {f"T{i}": TopicConfig(f"T{i}", i + 1, i + 2, order=bool(i % 2)) for i in range(count)}
    return made | {'odd"ä': TopicConfig('odd"ä', attributes={"message.type": "FIFO"})}


def outer_api(client: Client) -> BrokerOuterApi:
    return BrokerOuterApi(client, RowJson("topicConfigTable"))  # type: ignore[arg-type]


async def register(api: BrokerOuterApi, table: dict[str, TopicConfig], *, compressed: bool = False) -> None:
    version = DataVersion(3, 0, 1_700_000_000_000)
    await api.register_broker("ns", BROKER, table, version, timeout_ms=1_000, compressed=compressed)


async def test_registration_body_is_that_of_the_protocol_and_its_crc_is_right() -> None:
    client = Client()
    api = outer_api(client)
    for table in (topics(3), {}, topics(1)):
        await register(api, table)
        request = client.sent[-1]
        wrapper = TopicConfigAndMappingSerializeWrapper(table, DataVersion(3, 0, 1_700_000_000_000))
        assert request.code == RequestCode.REGISTER_BROKER
        assert request.body_bytes == RegisterBrokerBody(wrapper).encode()
        header = RegisterBrokerRequestHeader.decode(request.ext)
        assert header.body_crc32 == zlib.crc32(request.body_bytes) & 0x7FFFFFFF
        assert (header.broker_addr, header.ha_server_addr) == ("10.0.0.1:10911", "10.0.0.1:10912")


async def test_changed_topic_is_written_anew() -> None:
    client = Client()
    api = outer_api(client)
    await register(api, {"T": TopicConfig("T", 4, 4), "U": TopicConfig("U")})
    await register(api, {"T": TopicConfig("T", 8, 8), "U": TopicConfig("U")})
    body = RegisterBrokerBody.decode(client.sent[-1].body_bytes)
    assert body.topic_config_serialize_wrapper.topic_config_table["T"].read_queue_nums == 8


async def test_compressed_body_can_be_read_back() -> None:
    client = Client()
    await register(outer_api(client), topics(3), compressed=True)
    body = RegisterBrokerBody.decode_body(client.sent[0].body_bytes, compressed=True, broker_version=479)
    assert list(body.topic_config_serialize_wrapper.topic_config_table) == list(topics(3))


async def test_order_topics_and_the_master_are_read_from_the_answer() -> None:
    client = Client()
    client.answer = RemotingCommand(
        0, {"masterAddr": "10.0.0.2:10911", "haServerAddr": "10.0.0.2:10912"}, b'{"table":{"T":"broker-a:4"}}'
    )
    api = outer_api(client)
    result = await api.register_broker("ns", BROKER, {}, DataVersion(), timeout_ms=1_000)
    assert result.order_topics == {"T": "broker-a:4"}
    assert (result.master_address, result.ha_address) == ("10.0.0.2:10911", "10.0.0.2:10912")
