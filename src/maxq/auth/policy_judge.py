"""PolicyJudge: ACL 2.0. Decides about requests by the policies of the user who signed them.

Source:
    auth/authentication/{chain/DefaultAuthenticationHandler,strategy/*}.java,
    auth/authorization/{chain/UserAuthorizationHandler,chain/AclAuthorizationHandler,strategy/*}.java.
"""

from collections.abc import Iterable
from typing import Final

from maxq.auth.judge import REPEATED, SENDS, DenialCause, Refused, Session
from maxq.auth.needs import needs_of
from maxq.auth.policy import Need
from maxq.auth.signature import ACCESS_KEY, SIGNATURE, signed_content
from maxq.auth.signing_cy import SigningKey
from maxq.auth.tables import AccessTables, Version
from maxq.auth.user import User, subject_of
from maxq.errors import RemoteProtocolError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.frame.remoting_command import RemotingCommand

_MOST_DECISIONS: Final = 10_000
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """Settings of ACL 2.0.

    Attributes:
        authentication_whitelist, authorization_whitelist: request codes that are not looked at.
        stateful: a user's signature is checked once a connection.
        strict: see needs.py.
    """

    cluster_name: str = ""
    authorization: bool = True
    authentication_whitelist: frozenset[int] = frozenset()
    authorization_whitelist: frozenset[int] = frozenset()
    stateful: bool = False
    strict: bool = True


class PolicyJudge:
    """Judges requests by the policies of ACL 2.0. One per server. Authentication is always on, because an unchecked
    access key identifies nobody."""

    def __init__(self, rules: PolicyRules, tables: AccessTables) -> None:
        self._rules = rules
        self._tables = tables
        self._decided_under: object = None
        self._decisions: dict[tuple[str, Need, str], str | None] = {}
        self._keys: dict[str, tuple[str, SigningKey]] = {}
        # What a session learns of one send code counts for all of them, so they must be treated alike.
        lists = (rules.authentication_whitelist, rules.authorization_whitelist)
        are_alike = all(len(SENDS & codes) in (0, len(SENDS)) for codes in lists)
        self._learns = SENDS.union(REPEATED) if are_alike else frozenset(REPEATED)

    @property
    def rules(self) -> object:
        return self._tables.version

    def is_super(self, command: RemotingCommand) -> bool:
        if command.code in self._rules.authentication_whitelist:
            return False
        user = self._tables.users.get(command.ext.get(ACCESS_KEY, ""))
        return user is not None and user.is_super

    def judge(self, command: RemotingCommand, session: Session) -> Refused | None:
        access_key = command.ext.get(ACCESS_KEY, "")
        key: SigningKey | None = None
        if command.code not in self._rules.authentication_whitelist:
            found = self._authenticate(command, access_key, session)
            if isinstance(found, Refused):
                return found
            key = found
        if self._rules.authorization and command.code not in self._rules.authorization_whitelist:
            refused = self._authorize(command, access_key, session.source_ip)
            if refused is not None:
                return refused
        if command.code in self._learns:
            session.remember(command, None if self._rules.stateful or session.is_vouched else key)
        return None

    def judge_sender(self, command: RemotingCommand, session: Session, since: object) -> Refused | None:
        if command.code in self._rules.authentication_whitelist:
            return None
        user = self._user(command.ext.get(ACCESS_KEY, ""))
        if isinstance(user, Refused):
            return user
        if not (isinstance(since, Version) and self._tables.has_same_secret(user.username, since)):
            return Refused(
                DenialCause.WRONG_SIGNATURE, user.username, "check signature failed: the password has changed."
            )
        return None

    def judge_again(self, command: RemotingCommand, session: Session, since: object) -> Refused | None:
        refused = self.judge_sender(command, session, since)
        if refused is not None:
            return refused
        access_key = command.ext.get(ACCESS_KEY, "")
        if self._rules.authorization and command.code not in self._rules.authorization_whitelist:
            return self._authorize(command, access_key, session.source_ip)
        return None

    def identify(self, access_key: str, content: bytes, signature: bytes, source_ip: str) -> Refused | None:
        user = self._user(access_key)
        if isinstance(user, Refused):
            return user
        if not self._signing_key(user).matches(content, b"", signature):
            return Refused(DenialCause.WRONG_SIGNATURE, access_key, "check signature failed.")
        return None

    def _user(self, access_key: str) -> User | Refused:
        if not access_key:
            return Refused(DenialCause.NO_CREDENTIALS, "", "username cannot be null. Sign requests with an access key.")
        user = self._tables.users.get(access_key)
        if user is None:
            return Refused(DenialCause.UNKNOWN_USER, access_key, f"User:{access_key} is not found.")
        if user.is_disabled:
            return Refused(DenialCause.DISABLED_USER, access_key, f"User:{access_key} is disabled.")
        return user

    def _authenticate(self, command: RemotingCommand, access_key: str, session: Session) -> SigningKey | Refused:
        user = self._user(access_key)
        if isinstance(user, Refused):
            return user
        key = self._signing_key(user)
        if session.is_vouched or (self._rules.stateful and access_key in session.verified):
            return key
        signature = command.ext.get(SIGNATURE, "").encode("utf-8", "replace")
        if not key.matches(signed_content(command.ext, version=command.version), command.body_bytes, signature):
            return Refused(DenialCause.WRONG_SIGNATURE, access_key, "check signature failed.")
        session.verified.add(access_key)
        return key

    def _signing_key(self, user: User) -> SigningKey:
        kept = self._keys.get(user.username)
        if kept is None or kept[0] != user.password:
            self._keys = {name: kept for name, kept in self._keys.items() if name in self._tables.users}
            kept = self._keys[user.username] = (user.password, SigningKey(user.password.encode("utf-8", "replace")))
        return kept[1]

    def _authorize(self, command: RemotingCommand, access_key: str, source_ip: str) -> Refused | None:
        user = self._tables.users.get(access_key)
        if user is None:  # the request need not be signed, but it needs a user with the permission
            return Refused(DenialCause.NO_CREDENTIALS, access_key, f"User:{access_key} not found.")
        if user.is_disabled:
            return Refused(DenialCause.DISABLED_USER, access_key, f"User:{access_key} is disabled.")
        if user.is_super:
            return None
        try:
            needs = needs_of(
                command.code,
                command.ext,
                command.body_bytes,
                cluster_name=self._rules.cluster_name,
                strict=self._rules.strict,
            )
        except RemoteProtocolError as error:
            return Refused(DenialCause.UNREADABLE, access_key, f"parse authorization context error: {error}")
        if needs is None:
            remark = (
                f"{subject_of(access_key)} has no permission to access request code {command.code}, which is unknown."
            )
            return Refused(DenialCause.NO_PERMISSION, access_key, remark)
        return self._refuse(needs, user.username, source_ip)

    def judge_also(self, command: RemotingCommand, session: Session, need: Need) -> Refused | None:
        if not self._rules.authorization or command.code in self._rules.authorization_whitelist:
            return None
        if self.is_super(command):
            return None
        return self._refuse([need], command.ext.get(ACCESS_KEY, ""), session.source_ip)

    def _refuse(self, needs: Iterable[Need], username: str, source_ip: str) -> Refused | None:
        for need in needs:
            why = self._decide(username, need, source_ip)
            if why is not None:
                lacking = " or ".join(action.value for action in need.actions)
                remark = (
                    f"{subject_of(username)} has no permission to access {need.resource.key} ({lacking}) from "
                    f"{source_ip}, {why}"
                )
                return Refused(DenialCause.NO_PERMISSION, username, remark)
        return None

    def _decide(self, username: str, need: Need, source_ip: str) -> str | None:
        if self._decided_under is not self._tables.version or len(self._decisions) >= _MOST_DECISIONS:
            self._decisions.clear()
            self._decided_under = self._tables.version
        asked = (username, need, source_ip)
        known = self._decisions.get(asked, _MISSING)
        if known is _MISSING:
            acl = self._tables.acls.get(subject_of(username))
            known = self._decisions[asked] = "no matched policies." if acl is None else acl.refusal(need, source_ip)
        return known  # type: ignore[return-value]
