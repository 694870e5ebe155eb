"""How a local transaction ended (client/producer/LocalTransactionState.java)."""

from enum import Enum


class LocalTransactionState(Enum):
    """UNKNOW (Java's word) is asked for again."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"
