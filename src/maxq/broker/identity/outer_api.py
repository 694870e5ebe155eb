"""Requests of a broker to name servers (BrokerOuterAPI.java)."""

from collections.abc import Mapping
from dataclasses import field
from functools import partial

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.tables.row_json import RowJson
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.register_broker import RegisterBrokerBody
from maxq.protocol.body.route import BrokerData, ClusterInfo, KVTable, QueueData, TopicRouteData
from maxq.protocol.body.topic_config import TopicConfig, TopicConfigAndMappingSerializeWrapper, TopicQueueMappingInfo
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.namesrv import (
    GetRouteInfoRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from maxq.protocol.message.message import crc31
from maxq.remoting.client import RemotingClient
from maxq.runtime.blocking import run_blocking

_CALL_TIMEOUT_MS = 3_000


@dataclass(frozen=True, slots=True)
class RegisterResult:
    """Answer of a name server to a registration.

    Attributes:
        order_topics: KV namespace ORDER_TOPIC_CONFIG: topic → `broker-a:4;…`.
        master_address, ha_address: of the master, told to slaves; empty otherwise.
    """

    order_topics: dict[str, str] = field(default_factory=dict)
    master_address: str = ""
    ha_address: str = ""


class BrokerOuterApi:
    """Calls to name servers. `address` arguments are `host:port`.

    Every call raises RemotingError when there is no answer and BrokerError when the answer is not success.
    """

    def __init__(self, client: RemotingClient, topic_json: RowJson[TopicConfig]) -> None:
        self._client = client
        self._topic_json = topic_json

    async def register_broker(
        self,
        address: str,
        broker: BrokerAddress,
        topics: Mapping[str, TopicConfig],
        data_version: DataVersion,
        *,
        mappings: Mapping[str, TopicQueueMappingInfo] | None = None,
        timeout_ms: int,
        compressed: bool = False,
        heartbeat_timeout_ms: int | None = None,
        is_whole: bool = False,
    ) -> RegisterResult:
        """Tell a name server of this broker and of `topics`: all of them, or those that changed (103).

        Args:
            mappings: mappings of the static topics among them.
            heartbeat_timeout_ms: time without a heartbeat after which the broker counts as gone, and its slave with the
                smallest id may act as master (enableSlaveActingMaster); None: this group has no acting masters.
            is_whole: a MaxQ name server is to forget what else it knows of this broker's topics.
        """
        wrapper = TopicConfigAndMappingSerializeWrapper(data_version=data_version)
        wrapper.topic_queue_mapping_info_map = dict(mappings or {})
        if compressed:
            wrapper.topic_config_table = dict(topics)
            body = await run_blocking(partial(RegisterBrokerBody(wrapper).encode_body, compressed=True))
        else:
            body = await self._topic_json.put_into(RegisterBrokerBody(wrapper).encode(), topics)
        header = RegisterBrokerRequestHeader(
            broker_name=broker.broker_name,
            broker_addr=broker.address,
            cluster_name=broker.cluster,
            ha_server_addr=broker.ha_address,
            broker_id=broker.broker_id,
            heartbeat_timeout_millis=heartbeat_timeout_ms,
            enable_acting_master=heartbeat_timeout_ms is not None,
            compressed=compressed,
            body_crc32=crc31(body),
            maxq_whole=is_whole,
        )
        request = RemotingCommand(RequestCode.REGISTER_BROKER, header.encode(), body)
        answer = await self._invoke(address, request, timeout_ms)
        told = RegisterBrokerResponseHeader.decode(answer.ext)
        return RegisterResult(
            KVTable.decode(answer.body_bytes).table if answer.body_length else {},
            told.master_addr or "",
            told.ha_server_addr or "",
        )

    async def unregister_broker(self, address: str, broker: BrokerAddress) -> None:
        """Unregister this broker, which shuts down (104)."""
        header = UnRegisterBrokerRequestHeader(broker.broker_name, broker.address, broker.cluster, broker.broker_id)
        await self._invoke(address, RemotingCommand(RequestCode.UNREGISTER_BROKER, header.encode()), _CALL_TIMEOUT_MS)

    async def needs_registration(
        self, address: str, broker: BrokerAddress, data_version: DataVersion, *, timeout_ms: int
    ) -> bool:
        """Ask whether the name server's copy of our topics differs (322); the request is a heartbeat, too."""
        header = QueryDataVersionRequestHeader(broker.broker_name, broker.address, broker.cluster, broker.broker_id)
        request = RemotingCommand(RequestCode.QUERY_DATA_VERSION, header.encode(), data_version.encode())
        answer = await self._invoke(address, request, timeout_ms)
        return QueryDataVersionResponseHeader.decode(answer.ext).changed

    async def register_topic(self, address: str, broker: BrokerAddress, topic: TopicConfig, *, timeout_ms: int) -> None:
        """Register a single topic at a name server (217)."""
        route = TopicRouteData(
            queue_datas=[
                QueueData(
                    broker.broker_name,
                    topic.read_queue_nums,
                    topic.write_queue_nums,
                    topic.perm,
                    topic.topic_sys_flag,
                )
            ],
            broker_datas=[BrokerData(broker.cluster, broker.broker_name, {broker.broker_id: broker.address})],
        )
        header = RegisterTopicRequestHeader(topic.topic_name)
        request = RemotingCommand(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header.encode(), route.encode())
        await self._invoke(address, request, timeout_ms)

    async def holder(self, address: str, broker: BrokerAddress, *, timeout_ms: int) -> str:
        """Returns the address `host:port` that a name server has under this broker's name and id (106); empty if
        none."""
        answer = await self._invoke(address, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), timeout_ms)
        group = ClusterInfo.decode(answer.body_bytes).broker_addr_table.get(broker.broker_name)
        return "" if group is None else group.broker_addrs.get(broker.broker_id, "")

    async def is_called(self, address: str, broker: BrokerAddress, *, timeout_ms: int) -> bool:
        """Returns whether a broker with the name and id of `broker` answers at `address` (26)."""
        answer = await self._invoke(address, RemotingCommand(RequestCode.GET_BROKER_CONFIG), timeout_ms)
        text = bytes(answer.body_bytes).decode("utf-8", "replace")
        lines = dict(line.partition("=")[::2] for line in text.split("\n"))
        return (lines.get("brokerName"), lines.get("brokerId")) == (broker.broker_name, str(broker.broker_id))

    async def topic_route(self, topic: str) -> TopicRouteData | None:
        """Returns the route of a topic from any name server; None if there is none."""
        header = GetRouteInfoRequestHeader(topic, accept_standard_json_only=True)
        request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())
        answer = await self._client.invoke_name_server(request, _CALL_TIMEOUT_MS)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark)
        return TopicRouteData.decode(answer.body_bytes)

    async def _invoke(self, address: str, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        answer = await self._client.invoke(address, request, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address=address)
        return answer
