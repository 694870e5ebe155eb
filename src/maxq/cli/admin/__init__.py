"""`maxq admin …`: mqadmin's commands under mqadmin's names and options, each with --json, --table and --csv."""

from maxq.cli.lazy import Entry, LazyGroup

_MODULES = {
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
    },
    "static_topics": {
        "updateStaticTopic": "Make a static topic, or give one more queues.",
        "remappingStaticTopic": "Move the queues of a static topic to other brokers.",
    },
    "groups": {
        "updateSubGroup": "Create or change a consumer group.",
        "updateSubGroupList": "Create or change the consumer groups of a JSON file.",
        "deleteSubGroup": "Delete a consumer group.",
        "getConsumerConfig": "Settings of a consumer group on every broker.",
        "consumerProgress": "Where consumer groups are, and how far behind.",
        "consumerConnection": "Members and subscriptions of a consumer group.",
        "consumerStatus": "What the members of a consumer group say of themselves.",
        "producerConnection": "Members of a producer group.",
        "producer": "All producers of a broker.",
        "setConsumeMode": "Pull or pop for a topic and group.",
    },
    "offsets": {
        "resetOffsetByTime": "Let a consumer group go on at a time or an offset.",
        "skipAccumulatedMessage": "Let a consumer group go on at the end.",
        "cloneGroupOffset": "Put a consumer group where another one is.",
    },
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
    },
    "brokers": {
        "clusterList": "All clusters and brokers.",
        "brokerStatus": "State and statistics of brokers.",
        "getBrokerConfig": "All settings of brokers.",
        "updateBrokerConfig": "Change a setting of brokers.",
        "brokerConsumeStats": "Progress of all groups on a broker.",
        "statsAll": "Rates and backlog of topics and groups.",
        "cleanExpiredCQ": "Delete queue files whose messages are gone.",
        "cleanUnusedTopic": "Delete queues of topics that are gone.",
        "deleteExpiredCommitLog": "Delete log files older than they must be kept.",
    },
    "replication": {
        "haStatus": "Slaves, how far they are behind, and bytes a second.",
    },
    "name_servers": {
        "getNamesrvConfig": "Settings of the name servers.",
        "updateNamesrvConfig": "Change a setting of the name servers.",
        "updateKvConfig": "Set a value in the name servers' key-value table.",
        "deleteKvConfig": "Remove a value from it.",
        "wipeWritePerm": "Take a broker out of service for producers.",
        "addWritePerm": "Put it back.",
    },
}
ENTRIES = {
    name: Entry(f"maxq.cli.admin.{module}", summary, name)
    for module, commands in _MODULES.items()
    for name, summary in commands.items()
}
group = LazyGroup("admin", "mqadmin's commands; -n or NAMESRV_ADDR says where the name servers are.", ENTRIES)
