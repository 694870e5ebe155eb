"""MQClientManager: one MQClientInstance per client id.

Client id = `<ip>@<instance name>[@<unit name>]`. The instance name DEFAULT becomes `<pid>#<number>`, so every client
has an instance of its own; clients that are given the same name share one (connections, heartbeats, routes).

Source: apache/rocketmq client/impl/MQClientManager.java, client/ClientConfig.java buildMQClientId.
"""

import asyncio

from maxq.auth.acl_client_rpc_hook import AclClientRPCHook
from maxq.client.client_config import ClientConfig, ClientEnvironment
from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.instance.server_requests import ServerRequests
from maxq.remoting.client import RemotingClient
from maxq.remoting.rpc_hooks import HookedRemotingClient, NamespaceRPCHook, RPCHook
from maxq.remoting.tls.contexts import ClientTls, tls_settings

DEFAULT_INSTANCE = "DEFAULT"


class MQClientManager:
    """The client instances of one event loop, by client id.

    Args:
        environment: the clock, disk, chance and address that the client uses.
    """

    def __init__(self, environment: ClientEnvironment) -> None:
        self.environment = environment
        self._instances: dict[str, MQClientInstance] = {}
        self._lock = asyncio.Lock()

    def client_id(self, config: ClientConfig, *, keep_default_name: bool = False) -> str:
        """Make a client id for a config. Broadcasting consumers keep the name DEFAULT, because a restart would
        otherwise lose the offsets that are stored under the client id."""
        name = config.instance_name
        if name == DEFAULT_INSTANCE and not keep_default_name:
            number = int.from_bytes(self.environment.rng.bytes(7), "big")
            name = f"{self.environment.pid}#{number}"
        return "@".join(part for part in (self.environment.host_ip, name, config.unit_name) if part)

    async def acquire(self, client_id: str, config: ClientConfig) -> MQClientInstance:
        """Return the running instance with this id. It is made and started if there is none."""
        async with self._lock:
            instance = self._instances.get(client_id)
            if instance is None:
                instance = MQClientInstance(client_id, config, self.environment, remoting_of(config, self.environment))
                ServerRequests(instance).register()
                await instance.start()
                self._instances[client_id] = instance
            return instance

    async def release(self, instance: MQClientInstance) -> None:
        """Note that a client has unregistered. The instance is shut down with its last client."""
        async with self._lock:
            if instance.is_idle and self._instances.get(instance.client_id) is instance:
                del self._instances[instance.client_id]
                await instance.shutdown()


def remoting_of(config: ClientConfig, environment: ClientEnvironment) -> RemotingClient:
    """Make the RemotingClient for a config, with its hooks, signatures and TLS.

    Raises:
        ClientError: an access key without its secret.
        ConfigError: the files of TLS cannot be used.
    """
    wanted = tls_settings(config.use_tls or environment.use_tls)
    netty = config.tls_config or wanted
    tls = ClientTls(netty, environment.disk) if wanted.use_tls or netty.use_tls else None
    hooks: list[RPCHook] = list(config.rpc_hooks)
    if config.namespace_v2:
        hooks.append(NamespaceRPCHook(config.namespace_v2))
    credentials = config.credentials() or environment.credentials
    if credentials is not None:  # last, because it signs what the other hooks have added
        hooks.append(AclClientRPCHook(credentials))
    if hooks:
        return HookedRemotingClient(netty, hooks, clock=environment.clock, rng=environment.rng, tls=tls)
    return RemotingClient(netty, clock=environment.clock, rng=environment.rng, tls=tls)
