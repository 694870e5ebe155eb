"""Sends of every kind: messages, batches, replies, and messages that consumers give back.

`send_message.py` is the way of a send; `send_checks.py` what is refused; `send_back.py`, `retry_policy.py` and
`retry_topics.py` retries and dead letters; `reply_message.py` answers of the request-reply pattern.
"""
