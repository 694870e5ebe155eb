"""ClientChannelInfo: one client behind one connection.

Source:
    broker/client/ClientChannelInfo.java.
"""

from dataclasses import dataclass

from maxq.remoting.server import Connection


@dataclass(slots=True, eq=False)
class ClientChannelInfo:
    """Who speaks on `connection`, and when it last sent a heartbeat."""

    connection: Connection
    client_id: str
    language: int  # a LanguageCode, as the client's frames say
    version: int  # MQVersion ordinal
    last_update_ms: int  # wall clock

    def __str__(self) -> str:
        return f"{self.client_id} at {self.connection.remote_address}"
