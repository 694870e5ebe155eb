"""Sends of every kind: messages, batches, replies, and messages that consumers give back.

`send_message.py` is the way of a send; `send_checks.py` what is refused; `put_hooks.py` what may change a message
before it is stored (`put_outcome.py`: what becomes of it); `send_back.py` and `retry_topics.py` retries and dead
letters, with `named_message.py`; `reply_message.py` answers of the request-reply pattern.
"""
