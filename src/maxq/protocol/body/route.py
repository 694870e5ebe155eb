"""Where topics are: what name servers answer.

Source:
    remoting/protocol/route/{TopicRouteData,QueueData,BrokerData}.java, remoting/protocol/body/{ClusterInfo,
    BrokerMemberGroup,GetBrokerMemberGroupResponseBody,KVTable,GroupList}.java.
"""

from dataclasses import field

from maxq.protocol.body.topic_config import MAX_QUEUES, TopicQueueMappingInfo
from maxq.protocol.json.json_body import JsonBody, json_body

MASTER_ID = 0


@json_body
class QueueData(JsonBody):
    """The queues that the brokers of one name have of a topic, and who may read and write them."""

    broker_name: str = ""
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0

    @property
    def read_queue_ids(self) -> range:
        """Return the numbers of the queues that can be read, MAX_QUEUES at most."""
        return range(min(self.read_queue_nums, MAX_QUEUES))

    @property
    def write_queue_ids(self) -> range:
        """Return the numbers of the queues that can be written to, MAX_QUEUES at most."""
        return range(min(self.write_queue_nums, MAX_QUEUES))


@json_body
class BrokerData(JsonBody):
    """A broker group: `broker_addrs` maps broker id (0 is the master) to address."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def master_address(self) -> str | None:
        return self.broker_addrs.get(MASTER_ID)

    @property
    def addresses(self) -> list[str]:
        """Return all addresses, the master's first."""
        return [address for _, address in sorted(self.broker_addrs.items())]

    @property
    def followers(self) -> list[str]:
        """Return the addresses of the slaves while there is a master."""
        return self.addresses[1:] if MASTER_ID in self.broker_addrs else []


@json_body
class TopicRouteData(JsonBody):
    """Answer of 105, body of 217. Keys of `broker_addrs` are written quoted, which every client reads."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None

    @property
    def ordinary_queue_datas(self) -> list[QueueData]:
        """Return the queues of the brokers that have the topic as an ordinary one. Some have and some announce a static
        mapping when a topic was made again as an ordinary one and a broker that was away brings the static one back."""
        static = self.topic_queue_mapping_by_broker or {}
        return [data for data in self.queue_datas if data.broker_name not in static]


@json_body
class ClusterInfo(JsonBody):
    """Body of the answer to request 106."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


@json_body
class BrokerMemberGroup(JsonBody):
    """The addresses of the brokers of one name, by broker id."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)


@json_body
class GetBrokerMemberGroupResponseBody(JsonBody):
    """Body of the answer to request 901."""

    broker_member_group: BrokerMemberGroup = field(default_factory=BrokerMemberGroup)


@json_body
class KVTable(JsonBody):
    """Names and texts: body of 28 and 219, and the ordered topics in the answer to a registration."""

    table: dict[str, str] = field(default_factory=dict)


@json_body
class GroupList(JsonBody):
    """Body of the answer to request 300."""

    group_list: list[str] = field(default_factory=list)


@json_body
class KVConfigSerializeWrapper(JsonBody):
    """`kvConfig.json` of a name server: namespace → key → value."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict)
