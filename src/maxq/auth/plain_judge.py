"""PlainJudge: ACL 1.0. White lists, accounts, permissions by topic and group.

Source: acl/plain/PlainPermissionManager.java (validate, checkPerm; 4.9.8).
"""

from collections.abc import Callable
from typing import Final

from maxq.auth.judge import REPEATED, SENDS, DenialCause, Refused, Session
from maxq.auth.plain_acl import PlainAcl
from maxq.auth.plain_needs import PlainNeeds, is_for_administrators, plain_need, plain_needs_of
from maxq.auth.policy import Need
from maxq.auth.signature import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, signed_content
from maxq.auth.signing_cy import SigningKey
from maxq.codes import MQVersion
from maxq.errors import RemoteProtocolError
from maxq.protocol.frame.remoting_command import RemotingCommand

_LEARNS: Final = SENDS.union(REPEATED)


class PlainJudge:
    """Judges requests by the accounts of ACL 1.0. One per server.

    Args:
        acl: the rules as they are now; another object after each change.
        cluster_name: of the server.
        strict: see plain_needs.py.
    """

    def __init__(self, acl: Callable[[], PlainAcl], *, cluster_name: str = "", strict: bool) -> None:
        self._acl = acl
        self._cluster_name = cluster_name
        self._strict = strict
        self._keys: dict[str, tuple[str, SigningKey]] = {}

    @property
    def rules(self) -> object:
        return self._acl()

    def is_super(self, command: RemotingCommand) -> bool:
        account = self._acl().accounts.get(command.ext.get(ACCESS_KEY, ""))
        return account is not None and account.admin

    def judge(self, command: RemotingCommand, session: Session) -> Refused | None:
        return self._judge(command, session, signature_counts=not session.is_vouched)

    def judge_again(self, command: RemotingCommand, session: Session, since: object) -> Refused | None:
        refused = self.judge_sender(command, session, since)
        return refused or self._judge(command, session, signature_counts=False)

    def judge_sender(self, command: RemotingCommand, session: Session, since: object) -> Refused | None:
        acl, access_key = self._acl(), command.ext.get(ACCESS_KEY, "")
        account = acl.accounts.get(access_key)
        if acl.is_white(session.source_ip) or (account is not None and account.is_white(session.source_ip)):
            return None
        before = since.accounts.get(access_key) if isinstance(since, PlainAcl) else None
        if account is None or before is None:
            return Refused(DenialCause.UNKNOWN_USER, access_key, f"No acl config for {access_key}")
        if before.secret_key != account.secret_key:
            remark = f"Check signature failed for accessKey={access_key}: its secret has changed"
            return Refused(DenialCause.WRONG_SIGNATURE, access_key, remark)
        return None

    def _judge(self, command: RemotingCommand, session: Session, *, signature_counts: bool) -> Refused | None:
        acl = self._acl()
        if acl.is_white(session.source_ip):
            _learn(command, session, None)
            return None
        access_key = command.ext.get(ACCESS_KEY, "")
        if not access_key:
            return Refused(DenialCause.NO_CREDENTIALS, "", "No accessKey is configured")
        account = acl.accounts.get(access_key)
        if account is None:
            return Refused(DenialCause.UNKNOWN_USER, access_key, f"No acl config for {access_key}")
        if account.is_white(session.source_ip):
            _learn(command, session, None)
            return None
        key = self._signing_key(access_key, account.secret_key)
        if signature_counts and not _is_signed(command, key):
            return Refused(
                DenialCause.WRONG_SIGNATURE, access_key, f"Check signature failed for accessKey={access_key}"
            )
        try:
            needs = plain_needs_of(
                command.code, command.ext, command.body_bytes, cluster_name=self._cluster_name, strict=self._strict
            )
        except RemoteProtocolError as error:
            return Refused(DenialCause.UNREADABLE, access_key, str(error))
        why = needs.refusal(account, command.code)
        if why is not None:
            return Refused(DenialCause.NO_PERMISSION, access_key, why)
        _learn(command, session, None if session.is_vouched else key)
        return None

    def identify(self, access_key: str, content: bytes, signature: bytes, source_ip: str) -> Refused | None:
        acl = self._acl()
        account = acl.accounts.get(access_key)
        if acl.is_white(source_ip) or (account is not None and account.is_white(source_ip)):
            return None
        if not access_key:
            return Refused(DenialCause.NO_CREDENTIALS, "", "No accessKey is configured")
        if account is None:
            return Refused(DenialCause.UNKNOWN_USER, access_key, f"No acl config for {access_key}")
        if not self._signing_key(access_key, account.secret_key).matches(content, b"", signature):
            remark = f"Check signature failed for accessKey={access_key}"
            return Refused(DenialCause.WRONG_SIGNATURE, access_key, remark)
        return None

    def judge_also(self, command: RemotingCommand, session: Session, need: Need) -> Refused | None:
        acl = self._acl()
        account = acl.accounts.get(command.ext.get(ACCESS_KEY, ""))
        if not self._strict or account is None or account.admin:
            return None
        if acl.is_white(session.source_ip) or account.is_white(session.source_ip):
            return None
        plain = plain_need(need)
        needs = PlainNeeds(is_for_administrators(need), () if plain is None else (plain,))
        why = needs.refusal(account, command.code)
        return None if why is None else Refused(DenialCause.NO_PERMISSION, account.access_key, why)

    def _signing_key(self, access_key: str, secret: str) -> SigningKey:
        kept = self._keys.get(access_key)
        if kept is None or kept[0] != secret:
            known = self._acl().accounts
            self._keys = {name: kept for name, kept in self._keys.items() if name in known}
            kept = self._keys[access_key] = (secret, SigningKey(secret.encode("utf-8", "replace")))
        return kept[1]


def _is_signed(command: RemotingCommand, key: SigningKey) -> bool:
    """Return whether the signature is right. Brokers with ACL 1.0 exclude one flag of queries from the signed content,
    for clients of every version; newer clients sign it."""
    signature = command.ext.get(SIGNATURE, "").encode("utf-8", "replace")
    versions = (MQVersion.V4_9_3, MQVersion.V5_0_0) if UNIQUE_KEY_QUERY in command.ext else (MQVersion.V5_0_0,)
    body = command.body_bytes
    return any(key.matches(signed_content(command.ext, version=version), body, signature) for version in versions)


def _learn(command: RemotingCommand, session: Session, key: SigningKey | None) -> None:
    if command.code in _LEARNS:
        session.remember(command, key)
