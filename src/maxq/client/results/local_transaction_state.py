"""How a local transaction ended (client/producer/LocalTransactionState.java)."""

from enum import Enum


class LocalTransactionState(Enum):
    """How a local transaction ended. After UNKNOW (Java's spelling) the broker asks again."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"
