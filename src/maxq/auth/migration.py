"""An account of ACL 1.0 as a user and policies of ACL 2.0.

Source: auth/migration/AuthMigrator.java.
"""

from collections.abc import Iterator

from maxq.auth.plain_acl import Permission, PlainAccount
from maxq.auth.policy import Action, Decision, Policy, PolicyEntry, PolicyType
from maxq.auth.resource import Resource, ResourcePattern, ResourceType, group, topic
from maxq.auth.user import User, UserType


def migrated(account: PlainAccount) -> tuple[User, tuple[Policy, ...]]:
    """Return the user of an ACL 1.0 account and its policies: explicit permissions as custom ones, the defaults as
    default ones."""
    user = User(account.access_key, account.secret_key, UserType.SUPER if account.admin else UserType.NORMAL)
    policies = (
        Policy(PolicyType.CUSTOM, tuple(_custom(account))),
        Policy(
            PolicyType.DEFAULT,
            (
                _entry(Resource(ResourceType.TOPIC, "", ResourcePattern.ANY), account.default_topic_perm),
                _entry(Resource(ResourceType.GROUP, "", ResourcePattern.ANY), account.default_group_perm),
            ),
        ),
    )
    return user, tuple(policy for policy in policies if policy.entries)


def _custom(account: PlainAccount) -> Iterator[PolicyEntry]:
    for name, permission in account.topic_perms.items():
        yield _entry(topic(name), permission)
    for name, permission in account.group_perms.items():
        yield _entry(group(name), permission)


def _entry(resource: Resource, permission: Permission) -> PolicyEntry:
    if Permission.DENY in permission:
        return PolicyEntry(resource, (Action.ALL,), Decision.DENY)
    flags = ((Permission.PUB, Action.PUB), (Permission.SUB, Action.SUB))
    return PolicyEntry(resource, tuple(action for flag, action in flags if flag in permission), Decision.ALLOW)
