"""A message that is delivered if, and only if, a row was written into a database."""

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from examples.clients import name_server
from maxq.api import (
    ConsumeFromWhere,
    LitePullConsumer,
    LocalTransactionState,
    Message,
    MessageExt,
    TransactionProducer,
)

TOPIC = "ExamplePayments"


class Payments:
    """The local transactions: rows whose key is the transaction's id."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with self._connect() as database:
            database.execute("CREATE TABLE payments (id TEXT PRIMARY KEY, amount INTEGER)")

    def execute_local_transaction(self, message: Message, amount: Any) -> LocalTransactionState:
        if amount <= 0:
            return LocalTransactionState.ROLLBACK_MESSAGE
        with self._connect() as database:  # commits at the end of the block
            database.execute("INSERT INTO payments VALUES (?, ?)", (message.transaction_id, amount))
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        """Called when the broker does not know how a transaction ended, for example after a crash."""
        with self._connect() as database:
            row = database.execute("SELECT 1 FROM payments WHERE id = ?", (message.transaction_id,)).fetchone()
        return LocalTransactionState.COMMIT_MESSAGE if row else LocalTransactionState.UNKNOW

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        listener = Payments(Path(folder) / "payments.db")
        with TransactionProducer("example-tills", name_server(), listener) as producer:
            for amount in (40, -1, 2):
                result = producer.send_message_in_transaction(Message(TOPIC, b"%d" % amount), amount)
                print(amount, result.local_transaction_state.name)

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with LitePullConsumer("example-books", name_server(), consume_from_where=first) as consumer:
        consumer.subscribe(TOPIC)
        amounts: list[int] = []
        while len(amounts) < 2:
            amounts += [int(message.body) for message in consumer.poll(1000)]
    print("delivered:", sorted(amounts))


if __name__ == "__main__":
    main()
