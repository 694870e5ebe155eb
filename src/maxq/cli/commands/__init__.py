"""The commands for users and operators of one server.

`servers.py` runs servers (`workers.py`: several brokers), `messages.py` sends and reads, `store.py` looks into
store directories; `timer.py`, `transaction.py`, `dlq.py` and `dledger.py` are about one kind of message or group
each. `shell.py` takes any command, a line at a time.
"""
