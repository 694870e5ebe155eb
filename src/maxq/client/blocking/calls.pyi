"""Written by `python -m tests.unit.client.blocking.blocking_stubs`; see calls.py."""

from abc import ABCMeta
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from maxq.auth.info import AclInfo, UserInfo
from maxq.client.admin.access import AccessAdmin
from maxq.client.admin.brokers import BrokerAdmin
from maxq.client.admin.controllers import ControllerAdmin
from maxq.client.admin.dead_letters import DeadLetterAdmin, DeadLetterCount, DeadLetterSelection, Send
from maxq.client.admin.groups import GroupAdmin
from maxq.client.admin.lite_topics import LiteTopicAdmin
from maxq.client.admin.messages import MessageAdmin, MessageTrack
from maxq.client.admin.name_servers import NameServerAdmin
from maxq.client.admin.offsets import OffsetAdmin
from maxq.client.admin.operations import OperationsAdmin
from maxq.client.admin.static_topic_plan import BrokerPart, Plan
from maxq.client.admin.static_topics import StaticTopicAdmin
from maxq.client.admin.timers import TimerAdmin
from maxq.client.admin.topics import TopicAdmin
from maxq.client.admin.traces import TraceAdmin, TraceView
from maxq.client.admin.transactions import TransactionAdmin, TransactionHistory
from maxq.client.blocking.face import Face, Part
from maxq.client.producer.producer import Arg, Producer, QueueSelector
from maxq.client.results.pull_result import PullResult
from maxq.client.results.send_result import SendResult
from maxq.protocol.body.broker_stats import BrokerStatsData, QueryConsumeQueueResponseBody
from maxq.protocol.body.consumer_info import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    SetMessageRequestModeRequestBody,
)
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.ha_runtime_info import HARuntimeInfo
from maxq.protocol.body.heartbeat import ConsumerConnection, ProducerConnection, ProducerTableInfo
from maxq.protocol.body.offsets import ConsumerOffsetSerializeWrapper, ConsumeStats, ConsumeStatsList, TopicStatsTable
from maxq.protocol.body.route import BrokerData, ClusterInfo, TopicRouteData
from maxq.protocol.body.subscription import (
    GroupForbidden,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from maxq.protocol.body.topic_config import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
)
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue

ADMIN_PARTS: dict[str, str]

class ProducerCalls(Face[Producer], metaclass=ABCMeta):
    """Methods that the blocking Producer has from the asynchronous one; each returns when its call is done."""
    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send without an answer: whether the message was stored is not known. Waits up to send_msg_timeout for a
        connection.
        """
    def send_orderly(
        self, message: Message, selector: QueueSelector[Arg], arg: Arg, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Send to the queue that `selector(queues, message, arg)` picks, so that messages with one `arg` stay in order.
        Further attempts go to the same queue. Raises as `send`.
        """
    def request(self, message: Message, *, timeout_ms: int | None = None) -> MessageExt:
        """Send a message and wait for the reply that its consumer makes with `create_reply_message`.

        Args:
            timeout_ms: for sending and replying together; None: send_msg_timeout.

        Raises:
            RequestTimeoutError: sent, but no reply came in time. Otherwise as `send`.
        """
    def recall_message(self, topic: str, recall_handle: str) -> str:
        """Take back a message with a delivery time before it is due.

        Args:
            recall_handle: `SendResult.recall_handle` of its send.

        Returns:
            Its id.

        Raises:
            ClientError: the handle is invalid, or the topic belongs to a consumer group.
            BrokerError: the broker does not allow it (recallMessageEnable), or it is due already.
        """
    def fetch_publish_message_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that messages of a topic may be sent to.

        Raises:
            NoRouteError: no such topic.
        """

class AccessCalls(Part[AccessAdmin]):
    """Manages users and rules of access; the attribute `access` of an Admin. `address` is host:port of a server."""
    def create_user(self, address: str, user: UserInfo) -> None:
        """Create a user of access control on one broker, by request 3001 (AUTH_CREATE_USER)."""
    def update_user(self, address: str, user: UserInfo) -> None:
        """Change the given fields of a user (3002)."""
    def delete_user(self, address: str, username: str) -> None:
        """Delete a user and its policies on one broker (3003)."""
    def get_user(self, address: str, username: str) -> UserInfo | None:
        """Return a user (3004); None if there is none. Only super users are told the password."""
    def list_users(self, address: str, text: str | None = None) -> list[UserInfo]:
        """Return the users whose name contains the text (3005)."""
    def copy_users(self, source: str, target: str, usernames: Sequence[str] = ()) -> list[str]:
        """Create or change the users on the target as they are on the source; all users if none is named. Returns their
        names.
        """
    def create_acl(self, address: str, acl: AclInfo) -> None:
        """Add entries to the policies of a subject (3006)."""
    def update_acl(self, address: str, acl: AclInfo) -> None:
        """Change the policies of a subject (a user) on one broker (3007)."""
    def delete_acl(self, address: str, subject: str, resource: str | None = None) -> None:
        """Delete the entry for a resource, or all policies of the subject (3008)."""
    def get_acl(self, address: str, subject: str) -> AclInfo | None:
        """Return the policies of a subject (3009); None if it has none."""
    def list_acls(self, address: str, subject: str | None = None, resource: str | None = None) -> list[AclInfo]:
        """Return the policies of subjects, and for resources, that contain these texts (3010)."""
    def copy_acls(self, source: str, target: str, subjects: Sequence[str] = ()) -> list[str]:
        """Give subjects on the target the policies they have on the source; all subjects if none is named. Returns the
        subjects.
        """

class BrokerCalls(Part[BrokerAdmin]):
    """Reads and changes settings and state of brokers; the attribute `brokers` of an Admin. Addresses are host:port."""
    def cluster_info(self) -> ClusterInfo:
        """Return all clusters and brokers that the name servers know (106)."""
    def of_cluster(self, cluster: str) -> list[BrokerData]:
        """Return the broker groups of a cluster, by name."""
    def masters_of_cluster(self, cluster: str) -> list[str]:
        """Return the addresses of the masters of a cluster."""
    def addresses_of_cluster(self, cluster: str) -> list[str]:
        """Return the addresses of all brokers of a cluster."""
    def runtime_info(self, address: str) -> dict[str, str]:
        """Return state and statistics of a broker (28)."""
    def config(self, address: str) -> dict[str, str]:
        """Return all settings of one broker, as texts (26)."""
    def config_version(self, address: str) -> DataVersion:
        """Return how often a broker's settings were changed (26)."""
    def update_config(self, address: str, properties: dict[str, str]) -> str:
        """Change settings (25). BrokerError names what may not be changed.

        Returns:
            The broker's remark; usually empty. A broker without a settings file says that the change is lost when it
            ends.
        """
    def stats(self, address: str, stats_name: str, stats_key: str) -> BrokerStatsData:
        """Return one counter by minute, hour and day (315); BrokerError 1 if nothing was counted under that key."""
    def consume_stats(self, address: str, *, is_order: bool = False, timeout_ms: int = 50000) -> ConsumeStatsList:
        """Return the progress of all groups on one broker (317)."""
    def ha_status(self, address: str) -> HARuntimeInfo:
        """Return the state of replication as the broker sees it (907)."""
    def clean_expired_consume_queue(self, address: str) -> None:
        """Delete queue files whose messages are gone (306)."""
    def clean_unused_topic(self, address: str) -> None:
        """Delete queues of topics that are gone (316)."""
    def delete_expired_commit_log(self, address: str) -> None:
        """Delete log files whose time of retention is over (329)."""
    def reset_master_flush_offset(self, address: str, offset: int) -> None:
        """Tell a slave how far its master has flushed (908), physical offset."""
    def epoch_cache(self, address: str) -> dict[str, Any]:
        """Return the epochs of a broker in controller mode (1007): clusterName, brokerName, brokerId, epochList,
        maxOffset.
        """
    def cold_data_flow_control(self, address: str) -> dict[str, Any] | None:
        """Return the thresholds of cold reads and what counts against them (2003); None if the broker has no such
        table.
        """
    def update_cold_data_flow_control(self, address: str, group: str, threshold: int) -> None:
        """Limit a group to so many cold bytes a second (2001)."""
    def remove_cold_data_flow_control(self, address: str, group: str) -> None:
        """Reset the group to the common threshold (2002)."""
    def set_commit_log_read_ahead_mode(self, address: str, mode: int) -> str:
        """Set whether the kernel reads ahead (0) or not (1) (2004); returns the broker's remark."""
    def switch_timer_engine(self, address: str, engine: str) -> None:
        """Keep delayed messages elsewhere (5001): ROCKSDB_TIMELINE or FILE_TIME_WHEEL."""
    def export_pop_records(self, address: str, *, timeout_ms: int = 30000) -> None:
        """Move pop's records out of RocksDB into the revive topics (200056)."""
    def check_rocksdb_cq_write_progress(self, address: str, topic: str, check_store_time: int) -> dict[str, Any]:
        """Compare the queues in files with those in RocksDB (354): checkStatus, checkResult."""
    def export_rocksdb_config(self, address: str, types: Sequence[str]) -> None:
        """Write the broker's settings in RocksDB to JSON files beside them (355).

        Args:
            types: of topics, subscriptionGroups, consumerOffsets.
        """
    def add_to_container(self, address: str, config_path: str) -> None:
        """Start a broker in a broker container (902); the path is on the container's machine."""
    def remove_from_container(self, address: str, cluster: str, broker_name: str, broker_id: int) -> None:
        """Stop a broker of a broker container (903)."""

class ControllerCalls(Part[ControllerAdmin]):
    """Asks and configures controllers; the attribute `controllers` of an Admin. Addresses are host:port of controllers;
    what only the leader answers is asked of it."""
    def metadata(self, address: str) -> dict[str, str]:
        """Group, leader and peers (1005): group, controllerLeaderId, controllerLeaderAddress, isLeader, peers."""
    def leader(self, address: str) -> str:
        """Return the address of the leader; that of the controller that was asked if it names none."""
    def sync_state(self, address: str, broker_names: Sequence[str]) -> dict[str, Any]:
        """Return broker name → masterBrokerId, masterAddress, masterEpoch, syncStateSetEpoch, inSyncReplicas,
        notInSyncReplicas (1006).
        """
    def config(self, address: str) -> dict[str, str]:
        """Return the settings of a controller (1010)."""
    def update_config(self, address: str, properties: dict[str, str]) -> None:
        """Change settings of a controller (1009)."""
    def elect_master(
        self, address: str, cluster: str, broker_name: str, broker_id: int
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Make a broker the master of its group (1002). Returns masterAddress, masterEpoch, syncStateSetEpoch, and the
        group.
        """
    def clean_broker_data(
        self, address: str, cluster: str | None, broker_name: str, broker_ids: str | None, *, clean_living: bool
    ) -> None:
        """Make the controller forget a broker group, or some of its brokers (1011).

        Args:
            broker_ids: separated by ';'; None: all.
            clean_living: also those that are alive.
        """

class DeadLetterCalls(Part[DeadLetterAdmin]):
    """Lists dead letters and sends them again; the attribute `dead_letters` of an Admin."""
    def groups(self) -> list[DeadLetterCount]:
        """Return every group that has a dead-letter topic, by name."""
    def count(self, group: str) -> DeadLetterCount:
        """Return how many dead letters a group has. NoRouteError: none, and never had any."""
    def scan(self, group: str, selection: DeadLetterSelection) -> Iterator[MessageExt]:
        """Yield a group's dead letters, queue after queue, from the first one on.

        Raises:
            ClientError: its topic cannot be read.
        """
    def redrive(
        self, group: str, selection: DeadLetterSelection, send: Send, *, topic: str | None = None, again: bool = False
    ) -> int:
        """Send dead letters again: to the group's retry topic, where only that group gets them.

        Args:
            selection: if it selects everything, the messages that were not sent again before, and the progress is
                stored; if it selects a part, that part, each time.
            send: sends messages; an exception from it ends the work.
            topic: topic to send to; empty: each message goes to the topic that it came from, where every group gets it.
            again: send also the messages that were sent again before.

        Returns:
            How many were sent.

        Raises:
            ClientError: the topic cannot be read, or what was sent became a dead letter at once.
        """

class GroupCalls(Part[GroupAdmin]):
    """Manages consumer groups and shows their members and progress; the attribute `groups` of an Admin. Addresses are
    host:port of brokers."""
    def create(self, address: str, config: SubscriptionGroupConfig) -> None:
        """Create or change a consumer group on one broker (200)."""
    def create_in_cluster(self, cluster: str, config: SubscriptionGroupConfig) -> list[str]:
        """Create a group on all masters of a cluster; returns their addresses. One that fails keeps none of the others
        from being asked.

        Raises:
            MaxQError: none, or not all, could be changed; names those that could, and why not the others.
        """
    def create_list(self, address: str, configs: list[SubscriptionGroupConfig]) -> None:
        """Create or change several groups on one broker (225)."""
    def delete(self, address: str, group: str, *, clean_offset: bool = False) -> None:
        """Delete a consumer group on one broker (207), with `clean_offset` its offsets too."""
    def config(self, address: str, group: str) -> SubscriptionGroupConfig:
        """Return a group's settings on one broker (352)."""
    def all_configs(self, address: str) -> SubscriptionGroupWrapper:
        """Return all groups of one broker (201)."""
    def forbid(self, address: str, group: str, topic: str, readable: bool | None = None) -> GroupForbidden:
        """Allow or forbid a group to read a topic (353); None only asks."""
    def set_message_request_mode(self, address: str, body: SetMessageRequestModeRequestBody) -> None:
        """Set whether members of a group pull or pop a topic (401)."""
    def connections(self, group: str, address: str | None = None) -> ConsumerConnection:
        """Return members and subscriptions of a consumer group (203), from all brokers it uses or from one.

        Raises:
            BrokerError: 206, no member is online.
            ClientError: nobody knows the group.
        """
    def consumer_ids(self, address: str, group: str) -> list[str]:
        """Return the client ids of a group's members at one broker (38)."""
    def producer_connections(self, group: str, topic: str) -> ProducerConnection:
        """Return the members of a producer group (204) at the brokers of a topic."""
    def all_producers(self, address: str) -> ProducerTableInfo:
        """Return all producers of one broker (328)."""
    def running_info(self, group: str, client_id: str, *, jstack: bool = False) -> ConsumerRunningInfo:
        """Ask one member for its state (307), through a broker that it is connected to."""
    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return the subscription of a group to a topic (345)."""
    def consume_stats(self, group: str, topic: str | None = None, *, via: str | None = None) -> ConsumeStats:
        """Return committed offsets and backlog of a group, of one topic or all (208). Of static topics, these are those
        of the global queues.

        Args:
            via: ask the brokers of this topic instead (a cluster's name, or the parent of an LMQ).

        Raises:
            ClientError: nobody knows the group.
        """
    def names(self) -> list[str]:
        """Return the consumer groups of which the name server has a retry topic, sorted."""
    def is_online(self, group: str) -> bool:
        """Tell whether the group has a member at this moment."""
    def delete_in_cluster(self, group: str, cluster: str, *, clean_offset: bool = False) -> list[str]:
        """Delete a group on all masters of a cluster, then its retry and dead-letter topics; returns the addresses. One
        master that fails keeps none of the others from being asked, but the topics stay.

        Raises:
            MaxQError: none, or not all, could be asked; names those that could, and why not the others.
        """
    def delete_topics(self, group: str, cluster: str) -> None:
        """Delete the retry and the dead-letter topic of a group in a cluster."""

class LiteTopicCalls(Part[LiteTopicAdmin]):
    """Shows lite topics and their subscribers; the attribute `lite_topics` of an Admin. Addresses are host:port of
    brokers."""
    def broker_info(self, address: str) -> dict[str, Any]:
        """Counts of one broker, and its parent topics and groups (200074)."""
    def parent_topic(self, address: str, topic: str) -> dict[str, Any]:
        """Return a parent topic: lifetime, lite topics, groups (200075)."""
    def lite_topic(self, address: str, parent: str, lite: str) -> dict[str, Any]:
        """Return one lite topic: offsets and subscribers (200076)."""
    def client(self, address: str, parent: str, group: str, client_id: str, *, max_count: int = 1000) -> dict[str, Any]:
        """Return what one client has subscribed to (200077)."""
    def group(self, address: str, group: str, lite: str | None = None, *, top_k: int = 20) -> dict[str, Any]:
        """Return how far behind a group is, in one lite topic or in those where it is furthest behind (200078)."""
    def trigger_dispatch(self, address: str, group: str, client_id: str | None = None) -> None:
        """Check again for messages of a group's clients (200079)."""

class MessageCalls(Part[MessageAdmin]):
    """Finds messages and their fate; the attribute `messages` of an Admin. Bodies are decompressed.

    Where `via` is taken, it is the topic whose route says which brokers to ask: a cluster's name, or the parent of an
    LMQ, which has no route of its own."""
    def view(self, topic: str, msg_id: str, *, via: str | None = None) -> MessageExt:
        """Find a message by its offset message id, or by its unique key if there is none with that id.

        Raises:
            ClientError: no such message.
        """
    def find(self, topic: str, msg_id: str, *, via: str | None = None) -> MessageExt | None:
        """Find a message as `view` does; None if there is no such message."""
    def view_by_offset_id(self, offset_msg_id: str, topic: str | None = None) -> MessageExt:
        """Find a message at the broker whose address is in its offset message id (33).

        Raises:
            RemoteProtocolError: not an offset message id.
            BrokerError: no message there.
        """
    def query_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_num: int = 64,
        begin_ms: int = 0,
        end_ms: int = 9223372036854775807,
        via: str | None = None,
    ) -> list[MessageExt]:
        """Find messages of a topic that carry `key` (12), in the order of their store times."""
    def query_by_tag(
        self,
        topic: str,
        tag: str,
        *,
        max_num: int = 64,
        begin_ms: int = 0,
        end_ms: int = 9223372036854775807,
        via: str | None = None,
    ) -> list[MessageExt]:
        """Find messages of a topic with a tag. Only brokers of RocketMQ 5.5 know this."""
    def query_by_unique_key(
        self,
        topic: str,
        unique_key: str,
        *,
        max_num: int = 32,
        begin_ms: int = 0,
        end_ms: int = 9223372036854775807,
        via: str | None = None,
    ) -> list[MessageExt]:
        """Find messages with this client id (12), in the order of their store times. There are several if the producer
        needed more than one attempt.
        """
    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_nums: int = 32,
        expression: str = "*",
        address: str | None = None,
        group: str = "TOOLS_CONSUMER",
    ) -> PullResult:
        """Read a queue from a queue offset on, without being a member of anything (11)."""
    def view_by_queue_offset(self, queue: MessageQueue, offset: int, *, via: str | None = None) -> MessageExt:
        """Return the message at one queue offset.

        Raises:
            ClientError: none there; names the range of the queue.
        """
    def scan(
        self,
        topic: str,
        *,
        queues: list[MessageQueue] | None = None,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        expression: str = "*",
        via: str | None = None,
        group: str = "TOOLS_CONSUMER",
    ) -> Iterator[MessageExt]:
        """Yield all messages of a topic, queue after queue, from the oldest (or `begin_ms`) to the end at the time of
        the call (or `end_ms`). Times are store times.
        """
    def query_consume_queue(
        self, address: str, queue: MessageQueue, index: int, count: int = 10, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Return units of a ConsumeQueue from `index` on (321)."""
    def consume_directly(self, group: str, client_id: str, topic: str, msg_id: str) -> ConsumeMessageDirectlyResult:
        """Make one member consume one message now (309)."""
    def resume_check_half_message(self, address: str, topic: str, msg_id: str) -> None:
        """Check a half message again that was abandoned (323)."""
    def track(self, message: MessageExt) -> list[MessageTrack]:
        """Return what each group has done with a message, by group name."""

class NameServerCalls(Part[NameServerAdmin]):
    """Asks and configures name servers; the attribute `name_servers` of an Admin. Writes go to every name server,
    because they do not talk to each other, or to those of `servers`."""
    def put_kv(self, namespace: str, key: str, value: str, *, servers: Sequence[str] | None = None) -> None:
        """Set one value of the name servers' KV configuration (100)."""
    def get_kv(self, namespace: str, key: str) -> str | None:
        """Return one value (101); None if there is none."""
    def delete_kv(self, namespace: str, key: str, *, servers: Sequence[str] | None = None) -> None:
        """Remove one value of the name servers' KV configuration (102)."""
    def list_kv(self, namespace: str) -> dict[str, str]:
        """Return all values of a namespace (219); empty if there is none."""
    def config(self, *, servers: Sequence[str] | None = None) -> dict[str, dict[str, str]]:
        """Return the settings of every name server (319), by address."""
    def update_config(self, properties: dict[str, str], *, servers: Sequence[str] | None = None) -> None:
        """Change settings of every name server (318)."""
    def wipe_write_perm(self, broker_name: str, *, servers: Sequence[str] | None = None) -> dict[str, int]:
        """Take a broker out of service for producers (205). Returns how many topics changed, by name server."""
    def add_write_perm(self, broker_name: str, *, servers: Sequence[str] | None = None) -> dict[str, int]:
        """Put a broker back into service for producers (327). Returns how many topics changed, by name server."""

class OffsetCalls(Part[OffsetAdmin]):
    """Reads and sets consumer offsets; the attribute `offsets` of an Admin. All offsets are queue offsets."""
    def queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of a topic, sorted."""
    def max(self, queue: MessageQueue) -> int:
        """Return the offset behind the newest message of a queue (30)."""
    def min(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message of a queue (31)."""
    def search(self, queue: MessageQueue, timestamp_ms: int, boundary: str = "LOWER") -> int:
        """Find an offset by store time (29). LOWER: of the first message that is not older; UPPER: of the last that is
        not younger.
        """
    def earliest_store_time(self, queue: MessageQueue) -> int:
        """Return the store time of the oldest message in ms, -1 if there is none (32)."""
    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the offset of a group in a queue (14); None if it has none."""
    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set a group's offset in a queue (15). Running members notice it only at their next rebalance; see
        `reset_queue`. If a reset waits there for the group's next pull, the group is reset to this offset instead.
        """
    def all_committed(self, address: str) -> ConsumerOffsetSerializeWrapper:
        """Return all offsets of one broker (43). MaxQ's brokers give them in pages."""
    def reset_by_time(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True, cluster: str | None = None
    ) -> dict[MessageQueue, int]:
        """Set a group to a store time, LATEST for the end (222); on brokers without that request the offsets are
        committed directly.

        Args:
            cluster: only on its brokers.

        Returns:
            The new offsets.

        Raises:
            ClientError: no broker of the cluster has the topic; or the group was set on some brokers and not on others,
                which failed or have no master now, and the error names both.
            MaxQError: what the first broker said, if none did it.
        """
    def queue_at(self, topic: str, broker: str, queue_id: int) -> MessageQueue:
        """Return a queue whose broker is given by name or by address.

        Raises:
            ClientError: the topic is not on that broker; lists where it is.
        """
    def reset_queue(self, group: str, queue: MessageQueue, offset: int) -> int:
        """Set a group to one offset of one queue (222); returns the new offset."""
    def clone(self, source_group: str, target_group: str, topic: str) -> dict[MessageQueue, int]:
        """Set a group's offsets to those of another group, queue by queue (43 and 15), and return them. Queues in which
        the other group has no offset are left alone: consume statistics (208, mqadmin) call that 0, and the group would
        begin anew. Of a static topic these are the global queues.
        """
    def of_members(
        self, group: str, topic: str, client_address: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """Ask the running members for their offsets (223): client id → queue → offset."""

class OperationsCalls(Part[OperationsAdmin]):
    """Calls for the operation of a broker; the attribute `operations` of an Admin. Answers are the broker's JSON
    objects."""
    def why_slow(self, address: str) -> dict[str, Any]:
        """Return the stages of recent sends, and refusals by cause (broker/stats/stage_times.py)."""
    def purge_topic(
        self,
        address: str,
        topic: str,
        *,
        queue_id: int | None = None,
        before_ms: int | None = None,
        before_offset: int | None = None,
        dry_run: bool = True,
    ) -> dict[str, Any]:
        """Hide messages of a topic on one master, or with `dry_run` report which would be hidden (PURGE_TOPIC, a
        request of MaxQ).
        """

class StaticTopicCalls(Part[StaticTopicAdmin]):
    """Creates and moves static topics; the attribute `static_topics` of an Admin. Brokers are given by name; their
    masters must be online."""
    def create(self, topic: str, queues: int, broker_names: Iterable[str], *, force: bool = False) -> Plan:
        """Create a static topic with so many global queues, or extend one to that number.

        Clients see the new queues when all of them are there. A change that an earlier command began and did not finish
        is finished first.

        Args:
            force: replace what brokers have; queues whose broker is away begin anew, and their messages are lost.

        Raises:
            ClientError: illegal name, unknown broker, a broker of the topic is away, or not possible; nothing was
                changed.
            BrokerError: a broker refused; repeat the command, or use `force`.
        """
    def remap(self, topic: str, broker_names: Iterable[str], *, force: bool = False) -> Plan:
        """Move the queues of a static topic to these brokers.

        Writing goes on at the new brokers as soon as the old ones have been told; readers find the old messages where
        they are. A change that an earlier command began and did not finish is finished first. Raises as `create`.
        """
    def parts(self, topic: str, masters: dict[str, str]) -> dict[str, BrokerPart]:
        """Return each broker's part of a static topic.

        Raises:
            ClientError: a broker has it as an ordinary topic.
        """

class TimerCalls(Part[TimerAdmin]):
    """Lists and cancels timer messages; the attribute `timers` of an Admin. Pages are the broker's JSON objects
    (broker/timer/timer_admin.py)."""
    def pages(
        self, address: str, *, begin_ms: int | None = None, end_ms: int | None = None, topic: str = ""
    ) -> Iterator[dict[str, Any]]:
        """Yield the waiting messages of one broker, by due time. Each page costs the broker a few milliseconds."""
    def inspect(self, address: str, key: str, topic: str = "") -> dict[str, Any]:
        """Find one message by its id (UNIQ_KEY). The page has no entries if it does not wait there."""
    def cancel(self, address: str, key: str, topic: str = "") -> None:
        """Cancel a message before it is delivered. Raises BrokerError if it does not wait there, or is due already."""

class TopicCalls(Part[TopicAdmin]):
    """Manages topics and shows their queues; the attribute `topics` of an Admin. Addresses are host:port of brokers."""
    def create(self, address: str, config: TopicConfig) -> None:
        """Create or change a topic on one broker (17). Attributes are given as `+key=value` or `-key` names.

        Raises:
            ClientError: illegal name. BrokerError: refused.
        """
    def create_in_cluster(self, cluster: str, config: TopicConfig) -> list[str]:
        """Create or change a topic on all masters of a cluster; returns their addresses. One that fails keeps none of
        the others from being asked.

        Raises:
            MaxQError: none, or not all, could be changed; names those that could, and why not the others.
        """
    def create_list(self, address: str, configs: list[TopicConfig]) -> None:
        """Create or change several topics on one broker (18)."""
    def delete(self, topic: str, cluster: str) -> str:
        """Delete a topic: on every broker of the cluster, then on every name server. One broker that fails keeps none
        of the others from being asked, but the name servers, because it would register the topic again.

        Returns:
            A sentence about what must be done when absent brokers are back (`parts_away`); usually empty.

        Raises:
            MaxQError: none, or not all, of the brokers could be asked; names those that could, and why not the others.
        """
    def parts_away(self, topic: str) -> str:
        """Return a sentence about the brokers that have a part of a static topic and cannot be asked to delete it;
        empty if there are none, or if that cannot be learnt. Such a broker brings its part of the deleted topic
        back.
        """
    def delete_in_broker(self, address: str, topic: str, *, follows_master: bool = False) -> None:
        """Delete a topic on one broker (215).

        Args:
            follows_master: it is a slave whose master is asked, too. Java's deletes then its own queues; A MaxQ slave
                answers that it does what its master does, which is not an error.
        """
    def delete_in_name_servers(
        self, topic: str, cluster: str | None = None, *, servers: Sequence[str] | None = None
    ) -> None:
        """Make all name servers, or those of `servers`, forget a topic (216), in one cluster or everywhere."""
    def delete_alone(self, address: str, topic: str) -> list[str]:
        """Delete a topic on one broker, and from the name servers if no other broker has it.

        Returns:
            The names of the brokers that have it, or that do not say whether they do.
        """
    def forget_order(self, topic: str) -> None:
        """Remove the order configuration of a topic that was deleted, unless a broker still has the topic: a new one of
        the name would be ordered. Does nothing if this user may not read the name servers' configuration.
        """
    def config(self, address: str, topic: str) -> TopicConfigAndQueueMapping:
        """Return a topic's settings on one broker (351)."""
    def all_configs(self, address: str) -> TopicConfigAndMappingSerializeWrapper:
        """Return all topics of one broker (21)."""
    def names(self) -> list[str]:
        """Return all topics that the name server knows (206), sorted."""
    def names_of_cluster(self, cluster: str) -> list[str]:
        """Return the topics of one cluster (224), sorted."""
    def system_names(self, address: str) -> list[str]:
        """Return the names of one broker's own topics (305), sorted."""
    def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic (105). Raises NoRouteError if no name server knows it."""
    def clusters(self, topic: str) -> list[str]:
        """Return the clusters that have the topic, sorted."""
    def stats(self, topic: str, *, via: str | None = None) -> TopicStatsTable:
        """Return offsets and last update of all queues on all brokers (202), and the messages arriving per second.

        A static topic has its global queues in the table as well, under the broker name `__syslo__global__`.

        Args:
            via: ask the brokers of this topic instead (a cluster's name, or the parent of an LMQ).
        """
    def consumed_by(self, topic: str) -> list[str]:
        """Return the consumer groups of a topic (300), sorted."""
    def consumed_by_group(self, group: str) -> list[str]:
        """Return the topics of which a consumer group has offsets (343), sorted."""

class TraceCalls(Part[TraceAdmin]):
    """Reads message traces; the attribute `traces` of an Admin."""
    def of_message(
        self,
        msg_id: str,
        *,
        trace_topic: str = "RMQ_SYS_TRACE_TOPIC",
        max_num: int = 64,
        begin_ms: int = 0,
        end_ms: int = 9223372036854775807,
    ) -> list[TraceView]:
        """Find the trace records of a message (12 on the trace topic), in the order of time, also if it was sent in a
        batch.

        Args:
            msg_id: the client's id, as a send gives it.
            max_num: look into so many trace messages.
            begin_ms, end_ms: of their store times.

        Raises:
            NoRouteError: there is no such trace topic.
        """

class TransactionCalls(Part[TransactionAdmin]):
    """Lists and resumes transactions; the attribute `transactions` of an Admin."""
    def open(self, address: str, *, limit: int = 1000) -> list[MessageExt]:
        """Return the open transactions of one broker, the oldest first, by their present half messages.

        Args:
            limit: at most so many.
        """
    def history(self, transaction: str) -> TransactionHistory:
        """Find the outcome of a transaction.

        Args:
            transaction: its id, which is the unique key of its message; or an offset message id of a half message.

        Raises:
            ClientError: no half message of it is left.
        """
    def resume(self, transaction: str) -> str:
        """Make the producer of an abandoned transaction be asked again, starting with the first check. The message is
        named by its offset message id.

        Raises:
            ClientError: it was not given up.
            BrokerError: the broker says why not.
        """
