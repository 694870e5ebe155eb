"""AccessTables: the users and their policies, and the rules by which they change.

Values are replaced, never changed, and `version` with every change, so whoever remembers a decision can tell whether it
still counts.

Source:
    auth/authentication/manager/AuthenticationMetadataManagerImpl.java,
    auth/authorization/manager/AuthorizationMetadataManagerImpl.java,
    auth/authorization/provider/LocalAuthorizationMetadataProvider.java (listAcl, as of 5.5.0).
"""

from collections.abc import Iterable
from dataclasses import replace

from maxq.auth.policy import Acl, Policy, PolicyType, problem_with
from maxq.auth.resource import Resource
from maxq.auth.user import User, UserStatus, UserType, subject_of, username_of
from maxq.codes import ResponseCode
from maxq.errors import RequestRefusedError


class Version:
    """The version of the rules at one moment.

    Attributes:
        number: how many changes there were before it.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class AccessTables:
    """The tables of users and rules; see the module's text."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.acls: dict[str, Acl] = {}  # by subject
        self.version = Version(0)
        self._secret_since: dict[str, int] = {}  # user → version number with which the password was set

    def replace_all(self, users: Iterable[User], acls: Iterable[Acl]) -> None:
        """Replace all users and rules with those of a file."""
        self.users = {user.username: user for user in users}
        self.acls = {acl.subject: acl for acl in acls}
        self._changed()
        self._secret_since = dict.fromkeys(self.users, self.version.number)

    def _changed(self) -> None:
        self.version = Version(self.version.number + 1)

    def has_same_secret(self, username: str, since: Version) -> bool:
        """Return whether the user still has the password that it had when the rules had version `since`."""
        return self._secret_since.get(username, since.number + 1) <= since.number

    # --- users --------------------------------------------------------------------------------------------------------

    def create_user(self, user: User) -> None:
        """Raises RequestRefusedError: no name, no password, or there is one of that name."""
        _refuse_if(not user.username.strip(), "username can not be blank")
        _refuse_if(not user.password.strip(), "password can not be blank")
        _refuse_if(user.username in self.users, "The user is existed")
        self.users[user.username] = user
        self._changed()
        self._secret_since[user.username] = self.version.number

    def update_user(
        self, username: str, password: str | None, user_type: UserType | None, user_status: UserStatus | None
    ) -> None:
        """Change the given fields. Raises RequestRefusedError if there is no such user."""
        old = self.users.get(username)
        if old is None:
            raise _refused("The user is not exist")
        changed = old.changed(password if password and password.strip() else None, user_type, user_status)
        self.users[username] = changed
        self._changed()
        if changed.password != old.password:
            self._secret_since[username] = self.version.number

    def delete_user(self, username: str) -> None:
        """Delete a user and all its policies; does nothing if there is no such user."""
        self.users.pop(username, None)
        self._secret_since.pop(username, None)
        self.acls.pop(subject_of(username), None)
        self._changed()

    def list_users(self, text: str | None) -> list[User]:
        """Returns the users whose name contains the text, by name."""
        return [self.users[name] for name in sorted(self.users) if (text or "").strip() in name]

    # --- policies -----------------------------------------------------------------------------------------------------

    def update_acl(self, subject: str, policies: tuple[Policy, ...]) -> None:
        """Add entries, or replace those for the same resources (createAcl and updateAcl).

        Raises:
            RequestRefusedError: the subject is not a user of this server, or an entry is wrong.
        """
        problem = problem_with(policies)
        _refuse_if(problem is not None, problem or "")
        subject = self._known(subject, f"The subject of {subject} is not exist.")
        old = self.acls.get(subject, Acl(subject))
        self.acls[subject] = old.updated(policies)
        self._changed()

    def delete_acl(self, subject: str, policy_type: PolicyType | None, resource: Resource | None) -> None:
        """Delete all policies of the subject, or the entry for one resource.

        Raises:
            RequestRefusedError: no such user, or it has no policies.
        """
        subject = self._known(subject)
        old = self.acls.get(subject)
        if old is None:
            raise _refused("The acl is not exist.")
        left = old.without(policy_type or PolicyType.CUSTOM, resource) if resource is not None else None
        if left is None or not left.policies:
            del self.acls[subject]
        else:
            self.acls[subject] = left
        self._changed()

    def get_acl(self, subject: str) -> Acl | None:
        """Raises RequestRefusedError: no such user."""
        return self.acls.get(self._known(subject))

    def list_acls(self, subject_text: str | None, resource_text: str | None) -> list[Acl]:
        """Return, for the subjects that contain the first text, the entries whose resource contains the second."""
        found = []
        for subject in sorted(self.acls):
            if (subject_text or "").strip() not in subject:
                continue
            policies = (_entries_with(policy, (resource_text or "").strip()) for policy in self.acls[subject].policies)
            kept = tuple(policy for policy in policies if policy.entries)
            if kept:
                found.append(Acl(subject, kept))
        return found

    def _known(self, subject: str, otherwise: str = "The subject is not exist.") -> str:
        username = username_of(subject)
        if username is None:
            raise _refused("The subject is null.")
        _refuse_if(username not in self.users, otherwise)
        return subject_of(username)


def _entries_with(policy: Policy, text: str) -> Policy:
    return replace(policy, entries=tuple(entry for entry in policy.entries if text in entry.resource.key))


def _refuse_if(condition: bool, remark: str) -> None:
    if condition:
        raise _refused(remark)


def _refused(remark: str) -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.NO_PERMISSION, remark)
