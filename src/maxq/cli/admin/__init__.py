"""`maxq admin …`: mqadmin's commands under mqadmin's names and options, each with --json, --table and --csv.

The table of commands is below; a command is imported when it is called. `command.py` makes a coroutine a command,
`fan_out.py` asks many servers and keeps who failed; beside them one module for each noun.
"""

from maxq.cli.lazy import Entry, LazyGroup

#: Heading in the help → module → command → one line about it.
_SECTIONS = {
    "Topics": {
        "topics": {
            "updateTopic": "Create or change a topic.",
            "updateTopicList": "Create or change the topics of a JSON file.",
            "updateTopicPerm": "Change who may read and write a topic.",
            "deleteTopic": "Delete a topic from brokers and name servers.",
            "topicList": "All topics.",
            "topicRoute": "The brokers and queues of a topic.",
            "topicStatus": "Offsets of a topic's queues.",
            "topicClusterList": "The clusters that have a topic.",
            "updateOrderConf": "Get, put or delete the order configuration of a topic.",
            "allocateMQ": "How the queues of a topic would be shared out.",
            "updateStaticTopic": "Make a static topic, or give one more queues.",
            "remappingStaticTopic": "Move the queues of a static topic to other brokers.",
        },
    },
    "Groups and connections": {
        "groups": {
            "updateSubGroup": "Create or change a consumer group.",
            "updateSubGroupList": "Create or change the consumer groups of a JSON file.",
            "deleteSubGroup": "Delete a consumer group.",
            "getConsumerConfig": "Settings of a consumer group on every broker.",
            "consumerProgress": "Where consumer groups are, and how far behind.",
            "consumerConnection": "Members and subscriptions of a consumer group.",
            "consumerStatus": "The state that the members of a consumer group report.",
            "producerConnection": "Members of a producer group.",
            "producer": "All producers of a broker.",
            "setConsumeMode": "Pull or pop for a topic and group.",
        },
    },
    "Offsets": {
        "offsets": {
            "resetOffsetByTime": "Let a consumer group continue at a time or an offset.",
            "skipAccumulatedMessage": "Let a consumer group continue at the end.",
            "cloneGroupOffset": "Copy the offsets of a consumer group to another one.",
        },
    },
    "Messages": {
        "messages": {
            "queryMsgById": "A message by its offset id.",
            "queryMsgByKey": "Messages by key.",
            "queryMsgByUniqueKey": "Messages by the producer's id.",
            "queryMsgByOffset": "The message at an offset of a queue.",
            "printMsg": "All messages of a topic, or of a time.",
            "printMsgByQueue": "All messages of a queue, or how many of each tag.",
            "consumeMessage": "Messages of a topic or queue from an offset or time on, of no group.",
            "sendMessage": "Send one message.",
            "queryCq": "Units of a ConsumeQueue.",
            "dumpCompactionLog": "Messages in a file of a compacted topic.",
        },
        "send_times": {
            "sendMsgStatus": "Send messages to one broker and show the result of each.",
            "checkMsgSendRT": "Send messages to a topic and show how long each took.",
            "clusterRT": "Send messages to all brokers and show how long they took.",
        },
        "traces": {
            "queryMsgTraceById": "Who sent and consumed a message, when and how it went.",
        },
    },
    "Brokers and clusters": {
        "brokers": {
            "clusterList": "All clusters and brokers.",
            "brokerStatus": "State and statistics of brokers.",
            "getBrokerConfig": "All settings of brokers.",
            "updateBrokerConfig": "Change a setting of brokers.",
            "brokerConsumeStats": "Progress of all groups on a broker.",
            "statsAll": "Rates and backlog of topics and groups.",
            "cleanExpiredCQ": "Delete queue files whose messages were deleted.",
            "cleanUnusedTopic": "Delete queues of deleted topics.",
            "deleteExpiredCommitLog": "Delete log files whose time of retention is over.",
            "switchTimerEngine": "Which engine a Java broker's timer uses.",
            "getColdDataFlowCtrInfo": "Thresholds of cold reads.",
            "updateColdDataFlowCtrGroupConfig": "Set how much a consumer group may read cold.",
            "removeColdDataFlowCtrGroupConfig": "Give a consumer group the common threshold again.",
            "setCommitLogReadAheadMode": "Whether the kernel reads ahead in the log.",
        },
        "replication": {
            "haStatus": "Slaves, how far they are behind, and bytes a second.",
            "resetMasterFlushOffset": "Tell a slave how far its master has flushed.",
        },
        "dledger": {
            "dledgerStatus": "Roles, terms and indices of DLedger groups, of every member.",
            "dledgerTransfer": "Hand the leadership of a DLedger group over.",
        },
        "operations": {
            "why-slow": "Where the time of recent sends went on a broker, and its refusals.",
            "purgeTopic": "Hide messages of a topic, all or up to a time or offset.",
        },
        "groups": {
            "startMonitoring": "Backlogs, differing subscriptions and queues that stand still.",
        },
    },
    "Exports": {
        "exports": {
            "exportMetadata": "Topics and consumer groups as a JSON file.",
            "exportConfigs": "Settings of a cluster's masters as a JSON file.",
            "exportMetrics": "Rates and sizes of a cluster's masters as a JSON file.",
        },
    },
    "What only Java's servers have": {
        "replication": {
            "getBrokerEpoch": "Epochs of brokers in RocketMQ's controller mode.",
        },
        "controllers": {
            "getSyncStateSet": "Which brokers have everything, as a controller sees it.",
            "getControllerMetaData": "Leader and members of a group of controllers.",
            "getControllerConfig": "Settings of controllers.",
            "updateControllerConfig": "Change a setting of controllers.",
            "electMaster": "Make another broker of a group its master.",
            "cleanBrokerMetadata": "Make a controller forget brokers.",
        },
        "brokers": {
            "addBroker": "Start a broker in RocketMQ's broker container.",
            "removeBroker": "Stop a broker of a broker container.",
        },
        "lite_topics": {
            "getBrokerLiteInfo": "Lite topics of brokers, in numbers.",
            "getParentTopicInfo": "A parent topic of lite topics.",
            "getLiteTopicInfo": "Offsets and subscribers of a lite topic.",
            "getLiteClientInfo": "A client's subscriptions below a parent topic.",
            "getLiteGroupInfo": "How far behind a group is in lite topics.",
            "triggerLiteDispatch": "Have brokers look again for a group's lite messages.",
        },
        "exports": {
            "exportPopRecord": "Have Java brokers move pop's records out of RocksDB.",
            "rocksDBConfigToJson": "Have Java brokers write settings in RocksDB as JSON.",
            "exportMetadataInRocksDB": "Refused: reads RocksDB folders of Java brokers.",
            "checkRocksdbCqWriteProgress": "Have Java brokers compare queues in files and RocksDB.",
        },
    },
    "Name servers": {
        "name_servers": {
            "getNamesrvConfig": "Settings of the name servers.",
            "updateNamesrvConfig": "Change a setting of the name servers.",
            "updateKvConfig": "Set a value in the name servers' key-value table.",
            "deleteKvConfig": "Remove a value from that table.",
            "wipeWritePerm": "Take a broker out of service for producers.",
            "addWritePerm": "Put a broker back into service for producers.",
        },
    },
    "Users and policies": {
        "access": {
            "createUser": "Make a user.",
            "updateUser": "Change the password, type or status of a user.",
            "deleteUser": "Delete a user and its policies.",
            "getUser": "A user.",
            "listUser": "Users.",
            "copyUser": "Copy users from one server to another.",
            "createAcl": "Allow or deny a user something.",
            "updateAcl": "Change the permissions of a user.",
            "deleteAcl": "Delete entries of a user's policies.",
            "getAcl": "The policies of a user.",
            "listAcl": "Policies of users.",
            "copyAcl": "Copy policies from one server to another.",
        },
    },
}
ENTRIES = {
    name: Entry(f"maxq.cli.admin.{module}", summary, name, title)
    for title, modules in _SECTIONS.items()
    for module, commands in modules.items()
    for name, summary in commands.items()
}
group = LazyGroup(
    "admin",
    "mqadmin's commands, under its names and options, each with --json, --table and --csv.",
    ENTRIES,
    epilog="-n, NAMESRV_ADDR or a context (maxq context) says where the name servers are.",
)
