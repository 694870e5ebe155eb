"""Topics as brokers store and register them.

Source:
    common/TopicConfig.java, remoting/protocol/body/TopicConfigSerializeWrapper.java,
    TopicConfigAndMappingSerializeWrapper.java, remoting/protocol/statictopic/TopicQueueMappingInfo.java.
"""

from dataclasses import field
from typing import Any, Final

import orjson

from maxq.errors import RemoteProtocolError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.enums import TopicFilterType
from maxq.protocol.json import json_dialect
from maxq.protocol.json.json_body import JsonBody, json_body, read_int

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_PRIORITY = 8

#: Most queues of a topic on one broker, and most global queues. Every reader of a route makes an object for each of
#: them, so larger numbers from outside are refused.
MAX_QUEUES: Final = 65_535


def perm_text(perm: int) -> str:
    """Return `RW-`, `R-X` …: PermName.perm2String."""
    bits = ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in bits)


@json_body
class TopicConfig(JsonBody):
    """One topic. `perm` is PERM_READ | PERM_WRITE | PERM_INHERIT."""

    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def is_inherited(self) -> bool:
        return self.perm & PERM_INHERIT != 0

    def describe(self) -> str:
        """Return the topic's text in remarks and commands (TopicConfig.toString)."""
        attributes = ", ".join(f"{name}={value}" for name, value in self.attributes.items())
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={perm_text(self.perm)}, "
            f"topicFilterType={self.topic_filter_type.name}, topicSysFlag={self.topic_sys_flag}, "
            f"order={'true' if self.order else 'false'}, attributes={{{attributes}}}]"
        )

    def encode_text(self) -> str:
        """Return `name readQueueNums writeQueueNums perm filterType attributesJson` (TopicConfig.encode)."""
        text = f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
        return text + f"{self.topic_filter_type.name} {orjson.dumps(self.attributes).decode()}"

    @classmethod
    def decode_text(cls, text: str) -> "TopicConfig":
        """Decode what `encode_text` made; the attributes may be missing.

        Raises:
            RemoteProtocolError: fewer than five parts, or an invalid number.
        """
        parts = text.split(" ", 5)
        if len(parts) < 5:
            raise RemoteProtocolError(f"a topic text has 5 or 6 parts: {text!r:.80}")
        try:
            numbers = [read_int(part) for part in parts[1:4]]
            filter_type = TopicFilterType[parts[4]]
        except (ValueError, KeyError):
            raise RemoteProtocolError(f"a topic text with a wrong number or filter type: {text!r:.80}") from None
        attributes = json_dialect.loads(parts[5]) if len(parts) == 6 and parts[5] else {}
        if attributes is not None and not isinstance(attributes, dict):
            raise RemoteProtocolError(f"topic attributes must be a JSON object, not {parts[5]!r:.80}")
        pairs = {str(key): str(value) for key, value in (attributes or {}).items()}
        return cls(parts[0], numbers[0], numbers[1], numbers[2], filter_type, attributes=pairs)


@json_body
class TopicConfigAndQueueMapping(TopicConfig):
    """Body of the answer to request 351: the topic, and its static mapping if it has one."""

    mapping_detail: dict[str, Any] | None = None


@json_body
class TopicQueueMappingInfo(JsonBody):
    """One broker's part of a static topic, as the name server keeps it."""

    topic: str | None = None
    scope: str | None = None
    total_queues: int = 0
    bname: str | None = None
    epoch: int = 0
    dirty: bool = False
    curr_id_map: dict[int, int] | None = None


@json_body
class TopicConfigSerializeWrapper(JsonBody):
    """The topic table: `topics.json`, and what brokers before 5.0 register and answer to 21."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@json_body
class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper):
    """The topic table with static mappings: the answer to 21 and the inside of a registration."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, Any] = field(default_factory=dict)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)


@json_body
class CreateTopicListRequestBody(JsonBody):
    """Body of request 18."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


@json_body
class TopicList(JsonBody):
    """The body of answers that list the names of topics."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None
