"""Which names topics and groups may have, and which topics belong to the broker itself.

Source:
    common/topic/TopicValidator.java, common/MixAll.java.
"""

import re
from typing import Final

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_TRANS_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
ROCKSDB_OFFSET_TOPIC: Final = "CHECKPOINT_TOPIC"
#: Topics whose messages a broker never sends to another broker.
JOURNAL_TOPIC: Final = "rmq_sys_MAXQ_POP_JOURNAL"
STAGED_TOPIC: Final = "rmq_sys_MAXQ_STAGED"
STAGED_LEDGER_TOPIC: Final = "rmq_sys_MAXQ_STAGED_LEDGER"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYNC_BROKER_MEMBER_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
REPLY_TOPIC_POSTFIX: Final = "_REPLY_TOPIC"
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
JOURNAL_GROUP: Final = "CID_RMQ_SYS_MAXQ_POP"
JOURNAL_SET_GROUP: Final = "CID_RMQ_SYS_MAXQ_POP_SET"
#: Groups whose offsets are the broker's own progress: what is finished of transactions and pops.
OWN_GROUPS: Final = frozenset({TRANSACTION_GROUP, REVIVE_GROUP, JOURNAL_GROUP, JOURNAL_SET_GROUP})

TOPIC_MAX_LENGTH: Final = 127
GROUP_MAX_LENGTH: Final = 120  # room for the prefixes of retry and dead letter topics
RETRY_OR_DLQ_TOPIC_MAX_LENGTH: Final = 255

#: System topics that every broker has; those named after cluster and broker are the TopicConfigManager's to know.
SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        ROCKSDB_TRANS_HALF_TOPIC,
        ROCKSDB_TRANS_OP_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        ROCKSDB_OFFSET_TOPIC,
    }
)

NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        ROCKSDB_TRANS_HALF_TOPIC,
        ROCKSDB_TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        JOURNAL_TOPIC,
        STAGED_TOPIC,
        STAGED_LEDGER_TOPIC,
    }
)

_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_CHARACTERS: Final = "^[%|a-zA-Z0-9_-]+$"
_RENAME: Final = "choose another name"


def validate_topic(topic: str) -> str | None:
    """Return what is wrong with a topic's name; None if it is legal."""
    if not topic.strip():
        return f"The specified topic is blank. A name has 1 to {TOPIC_MAX_LENGTH} characters of {_CHARACTERS}"
    if _LEGAL.fullmatch(topic) is None:
        return f"The specified topic: {_shown(topic)}, contains {_illegal(topic)}; {_RENAME}"
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        if len(topic) > RETRY_OR_DLQ_TOPIC_MAX_LENGTH:
            return (
                f"The specified topic is DLQ or Retry topic: {_shown(topic)}, and it's longer than topic max length: "
                f"{RETRY_OR_DLQ_TOPIC_MAX_LENGTH} ({len(topic)} characters); {_RENAME}"
            )
    elif len(topic) > TOPIC_MAX_LENGTH:
        return (
            f"The specified topic: {_shown(topic)}, is longer than topic max length: {TOPIC_MAX_LENGTH} "
            f"({len(topic)} characters); {_RENAME}"
        )
    return None


def validate_group(group: str) -> str | None:
    """Return what is wrong with a group's name; None if it is legal."""
    if not group.strip():
        return f"The specified group is blank. A name has 1 to {GROUP_MAX_LENGTH} characters of {_CHARACTERS}"
    if _LEGAL.fullmatch(group) is None:
        return f"The specified group: {_shown(group)}, contains {_illegal(group)}; {_RENAME}"
    if len(group) > GROUP_MAX_LENGTH:
        return (
            f"The specified group: {_shown(group)}, is longer than group max length: {GROUP_MAX_LENGTH} "
            f"({len(group)} characters); {_RENAME}"
        )
    return None


def _illegal(name: str) -> str:
    """Return the illegal character of a name, and its position."""
    legal = _LEGAL.match(name)
    place = legal.end() if legal else 0
    return f"illegal characters, allowing only {_CHARACTERS} ({name[place]!r} is character {place + 1})"


def _shown(name: str) -> str:
    """Return a name shortened for a remark: a received name may have megabytes."""
    longest = RETRY_OR_DLQ_TOPIC_MAX_LENGTH
    return name if len(name) <= longest else f"{name[:longest]}…"


def is_system_topic(topic: str) -> bool:
    """Return whether this is one of the system topics whose names do not depend on cluster and broker; case matters."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_not_allowed_send_topic(topic: str) -> bool:
    """Return whether only the broker writes this topic: a client's send is answered 16."""
    return topic in NOT_ALLOWED_SEND_TOPICS


def is_system_group(group: str) -> bool:
    """Return whether this group is created on demand even when automatic creation is off."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def validate_reader(group: str) -> str | None:
    """Return why clients may neither read as this group nor change its offsets; None if they may."""
    if group not in OWN_GROUPS:
        return None
    return f"group {group} is the broker's own: its offsets say what transactions and pops have done; use another group"


def is_lmq(name: str) -> bool:
    """Return whether the name is that of a light message queue: these have a prefix and one queue."""
    return name.startswith(LMQ_PREFIX)


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def retry_topic(group: str) -> str:
    """Return the topic in which messages of `group` wait for another try."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic for messages of `group` that failed too often."""
    return DLQ_PREFIX + group


def pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """Retry topics of pop consumption, in its two spellings (KeyBuilder.java, V2 and V1)."""
    return f"{RETRY_PREFIX}{group}+{topic}", f"{RETRY_PREFIX}{group}_{topic}"
