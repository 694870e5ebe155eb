"""Settings of authentication and authorization: auth/config/AuthConfig.java of RocketMQ 5.5.0.

None of them is live: whoever may change settings of a running server can neither switch its access control off nor
point it at other files. Names of Java classes are only compared with known names; no setting loads code.
"""

from dataclasses import dataclass
from typing import Final

from maxq.config.forms import CODES
from maxq.config.setting import SettingsTable, setting

_JAVA: Final = "org.apache.rocketmq.auth"
_AUTHENTICATION: Final = f"{_JAVA}.authentication"
_AUTHORIZATION: Final = f"{_JAVA}.authorization"
_STATELESS: Final = f"{_AUTHENTICATION}.strategy.StatelessAuthenticationStrategy"
STATEFUL_AUTHENTICATION: Final = f"{_AUTHENTICATION}.strategy.StatefulAuthenticationStrategy"


@dataclass(frozen=True, init=False, eq=False, repr=False)
class AuthConfig(SettingsTable):
    """Settings of access control by users and policies (ACL 2.0). ACL 1.0: aclEnable."""

    authentication_enabled: bool = setting(
        False,
        "Refuse requests that are not signed by a user. The server's own requests are signed with "
        "innerClientAuthenticationCredentials.",
    )
    authorization_enabled: bool = setting(
        False, "Refuse requests that the policies of their user do not allow; needs authenticationEnabled."
    )
    strict_admin_authorization: bool = setting(
        True,
        "Require Update on the cluster for requests that RocketMQ allows to every user: settings, groups, "
        "cleaning. In ACL 1.0 it requires an administrator.",
    )
    init_authentication_user: str = setting(
        "",
        "User that is made at the start if none of that name exists, and that no rule binds: "
        '`{"username":"…","password":"…"}`.',
        secret=True,
    )
    inner_client_authentication_credentials: str = setting(
        "",
        "User with which this server signs its own requests, and that no rule binds: "
        '`{"accessKey":"…","secretKey":"…"}`.',
        secret=True,
    )
    cluster_name: str = setting(
        "", "Name of the cluster in policies (`Cluster:`); empty: brokerClusterName, on a name server no name."
    )
    auth_config_path: str = setting(
        "", "Folder of auth.json, which contains users and policies; empty: the folder of the other tables."
    )
    authentication_whitelist: str = setting(
        "", "Request codes that need no signature, separated by commas.", form=CODES
    )
    authorization_whitelist: str = setting(
        "", "Request codes that need no permission, separated by commas.", form=CODES
    )
    authentication_strategy: str = setting(
        "",
        "The stateful strategy checks a user's signature once a connection, the stateless one (also empty) always.",
        choices=("", _STATELESS, STATEFUL_AUTHENTICATION),
    )
    authorization_strategy: str = setting(
        "",
        "Both strategies are the same in MaxQ: decisions are remembered until a user or a policy changes.",
        choices=(
            "",
            f"{_AUTHORIZATION}.strategy.StatelessAuthorizationStrategy",
            f"{_AUTHORIZATION}.strategy.StatefulAuthorizationStrategy",
        ),
    )
    authentication_provider: str = setting(
        "",
        "Only one is available.",
        choices=("", f"{_AUTHENTICATION}.provider.DefaultAuthenticationProvider"),
    )
    authentication_metadata_provider: str = setting(
        "",
        "Only one is available.",
        choices=("", f"{_AUTHENTICATION}.provider.LocalAuthenticationMetadataProvider"),
    )
    authorization_provider: str = setting(
        "",
        "Only one is available.",
        choices=("", f"{_AUTHORIZATION}.provider.DefaultAuthorizationProvider"),
    )
    authorization_metadata_provider: str = setting(
        "",
        "Only one is available.",
        choices=("", f"{_AUTHORIZATION}.provider.LocalAuthorizationMetadataProvider"),
    )
    migrate_auth_from_v1_enabled: bool = setting(
        False, "Make users and policies from the accounts of plain_acl.yml at the start, if there are none yet."
    )
