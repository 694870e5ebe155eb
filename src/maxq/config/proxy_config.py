"""Settings of the gRPC server: proxy/config/ProxyConfig.java of RocketMQ 5.5.0, without those that a broker has too."""

from dataclasses import dataclass

from maxq.config.forms import ADDRESSES, NAME
from maxq.config.setting import HOUR_MS, SettingsTable, setting

_SECOND_MS = 1000


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ProxyConfig(SettingsTable):
    """Settings of what gRPC clients are allowed and told."""

    grpc_server_port: int = setting(
        0, "Port for gRPC clients, RocketMQ's 5.x ones; its proxy uses 8081. 0: none is opened.", low=0, high=65535
    )
    grpc_max_inbound_message_size: int = setting(
        130 * 1024 * 1024, "Longest gRPC message that is accepted.", unit="bytes", low=1024, high=2**31 - 1
    )
    grpc_shutdown_time_seconds: int = setting(
        30, "Longest wait for calls under way when the server stops.", unit="s", low=0
    )

    # --- Sending ---
    grpc_topic_message_type_check: bool = setting(
        True,
        "Refuse messages of gRPC clients whose type is not their topic's message.type; "
        "enableTopicMessageTypeCheck of RocketMQ's proxy, which a broker has for other clients.",
        live=True,
    )
    enable_message_body_empty_check: bool = setting(True, "Refuse messages without a body.", live=True)
    max_user_property_size: int = setting(
        16 * 1024, "Most bytes of a message's properties, tag and keys.", unit="bytes", low=0, live=True
    )
    user_property_max_num: int = setting(128, "Most properties of a message.", low=0, live=True)
    max_message_group_size: int = setting(
        64, "A message group is shorter than so many bytes; 0: any length.", unit="bytes", low=0, live=True
    )
    max_delay_time_mills: int = setting(
        24 * HOUR_MS, "Longest delay of a message; 0: any.", unit="ms", low=0, high=2**53, live=True
    )
    max_transaction_recovery_second: int = setting(
        3600, "Longest wait before a producer is asked about a transaction; 0: any.", unit="s", low=0, live=True
    )

    # --- Consuming ---
    default_invisible_time_mills: int = setting(
        60 * _SECOND_MS, "For how long a message is invisible to others that is renewed by the server.",
        unit="ms", low=_SECOND_MS, live=True,
    )  # fmt: skip
    min_invisible_time_mills_for_recv: int = setting(
        10 * _SECOND_MS, "Shortest time for which a consumer may ask for invisible messages.",
        unit="ms", low=0, live=True,
    )  # fmt: skip
    max_invisible_time_mills: int = setting(
        12 * HOUR_MS, "Longest time for which a message may be invisible; 0: any.", unit="ms", low=0, live=True
    )
    grpc_client_consumer_min_long_polling_timeout_millis: int = setting(
        5 * _SECOND_MS, "Shortest wait for messages of one request.", unit="ms", low=0, live=True
    )
    grpc_client_consumer_max_long_polling_timeout_millis: int = setting(
        20 * _SECOND_MS, "Longest wait for messages of one request.", unit="ms", low=1, live=True
    )
    grpc_client_consumer_long_polling_batch_size: int = setting(
        32, "Messages that a push consumer is told to ask for at once.", low=1, high=1024, live=True
    )

    # --- Receipts that are renewed while a push consumer works ---
    enable_proxy_auto_renew: bool = setting(
        True, "Renew the receipts of messages whose consumer asked for it, for as long as it is there.", live=True
    )
    max_renew_retry_times: int = setting(3, "Failures in a row after which a receipt is given up.", low=0, live=True)
    renew_ahead_time_millis: int = setting(
        10 * _SECOND_MS, "A receipt is renewed so long before the message would become visible.",
        unit="ms", low=1, live=True,
    )  # fmt: skip
    renew_max_time_millis: int = setting(
        3 * HOUR_MS, "Longest time for which a message's receipt is renewed; its consumer is then given up.",
        unit="ms", low=1, live=True,
    )  # fmt: skip
    renew_schedule_period_millis: int = setting(
        5 * _SECOND_MS, "Time between two looks for receipts to renew.", unit="ms", low=10, live=True
    )
    invisible_time_millis_when_clear: int = setting(
        _SECOND_MS, "After so long others get the messages of a consumer that has gone.", unit="ms", low=1, live=True
    )

    # --- What clients are told ---
    grpc_client_producer_max_attempts: int = setting(3, "Attempts of a send.", low=1, live=True)
    grpc_client_producer_backoff_initial_millis: int = setting(
        10, "Wait before the second attempt of a send.", unit="ms", low=0, live=True
    )
    grpc_client_producer_backoff_max_millis: int = setting(
        _SECOND_MS, "Longest wait between two attempts of a send.", unit="ms", low=0, live=True
    )
    grpc_client_producer_backoff_multiplier: int = setting(
        2, "By how much each wait is longer than the one before.", low=1, live=True
    )
    grpc_proxy_relay_request_timeout_in_seconds: int = setting(
        5, "Longest wait for what a client is asked on behalf of an administrator.", unit="s", low=1, live=True
    )


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ClusterProxyConfig(SettingsTable):
    """Settings of a proxy that runs by itself (`maxq proxy`), which a broker has from elsewhere."""

    rocketmq_cluster_name: str = setting(
        "DefaultCluster", "Cluster whose brokers know the consumer groups.", form=NAME, wire="rocketMQClusterName"
    )
    namesrv_addr: str = setting("", "Name servers, `host:port` separated by `;`.", form=ADDRESSES)
    max_message_size: int = setting(4 * 1024 * 1024, "Longest body of a message.", unit="bytes", low=1, live=True)
