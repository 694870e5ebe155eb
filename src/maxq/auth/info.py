"""Users and policies as requests, answers and files have them: UserInfo and AclInfo.

Source:
    remoting/protocol/body/{UserInfo,AclInfo}.java, broker/auth/converter/{UserConverter,AclConverter}.java.
"""

from dataclasses import field

from maxq.auth.policy import Acl, Action, Decision, Policy, PolicyEntry, PolicyType
from maxq.auth.resource import Resource
from maxq.auth.user import User, UserStatus, UserType
from maxq.errors import RemoteProtocolError
from maxq.protocol.json.json_body import JsonBody, json_body


@json_body
class UserInfo(JsonBody):
    """A user in the JSON form of requests and answers."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type}, {self.user_status})"

    @classmethod
    def of(cls, user: User, *, with_password: bool) -> "UserInfo":
        """Return the user as admin commands show it, with the fields that they print."""
        password = user.password if with_password else None
        return cls(user.username, password, user.user_type.value, user.user_status.value)

    def user(self) -> User:
        """Return the user of a file.

        Raises:
            RemoteProtocolError: no name or no password.
        """
        if not self.username or not self.password:
            raise RemoteProtocolError("a user needs username and password")
        return User(
            self.username,
            self.password,
            UserType.of(self.user_type) or UserType.NORMAL,
            UserStatus.of(self.user_status) or UserStatus.ENABLE,
        )


@json_body
class PolicyEntryInfo(JsonBody):
    """One rule in the JSON form of requests and answers."""

    resource: str | None = None
    actions: list[str] = field(default_factory=list)
    source_ips: list[str] | None = None
    decision: str | None = None

    def entry(self) -> PolicyEntry:
        """Return the rule. An unknown action is left out, as in Java.

        Raises:
            RemoteProtocolError: no resource, or no decision.
        """
        resource, decision = Resource.parse(self.resource or ""), Decision.of(self.decision)
        if resource is None:
            raise RemoteProtocolError(
                f"The resource is null: {self.resource!r:.80} is no Topic:, Group:, Cluster: or *."
            )
        if decision is None:
            raise RemoteProtocolError("The decision is null or illegal.")
        actions = (Action.of(name) for name in self.actions)
        known = tuple(dict.fromkeys(action for action in actions if action is not None))
        return PolicyEntry(resource, known, decision, tuple(self.source_ips or ()))


@json_body
class PolicyInfo(JsonBody):
    """The rules of one kind in the JSON form of requests and answers."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] = field(default_factory=list)


@json_body
class AclInfo(JsonBody):
    """All rules of a subject in the JSON form of requests and answers."""

    subject: str | None = None
    policies: list[PolicyInfo] = field(default_factory=list)

    @classmethod
    def of(cls, acl: Acl) -> "AclInfo":
        """Returns the JSON form of a subject's rules."""
        return cls(acl.subject, [_policy_info(policy) for policy in acl.policies])

    def acl(self, subject: str) -> Acl:
        """Return the rules for this subject.

        Raises:
            RemoteProtocolError: an entry has no resource or no decision.
        """
        return Acl(
            subject,
            tuple(
                Policy(
                    PolicyType.of(policy.policy_type) or PolicyType.CUSTOM,
                    tuple(entry.entry() for entry in policy.entries),
                )
                for policy in self.policies
            ),
        )


def _policy_info(policy: Policy) -> PolicyInfo:
    return PolicyInfo(
        policy.policy_type.value,
        [
            PolicyEntryInfo(
                entry.resource.key,
                [action.value for action in entry.actions],
                list(entry.source_ips) or None,
                entry.decision.value,
            )
            for entry in policy.entries
        ],
    )
