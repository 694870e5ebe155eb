"""Settings of a store: store/config/MessageStoreConfig.java of RocketMQ 5.5.0."""

from dataclasses import dataclass

from maxq.config.forms import DELAYS, HOST_PORT, HOURS, NETWORKS
from maxq.config.setting import HOUR_MS, MOST_OF_JAVA, YEAR_MS, SettingsTable, setting


@dataclass(frozen=True, init=False, eq=False, repr=False)
class MessageStoreConfig(SettingsTable):
    """Settings of where messages lie, and how they are flushed, recovered, read and deleted."""

    # --- Where ---
    store_path_root_dir: str = setting("", "Folder of the store; empty: `store` in the user's home.")
    store_path_commit_log: str = setting("", "Folder of the CommitLog; empty: `commitlog` under storePathRootDir.")
    broker_role: str = setting(
        "ASYNC_MASTER",
        "ASYNC_MASTER and SYNC_MASTER take messages, SLAVE copies them.",
        choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    )
    store_type: str = setting("default", "Kind of ConsumeQueue: files with entries of 20 bytes.", choices=("default",))

    # --- Files ---
    mapped_file_size_commit_log: int = setting(
        1_073_741_824, "Size of a CommitLog file.", unit="bytes", low=4096, high=2_147_479_552
    )
    mapped_file_size_consume_queue: int = setting(
        6_000_000,
        "Size of a ConsumeQueue file; rounded up to whole entries of 20 bytes.",
        unit="bytes",
        low=20,
        high=2_147_483_640,
    )
    mapper_file_size_batch_consume_queue: int = setting(
        13_800_000,
        "Size of a file of entries of 46 bytes, for topics that keep batches whole.",
        unit="bytes",
        low=46,
        high=2_147_483_640,
    )
    max_hash_slot_num: int = setting(5_000_000, "Hash slots of an IndexFile.", low=1, high=100_000_000)
    max_index_num: int = setting(20_000_000, "Entries of an IndexFile.", low=2, high=100_000_000)
    message_index_enable: bool = setting(
        True, "Write the index of keys. When it is switched on, messages that came while it was off are indexed, too."
    )
    index_tag_enable: bool = setting(  # MaxQ's own: RocketMQ 5.5 always does, 5.3 never
        False, "Index messages by tag too, as RocketMQ 5.5 does: for `queryMsgByKey` with a tag."
    )
    message_index_safe: bool = setting(
        False, "Recover the index as far as the log reaches, not only as far as its own checkpoint."
    )
    enable_lmq: bool = setting(False, "Keep light queues (`%LMQ%…`) in addition to the queue of the topic.")
    enable_multi_dispatch: bool = setting(
        False, "Put a message into every queue that its property INNER_MULTI_DISPATCH names."
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
        "Check the CRC of the whole record when recovering; a record without it is checked by the CRC of its body.",
        wire="forceVerifyPropCRC",
    )

    # --- Flushing ---
    flush_disk_type: str = setting(
        "ASYNC_FLUSH",
        "SYNC_FLUSH answers a send when the message is on disk, ASYNC_FLUSH when it is in the page cache.",
        choices=("ASYNC_FLUSH", "SYNC_FLUSH"),
    )
    sync_flush_timeout: int = setting(
        5000, "Longest wait of a send for the disk and for slaves.", unit="ms", low=1, live=True
    )
    flush_interval_commit_log: int = setting(
        500, "Longest wait between two asynchronous flushes.", unit="ms", low=1, high=HOUR_MS, live=True
    )
    flush_commit_log_least_pages: int = setting(
        4, "Pages of 4 KiB that must be waiting for an ordinary flush.", unit="pages", low=0, live=True
    )
    flush_commit_log_thorough_interval: int = setting(
        10_000, "Time between two flushes of everything in the CommitLog.", unit="ms", low=1, high=HOUR_MS, live=True
    )
    flush_interval_consume_queue: int = setting(
        1000, "Time between two flushes of the queues.", unit="ms", low=1, high=HOUR_MS, live=True
    )
    flush_consume_queue_least_pages: int = setting(
        2, "Pages that must be waiting in a queue for it to be flushed.", unit="pages", low=0, live=True
    )
    flush_consume_queue_thorough_interval: int = setting(
        60_000,
        "Time between two flushes of everything in the queues, after which the checkpoint is written.",
        unit="ms",
        low=1,
        high=HOUR_MS,
        live=True,
    )

    # --- Recovery ---
    check_crc_on_recover: bool = setting(True, "Check the CRC of bodies when recovering.", wire="checkCRCOnRecover")

    # --- Cleaning ---
    delete_when: str = setting(
        "04",
        "Hours of the day at which expired files are deleted: two digits each, separated by `;`.",
        form=HOURS,
        live=True,
    )
    file_reserved_time: int = setting(72, "Age at which a CommitLog file has expired.", unit="h", low=0, live=True)
    clean_resource_interval: int = setting(
        10_000, "Time between two checks of what can be deleted.", unit="ms", low=1, high=HOUR_MS, live=True
    )
    disk_max_used_space_ratio: int = setting(
        75,
        "Use of the partition above which expired files are deleted at any hour.",
        unit="%",
        low=1,
        high=100,
        live=True,
    )
    disk_space_clean_forcibly_ratio: int = setting(
        85,
        "Use of the partition above which even files that have not expired are deleted.",
        unit="%",
        low=1,
        high=100,
        live=True,
    )
    disk_space_warning_level_ratio: int = setting(
        90, "Use of the partition above which sends are refused.", unit="%", low=1, high=100, live=True
    )
    clean_file_forcibly_enable: bool = setting(
        True, "Delete files that have not expired when the disk is full.", live=True
    )
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
    max_transfer_count_on_message_in_memory: int = setting(
        32, "Most messages in one answer to a pull of recent messages.", low=1, live=True
    )
    max_transfer_bytes_on_message_in_disk: int = setting(
        65_536,
        "Most bytes in one answer to a pull of old messages that come from the disk.",
        unit="bytes",
        low=1,
        high=64 << 20,
        live=True,
    )
    max_transfer_count_on_message_in_disk: int = setting(
        8, "Most messages in one answer to a pull of old messages that come from the disk.", low=1, live=True
    )
    access_message_in_memory_max_ratio: int = setting(
        40,
        "Percentage of physical memory that is assumed to hold the end of the log.",
        unit="%",
        low=0,
        high=100,
        live=True,
    )
    enable_consume_queue_ext: bool = setting(
        False, "Write extension entries beside the queues: for which consumers' expressions a message matches."
    )
    mapped_file_size_consume_queue_ext: int = setting(
        50_331_648,
        "Size of the files of extension entries; files of another size are not read any more.",
        unit="bytes",
        low=1024,
        high=1 << 31,
    )
    max_filter_message_size: int = setting(
        16_000, "Bytes of a queue that a filtered pull may examine at least.", unit="bytes", low=1, live=True
    )
    max_msgs_num_batch: int = setting(64, "Most messages in the answer to a query.", low=1, live=True)
    default_query_max_num: int = setting(
        32, "Messages in the answer to a query that names no number.", low=1, live=True
    )
    offset_check_in_slave: bool = setting(False, "Correct offsets that are out of range on a slave, too.", live=True)

    # --- Overload ---
    os_page_cache_busy_time_out_mills: int = setting(
        1000,
        "Time of an append above which the broker refuses sends.",
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
        10_000, "Time between two writes of delayOffset.json.", unit="ms", low=10, high=HOUR_MS, live=True
    )
    enable_schedule_message_stats: bool = setting(
        True, "Count deliveries of delayed messages as reads by the group SCHEDULE_CONSUMER.", live=True
    )
    enable_schedule_async_deliver: bool = setting(
        False, "An acting slave sends several messages of a delay level to another broker at the same time. A master "
        "stores them itself and never waits.", live=True,
    )  # fmt: skip
    schedule_async_deliver_max_pending_limit: int = setting(
        2000,
        "Most messages of one level under way at the same time, with enableScheduleAsyncDeliver.",
        low=1,
        live=True,
    )
    schedule_async_deliver_max_resend_num2_blocked: int = setting(
        3, "No further ones are sent while the first of them was sent again more often than this.", low=0, live=True
    )
    timer_wheel_enable: bool = setting(True, "Take messages with a delivery time, and deliver them.")
    mapped_file_size_timer_log: int = setting(
        104_857_600, "Size of a timer log file; fixed for a store.", unit="bytes", low=68, high=2_147_483_640
    )
    timer_precision_ms: int = setting(
        1000,
        "How late a message with a delivery time may be; rounded down to 100, 200, 500 or 1000. Another value is "
        "refused while such messages wait.",
        unit="ms",
        low=100,
    )
    timer_roll_window_slot: int = setting(
        172_800,
        "Slots of the timer's wheel that a message may lie ahead; a later message is put in again from there.",
        low=2,
    )
    timer_max_delay_sec: int = setting(
        259_200,
        "Longest delay of a message; a message that is due later is refused.",
        unit="s",
        low=0,
        high=MOST_OF_JAVA,
        live=True,
    )
    timer_flush_interval_ms: int = setting(
        1000, "Time between two checkpoints of the timer.", unit="ms", low=10, high=HOUR_MS, live=True
    )
    timer_congest_num_each_slot: int = setting(
        2_147_483_647,
        "Messages due at the same time above which some are refused; above twice as many, all are refused.",
        low=0,
        live=True,
    )
    timer_stop_enqueue: bool = setting(False, "Do not read timer messages into the wheel.", live=True)
    timer_stop_dequeue: bool = setting(False, "Deliver no timer messages.", live=True)
    disappear_time_after_start: int = setting(
        -1, "Wait this long after a start before timer messages are delivered.", unit="ms", low=-1
    )
    append_topic_for_timer_delete_key: bool = setting(
        False,
        "Write the markers that recall timer messages in the form of RocketMQ 5.3, for brokers that read no other.",
        live=True,
    )
    ha_listen_port: int = setting(0, "Port for slaves; 0: listenPort + 1.", low=0, high=65_535)
    in_sync_replicas: int = setting(
        0,
        "Copies, including this broker's, that a send to a SYNC_MASTER waits for; 1 waits for no slave; 0 (not "
        "given) waits for one slave.",
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
        "Bytes behind which a slave is not in sync (haSlaveFallbehindMax of RocketMQ 4).",
        unit="bytes",
        low=1,
        live=True,
    )
    ha_send_heartbeat_interval: int = setting(
        5000,
        "Time without a write after which master and slave send a heartbeat to each other.",
        unit="ms",
        low=1,
        live=True,
    )
    ha_housekeeping_interval: int = setting(
        20_000,
        "Time without data or a heartbeat after which master and slave close their connection.",
        unit="ms",
        low=1,
        live=True,
    )
    ha_transfer_batch_size: int = setting(
        32_768,
        "Most log bytes in one frame to a slave; a Java slave takes up to 4 MiB.",
        unit="bytes",
        low=1,
        high=4_194_292,
        live=True,
    )
    ha_flow_control_enable: bool = setting(False, "Limit the bytes sent to each slave per second.", live=True)
    max_ha_transfer_byte_in_second: int = setting(
        104_857_600, "Bytes per second to one slave, with haFlowControlEnable.", unit="bytes", low=1024, live=True
    )
    ha_master_address: str = setting(
        "",
        "Address that a slave copies from, `host:port` of the master's haListenPort; empty: ask the name servers.",
        form=HOST_PORT,
    )
    total_replicas: int = setting(
        1,
        "Brokers of the group, including this one. Above 1, with enableSlaveActingMaster, a master takes back the "
        "state of its slaves before it registers, and a broker that is cut off refuses what another one may do.",
        low=1,
    )
    sync_master_flush_offset_when_startup: bool = setting(
        False, "A slave whose checkpoint has no masterFlushedOffset takes it from its master."
    )

    # --- MaxQ's own, of replication ---
    peer_addresses: str = setting(
        "",
        "Addresses that may connect to haListenPort and to the port of this DLedger member: IP addresses and "
        "networks (`10.0.0.0/8`), separated by `,`, of the group's brokers and of machines from which a DLedger "
        "group is administered. Other connections are closed. Empty: all addresses, as in RocketMQ.",
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
        16_777_216, "Most bytes that scrubEnable reads in a second.", unit="bytes", low=65_536, live=True
    )
    scrub_interval: int = setting(
        86_400_000,
        "Pause between two passes of scrubEnable over the whole log.",
        unit="ms",
        low=1000,
        high=YEAR_MS,
        live=True,
    )

    # --- Compaction, DLedger, timer messages and the rest ---
    compaction_mapped_file_size: int = setting(
        104_857_600, "Approximate size of a log file of a compaction topic.", unit="bytes", low=4096, high=2_147_483_640
    )
    compaction_cq_mapped_file_size: int = setting(
        10_485_760,
        "Size of the file of queue entries of a compaction topic; at least a fifth of the size of its log file.",
        unit="bytes",
        low=460,
        high=2_147_483_640,
    )
    compaction_schedule_internal: int = setting(
        900_000, "Interval between two compactions of a queue.", unit="ms", low=1, live=True
    )
    enable_compaction: bool = setting(
        True, "Compact compaction topics; false: their messages expire like those of other topics."
    )
    enable_dleger_commit_log: bool = setting(
        False,
        "This broker is a member of a DLedger group, which elects its master and acknowledges a message when a "
        "majority has it on disk; brokerRole and brokerId follow from that.",
        wire="enableDLegerCommitLog",
    )
    dleger_group: str = setting("", "Name of the DLedger group, the same on all members.", wire="dLegerGroup")
    dleger_peers: str = setting(
        "", "All members of the group, id-host:port joined by ';', the same on all of them.", wire="dLegerPeers"
    )
    dleger_self_id: str = setting(
        "", "This member's id in dLegerPeers: one character and a number, such as n0.", wire="dLegerSelfId"
    )
    preferred_leader_id: str = setting("", "Members that lead if they can, ids joined by ';'.")
    dleger_heart_beat_interval: int = setting(
        400,
        "Time between two heartbeats of a leader; a follower gives up a leader that it has not heard of for three"
        " of them.",
        unit="ms", low=10, high=60_000, wire="dLegerHeartBeatInterval",
    )  # fmt: skip
    store_path_dledger_commit_log: str = setting(
        "",
        "Folder of the DLedger data files; empty: `dledger-<dLegerSelfId>/data` under storePathRootDir.",
        wire="storePathDLedgerCommitLog",
    )
    mapped_file_size_dledger_index: int = setting(  # MaxQ's own: a Java broker always has the default
        167_772_160, "Size of a file of DLedger's index, 32 bytes an entry.",
        unit="bytes", low=4096, high=2_147_479_552, wire="mappedFileSizeDLedgerIndex",
    )  # fmt: skip
