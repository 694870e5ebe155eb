"""Everything a name server answers except routes.

Source:
    apache/rocketmq namesrv/processor/DefaultRequestProcessor.java.
"""

import hashlib
import logging
import zlib
from collections.abc import Awaitable, Callable
from typing import Final

from maxq.codes import MQVersion, RequestCode, ResponseCode
from maxq.config import NamesrvSettings
from maxq.namesrv.broker_registration import MinBrokerIdChange, RegisterBrokerResult, RegistrationRequest
from maxq.namesrv.config_service import ConfigService
from maxq.namesrv.kv_config_manager import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigManager
from maxq.namesrv.route_info_manager import RouteInfoManager
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.register_broker import RegisterBrokerBody
from maxq.protocol.body.route import GetBrokerMemberGroupResponseBody, KVTable, TopicRouteData
from maxq.protocol.body.topic_config import (
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
    TopicList,
)
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.namesrv import (
    ZONE_NAME,
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from maxq.remoting.connection import Connection
from maxq.runtime.blocking import run_blocking
from maxq.runtime.interfaces import Clock
from maxq.runtime.turns import Turns

_log = logging.getLogger(__name__)

Answer = RemotingCommand | Awaitable[RemotingCommand]
Handler = Callable[[Connection, RemotingCommand], Answer]

_OF_A_CONTROLLER = (
    RequestCode.CONTROLLER_ELECT_MASTER,
    RequestCode.CONTROLLER_GET_METADATA_INFO,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
    RequestCode.UPDATE_CONTROLLER_CONFIG,
    RequestCode.GET_CONTROLLER_CONFIG,
    RequestCode.CLEAN_BROKER_DATA,
)

#: Bytes of a registration, and objects of one in JSON: 50,000 topics. Compressed, 8 MiB have millions.
_MOST_BYTES: Final = 8 << 20
_MOST_OBJECTS: Final = 100_000
_DECODED_AT_ONCE: Final = 65_536  # bytes of JSON: some 500 topics

_DISABLED = "disable"  # the whole remark in Java; kept, tools compare it


class DefaultRequestProcessor:
    """Answers requests, with one method a request code; a server registers the map `handlers`."""

    def __init__(
        self,
        settings: NamesrvSettings,
        routes: RouteInfoManager,
        kv_configs: KVConfigManager,
        configs: ConfigService,
        clock: Clock,
        notify: Callable[[MinBrokerIdChange], None],
    ) -> None:
        self._settings = settings
        self._routes = routes
        self._kv_configs = kv_configs
        self._configs = configs
        self._clock = clock
        self._notify = notify
        self._decoding: dict[tuple[str, str], RemotingCommand] = {}  # newest registration, by cluster and address

    def handlers(self) -> dict[RequestCode, Handler]:
        """Return the method that answers each request code."""
        return {
            RequestCode.PUT_KV_CONFIG: self._put_kv_config,
            RequestCode.GET_KV_CONFIG: self._get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kv_list,
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.BROKER_HEARTBEAT: self._broker_heartbeat,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._get_broker_member_group,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_broker_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._get_unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._get_unit_sub_non_unit_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            **dict.fromkeys(_OF_A_CONTROLLER, self._refuse_controller_request),
        }

    # --- key-value table ----------------------------------------------------------------------------------------

    async def _put_kv_config(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        header = PutKVConfigRequestHeader.decode(request.ext)
        await self._kv_configs.put(header.namespace, header.key, header.value)
        return request.reply()

    def _get_kv_config(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        header = GetKVConfigRequestHeader.decode(request.ext)
        value = self._kv_configs.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.reply(ext=GetKVConfigResponseHeader(value).encode())

    async def _delete_kv_config(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        header = DeleteKVConfigRequestHeader.decode(request.ext)
        await self._kv_configs.delete(header.namespace, header.key)
        return request.reply()

    def _get_kv_list(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        namespace = GetKVListByNamespaceRequestHeader.decode(request.ext).namespace
        table = self._kv_configs.namespace(namespace)
        if table is None:
            return request.reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return request.reply(body=KVTable(table).encode())

    # --- brokers ------------------------------------------------------------------------------------------------

    def _register_broker(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        header = RegisterBrokerRequestHeader.decode(request.ext)
        body = request.body_bytes
        if len(body) > _MOST_BYTES or (not header.compressed and body.count(b"{") > _MOST_OBJECTS):
            remark = (
                f"a registration of {len(body)} bytes; the limits are {_MOST_BYTES} bytes and, without compression, "
                f"{_MOST_OBJECTS} objects; set compressedRegister, or give the broker fewer topics"
            )
            return request.reply(ResponseCode.INVALID_PARAMETER, remark)
        if header.body_crc32 != 0 and zlib.crc32(body) & 0x7FFFFFFF != header.body_crc32 & 0x7FFFFFFF:
            return request.reply(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        self._decoding.pop((header.cluster_name, header.broker_addr), None)
        digest = _digest(request, body)
        result = self._routes.register_again(
            header.cluster_name, header.broker_addr, connection, digest, now_ms=self._clock.monotonic_ms()
        )
        if result is not None:
            return self._registered(request, result)
        if header.compressed or len(body) > _DECODED_AT_ONCE:
            return self._register_later(connection, request, header, digest)
        registration = _registration(header, request, body, connection, digest)
        return self._entered(request, self._routes.register_broker(registration, now_ms=self._clock.monotonic_ms()))

    async def _register_later(
        self, connection: Connection, request: RemotingCommand, header: RegisterBrokerRequestHeader, digest: bytes
    ) -> RemotingCommand:
        """Decode a registration in a thread, if it is long or tells its length only after decompression. Later messages
        of the broker, or of its connection, are newer and win."""
        broker = header.cluster_name, header.broker_addr
        self._decoding[broker] = request
        try:
            registration = await run_blocking(_registration, header, request, request.body_bytes, connection, digest)
            is_newest = self._decoding.get(broker) is request
        finally:
            if self._decoding.get(broker) is request:
                del self._decoding[broker]
        if connection.is_closed or not is_newest:
            return request.reply(ResponseCode.SYSTEM_ERROR, "the broker said something newer before this was read")
        turns = Turns()
        steps = self._routes.registering(registration, now_ms=self._clock.monotonic_ms())
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return self._entered(request, end.value)
            await turns.rest()

    def _entered(self, request: RemotingCommand, result: RegisterBrokerResult | None) -> RemotingCommand:
        if result is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, "register broker failed")
        return self._registered(request, result)

    def _registered(self, request: RemotingCommand, result: RegisterBrokerResult) -> RemotingCommand:
        if result.notice is not None:
            self._notify(result.notice)
        answer = RegisterBrokerResponseHeader(result.ha_server_addr, result.master_addr)
        ordered = None
        if self._settings.namesrv.return_order_topic_config_to_broker:
            ordered = self._kv_configs.namespace(NAMESPACE_ORDER_TOPIC_CONFIG)
        return request.reply(ext=answer.encode(), body=None if ordered is None else KVTable(ordered).encode())

    async def _unregister_broker(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        header = UnRegisterBrokerRequestHeader.decode(request.ext)
        self._decoding.pop((header.cluster_name, header.broker_addr), None)
        notice = self._routes.unregister_broker(header.cluster_name, header.broker_addr, header.broker_name)
        await self._worked_off()
        if notice is not None:
            self._notify(notice)
        return request.reply()

    async def _worked_off(self) -> None:
        """Answer a request that concerns all topics of a broker once all of them have been changed."""
        turns = Turns()
        while self._routes.work_off():
            await turns.rest()

    def _query_data_version(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        header = QueryDataVersionRequestHeader.decode(request.ext)
        asked = DataVersion.decode(request.body_bytes)
        known = self._routes.data_version(header.cluster_name, header.broker_addr)
        self._routes.touch(header.cluster_name, header.broker_addr, now_ms=self._clock.monotonic_ms())
        answer = QueryDataVersionResponseHeader(changed=known != asked)
        return request.reply(ext=answer.encode(), body=None if known is None else known.encode())

    def _broker_heartbeat(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        header = BrokerHeartbeatRequestHeader.decode(request.ext)
        self._routes.touch(header.cluster_name, header.broker_addr, now_ms=self._clock.monotonic_ms())
        return request.reply()

    def _get_broker_member_group(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        header = GetBrokerMemberGroupRequestHeader.decode(request.ext)
        group = self._routes.broker_member_group(header.cluster_name, header.broker_name)
        return request.reply(body=GetBrokerMemberGroupResponseBody(group).encode())

    def _get_broker_cluster_info(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        return request.reply(body=self._routes.cluster_info().encode())

    async def _wipe_write_perm(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        name = WipeWritePermOfBrokerRequestHeader.decode(request.ext).broker_name
        count = self._routes.wipe_write_perm_of_broker(name)
        await self._worked_off()
        _log.info("wiped the write permission of %d topics of broker %s", count, name)
        return request.reply(ext=WipeWritePermOfBrokerResponseHeader(count).encode())

    async def _add_write_perm(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        name = AddWritePermOfBrokerRequestHeader.decode(request.ext).broker_name
        count = self._routes.add_write_perm_of_broker(name)
        await self._worked_off()
        _log.info("gave %d topics of broker %s read and write permission", count, name)
        return request.reply(ext=AddWritePermOfBrokerResponseHeader(count).encode())

    # --- topics -------------------------------------------------------------------------------------------------

    def _get_all_topics(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        if not self._settings.namesrv.enable_all_topic_list:
            return request.reply(ResponseCode.SYSTEM_ERROR, _DISABLED)
        return request.reply(body=self._routes.all_topics().encode())

    def _get_topics_by_cluster(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        cluster = GetTopicsByClusterRequestHeader.decode(request.ext).cluster
        return self._topic_list(request, lambda: self._routes.topics_by_cluster(cluster))

    def _get_unit_topics(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        return self._topic_list(request, self._routes.unit_topics)

    def _get_unit_sub_topics(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        return self._topic_list(request, self._routes.unit_sub_topics)

    def _get_unit_sub_non_unit_topics(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        return self._topic_list(request, self._routes.unit_sub_non_unit_topics)

    def _topic_list(self, request: RemotingCommand, topics: Callable[[], TopicList]) -> RemotingCommand:
        if not self._settings.namesrv.enable_topic_list:
            return request.reply(ResponseCode.SYSTEM_ERROR, _DISABLED)
        return request.reply(body=topics().encode())

    def _get_system_topics(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        return request.reply(body=self._routes.system_topics().encode())

    def _delete_topic(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        header = DeleteTopicFromNamesrvRequestHeader.decode(request.ext)
        self._routes.delete_topic(header.topic, header.cluster_name)
        return request.reply()

    def _register_topic(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        topic = RegisterTopicRequestHeader.decode(request.ext).topic
        self._routes.register_topic(topic, TopicRouteData.decode(request.body_bytes).queue_datas)
        return request.reply()

    # --- settings -----------------------------------------------------------------------------------------------

    async def _update_config(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        await self._configs.update(request.body_bytes)
        return request.reply()

    def _get_config(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        return request.reply(body=self._configs.text())

    # --- what Java's name servers do with a controller inside ---------------------------------------------------

    def _refuse_controller_request(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        name = RequestCode(request.code).name
        return request.reply(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f" request type {request.code} not supported: {name} is for a controller, and there is none in this name "
            "server; brokers of MaxQ that elect their master do it by DLedger (enableDLegerCommitLog)",
        )


def _digest(request: RemotingCommand, body: bytes) -> bytes:
    """Return a digest of everything that decides what a registration means: 2 ms for 10 000 topics, which take 70 ms to
    decode and enter."""
    header = repr((request.version, sorted(request.ext.items())))
    return hashlib.blake2b(body, digest_size=32, key=hashlib.blake2b(header.encode()).digest()).digest()


def _registration(
    header: RegisterBrokerRequestHeader, request: RemotingCommand, body: bytes, connection: object, digest: bytes
) -> RegistrationRequest:
    """Decode a registration. Brokers before 3.0.11 send the bare topic table."""
    filter_servers: list[str] | None = None
    wrapper: TopicConfigSerializeWrapper
    if request.version >= MQVersion.V3_0_11:
        decoded = RegisterBrokerBody.decode_body(body, compressed=header.compressed, broker_version=request.version)
        wrapper, filter_servers = decoded.topic_config_serialize_wrapper, decoded.filter_server_list
    else:
        wrapper = TopicConfigSerializeWrapper.decode(body)
    return RegistrationRequest(
        cluster_name=header.cluster_name,
        broker_addr=header.broker_addr,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        ha_server_addr=header.ha_server_addr,
        connection=connection,
        topics=wrapper.topic_config_table,
        data_version=wrapper.data_version,
        zone_name=request.ext.get(ZONE_NAME),
        timeout_ms=header.heartbeat_timeout_millis,
        enable_acting_master=header.enable_acting_master,
        mappings=wrapper.topic_queue_mapping_info_map
        if isinstance(wrapper, TopicConfigAndMappingSerializeWrapper)
        else {},
        filter_servers=filter_servers,
        is_whole=header.maxq_whole,
        digest=digest,
    )
