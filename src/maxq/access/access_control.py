"""AccessControl: what a server's settings say about who may ask it for what, put together.

One of a server, or of several that run in one process and share users and policies. A server without access control has
one as well: users and policies can be made before they begin to count.

Source:
    broker/BrokerController.java (its authentication parts), auth/migration/AuthMigrator.java,
    auth/authentication/manager/AuthenticationMetadataManagerImpl.java (initUser).
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from maxq.access.auth_admin import AuthAdmin
from maxq.access.guard import Guard
from maxq.access.table_file import TableFile
from maxq.auth.acl_client_rpc_hook import AclClientRPCHook
from maxq.auth.judge import Judge
from maxq.auth.migration import migrated
from maxq.auth.plain_judge import PlainJudge
from maxq.auth.policy_judge import PolicyJudge, PolicyRules
from maxq.auth.signature import Credentials
from maxq.auth.tables import AccessTables
from maxq.auth.user import User, UserType
from maxq.codes import ResponseCode
from maxq.config.auth_config import STATEFUL_AUTHENTICATION, AuthConfig
from maxq.errors import BrokerError, ConfigError, RemoteProtocolError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.json import json_dialect
from maxq.remoting.connection import Processor
from maxq.remoting.endpoint import RemotingEndpoint
from maxq.runtime.interfaces import Clock, Disk

if TYPE_CHECKING:
    from maxq.access.plain_acl_files import PlainAclFiles

log: Final = logging.getLogger("maxq.access")


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Settings of a server that concern access control.

    Attributes:
        acl_enable: ACL 1.0.
        home: rocketmqHome.
        folder: where the file of users and policies is, unless authConfigPath says.
        cluster: the cluster that policies mean, unless clusterName says.
    """

    auth: AuthConfig
    acl_enable: bool
    home: str
    folder: PurePath
    cluster: str = ""


class AccessControl:
    """Access control of one server; see the module's text.

    Attributes:
        guard: stands before all processors; None: everything passes.
    """

    def __init__(self, settings: AccessSettings, *, disk: Disk, clock: Clock) -> None:
        """Set up without reading files yet.

        Raises:
            ConfigError: the settings contradict each other, or credentials in them cannot be read.
        """
        _check(settings)
        auth = settings.auth
        self._settings = settings
        self._clock = clock
        self.tables = AccessTables()
        self.file = TableFile(
            disk, PurePath(auth.auth_config_path) if auth.auth_config_path else settings.folder, self.tables
        )
        self.plain: PlainAclFiles | None = None
        if settings.acl_enable or auth.migrate_auth_from_v1_enabled:
            from maxq.access import plain_acl_files  # imported only here: it loads yaml, which only ACL 1.0 needs

            self.plain = plain_acl_files.PlainAclFiles(disk, PurePath(settings.home), clock=clock)
        self._own = _credentials(auth.inner_client_authentication_credentials)
        self._first = _first_user(auth.init_authentication_user)
        judge = self._judge()
        self.guard = None if judge is None else Guard(judge, clock)

    def _judge(self) -> Judge | None:
        auth, plain = self._settings.auth, self.plain
        cluster_name = auth.cluster_name or self._settings.cluster
        if self._settings.acl_enable and plain is not None:
            return PlainJudge(lambda: plain.acl, cluster_name=cluster_name, strict=auth.strict_admin_authorization)
        if not auth.authentication_enabled:
            return None
        rules = PolicyRules(
            cluster_name=cluster_name,
            authorization=auth.authorization_enabled,
            authentication_whitelist=_codes(auth.authentication_whitelist),
            authorization_whitelist=_codes(auth.authorization_whitelist),
            stateful=auth.authentication_strategy == STATEFUL_AUTHENTICATION,
            strict=auth.strict_admin_authorization,
        )
        return PolicyJudge(rules, self.tables)

    def stand_before(self, server: RemotingEndpoint) -> None:
        """Check the requests of `server` with the guard, if there is one, and audit their outcomes."""
        if self.guard is not None:
            server.guard = self.guard
            server.on_outcome = self.guard.outcome

    def hooks(self) -> list[AclClientRPCHook]:
        """Return the hooks for this server's own requests to others."""
        return [] if self._own is None else [AclClientRPCHook(self._own)]

    def routes(self, identity: Callable[[], dict[str, str]]) -> Mapping[int, Processor]:
        """Return the handlers of the requests that show and change rules. `identity`: see PlainAclAdmin."""
        guard = self.guard
        users = AuthAdmin(self.tables, self.file, None if guard is None else guard.is_super)
        if not self._settings.acl_enable or self.plain is None:
            return users.routes()
        from maxq.access.plain_acl_admin import PlainAclAdmin

        return {**users.routes(), **PlainAclAdmin(self.plain, identity).routes()}

    def load(self) -> None:
        """Read the files, make the users that the settings name; blocks.

        Raises:
            ConfigError: that of users and policies, or those of ACL 1.0, cannot be used.
            OSError: the disk refuses.
        """
        self.file.load()
        before = self.tables.version
        for user in self._users_of_settings():
            if user.username not in self.tables.users:
                self.tables.create_user(user)
        if self._own is not None and self.tables.users[self._own.access_key].password != self._own.secret_key:
            log.warning(
                "innerClientAuthenticationCredentials gives user %s another secret than %s does: servers that have "
                "this file's users refuse the requests of this one; set the secret that is right in both places "
                "(maxq admin updateUser)",
                self._own.access_key, self.file.path,
            )  # fmt: skip
        if self.plain is not None:
            self.plain.load()
            if self._settings.auth.migrate_auth_from_v1_enabled:
                self._migrate(self.plain)
        if self.tables.version is not before:
            self.file.persist()
        if self._settings.auth.authentication_enabled and not any(user.is_super for user in self.tables.users.values()):
            log.warning(
                "authenticationEnabled is true and there is no user of type Super, so users cannot be made; set "
                "initAuthenticationUser"
            )

    def _users_of_settings(self) -> Iterator[User]:
        if self._first is not None:
            yield self._first
        if self._own is not None:
            yield User(self._own.access_key, self._own.secret_key, UserType.SUPER)

    def _migrate(self, plain: "PlainAclFiles") -> None:
        for account in plain.acl.accounts.values():
            if account.access_key not in self.tables.users:
                user, policies = migrated(account)
                self.tables.create_user(user)
                if policies:
                    self.tables.update_acl(f"User:{user.username}", policies)

    def start(self) -> None:
        """Start to look for changes of the files of rules (plain_acl.yml, ACL 1.0), if there is access control by
        them."""
        if self.plain is not None and self._settings.acl_enable:
            self.plain.start()

    async def shutdown(self) -> None:
        """Stop to look for changes of the files of rules."""
        if self.plain is not None:
            await self.plain.shutdown()

    def runtime_info(self) -> dict[str, str]:
        """Return refusals by cause since the start."""
        if self.guard is None:
            return {}
        return {f"accessRefused_{cause.value}": str(count) for cause, count in self.guard.audit.refused.items()}


def with_remedy(error: BaseException) -> str:
    """Return the text of an error for a server's log. If another server has refused this one's own requests, it names
    the setting that says as whom they are signed."""
    if isinstance(error, BrokerError) and error.code == ResponseCode.NO_PERMISSION:
        return (
            f"{error}; this server signs its own requests as innerClientAuthenticationCredentials says: the other one "
            "must know that user, with that secret, as a user of type Super"
        )
    return str(error)


def _check(settings: AccessSettings) -> None:
    auth = settings.auth
    if auth.authorization_enabled and not auth.authentication_enabled:
        raise ConfigError(
            "authorizationEnabled needs authenticationEnabled: without it access keys are not checked; set "
            "authenticationEnabled=true"
        )
    if settings.acl_enable and auth.authentication_enabled:
        raise ConfigError(
            "aclEnable (ACL 1.0) and authenticationEnabled (ACL 2.0) exclude each other; set aclEnable=false, and "
            "migrateAuthFromV1Enabled=true to take its accounts over"
        )
    if (settings.acl_enable or auth.migrate_auth_from_v1_enabled) and not settings.home:
        raise ConfigError("aclEnable needs rocketmqHome: the folder that holds conf/plain_acl.yml; set it")


def _codes(text: str) -> frozenset[int]:
    return frozenset(int(code) for code in text.split(",") if code.strip())


def _credentials(text: str) -> Credentials | None:
    """Parse the setting innerClientAuthenticationCredentials, a JSON object; None if it is empty."""
    if not text.strip():
        return None
    value = _object(text, "innerClientAuthenticationCredentials")
    access_key, secret_key = value.get("accessKey"), value.get("secretKey")
    if not access_key or not secret_key:
        raise ConfigError(
            'innerClientAuthenticationCredentials must be {"accessKey":"…","secretKey":"…"}, neither of them empty'
        )
    return Credentials(str(access_key), str(secret_key), str(value.get("securityToken") or ""))


def _first_user(text: str) -> User | None:
    """Parse the setting initAuthenticationUser, a JSON object; None if it is empty."""
    if not text.strip():
        return None
    value = _object(text, "initAuthenticationUser")
    if not value.get("username") or not value.get("password"):
        raise ConfigError('initAuthenticationUser must be {"username":"…","password":"…"}, neither of them empty')
    return User(str(value["username"]), str(value["password"]), UserType.SUPER)


def _object(text: str, name: str) -> dict[str, Any]:
    """Parse a JSON object; errors do not quote the text, because it contains secrets."""
    try:
        value = json_dialect.loads(text)
    except RemoteProtocolError:
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is no JSON object")
    return value
