"""Settings of a broker: common/BrokerConfig.java and BrokerIdentity.java of RocketMQ 5.5.0."""

from dataclasses import dataclass

from maxq.config.forms import ADDRESS, ADDRESSES, NAME, USER_QUOTAS
from maxq.config.setting import HOUR_MS, MONTH_MS, MOST_OF_JAVA, YEAR_MS, SettingsTable, setting


@dataclass(frozen=True, init=False, eq=False, repr=False)
class BrokerConfig(SettingsTable):
    """Settings of what one broker is and allows. Thread pools have no meaning here."""

    # --- Identity and addresses ---
    broker_name: str = setting("", "Name of the group of a master and its slaves; empty: the host name.", form=NAME)
    broker_cluster_name: str = setting("DefaultCluster", "Cluster in which this broker registers.", form=NAME)
    broker_id: int = setting(0, "0 is the master, a larger number a slave; -1 is in files of DLedger groups.", low=-1)
    broker_ip1: str = setting("", "Address given to clients; empty: detect it.", form=ADDRESS, wire="brokerIP1")
    broker_ip2: str = setting(
        "", "Address given to slaves for replication; empty: brokerIP1.", form=ADDRESS, wire="brokerIP2"
    )
    listen_port: int = setting(10_911, "Port for clients; the VIP port is two below it.", low=0, high=65535)
    namesrv_addr: str = setting("", "Name servers, `host:port` separated by `;`; empty: none.", form=ADDRESSES)
    broker_config_path: str = setting("", "File that the settings came from; live updates are written back to it.")
    region_id: str = setting("DefaultRegion", "Region written into messages for tracing.")

    # --- Access control (ACL 2.0: authenticationEnabled) ---
    acl_enable: bool = setting(
        False, "ACL 1.0: refuse requests that conf/plain_acl.yml and the files in conf/acl do not allow."
    )
    rocketmq_home: str = setting(
        "", "Folder that contains `conf` with the files of ACL 1.0; empty: the environment's ROCKETMQ_HOME."
    )

    # --- Registration with name servers ---
    register_name_server_period: int = setting(
        30_000, "Time between two registrations with every name server.", unit="ms", low=1, high=60_000
    )
    register_broker_timeout_mills: int = setting(
        24_000, "Longest wait for a name server's answer to a registration.", unit="ms", low=1
    )
    update_name_server_addr_period: int = setting(
        120_000, "Time between two resolutions of the names in namesrvAddr.", unit="ms", low=1
    )
    force_register: bool = setting(
        True,
        "Register completely every time, without asking first whether the name server knows the data version.",
        live=True,
    )
    compressed_register: bool = setting(False, "Compress the bodies of registrations.", live=True)
    enable_split_registration: bool = setting(False, "Send large topic tables in several registrations.", live=True)
    split_registration_size: int = setting(
        800, "Topics in one registration, with enableSplitRegistration.", low=1, live=True
    )
    enable_single_topic_register: bool = setting(
        False, "Announce a new topic by request 217 instead of a registration with one topic.", live=True
    )
    broker_permission: int = setting(
        6, "Permission of all topics of this broker: 4 read + 2 write.", low=0, high=7, live=True
    )

    # --- Topics and groups ---
    default_topic_queue_nums: int = setting(
        8, "Most queues that an automatically created topic gets.", low=1, high=65_535, live=True
    )
    max_queues_of_topic: int = setting(
        1_024,
        "Most queues of a new topic, and most retry queues of a group, because answers about a topic contain all "
        "of them. A topic that has more keeps them.",
        low=1,
        high=65_535,
        live=True,
    )
    auto_create_topic_enable: bool = setting(True, "Create an unknown topic at its first message.", live=True)
    auto_create_subscription_group: bool = setting(
        True, "Create an unknown consumer group when it is first used.", live=True
    )
    cluster_topic_enable: bool = setting(True, "Give the topic named like the cluster its permissions.")
    broker_topic_enable: bool = setting(True, "Give the topic named like the broker its permissions.")
    trace_topic_enable: bool = setting(False, "Create the message trace topic at start.")
    msg_trace_topic_name: str = setting("RMQ_SYS_TRACE_TOPIC", "Name of the message trace topic.", form=NAME)
    trace_on: bool = setting(True, "Tell clients to send traces (in the answer to a send).", live=True)
    validate_system_topic_when_update_topic: bool = setting(
        True, "Refuse to change system topics by admin requests.", live=True
    )
    clear_retry_topic_when_delete_topic: bool = setting(True, "Delete a topic's pop retry topics with it.", live=True)
    enable_create_sys_group: bool = setting(True, "Create the groups of the system's own consumers at start.")
    revive_queue_num: int = setting(
        8, "Queues of the topic that pop consumption revives messages from.", low=1, high=65_535
    )
    enable_mixed_message_type: bool = setting(False, "Take any type of message in any topic.", live=True)
    forward_timeout: int = setting(
        3000,
        "Longest wait for the broker that has another part of a static topic's queue.",
        unit="ms",
        low=1,
        live=True,
    )
    enable_topic_message_type_check: bool = setting(
        False, "Refuse messages whose type is not their topic's message.type (NORMAL if it has none).", live=True
    )
    enable_split_metadata: bool = setting(True, "Answer metadata requests of slaves in parts.", live=True)
    split_metadata_size: int = setting(2000, "Entries in one part, with enableSplitMetadata.", low=1, live=True)

    # --- Sending ---
    store_reply_message_enable: bool = setting(True, "Store reply messages, and also pass them on.", live=True)
    recall_message_enable: bool = setting(False, "Let senders take back messages that are not due yet.", live=True)
    allow_recall_when_broker_not_writeable: bool = setting(
        True, "Let senders take back messages also while brokerPermission forbids sends.", live=True
    )
    enable_property_filter: bool = setting(False, "Let consumers select messages by SQL92 expressions.", live=True)
    filter_support_retry: bool = setting(
        False, "Test retried messages by the expression for the topic they come from, if the retry topic has one.",
        live=True,
    )  # fmt: skip
    filter_data_clean_time_span: int = setting(
        86_400_000,
        "How long the expressions of a group are kept after it has gone.",
        unit="ms",
        low=0,
        high=YEAR_MS,
        live=True,
    )
    enable_calc_filter_bit_map: bool = setting(
        False,
        "Mark in ConsumeQueueExt for which consumers' expressions a message matches; needs enableConsumeQueueExt.",
        live=True,
    )
    expect_consumer_num_use_filter: int = setting(
        32,
        "Number of consumers of a topic for which the marks of enableCalcFilterBitMap have room.",
        low=1,
        high=10_000,
    )
    max_error_rate_of_bloom_filter: int = setting(
        20, "Share of messages that are marked for a consumer by chance.", unit="%", low=1, high=99
    )
    reject_transaction_message: bool = setting(False, "Refuse half messages.", live=True)
    start_accept_send_request_time_stamp: int = setting(
        0, "Refuse sends before this time.", unit="ms", low=0, high=253_402_300_799_999, live=True
    )

    # --- Pulling and consuming ---
    long_polling_enable: bool = setting(True, "Hold a pull that finds nothing until a message comes.", live=True)
    short_polling_time_mills: int = setting(
        1000, "How long a pull that finds nothing is held when long polling is off.", unit="ms", low=1, live=True
    )
    notify_consumer_ids_changed_enable: bool = setting(True, "Tell the members of a group when it changes.", live=True)
    reject_pull_consumer_enable: bool = setting(
        False, "Refuse pulls of consumers that are not push consumers.", live=True
    )
    lite_pull_message_enable: bool = setting(True, "Answer lite pulls (request 361).", live=True)
    slave_read_enable: bool = setting(
        False, "Let a slave answer pulls; the master suggests it to consumers that are far behind.", live=True
    )
    disable_consume_if_consumer_read_slowly: bool = setting(
        False, "Shut out groups that are too far behind.", live=True
    )
    consumer_fallbehind_threshold: int = setting(
        17_179_869_184, "Bytes behind which a group is too far.", unit="bytes", low=0, high=2**50, live=True
    )
    use_server_side_reset_offset: bool = setting(
        True, "Reset offsets at the broker instead of through the consumers.", live=True
    )

    # --- Offsets and clients ---
    flush_consumer_offset_interval: int = setting(
        5000, "Time between two writes of consumerOffset.json.", unit="ms", low=1, high=HOUR_MS, live=True
    )
    consumer_offset_update_version_step: int = setting(
        500, "Offset commits after which the data version of the offsets is increased.", low=1, live=True
    )
    channel_expired_timeout: int = setting(
        120_000, "Time without a heartbeat after which a client counts as gone.", unit="ms", low=1, live=True
    )
    real_time_notify_consumer_change: bool = setting(True, "Tell groups of a change at once.", live=True)
    enable_register_producer: bool = setting(True, "Keep a table of producers from their heartbeats.", live=True)

    # --- Broker group ---
    enable_slave_acting_master: bool = setting(
        False, "The living slave with the smallest id stands in for a master that is gone: reads, queue locks, offsets."
    )
    enable_remote_escape: bool = setting(
        False, "An acting slave sends messages that it must write to another broker group that has the topic."
    )
    skip_pre_online: bool = setting(
        False, "Go online at once, without waiting for slaves to connect and taking consumer offsets back from them."
    )
    compatible_with_old_name_srv: bool = setting(
        True, "Use requests that name servers of 4.x know, too, for group members and heartbeats."
    )
    broker_heartbeat_interval: int = setting(
        1000, "Time between heartbeats to the name servers, with enableSlaveActingMaster.", unit="ms", low=100
    )
    send_heartbeat_timeout_millis: int = setting(
        1000, "Longest wait for a name server's answer to a heartbeat.", unit="ms", low=1
    )
    broker_not_active_timeout_millis: int = setting(
        10_000,
        "Time without a heartbeat after which name servers forget this broker, with enableSlaveActingMaster.",
        unit="ms",
        low=100,
    )
    sync_broker_member_group_period: int = setting(
        1000,
        "Time between two questions for the members of the group, with enableSlaveActingMaster.",
        unit="ms",
        low=100,
    )
    load_balance_poll_name_server_interval: int = setting(
        30_000, "Age at which a route for enableRemoteEscape is asked for again.", unit="ms", low=1, live=True
    )

    # --- Overload ---
    broker_fast_failure_enable: bool = setting(
        True, "Refuse requests that waited too long instead of handling them too late.", live=True
    )
    wait_time_mills_in_send_queue: int = setting(
        200, "Longest wait of a send before it is refused.", unit="ms", low=1, high=MOST_OF_JAVA, live=True
    )
    wait_time_mills_in_pull_queue: int = setting(
        5000, "Longest wait of a pull before it is refused.", unit="ms", low=1, high=MOST_OF_JAVA, live=True
    )
    wait_time_mills_in_lite_pull_queue: int = setting(
        5000, "Longest wait of a lite pull before it is refused.", unit="ms", low=1, high=MOST_OF_JAVA, live=True
    )
    wait_time_mills_in_heartbeat_queue: int = setting(
        31_000, "Longest wait of a heartbeat before it is refused.", unit="ms", low=1, high=MOST_OF_JAVA, live=True
    )
    wait_time_mills_in_admin_broker_queue: int = setting(
        5000, "Longest wait of an admin request before it is refused.", unit="ms", low=1, high=MOST_OF_JAVA, live=True
    )
    send_thread_pool_queue_capacity: int = setting(
        10_000, "Sends that may wait at the same time; more are refused.", low=1, live=True
    )
    pull_thread_pool_queue_capacity: int = setting(
        100_000, "Pulls that may wait at the same time; more are refused.", low=1, live=True
    )
    lite_pull_thread_pool_queue_capacity: int = setting(
        100_000, "Lite pulls that may wait at the same time; more are refused.", low=1, live=True
    )
    query_thread_pool_queue_capacity: int = setting(
        20_000, "Queries that may wait at the same time; more are refused.", low=1, live=True
    )
    reply_thread_pool_queue_capacity: int = setting(
        10_000, "Replies to clients that may be under way at the same time.", low=1, live=True
    )

    bulk_pull_max_bytes: int = setting(
        8 * 1024 * 1024,
        "Largest answer to a reader that asks for large answers, such as Spark; 0: as to other readers.",
        unit="bytes",
        low=0,
        high=15 * 1024 * 1024,
        live=True,
    )

    # --- Statistics and settings ---
    auto_delete_unused_stats: bool = setting(True, "Forget the statistics of deleted topics and groups.", live=True)
    enable_detail_stat: bool = setting(True, "Keep statistics by queue.")
    config_black_list: str = setting(
        "configBlackList;brokerConfigPath",
        "Settings, separated by `;`, that a live update refuses in addition to those that are not live.",
    )

    user_quotas: str = setting(
        "",
        "Messages and bytes that users (by access key) may send and receive per second: "
        "`user:bytes=N,messages=N`, separated by `;`.",
        form=USER_QUOTAS,
        live=True,
    )

    # --- Metrics ---
    metrics_exporter_type: str = setting(
        "DISABLE",
        "PROM: serve metrics, health and readiness over HTTP. OTLP_GRPC: send metrics to a collector. "
        "LOG: write them to the log.",
        choices=("DISABLE", "OTLP_GRPC", "PROM", "LOG"),
    )
    metrics_grpc_exporter_target: str = setting(
        "",
        "Collector that takes OTLP over gRPC, `http://host:port`; with https:// or without a scheme the "
        "connection uses TLS.",
    )
    metrics_grpc_exporter_header: str = setting(
        "", "Headers of each request to the collector, `name:value` separated by `,`.", secret=True
    )
    metric_grpc_exporter_time_out_in_mills: int = setting(
        3000, "Longest time of a request to the collector.", unit="ms", low=1
    )
    metric_grpc_exporter_interval_in_mills: int = setting(
        60_000, "Time between two exports of metrics.", unit="ms", low=100
    )
    metrics_export_batch_max_data_points: int = setting(1000, "Data points in one request to the collector.", low=1)
    metrics_in_delta: bool = setting(
        False,
        "Send counters and histograms to the collector as the change since the last export, with the label "
        "`aggregation=delta`. The served page keeps totals, as in RocketMQ.",
    )
    metric_logging_exporter_interval_in_mills: int = setting(
        10_000, "Time between two writes of metrics to the log.", unit="ms", low=100
    )
    metrics_prom_exporter_host: str = setting(
        "", "Address on which metrics are served; empty: brokerIP1.", form=ADDRESS
    )
    metrics_prom_exporter_port: int = setting(
        5557, "Port on which metrics are served; 0: any free one.", low=0, high=65535
    )
    metrics_label: str = setting("", "Labels added to every metric, `name:value` separated by `,`.")
    metrics_otel_cardinality_limit: int = setting(50_000, "Most label sets that one metric shows.", low=1)
    enable_remoting_metrics: bool = setting(True, "Show how long requests took.")
    enable_message_store_metrics: bool = setting(True, "Show the metrics of the store.")
    enable_pop_metrics: bool = setting(True, "Show the metrics of pop consumption.")
    enable_connection_metrics: bool = setting(True, "Show how many clients are connected.")
    enable_transaction_metrics: bool = setting(True, "Show the metrics of transactions.")
    enable_stats_metrics: bool = setting(True, "Show the number of topics and groups, permission and water marks.")
    enable_request_metrics: bool = setting(True, "Show messages and bytes in and out.")
    enable_lag_and_dlq_metrics: bool = setting(True, "Show how far groups are behind, and dead letters.")

    # --- Groups, pop, transactions ---
    subscription_expired_timeout: int = setting(
        600_000,
        "Time after its last pop at which a group without heartbeats is forgotten.",
        unit="ms",
        low=0,
        high=YEAR_MS,
        live=True,
    )
    default_message_request_mode: str = setting(
        "PULL", "How groups ask for messages if the broker assigns their queues, unless setConsumeMode says otherwise.",
        choices=("PULL", "POP"), live=True,
    )  # fmt: skip
    pop_polling_size: int = setting(1024, "Pops that may wait for the same topic, group and queue.", low=0, live=True)
    max_pop_polling_size: int = setting(100_000, "Pops that may wait in total.", low=0, live=True)
    revive_interval: int = setting(1000, "Time between two checks of the revive topic.", unit="ms", low=10, live=True)
    revive_scan_time: int = setting(
        10_000, "Longest time that one queue of the revive topic is read without a pause.", unit="ms", low=1, live=True
    )
    pop_ck_stay_buffer_time: int = setting(
        10_000, "Age at which a check point that is still open goes to the revive topic.", unit="ms", low=0, live=True
    )
    pop_ck_stay_buffer_time_out: int = setting(
        3000,
        "A check point whose time ends within this time stays in memory and is revived from there.",
        unit="ms",
        low=0,
        live=True,
    )
    pop_ck_max_buffer_size: int = setting(
        200_000, "Check points in memory; beyond that the oldest go to the revive topic.", low=1, live=True
    )
    enable_notify_after_pop_order_lock_release: bool = setting(
        True, "Wake waiting clients when a queue popped in order may be read again.", live=True
    )
    init_pop_offset_by_check_msg_in_mem: bool = setting(
        True, "A new group that begins at the end gets all messages of a young queue.", live=True
    )
    retrieve_message_from_pop_retry_topic_v1: bool = setting(
        True, "With enableRetryTopicV2: also read retry topics with the older names.", live=True
    )
    enable_retry_topic_v2: bool = setting(
        False, "Name retry topics of pop consumption with + between group and topic.", live=True
    )
    pop_from_retry_probability: int = setting(
        20, "Percentage of pops that read the retry topic first.", unit="%", low=0, high=100, live=True
    )
    pop_from_retry_probability_for_priority: int = setting(
        0, "The same percentage for a topic whose queues are priorities.", unit="%", low=0, high=100, live=True
    )
    priority_order_asc: bool = setting(
        True, "Pops read queues from the highest id down: a larger number is a higher priority.", live=True
    )
    use_separate_retry_queue: bool = setting(
        False, "Retry topics of pop consumption have as many queues as the topic.", live=True
    )
    use_message_filter_for_notification: bool = setting(
        True, "A notification with tags looks at the tags of the messages that wait.", live=True
    )
    max_message_filter_num_for_notification: int = setting(
        64, "useMessageFilterForNotification applies if fewer messages than this wait.", low=0, live=True
    )
    server_load_balancer_enable: bool = setting(
        True, "Divide queues among members that ask for an assignment; false: each gets all.", live=True
    )
    default_pop_share_queue_num: int = setting(
        -1, "Other members whose queues a member in mode POP shares; 0 or less: all.", low=-(2**31), live=True
    )
    transaction_time_out: int = setting(
        6000,
        "Age at which a half message's producer is asked about its state.",
        unit="ms",
        low=0,
        high=MONTH_MS,
        live=True,
    )
    transaction_check_max: int = setting(
        15, "Checks after which a half message is given up (TRANS_CHECK_MAX_TIME_TOPIC).", low=1, live=True
    )
    transaction_check_interval: int = setting(
        30_000, "Time between two rounds of checks of half messages.", unit="ms", low=1, live=True
    )
    transaction_metric_flush_interval: int = setting(
        10_000, "Time between two writes of transactionMetrics.", unit="ms", low=1, high=HOUR_MS, live=True
    )
    transaction_op_msg_max_size: int = setting(
        4096,
        "Bytes of offsets of ended half messages at which an op message is written at once.",
        unit="bytes",
        low=1,
        high=1 << 20,
        live=True,
    )
    transaction_op_batch_interval: int = setting(
        3000, "Longest wait of an ended half message for its op message.", unit="ms", low=1, live=True
    )
    delay_offset_update_version_step: int = setting(
        200, "Deliveries of delayed messages after which delayOffset.json gets a new version.", low=1, live=True
    )
    pop_response_return_actual_retry_topic: bool = setting(
        False, "Return messages of a retry topic under its name, not under the topic they came from.", live=True
    )
    pop_inflight_message_threshold: int = setting(
        10_000,
        "With enablePopMessageThreshold: unacknowledged messages of a queue at which no more are given out.",
        low=0,
        live=True,
    )
    enable_pop_message_threshold: bool = setting(
        False, "Stop giving out messages of a queue that has too many unacknowledged ones.", live=True
    )
    skip_when_ck_re_put_reach_max_times: bool = setting(
        False, "Give up a message that could not be revived 17 times.", live=True, wire="skipWhenCKRePutReachMaxTimes"
    )
