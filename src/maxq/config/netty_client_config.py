"""Settings of outgoing connections: remoting/netty/NettyClientConfig.java of RocketMQ 5.5.0."""

from dataclasses import dataclass

from maxq.config.setting import SettingsTable, setting


@dataclass(frozen=True, init=False, eq=False, repr=False)
class NettyClientConfig(SettingsTable):
    """Settings of the client side of remoting: the connections that this process makes to other servers."""

    connect_timeout_millis: int = setting(3000, "Longest wait for a connection.", unit="ms", low=1)
    client_channel_max_idle_time_seconds: int = setting(
        120, "Close a connection on which nothing moves for this time.", unit="s", low=1
    )
    write_buffer_high_water_mark: int = setting(
        0, "Unsent bytes at which reading from a server pauses; 0 means 1 MiB.", unit="bytes", low=0, high=2_147_483_647
    )
    write_buffer_low_water_mark: int = setting(
        0,
        "Unsent bytes at which reading continues; 0 means a quarter of the high mark.",
        unit="bytes",
        low=0,
        high=2_147_483_647,
    )
    client_async_semaphore_value: int = setting(65_535, "Most requests under way at the same time.", low=1)
    client_close_socket_if_timeout: bool = setting(True, "Close a connection when an answer did not come in time.")
    use_tls: bool = setting(False, "Speak TLS to every server.", wire="useTLS")
    enable_reconnect_for_go_away: bool = setting(True, "Connect again when a server says that it ends.")

    # --- TLS; in Java these are system properties or lines of tls.config.file, here they are settings like others ---
    tls_config_file: str = setting(
        "/etc/rocketmq/tls.properties",
        "File with tls.… lines, which have precedence over these settings. Only that of the default may be missing.",
        wire="tls.config.file",
    )
    tls_client_auth_server: bool = setting(
        True,
        "Check the server's certificate. false: any certificate is accepted, so a machine in between can read and"
        " change everything.",
        wire="tls.client.authServer",
    )
    tls_client_check_name: bool = setting(
        True,
        "The certificate must be for the name or IP address of the connection. false: any certificate of the "
        "authorities is accepted, as RocketMQ's clients do.",
        wire="tls.client.checkName",
    )
    tls_client_trust_cert_path: str = setting(
        "",
        "Certificates of the authorities that sign servers, PEM; empty: those that the system trusts.",
        wire="tls.client.trustCertPath",
    )
    tls_client_key_path: str = setting("", "Private key of the client, PEM.", wire="tls.client.keyPath")
    tls_client_key_password: str = setting(
        "", "Password of the private key.", wire="tls.client.keyPassword", secret=True
    )
    tls_client_cert_path: str = setting("", "Certificate chain of the client, PEM.", wire="tls.client.certPath")

    # --- MaxQ's own ---
    frame_max_length: int = setting(
        16_777_216,
        "Longest frame that is taken; a longer one ends the connection.",
        unit="bytes",
        low=1024,
        high=2_147_483_647,
        wire="com.rocketmq.remoting.frameMaxLength",
    )
