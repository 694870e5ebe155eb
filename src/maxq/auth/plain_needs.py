"""The permissions that requests need under ACL 1.0.

RocketMQ's validator knows ten requests and five codes for administrators; everything else passes once the signature is
right, batches of messages among it. Batches are judged as single sends here. `strict` judges the others by what ACL
2.0 asks for: where that changes the cluster, a topic or a group the account must be an administrator's; where it
publishes or consumes, asks a group's clients or makes a group, the account needs that permission; what only reads
passes. A code that the table of needs.py does not have is for administrators.

Source:
    acl/plain/PlainAccessValidator.java, PlainPermissionManager.java (checkPerm), acl/common/Permission.java (4.9.8).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from maxq.auth.needs import NEEDS, needs_of
from maxq.auth.plain_acl import Permission, PlainAccount
from maxq.auth.policy import Action, Need
from maxq.auth.resource import ResourceType
from maxq.codes import RequestCode as Code

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

_ADMIN: Final[frozenset[int]] = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC, Code.UPDATE_BROKER_CONFIG, Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.DELETE_SUBSCRIPTIONGROUP,
        # Java lets every account change accounts, which cannot be intended
        Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        # reads that brokers of ACL 1.0 did not have: of users and policies, and of messages that wait
        Code.AUTH_GET_USER, Code.AUTH_LIST_USER, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL, Code.MAXQ_LIST_TIMER_MESSAGES,
        Code.MAXQ_INSPECT_TIMER_MESSAGE,
    }
)  # fmt: skip
#: What every account may ask once its signature is right.
_OPEN: Final[frozenset[int]] = frozenset({Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_ACL_INFO})
_CHECKED_BY_JAVA: Final[frozenset[int]] = frozenset(
    {
        Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.CONSUMER_SEND_MSG_BACK,
        Code.PULL_MESSAGE, Code.QUERY_MESSAGE, Code.HEART_BEAT, Code.UNREGISTER_CLIENT,
        Code.GET_CONSUMER_LIST_BY_GROUP, Code.UPDATE_CONSUMER_OFFSET,
    }
)  # fmt: skip
#: Reads that need a permission although other reads do not: the broker passes them on to clients of the group, or they
#: create the group that is asked for.
_MORE_THAN_READS: Final[frozenset[int]] = frozenset(
    {
        Code.GET_CONSUMER_RUNNING_INFO, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Code.GET_SUBSCRIPTIONGROUP_CONFIG,
        Code.POLLING_INFO,
    }
)  # fmt: skip
_CHANGES: Final = {Action.CREATE, Action.UPDATE, Action.DELETE}


class PlainNeed(NamedTuple):
    """A permission (PUB, SUB) that ACL 1.0 requires for one topic or consumer group."""

    is_group: bool
    name: str
    permission: Permission

    def refusal(self, account: PlainAccount) -> str | None:
        """Return why the account lacks the permission, in Java's words; None if it has it."""
        owned = account.group_permission(self.name) if self.is_group else account.topic_permission(self.name)
        if owned.allows(self.permission):
            return None
        lacking = self.permission.name
        return f"No default permission for {'group' if self.is_group else 'topic'}:{self.name} ({lacking})"


class PlainNeeds(NamedTuple):
    """The needs of one request: that the account is an administrator, or permissions on topics and groups."""

    admin: bool
    permissions: tuple[PlainNeed, ...] = ()

    def refusal(self, account: PlainAccount, code: int) -> str | None:
        """Return why this account may not make the request; None if it may."""
        if account.admin:
            return None
        if self.admin:
            return f"Need admin permission for request code={code}, but accessKey={account.access_key} is not"
        asked = (need for need in self.permissions if need != _TRACE)  # every account may send traces
        return next((why for need in asked if (why := need.refusal(account)) is not None), None)


_TRACE: Final = PlainNeed(False, TRACE_TOPIC, Permission.PUB)


def plain_needs_of(
    code: int, ext: Mapping[str, str], body: bytes, *, cluster_name: str = "", strict: bool = True
) -> PlainNeeds:
    """Return what a request needs. For the arguments see `needs_of`.

    Raises:
        RemoteProtocolError: the body cannot be read.
    """
    if code in _ADMIN:
        return PlainNeeds(True)
    if code in _OPEN or (code in NEEDS and code not in _CHECKED_BY_JAVA and not strict):
        return PlainNeeds(False)
    needs = needs_of(code, ext, body, cluster_name=cluster_name, strict=strict)
    if needs is None or any(is_for_administrators(need) for need in needs):
        return PlainNeeds(True)
    if code in _MORE_THAN_READS:
        needs = [Need(need.resource, (Action.SUB,)) for need in needs]
    return PlainNeeds(False, tuple(plain for need in needs if (plain := plain_need(need)) is not None))


def is_for_administrators(need: Need) -> bool:
    """Return whether the request changes data and is not part of consuming, as committing an offset is."""
    return Action.SUB not in need.actions and bool(_CHANGES.intersection(need.actions))


def plain_need(need: Need) -> PlainNeed | None:
    """Return the permission that stands for a need; None if every account may."""
    kind = need.resource.type
    if kind not in (ResourceType.TOPIC, ResourceType.GROUP):
        return None
    if Action.SUB in need.actions:
        return PlainNeed(kind is ResourceType.GROUP, need.resource.name, Permission.SUB)
    if Action.PUB in need.actions:
        return PlainNeed(kind is ResourceType.GROUP, need.resource.name, Permission.PUB)
    return None
