"""Access control of a broker: which settings it reads, whose requests it signs, which requests it answers, and how it
judges by what lies in the log."""

from pathlib import PurePath

from maxq.access.access_control import AccessControl, AccessSettings
from maxq.access.guard import Guard
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.tables.topic.topic_validator import is_system_topic
from maxq.config.settings import BrokerSettings
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.remoting.client import RemotingClient
from maxq.remoting.connection import Connection
from maxq.remoting.rpc_hooks import HookedRemotingClient
from maxq.remoting.server import RemotingServer
from maxq.remoting.tls.contexts import ClientTls
from maxq.runtime.interfaces import Clock, Disk, Rng


def broker_access(settings: BrokerSettings, *, disk: Disk, clock: Clock) -> AccessControl:
    """Build the access control of a broker's settings.

    Raises:
        ConfigError: they contradict each other.
    """
    broker = settings.broker
    return AccessControl(
        AccessSettings(
            settings.auth,
            broker.acl_enable,
            broker.rocketmq_home,
            PurePath(settings.store.store_path_root_dir) / "config",
            broker.broker_cluster_name,
        ),
        disk=disk,
        clock=clock,
    )


def broker_client(
    settings: BrokerSettings, access: AccessControl, *, disk: Disk, clock: Clock, rng: Rng
) -> RemotingClient:
    """Build the client with which a broker calls name servers, its master and other brokers."""
    tls = ClientTls(settings.client, disk) if settings.client.use_tls else None
    hooks = access.hooks()
    if hooks:
        return HookedRemotingClient(settings.client, hooks, clock=clock, rng=rng, tls=tls)
    return RemotingClient(settings.client, clock=clock, rng=rng, tls=tls)


def refusal_of_record(
    guard: Guard | None, connection: Connection, request: RemotingCommand, record: MessageExt
) -> RemotingCommand | None:
    """Return the answer that refuses `request`, which turned out to concern this record of the log; None if the client
    may go on.

    Judged is the topic that the message was sent to, also while it waits in another; the retry topic of a group is that
    group's.
    """
    if guard is None:
        return None
    return guard.also(connection, request, sent_to(record))


def sent_to(record: MessageExt) -> str:
    """Returns the topic that a message was sent to, also while it waits in a topic of the broker's own."""
    if is_system_topic(record.topic):
        return record.properties.get(const.PROPERTY_REAL_TOPIC, record.topic)
    return record.topic


def register_access(server: RemotingServer, access: AccessControl, own: BrokerAddress) -> None:
    """Answer the requests that show and change rules."""

    def identity() -> dict[str, str]:
        return {"brokerName": own.broker_name, "brokerAddr": own.address, "clusterName": own.cluster}

    for code, handler in access.routes(identity).items():
        server.register(code, handler)
