"""ClientChannelInfo: one client behind one connection.

Source:
    broker/client/ClientChannelInfo.java.
"""

from maxq.lazy_dataclass import dataclass
from maxq.remoting.connection import Connection


@dataclass(slots=True, eq=False)
class ClientChannelInfo:
    """The client on `connection`, and the time of its last heartbeat."""

    connection: Connection
    client_id: str
    language: int  # a LanguageCode, as the client's frames say
    version: int  # MQVersion ordinal
    last_update_ms: int  # monotonic: decides expiry
    last_update_timestamp: int  # wall clock: what tools show
    user: str = ""  # the access key that its heart-beat was signed with, if there is access control

    def __str__(self) -> str:
        return f"{self.client_id} at {self.connection.remote_address}"
