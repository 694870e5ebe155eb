"""Settings of authentication and authorization: auth/config/AuthConfig.java of RocketMQ 5.5.0."""

from dataclasses import dataclass

from maxq.config.setting import SettingsTable, parity


@dataclass(frozen=True, eq=False, repr=False)
class AuthConfig(SettingsTable):
    """Access control. Nothing of it is built yet, so switching it on is refused."""

    # --- taken so that existing files load; MaxQ does not act on these ---
    config_name: str = parity("")
    cluster_name: str = parity("")
    auth_config_path: str = parity("")
    authentication_enabled: bool = parity(
        False, unsupported="authentication is not built yet, and requests would pass unchecked"
    )
    authentication_provider: str = parity("")
    authentication_metadata_provider: str = parity("")
    authentication_strategy: str = parity("")
    authentication_whitelist: str = parity("")
    init_authentication_user: str = parity("", secret=True)
    inner_client_authentication_credentials: str = parity("", secret=True)
    authorization_enabled: bool = parity(
        False, unsupported="authorization is not built yet, and requests would pass unchecked"
    )
    authorization_provider: str = parity("")
    authorization_metadata_provider: str = parity("")
    authorization_strategy: str = parity("")
    authorization_whitelist: str = parity("")
    migrate_auth_from_v1_enabled: bool = parity(False)
    user_cache_max_num: int = parity(1000)
    user_cache_expired_second: int = parity(600)
    user_cache_refresh_second: int = parity(60)
    acl_cache_max_num: int = parity(1000)
    acl_cache_expired_second: int = parity(600)
    acl_cache_refresh_second: int = parity(60)
    stateful_authentication_cache_max_num: int = parity(10_000)
    stateful_authentication_cache_expired_second: int = parity(60)
    stateful_authorization_cache_max_num: int = parity(10_000)
    stateful_authorization_cache_expired_second: int = parity(60)
