"""Settings of a store: store/config/MessageStoreConfig.java of RocketMQ 5.5.0."""

from dataclasses import dataclass

from maxq.config.forms import DELAYS, HOST_PORT, HOURS, NETWORKS
from maxq.config.setting import HOUR_MS, MOST_OF_JAVA, YEAR_MS, SettingsTable, setting


@dataclass(frozen=True, init=False, eq=False, repr=False)
class MessageStoreConfig(SettingsTable):
    """Settings of where messages lie, and how they are flushed, recovered, read and deleted."""

    # --- Where ---
    store_path_root_dir: str = setting("", "Folder of the store; empty means `store` in the user's home.")
    store_path_commit_log: str = setting("", "Folder of the CommitLog; empty means `commitlog` under storePathRootDir.")
    broker_role: str = setting(
        "ASYNC_MASTER",
        "ASYNC_MASTER and SYNC_MASTER take messages, SLAVE copies them.",
        choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    )
    store_type: str = setting("default", "Kind of ConsumeQueue: files of 20-byte units.", choices=("default",))

    # --- Files ---
    mapped_file_size_commit_log: int = setting(
        1_073_741_824, "Size of a CommitLog file.", unit="bytes", low=4096, high=2_147_479_552
    )
    mapped_file_size_consume_queue: int = setting(
        6_000_000,
        "Size of a ConsumeQueue file; rounded up to whole 20-byte units.",
        unit="bytes",
        low=20,
        high=2_147_483_640,
    )
    mapper_file_size_batch_consume_queue: int = setting(
        13_800_000,
        "Size of a file of 46-byte units, for topics that keep batches whole.",
        unit="bytes",
        low=46,
        high=2_147_483_640,
    )
    max_hash_slot_num: int = setting(5_000_000, "Hash slots of an IndexFile.", low=1, high=100_000_000)
    max_index_num: int = setting(20_000_000, "Entries of an IndexFile.", low=2, high=100_000_000)
    message_index_enable: bool = setting(
        True, "Write the index of keys; switched on, it gets what came while it was off."
    )
    index_tag_enable: bool = setting(  # MaxQ's own: RocketMQ 5.5 always does, 5.3 never
        False, "Index messages by tag too, as RocketMQ 5.5 does: for `queryMsgByKey` with a tag."
    )
    message_index_safe: bool = setting(
        False, "Recover the index as far as the log says, not only as far as its own checkpoint."
    )
    enable_lmq: bool = setting(False, "Keep light queues (`%LMQ%…`) besides the queue of the topic.")
    enable_multi_dispatch: bool = setting(
        False, "Put a message into every queue its INNER_MULTI_DISPATCH property names."
    )
    max_lmq_consume_queue_num: int = setting(20_000, "Most light queues.", low=0, live=True)

    # --- Messages ---
    max_message_size: int = setting(
        4_194_304, "Largest body of a message.", unit="bytes", low=1, high=1_073_741_824, live=True
    )
    enabled_append_prop_crc: bool = setting(
        False, "Put a CRC of the whole record into its properties.", wire="enabledAppendPropCRC"
    )
    force_verify_prop_crc: bool = setting(
        False,
        "Check that CRC when recovering; a record without it is judged by the CRC of its body.",
        wire="forceVerifyPropCRC",
    )

    # --- Flushing ---
    flush_disk_type: str = setting(
        "ASYNC_FLUSH",
        "SYNC_FLUSH answers a send when it is on the platter, ASYNC_FLUSH when it is in the page cache.",
        choices=("ASYNC_FLUSH", "SYNC_FLUSH"),
    )
    sync_flush_timeout: int = setting(5000, "Longest wait for that, and for slaves.", unit="ms", low=1, live=True)
    flush_interval_commit_log: int = setting(
        500, "Longest wait between two asynchronous flushes.", unit="ms", low=1, high=HOUR_MS, live=True
    )
    flush_commit_log_least_pages: int = setting(
        4, "Pages of 4 KiB that must be waiting for a flush that is not thorough.", unit="pages", low=0, live=True
    )
    flush_commit_log_thorough_interval: int = setting(
        10_000, "Between two thorough flushes of the CommitLog.", unit="ms", low=1, high=HOUR_MS, live=True
    )
    flush_interval_consume_queue: int = setting(
        1000, "Between two flushes of the queues.", unit="ms", low=1, high=HOUR_MS, live=True
    )
    flush_consume_queue_least_pages: int = setting(
        2, "Pages that must be waiting in a queue for it to be flushed.", unit="pages", low=0, live=True
    )
    flush_consume_queue_thorough_interval: int = setting(
        60_000,
        "Between two thorough flushes of the queues; the checkpoint is written then.",
        unit="ms",
        low=1,
        high=HOUR_MS,
        live=True,
    )

    # --- Recovery ---
    check_crc_on_recover: bool = setting(True, "Check the CRC of bodies when recovering.", wire="checkCRCOnRecover")

    # --- Cleaning ---
    delete_when: str = setting(
        "04", "Hours of the day at which expired files go: two digits each, separated by `;`.", form=HOURS, live=True
    )
    file_reserved_time: int = setting(72, "Age at which a CommitLog file has expired.", unit="h", low=0, live=True)
    clean_resource_interval: int = setting(
        10_000, "Between two looks at what can be cleaned.", unit="ms", low=1, high=HOUR_MS, live=True
    )
    disk_max_used_space_ratio: int = setting(
        75, "Use of the partition from which files go at any hour.", unit="%", low=1, high=100, live=True
    )
    disk_space_clean_forcibly_ratio: int = setting(
        85, "Use from which even files that have not expired go.", unit="%", low=1, high=100, live=True
    )
    disk_space_warning_level_ratio: int = setting(
        90, "Use from which sends are refused.", unit="%", low=1, high=100, live=True
    )
    clean_file_forcibly_enable: bool = setting(True, "Let full disks take files that have not expired.", live=True)
    delete_file_batch_max: int = setting(10, "Most CommitLog files deleted in one round.", low=1, live=True)
    delete_commit_log_files_interval: int = setting(
        100, "Pause between deletions of two CommitLog files.", unit="ms", low=0, live=True
    )
    delete_consume_queue_files_interval: int = setting(
        100, "Pause between deletions of two ConsumeQueue files.", unit="ms", low=0, live=True
    )

    # --- Reading ---
    max_transfer_bytes_on_message_in_memory: int = setting(
        262_144, "Most bytes in one answer to a pull of recent messages.", unit="bytes", low=1, high=64 << 20, live=True
    )
    max_transfer_count_on_message_in_memory: int = setting(32, "Most messages in it.", low=1, live=True)
    max_transfer_bytes_on_message_in_disk: int = setting(
        65_536,
        "Most bytes in one answer to a pull of old messages that come from the disk.",
        unit="bytes",
        low=1,
        high=64 << 20,
        live=True,
    )
    max_transfer_count_on_message_in_disk: int = setting(8, "Most messages in it.", low=1, live=True)
    access_message_in_memory_max_ratio: int = setting(
        40,
        "Share of physical memory that counts as holding the end of the log.",
        unit="%",
        low=0,
        high=100,
        live=True,
    )
    enable_consume_queue_ext: bool = setting(
        False, "Write extension units beside the queues: for which consumers' expressions a message is."
    )
    mapped_file_size_consume_queue_ext: int = setting(
        50_331_648,
        "Size of their files; those of another size are not read any more.",
        unit="bytes",
        low=1024,
        high=1 << 31,
    )
    max_filter_message_size: int = setting(
        16_000, "Most queue bytes that a filtered pull may look at, at least.", unit="bytes", low=1, live=True
    )
    max_msgs_num_batch: int = setting(64, "Most messages in the answer to a query.", low=1, live=True)
    default_query_max_num: int = setting(
        32, "Messages in the answer to a query that names no number.", low=1, live=True
    )
    offset_check_in_slave: bool = setting(False, "Correct offsets that are out of range on a slave too.", live=True)

    # --- Overload ---
    os_page_cache_busy_time_out_mills: int = setting(
        1000,
        "An append that takes longer makes the broker refuse sends.",
        unit="ms",
        low=1,
        high=MOST_OF_JAVA,
        live=True,
    )

    # --- Delay levels and replication ---
    message_delay_level: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays of level 1, 2, …: a number and s, m, h or d.",
        form=DELAYS,
    )
    flush_delay_offset_interval: int = setting(
        10_000, "How often delayOffset.json is written.", unit="ms", low=10, high=HOUR_MS, live=True
    )
    enable_schedule_message_stats: bool = setting(
        True, "Count deliveries of delayed messages as reads by the group SCHEDULE_CONSUMER.", live=True
    )
    enable_schedule_async_deliver: bool = setting(
        False, "A slave that acts as master gives several messages of a delay level to another broker at a time; "
        "a master stores them itself and never waits.", live=True,
    )  # fmt: skip
    schedule_async_deliver_max_pending_limit: int = setting(
        2000, "So many messages of one level, at most.", low=1, live=True
    )
    schedule_async_deliver_max_resend_num2_blocked: int = setting(
        3, "No further ones while the first of them has been sent again more often than this.", low=0, live=True
    )
    timer_wheel_enable: bool = setting(True, "Take messages with a delivery time, and deliver them.")
    mapped_file_size_timer_log: int = setting(
        104_857_600, "Size of a timer log file; fixed for a store.", unit="bytes", low=68, high=2_147_483_640
    )
    timer_precision_ms: int = setting(
        1000,
        "How late a message with a delivery time may be; taken down to 100, 200, 500 or 1000. Another one is refused "
        "while such messages wait.",
        unit="ms",
        low=100,
    )
    timer_roll_window_slot: int = setting(
        172_800,
        "Slots of that length that a message lies ahead in the timer's wheel at most; from there it goes round again.",
        low=2,
    )
    timer_max_delay_sec: int = setting(
        259_200,
        "Longest delay of a message; one that is due later is refused.",
        unit="s",
        low=0,
        high=MOST_OF_JAVA,
        live=True,
    )
    timer_flush_interval_ms: int = setting(
        1000, "Wait between two checkpoints of the timer.", unit="ms", low=10, high=HOUR_MS, live=True
    )
    timer_congest_num_each_slot: int = setting(
        2_147_483_647,
        "Messages due at the same time from which on some are refused; twice as many, and all are.",
        low=0,
        live=True,
    )
    timer_stop_enqueue: bool = setting(False, "Leave timer messages where they are, unread.", live=True)
    timer_stop_dequeue: bool = setting(False, "Deliver no timer messages.", live=True)
    disappear_time_after_start: int = setting(
        -1, "Wait this long after a start before timer messages are delivered.", unit="ms", low=-1
    )
    append_topic_for_timer_delete_key: bool = setting(
        False, "Recall messages in the words of RocketMQ 5.3, for brokers that read no others.", live=True
    )
    ha_listen_port: int = setting(0, "Port for slaves; 0 means listenPort + 1.", low=0, high=65_535)
    in_sync_replicas: int = setting(
        0,
        "Copies, this broker's included, that a send to a SYNC_MASTER waits for; 1 waits for no slave; 0 (not given) "
        "for one slave.",
        low=0,
        live=True,
    )
    min_in_sync_replicas: int = setting(
        1, "With enableAutoInSyncReplicas: copies that a send waits for at least.", low=1, live=True
    )
    enable_auto_in_sync_replicas: bool = setting(
        False,
        "With enableSlaveActingMaster: wait for fewer copies than inSyncReplicas while fewer brokers are in sync.",
        live=True,
    )
    slave_timeout: int = setting(
        3000, "Longest wait of a send to a SYNC_MASTER for its slaves.", unit="ms", low=1, live=True
    )
    ha_max_gap_not_in_sync: int = setting(
        268_435_456,
        "A slave that is so far behind is not in sync (haSlaveFallbehindMax of RocketMQ 4).",
        unit="bytes",
        low=1,
        live=True,
    )
    ha_send_heartbeat_interval: int = setting(
        5000, "Between master and slave: say something after so long without writing.", unit="ms", low=1, live=True
    )
    ha_housekeeping_interval: int = setting(
        20_000, "Between master and slave: close a connection that was silent for so long.", unit="ms", low=1, live=True
    )
    ha_transfer_batch_size: int = setting(
        32_768,
        "Most log bytes in one frame to a slave; a Java slave takes 4 MiB.",
        unit="bytes",
        low=1,
        high=4_194_292,
        live=True,
    )
    ha_flow_control_enable: bool = setting(False, "Limit what each slave is sent in a second.", live=True)
    max_ha_transfer_byte_in_second: int = setting(
        104_857_600, "That limit, of one slave.", unit="bytes", low=1024, live=True
    )
    ha_master_address: str = setting(
        "",
        "Where a slave copies from, `host:port` of the master's haListenPort; empty means that the name servers say.",
        form=HOST_PORT,
    )
    total_replicas: int = setting(
        1, "Brokers of the group, this one included; above 1 a member of an acting-master group prepares first.", low=1
    )
    sync_master_flush_offset_when_startup: bool = setting(
        False, "A slave whose checkpoint knows no masterFlushedOffset takes it from its master."
    )

    # --- MaxQ's own, of replication ---
    peer_addresses: str = setting(
        "",
        "Who may connect to haListenPort and to the port of this DLedger member: IP addresses and networks "
        "(`10.0.0.0/8`), separated by `,`, of the group's brokers and of machines from which a DLedger group is "
        "administered. Other connections are closed. Empty: everybody, as in RocketMQ.",
        form=NETWORKS,
    )
    ha_full_copy: bool = setting(
        True, "An empty slave takes its master's whole log; false: only its last file, as in RocketMQ.", live=True
    )
    ha_repair_enable: bool = setting(
        True, "A slave fetches damaged parts of its log again from its master, over a second connection.", live=True
    )
    scrub_enable: bool = setting(
        False, "Read the whole log in the background and check the CRC of every record.", live=True
    )
    scrub_bytes_per_second: int = setting(
        16_777_216, "Most bytes that check reads in a second.", unit="bytes", low=65_536, live=True
    )
    scrub_interval: int = setting(
        86_400_000, "Pause between two such checks of the whole log.", unit="ms", low=1000, high=YEAR_MS, live=True
    )

    # --- Compaction, DLedger, timer messages and the rest ---
    compaction_mapped_file_size: int = setting(
        104_857_600, "Size of a log file of a compaction topic, about.", unit="bytes", low=4096, high=2_147_483_640
    )
    compaction_cq_mapped_file_size: int = setting(
        10_485_760,
        "Size of the file of units beside it; at least a fifth of it goes to the log.",
        unit="bytes",
        low=460,
        high=2_147_483_640,
    )
    compaction_schedule_internal: int = setting(
        900_000, "Interval between two compactions of a queue.", unit="ms", low=1, live=True
    )
    enable_compaction: bool = setting(
        True, "Keep compaction topics compacted; if not, their messages expire as those of other topics."
    )
    enable_dleger_commit_log: bool = setting(
        False,
        "This broker is a member of a DLedger group, which elects its master and whose majority must have a message on "
        "disk before it is acknowledged; brokerRole and brokerId follow from that.",
        wire="enableDLegerCommitLog",
    )
    dleger_group: str = setting("", "Name of the DLedger group, equal on all members.", wire="dLegerGroup")
    dleger_peers: str = setting(
        "", "All members of the group, id-host:port joined by ';', equal on all of them.", wire="dLegerPeers"
    )
    dleger_self_id: str = setting(
        "", "This member's id in dLegerPeers: one character and a number, such as n0.", wire="dLegerSelfId"
    )
    preferred_leader_id: str = setting("", "Members that lead if they can, ids joined by ';'.")
    dleger_heart_beat_interval: int = setting(
        400,
        "Time between a leader's heart-beats; a follower gives a leader up that it has not heard of for three of them.",
        unit="ms", low=10, high=60_000, wire="dLegerHeartBeatInterval",
    )  # fmt: skip
    store_path_dledger_commit_log: str = setting(
        "",
        "Folder of the DLedger data files; empty means `dledger-<dLegerSelfId>/data` under storePathRootDir.",
        wire="storePathDLedgerCommitLog",
    )
    mapped_file_size_dledger_index: int = setting(  # MaxQ's own: a Java broker always has the default
        167_772_160, "Size of a file of DLedger's index, 32 bytes an entry.",
        unit="bytes", low=4096, high=2_147_479_552, wire="mappedFileSizeDLedgerIndex",
    )  # fmt: skip
