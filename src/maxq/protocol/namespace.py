"""Namespaces: `ns%name` on the wire, `name` for the user.

Retry and dead-letter prefixes stay in front (`%RETRY%ns%G`); system topics and groups are not wrapped.

Source: apache/rocketmq remoting/protocol/NamespaceUtil.java.
"""

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
#: Topics that clients may not send to.
FORBIDDEN_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)


def is_system_topic(topic: str) -> bool:
    """Return whether a topic is one of the system's (TopicValidator.isSystemTopic)."""
    return topic in SYSTEM_TOPICS or topic.startswith("rmq_sys_")


def is_system_group(group: str) -> bool:
    """Return whether a group is one of the system's (MixAll.isSysConsumerGroup)."""
    return group.startswith("CID_RMQ_SYS_")


def retry_topic(group: str) -> str:
    """Return the topic through which failed messages of `group` come back."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic for messages of `group` that failed too often."""
    return DLQ_PREFIX + group


def wrap(namespace: str, resource: str) -> str:
    """Return the name of a topic or group as it travels. It is unchanged without a namespace, when it has the namespace
    already, and for system names."""
    if not namespace or not resource or is_system_topic(resource) or is_system_group(resource):
        return resource
    prefix, name = _split_prefix(resource)
    if name.startswith(f"{namespace}%"):
        return resource
    return f"{prefix}{namespace}%{name}"


def unwrap(namespace: str, resource: str) -> str:
    """Return the user's name of a topic or group. It is unchanged if it is not in `namespace`."""
    if not namespace:
        return resource
    prefix, name = _split_prefix(resource)
    return prefix + name.removeprefix(f"{namespace}%")


def _split_prefix(resource: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if resource.startswith(prefix):
            return prefix, resource[len(prefix) :]
    return "", resource
