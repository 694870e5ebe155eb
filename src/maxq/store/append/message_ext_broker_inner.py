"""A message on its way into the store (MessageExtBrokerInner.java)."""

from dataclasses import field

from maxq.lazy_dataclass import dataclass
from maxq.protocol.message.message_const import PROPERTY_WAIT_STORE_MSG_OK
from maxq.protocol.message.message_properties import encode_properties


@dataclass(slots=True)
class MessageExtBrokerInner:
    """All fields of a record except those that the store assigns (queue offset, physical offset, store time).

    Attributes:
        body: as it is stored; for `MessageStore.put_batch` the batch body of the request.
        properties: pairs; encoded in their order unless `properties_data` is given.
        properties_data: property bytes to be stored exactly as they are.
        born_host: address and 4-byte port, 8 or 20 bytes; the IPv6 bits of sys_flag are set from the lengths.
        store_host: None takes the broker's own.
    """

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties: dict[str, str] = field(default_factory=dict)
    properties_data: bytes | None = None
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = bytes(8)
    store_host: bytes | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def wait_store_ok(self) -> bool:
        """Return whether the sender waits for the disk (property WAIT)."""
        return self.properties.get(PROPERTY_WAIT_STORE_MSG_OK, "true").lower() == "true"

    def encoded_properties(self) -> bytes:
        if self.properties_data is not None:
            return self.properties_data
        return encode_properties(self.properties).encode()
