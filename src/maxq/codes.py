"""Numbers on the wire: request codes, response codes, languages, versions. Values are RocketMQ's."""

from enum import IntEnum


class RequestCode(IntEnum):
    """The kind of a request (RequestCode.java)."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    UPDATE_AND_CREATE_ACL_CONFIG = 50
    DELETE_ACL_CONFIG = 51
    GET_BROKER_CLUSTER_ACL_INFO = 52
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53
    GET_BROKER_CLUSTER_ACL_CONFIG = 54
    GET_TIMER_CHECK_POINT = 60
    GET_TIMER_METRICS = 61
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    QUERY_CORRECTION_OFFSET = 308
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    RESUME_CHECK_HALF_MESSAGE = 323
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    QUERY_TOPICS_BY_CONSUMER = 343
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS = 354
    EXPORT_ROCKSDB_CONFIG_TO_JSON = 355
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    GET_ALL_MESSAGE_REQUEST_MODE = 402
    UPDATE_AND_CREATE_STATIC_TOPIC = 513
    GET_BROKER_MEMBER_GROUP = 901
    ADD_BROKER = 902
    REMOVE_BROKER = 903
    BROKER_HEARTBEAT = 904
    NOTIFY_MIN_BROKER_ID_CHANGE = 905
    EXCHANGE_BROKER_HA_INFO = 906
    GET_BROKER_HA_STATUS = 907
    RESET_MASTER_FLUSH_OFFSET = 908
    CONTROLLER_ELECT_MASTER = 1002
    CONTROLLER_GET_METADATA_INFO = 1005
    CONTROLLER_GET_SYNC_STATE_DATA = 1006
    GET_BROKER_EPOCH_CACHE = 1007
    NOTIFY_BROKER_ROLE_CHANGED = 1008
    UPDATE_CONTROLLER_CONFIG = 1009
    GET_CONTROLLER_CONFIG = 1010
    CLEAN_BROKER_DATA = 1011
    UPDATE_COLD_DATA_FLOW_CTR_CONFIG = 2001
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG = 2002
    GET_COLD_DATA_FLOW_CTR_INFO = 2003
    SET_COMMITLOG_READ_MODE = 2004
    AUTH_CREATE_USER = 3001
    AUTH_UPDATE_USER = 3002
    AUTH_DELETE_USER = 3003
    AUTH_GET_USER = 3004
    AUTH_LIST_USER = 3005
    AUTH_CREATE_ACL = 3006
    AUTH_UPDATE_ACL = 3007
    AUTH_DELETE_ACL = 3008
    AUTH_GET_ACL = 3009
    AUTH_LIST_ACL = 3010
    SWITCH_TIMER_ENGINE = 5001
    MAXQ_LIST_TIMER_MESSAGES = 30060
    MAXQ_INSPECT_TIMER_MESSAGE = 30061
    MAXQ_CANCEL_TIMER_MESSAGE = 30062
    MAXQ_STAGE_MESSAGES = 30070
    MAXQ_STAGED_DECISION = 30071
    MAXQ_DECIDE_STAGED = 30072
    MAXQ_DELIVER_STAGED = 30073
    MAXQ_CLAIM_STAGED = 30074
    MAXQ_WHY_SLOW = 30080
    MAXQ_PURGE_TOPIC = 30081
    MAXQ_AWAIT_TABLE_CHANGE = 30090
    MAXQ_HAND_BACK_POPS = 30091
    MAXQ_COPY_POPS = 30092
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    PEEK_MESSAGE = 200052
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    NOTIFICATION = 200054
    POLLING_INFO = 200055
    POP_ROLLBACK = 200056
    POP_LITE_MESSAGE = 200070
    LITE_SUBSCRIPTION_CTL = 200071
    ACK_LITE_MESSAGE = 200072
    NOTIFY_UNSUBSCRIBE_LITE = 200073
    GET_BROKER_LITE_INFO = 200074
    GET_PARENT_TOPIC_INFO = 200075
    GET_LITE_TOPIC_INFO = 200076
    GET_LITE_CLIENT_INFO = 200077
    GET_LITE_GROUP_INFO = 200078
    TRIGGER_LITE_DISPATCH = 200079
    BATCH_ACK_MESSAGE = 200151


class ResponseCode(IntEnum):
    """How a request ended (RemotingSysResponseCode.java, ResponseCode.java).

    Behind each code: what it means, and what to do (docs/reference/response-codes.md).
    """

    RPC_TIME_OUT = -1006  # only Java's brokers: another broker did not answer them in time | try again
    RPC_SEND_TO_CHANNEL_FAILED = -1004  # only Java's brokers: their connection to another one broke | try again
    RPC_ADDR_IS_NULL = -1002  # only Java's brokers: they know no address of another one | see that it is registered
    RPC_UNKNOWN = -1000  # only Java's brokers: asking another one failed | see the remark
    SUCCESS = 0  # done | –
    SYSTEM_ERROR = 1  # it failed: the remark says why | see the remark, and the server's log
    SYSTEM_BUSY = 2  # refused for now: a limit is reached | try again later or elsewhere; the remark names the setting
    REQUEST_CODE_NOT_SUPPORTED = 3  # this server does not know the request | use a server of the right kind and release
    TRANSACTION_FAILED = 4  # not used by RocketMQ's servers today | –
    FLUSH_DISK_TIMEOUT = 10  # stored, but the disk was not synced in time | send again if it must be on the disk
    SLAVE_NOT_AVAILABLE = 11  # stored, but no slave was near enough; or the change is the master's | start the slave
    FLUSH_SLAVE_TIMEOUT = 12  # stored, but no slave had it in time | send again if a slave must have it
    MESSAGE_ILLEGAL = 13  # the message is refused: topic, size or properties | mend what the remark names
    SERVICE_NOT_AVAILABLE = 14  # this broker takes nothing now: disk, role or start | clients go to another broker
    VERSION_NOT_SUPPORTED = 15  # not used by RocketMQ's servers today | –
    NO_PERMISSION = 16  # access control, or the topic's permission, forbids it | see getAcl and updateTopicPerm
    TOPIC_NOT_EXIST = 17  # no such topic | create it, or allow autoCreateTopicEnable
    TOPIC_EXIST_ALREADY = 18  # not used by RocketMQ's servers today | –
    PULL_NOT_FOUND = 19  # no new message at this offset | clients pull again
    PULL_RETRY_IMMEDIATELY = 20  # messages, but none that fit the subscription | clients go on at the answer's offset
    PULL_OFFSET_MOVED = 21  # the offset is outside of the queue | clients go on at the answer's offset
    QUERY_NOT_FOUND = 22  # no such message, or no offset of a group that is new | –
    SUBSCRIPTION_PARSE_FAILED = 23  # the filter expression is wrong | mend what the remark names
    SUBSCRIPTION_NOT_EXIST = 24  # the group has not told of this subscription | start its consumers
    SUBSCRIPTION_NOT_LATEST = 25  # the group's subscription changed meanwhile | clients tell of it again
    SUBSCRIPTION_GROUP_NOT_EXIST = 26  # no such group | create it, or allow autoCreateSubscriptionGroup
    FILTER_DATA_NOT_EXIST = 27  # the group's SQL filter is not there | consumers send it with their next heart-beat
    FILTER_DATA_NOT_LATEST = 28  # the group's SQL filter is an old one | consumers send it with their next heart-beat
    INVALID_PARAMETER = 29  # a field of the request has a wrong value | mend what the remark names
    TRANSACTION_SHOULD_COMMIT = 200  # not used by RocketMQ's servers today | –
    TRANSACTION_SHOULD_ROLLBACK = 201  # not used by RocketMQ's servers today | –
    TRANSACTION_STATE_UNKNOW = 202  # not used by RocketMQ's servers today | –
    TRANSACTION_STATE_GROUP_WRONG = 203  # not used by RocketMQ's servers today | –
    NO_BUYER_ID = 204  # not used by RocketMQ's servers today | –
    NOT_IN_CURRENT_UNIT = 205  # not used by RocketMQ's servers today | –
    CONSUMER_NOT_ONLINE = 206  # no member of the group is connected | start its consumers
    CONSUME_MSG_TIMEOUT = 207  # a consumer that was asked to consume a message did not answer in time | try again
    NO_MESSAGE = 208  # nothing to give | –
    POLLING_FULL = 209  # too many requests wait for messages | clients ask again; see popPollingSize
    POLLING_TIMEOUT = 210  # no message came while the request waited | clients ask again
    BROKER_NOT_EXIST = 211  # only Java's servers: no such broker | see clusterList
    BROKER_DISPATCH_NOT_COMPLETE = 212  # not used by RocketMQ's servers today | –
    BROADCAST_CONSUMPTION = 213  # only Java's brokers: a broadcasting group keeps its offsets at its members | ask them
    FLOW_CONTROL = 215  # only Java's brokers: a quota is reached (MaxQ: SYSTEM_BUSY) | slow down
    NOT_LEADER_FOR_QUEUE = 501  # this broker does not lead the queue (static topics) | clients ask for the route again
    ILLEGAL_OPERATION = 604  # the operation does not fit the state | see the remark
    GO_AWAY = 1500  # the server ends | clients connect to another one
    FENCED_MASTER_EPOCH = 2000  # controller mode, which MaxQ does not have | –
    FENCED_SYNC_STATE_SET_EPOCH = 2001  # controller mode, which MaxQ does not have | –
    INVALID_MASTER = 2002  # controller mode, which MaxQ does not have | –
    INVALID_REPLICAS = 2003  # controller mode, which MaxQ does not have | –
    MASTER_NOT_AVAILABLE = 2004  # controller mode, which MaxQ does not have | –
    INVALID_REQUEST = 2005  # controller mode, which MaxQ does not have | –
    BROKER_NOT_ALIVE = 2006  # controller mode, which MaxQ does not have | –
    NOT_LEADER = 2007  # controller mode, which MaxQ does not have | –
    BROKER_METADATA_NOT_EXIST = 2008  # controller mode, which MaxQ does not have | –
    INVALID_CLEAN_BROKER_METADATA = 2009  # controller mode, which MaxQ does not have | –
    BROKER_NEED_TO_BE_REGISTERED = 2010  # controller mode, which MaxQ does not have | –
    MASTER_STILL_EXIST = 2011  # controller mode, which MaxQ does not have | –
    ELECT_MASTER_FAILED = 2012  # controller mode, which MaxQ does not have | –
    ALTER_SYNC_STATE_SET_FAILED = 2013  # controller mode, which MaxQ does not have | –
    BROKER_ID_INVALID = 2014  # controller mode, which MaxQ does not have | –
    JRAFT_INTERNAL_ERROR = 2015  # controller mode, which MaxQ does not have | –
    BROKER_LIVE_INFO_NOT_EXISTS = 2016  # controller mode, which MaxQ does not have | –
    LMQ_QUOTA_EXCEEDED = 2017  # too many light queues | maxLmqConsumeQueueNum
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 2018  # only Java's brokers: too many light subscriptions | end some
    USER_NOT_EXIST = 3001  # only Java's brokers: no such user | see listUser
    POLICY_NOT_EXIST = 3002  # only Java's brokers: no such policy | see listAcl


class LanguageCode(IntEnum):
    """The languages of clients and servers (LanguageCode.java)."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


class MQVersion(IntEnum):
    """Ordinals of the releases that decide behaviour (MQVersion.java)."""

    V3_0_7_SNAPSHOT = 28
    V3_0_11 = 37
    V3_1_8_SNAPSHOT = 62
    V3_4_9 = 121
    V4_1_0_SNAPSHOT = 232
    V4_9_3 = 399
    V4_9_4 = 401
    V5_0_0 = 413
    V5_3_1 = 475
    V5_3_3 = 479
    V5_3_4 = 481
    V5_4_0 = 493
    V5_5_0 = 513


#: What our own frames carry.
CURRENT_VERSION = MQVersion.V5_3_3

#: The version of MaxQ itself.
MAXQ_VERSION = "0.1.0"
