"""Authority: what the success of each request promises, and whether this broker may promise it now.

The active broker of a group (the master; a slave that acts as master; a DLedger leader) may have been replaced without
knowing it: it stood still, or nobody hears it. What it says then may be wrong: a lock that somebody else holds, an
offset that is lost, a topic that exists nowhere. So it asks `doubt` before it handles a request, and again before an
answer is sent that was not ready at once. `PROMISES` says for each request what its success promises; a test refuses a
request that is not in it (tests/integration/broker/slaves/test_authority.py).

How sure a broker is (`doubt`):

| broker | is sure while |
|---|---|
| DLedger leader | a majority answered its heart-beats so recently that nobody else can have been elected (its lease) |
| member of an acting-master group | it has looked at its group and was told that it is active lately (RoleLease) |
| master or slave of another group | always: only an operator replaces it |

A slave that acts as master hands its promises to the master that comes back (pop/hand_back.py). Later promises would be
lost, so it makes none until that master has registered, or has failed to come. Nor does a master before it has asked
its slaves (failover/pre_online.py): if it has lost the end of its log, messages that it stored would get the offsets of
messages that were consumed at the slave.

All who ask, including the batch paths, ask this one object; what sends wait for is decided by Acknowledgement.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Final

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.identity.role import MASTER_ID
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.runtime.refusals import Cause


class Promise(Enum):
    """The promise that the success of a request makes; each value includes the ones before it.

    NOTHING: facts about this process, or work that it did for itself. It is not the group's word.
    ROLE: the group's word, in memory: only the actual master may give it. A slave says what its copy has.
    TABLE: ROLE, and the changed table is on the disk; where sends wait for copies, living slaves have topics and
        groups on their disks, too. Slaves refuse such requests, even one that acts as master, because its changes
        would be lost when the master comes back.
    LOG: a record in the log, as safe as the settings say (Acknowledgement); the role is checked before it is made.
    """

    NOTHING = "nothing"
    ROLE = "role"
    TABLE = "table"
    LOG = "log"


_LOG: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
    RequestCode.RECALL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.POP_ROLLBACK,
    RequestCode.MAXQ_CANCEL_TIMER_MESSAGE,
    RequestCode.MAXQ_STAGE_MESSAGES,
    RequestCode.MAXQ_STAGED_DECISION,
    RequestCode.MAXQ_DECIDE_STAGED,
    RequestCode.MAXQ_DELIVER_STAGED,
    RequestCode.MAXQ_CLAIM_STAGED,
)
_TABLE: Final = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.MAXQ_PURGE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
)
_ROLE: Final = (
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.QUERY_CORRECTION_OFFSET,
    # a pull commits an offset, and a reader that is told it is behind the end goes back
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.QUERY_ASSIGNMENT,
    # what slaves copy
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    RequestCode.GET_TIMER_CHECK_POINT,
    RequestCode.GET_TIMER_METRICS,
    RequestCode.MAXQ_AWAIT_TABLE_CHANGE,
    # what a master that comes back takes from the slave that acted for it, and what other slaves copy of that one
    RequestCode.MAXQ_HAND_BACK_POPS,
    RequestCode.MAXQ_COPY_POPS,
)
_NOTHING: Final = (
    # records that are in the log
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.MAXQ_LIST_TIMER_MESSAGES,
    RequestCode.MAXQ_INSPECT_TIMER_MESSAGE,
    # who is connected to this broker
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.CHECK_CLIENT_CONFIG,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
    # what operators look at
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.QUERY_TOPICS_BY_CONSUMER,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.MAXQ_WHY_SLOW,
    # this process and its files
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
    RequestCode.SET_COMMITLOG_READ_MODE,
    RequestCode.SWITCH_TIMER_ENGINE,
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_UPDATE_USER,
    RequestCode.AUTH_DELETE_USER,
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_CREATE_ACL,
    RequestCode.AUTH_UPDATE_ACL,
    RequestCode.AUTH_DELETE_ACL,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
    # how a group finds out which broker is active
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
    RequestCode.EXCHANGE_BROKER_HA_INFO,
    RequestCode.RESET_MASTER_FLUSH_OFFSET,
)

#: By request code. What a broker refuses by name whatever it is (processors/assembly.py) is not in it.
PROMISES: Final[Mapping[int, Promise]] = {
    int(code): promise
    for promise, codes in (
        (Promise.LOG, _LOG), (Promise.TABLE, _TABLE), (Promise.ROLE, _ROLE), (Promise.NOTHING, _NOTHING)
    )
    for code in codes
}  # fmt: skip

#: What a master that comes back asks the slave that acted for it, which promises nothing else by then; and what slaves
#: copy of that master, which promises nothing else before.
_OF_THE_GROUP: Final = frozenset(
    {
        RequestCode.MAXQ_HAND_BACK_POPS,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_TIMER_METRICS,
        RequestCode.MAXQ_AWAIT_TABLE_CHANGE,
    }
)


class Authority:
    """Decides whether this broker may give the promise that an answer makes. One per broker;
    `RemotingServer.authority`.

    Args:
        is_active: is this broker its group's active one, as far as it knows?
        doubt: why one that does cannot be sure of it; None: it is.
        gives_way: why one that acts as master leaves promises to the master that comes back, or that master to the one
            that acts, or either of them to one that may act; None: it does not. It tells others of the group what it
            has all the same.
        keeps: is this a request that its processor keeps until somebody may promise it? It is not refused here.
        copied: returns when slaves have the tables of topics and groups, as far as they are waited for; False: they
            have not in time.
    """

    def __init__(
        self,
        own: BrokerAddress,
        *,
        is_active: Callable[[], bool],
        doubt: Callable[[], str | None],
        gives_way: Callable[[], str | None],
        keeps: Callable[[RemotingCommand], bool],
        copied: Callable[[], Awaitable[bool]],
    ) -> None:
        self._own = own
        self._is_active = is_active
        self._doubt = doubt
        self._gives_way = gives_way
        self._keeps = keeps
        self._copied = copied

    def doubt(self) -> str | None:
        """Return why this broker, which considers itself its group's active one, cannot be sure of it. None if it is
        sure, or if it is a slave that does not act."""
        return self._why_not(self._doubt) or self._why_not(self._gives_way)

    def _why_not(self, ask: Callable[[], str | None]) -> str | None:
        return ask() if self._own.broker_id == MASTER_ID or self._is_active() else None

    def before(self, request: RemotingCommand) -> RemotingCommand | None:
        """Return the response that refuses `request` before it is processed; None to process it."""
        promise = PROMISES.get(request.code, Promise.NOTHING)
        if promise is Promise.NOTHING:
            return None
        why = self._why_not(self._doubt) if request.code in _OF_THE_GROUP else self.doubt()
        if why is not None and not self._keeps(request):
            remark = f"[{Cause.NOT_SURE}]this broker promises nothing now: {why}; ask again"
            return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        if promise is Promise.TABLE and self._own.broker_id != MASTER_ID:
            remark = "this broker is a SLAVE: its tables are copies of its master's; change them there, when it is back"
            return request.reply(ResponseCode.SLAVE_NOT_AVAILABLE, remark)
        return None

    async def after(self, request: RemotingCommand, response: RemotingCommand) -> RemotingCommand:
        """Return the response to send instead of `response`: a refusal if `response` would be a promise that this
        broker may no longer give. Records already in the log stay there under any leader."""
        promise = PROMISES.get(request.code, Promise.NOTHING)
        if response.code != ResponseCode.SUCCESS or promise in (Promise.NOTHING, Promise.LOG):
            return response
        if promise is Promise.TABLE and not await self._copied():
            remark = "done here, but slaves do not have it in time: if this broker ends it may be gone; ask again"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        refusal = self.before(request)
        return response if refusal is None else refusal
