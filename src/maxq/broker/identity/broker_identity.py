"""Name and addresses of this broker, for all parts that put them into requests and answers. The port is known once the
server listens."""

import asyncio
import socket
from ipaddress import ip_address

from maxq.errors import ConfigError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.message.message_id import encode_host, host_and_port


@dataclass(slots=True)
class BrokerAddress:
    """Name and address of a running broker.

    Attributes:
        ip: brokerIP1, or what was detected; what clients and other brokers use.
        resolved_ip: the same as a literal address, which message ids carry; empty while `ip` is one itself.
        port: the port the server really listens on; 0 before it does.
        ha_address: brokerIP2:haListenPort, for slaves.
    """

    cluster: str
    broker_name: str
    broker_id: int
    ip: str
    port: int = 0
    ha_ip: str = ""
    ha_port: int = 0  # 0: port + 1
    resolved_ip: str = ""

    @property
    def is_master(self) -> bool:
        """Return whether this broker has the id of its group's master and stores messages into its own log."""
        return self.broker_id == MASTER_ID

    @property
    def address(self) -> str:
        """Return `host:port`, with IPv6 hosts in brackets."""
        return host_and_port(self.ip, self.port)

    @property
    def ha_address(self) -> str:
        return host_and_port(self.ha_ip or self.ip, self.ha_port or self.port + 1)

    @property
    def store_host(self) -> bytes:
        """Return the address in the form of records: 8 or 20 bytes."""
        return encode_host(self.resolved_ip or self.ip, self.port)


async def resolve(host: str) -> str:
    """Resolve a host name to a literal address, IPv4 if it has one; a literal address is returned unchanged.

    Raises:
        ConfigError: nothing is known of the name.
    """
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"brokerIP1={host}: no address is known for this name ({error}); give an address") from None
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])


class SlaveSign:
    """Fields by which the brokers of a group say more of themselves than RocketMQ's do: in requests 906, of which those
    ignore them, and 30091."""

    # name of the asking slave's broker, which is its master's too; in answers, that of the slave that was asked
    BROKER_NAME = "maxqBrokerName"
    ID = "maxqSlaveId"
    ADDRESS = "maxqSlaveAddress"
    IS_ACTIVE = "maxqIsActive"  # in the answer
    LOG_MARK = "maxqLogMark"  # mark of the sender's log (replication/ha/log_mark.py)
    STAMP = "maxqStamp"  # in the answer, and returned by a one-way request (failover/role_lease.py)
    ACTS = "maxqActs"  # "true" from a slave that acts, or is about to, because a name server said so lately
    STAND_BACK = "maxqStandBack"  # "true": the master is to leave the group to the slave that asks
    STANDS_BACK = "maxqStandsBack"  # in the answer to STAND_BACK: whether the master does so
