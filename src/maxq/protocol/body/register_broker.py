"""RegisterBrokerBody: what a broker registers at a name server, plain JSON or compressed.

The compressed form is a zlib stream of (int32 big endian):

    length + JSON DataVersion | topic count | per topic: length + topic text | length + JSON array of filter servers
    | from broker version 413 on: mapping count | per mapping: length + JSON TopicQueueMappingInfo

Source:
    remoting/protocol/body/RegisterBrokerBody.java.
"""

import struct
import zlib
from dataclasses import field

from maxq.codes import MQVersion
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.topic_config import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
)
from maxq.protocol.json import json_dialect
from maxq.protocol.json.json_body import JsonBody, json_body
from maxq.protocol.message.compression import CompressionType, decompress

_LEVEL = 9
_MOST_INFLATED = 8 << 20  # bytes: more than 100,000 topics


@json_body
class RegisterBrokerBody(JsonBody):
    """Body of request 103."""

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = field(
        default_factory=TopicConfigAndMappingSerializeWrapper
    )
    filter_server_list: list[str] = field(default_factory=list)

    def encode_body(self, *, compressed: bool, broker_version: int = MQVersion.V5_0_0) -> bytes:
        """Encode the frame body; `compressed` leaves out `order` and `topicSysFlag` of topics, as Java does."""
        if not compressed:
            return self.encode()
        wrapper = self.topic_config_serialize_wrapper
        topics = wrapper.topic_config_table.values()
        parts = [_block(wrapper.data_version.encode()), struct.pack(">i", len(topics))]
        parts += [_block(topic.encode_text().encode()) for topic in topics]
        parts.append(_block(json_dialect.dumps(self.filter_server_list)))
        if broker_version >= MQVersion.V5_0_0:
            mappings = wrapper.topic_queue_mapping_info_map.values()
            parts.append(struct.pack(">i", len(mappings)))
            parts += [_block(mapping.encode()) for mapping in mappings]
        return zlib.compress(b"".join(parts), _LEVEL)

    @classmethod
    def decode_body(cls, data: bytes, *, compressed: bool, broker_version: int) -> "RegisterBrokerBody":
        """Decode the body of a frame whose header says `compressed` and whose version is `broker_version`.

        Raises:
            RemoteProtocolError: not that form.
        """
        if not compressed:
            return cls.decode(data)
        reader = _Reader(decompress(data, CompressionType.ZLIB, _MOST_INFLATED))
        wrapper = TopicConfigAndMappingSerializeWrapper(data_version=DataVersion.decode(reader.block()))
        for _ in range(reader.count()):
            topic = TopicConfig.decode_text(reader.text())
            wrapper.topic_config_table[topic.topic_name] = topic
        filters = json_dialect.loads(reader.block())
        if filters is not None and not isinstance(filters, list):
            raise RemoteProtocolError("the filter servers of a registration are a JSON array")
        if broker_version >= MQVersion.V5_0_0:
            for _ in range(reader.count()):
                mapping = TopicQueueMappingInfo.decode(reader.block())
                wrapper.topic_queue_mapping_info_map[mapping.topic or ""] = mapping
        return cls(wrapper, [str(server) for server in filters or []])


def _block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class _Reader:
    """Reads the decompressed form step by step."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def count(self) -> int:
        """Return an int32 ≥ 0. Each counted item has at least its own 4-byte length, so no count can exceed the
        bytes."""
        if self._position + 4 > len(self._data):
            raise RemoteProtocolError(f"a registration of {len(self._data)} bytes ends inside a length")
        (value,) = struct.unpack_from(">i", self._data, self._position)
        self._position += 4
        if not 0 <= value <= len(self._data) - self._position:
            raise RemoteProtocolError(f"a registration says {value} where {len(self._data) - self._position} are left")
        return int(value)

    def block(self) -> bytes:
        size = self.count()
        self._position += size
        return self._data[self._position - size : self._position]

    def text(self) -> str:
        return self.block().decode("utf-8", "replace")
