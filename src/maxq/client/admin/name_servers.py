"""Name servers: KV configuration, settings, write permission of brokers."""

from collections.abc import Sequence

from maxq.client.admin.context import AdminContext
from maxq.client.instance.client_api import fields
from maxq.codes import RequestCode, ResponseCode
from maxq.config.properties import format_properties, parse_properties
from maxq.errors import BrokerError
from maxq.protocol.body.route import KVTable

NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


class NameServerAdmin:
    """Asks and configures name servers; the attribute `name_servers` of an Admin. Writes go to every name server,
    because they do not talk to each other, or to those of `servers`."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._api = context.api

    @property
    def addresses(self) -> list[str]:
        """Return the addresses of all name servers."""
        return list(self._context.name_servers)

    async def put_kv(self, namespace: str, key: str, value: str, *, servers: Sequence[str] | None = None) -> None:
        """Set one value of the name servers' KV configuration (100)."""
        ext = fields(namespace=namespace, key=key, value=value)
        await self._everywhere(RequestCode.PUT_KV_CONFIG, ext, servers=servers)

    async def get_kv(self, namespace: str, key: str) -> str | None:
        """Return one value (101); None if there is none."""
        response = await self._api.call_name_server(
            RequestCode.GET_KV_CONFIG,
            fields(namespace=namespace, key=key),
            expect=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        return response.ext.get("value") if response.code == ResponseCode.SUCCESS else None

    async def delete_kv(self, namespace: str, key: str, *, servers: Sequence[str] | None = None) -> None:
        """Remove one value of the name servers' KV configuration (102)."""
        await self._everywhere(RequestCode.DELETE_KV_CONFIG, fields(namespace=namespace, key=key), servers=servers)

    async def list_kv(self, namespace: str) -> dict[str, str]:
        """Return all values of a namespace (219); empty if there is none."""
        try:
            response = await self._api.call_name_server(
                RequestCode.GET_KVLIST_BY_NAMESPACE, fields(namespace=namespace)
            )
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return {}
            raise
        return KVTable.decode(response.body_bytes).table

    async def config(self, *, servers: Sequence[str] | None = None) -> dict[str, dict[str, str]]:
        """Return the settings of every name server (319), by address."""
        result = {}
        for address in servers or self._context.name_servers:
            response = await self._api.call_name_server(RequestCode.GET_NAMESRV_CONFIG, address=address)
            result[address] = parse_properties(response.body_bytes)
        return result

    async def update_config(self, properties: dict[str, str], *, servers: Sequence[str] | None = None) -> None:
        """Change settings of every name server (318)."""
        body = format_properties(properties).encode()
        await self._everywhere(RequestCode.UPDATE_NAMESRV_CONFIG, None, body, servers=servers)

    async def wipe_write_perm(self, broker_name: str, *, servers: Sequence[str] | None = None) -> dict[str, int]:
        """Take a broker out of service for producers (205). Returns how many topics changed, by name server."""
        return await self._count(RequestCode.WIPE_WRITE_PERM_OF_BROKER, broker_name, "wipeTopicCount", servers)

    async def add_write_perm(self, broker_name: str, *, servers: Sequence[str] | None = None) -> dict[str, int]:
        """Put a broker back into service for producers (327). Returns how many topics changed, by name server."""
        return await self._count(RequestCode.ADD_WRITE_PERM_OF_BROKER, broker_name, "addTopicCount", servers)

    async def _count(
        self, code: RequestCode, broker_name: str, name: str, servers: Sequence[str] | None
    ) -> dict[str, int]:
        async def change(address: str) -> int:
            response = await self._api.call_name_server(code, fields(brokerName=broker_name), address=address)
            return int(response.ext.get(name, "0"))

        return await self._context.at_name_servers(change, servers)

    async def _everywhere(
        self,
        code: RequestCode,
        ext: dict[str, str] | None,
        body: bytes | None = None,
        *,
        servers: Sequence[str] | None = None,
    ) -> None:
        await self._context.at_name_servers(
            lambda address: self._api.call_name_server(code, ext, body, address=address), servers
        )
