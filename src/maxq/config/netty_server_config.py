"""Settings of a listening server: remoting/netty/NettyServerConfig.java of RocketMQ 5.5.0."""

from dataclasses import dataclass

from maxq.config.forms import ADDRESS, NETWORKS
from maxq.config.setting import SettingsTable, setting


@dataclass(frozen=True, init=False, eq=False, repr=False)
class NettyServerConfig(SettingsTable):
    """Settings of the server side of remoting: the connections that clients and brokers make to this server."""

    bind_address: str = setting(
        "",
        "Address that the server listens on; empty: 127.0.0.1 without access control, 0.0.0.0 with it.",
        form=ADDRESS,
    )
    listen_port: int = setting(0, "Port the server listens on; 0 takes a free one.", low=0, high=65_535)
    server_channel_max_idle_time_seconds: int = setting(
        120,
        "Close a connection after this time in each of three cases: nothing moves on it; no request on it was "
        "allowed; its peer takes less than 1,024 bytes a second of what waits for it.",
        unit="s",
        low=1,
    )
    server_socket_backlog: int = setting(1024, "Connections that may wait to be accepted.", low=1, high=65_535)
    write_buffer_high_water_mark: int = setting(
        0, "Unsent bytes at which reading from a client pauses; 0 means 1 MiB.", unit="bytes", low=0, high=2_147_483_647
    )
    write_buffer_low_water_mark: int = setting(
        0,
        "Unsent bytes at which reading continues; 0 means a quarter of the high mark.",
        unit="bytes",
        low=0,
        high=2_147_483_647,
    )
    server_async_semaphore_value: int = setting(64, "Most requests to clients under way at the same time.", low=1)
    enable_shutdown_gracefully: bool = setting(False, "Answer GO_AWAY for some time before closing.")
    shutdown_wait_time_seconds: int = setting(
        30, "How long GO_AWAY is answered, with enableShutdownGracefully.", unit="s", low=0, high=3600
    )

    # --- TLS; in Java these are system properties or lines of tls.config.file, here they are settings like others ---
    tls_server_mode: str = setting(
        "permissive",
        "permissive takes TLS and plain connections on the same port, enforcing TLS only, disabled plain "
        "connections only.",
        choices=("disabled", "permissive", "enforcing"),
        wire="tls.server.mode",
    )
    tls_config_file: str = setting(
        "/etc/rocketmq/tls.properties",
        "File with tls.… lines, which have precedence over these settings. Only that of the default may be missing.",
        wire="tls.config.file",
    )
    tls_test_mode_enable: bool = setting(
        True, "Serve TLS with a self-signed certificate made at start.", wire="tls.test.mode.enable"
    )
    tls_server_key_path: str = setting("", "Private key of the server, PEM.", wire="tls.server.keyPath")
    tls_server_key_password: str = setting(
        "", "Password of the private key.", wire="tls.server.keyPassword", secret=True
    )
    tls_server_cert_path: str = setting("", "Certificate chain of the server, PEM.", wire="tls.server.certPath")
    tls_server_need_client_auth: str = setting(
        "none",
        "Whether clients must show a certificate.",
        choices=("none", "optional", "require"),
        wire="tls.server.need.client.auth",
    )
    tls_server_auth_client: bool = setting(
        False, "Check client certificates against trustCertPath.", wire="tls.server.authClient"
    )
    tls_server_trust_cert_path: str = setting(
        "", "Certificates of the authorities that sign clients, PEM.", wire="tls.server.trustCertPath"
    )

    # --- MaxQ's own ---
    frame_max_length: int = setting(
        16_777_216,
        "Longest frame that is taken; a longer one ends the connection.",
        unit="bytes",
        low=1024,
        high=2_147_483_647,
        wire="com.rocketmq.remoting.frameMaxLength",
    )
    max_unsent_bytes: int = setting(
        67_108_864,
        "Unsent bytes at which a client that does not read its answers is closed.",
        unit="bytes",
        low=65_536,
    )
    max_unfinished_bytes: int = setting(
        268_435_456,
        "Bytes of unfinished frames of all clients together. Above it the client whose frame began first is "
        "disconnected, clients without a finished request before others; one frame is always taken.",
        unit="bytes",
        low=1_048_576,
    )

    proxy_protocol_trusted: str = setting(
        "",
        "Load balancers whose PROXY lines are believed: IP addresses and networks (`10.0.0.0/8`), separated by "
        "`,`. A PROXY line from another address ends the connection, because it would choose the address that "
        "white lists see.",
        form=NETWORKS,
    )

    highest_descriptor: int = setting(
        0,
        "Close a connection that would have a higher file descriptor, to leave the rest for the store's files. 0:"
        " the limit of the process, minus 512 or half of it.",
        low=0,
    )
