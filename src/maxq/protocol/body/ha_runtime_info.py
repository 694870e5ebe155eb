"""How replication stands at one broker: the answer of GET_BROKER_HA_STATUS (907).

Source:
    remoting/protocol/body/HARuntimeInfo.java.
"""

from dataclasses import field

from maxq.protocol.json.json_body import JsonBody, json_body


@json_body
class HAConnectionRuntimeInfo(JsonBody):
    """One slave, as its master sees it.

    Attributes:
        addr: host:port of the slave's end of the connection.
        slave_ack_offset: the slave has everything below this physical offset.
        diff: bytes it lacks; below 0 when its log is longer than the master's.
        in_sync: `diff` is less than haMaxGapNotInSync.
        transferred_byte_in_second: bytes sent to it in the last second.
        transfer_from_where: physical offset of the next byte to be sent; -1 before the slave has asked.
    """

    addr: str = ""
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


@json_body
class HAClientRuntimeInfo(JsonBody):
    """A slave's end of the connection to its master.

    Attributes:
        master_addr: the master's address for slaves, host:port; None while it is not known.
        transferred_byte_in_second: bytes received in the last second.
        max_offset: physical offset behind the slave's last record.
        last_read_timestamp, last_write_timestamp: wall ms; 0 before the first connection.
        master_flush_offset: how far the master had flushed, if it said so.
    """

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0


@json_body
class HARuntimeInfo(JsonBody):
    """A broker's part in replication: `ha_connection_info` for a master, `ha_client_runtime_info` for a slave."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)
