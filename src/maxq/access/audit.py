"""The audit log of access control: refusals, and the outcomes of requests that change data; one line for each request.

The log is `maxq.audit`. A client that is refused again and again gets one line an interval, with the number of refusals
since the last; one that makes up a name for each request is one client, and of too many addresses one line tells. Text
that a client sends about itself (its access key) is quoted and shortened; secrets and signatures are never printed.

Source:
    auth/authentication/provider/DefaultAuthenticationProvider.java (doAuditLog), and the same of authorization.
"""

import logging
from typing import Final

from maxq.auth.judge import DenialCause, Refused
from maxq.auth.signature import ACCESS_KEY
from maxq.codes import RequestCode as Code
from maxq.codes import ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection
from maxq.runtime.interfaces import Clock
from maxq.runtime.log_limits import LogThrottle, and_more

log: Final = logging.getLogger("maxq.audit")

#: Requests that change a server's settings or data. Every allowed one is written to the audit log; refused requests
#: always are.
CHANGES: Final[frozenset[int]] = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.UPDATE_BROKER_CONFIG,
        Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.PUT_KV_CONFIG, Code.DELETE_KV_CONFIG, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, Code.WIPE_WRITE_PERM_OF_BROKER, Code.DELETE_SUBSCRIPTIONGROUP,
        Code.DELETE_TOPIC_IN_BROKER, Code.DELETE_TOPIC_IN_NAMESRV, Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.CLONE_GROUP_OFFSET, Code.CLEAN_UNUSED_TOPIC, Code.UPDATE_NAMESRV_CONFIG,
        Code.RESUME_CHECK_HALF_MESSAGE, Code.ADD_WRITE_PERM_OF_BROKER, Code.DELETE_EXPIRED_COMMITLOG,
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN, Code.SET_MESSAGE_REQUEST_MODE, Code.UPDATE_AND_CREATE_STATIC_TOPIC,
        Code.ADD_BROKER, Code.REMOVE_BROKER, Code.RESET_MASTER_FLUSH_OFFSET, Code.NOTIFY_BROKER_ROLE_CHANGED,
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, Code.SET_COMMITLOG_READ_MODE,
        Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER, Code.AUTH_CREATE_ACL,
        Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL, Code.SWITCH_TIMER_ENGINE, Code.MAXQ_CANCEL_TIMER_MESSAGE,
        Code.MAXQ_PURGE_TOPIC, Code.UNREGISTER_BROKER, Code.TRIGGER_LITE_DISPATCH,
    }
)  # fmt: skip


class Audit:
    """Counts and logs what is refused. One per server.

    Attributes:
        refused: refusals by cause, since the start.
    """

    def __init__(self, clock: Clock) -> None:
        self.refused = dict.fromkeys(DenialCause, 0)
        self._throttle = LogThrottle(clock)

    def note_refusal(self, connection: Connection, command: RemotingCommand, refused: Refused, source_ip: str) -> None:
        """Count a refusal, and log it unless a similar one was logged lately."""
        self.refused[refused.cause] += 1
        user = "" if refused.cause is DenialCause.UNKNOWN_USER else refused.user
        left_out = self._throttle.admits((refused.cause, user, source_ip), otherwise=refused.cause)
        if left_out is None:
            return
        log.warning(
            "refused %s from %s, user %r: %s: %r%s",
            code_name(command.code), connection.remote_address, refused.user[:100], refused.cause.value,
            refused.remark[:300], and_more(left_out),
        )  # fmt: skip

    def note_outcome(self, connection: Connection, command: RemotingCommand, response: RemotingCommand | None) -> None:
        """Log the outcome of a request that was allowed and processed, if it is one that changes data.

        Args:
            response: its answer; None if it has none.
        """
        if command.code not in CHANGES:
            return
        user = command.ext.get(ACCESS_KEY, "")
        who = f"{code_name(command.code)} from {connection.remote_address}, user {user[:100]!r}"
        if response is None or response.code == ResponseCode.SUCCESS:
            log.info("done %s", who)
        else:
            log.warning("failed %s: code %d: %r", who, response.code, (response.remark or "")[:300])


def code_name(code: int) -> str:
    """Return `310 SEND_MESSAGE_V2`, or the number alone."""
    try:
        return f"{code} {Code(code).name}"
    except ValueError:
        return str(code)
