"""ConsumerManageProcessor: members of a group (38), consumer offsets (14, 15), queue locks (41, 42).

Source:
    broker/processor/ConsumerManageProcessor.java, AdminBrokerProcessor.java lockBatchMQ, unlockBatchMQ.
"""

import contextlib
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Mapping

from maxq.broker.bundles import Clients, Environment, Messages, Tables
from maxq.broker.identity.role import SLAVE
from maxq.broker.processors.support import RequestProcessor, body_reply, refuse_if
from maxq.broker.tables.topic.topic_validator import validate_reader
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.heartbeat import GetConsumerListByGroupResponseBody
from maxq.protocol.body.offsets import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection, Processor

log = logging.getLogger(__name__)


class ConsumerManageProcessor(RequestProcessor):
    """Processes requests of consumers other than reads: members, offsets and locks."""

    def __init__(self, env: Environment, tables: Tables, clients: Clients, messages: Messages) -> None:
        self._settings = env.settings
        self._store = messages.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = clients.consumers
        self._locks = clients.locks

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.get_consumer_list_by_group,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_consumer_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_consumer_offset,
            RequestCode.LOCK_BATCH_MQ: self.lock_batch,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock_batch,
        }

    def get_consumer_list_by_group(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_CONSUMER_LIST_BY_GROUP (38). On code 1 clients keep the members they know."""
        group = HeaderFields(request.ext).required_str("consumerGroup")
        info = self._consumers.get_consumer_group_info(group)
        if info is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return body_reply(request, GetConsumerListByGroupResponseBody(info.client_ids()))

    # --- offsets ------------------------------------------------------------------------------------------------------

    def query_consumer_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer QUERY_CONSUMER_OFFSET (14). A group without an offset starts at 0 of a queue that still has all its
        messages, in memory: so a new group reads a young queue from its start, whatever its consumeFromWhere. Of a part
        of a static topic (lo=false) the answer says with maxqWentBack that the group has gone back from it. A client
        that does not say maxqOnlyLooks goes on at the offset."""
        fields = HeaderFields(request.ext)
        group, topic = fields.required_str("consumerGroup"), fields.required_str("topic")
        queue_id = fields.required_int("queueId")
        if fields.opt_str("lo") == "false":  # the leader of the global queue tells members of a reset, not this broker
            offset = self._offsets.query_committed(group, topic, queue_id)
        else:
            offset = self._offsets.query_offset(group, topic, queue_id)
        if offset >= 0:
            if self._settings.store.broker_role == SLAVE and not fields.opt_bool("maxqOnlyLooks"):
                self._offsets.note_reader(connection.remote_address, group, topic, queue_id)
            return request.reply(ResponseCode.SUCCESS, None, {"offset": str(offset)})
        if not fields.opt_bool("setZeroIfNotFound", True):
            remark = "Not found, do not set to zero, maybe this group boot first"
        elif self._store.min_offset(topic, queue_id) <= 0 and self._store.reader.is_in_memory(topic, queue_id, 0):
            return request.reply(ResponseCode.SUCCESS, None, {"offset": "0"})
        else:
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        has_gone_back = fields.opt_str("lo") == "false" and queue_id in self._offsets.query_offsets(group, topic)
        return request.reply(ResponseCode.QUERY_NOT_FOUND, remark, {"maxqWentBack": "true"} if has_gone_back else {})

    def update_consumer_offset(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Answer UPDATE_CONSUMER_OFFSET (15). A commit does not create the group: only heartbeats and pulls do, so an
        unknown one gets code 26. While a reset waits for the next pull, commits of the client are ignored. Commits for
        a topic that was deleted and made again since the client read it are ignored, too, because new messages have the
        same offsets. A slave keeps the commits for its master (offset/slave_commits.py) and hands them over with
        maxqIfAhead, as MaxQ's consumers commit as well: clients may have committed more at the master meanwhile. With
        maxqReadAt, which only slaves send, it says where in the log the messages were: the topic may have been deleted
        behind them, or this master may have lost them with the end of its log, and gives their places to other
        messages. With maxqNotCopiedOf the slave says that it did not have them when the client committed, and since
        when (ms) the master is one at which they were read: if that is this one, it has not lost them. With
        maxqOperatorChange it names the operator's change of which the client knew: if that is the reset that waits, the
        reset has ended there. With maxqMasterSince it says of which master's offsets it had a copy: of a reset that
        waited when a later one became the master the client had not heard. A member of a new group says with maxqIfNone
        where the group begins, unless another member has said so before; the answer comes when that is on the disk. Of
        a part of a static topic (lo=false, and not from a slave) the leader has looked whether a reset waits for the
        group's members: one that is left in this part ends with the commit. A negative offset there says that the group
        has gone back to an earlier part; with maxqGoesBack that is noted also if it has committed nothing here. A
        master takes no commit behind the end of its queue: messages that come later are new to the group."""
        fields = HeaderFields(request.ext)
        group, topic = fields.required_str("consumerGroup"), fields.required_str("topic")
        queue_id, offset = fields.opt_int("queueId"), fields.opt_long("commitOffset")
        read_at = fields.opt_long("maxqReadAt")
        why = validate_reader(group)
        if why is not None and read_at is not None:
            # success all the same: a slave of an earlier version would repeat the request without end
            return request.reply(ResponseCode.SUCCESS, why)
        refuse_if(why, ResponseCode.NO_PERMISSION)
        if not self._groups.contains_subscription_group(group) and not self._may_begin_here(fields):
            return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        config = self._topics.select_topic_config(topic)
        if config is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if queue_id is None:
            return request.reply(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {topic}")
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= queue_id < queues and self._store.max_offset(topic, queue_id) == 0:
            remark = f"queueId {queue_id} is none of topic {topic}, which has {queues} queues: nothing is committed"
            return request.reply(ResponseCode.INVALID_PARAMETER, remark)
        if offset is None:
            return request.reply(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}")
        use_reset = self._settings.broker.use_server_side_reset_offset
        change = fields.opt_long("maxqOperatorChange") or 0
        self._offsets.end_known_reset(topic, group, queue_id, change)
        is_part = fields.opt_str("lo") == "false" and read_at is None
        if is_part and offset < 0:
            has_been_here = self._offsets.query_committed(group, topic, queue_id) >= 0
            if has_been_here or fields.opt_bool("maxqGoesBack"):
                self._offsets.commit_offset(connection.remote_address, group, topic, queue_id, -1)
            return request.reply()
        if is_part:
            self._offsets.query_then_erase_reset_offset(topic, group, queue_id)
        if use_reset and self._offsets.has_offset_reset(topic, group, queue_id):
            log.info(
                "group %s, %s queue %d: commit of %d ignored, because a reset is pending",
                group,
                topic,
                queue_id,
                offset,
            )
            return request.reply(ResponseCode.SUCCESS, "Offset has been previously reset")
        since = fields.opt_long("maxqMasterSince") or 0
        if read_at is not None and self._offsets.is_before_reset(group, topic, queue_id, change, since):
            log.info("group %s, %s queue %d: commit of %d at a slave ignored, because it is older than a reset",
                     group, topic, queue_id, offset)  # fmt: skip
            return request.reply(ResponseCode.SUCCESS, "Offset has been previously reset")
        if self._is_of_deleted_topic(topic, queue_id, offset, read_at):
            log.info("group %s, %s queue %d: commit of %d ignored, the topic was deleted and created again",
                     group, topic, queue_id, offset)  # fmt: skip
            return request.reply(ResponseCode.SUCCESS, "The topic was deleted and created again")
        is_slave = self._settings.store.broker_role == SLAVE
        not_copied_of = fields.opt_long("maxqNotCopiedOf") or 0
        if read_at is not None and not is_slave and self._may_be_lost(topic, queue_id, offset, not_copied_of):
            end = self._end_at_start(topic, queue_id)
            if self._offsets.query_offset(group, topic, queue_id) <= end:
                self._offsets.lower(group, topic, queue_id, offset, end)
            return request.reply(ResponseCode.SUCCESS, f"The queue ended at {end}")
        if read_at is None and not is_slave and offset > self._store.taken_offset(topic, queue_id):
            return self._commit_behind_end(request, group, topic, queue_id, offset)
        begins = fields.opt_bool("maxqIfNone")
        least = 0 if begins else offset if fields.opt_bool("maxqIfAhead") else None
        if least is not None and self._offsets.query_offset(group, topic, queue_id) >= least:
            return request.reply()
        commit = self._offsets.begin if begins else self._offsets.commit_offset
        commit(connection.remote_address, group, topic, queue_id, offset)
        if is_slave:
            is_copied = offset <= self._store.taken_offset(topic, queue_id)
            self._offsets.slave_commits.note(
                group, topic, queue_id, offset, connection.remote_address, change=change,
                not_copied_of=not_copied_of or (0 if is_copied else self._offsets.copied_master_since),
                master_since=since or self._offsets.copied_master_since,
            )  # fmt: skip
        return self._begun(request) if begins else request.reply()

    def _commit_behind_end(
        self, request: RemotingCommand, group: str, topic: str, queue_id: int, offset: int
    ) -> RemotingCommand:
        """Answer a client's commit of messages that this master does not have. If it may have lost them, the group
        continues at the end that the queue had when the broker started, unless it is further already, and its clients
        are told with their next pull."""
        if not self._store.reader.may_lack_messages:
            remark = (
                f"offset {offset} is behind the end of {topic} queue {queue_id}, "
                f"{self._store.max_offset(topic, queue_id)}: nothing is committed"
            )
            return request.reply(ResponseCode.INVALID_PARAMETER, remark)
        end = self._end_at_start(topic, queue_id)
        if self._offsets.query_offset(group, topic, queue_id) <= end:
            self._offsets.lower(group, topic, queue_id, offset, end)
        return request.reply(ResponseCode.SUCCESS, f"The queue ended at {end}")

    def _may_be_lost(self, topic: str, queue_id: int, offset: int, not_copied_of: int) -> bool:
        """Return whether this master may have lost what a slave's client had read before an offset. Members of DLedger
        groups read only what each leader has."""
        if offset > self._store.taken_offset(topic, queue_id):
            return True
        if not_copied_of in (0, self._offsets.master_since) or self._settings.store.enable_dleger_commit_log:
            return False
        return self._is_newer_than_start(topic, queue_id, offset - 1)

    def _is_newer_than_start(self, topic: str, queue_id: int, offset: int) -> bool:
        """Return whether a message was stored since this broker became the master. No message of a BatchCQ topic says
        so."""
        units = self._store.queue_units(topic, queue_id, offset, 1)
        return bool(units) and units[0][0] >= self._offsets.master_from

    def _end_at_start(self, topic: str, queue_id: int) -> int:
        """Return where a queue ended when this broker became the master; of a BatchCQ topic where it ends now."""
        low, end = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        return low + bisect_left(
            range(low, end), True, key=lambda offset: self._is_newer_than_start(topic, queue_id, offset)
        )

    def _may_begin_here(self, fields: HeaderFields) -> bool:
        """Return whether a commit may belong to a group that will exist here only when its members come: one of them
        says where the group begins, or a slave hands over commits from the time when its master was away."""
        begins = fields.opt_bool("maxqIfNone") or fields.opt_long("maxqReadAt") is not None
        return begins and self._settings.broker.auto_create_subscription_group

    async def _begun(self, request: RemotingCommand) -> RemotingCommand:
        """Answer the member that begins a group when that is durable. A commit that a kill takes back lets messages
        come again, but the next member of a new group would pass over those that the first one held."""
        self._offsets.request_persist()
        with contextlib.suppress(OSError):  # for example a full disk: the offset is written later, as all commits are
            await self._offsets.persisted()
        return request.reply()

    def _is_of_deleted_topic(self, topic: str, queue_id: int, offset: int, read_at: int | None) -> bool:
        """Return whether a reader's offset is one of a topic that was deleted since: a slave says at which physical
        offset that was read. Else whether it is beyond the topic that was made again. Offsets that the previous leader
        has shown count, although dispatch still waits for the disk here. A slave cannot tell, because it may lack
        messages of its master."""
        if read_at is not None and self._store.deletions.is_deleted_since(topic, read_at):
            return True
        return (
            self._store.deletions.at(topic) > 0
            and self._settings.store.broker_role != SLAVE
            and offset > self._store.taken_offset(topic, queue_id)
        )

    # --- locks --------------------------------------------------------------------------------------------------------

    def lock_batch(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer LOCK_BATCH_MQ (41) with the queues that the client owns now."""
        wanted = LockBatchRequestBody.decode(request.body_bytes)
        locked = self._locks.try_lock_batch(
            wanted.consumer_group, wanted.mq_set, wanted.client_id, only_this_broker=wanted.only_this_broker
        )
        return body_reply(request, LockBatchResponseBody(sorted(locked)))

    def unlock_batch(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer UNLOCK_BATCH_MQ (42). Locks of other clients stay, which is a success, too."""
        given = UnlockBatchRequestBody.decode(request.body_bytes)
        self._locks.unlock_batch(given.consumer_group, given.mq_set, given.client_id)
        return request.reply()
